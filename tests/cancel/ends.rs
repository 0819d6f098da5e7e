//! Given-up ends: closing, shutting down, draining, stopping, and leaving the runtime.

use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream as Peer};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt, FutureExt};
use net::{TcpListener, TcpStream};
use runtime::Builder;
use runtime::io::{AcceptStream, Inbox, Outbox, Socket};
use runtime::time::timeout;
use socket2::SockRef;
use support::{Fate, partial, pattern, settled};

use crate::{listen, random_pause, run, wait_for_end};

/// Less than an outbox, and more than the smallest buffers of a Unix socket.
const WRITTEN: usize = 48 << 10;

/// The end is asked for while the peer does not read, and given up. It comes all the same, after all bytes, whether it
/// is asked for again or not.
#[test]
fn a_given_up_shutdown_sends_all_and_then_ends() {
    run("given-up shutdowns", Builder::new(), async |mut rng| {
        let listener = listen().await;
        for round in 0..50 {
            let (mut stream, peer) = narrow_pair(&listener).await;
            let written = fill(&stream).await;
            let polled = Fate {
                polls: 1 + rng.below(8),
                forget: rng.one_in(8),
            };
            let given_up = match round % 3 {
                0 => partial(polled, stream.close()).await,
                1 => partial(polled, stream.shutdown(Shutdown::Write)).await,
                _ => timeout(random_pause(&mut rng), stream.close()).await.ok(),
            };
            assert!(given_up.is_none(), "the peer has not read");
            let error = stream.write(b"more").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);

            let reader = thread::spawn(move || read_all(peer));
            if rng.one_in(2) {
                stream.close().await.unwrap();
            } else {
                settled("the peer has seen the end", true, || reader.is_finished()).await;
            }
            assert_eq!(reader.join().unwrap(), written, "bytes before FIN");
            stream.close().await.unwrap();
        }
    });
}

/// The writing side comes first. It ends all the same; the other one was not come to.
#[test]
fn a_given_up_shutdown_of_both_sides_leaves_the_reading_side_open() {
    run("given-up shutdowns", Builder::new(), async |_| {
        let listener = listen().await;
        let (mut stream, peer) = narrow_pair(&listener).await;
        let written = fill(&stream).await;
        assert!(stream.shutdown(Shutdown::Both).now_or_never().is_none());
        let reader = thread::spawn(move || {
            let count = read_all(peer.try_clone().unwrap());
            (&peer).write_all(b"answer").unwrap();
            count
        });
        let mut answer = [0; 6];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"answer");
        assert_eq!(reader.join().unwrap(), written, "bytes before FIN");
    });
}

/// A future that was never polled has asked for nothing.
#[test]
fn a_shutdown_that_was_never_polled_ends_nothing() {
    run("shutdowns without a poll", Builder::new(), async |_| {
        let listener = listen().await;
        let (mut stream, mut peer) = support::pair(&listener).await;
        drop(stream.close());
        drop(stream.shutdown(Shutdown::Both));
        stream.write_all(b"still open").await.unwrap();
        peer.write_all(b"still open").unwrap();
        stream.close().await.unwrap();
        assert_eq!(support::read_to_fin(&mut peer), b"still open");
        stream.readable().await.unwrap();
        let mut buf = [0; 16];
        assert_eq!(stream.try_read(&mut buf).unwrap(), 10);
    });
}

#[test]
fn a_given_up_drain_goes_on_sending() {
    run("given-up drains", Builder::new(), async |mut rng| {
        for _ in 0..100 {
            let (mut peer, socket) = UnixStream::pair().unwrap();
            SockRef::from(&socket).set_send_buffer_size(4096).unwrap();
            let outbox = Outbox::new(Socket::new(socket).unwrap());
            let written = outbox.try_write(&pattern::bytes(0, WRITTEN)).unwrap();
            assert_eq!(written, WRITTEN);
            let fate = Fate {
                polls: 1 + rng.below(8),
                forget: rng.one_in(8),
            };
            let drained = partial(fate, poll_fn(|cx| outbox.poll_drain(cx))).await;
            assert!(drained.is_none(), "the peer has not read");
            let reader = thread::spawn(move || {
                let mut bytes = vec![0; WRITTEN];
                peer.read_exact(&mut bytes).unwrap();
                pattern::check(&bytes, 0);
            });
            poll_fn(|cx| outbox.poll_drain(cx)).await.unwrap();
            drop(outbox);
            reader.join().unwrap();
        }
    });
}

