"""Writes SIZE position-coded bytes to standard output.

usage: make_pattern.py SIZE
"""

import sys

from wire import pattern

sys.stdout.buffer.write(pattern(int(sys.argv[1])))
