//! What all servers of the benchmark suite share: how they are started, the socket they listen on, and what they send.
//!
//! A server is started as `SERVER MODE VARIANT`, prints its address as its only line, and is killed when the
//! generator has seen enough. It also dies with the process that started it.

use std::env;
use std::fmt;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::str::FromStr;
use std::sync::LazyLock;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use rustix::process::{Signal, set_parent_process_death_signal};

/// Every server reads into buffers of this size, unless its variant is about buffers.
pub const BUFFER: usize = 4096;
/// What a server in mode [`Mode::Packets`] gives to each `write_all`.
pub const PACKET: usize = 32;
/// The pattern repeats after so many bytes.
pub const PERIOD: usize = 1 << 16;
/// Connections that may wait to be accepted, for every server.
pub const BACKLOG: i32 = 1024;

/// A server that takes orders reads a number of operations (a `u64`, little-endian), and writes this when it has done
/// them.
pub const DONE: u8 = b'.';
/// How many operations the generator orders at once when it measures.
pub const ORDER: u64 = 1 << 14;

/// What a server does with its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Sends back what comes.
    Echo,
    /// Sends the pattern, [`PACKET`] bytes at a time, until the client goes away.
    Packets,
}

/// What a server was started for.
#[derive(Clone, Debug)]
pub struct Job {
    /// What it does with its connections.
    pub mode: Mode,
    /// Which program of several in one binary.
    pub variant: String,
}

impl Job {
    /// Reads the arguments of this process, and ties its life to its parent's.
    ///
    /// # Errors
    ///
    /// If the arguments are others than `MODE VARIANT`.
    pub fn from_args() -> io::Result<Self> {
        // A generator that is killed must not leave servers behind.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        let mut args = env::args().skip(1);
        let mode = args.next().unwrap_or_default().parse()?;
        let variant = args.next().unwrap_or_default();
        Ok(Self { mode, variant })
    }
}

impl FromStr for Mode {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        match text {
            "echo" => Ok(Self::Echo),
            "packets" => Ok(Self::Packets),
            _ => Err(io::Error::other("usage: SERVER echo|packets VARIANT")),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Echo => "echo",
            Self::Packets => "packets",
        })
    }
}

/// A listener on a free port of the loopback, the same for every server that can be given one.
///
/// It does not block. `TCP_NODELAY` is set on the listener: on Linux the accepted sockets inherit it, so no server
/// pays a system call for it.
///
/// # Errors
///
/// Those of the system.
pub fn listener() -> io::Result<TcpListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    bind(&socket, &any_port())?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// The loopback's address with port 0.
pub fn any_port() -> SocketAddr {
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))
}

/// Tells the generator where to connect.
///
/// # Errors
///
/// If standard output is closed.
pub fn announce(address: SocketAddr) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{address}")?;
    output.flush()
}

/// Bytes without a short period, twice, so that any `PERIOD` of them are one slice.
///
/// A lost, doubled or misplaced byte is seen wherever it happens.
pub fn pattern() -> &'static [u8] {
    static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        let once: Vec<u8> = (0..PERIOD).map(|_| next()).collect();
        once.repeat(2)
    });
    &PATTERN
}

/// The packets that a server in mode [`Mode::Packets`] sends, without end.
pub fn packets() -> impl Iterator<Item = &'static [u8]> {
    pattern()[..PERIOD].chunks_exact(PACKET).cycle()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_the_pattern_in_pieces() {
        let sent: Vec<u8> = packets()
            .take(PERIOD / PACKET + 1)
            .flatten()
            .copied()
            .collect();
        assert_eq!(sent, pattern()[..PERIOD + PACKET]);
    }

    #[test]
    fn the_pattern_has_no_short_period() {
        for shift in 1..PERIOD {
            assert_ne!(pattern()[..64], pattern()[shift..shift + 64], "{shift}");
        }
    }
}
