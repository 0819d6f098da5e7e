"""What the kernel is asked to do, as strace counts it: one call for each message, none while nothing happens.

Exits with 77 (skipped) where strace is not allowed to look.
"""

import collections
import signal
import subprocess
import sys
import time

from wire import connect, expect, port_and_pid, receive_exactly

MESSAGES = 1000
IDLE_CONNECTIONS = 100
# To attach and detach interrupts the call that the server waits in; it then waits again.
DISTURBANCE = 4
SKIPPED = 77


def count_calls(pid, action):
    """How often each system call was made by any thread of the server during `action`."""
    command = ["strace", "-c", "-f", "-p", str(pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
        try:
            first_line = strace.stderr.readline()
            if "attached" not in first_line:
                print(f"skipped: {first_line.strip()}")
                sys.exit(SKIPPED)
            action()
        finally:
            strace.send_signal(signal.SIGINT)
        report = strace.communicate()[1]

    counts = collections.Counter()
    for line in report.splitlines():
        # % time, seconds, usecs/call, calls, perhaps errors, name
        fields = line.split()
        if len(fields) in (5, 6) and fields[3].isdigit() and fields[-1] != "total":
            counts[fields[-1]] += int(fields[3])
    return counts


def ping_pong(sock):
    """One message at a time, there and back."""
    for number in range(MESSAGES):
        message = number.to_bytes(8, "little") * 8
        sock.sendall(message)
        expect(receive_exactly(sock, len(message)) == message, f"message {number} came back changed")


def main():
    port, pid = port_and_pid()
    socks = [connect(port) for _ in range(IDLE_CONNECTIONS)]
    for sock in socks:
        sock.sendall(b"hello")
        receive_exactly(sock, 5)

    idle = count_calls(pid, lambda: time.sleep(1))
    busy = count_calls(pid, lambda: ping_pong(socks[0]))
    print(f"idle: {dict(idle)}; {MESSAGES} messages: {dict(busy)}")
    expect(idle.total() <= DISTURBANCE, f"the idle server made system calls: {dict(idle)}")
    expect(
        busy.total() <= MESSAGES * 1.01 + DISTURBANCE,
        f"{MESSAGES} messages took {busy.total()} system calls: {dict(busy)}",
    )


main()
