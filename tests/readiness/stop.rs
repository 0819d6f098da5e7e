//! Stopping what was about to be tried: the news has come and turns out to be none.

use std::io::{ErrorKind, Write};
use std::net::TcpStream as Peer;
use std::time::Instant;

use futures::{AsyncReadExt, FutureExt};
use net::{TcpListener, TcpStream};
use runtime::Builder;

use crate::{PROMPT, alone, run, some_turns};

/// The socket was ready a moment ago, so the next receive is tried soon. It will find nothing, and must not go back to
/// waiting: it was stopped before.
#[test]
fn a_stream_can_leave_right_after_a_read_that_found_nothing() {
    run("leaving after a read", async || {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let (mut stream, mut peer) = support::pair(&listener).await;
        for round in 0..100_u8 {
            peer.write_all(&[round]).unwrap();
            let mut byte = [0];
            stream.read_exact(&mut byte).await.unwrap();
            assert_eq!(byte, [round]);
            if round % 2 == 0 {
                assert!(stream.read(&mut byte).now_or_never().is_none());
            } else {
                let error = stream.try_read(&mut byte).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
            }
            if round % 3 == 0 {
                runtime::yield_now().await;
            }
            let (std_stream, unread) = stream.into_std().await.unwrap();
            assert_eq!(unread, []);
            stream = TcpStream::from_std(std_stream).unwrap();
        }
    });
}

#[test]
fn a_listener_can_leave_right_after_an_accept_that_found_nothing() {
    run("leaving after an accept", async || {
        let mut listener = TcpListener::bind(support::loopback()).await.unwrap();
        for round in 0..100 {
            let pair = support::pair(&listener).await;
            assert!(listener.accept().now_or_never().is_none());
            if round % 3 == 0 {
                runtime::yield_now().await;
            }
            let (std_listener, accepted) = listener.into_std().await.unwrap();
            assert!(accepted.is_empty());
            listener = TcpListener::from_std(std_listener).unwrap();
            drop(pair);
        }
    });
}

/// The worker finds news of a listener and of a stream that outlive it in its very last turns.
#[test]
fn news_that_come_with_the_end_do_not_hold_it_up() {
    let _alone = alone("news at the end");
    let runtime = Builder::new().build().unwrap();
    let (listener, stream, mut peer) = runtime.block_on(async {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let (mut stream, peer) = support::pair(&listener).await;
        assert!(listener.accept().now_or_never().is_none());
        assert!(stream.read(&mut [0]).now_or_never().is_none());
        some_turns().await;
        (listener, stream, peer)
    });
    let _late = Peer::connect(listener.local_addr().unwrap()).unwrap();
    peer.write_all(b"late").unwrap();
    let start = Instant::now();
    drop(runtime);
    assert!(
        start.elapsed() < PROMPT,
        "the end took {:?}",
        start.elapsed()
    );
    drop((listener, stream));
}
