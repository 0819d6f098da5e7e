"""Very many connections to one server, for the checks."""

import resource

from wire import connect, eventually, expect_closed, open_files


def allow_open_files():
    """As many file descriptors as this process may have."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def open_connections(port, pid, count):
    """Connect, and wait until the server has accepted all of them."""
    before = open_files(pid)
    socks = [connect(port) for _ in range(count)]
    eventually(
        lambda: open_files(pid) >= before + count,
        lambda: f"the server has accepted {open_files(pid) - before} of {count} connections",
    )
    return socks


def close_connections(socks, pid, files_before):
    """Close, and wait until the server has done so too."""
    for sock in socks:
        sock.close()
    expect_closed(pid, files_before)
