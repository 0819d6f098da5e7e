"""A member that does not read is dropped with a notice; the others notice nothing else, and memory stays bounded."""

from chatter import enter, join
from wire import expect, expect_closed, open_files, port_and_pid, resident_bytes

LINE = "x" * 4000
MAX_LINES = 5000
MEMORY_LIMIT = 4 << 20
NOTICE = "* sloth was dropped: too slow to read"


def talk_until_dropped(talker, listener):
    """Say long lines until the room has had enough of the slow member; return how many that member was sent."""
    for number in range(MAX_LINES):
        talker.say(f"{number} {LINE}")
        line = listener.read()
        if line == NOTICE:
            listener.hear(f"talker: {number} {LINE}")
            # The line before this one was the first that did not fit into the mailbox.
            return number - 1
        expect(line == f"talker: {number} {LINE}", f"the listener heard {line[:40]!r} as line {number}")
    raise AssertionError(f"{MAX_LINES} lines wait for a member that does not read")


def main():
    port, pid = port_and_pid()
    files = open_files(pid)
    talker, listener = enter(port, ["talker", "listener"])
    sloth = join(port, "sloth", [talker, listener], receive_buffer=4096)

    memory = resident_bytes(pid)
    sent = talk_until_dropped(talker, listener)
    growth = resident_bytes(pid) - memory
    expect(growth < MEMORY_LIMIT, f"the server grew by {growth} bytes for one slow member")
    talker.hear(NOTICE)
    talker.say("/who")
    talker.hear("* 2 here: talker, listener")

    # What was on its way when it was dropped still arrives, in order, and then the reason.
    for number in range(sent):
        sloth.hear(f"talker: {number} {LINE}")
    sloth.hear("* you were dropped: too slow to read")
    sloth.hear_end()

    for member in (talker, listener, sloth):
        member.close()
    expect_closed(pid, files)
    print(f"dropped after {sent} lines, the server grew by {growth >> 10} KiB")


main()
