//! A peer that sends faster than we read is slowed down by TCP, costs bounded memory, and harms no other connection.

use std::cell::Cell;
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use futures::{AsyncReadExt, StreamExt};
use runtime::{Builder, Runtime};
use support::{Alone, Pinger, Server, handlers};

/// The pool of the servers below: 4 MiB.
const BUFFERS: u16 = 256;
const BUFFER_BYTES: usize = 16 << 10;
const HIGH_WATER_BYTES: usize = 64 << 10;
/// Heaps of threads, stacks, the clients' own buffers.
const SLACK_BYTES: usize = 2 << 20;
/// The pause between two items of a slow task.
const PAUSE: Duration = Duration::from_millis(10);
/// A greedy peer ends after so many bytes, if nobody slows it down.
const SENT_LIMIT: u64 = 2 << 30;

/// B26.
#[test]
fn one_fast_sender_is_held_back_while_leases_are_taken_slowly() {
    let _alone = alone();
    let server = Server::start_on(build, |stream| first_is_polite(stream, take_leases_slowly));
    check(&server, 1, Duration::from_secs(5));
}

/// B26.
#[test]
fn one_fast_sender_is_held_back_while_bytes_are_read_slowly() {
    let _alone = alone();
    let server = Server::start_on(build, |stream| first_is_polite(stream, read_slowly));
    check(&server, 1, Duration::from_secs(3));
}

/// B26.
#[test]
fn fifty_fast_senders_are_held_back() {
    let _alone = alone();
    let server = Server::start_on(build, |stream| first_is_polite(stream, take_leases_slowly));
    check(&server, 50, Duration::from_secs(3));
}

/// `greedy` peers send as fast as they can for `duration`; a polite one measures that it is served meanwhile.
fn check(server: &Server, greedy: usize, duration: Duration) {
    let addr = server.addr();
    let limit = usize::from(BUFFERS) * BUFFER_BYTES
        + greedy * (HIGH_WATER_BYTES + overshoot_bytes())
        + SLACK_BYTES;
    let over = AtomicBool::new(false);
    let sent = AtomicU64::new(0);
    let chunk = vec![7; 64 << 10];
    // The first connection of all is the polite one.
    let mut polite = Pinger::new(support::connect_many(addr, 1), 64);
    polite.rounds(100);
    thread::scope(|scope| {
        let before = support::resident_bytes();
        for _ in 0..greedy {
            scope.spawn(|| sent.fetch_add(send_until(addr, &chunk, &over), Ordering::Relaxed));
        }
        let start = Instant::now();
        let mut most = before;
        let mut rounds = 0;
        let mut slowest = Duration::ZERO;
        // On an emulated machine longer, for fewer.
        let fair = support::rounds(100 * duration.as_secs() as usize);
        let patience = duration * support::patience();
        while start.elapsed() < duration || rounds < fair && start.elapsed() < patience {
            let round = Instant::now();
            polite.rounds(1);
            slowest = slowest.max(round.elapsed());
            rounds += 1;
            if rounds % support::rounds(64) == 0 {
                most = most.max(support::resident_bytes());
            }
        }
        over.store(true, Ordering::Relaxed);
        let grown = most - before;
        println!(
            "{greedy} greedy: {rounds} polite rounds, slowest {slowest:?}, {grown} bytes grown"
        );
        assert!(grown <= limit, "grew by {grown} bytes, {limit} are allowed");
        // An undisturbed one makes well over 10,000 in a second.
        let took = start.elapsed();
        assert!(rounds >= fair, "only {rounds} rounds in {took:?}");
    });
    let sent = sent.into_inner();
    println!("{sent} bytes were sent");
    assert!(sent < SENT_LIMIT, "nobody held the sender back");
}

/// What a socket may receive beyond its high-water mark: a multishot that the kernel cannot limit delivers 33 chunks
/// at once, and as many again when the first cancel misses it.
fn overshoot_bytes() -> usize {
    let features = runtime::features();
    if features.multishot_recv.is_on() && !features.recv_limit.is_on() {
        2 * 33 * BUFFER_BYTES
    } else {
        0
    }
}

/// Returns how many bytes the kernel has taken.
fn send_until(addr: SocketAddr, chunk: &[u8], over: &AtomicBool) -> u64 {
    let mut stream = TcpStream::connect(addr).unwrap();
    // A blocked write must notice the end of the test.
    stream
        .set_write_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let mut sent = 0;
    while !over.load(Ordering::Relaxed) && sent < SENT_LIMIT {
        match stream.write(chunk) {
            Ok(len) => sent += len as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("the greedy peer was cut off: {error}"),
        }
    }
    sent
}

fn build() -> Runtime {
    Builder::new()
        .buffers(BUFFERS)
        .buffer_size(BUFFER_BYTES)
        .recv_high_water(HIGH_WATER_BYTES)
        .build()
        .unwrap()
}

thread_local! {
    /// Whether this worker has its polite connection already.
    static HAS_POLITE: Cell<bool> = const { Cell::new(false) };
}

/// The first connection of a worker is echoed, all others are `slow`.
async fn first_is_polite(
    stream: net::TcpStream,
    slow: impl AsyncFn(net::TcpStream) -> io::Result<()>,
) -> io::Result<()> {
    if HAS_POLITE.replace(true) {
        slow(stream).await
    } else {
        handlers::echo_copy(stream).await
    }
}

async fn take_leases_slowly(mut stream: net::TcpStream) -> io::Result<()> {
    let mut chunks = stream.recv_stream();
    while let Some(chunk) = chunks.next().await {
        // The buffer stays out while the task pauses.
        let _chunk = chunk?;
        runtime::time::sleep(PAUSE).await;
    }
    Ok(())
}

async fn read_slowly(mut stream: net::TcpStream) -> io::Result<()> {
    let mut buf = [0; 1024];
    while stream.read(&mut buf).await? > 0 {
        runtime::time::sleep(PAUSE).await;
    }
    Ok(())
}

fn alone() -> Alone {
    support::alone("the slow reader", Duration::from_secs(60))
}