/// Stopping is asked for and given up at any moment. Reads go on, and no byte is missing or out of place.
#[test]
fn a_given_up_stop_of_receiving_loses_no_byte() {
    const TOTAL: usize = 1 << 20;
    run("given-up stops", Builder::new(), async |mut rng| {
        let (mut peer, socket) = UnixStream::pair().unwrap();
        let inbox = Inbox::new(Socket::new(socket).unwrap());
        let mut sender_rng = rng.fork();
        let sender = thread::spawn(move || {
            for chunk in pattern::bytes(0, TOTAL).chunks(1 << 10) {
                peer.write_all(chunk).unwrap();
                if sender_rng.one_in(16) {
                    thread::sleep(random_pause(&mut sender_rng) / 4);
                }
            }
        });
        let mut buf = vec![0; 4 << 10];
        let mut position = 0;
        loop {
            let stop = poll_fn(|cx| inbox.poll_stop(cx));
            let _ = partial(Fate::random(&mut rng), stop).await;
            let size = rng.size(buf.len());
            let read = poll_fn(|cx| inbox.poll_read(cx, &mut buf[..size]));
            match partial(Fate::random(&mut rng), read)
                .await
                .transpose()
                .unwrap()
            {
                None => {}
                Some(0) => break,
                Some(len) => {
                    pattern::check(&buf[..len], position as u64);
                    position += len;
                }
            }
        }
        assert_eq!(position, TOTAL);
        sender.join().unwrap();
    });
}

#[test]
fn a_given_up_stop_of_accepting_loses_no_connection() {
    run("given-up stops", Builder::new(), async |mut rng| {
        let listener = std::net::TcpListener::bind(support::loopback()).unwrap();
        let addr = listener.local_addr().unwrap();
        let accepts = AcceptStream::new(Socket::new(listener).unwrap());
        for _ in 0..50 {
            let peers = support::connect_many(addr, 1 + rng.below(8));
            let mut accepted = Vec::new();
            while accepted.len() < peers.len() {
                let stop = poll_fn(|cx| accepts.poll_stop(cx));
                let _ = partial(Fate::random(&mut rng), stop).await;
                let accept = poll_fn(|cx| accepts.poll_accept(cx));
                let fate = Fate::random(&mut rng);
                accepted.extend(partial(fate, accept).await.transpose().unwrap());
            }
            assert!(accepts.try_accept().is_err(), "nobody else has connected");
        }
    });
}

/// The future owns the stream. Given up, it is a dropped stream: what was written goes out, then the peer sees the end.
#[test]
fn a_given_up_departure_of_a_stream_closes_it_after_all_was_sent() {
    run("given-up departures", Builder::new(), async |mut rng| {
        let listener = listen().await;
        for _ in 0..50 {
            let (stream, mut peer) = narrow_pair(&listener).await;
            peer.write_all(b"unread").unwrap();
            // All of it is taken from the kernel, which would otherwise answer the close with RST.
            stream.readable().await.unwrap();
            let written = fill(&stream).await;
            let fate = Fate {
                polls: rng.below(8),
                forget: false,
            };
            assert!(partial(fate, stream.into_std()).await.is_none());
            let reader = thread::spawn(move || read_all(peer));
            // The worker has turns meanwhile, in which it sends.
            settled("the peer has all", true, || reader.is_finished()).await;
            assert_eq!(reader.join().unwrap(), written);
        }
    });
}

#[test]
fn a_given_up_departure_of_a_listener_closes_it_and_its_connections() {
    run("given-up departures", Builder::new(), async |mut rng| {
        for round in 0..50 {
            let listener = listen().await;
            let addr = listener.local_addr().unwrap();
            let mut peers = support::connect_many(addr, 1 + rng.below(8));
            assert!(listener.accept().now_or_never().is_none());
            for _ in 0..rng.below(4) {
                runtime::yield_now().await;
            }
            let departure = listener.into_std();
            if round % 2 == 0 {
                drop(departure);
            } else {
                drop(departure.now_or_never());
            }
            for peer in &mut peers {
                wait_for_end(peer).await;
            }
            settled("the port is refused", true, || Peer::connect(addr).is_err()).await;
        }
    });
}

/// A pair that is soon full. (With a small receive buffer too, the window that reopens is so small that the peer gets
/// its bytes one timer of TCP after the other.)
async fn narrow_pair(listener: &TcpListener) -> (TcpStream, Peer) {
    let (stream, peer) = support::pair(listener).await;
    SockRef::from(&stream)
        .set_send_buffer_size(16 << 10)
        .unwrap();
    (stream, peer)
}

/// Writes until both ends are full, and says how many bytes were taken.
async fn fill(stream: &TcpStream) -> usize {
    let mut written = 0;
    let mut refused = 0;
    while refused < 20 {
        match stream.try_write(&pattern::bytes(written as u64, 4 << 10)) {
            Ok(len) => {
                written += len;
                refused = 0;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                refused += 1;
                runtime::yield_now().await;
            }
        }
    }
    written
}

/// Reads and checks all, and says how many bytes came before FIN.
fn read_all(mut peer: Peer) -> usize {
    peer.set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let bytes = support::read_to_fin(&mut peer);
    pattern::check(&bytes, 0);
    bytes.len()
}
