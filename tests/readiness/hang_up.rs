//! The other side goes away, in each of the ways that a kernel has for saying so (B33).

use std::future::poll_fn;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use net::TcpListener;
use runtime::JoinHandle;
use runtime::io::{AsyncFd, Inbox, Outbox, Socket};
use socket2::SockRef;

use crate::{run, some_turns};

/// More than any kernel buffer of the tests takes.
const TOO_MUCH: usize = 16 << 20;

/// B33: a write that waits for room hears of the reset.
#[test]
fn a_reset_ends_a_write_that_waits_for_room() {
    run("reset during a write", async || {
        let _signals = DeadlyPipeSignals::new();
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        for _ in 0..10 {
            let (mut stream, peer) = support::pair(&listener).await;
            SockRef::from(&stream).set_send_buffer_size(4096).unwrap();
            let writing = runtime::spawn(async move {
                let error = stream.write_all(&vec![7; TOO_MUCH]).await.unwrap_err();
                let after = stream.write(&[7]).await.unwrap_err();
                (error, after)
            });
            some_turns().await;
            assert!(!writing.is_finished());
            support::reset(peer);
            let (error, after) = writing.await.unwrap();
            assert_is_gone(&error);
            assert_is_gone(&after);
        }
    });
}

/// B33: a reader that waits on an idle connection hears of the reset, however it reads.
#[test]
fn a_reset_ends_an_idle_read() {
    run("reset during an idle read", async || {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        for lease in [false, true] {
            let (mut stream, peer) = support::pair(&listener).await;
            let reading = runtime::spawn(async move {
                match lease {
                    true => stream
                        .recv_stream()
                        .next()
                        .await
                        .unwrap()
                        .map(|lease| lease.len()),
                    false => stream.read(&mut [0]).await,
                }
            });
            some_turns().await;
            support::reset(peer);
            let error = reading.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
        }
    });
}

/// B33: the hang-up of a Unix socket is the end of the stream, for a copying and for a leasing reader.
#[test]
fn a_unix_peer_that_closes_ends_an_idle_read() {
    run("unix hang-up", async || {
        for lease in [false, true] {
            let (peer, inbox, _outbox) = unix_pair();
            let reading = read(inbox, lease);
            some_turns().await;
            assert!(!reading.is_finished());
            drop(peer);
            assert_eq!(reading.await.unwrap().unwrap(), 0);
        }
    });
}

/// B33: half of a hang-up is the end of the stream, too, and the other half goes on.
#[test]
fn a_unix_peer_that_only_ends_its_direction_ends_an_idle_read() {
    run("unix half-close", async || {
        for lease in [false, true] {
            let (mut peer, inbox, outbox) = unix_pair();
            let reading = read(inbox, lease);
            some_turns().await;
            peer.shutdown(Shutdown::Write).unwrap();
            assert_eq!(reading.await.unwrap().unwrap(), 0);
            outbox.try_write(b"still there").unwrap();
            peer.set_nonblocking(true).unwrap();
            let received = crate::read_exact_at_peer(&mut peer, 11).await;
            assert_eq!(received, b"still there");
        }
    });
}

/// B33: what we wrote was never read, which a Unix socket reports as a reset.
#[test]
fn a_unix_peer_that_closes_with_unread_bytes_is_a_reset() {
    run("unix reset", async || {
        let _signals = DeadlyPipeSignals::new();
        let (peer, inbox, outbox) = unix_pair();
        let reading = read(inbox, false);
        outbox.try_write(b"never read").unwrap();
        poll_fn(|cx| outbox.poll_drain(cx)).await.unwrap();
        drop(peer);
        let error = reading.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let error = write_until_error(&outbox).await;
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    });
}

/// B33: a write that waits for room in a Unix socket hears of the hang-up.
#[test]
fn a_unix_peer_that_closes_ends_a_write_that_waits_for_room() {
    run("unix hang-up during a write", async || {
        let _signals = DeadlyPipeSignals::new();
        let (peer, _inbox, outbox) = unix_pair();
        let writing = runtime::spawn(async move {
            let bytes = vec![7; TOO_MUCH];
            let mut written = 0;
            loop {
                match poll_fn(|cx| outbox.poll_write(cx, &bytes[written..])).await {
                    Ok(n) => written += n,
                    Err(error) => return error,
                }
            }
        });
        some_turns().await;
        assert!(!writing.is_finished());
        drop(peer);
        assert_is_gone(&writing.await.unwrap());
    });
}

