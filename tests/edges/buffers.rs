//! The line for receive buffers, and what happens to those who stand in it.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream as Peer};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use net::{TcpListener, TcpStream};
use runtime::Builder;
use runtime::io::Lease;
use runtime::time::{sleep, timeout};
use support::{Server, eventually, pattern, settled};

use crate::{alone, inbox, run, small_pool, some_turns, soon};

/// More than the submission queue holds, and more than there are buffers. The worker sleeps before the first byte comes,
/// and again after each.
#[test]
fn each_of_many_reads_that_are_armed_in_one_poll_gets_its_byte() {
    support::raise_fd_limit();
    for count in [300, 2_000] {
        run(&format!("{count} reads"), Builder::new(), async || {
            let (inboxes, peers): (Vec<_>, Vec<_>) = (0..count).map(|_| inbox()).unzip();
            let (served, acks) = mpsc::channel();
            let worker = support::thread_id();
            let writing = thread::spawn(move || write_one_by_one(peers, worker, &acks));
            // Each read has a waker of its own, so none is polled again because another was served.
            let reads = inboxes.iter().enumerate().map(|(index, inbox)| {
                let served = served.clone();
                async move {
                    let mut byte = [0];
                    let len = poll_fn(|cx| inbox.poll_read(cx, &mut byte)).await.unwrap();
                    assert_eq!((len, byte), (1, [index as u8]), "read {index}");
                    served.send(index).unwrap();
                }
            });
            let all = reads.collect::<FuturesUnordered<_>>().count().await;
            assert_eq!(all, count);
            writing.join().unwrap();
        });
    }
}

/// Begins in the middle: the first and the last are special.
fn write_one_by_one(mut peers: Vec<UnixStream>, worker: i32, acks: &Receiver<usize>) {
    eventually("the worker sleeps", true, || is_asleep(worker));
    let count = peers.len();
    for index in (0..count).map(|step| (step + count / 3) % count) {
        peers[index].write_all(&[index as u8]).unwrap();
        let ack = acks.recv_timeout(Duration::from_secs(10));
        assert_eq!(ack, Ok(index), "the reader of this byte is stuck");
    }
}

/// Twice in a row without a change, so not only for a lock.
fn is_asleep(thread_id: i32) -> bool {
    let before = support::thread_usage(thread_id);
    thread::sleep(Duration::from_millis(20));
    let after = support::thread_usage(thread_id);
    (before.cpu_ns, before.sleeps) == (after.cpu_ns, after.sleeps)
}

/// Those who starved have been served in another way, or are gone: their places in the line are worth nothing, and the
/// one buffer that comes back goes to the one who still waits.
#[test]
fn stale_places_in_the_line_do_not_use_up_the_turn_of_a_waiting_stream() {
    run("stale places", small_pool(), async || {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let mut line = Vec::new();
        for _ in 0..8 {
            line.push(idle_stream(&listener).await);
        }
        let (mut last, mut last_peer) = idle_stream(&listener).await;
        let mut hoard = Hoard::new(&listener).await;
        starve(&mut line).await;
        last_peer.write_all(b"hello").unwrap();
        await_starvations(9).await;
        for (index, (stream, _)) in line.iter_mut().enumerate() {
            if index % 2 == 0 {
                stream.read_exact(&mut [0; 5]).await.unwrap();
            }
        }
        let (rest, _) = (line.split_off(4), line);
        hoard.leases.pop();
        let mut buf = [0; 5];
        soon("the waiting stream", last.read_exact(&mut buf))
            .await
            .unwrap();
        assert_eq!(&buf, b"hello");

        // Once more, with the read pending when the bytes come.
        let reading = runtime::spawn(async move { last.read_exact(&mut [0; 5]).await });
        some_turns().await;
        last_peer.write_all(b"hello").unwrap();
        soon("the next bytes", reading).await.unwrap().unwrap();
        drop((rest, hoard));
    });
}

/// Echo servers that keep their chunks for a while, with far fewer buffers than streams.
#[test]
fn streams_that_keep_their_chunks_share_a_small_pool_for_long() {
    const STREAMS: u64 = 12;
    const SESSIONS: u64 = 15;
    const TOTAL: usize = 60_000;
    let _alone = alone("a shared small pool");
    let build = || {
        let builder = Builder::new().buffers(3).buffer_size(512);
        let builder = builder.recv_high_water(4096).send_high_water(4096);
        builder.build().unwrap()
    };
    let server = Server::start_on(build, |mut stream: TcpStream| async move {
        let mut kept = Vec::new();
        loop {
            let chunk = stream.recv_stream().next().await;
            let Some(chunk) = chunk else {
                return stream.close().await;
            };
            let chunk = chunk?;
            stream.send(chunk.to_vec()).await?;
            kept.push(chunk);
            if kept.len() > 3 {
                sleep(Duration::from_micros(300)).await;
                kept.clear();
            }
        }
    });
    let addr = server.addr();
    let client = move |index| {
        for session in 0..SESSIONS {
            let position = (index * SESSIONS + session) * TOTAL as u64;
            let mut peer = support::connect(addr);
            let mut sender = peer.try_clone().unwrap();
            let sending = thread::spawn(move || {
                for chunk in pattern::bytes(position, TOTAL).chunks(1_700) {
                    sender.write_all(chunk).unwrap();
                }
                sender.shutdown(Shutdown::Write).unwrap();
            });
            // A stuck stream fails here, not in the watchdog.
            peer.set_read_timeout(Some(Duration::from_secs(10)))
                .unwrap();
            let echoed = support::read_to_fin(&mut peer);
            assert_eq!(echoed.len(), TOTAL);
            pattern::check(&echoed, position);
            sending.join().unwrap();
        }
    };
    let clients: Vec<_> = (0..STREAMS)
        .map(|index| thread::spawn(move || client(index)))
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    server.stop();
}

