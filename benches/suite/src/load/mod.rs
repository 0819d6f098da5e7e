//! The load generator: one thread, one epoll, every byte verified.
//!
//! A load is set up once, then run in phases (warm up, measure). When a phase returns, nothing is on its way any more,
//! so what the server has used is exactly what the counted operations cost.

mod echo;
mod idle;
mod packets;
mod short;

use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::event::{Timespec, epoll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use serde::{Deserialize, Serialize};

pub(crate) use self::echo::Echo;
pub(crate) use self::idle::Idle;
pub(crate) use self::packets::Packets;
pub(crate) use self::short::Short;

/// When a phase ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// After so many operations.
    Operations(u64),
    /// At this moment.
    Deadline(Instant),
}

impl Until {
    pub(crate) fn after(duration: Duration) -> Self {
        Self::Deadline(Instant::now() + duration)
    }

    fn reached(self, operations: u64, now: Instant) -> bool {
        match self {
            Self::Operations(wanted) => operations >= wanted,
            Self::Deadline(deadline) => now >= deadline,
        }
    }
}

/// What a phase has done.
#[derive(Debug)]
pub(crate) struct Phase {
    pub(crate) operations: u64,
    pub(crate) elapsed: Duration,
    latency: Histogram<u32>,
}

impl Phase {
    fn new() -> io::Result<Self> {
        // Three digits, from a nanosecond to a minute.
        let latency = Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(io::Error::other)?;
        Ok(Self {
            operations: 0,
            elapsed: Duration::ZERO,
            latency,
        })
    }

    fn record(&mut self, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.latency.saturating_record(nanoseconds);
        self.operations += 1;
    }

    /// `None` if nothing was timed.
    pub(crate) fn latency(&self) -> Option<Latency> {
        let at = |quantile| self.latency.value_at_quantile(quantile);
        (!self.latency.is_empty()).then(|| Latency {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: self.latency.max(),
        })
    }
}

/// Percentiles, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
    pub(crate) max: u64,
}

/// An epoll whose events carry a number.
struct Poll {
    epoll: OwnedFd,
    events: Vec<MaybeUninit<epoll::Event>>,
}

impl Poll {
    fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            events: vec![MaybeUninit::uninit(); EVENTS],
        })
    }

    /// Tells of changes in both directions. Whoever reads must empty the socket.
    fn add_edge(&self, stream: &TcpStream, number: usize) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        self.add(stream, number, flags)
    }

    /// Tells for as long as there is something to read.
    fn add_level(&self, stream: &TcpStream, number: usize) -> io::Result<()> {
        self.add(stream, number, epoll::EventFlags::IN)
    }

    fn add(&self, stream: &TcpStream, number: usize, flags: epoll::EventFlags) -> io::Result<()> {
        let data = epoll::EventData::new_u64(number as u64);
        Ok(epoll::add(&self.epoll, stream, data, flags)?)
    }

    /// Waits, and puts the numbers of the events into `ready`.
    fn wait(&mut self, ready: &mut Vec<usize>) -> io::Result<()> {
        ready.clear();
        let patience = Timespec {
            tv_sec: PATIENCE_SECONDS,
            tv_nsec: 0,
        };
        let (events, _) = match epoll::wait(&self.epoll, &mut *self.events, Some(&patience)) {
            Err(rustix::io::Errno::INTR) => return Ok(()),
            result => result?,
        };
        if events.is_empty() {
            let message = format!("the server did nothing for {PATIENCE_SECONDS} s");
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        ready.extend(events.iter().map(|event| event.data.u64() as usize));
        Ok(())
    }
}

/// Begins to connect a socket that does not block; it is connected when it becomes writable.
fn begin_connect(address: SocketAddr) -> io::Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    match connect(&socket, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket.into()),
        Err(error) => Err(error.into()),
    }
}

fn connect_all(address: SocketAddr, count: usize) -> io::Result<Vec<TcpStream>> {
    let connect = |_| {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    };
    (0..count).map(connect).collect()
}

/// Whether `bytes` are the pattern's from `position` on.
fn verify(bytes: &[u8], position: usize) -> io::Result<()> {
    let start = position % server::PERIOD;
    let expected = &server::pattern()[start..start + bytes.len()];
    if bytes == expected {
        return Ok(());
    }
    let wrong = bytes
        .iter()
        .zip(expected)
        .take_while(|(a, b)| a == b)
        .count();
    let message = format!("byte {} of a connection is wrong", position + wrong);
    Err(io::Error::new(io::ErrorKind::InvalidData, message))
}

fn closed() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the server has closed a connection",
    )
}

/// What one read takes at most; a whole period of the pattern can be compared at once.
const READ: usize = server::PERIOD;
const EVENTS: usize = 1024;
/// A server that is silent for so long has lost something.
const PATIENCE_SECONDS: i64 = 10;
