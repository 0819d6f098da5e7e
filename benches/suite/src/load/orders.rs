//! Work that needs no connection for each of its operations: the server is told how much, and says when it is done.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use server::{DONE, ORDER};

use super::{PATIENCE_SECONDS, Phase, Until, closed};

pub(crate) struct Orders(TcpStream);

impl Orders {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        // The server may be a slow one, under valgrind.
        let patience = Duration::from_secs(PATIENCE_SECONDS.unsigned_abs() * 10);
        stream.set_read_timeout(Some(patience))?;
        Ok(Self(stream))
    }

    /// Has so many operations done.
    pub(crate) fn order(&mut self, operations: u64) -> io::Result<()> {
        self.0.write_all(&operations.to_le_bytes())?;
        let mut answer = [0];
        match self.0.read(&mut answer)? {
            0 => Err(closed()),
            _ if answer == [DONE] => Ok(()),
            _ => Err(io::Error::other("the server could not do its work")),
        }
    }

    pub(crate) fn run(&mut self, until: Until) -> io::Result<Phase> {
        let mut phase = Phase::new()?;
        let start = Instant::now();
        while !until.reached(phase.operations, Instant::now()) {
            self.order(ORDER)?;
            phase.operations += ORDER;
        }
        phase.elapsed = start.elapsed();
        Ok(phase)
    }
}