/// B33: the read end of a pipe whose writers are gone reports a hang-up and nothing else.
#[test]
fn a_hang_up_alone_wakes_the_reader_of_a_pipe() {
    run("pipe hang-up", async || {
        let (reader, writer) = io::pipe().unwrap();
        let reader = AsyncFd::new(reader).unwrap();
        let reading = runtime::spawn(async move {
            let mut ready = reader.readable().await.unwrap();
            ready
                .try_io(|mut reader| reader.read(&mut [0]))
                .unwrap()
                .unwrap()
        });
        some_turns().await;
        assert!(!reading.is_finished());
        drop(writer);
        assert_eq!(reading.await.unwrap(), 0);
    });
}

/// B33: the write end of a full pipe whose readers are gone reports an error and nothing else.
#[test]
fn an_error_alone_wakes_the_writer_of_a_pipe() {
    run("pipe error", async || {
        let (reader, writer) = io::pipe().unwrap();
        set_nonblocking(&writer);
        let writer = Rc::new(AsyncFd::new(writer).unwrap());
        let written = fill(&writer).await;
        assert!(written > 0);
        let waiting = runtime::spawn({
            let writer = Rc::clone(&writer);
            async move { writer.writable().await.map(drop) }
        });
        some_turns().await;
        assert!(!waiting.is_finished());
        drop(reader);
        waiting.await.unwrap().unwrap();
        let error = writer.get_ref().write(&[0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    });
}

/// B33: RDHUP alone, as an `AsyncFd` sees it.
#[test]
fn a_half_close_wakes_whoever_waits_for_readiness() {
    run("half-close of a watched socket", async || {
        let (peer, socket) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        let socket = AsyncFd::new(socket).unwrap();
        let reading = runtime::spawn(async move {
            let mut ready = socket.readable().await.unwrap();
            ready
                .try_io(|mut socket| socket.read(&mut [0]))
                .unwrap()
                .unwrap()
        });
        some_turns().await;
        assert!(!reading.is_finished());
        peer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(reading.await.unwrap(), 0);
    });
}

fn unix_pair() -> (UnixStream, Inbox, Outbox) {
    let (peer, near) = UnixStream::pair().unwrap();
    let socket = Socket::new(near).unwrap();
    (peer, Inbox::new(socket.clone()), Outbox::new(socket))
}

/// How many bytes come next; 0 at the end.
fn read(mut inbox: Inbox, lease: bool) -> JoinHandle<io::Result<usize>> {
    runtime::spawn(async move {
        if lease {
            let next = inbox.stream().next().await.transpose()?;
            return Ok(next.map_or(0, |lease| lease.len()));
        }
        poll_fn(|cx| inbox.poll_read(cx, &mut [0])).await
    })
}

/// Writes until the pipe takes no more.
async fn fill(writer: &AsyncFd<io::PipeWriter>) -> usize {
    let mut written = 0;
    loop {
        let mut ready = writer.writable().await.unwrap();
        match ready.try_io(|mut writer| writer.write(&[7; 4096])) {
            Ok(n) => written += n.unwrap(),
            Err(_would_block) => return written,
        }
    }
}

async fn write_until_error(outbox: &Outbox) -> io::Error {
    loop {
        if let Err(error) = poll_fn(|cx| outbox.poll_write(cx, b"is anybody there?")).await {
            return error;
        }
        runtime::yield_now().await;
    }
}

fn assert_is_gone(error: &io::Error) {
    let expected = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
    assert!(expected.contains(&error.kind()), "{error}");
}

fn set_nonblocking(fd: &impl std::os::fd::AsFd) {
    SockRef::from(fd).set_nonblocking(true).unwrap();
}

/// Rust's start-up code ignores SIGPIPE; while this lives, one would end the process.
struct DeadlyPipeSignals(());

impl DeadlyPipeSignals {
    fn new() -> Self {
        set_pipe_signal(libc::SIG_DFL);
        Self(())
    }
}

impl Drop for DeadlyPipeSignals {
    fn drop(&mut self) {
        set_pipe_signal(libc::SIG_IGN);
    }
}

fn set_pipe_signal(disposition: libc::sighandler_t) {
    // SAFETY: both dispositions that are set run no code of ours.
    unsafe { libc::signal(libc::SIGPIPE, disposition) };
}
