"""Everybody talks as fast as they can: all hear all, in the order in which each said it, and nobody is dropped."""

import threading

from chatter import enter
from wire import expect, port_and_pid

MEMBERS = 20
LINES = 300


def listen(member, heard):
    """Read until all others have said all; keep what each has said."""
    for _ in range((MEMBERS - 1) * LINES):
        author, _, text = member.read().partition(": ")
        heard.setdefault(author, []).append(text)


def main():
    port, _ = port_and_pid()
    members = enter(port, [f"m{number}" for number in range(MEMBERS)])
    heard = [{} for _ in members]
    listeners = [threading.Thread(target=listen, args=pair, daemon=True) for pair in zip(members, heard)]
    for listener in listeners:
        listener.start()
    said = [f"line {number}" for number in range(LINES)]
    for member in members:
        member.send("".join(f"{line}\n" for line in said).encode())
    for listener in listeners:
        listener.join()
    for member, books in zip(members, heard):
        expect(len(books) == MEMBERS - 1, f"{member.nick} heard {len(books)} others: {list(books)[:5]}")
        for author, lines in books.items():
            expect(lines == said, f"{member.nick} missed something that {author} said")
        member.close()


main()
