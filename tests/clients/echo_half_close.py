"""A client that stops sending still gets every byte, then the end of the stream, and no reset."""

import socket

from wire import connect, expect_same, pattern, port_and_pid, receive_to_end, send_beside


def main():
    port, _ = port_and_pid()
    for size in [0, 1, 1000, 16 << 10, 1 << 20, 16 << 20]:
        message = pattern(size)
        with connect(port) as sock:
            sender = send_beside(sock, message, then_shutdown=True)
            expect_same(receive_to_end(sock), message, f"half-close after {size} bytes")
            sender.join()

    # The bytes and the end arrive together, before the server has looked once.
    message = pattern(5000)
    socks = [connect(port) for _ in range(200)]
    for sock in socks:
        sock.sendall(message)
        sock.shutdown(socket.SHUT_WR)
    for sock in socks:
        expect_same(receive_to_end(sock), message, "bytes and end at once")
        sock.close()


main()
