"""2,000 connections at once, all busy: each gets its own bytes back, and none is left open."""

import selectors
import time

from crowd import allow_open_files, close_connections, open_connections
from wire import expect, expect_same, open_files, pattern, port_and_pid

CONNECTIONS = 2000
ROUNDS = 5
TIMEOUT_S = 60


class Client:
    """One connection that sends a message of its own in each round and checks the echo."""

    def __init__(self, sock, number):
        self.sock = sock
        self.number = number
        self.round = 0
        self.start()

    def start(self):
        """Begin the next round: its bytes occur on no other connection and in no other round."""
        size = 1 + (self.number * 37 + self.round * 911) % 3000
        self.message = pattern(size, (self.number * ROUNDS + self.round) * 4096)
        self.sent = 0
        self.received = b""

    def wants(self):
        """The events to wait for."""
        writable = selectors.EVENT_WRITE if self.sent < len(self.message) else 0
        return selectors.EVENT_READ | writable

    def act(self, events):
        """Do what is possible; true when the last round is over."""
        if events & selectors.EVENT_WRITE and self.sent < len(self.message):
            self.sent += self.sock.send(self.message[self.sent :])
        if events & selectors.EVENT_READ:
            chunk = self.sock.recv(1 << 16)
            expect(chunk, f"the server closed connection {self.number}")
            self.received += chunk
        if len(self.received) < len(self.message):
            return False
        expect_same(self.received, self.message, f"connection {self.number}, round {self.round}")
        self.round += 1
        if self.round == ROUNDS:
            return True
        self.start()
        return False


def exchange(socks):
    """Drive all clients through all rounds from one thread."""
    deadline = time.monotonic() + TIMEOUT_S
    with selectors.DefaultSelector() as selector:
        for number, sock in enumerate(socks):
            sock.setblocking(False)
            client = Client(sock, number)
            selector.register(sock, client.wants(), client)
        while selector.get_map():
            expect(time.monotonic() < deadline, f"{len(selector.get_map())} connections still wait")
            for key, events in selector.select(timeout=1):
                client = key.data
                if client.act(events):
                    selector.unregister(client.sock)
                elif client.wants() != key.events:
                    selector.modify(client.sock, client.wants(), client)


def main():
    port, pid = port_and_pid()
    allow_open_files()
    files = open_files(pid)
    socks = open_connections(port, pid, CONNECTIONS)
    exchange(socks)
    close_connections(socks, pid, files)


main()
