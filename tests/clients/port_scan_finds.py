"""port-scan reports exactly the ports that listen, calls the silent one silent, and explains wrong arguments.

usage: port_scan_finds.py PORT_SCAN_PROGRAM
"""

import re
import socket
import subprocess
import sys

from wire import expect

PROGRAM = sys.argv[1]
SUMMARY = re.compile(r"port-scan: (\d+) open, (\d+) closed, (\d+) silent, (\d+) failed in [\d.]+ s")


def run(*arguments):
    """Run the program to its end."""
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60, check=False)


def listener(backlog=16):
    """A socket that listens on a port of the system's choice."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(backlog)
    return sock


def port_of(sock):
    """The port of our end."""
    return sock.getsockname()[1]


def fill_backlog(sock):
    """Connect until the kernel ignores further attempts, so that the port stays silent. Return the connections."""
    clients = []
    while True:
        client = socket.socket()
        client.settimeout(0.3)
        clients.append(client)
        try:
            client.connect(sock.getsockname())
        except TimeoutError:
            return clients
        expect(len(clients) < 100, "the backlog does not fill up")


def scan(host, ports, *options):
    """The open ports that are reported, and the four numbers of the summary."""
    result = run(host, ports, *options)
    expect(result.returncode == 0, f"exit status {result.returncode}: {result.stderr}")
    summary = SUMMARY.search(result.stdout)
    expect(summary, f"no summary: {result.stdout}")
    found = sorted(int(port) for port in re.findall(r"^127\.0\.0\.1:(\d+) open$", result.stdout, re.MULTILINE))
    return found, tuple(map(int, summary.groups()))


def check_findings():
    """Some open, some closed, one silent."""
    opened = [listener() for _ in range(5)]
    closed = [socket.socket() for _ in range(3)]
    for sock in closed:
        # Bound, so nobody else listens there; not listening.
        sock.bind(("127.0.0.1", 0))
    silent = listener(backlog=0)
    waiting = fill_backlog(silent)

    ports = ",".join(str(port_of(sock)) for sock in [*opened, *closed, silent])
    found, summary = scan("127.0.0.1", ports, "--timeout-ms", "300")
    expect(found == sorted(map(port_of, opened)), f"found {found}")
    expect(summary == (5, 3, 1, 0), f"summary {summary}")
    for sock in [*opened, *closed, silent, *waiting]:
        sock.close()


def check_wide_range():
    """A range of thousands, some at a time; localhost by name; ports of our own choice are not taken for open ones."""
    with listener() as sock:
        found, summary = scan("127.0.0.1", "1-65535", "--concurrency", "512")
        expect(port_of(sock) in found, f"{port_of(sock)} is not among {found}")
        expect(len(found) == summary[0] < 1000 and sum(summary) == 65535, f"summary {summary}")
        expect(summary[3] == 0, f"summary {summary}")
        found, _ = scan("localhost", str(port_of(sock)))
        expect(found == [port_of(sock)], f"found {found} on localhost")


def check_arguments():
    """Mistakes are explained, and told by the exit status."""
    for ports in ["0", "65536", "9-5", "", "http", "1,,2"]:
        result = run("127.0.0.1", ports)
        expect(result.returncode == 2 and "error:" in result.stderr, f"{ports!r}: {result}")
    # Too long for a name, so the resolver refuses it without asking the network.
    nowhere = "x" * 64
    result = run(nowhere, "1")
    expect(result.returncode == 1 and result.stderr.startswith(f"port-scan: {nowhere}: "), result)
    result = run("--help")
    expect(result.returncode == 0 and "Try it:" in result.stdout, result)


check_findings()
check_wide_range()
check_arguments()
