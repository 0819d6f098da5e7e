//! Tiny pools, whose buffers the application keeps.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream as Peer};
use std::thread;
use std::time::Duration;

use futures::{AsyncReadExt, StreamExt};
use net::{TcpListener, TcpStream};
use runtime::Builder;
use runtime::io::Lease;
use runtime::time::sleep;
use support::{pattern, settled};

use crate::alone;

const BUFFER_BYTES: usize = 1024;
/// So many streams wait while the pool is empty.
const WAITING: usize = 10;
/// More than a pool has buffers.
const CROWD: usize = 400;

/// B24: all four buffers are out, and yet: those who wait do so quietly, those who have something get it, and when the
/// buffers are back nothing is missing.
#[test]
fn hoarded_leases_stop_nobody_else() {
    let _alone = alone("hoarded leases");
    let runtime = Builder::new()
        .buffers(4)
        .buffer_size(BUFFER_BYTES)
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let (mut hoarder, mut hoarder_peer) = support::pair(&listener).await;
        let (leases, hoarded_bytes) = hoard(&mut hoarder, &mut hoarder_peer).await;
        assert_eq!(runtime::metrics().buffers_free, 0);

        let mut peers = Vec::new();
        let mut echoes = Vec::new();
        for _ in 0..WAITING {
            let (stream, peer) = support::pair(&listener).await;
            peers.push(peer);
            echoes.push(runtime::spawn(support::handlers::echo_copy(stream)));
        }
        assert_no_spin("streams wait for an empty pool").await;

        for round in 0..20 {
            for peer in &mut peers {
                ping(peer, round * 3000, 3000).await;
            }
        }
        // The hoarder has taken 4 buffers; what it has not taken is in the kernel or on the heap.
        let mut position = 0;
        for lease in leases {
            pattern::check(&lease, position);
            position += lease.len() as u64;
        }
        settled("buffers free", 4, || runtime::metrics().buffers_free).await;
        let rest = 64_000;
        let late = pattern::bytes(hoarded_bytes as u64, rest);
        let sender = thread::spawn(move || hoarder_peer.write_all(&late).map(|()| hoarder_peer));
        let mut received = vec![0; rest];
        hoarder.read_exact(&mut received).await.unwrap();
        pattern::check(&received, hoarded_bytes as u64);
        drop(sender.join().unwrap().unwrap());

        drop(peers);
        for echo in echoes {
            echo.await.unwrap().unwrap();
        }
    });
}

/// More connections than buffers speak at once. What they say is answered before more of it is fetched, so hardly anybody
/// finds the pool empty: only a worker that is held up while its tasks run gives buffers back more slowly than it gets
/// them.
#[test]
fn a_crowd_that_speaks_at_once_starves_nobody() {
    let _alone = alone("a crowd");
    let runtime = Builder::new().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let mut peers = Vec::new();
        for _ in 0..CROWD {
            let (stream, peer) = support::pair(&listener).await;
            runtime::spawn(support::handlers::echo_copy(stream));
            peers.push(peer);
        }
        // The first rounds make the pool grow.
        let mut before = 0;
        for round in 0..6 {
            if round == 3 {
                before = runtime::metrics().starvations;
            }
            let said = pattern::bytes(round, 64);
            // Nothing else runs meanwhile.
            for peer in &mut peers {
                peer.write_all(&said).unwrap();
            }
            let hear = move || {
                let mut heard = [0; 64];
                for peer in &mut peers {
                    peer.read_exact(&mut heard).unwrap();
                    pattern::check(&heard, round);
                }
                peers
            };
            peers = runtime::spawn_blocking(hear).await.unwrap();
        }
        let starvations = runtime::metrics().starvations - before;
        // Kernels that hand out everything at once (before 6.13) cannot be held back. This feature is younger.
        let features = runtime::features();
        if features.recv_limit.is_on() && features.multishot_recv.is_on() {
            assert!(starvations < CROWD as u64 / 4, "{starvations} starved");
        }
    });
}

