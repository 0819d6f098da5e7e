//! Several watchers of one descriptor: what one of them does is not felt by the others.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use futures::{AsyncReadExt, AsyncWriteExt, FutureExt};
use net::TcpListener;
use runtime::io::AsyncFd;
use support::pattern;

use crate::{run, some_turns};

#[test]
fn dropping_one_watcher_leaves_another_of_the_same_descriptor_alone() {
    run("two watchers", async || {
        let (mut peer, socket) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        let socket = Rc::new(socket);
        let first = AsyncFd::new(Shared(Rc::clone(&socket))).unwrap();
        let second = AsyncFd::new(Shared(Rc::clone(&socket))).unwrap();
        let reading = runtime::spawn(async move {
            let mut ready = first.readable().await.unwrap();
            let read = ready.try_io(|socket| (&*socket.0).read(&mut [0]));
            read.unwrap().unwrap()
        });
        let also_reading = runtime::spawn(async move { second.readable().await.map(drop) });
        some_turns().await;
        also_reading.abort();
        assert!(also_reading.await.unwrap_err().is_cancelled());
        some_turns().await;
        peer.write_all(b"x").unwrap();
        assert_eq!(reading.await.unwrap(), 1);
    });
}

/// A stream is watched by somebody else for a while (a library that wants to know when it is writable).
#[test]
fn watching_a_stream_for_a_while_leaves_the_stream_alone() {
    run("a watched stream", async || {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let (stream, mut peer) = support::pair(&listener).await;
        let (mut reader, mut writer) = stream.into_split();
        let reading = runtime::spawn(async move {
            let mut bytes = [0; 4];
            reader.read_exact(&mut bytes).await.map(|()| bytes)
        });
        some_turns().await;
        {
            let watched = AsyncFd::new(writer.as_fd()).unwrap();
            watched.writable().await.unwrap();
            assert!(watched.readable().now_or_never().is_none());
            some_turns().await;
        }
        peer.write_all(b"ping").unwrap();
        assert_eq!(&reading.await.unwrap().unwrap(), b"ping");
        writer.write_all(b"pong").await.unwrap();
        peer.set_nonblocking(true).unwrap();
        assert_eq!(crate::read_exact_at_peer(&mut peer, 4).await, b"pong");
    });
}

/// The same while a write of the stream waits for room.
#[test]
fn watching_a_stream_for_a_while_leaves_a_write_that_waits_for_room_alone() {
    const TOTAL: usize = 8 << 20;
    run("a watched stream with a stuck write", async || {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let (stream, mut peer) = support::pair(&listener).await;
        let (reader, mut writer) = stream.into_split();
        let writing = runtime::spawn(async move {
            writer.write_all(&pattern::bytes(0, TOTAL)).await?;
            writer.close().await
        });
        some_turns().await;
        assert!(!writing.is_finished());
        for wait in [false, true] {
            let watched = AsyncFd::new(reader.as_fd()).unwrap();
            if wait {
                assert!(watched.readable().now_or_never().is_none());
                assert!(watched.writable().now_or_never().is_none());
            }
            some_turns().await;
        }
        some_turns().await;
        peer.set_nonblocking(true).unwrap();
        let received = crate::read_exact_at_peer(&mut peer, TOTAL).await;
        pattern::check(&received, 0);
        writing.await.unwrap().unwrap();
    });
}

/// Both watchers have seen the readiness; the one that finds nothing does not take the other's away.
#[test]
fn each_watcher_has_a_readiness_of_its_own() {
    run("two readinesses", async || {
        let (mut peer, socket) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        let socket = Rc::new(socket);
        let first = AsyncFd::new(Shared(Rc::clone(&socket))).unwrap();
        let second = AsyncFd::new(Shared(Rc::clone(&socket))).unwrap();
        for _ in 0..100 {
            peer.write_all(b"x").unwrap();
            for watcher in [&first, &second] {
                watcher.readable().await.unwrap();
            }
            let mut ready = first.readable().await.unwrap();
            let read = ready.try_io(|socket| (&*socket.0).read(&mut [0; 8]));
            assert_eq!(read.unwrap().unwrap(), 1);
            for watcher in [&first, &second] {
                let mut ready = watcher.readable().await.unwrap();
                let read = ready.try_io(|socket| (&*socket.0).read(&mut [0; 8]));
                assert!(read.is_err(), "the byte was read twice");
            }
        }
        assert_eq!(
            (&*socket).read(&mut [0]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
    });
}

/// One number with several owners.
struct Shared(Rc<UnixStream>);

impl AsFd for Shared {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
