"""What the checks share: connections, bytes whose value tells their position, and a look at the server's process."""

import array
import os
import socket
import struct
import sys
import threading
import time

TIMEOUT_S = 20


def connect(port, receive_buffer=None):
    """A connection whose every operation fails after TIMEOUT_S instead of hanging."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.settimeout(TIMEOUT_S)
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.connect(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def reset(sock):
    """Close with RST instead of FIN."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def pattern(size, start=0):
    """Numbers that count up, eight bytes each: a byte lost, doubled or moved shows."""
    first = start // 8 * 8
    words = array.array("Q", range(first // 8, (start + size) // 8 + 1))
    return words.tobytes()[start - first : start - first + size]


def receive_exactly(sock, size):
    """Exactly `size` bytes; an early end is an error."""
    data = bytearray(size)
    view = memoryview(data)
    got = 0
    while got < size:
        count = sock.recv_into(view[got:])
        if count == 0:
            raise EOFError(f"the server closed after {got} of {size} bytes")
        got += count
    return bytes(data)


def receive_to_end(sock):
    """Everything up to the end of the stream."""
    chunks = []
    while chunk := sock.recv(1 << 16):
        chunks.append(chunk)
    return b"".join(chunks)


def send_beside(sock, data, then_shutdown=False):
    """Send from a second thread, so that this one can read meanwhile. Join the thread that this returns."""

    def send():
        sock.sendall(data)
        if then_shutdown:
            sock.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread


def expect(condition, message):
    """An assertion that is there under `python -O` as well."""
    if not condition:
        raise AssertionError(message)


def expect_same(got, wanted, what):
    """Compare long byte strings, and name the first difference instead of printing them."""
    if got == wanted:
        return
    place = next((i for i, (a, b) in enumerate(zip(got, wanted)) if a != b), min(len(got), len(wanted)))
    raise AssertionError(f"{what}: {len(got)} bytes came back of {len(wanted)}; the first difference is at {place}")


def eventually(condition, message, seconds=TIMEOUT_S):
    """Wait until the condition holds; fail when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        expect(time.monotonic() < deadline, f"after {seconds} s: {message()}")
        time.sleep(0.01)


def open_files(pid):
    """How many file descriptors a process has."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident_bytes(pid):
    """The memory of a process that is really there."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def expect_closed(pid, files_before):
    """The server must have closed what it has opened since it had that many files."""
    eventually(
        lambda: open_files(pid) <= files_before,
        lambda: f"the server has {open_files(pid)} open files, {files_before} were before",
    )


def cpu_seconds_in_one_second(pid):
    """The processor time, user and system, that a process uses in the next second."""
    before = cpu_seconds(pid)
    time.sleep(1)
    return cpu_seconds(pid) - before


def cpu_seconds(pid):
    """The processor time that a process has used since its start."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def expect_a_second_asleep(pid):
    """A process that has nothing to do must come to sleep through a whole second, with not one thread on a processor.

    Not at once: what came before may have an end that takes a second or two, as the one look at a connection that has
    just gone quiet.
    """
    used = []

    def asleep():
        before = thread_nanoseconds(pid)
        time.sleep(1)
        after = thread_nanoseconds(pid)
        used.append(sum(after.values()) - sum(before.values()))
        return after == before

    eventually(asleep, lambda: f"no second without work; nanoseconds of processor time in each: {used}")


def thread_nanoseconds(pid):
    """The processor time that each thread of a process has used, in nanoseconds."""
    used = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
                used[thread] = int(file.read().split()[0])
        except FileNotFoundError:
            pass  # The thread has ended since.
    return used


def port_and_pid():
    """The two arguments that most checks begin with: where the server listens, and which process it is."""
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} PORT PID [...]")
    return int(sys.argv[1]), int(sys.argv[2])
