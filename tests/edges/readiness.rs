//! Readiness that is shared, late, or refused to others.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use futures::{AsyncReadExt, FutureExt};
use net::TcpListener;
use runtime::io::{AsyncFd, Socket, connect};
use runtime::time::timeout;
use runtime::{Backend, Builder};
use socket2::{Domain, SockRef, Type};
use support::{Blackhole, settled};

use crate::{inbox, run, some_turns, soon};

/// `run` measures the end.
#[test]
fn a_watcher_with_a_waiter_in_each_direction_does_not_delay_the_end() {
    run("both directions", Builder::new(), async || {
        let idle = runtime::metrics().ops;
        let (near, _far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        while (&near).write(&[0; 1024]).is_ok() {}
        let watched = AsyncFd::new(near).unwrap();
        for _ in 0..4 {
            // What was known from before the socket was full goes.
            if let Some(ready) = watched.writable().now_or_never() {
                ready.unwrap().clear_ready();
            }
            assert!(watched.readable().now_or_never().is_none());
            some_turns().await;
        }
        drop(watched);
        settled("operations in flight", idle, || runtime::metrics().ops).await;
    });
}

#[test]
fn a_watcher_on_the_number_of_a_socket_does_not_disturb_the_socket() {
    run("one number, two watchers", Builder::new(), async || {
        let idle = runtime::metrics().ops;
        let (inbox, mut peer) = inbox();
        let mut buf = [0; 8];
        for round in 0..3 {
            assert!(inbox.try_read(&mut buf).is_err());
            if round > 0 {
                some_turns().await;
            }
            let watched = AsyncFd::new(inbox.socket().as_fd()).unwrap();
            // Where the socket's receive is in flight, the number may be refused.
            assert!(!matches!(watched.readable().now_or_never(), Some(Ok(_))));
            if round > 1 {
                some_turns().await;
            }
            drop(watched);
            peer.write_all(b"hi").unwrap();
            let len = soon("the bytes", poll_fn(|cx| inbox.poll_read(cx, &mut buf))).await;
            assert_eq!(&buf[..len.unwrap()], b"hi");
        }
        drop(inbox);
        settled("operations in flight", idle, || runtime::metrics().ops).await;
    });
}

#[test]
fn a_late_clear_keeps_newer_readiness() {
    run("a late clear", Builder::new(), async || {
        let (near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let watched = AsyncFd::new(near).unwrap();
        for _ in 0..20 {
            far.write_all(b"x").unwrap();
            let mut late = soon("the first byte", watched.readable()).await.unwrap();
            assert_eq!(watched.get_ref().read(&mut [0; 8]).unwrap(), 1);
            assert!(watched.get_ref().read(&mut [0; 8]).is_err());
            far.write_all(b"y").unwrap();
            some_turns().await;
            late.clear_ready();
            let _ready = soon("the second byte", watched.readable()).await.unwrap();
            assert_eq!(watched.get_ref().read(&mut [0; 8]).unwrap(), 1);
        }
    });
}

#[test]
fn a_stream_that_tried_in_vain_becomes_a_std_stream() {
    for backend in [Backend::Auto, Backend::Epoll] {
        let builder = Builder::new().backend(backend);
        run("a try in vain", builder, async || {
            let listener = TcpListener::bind(support::loopback()).await.unwrap();
            let (mut stream, mut peer) = support::pair(&listener).await;
            peer.write_all(b"x").unwrap();
            stream.read_exact(&mut [0]).await.unwrap();
            assert!(stream.try_read(&mut [0; 8]).is_err());
            let (_, unread) = soon("into_std", stream.into_std()).await.unwrap();
            assert_eq!(unread, b"");

            let (stream, mut peer) = support::pair(&listener).await;
            assert!(stream.try_read(&mut [0; 8]).is_err());
            peer.write_all(b"late").unwrap();
            some_turns().await;
            let (mut std, mut bytes) = soon("into_std", stream.into_std()).await.unwrap();
            drop(peer);
            std.set_nonblocking(false).unwrap();
            bytes.extend(support::read_to_fin(&mut std));
            assert_eq!(bytes, b"late");

            assert!(listener.accept().now_or_never().is_none());
            let (_, accepted) = soon("into_std", listener.into_std()).await.unwrap();
            assert!(accepted.is_empty());
        });
    }
}

/// Epoll, where all that a turn sees must be neither the busy task nor the socket that is ready already.
#[test]
fn a_busy_task_and_a_busy_socket_do_not_starve_another_socket() {
    let builder = Builder::new().backend(Backend::Epoll);
    run("a busy worker", builder, async || {
        let (busy, mut flooder) = inbox();
        flooder.set_nonblocking(true).unwrap();
        let served = Rc::new(Cell::new(0));
        let reading = runtime::spawn({
            let served = Rc::clone(&served);
            async move {
                let mut buf = [0; 4096];
                loop {
                    // Full again before each read, so that it has data at every time.
                    while flooder.write(&[0; 4096]).is_ok() {}
                    poll_fn(|cx| busy.poll_read(cx, &mut buf)).await.unwrap();
                    served.set(served.get() + 1);
                }
            }
        });
        let yielding = runtime::spawn(async {
            loop {
                runtime::yield_now().await;
            }
        });
        settled("the flood is served", true, || served.get() > 100).await;
        let (quiet, mut peer) = inbox();
        let answer = runtime::spawn(async move {
            let mut buf = [0; 8];
            let len = poll_fn(|cx| quiet.poll_read(cx, &mut buf)).await.unwrap();
            buf[..len].to_vec()
        });
        some_turns().await;
        peer.write_all(b"hi").unwrap();
        assert_eq!(soon("the quiet socket", answer).await.unwrap(), b"hi");
        for busy in [reading, yielding] {
            busy.abort();
            assert!(busy.await.unwrap_err().is_cancelled());
        }
    });
}

#[test]
fn a_connect_after_a_refused_one_does_not_succeed_falsely() {
    run("connects of one socket", Builder::new(), async || {
        let blackhole = Blackhole::new();
        let listener = std::net::TcpListener::bind(support::loopback()).unwrap();
        for target in [blackhole.addr(), listener.local_addr().unwrap()] {
            let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            let socket = Socket::new(socket).unwrap();
            let nobody = std::net::TcpListener::bind(support::loopback()).unwrap();
            let refused = nobody.local_addr().unwrap();
            drop(nobody);
            let error = soon("a refusal", connect(&socket, &refused.into()))
                .await
                .unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED));
            // Linux calls the next one aborted, if the first told its error in another way.
            let again = soon("another refusal", connect(&socket, &refused.into())).await;
            assert!(again.is_err());
            let again = timeout(Duration::from_millis(300), connect(&socket, &target.into())).await;
            let connected = matches!(again, Ok(Ok(())));
            let peer = SockRef::from(&socket).peer_addr();
            let peer = peer.ok().and_then(|addr| addr.as_socket());
            assert_eq!(peer, connected.then_some(target), "{again:?}");
        }
    });
}
