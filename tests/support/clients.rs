//! Clients over `std`, so that no line of ours stands on both sides of a test.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::pattern;

/// A port of the kernel's choice on a loopback address that is this process's own: scans and tests of other
/// processes, which connect to all sorts of ports of 127.0.0.1, shall not find our listeners.
pub fn loopback() -> SocketAddr {
    let [_, high, mid, low] = std::process::id().to_be_bytes();
    // Odd in the last place, so that it is no network's first or last address.
    (Ipv4Addr::new(127, 1 + high, mid, low | 1), 0).into()
}

pub fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

pub fn connect_many(addr: SocketAddr, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| connect(addr)).collect()
}

/// One connection whose near end is ours and whose far end is `std`'s, without a thread: the kernel completes the
/// handshake before anyone accepts.
pub async fn pair(listener: &net::TcpListener) -> (net::TcpStream, TcpStream) {
    let peer = connect(listener.local_addr().unwrap());
    let (stream, addr) = listener.accept().await.unwrap();
    assert_eq!(addr, peer.local_addr().unwrap(), "a stranger connected");
    (stream, peer)
}

/// Reads to the end of the stream and returns all of it.
pub fn read_to_fin(peer: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    peer.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Closes a connection with RST instead of FIN.
pub fn reset(peer: TcpStream) {
    let socket = socket2::Socket::from(peer);
    socket.set_linger(Some(Duration::ZERO)).unwrap();
}

/// Ping-pong over many connections from one thread: every round writes one message to each, then reads each back
/// and compares. All messages of all rounds and connections differ.
#[derive(Debug)]
pub struct Pinger {
    streams: Vec<TcpStream>,
    message_len: usize,
    round: u64,
}

impl Pinger {
    pub fn new(streams: Vec<TcpStream>, message_len: usize) -> Self {
        Self {
            streams,
            message_len,
            round: 0,
        }
    }

    pub fn rounds(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.send();
            self.receive();
        }
    }

    /// The first half of a round.
    pub fn send(&mut self) {
        let mut message = vec![0; self.message_len];
        for (index, mut stream) in self.streams.iter().enumerate() {
            pattern::fill(&mut message, self.position(index));
            stream.write_all(&message).unwrap();
        }
    }

    /// The second half.
    pub fn receive(&mut self) {
        let mut echoed = vec![0; self.message_len];
        for (index, mut stream) in self.streams.iter().enumerate() {
            stream.read_exact(&mut echoed).unwrap();
            pattern::check(&echoed, self.position(index));
        }
        self.round += 1;
    }

    pub fn into_streams(self) -> Vec<TcpStream> {
        self.streams
    }

    fn position(&self, index: usize) -> u64 {
        let serial = self.round * self.streams.len() as u64 + index as u64;
        serial * self.message_len as u64
    }
}
