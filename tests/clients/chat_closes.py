"""The room closes when the server is told to stop: everybody hears what was said before, and is told."""

import os
import signal

from chatter import Chatter
from wire import expect, port_and_pid

MEMBERS = 20


def main():
    port, pid = port_and_pid()
    members = [Chatter(port, f"m{number}") for number in range(MEMBERS)]
    members[0].say("last words")
    # Heard by one, so the server has them.
    members[1].skip_to("m0: last words")
    os.kill(pid, signal.SIGTERM)
    for member in members[2:]:
        member.skip_to("m0: last words")
    for member in members:
        member.skip_to("* the room closes")
        expect(member.lines.readline() == "", f"{member.nick}: the stream goes on after the end")


main()
