//! Clients over `std` on threads of their own, so that not both ends are ours.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use support::{Rng, pattern};

use crate::PATIENCE;
use crate::ledger::Ledger;
use crate::wire::{CHUNK, Request, Work, is_break, pause};

/// Starts the threads, which run until the ledger says that the time is over.
pub fn start(ledger: &Arc<Ledger>, rng: &mut Rng, addr: SocketAddr) -> Vec<JoinHandle<()>> {
    LOADS
        .map(|(name, load)| {
            ledger.start_load(name);
            let (ledger, rng) = (ledger.clone(), rng.fork());
            thread::spawn(move || repeat(name, load, addr, rng, &ledger))
        })
        .into()
}

type Load = fn(SocketAddr, &mut Rng, &Ledger) -> io::Result<()>;

const LOADS: [(&str, Load); 4] = [
    ("std: ping-pong", ping_pong),
    ("std: slow readers", slow_reader),
    ("std: half-closers", half_closer),
    ("std: resets", resetter),
];

fn repeat(name: &'static str, load: Load, addr: SocketAddr, mut rng: Rng, ledger: &Ledger) {
    while !ledger.is_stopping() {
        let mut rng_of_round = rng.fork();
        let seed = rng_of_round.seed();
        match load(addr, &mut rng_of_round, ledger) {
            Ok(()) => ledger.finish_round(name),
            Err(error) => {
                ledger.complain(format_args!("{name}, seed {seed}: {error}"));
                thread::sleep(Duration::from_millis(100));
            }
        }
        thread::sleep(pause(&mut rng));
    }
}

fn ping_pong(addr: SocketAddr, rng: &mut Rng, ledger: &Ledger) -> io::Result<()> {
    let request = Request::new(Work::Echo, 0, rng);
    let mut stream = connect(addr, request, ledger)?;
    let mut buf = vec![0; CHUNK];
    let mut position = request.base;
    for _ in 0..rng.size(200) {
        let message = &mut buf[..rng.size(CHUNK)];
        pattern::fill(message, position);
        stream.write_all(message)?;
        message.fill(0);
        stream.read_exact(message)?;
        ledger.verify(message, position);
        position += message.len() as u64;
    }
    Ok(())
}

fn slow_reader(addr: SocketAddr, rng: &mut Rng, ledger: &Ledger) -> io::Result<()> {
    let request = Request::new(Work::Source, rng.size(1 << 20) as u64, rng);
    let mut stream = connect(addr, request, ledger)?;
    stream.shutdown(Shutdown::Write)?;
    let mut buf = vec![0; CHUNK];
    let mut position = request.base;
    loop {
        thread::sleep(pause(rng));
        let len = stream.read(&mut buf[..rng.size(CHUNK)])?;
        ledger.verify(&buf[..len], position);
        position += len as u64;
        if len == 0 {
            ledger.verify_length(position - request.base, request.len);
            return Ok(());
        }
    }
}

fn half_closer(addr: SocketAddr, rng: &mut Rng, ledger: &Ledger) -> io::Result<()> {
    let len = rng.size(1 << 20);
    let request = Request::new(Work::Sink, len as u64, rng);
    let mut stream = connect(addr, request, ledger)?;
    let bytes = pattern::bytes(request.base, len);
    for part in bytes.chunks(rng.size(CHUNK).max(256)) {
        stream.write_all(part)?;
    }
    stream.shutdown(Shutdown::Write)?;
    let mut count = Vec::new();
    stream.read_to_end(&mut count)?;
    ledger.verify_length(count.len() as u64, 8);
    if let Ok(count) = count.try_into() {
        ledger.verify_length(u64::from_le_bytes(count), request.len);
    }
    Ok(())
}

/// Sends RST at any moment, with bytes on their way in both directions.
fn resetter(addr: SocketAddr, rng: &mut Rng, ledger: &Ledger) -> io::Result<()> {
    let work = [Work::Echo, Work::Source, Work::Sink][rng.below(3)];
    let request = Request::new(work, rng.size(1 << 20) as u64, rng).fragile();
    match reset_early(addr, request, rng, ledger) {
        // The server may have left before.
        Err(error) if !is_break(&error) => Err(error),
        _ => Ok(()),
    }
}

fn reset_early(
    addr: SocketAddr,
    request: Request,
    rng: &mut Rng,
    ledger: &Ledger,
) -> io::Result<()> {
    let mut stream = connect(addr, request, ledger)?;
    let socket = socket2::SockRef::from(&stream);
    socket.set_linger(Some(Duration::ZERO))?;
    if request.work != Work::Source {
        let bytes = pattern::bytes(request.base, rng.size(32 << 10));
        stream.write_all(&bytes)?;
    }
    if rng.one_in(2) {
        thread::sleep(pause(rng));
    }
    if request.work == Work::Source && rng.one_in(2) {
        let mut buf = vec![0; rng.size(CHUNK)];
        let len = stream.read(&mut buf)?;
        ledger.verify(&buf[..len], request.base);
    }
    Ok(())
}

fn connect(addr: SocketAddr, request: Request, ledger: &Ledger) -> io::Result<TcpStream> {
    let mut stream = loop {
        match TcpStream::connect(addr) {
            // All ports of this machine have been used within the last second.
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                thread::sleep(Duration::from_millis(100));
            }
            connected => break connected?,
        }
    };
    ledger.connections.fetch_add(1, Relaxed);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&request.encode())?;
    Ok(stream)
}
