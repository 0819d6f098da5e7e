//! Peers that reset the connection, in every phase that a connection has: what arrived before is still read, then
//! there is one error, whoever waits is woken, and all is given back. Nothing waits for the linger.

use std::cell::Cell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use futures::{AsyncReadExt, AsyncWriteExt, FutureExt, StreamExt};
use net::{TcpListener, TcpStream};
use runtime::time::sleep;
use runtime::{Builder, Runtime};
use socket2::SockRef;
use support::{Alone, Blackhole, handlers, pattern, settled};

/// More than the kernel's buffers and ours take.
const TOO_MUCH: usize = 16 << 20;
const ROUNDS: usize = 10;

#[test]
fn a_reset_before_the_accept_costs_one_connection_at_most() {
    each_round("a reset before the accept", async |listener| {
        // Some before the accept is armed (in the first round), all before anybody takes them.
        for _ in 0..5 {
            support::reset(support::connect(listener.local_addr().unwrap()));
        }
        let mut peer = support::connect(listener.local_addr().unwrap());
        let mut stream = loop {
            // Those that were reset are skipped, or come as streams that are broken.
            let (stream, addr) = listener.accept().await.unwrap();
            if addr == peer.local_addr().unwrap() {
                break stream;
            }
            assert!(matches!(read_to_error(stream).await, (bytes, _) if bytes.is_empty()));
        };
        peer.write_all(b"alive").unwrap();
        stream.read_exact(&mut [0; 5]).await.unwrap();
    });
}

#[test]
fn a_reset_between_accept_and_read_is_the_first_reads_error() {
    each_round("a reset before the first read", async |listener| {
        let (stream, peer) = support::pair(listener).await;
        support::reset(peer);
        let (bytes, error) = read_to_error(stream).await;
        assert_eq!((bytes.len(), error), (0, ErrorKind::ConnectionReset));
    });
}

#[test]
fn bytes_that_came_before_a_reset_are_read_before_its_error() {
    each_round("a reset with unread bytes", async |listener| {
        for len in [1, 1000, 20_000, 60_000] {
            let (mut stream, mut peer) = support::pair(listener).await;
            peer.write_all(&pattern::bytes(0, len)).unwrap();
            // One byte is taken, so the rest is in the inbox, if it came in the same turn.
            stream.read_exact(&mut [0]).await.unwrap();
            support::reset(peer);
            let (bytes, error) = read_to_error(stream).await;
            assert_eq!(bytes.len(), len - 1);
            pattern::check(&bytes, 1);
            assert_eq!(error, ErrorKind::ConnectionReset);
        }
    });
}

#[test]
fn a_reset_ends_all_who_wait_on_both_halves() {
    each_round("a reset under two waits", async |listener| {
        let (stream, peer) = support::pair(listener).await;
        let (mut reader, mut writer) = stream.into_split();
        let reading = runtime::spawn(async move { reader.recv_stream().next().await });
        let writing = runtime::spawn(async move { writer.write_all(&vec![7; TOO_MUCH]).await });
        some_turns().await;
        assert!(!reading.is_finished() && !writing.is_finished());
        support::reset(peer);
        let write_error = writing.await.unwrap().unwrap_err();
        assert_is_gone(write_error.kind());
        // The kernel tells of a reset once; whoever hears it second finds the end.
        match reading.await.unwrap() {
            Some(Err(error)) => assert_is_gone(error.kind()),
            Some(Ok(lease)) => panic!("{} bytes from nobody", lease.len()),
            None => {}
        }
    });
}

#[test]
fn a_reset_ends_the_drain_of_a_dropped_stream() {
    each_round("a reset during a drain", async |listener| {
        let (mut stream, peer) = support::pair(listener).await;
        fill(&mut stream);
        drop(stream);
        some_turns().await;
        support::reset(peer);
    });
}

#[test]
fn a_reset_ends_the_drain_of_a_dropped_write_half() {
    each_round("a reset during the drain of a half", async |listener| {
        let (mut stream, peer) = support::pair(listener).await;
        fill(&mut stream);
        let (reader, writer) = stream.into_split();
        drop(writer);
        some_turns().await;
        support::reset(peer);
        drop(reader);
    });
}

#[test]
fn a_reset_ends_a_shutdown_that_waits() {
    each_round("a reset during a shutdown", async |listener| {
        for how in [Shutdown::Write, Shutdown::Both] {
            let (mut stream, peer) = support::pair(listener).await;
            fill(&mut stream);
            let ending = runtime::spawn(async move { stream.shutdown(how).await });
            some_turns().await;
            assert!(!ending.is_finished());
            support::reset(peer);
            assert_is_gone(ending.await.unwrap().unwrap_err().kind());
        }
    });
}

#[test]
fn a_reset_after_the_end_of_our_side_is_a_reads_error() {
    each_round("a reset after our end", async |listener| {
        let (stream, peer) = support::pair(listener).await;
        stream.shutdown(Shutdown::Write).await.unwrap();
        support::reset(peer);
        let (bytes, error) = read_to_error(stream).await;
        assert_eq!((bytes.len(), error), (0, ErrorKind::ConnectionReset));
    });
}