/// B24.
/// Hoarders who all want more than there is, with data waiting in their sockets, do not make the worker run in circles.
#[test]
fn starved_sockets_with_data_do_not_spin() {
    let _alone = alone("starved sockets");
    let runtime = Builder::new()
        .buffers(4)
        .buffer_size(BUFFER_BYTES)
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let (mut hoarder, mut hoarder_peer) = support::pair(&listener).await;
        let (leases, _) = hoard(&mut hoarder, &mut hoarder_peer).await;
        let mut idle = Vec::new();
        for _ in 0..WAITING {
            let (mut stream, mut peer) = support::pair(&listener).await;
            // More than anyone takes: nobody reads on after the first byte.
            peer.set_nonblocking(true).unwrap();
            let sent = fill(&mut peer);
            stream.read_exact(&mut [0]).await.unwrap();
            idle.push((stream, peer, sent));
        }
        assert_no_spin("nobody reads").await;
        drop(leases);
        assert_no_spin("nobody reads, and buffers are free").await;
        for (stream, peer, sent) in &mut idle {
            peer.shutdown(Shutdown::Write).unwrap();
            // By hand: `read_to_end` clears its whole buffer before every read, which is slow where the reads are small.
            let (mut buf, mut position) = ([0; BUFFER_BYTES], 1);
            loop {
                let len = stream.read(&mut buf).await.unwrap();
                if len == 0 {
                    break;
                }
                pattern::check(&buf[..len], position);
                position += len as u64;
            }
            assert_eq!(position, *sent as u64);
        }
    });
}

/// B24: a reader is told that buffers have come back, but those before it in the line take them all, for good.
#[test]
fn a_reader_whose_turn_never_comes_gets_its_bytes_all_the_same() {
    let _alone = alone("a long line for buffers");
    let runtime = Builder::new()
        .buffers(4)
        .buffer_size(BUFFER_BYTES)
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let (mut hoarder, mut hoarder_peer) = support::pair(&listener).await;
        let mut line = Vec::new();
        for _ in 0..WAITING {
            let (stream, peer) = support::pair(&listener).await;
            // Arms the receive, and nobody waits for it.
            assert!(stream.try_read(&mut [0]).is_err());
            line.push((stream, peer));
        }
        let (leases, _) = hoard(&mut hoarder, &mut hoarder_peer).await;
        let starvations = runtime::metrics().starvations;
        for (_, peer) in &mut line {
            peer.write_all(&pattern::bytes(0, 100)).unwrap();
        }
        // Without provided buffers nobody stands in line: each takes a buffer when it has something to put in.
        if runtime::features().buffer_ring.is_on() {
            let starved = || runtime::metrics().starvations - starvations;
            settled("sockets in the line", WAITING as u64, starved).await;
        }

        // In the same turn the buffers come back and the last in the line begins to wait.
        drop(leases);
        let (mut last, _peer) = line.pop().unwrap();
        let reading = runtime::spawn(async move {
            let mut buf = [0; 100];
            last.read_exact(&mut buf).await.map(|()| buf)
        });
        let mut taken = Vec::new();
        for (stream, _) in line.iter_mut().take(4) {
            taken.push(stream.recv_stream().next().await.unwrap().unwrap());
        }
        pattern::check(&reading.await.unwrap().unwrap(), 0);
    });
}

/// All four buffers hold what slow readers leave unread, and there are no more: it is copied, so that others find them free.
#[test]
fn what_is_left_unread_gives_its_buffers_back_when_there_are_no_more() {
    let _alone = alone("unread buffers");
    let runtime = Builder::new()
        .buffers(4)
        .buffer_size(BUFFER_BYTES)
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let mut streams = Vec::new();
        for number in 0..4 {
            let (stream, mut peer) = support::pair(&listener).await;
            peer.write_all(&pattern::bytes(number * 1000, 900)).unwrap();
            stream.readable().await.unwrap();
            streams.push((stream, peer));
        }
        settled("buffers free", 4, || runtime::metrics().buffers_free).await;
        for (number, (stream, _)) in (0..).zip(&mut streams) {
            let mut unread = [0; 900];
            stream.read_exact(&mut unread).await.unwrap();
            pattern::check(&unread, number * 1000);
        }
    });
}

/// B30: one buffer, many leases: it must not be filled again before the last of them is dropped.
#[test]
fn a_split_lease_holds_its_buffer_to_the_last_part() {
    let _alone = alone("split leases");
    let runtime = Builder::new()
        .buffers(2)
        .buffer_size(BUFFER_BYTES)
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let (mut stream, mut peer) = support::pair(&listener).await;
        peer.write_all(&pattern::bytes(0, 900)).unwrap();
        let mut tail = stream.recv_stream().next().await.unwrap().unwrap();
        let head = tail.split_to(300);
        let middle = tail.split_to(300);
        for part in [Some(head), Some(middle), None] {
            drop(part);
            for round in 1..10 {
                peer.write_all(&pattern::bytes(round * 1000, 900)).unwrap();
                let mut received = [0; 900];
                stream.read_exact(&mut received).await.unwrap();
                pattern::check(&received, round * 1000);
                pattern::check(&tail, 600);
            }
        }
        drop(tail);
        settled("buffers free", 2, || runtime::metrics().buffers_free).await;
    });
}

