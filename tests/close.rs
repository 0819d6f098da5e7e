//! How a connection ends: the peer gets all that was written, then FIN, then nothing, and never somebody else's bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream as Peer};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use futures::{AsyncReadExt, AsyncWriteExt, FutureExt, StreamExt};
use net::{TcpListener, TcpStream};
use runtime::Builder;
use runtime::io::{Inbox, Outbox, Socket};
use runtime::time::timeout;
use socket2::SockRef;
use support::{Alone, pattern, read_to_fin};

/// More polls than one turn has, a few times over: afterwards some turns have passed.
const SOME_TURNS: usize = 200;

/// The worker stands still after a few turns, so only what was done in them can reach the peer.
#[test]
fn a_stream_that_is_dropped_during_a_read_sends_fin_within_its_turn() {
    run("drop during a read", async |listener| {
        for _ in 0..50 {
            let (mut stream, mut peer) = support::pair(&listener).await;
            assert!(
                timeout(Duration::ZERO, stream.read(&mut [0]))
                    .await
                    .is_err()
            );
            let (sender, seen) = mpsc::channel();
            let reader = thread::spawn(move || sender.send(read_to_fin(&mut peer)).unwrap());
            drop(stream);
            some_turns().await;
            assert_eq!(seen.recv().unwrap(), []);
            reader.join().unwrap();
        }
    });
}

#[test]
fn bytes_that_were_written_before_the_drop_all_arrive_before_fin() {
    run("drop with unsent bytes", async |listener| {
        for round in 0..20 {
            let (mut stream, mut peer) = support::pair(&listener).await;
            let written = write_what_fits(&mut stream).await;
            assert!(written >= 4096, "only {written} bytes were taken");
            drop(stream);
            // In half of the rounds the kernel is full when the stream goes, and the peer starts late.
            if round % 2 == 0 {
                some_turns().await;
            }
            expect_at_peer(&mut peer, written).await;
        }
    });
}

/// Nobody polls the runtime any more once `block_on` has returned, so it must not return before they are out.
#[test]
fn bytes_that_were_written_before_block_on_returns_all_arrive() {
    let _alone = alone("the drain of block_on");
    for _ in 0..5 {
        let runtime = Builder::new().build().unwrap();
        let (reader, written) = runtime.block_on(async {
            let listener = TcpListener::bind(support::loopback()).await.unwrap();
            let (mut stream, peer) = support::pair(&listener).await;
            let written = write_what_fits(&mut stream).await;
            (thread::spawn(move || read_all(peer)), written)
        });
        drop(runtime);
        assert_eq!(reader.join().unwrap(), written);
    }
}

#[test]
fn a_peer_that_never_reads_holds_the_exit_no_longer_than_the_linger() {
    let _alone = support::alone("a bounded linger", Duration::from_secs(10));
    let runtime = Builder::new()
        .linger(Duration::from_millis(200))
        .build()
        .unwrap();
    let peer = runtime.block_on(async {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let (mut stream, peer) = support::pair(&listener).await;
        write_what_fits(&mut stream).await;
        peer
    });
    drop(runtime);
    drop(peer);
}

