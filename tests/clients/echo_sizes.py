"""Messages of many sizes, each on a connection of its own and all on one, come back unchanged."""

from wire import connect, expect_same, pattern, port_and_pid, receive_exactly, send_beside

AROUND = [64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10]
SIZES = [1, 2, 3, 7, 8] + [size + delta for size in AROUND for delta in (-1, 0, 1)] + [1_000_003, 8 << 20]


def echo(sock, size, start):
    """One message there and back."""
    message = pattern(size, start)
    sender = send_beside(sock, message)
    expect_same(receive_exactly(sock, size), message, f"{size} bytes")
    sender.join()


def main():
    port, _ = port_and_pid()
    for size in SIZES:
        with connect(port) as sock:
            echo(sock, size, start=0)

    start = 0
    with connect(port) as sock:
        for size in SIZES + SIZES[::-1]:
            echo(sock, size, start)
            start += size

    # One byte in each segment: nothing may depend on how the bytes were cut.
    with connect(port) as sock:
        message = pattern(3000)
        for byte in message:
            sock.sendall(bytes([byte]))
        expect_same(receive_exactly(sock, len(message)), message, "byte by byte")


main()
