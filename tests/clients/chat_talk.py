"""What people do in a chat: talk, take names, look who is there, type nonsense, leave."""

import socket

from chatter import enter
from wire import expect_closed, open_files, port_and_pid


def talk(ann, bob, cat):
    """Everybody but the speaker hears it."""
    ann.say("hello, all")
    for other in (bob, cat):
        other.hear("ann: hello, all")
    bob.say("/who")
    bob.hear("* 3 here: ann, bob, cat")
    cat.say("/nick ann")
    cat.hear("* ann is taken")
    cat.say("/nick two words")
    cat.hear("* a nick name is one word of 1 to 24 characters")
    cat.say("/nick " + "x" * 25)
    cat.hear("* a nick name is one word of 1 to 24 characters")
    cat.say("/nick Zoë")
    cat.hear("* you are now Zoë")
    for other in (ann, bob):
        other.hear("* cat is now Zoë")
    cat.say("/nick cat")
    cat.hear("* you are now cat")
    for other in (ann, bob):
        other.hear("* Zoë is now cat")
    cat.say("/dance")
    cat.hear("* unknown command: /dance")


def type_nonsense(ann, bob):
    """Bytes that are no text, lines of all shapes."""
    ann.send(b"caf\xc3\xa9 \xff\xfe!\r\n")
    bob.hear("ann: café \ufffd\ufffd!")
    ann.send(b"red \x1b[31m\x07\x00alert\n")
    bob.hear("ann: red [31malert")
    ann.send(b"\n\r\n\none\ntwo\n")
    bob.hear("ann: one")
    bob.hear("ann: two")
    ann.send(b"x" * 10_000 + b"\n")
    for size in (4096, 4096, 10_000 - 2 * 4096):
        bob.hear("ann: " + "x" * size)


def leave(ann, bob, cat):
    """The three ways to go."""
    cat.say("/quit")
    cat.hear("* bye")
    cat.hear_end()
    ann.hear("* cat left")
    bob.hear("* cat left")

    bob.send(b"my last words, without a newline")
    bob.sock.shutdown(socket.SHUT_WR)
    bob.hear_end()
    ann.hear("bob: my last words, without a newline")
    ann.hear("* bob left")


def main():
    port, pid = port_and_pid()
    files = open_files(pid)
    ann, bob, cat = enter(port, ["ann", "bob", "cat"])
    talk(ann, bob, cat)
    ann.say("and now for something else")
    bob.hear("ann: and now for something else")
    cat.hear("ann: and now for something else")
    type_nonsense(ann, bob)
    cat.skip_to("ann: " + "x" * (10_000 - 2 * 4096))
    leave(ann, bob, cat)
    for member in (ann, bob, cat):
        member.close()
    expect_closed(pid, files)


main()
