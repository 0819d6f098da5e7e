"""Resets at every stage of a connection end that connection only, and leave no file descriptor behind."""

import socket

from wire import connect, expect_closed, expect_same, open_files, pattern, port_and_pid, receive_exactly, reset


def at_once(sock):
    """Perhaps before the server has accepted."""
    reset(sock)


def unread(sock):
    """The echo is on its way or waits in the server."""
    sock.sendall(pattern(200_000 // 8))
    reset(sock)


def in_the_middle(sock):
    """Some of the echo was read, more is to come."""
    sock.sendall(pattern(10_000))
    receive_exactly(sock, 5_000)
    sock.sendall(pattern(10_000))
    reset(sock)


def after_half_close(sock):
    """The server is about to close as well."""
    sock.sendall(pattern(10_000))
    sock.shutdown(socket.SHUT_WR)
    reset(sock)


def stuck(sock):
    """The server waits for us to read, with more to send than the kernel takes."""
    sock.setblocking(False)
    try:
        while True:
            sock.send(pattern(64 << 10))
    except BlockingIOError:
        pass
    reset(sock)


def main():
    port, pid = port_and_pid()
    before = open_files(pid)
    with connect(port) as witness:
        for stage, times in [(at_once, 200), (unread, 100), (in_the_middle, 100), (after_half_close, 100), (stuck, 10)]:
            for _ in range(times):
                stage(connect(port))
            message = pattern(1000)
            witness.sendall(message)
            expect_same(receive_exactly(witness, len(message)), message, f"another client after {stage.__name__}")
    expect_closed(pid, before)


main()
