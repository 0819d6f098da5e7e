//! Short connections: connect, send 128 bytes, read them back, close; many at once.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Instant;

use super::{Phase, Poll, Until, begin_connect, closed, verify};

pub(crate) const MESSAGE: usize = 128;

/// Addresses of this machine that connections come from.
const SOURCES: usize = 250;

pub(crate) struct Short {
    address: SocketAddr,
    poll: Poll,
    ready: Vec<usize>,
    at_once: usize,
    /// Connections so far, which is where each begins in the pattern.
    begun: usize,
}

struct Connection {
    stream: TcpStream,
    begun: Instant,
    position: usize,
    sent: bool,
    read: usize,
}

impl Short {
    pub(crate) fn new(address: SocketAddr, at_once: usize) -> io::Result<Self> {
        Ok(Self {
            address,
            poll: Poll::new()?,
            ready: Vec::new(),
            at_once,
            begun: 0,
        })
    }

    pub(crate) fn run(&mut self, until: Until) -> io::Result<Phase> {
        let mut phase = Phase::new()?;
        let start = Instant::now();
        let mut open = Vec::with_capacity(self.at_once);
        for number in 0..self.at_once {
            open.push(Some(self.begin(number)?));
        }
        let mut issued = self.at_once as u64;
        while phase.operations < issued {
            self.poll.wait(&mut self.ready)?;
            let running = !until.reached(issued, Instant::now());
            for number in std::mem::take(&mut self.ready) {
                // The event of a connection that is closed already, or of one that is not complete.
                if !open[number].as_mut().map_or(Ok(false), Connection::step)? {
                    continue;
                }
                // Dropped, so closed, before its latency is taken and before the next one connects.
                if let Some(done) = open[number].take() {
                    let begun = done.begun;
                    drop(done);
                    phase.record(begun.elapsed());
                }
                if running && !until.reached(issued, Instant::now()) {
                    open[number] = Some(self.begin(number)?);
                    issued += 1;
                }
            }
        }
        phase.elapsed = start.elapsed();
        Ok(phase)
    }

    fn begin(&mut self, number: usize) -> io::Result<Connection> {
        let begun = Instant::now();
        let stream = begin_connect(self.source(), self.address)?;
        self.poll.add_edge(&stream, number)?;
        self.begun += 1;
        Ok(Connection {
            stream,
            begun,
            position: self.begun * 61,
            sent: false,
            read: 0,
        })
    }
}

impl Short {
    /// A closed connection keeps its two addresses for a minute. From one source there would soon be no ports left: the
    /// servers that come first would be measured while the search for one takes the generator's time, and those that
    /// come later, when the kernel remembers no more closed connections, would not.
    fn source(&self) -> Ipv4Addr {
        Ipv4Addr::new(127, 0, 1, 1 + (self.begun % SOURCES) as u8)
    }
}

impl Connection {
    /// Goes as far as the socket allows; `true` once the whole message is back.
    fn step(&mut self) -> io::Result<bool> {
        if !self.sent {
            let start = self.position % server::PERIOD;
            match self
                .stream
                .write(&server::pattern()[start..start + MESSAGE])
            {
                Ok(MESSAGE) => self.sent = true,
                // A fresh socket has room for so little.
                Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                // Not connected yet: the event was another's that had this number.
                Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        let mut buffer = [0; MESSAGE];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(closed()),
            Ok(count) => {
                verify(&buffer[..count], self.position + self.read)?;
                self.read += count;
                Ok(self.read == MESSAGE)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }
}
