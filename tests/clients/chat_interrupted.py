"""Cancel safety: a line that is typed in pieces arrives whole, though each piece is followed by a message from
somebody else, which makes the server drop the read that waits for the rest of the line."""

from chatter import enter
from wire import port_and_pid


def main():
    port, _ = port_and_pid()
    typist, talker = enter(port, ["typist", "talker"])

    # Byte by byte, and a message after each byte.
    line = "the quick brown fox jumps over the lazy dog; ∂x/∂t = 0"
    for number, byte in enumerate(line.encode()):
        typist.send(bytes([byte]))
        talker.say(f"interruption {number}")
        typist.hear(f"talker: interruption {number}")
    typist.send(b"\n")
    talker.hear(f"typist: {line}")

    # Both at once, without waiting for each other: pieces and messages meet in every order.
    rounds = 500
    for number in range(rounds):
        typist.send(f"begin {number} ".encode())
        talker.say(f"more {number}")
        typist.send(f"end {number}\nnext ".encode())
    typist.send(b"done\n")
    talker.hear("typist: begin 0 end 0")
    for number in range(1, rounds):
        talker.hear(f"typist: next begin {number} end {number}")
    talker.hear("typist: next done")
    for number in range(rounds):
        typist.hear(f"talker: more {number}")
    for member in (typist, talker):
        member.close()


main()