#[test]
fn a_starved_stream_that_is_dropped_is_closed_while_the_pool_stays_empty() {
    run("a starved stream is dropped", small_pool(), async || {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let mut starved = [idle_stream(&listener).await];
        let hoard = Hoard::new(&listener).await;
        starve(&mut starved).await;
        let [(stream, mut peer)] = starved;
        drop(stream);
        peer.set_nonblocking(true).unwrap();
        // The stream had unread bytes, so the kernel may well say it with a reset.
        let closed = || match peer.read(&mut [0; 16]) {
            Ok(0) => true,
            Ok(_) => panic!("nothing was sent"),
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        };
        settled("the peer sees the end", true, closed).await;
        drop(hoard);
    });
}

#[test]
fn a_starved_stream_becomes_a_std_stream_and_loses_no_byte() {
    run(
        "a starved stream is handed over",
        small_pool(),
        async || {
            let listener = TcpListener::bind(support::loopback()).await.unwrap();
            let mut starved = [idle_stream(&listener).await];
            let hoard = Hoard::new(&listener).await;
            starve(&mut starved).await;
            let [(stream, peer)] = starved;
            let (mut stream, mut bytes) = soon("into_std", stream.into_std()).await.unwrap();
            peer.shutdown(Shutdown::Write).unwrap();
            stream.set_nonblocking(false).unwrap();
            bytes.extend(support::read_to_fin(&mut stream));
            assert_eq!(bytes, b"hello");
            drop(hoard);
        },
    );
}

/// A stream whose receive is in flight, while nobody waits for it.
async fn idle_stream(listener: &TcpListener) -> (TcpStream, Peer) {
    let (stream, peer) = support::pair(listener).await;
    assert!(stream.try_read(&mut [0]).is_err());
    some_turns().await;
    (stream, peer)
}

/// Sends to streams while the pool is empty.
async fn starve(line: &mut [(TcpStream, Peer)]) {
    for (_, peer) in line.iter_mut() {
        peer.write_all(b"hello").unwrap();
    }
    await_starvations(line.len() as u64).await;
}

/// Not on epoll, where nobody starves before he reads.
async fn await_starvations(count: u64) {
    let starved = || runtime::metrics().starvations >= count;
    let waiting = settled("starvations", true, starved);
    timeout(Duration::from_millis(500), waiting).await.ok();
}

/// Keeps every buffer of the pool.
struct Hoard {
    leases: Vec<Lease>,
    _stream: TcpStream,
    _peer: Peer,
}

impl Hoard {
    async fn new(listener: &TcpListener) -> Self {
        let (mut stream, mut peer) = support::pair(listener).await;
        let mut leases = Vec::new();
        while leases.is_empty() || runtime::metrics().buffers_free > 0 {
            peer.write_all(&[7; 10]).unwrap();
            leases.push(stream.recv_stream().next().await.unwrap().unwrap());
        }
        Self {
            leases,
            _stream: stream,
            _peer: peer,
        }
    }
}

/// A buffer for each byte would soon be all buffers.
#[test]
fn small_messages_to_a_reader_that_lags_behind_share_few_buffers() {
    // Not more than a socket holds that nobody reads: each takes its room there, too.
    const MESSAGES: usize = 150;
    run("small messages", Builder::new(), async || {
        let (inbox, mut peer) = inbox();
        let held = || {
            let metrics = runtime::metrics();
            metrics.buffers - metrics.buffers_free
        };
        assert!(inbox.try_read(&mut [0]).is_err());
        some_turns().await;
        let idle = held();
        for number in 0..MESSAGES {
            peer.write_all(&[number as u8]).unwrap();
            for _ in 0..3 {
                runtime::yield_now().await;
            }
        }
        some_turns().await;
        let more = held() - idle;
        assert!(more <= 10, "{more} buffers hold {MESSAGES} bytes");
        for number in 0..MESSAGES {
            let mut byte = [0];
            let len = poll_fn(|cx| inbox.poll_read(cx, &mut byte)).await.unwrap();
            assert_eq!((len, byte), (1, [number as u8]));
        }
    });
}
