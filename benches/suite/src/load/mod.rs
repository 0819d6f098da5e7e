//! The load generator: one thread, one epoll, every byte verified.
//!
//! A load is set up once, then run in phases (warm up, measure). When a phase returns, nothing is on its way any more,
//! so what the server has used is exactly what the counted operations cost.

mod echo;
mod idle;
mod orders;
mod packets;
mod short;

use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::event::{Timespec, epoll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};
use serde::{Deserialize, Serialize};

pub(crate) use self::echo::Echo;
pub(crate) use self::idle::Idle;
pub(crate) use self::orders::Orders;
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

/// Begins to connect a socket that does not block, from some port of `source`; it is connected when it becomes writable.
fn begin_connect(source: Ipv4Addr, address: SocketAddr) -> io::Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    bind(&socket, &SocketAddrV4::new(source, 0))?;
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener};
    use std::thread;

    use super::*;

    /// An echo server whose answer to the n-th byte of a connection goes through `change`.
    fn serve(change: fn(u64, u8) -> Option<u8>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                thread::spawn(move || echo(stream.unwrap(), change));
            }
        });
        address
    }

    fn echo(mut stream: TcpStream, change: fn(u64, u8) -> Option<u8>) {
        let (mut buffer, mut position) = ([0; 4096], 0);
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            let answer = buffer[..count].iter().zip(position..);
            let answer: Vec<u8> = answer.filter_map(|(&byte, at)| change(at, byte)).collect();
            position += count as u64;
            if answer.is_empty() {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    }

    #[test]
    fn an_honest_echo_is_counted_and_timed() {
        let address = serve(|_, byte| Some(byte));
        let mut load = Echo::connect(address, 5, 1000, 3).unwrap();
        let phase = load.run(Until::Operations(200)).unwrap();
        assert!((200..200 + 15).contains(&phase.operations));
        assert!(phase.latency().unwrap().p50 > 0);
        // A phase leaves nothing behind, so that the next one begins where it ended.
        assert!(load.run(Until::Operations(200)).unwrap().operations >= 200);
        let phase = Short::new(address, 4).unwrap().run(Until::Operations(40));
        assert_eq!(phase.unwrap().operations, 40);
    }

    #[test]
    fn messages_larger_than_the_socket_buffers_are_written_in_pieces() {
        let address = serve(|_, byte| Some(byte));
        let mut load = Echo::connect(address, 2, 8 << 20, 1).unwrap();
        let phase = load.run(Until::Operations(2)).unwrap();
        assert_eq!(phase.operations, 2);
    }

    #[test]
    fn one_wrong_byte_is_found() {
        let wrong = |at, byte: u8| Some(if at == 123_456 { !byte } else { byte });
        let mut load = Echo::connect(serve(wrong), 1, 1000, 4).unwrap();
        let error = load.run(Until::Operations(200)).unwrap_err();
        assert_eq!(error.to_string(), "byte 123456 of a connection is wrong");
    }

    #[test]
    fn one_lost_byte_is_found() {
        let lossy = |at, byte| (at != 100_000).then_some(byte);
        let mut load = Echo::connect(serve(lossy), 1, 1000, 4).unwrap();
        let error = load.run(Until::Operations(200)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_server_that_hangs_up_is_found() {
        let deaf = |at, byte| (at < 10_000).then_some(byte);
        let mut load = Echo::connect(serve(deaf), 1, 1000, 1).unwrap();
        let error = load.run(Until::Operations(200)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let error = Short::new(serve(|_, _| None), 3)
            .unwrap()
            .run(Until::Operations(9));
        assert!(error.is_err());
    }
}
