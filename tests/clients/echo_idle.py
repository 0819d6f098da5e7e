"""2,000 idle connections cost the server no processor time, and each no more than so many bytes of memory.

usage: echo_idle.py PORT PID BYTES
"""

import sys

from crowd import allow_open_files, close_connections, open_connections
from wire import (
    connect,
    expect,
    expect_a_second_asleep,
    open_files,
    port_and_pid,
    receive_exactly,
    resident_bytes,
)

CONNECTIONS = 2000


def main():
    port, pid = port_and_pid()
    limit = int(sys.argv[3])
    allow_open_files()

    # One message first, for what all connections share: code pages, the first receive buffer.
    with connect(port) as first:
        first.sendall(b"hello")
        receive_exactly(first, 5)
        files, memory = open_files(pid), resident_bytes(pid)
        socks = open_connections(port, pid, CONNECTIONS)

        each = (resident_bytes(pid) - memory) / CONNECTIONS
        expect(each <= limit, f"an idle connection costs {each:.0f} bytes, the limit is {limit}")
        expect_a_second_asleep(pid)

        close_connections(socks, pid, files)
    print(f"{each:.0f} bytes for each idle connection")


main()