/// B33.
#[test]
fn a_reset_is_an_error_of_read_and_then_of_write() {
    run("resets", async |listener| {
        let pipe_signals = count_pipe_signals();
        for idle in [true, false] {
            let (mut stream, peer) = support::pair(&listener).await;
            if idle {
                // The receive is in flight when the RST comes.
                assert!(
                    timeout(Duration::ZERO, stream.read(&mut [0]))
                        .await
                        .is_err()
                );
            }
            support::reset(peer);
            let error = stream.read(&mut [0]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
            let error = write_until_error(&mut stream).await;
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        }
        assert_eq!(pipe_signals(), 0, "SIGPIPE");
    });
}

#[test]
fn a_reset_by_the_peer_is_an_error_of_lease_and_buffered_reads_too() {
    run("resets of other reads", async |listener| {
        let (mut stream, peer) = support::pair(&listener).await;
        support::reset(peer);
        let error = stream.recv_stream().next().await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);

        let (stream, peer) = support::pair(&listener).await;
        support::reset(peer);
        let error = stream.peek(&mut [0]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

/// B33: data that arrived before the RST may be lost, by TCP's rules. The error may not.
#[test]
fn writes_to_a_closed_peer_fail_without_a_signal() {
    run("a closed peer", async |listener| {
        let pipe_signals = count_pipe_signals();
        for _ in 0..20 {
            let (mut stream, peer) = support::pair(&listener).await;
            drop(peer);
            let error = write_until_error(&mut stream).await;
            let expected = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
            assert!(expected.contains(&error.kind()), "{error}");
        }
        // After our own shutdown there is no way around EPIPE.
        let (mut stream, _peer) = support::pair(&listener).await;
        stream.close().await.unwrap();
        let error = stream.write(b"too late").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        assert_eq!(pipe_signals(), 0, "SIGPIPE");
    });
}

#[test]
fn a_large_write_to_a_peer_that_resets_meanwhile_fails() {
    run("reset during a write", async |listener| {
        for _ in 0..20 {
            let (mut stream, peer) = support::pair(&listener).await;
            SockRef::from(&stream).set_send_buffer_size(4096).unwrap();
            let writer = runtime::spawn(async move { stream.write_all(&vec![7; 16 << 20]).await });
            some_turns().await;
            support::reset(peer);
            let error = writer.await.unwrap().unwrap_err();
            let expected = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
            assert!(expected.contains(&error.kind()), "{error}");
        }
    });
}

/// Request and FIN arrive together, and the reply is written after the end of the stream was seen.
#[test]
fn a_reply_that_is_written_after_the_peers_fin_still_arrives() {
    run("replies after FIN", async |listener| {
        for round in 0..300 {
            let (mut stream, mut peer) = support::pair(&listener).await;
            peer.write_all(b"request").unwrap();
            peer.shutdown(Shutdown::Write).unwrap();
            let mut request = Vec::new();
            stream.read_to_end(&mut request).await.unwrap();
            assert_eq!(request, b"request");
            let reply_len = if round % 10 == 0 { 60_000 } else { 100 };
            stream
                .write_all(&pattern::bytes(0, reply_len))
                .await
                .unwrap();
            drop(stream);
            expect_at_peer(&mut peer, reply_len).await;
        }
    });
}

/// B31: a queued write of a dropped socket does not go to whoever gets its number next.
#[test]
fn no_byte_crosses_to_a_socket_that_reuses_the_number() {
    const ROUNDS: usize = 10_000;
    let _alone = alone("reused numbers");
    Builder::new().build().unwrap().block_on(async {
        let mut reused = 0;
        let mut last_numbers = Vec::new();
        for round in 0..ROUNDS {
            let mut numbers = Vec::new();
            let mut far_ends = Vec::new();
            for tag in [b'A', b'B'] {
                let (near, far) = UnixStream::pair().unwrap();
                numbers.push(near.as_raw_fd());
                far_ends.push((tag, far));
                let socket = Socket::new(OwnedFd::from(near)).unwrap();
                let inbox = Inbox::new(socket.clone());
                let outbox = Outbox::new(socket);
                if round % 3 == 0 {
                    // With a receive in flight, the close has to wait for that as well.
                    assert_eq!(
                        inbox.try_read(&mut [0]).unwrap_err().kind(),
                        ErrorKind::WouldBlock
                    );
                }
                // Queued, and not yet submitted when the socket is dropped and the next one is opened.
                outbox.try_write(&[tag; 100]).unwrap();
            }
            reused += numbers
                .iter()
                .filter(|number| last_numbers.contains(*number))
                .count();
            last_numbers = numbers;
            if round % 2 == 0 {
                runtime::yield_now().await;
            }
            for (tag, far) in far_ends {
                assert_eq!(bytes_to_fin(far).await, [tag; 100], "round {round}");
            }
        }
        // Otherwise the test shows nothing.
        assert!(reused > ROUNDS / 10, "numbers were reused {reused} times");
    });
}

/// B31.
#[test]
fn no_byte_crosses_between_tcp_streams_either() {
    run("reused numbers of TCP", async |listener| {
        for round in 0..1_000 {
            let (mut first, mut first_peer) = support::pair(&listener).await;
            first.write_all(b"first").await.unwrap();
            drop(first);
            let (mut second, mut second_peer) = support::pair(&listener).await;
            second.write_all(b"second").await.unwrap();
            drop(second);
            some_turns().await;
            assert_eq!(read_to_fin(&mut first_peer), b"first", "round {round}");
            assert_eq!(read_to_fin(&mut second_peer), b"second", "round {round}");
        }
    });
}

/// B32: one half waits for bytes while the other one shuts down: neither waits for the other.
#[test]
fn a_shutdown_of_one_half_does_not_wait_for_the_other() {
    run("half-close", async |listener| {
        let (stream, mut peer) = support::pair(&listener).await;
        let (mut reader, mut writer) = stream.into_split();
        let reading = runtime::spawn(async move {
            let mut rest = Vec::new();
            reader.read_to_end(&mut rest).await.map(|_| rest)
        });
        some_turns().await;
        writer.write_all(b"last words").await.unwrap();
        writer.close().await.unwrap();
        assert_eq!(read_to_fin(&mut peer), b"last words");
        assert!(!reading.is_finished());
        peer.write_all(b"heard").unwrap();
        drop(peer);
        assert_eq!(reading.await.unwrap().unwrap(), b"heard");
    });
}

fn run(what: &str, body: impl AsyncFnOnce(TcpListener)) {
    let _alone = alone(what);
    let before = support::open_fds();
    Builder::new().build().unwrap().block_on(async {
        body(TcpListener::bind(support::loopback()).await.unwrap()).await;
    });
    assert_eq!(support::open_fds(), before, "open descriptors");
}

fn alone(what: &str) -> Alone {
    support::alone(what, Duration::from_secs(60))
}

async fn some_turns() {
    for _ in 0..SOME_TURNS {
        runtime::yield_now().await;
    }
}

/// Writes position-coded bytes until no more are taken: the kernel's small buffer is full, and our queue as well.
async fn write_what_fits(stream: &mut TcpStream) -> usize {
    SockRef::from(&*stream).set_send_buffer_size(4096).unwrap();
    let mut written = 0;
    loop {
        let bytes = pattern::bytes(written as u64, 8192);
        match stream.write(&bytes).now_or_never() {
            Some(result) => written += result.unwrap(),
            None => return written,
        }
        runtime::yield_now().await;
    }
}

async fn write_until_error(stream: &mut TcpStream) -> std::io::Error {
    let start = Instant::now();
    loop {
        if let Err(error) = stream.write(b"is anybody there?").await {
            return error;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "no error comes");
        runtime::yield_now().await;
    }
}

/// The peer reads on a thread of its own, while the worker goes on with what was dropped.
async fn expect_at_peer(peer: &mut Peer, len: usize) {
    let peer = peer.try_clone().unwrap();
    let (sender, received) = futures::channel::oneshot::channel();
    let reader = thread::spawn(move || sender.send(read_all(peer)).unwrap());
    assert_eq!(received.await.unwrap(), len);
    reader.join().unwrap();
}

/// Checks all bytes up to FIN and returns how many they were.
fn read_all(mut peer: Peer) -> usize {
    let bytes = read_to_fin(&mut peer);
    pattern::check(&bytes, 0);
    bytes.len()
}

async fn bytes_to_fin(mut far: UnixStream) -> Vec<u8> {
    far.set_nonblocking(true).unwrap();
    let mut bytes = Vec::new();
    let start = Instant::now();
    loop {
        let mut buf = [0; 256];
        match far.read(&mut buf) {
            Ok(0) => return bytes,
            Ok(len) => bytes.extend_from_slice(&buf[..len]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => runtime::yield_now().await,
            Err(error) => panic!("{error}"),
        }
        assert!(start.elapsed() < Duration::from_secs(20), "no FIN comes");
    }
}

/// Rust's start-up code ignores SIGPIPE, which would hide one; so it gets a handler that counts.
fn count_pipe_signals() -> impl Fn() -> usize {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn count(_signal: libc::c_int) {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
    let handler: extern "C" fn(libc::c_int) = count;
    // SAFETY: the handler does nothing but add to an atomic, which a signal handler may.
    unsafe { libc::signal(libc::SIGPIPE, handler as libc::sighandler_t) };
    || COUNT.load(Ordering::Relaxed)
}
