"""A client that sends and does not read is held back by TCP; it costs no memory, no order and no other client."""

import select

from wire import connect, expect, expect_same, pattern, port_and_pid, receive_exactly, resident_bytes

# The most that the kernel and the server may hold for one stuck connection: both ends' socket buffers are a few MiB.
STUCK_LIMIT = 48 << 20
MEMORY_LIMIT = 4 << 20
CHUNK = 64 << 10


def send_until_stuck(sock):
    """Send until the server has taken nothing for a whole second, and return how much that was."""
    sock.setblocking(False)
    sent = 0
    while select.select([], [sock], [], 1.0)[1]:
        sent += sock.send(pattern(CHUNK, sent))
        expect(sent < STUCK_LIMIT, f"the server took {sent} bytes though nobody reads the echo")
    sock.settimeout(20)
    return sent


def main():
    port, pid = port_and_pid()
    memory_before = resident_bytes(pid)
    with connect(port, receive_buffer=32 << 10) as slow, connect(port) as other:
        sent = send_until_stuck(slow)
        growth = resident_bytes(pid) - memory_before
        expect(growth < MEMORY_LIMIT, f"the server grew by {growth} bytes for one client that does not read")

        for round_ in range(100):
            message = pattern(1000, round_ * 1000)
            other.sendall(message)
            expect_same(receive_exactly(other, len(message)), message, "a client beside the slow one")

        expect_same(receive_exactly(slow, sent), pattern(sent), "the slow client, once it reads")
        slow.sendall(b"still alive")
        expect_same(receive_exactly(slow, 11), b"still alive", "the slow client afterwards")
    print(f"{sent >> 10} KiB in flight while stuck, the server grew by {growth >> 10} KiB")


main()
