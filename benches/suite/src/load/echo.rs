//! Messages that come back: connections × size × depth.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use super::{Phase, Poll, READ, Until, closed, connect_all, verify};

/// Connections that each keep `depth` messages on their way.
pub(crate) struct Echo {
    poll: Poll,
    ready: Vec<usize>,
    connections: Vec<Connection>,
    buffer: Vec<u8>,
    size: usize,
    depth: usize,
}

impl Echo {
    pub(crate) fn connect(
        address: SocketAddr,
        connections: usize,
        size: usize,
        depth: usize,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let streams = connect_all(address, connections)?;
        for (number, stream) in streams.iter().enumerate() {
            poll.add_edge(stream, number)?;
        }
        // Each connection begins elsewhere in the pattern, so one that gets another's bytes is found out.
        let connection = |(number, stream)| Connection::new(stream, number * 4099, depth);
        Ok(Self {
            poll,
            ready: Vec::new(),
            connections: streams.into_iter().enumerate().map(connection).collect(),
            buffer: vec![0; READ],
            size,
            depth,
        })
    }

    pub(crate) fn run(&mut self, until: Until) -> io::Result<Phase> {
        let mut phase = Phase::new()?;
        let start = Instant::now();
        let mut issued = 0;
        for connection in &mut self.connections {
            // Each connection starts, even if fewer operations were asked for.
            issued += self.depth as u64;
            connection.issue(self.depth, self.size, start);
            connection.write()?;
        }
        while phase.operations < issued {
            self.poll.wait(&mut self.ready)?;
            let running = !until.reached(issued, Instant::now());
            for &number in &self.ready {
                let connection = &mut self.connections[number];
                let done = connection.read(&mut self.buffer, self.size, &mut phase)?;
                if running && done > 0 {
                    issued += done as u64;
                    connection.issue(done, self.size, Instant::now());
                }
                connection.write()?;
            }
        }
        phase.elapsed = start.elapsed();
        Ok(phase)
    }
}

struct Connection {
    stream: TcpStream,
    /// Positions in the pattern.
    written: usize,
    to_write: usize,
    read: usize,
    /// Bytes of the message that is not complete yet.
    partial: usize,
    issued: VecDeque<Instant>,
}

impl Connection {
    fn new(stream: TcpStream, start: usize, depth: usize) -> Self {
        Self {
            stream,
            written: start,
            to_write: start,
            read: start,
            partial: 0,
            issued: VecDeque::with_capacity(depth),
        }
    }

    fn issue(&mut self, messages: usize, size: usize, now: Instant) {
        self.to_write += messages * size;
        self.issued.extend(std::iter::repeat_n(now, messages));
    }

    /// Writes until all is written or the socket is full; then its event continues here.
    fn write(&mut self) -> io::Result<()> {
        while self.written < self.to_write {
            let start = self.written % server::PERIOD;
            let length = (self.to_write - self.written).min(server::PERIOD);
            let bytes = &server::pattern()[start..start + length];
            match self.stream.write(bytes) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads what is there, and returns how many messages that has completed.
    fn read(&mut self, buffer: &mut [u8], size: usize, phase: &mut Phase) -> io::Result<usize> {
        let mut done = 0;
        loop {
            let count = match self.stream.read(buffer) {
                Ok(0) => return Err(closed()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(done),
                Err(error) => return Err(error),
            };
            verify(&buffer[..count], self.read)?;
            let now = Instant::now();
            self.read += count;
            self.partial += count;
            while self.partial >= size {
                self.partial -= size;
                done += 1;
                // A server may not send more than it was sent.
                let issued = self.issued.pop_front().ok_or_else(too_much)?;
                phase.record(now - issued);
            }
            // A short read has emptied the socket: the next byte brings an event.
            if count < buffer.len() {
                return Ok(done);
            }
        }
    }
}

fn too_much() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the server has sent more than it was sent",
    )
}
