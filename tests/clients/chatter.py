"""A chat client for the checks: a connection that reads and says whole lines."""

from wire import connect, expect


class Chatter:
    """One member of the room."""

    def __init__(self, port, nick, receive_buffer=None):
        self.sock = connect(port, receive_buffer)
        self.lines = self.sock.makefile("r", encoding="utf-8", newline="\n")
        self.nick = nick
        welcome = self.read()
        expect(welcome.startswith("* you are guest-"), f"welcome was {welcome!r}")
        self.say(f"/nick {nick}")
        self.hear(f"* you are now {nick}")

    def say(self, line):
        """Send one line."""
        self.send(line.encode() + b"\n")

    def send(self, data):
        """Send bytes as they are."""
        self.sock.sendall(data)

    def read(self):
        """The next line, whatever it is; fails after a while, or at the end of the stream."""
        line = self.lines.readline()
        expect(line.endswith("\n"), f"{getattr(self, 'nick', 'a client')}: the stream ended with {line!r}")
        return line.rstrip("\n")

    def hear(self, wanted):
        """Read the next line, which must be this one."""
        line = self.read()
        expect(line == wanted, f"{self.nick} heard {line[:80]!r} instead of {wanted[:80]!r}")

    def skip_to(self, wanted):
        """Read up to this line."""
        while self.read() != wanted:
            pass

    def hear_end(self):
        """The server must have closed."""
        line = self.lines.readline()
        expect(line == "", f"{self.nick} heard {line!r} instead of the end")

    def close(self):
        """Leave without a word."""
        self.lines.close()
        self.sock.close()


def join(port, nick, others, receive_buffer=None):
    """A new member, which all others have heard of."""
    member = Chatter(port, nick, receive_buffer)
    for other in others:
        for ending in (" joined", f" is now {nick}"):
            line = other.read()
            expect(line.endswith(ending), f"{other.nick} heard {line!r} instead of somebody that{ending}")
    return member


def enter(port, nicks):
    """The first members of an empty room. None has anything left to read."""
    members = []
    for nick in nicks:
        members.append(join(port, nick, members))
    return members