/// Both sides talk, and after any number of the peer's calls it resets.
#[test]
fn a_reset_after_any_number_of_calls_ends_an_echo() {
    const MESSAGE: usize = 3_000;
    each_round("a reset within an echo", async |listener| {
        for calls in 0..30 {
            let (stream, mut peer) = support::pair(listener).await;
            let echo = match calls % 3 {
                0 => runtime::spawn(handlers::echo_copy(stream)),
                1 => runtime::spawn(handlers::echo_copy_buf(stream)),
                _ => runtime::spawn(handlers::echo_lease(stream)),
            };
            peer.set_nonblocking(true).unwrap();
            let mut buf = [0; MESSAGE];
            for call in 0..calls {
                let done = match call % 3 {
                    2 => peer.read(&mut buf),
                    _ => peer.write(&buf),
                };
                assert!(done.is_ok_and(|len| len > 0) || call % 3 == 2);
                if call % 4 == 3 {
                    runtime::yield_now().await;
                }
            }
            support::reset(peer);
            assert_is_gone(echo.await.unwrap().unwrap_err().kind());
        }
    });
}

/// Peers that say a word and reset the connection, on threads of their own, so that both may come at any moment: also
/// in between the kernel's first look at a socket and its waiting for it, where it takes both for one piece of news. In
/// some 10,000 connections that happens twice.
#[test]
fn no_reset_falls_into_the_arming_of_a_receive() {
    const THREADS: usize = 3;
    let _alone = alone("resets at any moment");
    let per_thread = support::rounds(3_000);
    build().block_on(async {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let peers = (0..THREADS).map(|_| thread::spawn(move || talk_and_reset(addr, per_thread)));
        let peers: Vec<_> = peers.collect();
        let (accepted, heard) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let accepting = runtime::spawn({
            let (accepted, heard) = (accepted.clone(), heard.clone());
            async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    accepted.set(accepted.get() + 1);
                    let heard = heard.clone();
                    runtime::spawn(async move {
                        // One that was reset before it was accepted may have lost what it said.
                        let (bytes, error) = read_to_error(stream).await;
                        assert!(bytes == b"a word" || bytes.is_empty());
                        assert_eq!(error, ErrorKind::ConnectionReset);
                        heard.set(heard.get() + 1);
                    });
                }
            }
        });
        // By no task that waits for a thread, which may keep its waker for longer than the runtime is there.
        while !peers.iter().all(thread::JoinHandle::is_finished) {
            sleep(Duration::from_millis(1)).await;
        }
        let deaf = || accepted.get() - heard.get();
        settled("connections whose end was not heard", 0, deaf).await;
        assert!(heard.get() > 0);
        for peer in peers {
            peer.join().unwrap();
        }
        accepting.abort();
    });
}

fn talk_and_reset(addr: SocketAddr, times: usize) {
    for round in 0..times {
        let mut peer = support::connect(addr);
        // From nothing to as long as an accept takes.
        for _ in 0..(round * 7919) % 20_000 {
            std::hint::spin_loop();
        }
        peer.write_all(b"a word").unwrap();
        support::reset(peer);
    }
}

/// The connection is refused, not timed out, when its SYN is answered at last.
#[test]
fn a_connect_that_waits_hears_of_the_reset() {
    let _alone = alone("a reset during a connect");
    build().block_on(async {
        let ops = runtime::metrics().ops;
        let blackhole = Blackhole::new();
        let connecting = runtime::spawn(TcpStream::connect(blackhole.addr()));
        some_turns().await;
        assert!(!connecting.is_finished());
        drop(blackhole);
        let error = connecting.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        settled("ops in flight", ops, || runtime::metrics().ops).await;
    });
}

/// Runs `round` a few times on one worker; afterwards all is as it was, long before the linger is over.
fn each_round(what: &str, round: impl AsyncFn(&TcpListener)) {
    let _alone = alone(what);
    let fds = support::open_fds();
    let runtime = build();
    let start = Instant::now();
    runtime.block_on(async {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        round(&listener).await;
        let in_use = || {
            let metrics = runtime::metrics();
            let buffers = metrics.buffers - metrics.buffers_free;
            (metrics.tasks, metrics.ops, buffers)
        };
        // The armed accept of the listener, and the worker's wake.
        settled("tasks, ops and buffers in use", (0, 2, 0), in_use).await;
        for _ in 1..ROUNDS {
            round(&listener).await;
        }
        settled("tasks, ops and buffers in use", (0, 2, 0), in_use).await;
    });
    drop(runtime);
    assert!(start.elapsed() < LINGER, "{:?}", start.elapsed());
    assert_eq!(support::open_fds(), fds, "open descriptors");
}

/// Fills the outbox, and the socket's buffer before it.
fn fill(stream: &mut TcpStream) {
    SockRef::from(&*stream).set_send_buffer_size(4096).unwrap();
    let block = vec![7; TOO_MUCH];
    let sent = stream.send(block).now_or_never();
    sent.expect("an empty outbox has room").unwrap();
}

async fn read_to_error(mut stream: TcpStream) -> (Vec<u8>, ErrorKind) {
    let mut bytes = Vec::new();
    let mut buf = [0; 4096];
    loop {
        match stream.read(&mut buf).await {
            Ok(0) => panic!("the end instead of an error, after {} bytes", bytes.len()),
            Ok(len) => bytes.extend_from_slice(&buf[..len]),
            Err(error) => return (bytes, error.kind()),
        }
    }
}

fn assert_is_gone(kind: io::ErrorKind) {
    assert!(
        matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
        "{kind:?}"
    );
}

async fn some_turns() {
    for _ in 0..20 {
        runtime::yield_now().await;
    }
}

fn build() -> Runtime {
    Builder::new().linger(LINGER).build().unwrap()
}

fn alone(what: &str) -> Alone {
    support::alone(what, LINGER)
}

/// Longer than any test here takes, so that what waited for it would be seen.
const LINGER: Duration = Duration::from_secs(100);