/// B25.
#[test]
fn a_pool_of_one_buffer_delivers_all_bytes_in_order() {
    const TOTAL: usize = 100 << 10;
    let _alone = alone("a pool of one buffer");
    let runtime = Builder::new()
        .buffers(1)
        .buffer_size(BUFFER_BYTES)
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let (mut stream, mut peer) = support::pair(&listener).await;
        let sender = thread::spawn(move || peer.write_all(&pattern::bytes(0, TOTAL)).unwrap());
        let mut chunks = stream.recv_stream();
        let mut position = 0;
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.unwrap();
            sleep(Duration::from_millis(1)).await;
            pattern::check(&chunk, position);
            position += chunk.len() as u64;
        }
        assert_eq!(position, TOTAL as u64);
        sender.join().unwrap();
    });
}

/// B25: two streams share one buffer, and each of them keeps it whenever it can.
#[test]
fn a_pool_of_one_buffer_serves_two_streams() {
    const TOTAL: usize = 200 << 10;
    let _alone = alone("one buffer for two streams");
    let runtime = Builder::new()
        .buffers(1)
        .buffer_size(BUFFER_BYTES)
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let mut readers = Vec::new();
        for _ in 0..2 {
            let (mut stream, mut peer) = support::pair(&listener).await;
            let sender = thread::spawn(move || peer.write_all(&pattern::bytes(0, TOTAL)).unwrap());
            let reader = runtime::spawn(async move {
                let mut position = 0;
                let mut chunks = stream.recv_stream();
                let mut held: Option<Lease> = None;
                while let Some(chunk) = chunks.next().await {
                    let chunk = chunk.unwrap();
                    pattern::check(&chunk, position);
                    position += chunk.len() as u64;
                    held = Some(chunk);
                    runtime::yield_now().await;
                }
                drop(held);
                position
            });
            readers.push((sender, reader));
        }
        for (sender, reader) in readers {
            assert_eq!(reader.await.unwrap(), TOTAL as u64);
            sender.join().unwrap();
        }
    });
}

/// Takes leases until no buffer is left. Returns them, and how many bytes they are.
async fn hoard(stream: &mut TcpStream, peer: &mut Peer) -> (Vec<Lease>, usize) {
    let mut leases: Vec<Lease> = Vec::new();
    let mut bytes = 0;
    let mut chunks = stream.recv_stream();
    while runtime::metrics().buffers_free > 0 {
        peer.write_all(&pattern::bytes(bytes as u64, BUFFER_BYTES))
            .unwrap();
        let target = bytes + BUFFER_BYTES;
        while bytes < target {
            let lease = chunks.next().await.unwrap().unwrap();
            bytes += lease.len();
            leases.push(lease);
        }
    }
    (leases, bytes)
}

/// Nothing happens for half a second, and nothing is what the worker does about it.
async fn assert_no_spin(when: &str) {
    let before = runtime::metrics().enters;
    sleep(Duration::from_millis(500)).await;
    let enters = runtime::metrics().enters - before;
    assert!(enters < 50, "{enters} enters while {when}");
}

/// A message and its echo, with the peer's side handled on the worker itself.
async fn ping(peer: &mut Peer, position: u64, len: usize) {
    peer.write_all(&pattern::bytes(position, len)).unwrap();
    peer.set_nonblocking(true).unwrap();
    let mut echoed = vec![0; len];
    let mut done = 0;
    settled("echoed bytes", len, || {
        done += peer.read(&mut echoed[done..]).unwrap_or(0);
        done
    })
    .await;
    pattern::check(&echoed, position);
    peer.set_nonblocking(false).unwrap();
}

/// Writes until the kernel takes no more.
fn fill(peer: &mut Peer) -> usize {
    let mut sent = 0;
    while let Ok(len) = peer.write(&pattern::bytes(sent as u64, BUFFER_BYTES)) {
        sent += len;
    }
    sent
}
