//! Small packets that the server writes one by one; the generator only reads and verifies.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use server::PACKET;

use super::{Phase, Poll, READ, Until, closed, connect_all, verify};

pub(crate) struct Packets {
    poll: Poll,
    ready: Vec<usize>,
    connections: Vec<(TcpStream, usize)>,
    buffer: Vec<u8>,
}

impl Packets {
    pub(crate) fn connect(address: SocketAddr, connections: usize) -> io::Result<Self> {
        let poll = Poll::new()?;
        let streams = connect_all(address, connections)?;
        for (number, stream) in streams.iter().enumerate() {
            poll.add_level(stream, number)?;
        }
        Ok(Self {
            poll,
            ready: Vec::new(),
            connections: streams.into_iter().map(|stream| (stream, 0)).collect(),
            buffer: vec![0; READ],
        })
    }

    /// The server never stops, so a phase ends in the middle; what it counts are whole packets.
    pub(crate) fn run(&mut self, until: Until) -> io::Result<Phase> {
        let mut phase = Phase::new()?;
        let start = Instant::now();
        let mut bytes = 0;
        while !until.reached((bytes / PACKET) as u64, Instant::now()) {
            self.poll.wait(&mut self.ready)?;
            for &number in &self.ready {
                let (stream, position) = &mut self.connections[number];
                let count = match stream.read(&mut self.buffer) {
                    Ok(0) => return Err(closed()),
                    Ok(count) => count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                    Err(error) => return Err(error),
                };
                verify(&self.buffer[..count], *position)?;
                *position += count;
                bytes += count;
            }
        }
        phase.operations = (bytes / PACKET) as u64;
        phase.elapsed = start.elapsed();
        Ok(phase)
    }
}
