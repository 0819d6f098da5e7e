//! What a server does while its instructions are counted: always the same, in rounds.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::callgrind::Callgrind;
use crate::load::Orders;

/// One round is one turn of the server, as far as that can be arranged.
#[derive(Clone, Copy, Debug)]
pub(super) enum Load {
    Echo { connections: usize },
    Connect { at_once: usize },
    Timers { at_once: u64 },
}

impl Load {
    /// Instructions of one operation.
    pub(super) fn count(self, process: &mut Callgrind) -> io::Result<f64> {
        let address = process.address;
        match self {
            Self::Echo { connections } => {
                let mut streams = connect(address, connections)?;
                let per_round = connections as f64;
                between(process, ECHO_ROUNDS, per_round, || echo(&mut streams))
            }
            Self::Connect { at_once } => {
                // Its echo comes after the ends of the others.
                let mut last = connect(address, 1)?;
                between(process, CONNECT_ROUNDS, at_once as f64, || {
                    echo(&mut connect(address, at_once)?)?;
                    echo(&mut last)
                })
            }
            Self::Timers { at_once } => {
                let mut orders = Orders::connect(address)?;
                let round = || orders.order(at_once);
                between(process, TIMER_ROUNDS, at_once as f64, round)
            }
        }
    }
}

/// Instructions of `rounds`, after a few to warm up, divided by the operations in them.
fn between(
    process: &mut Callgrind,
    rounds: usize,
    per_round: f64,
    mut round: impl FnMut() -> io::Result<()>,
) -> io::Result<f64> {
    for _ in 0..rounds.div_ceil(10) {
        round()?;
    }
    process.instructions()?;
    for _ in 0..rounds {
        round()?;
    }
    Ok(process.instructions()? as f64 / rounds as f64 / per_round)
}

fn connect(address: SocketAddr, count: usize) -> io::Result<Vec<TcpStream>> {
    let connect = |_| {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    };
    (0..count).map(connect).collect()
}

/// A message on each connection, and back.
fn echo(streams: &mut [TcpStream]) -> io::Result<()> {
    let message = &server::pattern()[..MESSAGE];
    for stream in &mut *streams {
        stream.write_all(message)?;
    }
    for stream in streams {
        let mut echo = [0; MESSAGE];
        stream.read_exact(&mut echo)?;
        if echo != message {
            return Err(io::Error::other("another message came back"));
        }
    }
    Ok(())
}

const MESSAGE: usize = 64;
const ECHO_ROUNDS: usize = 200;
const CONNECT_ROUNDS: usize = 100;
const TIMER_ROUNDS: usize = 3;
/// Under valgrind on a busy machine.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
