"""A server that runs out of file descriptors goes on: nobody is refused, all are served in turn, and it does not spin.

The server must run with a limit of FILES open files.
"""

from wire import (
    connect,
    cpu_seconds_in_one_second,
    eventually,
    expect,
    expect_same,
    open_files,
    port_and_pid,
    receive_exactly,
)

FILES = 64
# Fewer than the limit and the smallest usual backlog (128) hold together, so that no client waits to connect.
CLIENTS = 150


def main():
    port, pid = port_and_pid()
    socks = [connect(port) for _ in range(CLIENTS)]
    eventually(
        lambda: open_files(pid) >= FILES - 1,
        lambda: f"the server has {open_files(pid)} open files; was it started with a limit of {FILES}?",
    )

    used = cpu_seconds_in_one_second(pid)
    expect(used < 0.1, f"the server used {used:.2f} s of processor time in one second without a free descriptor")

    # Each client that has its answer leaves and so makes room for one that still waits to be accepted.
    for number, sock in enumerate(socks):
        message = f"client {number}".encode()
        sock.sendall(message)
        expect_same(receive_exactly(sock, len(message)), message, f"client {number} of {CLIENTS}")
        sock.close()


main()
