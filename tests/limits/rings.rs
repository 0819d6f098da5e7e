//! Tiny rings, with far more to do than they have entries.

use std::cell::Cell;
use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream as Peer;
use std::rc::Rc;

use futures::AsyncReadExt;
use net::{TcpListener, TcpStream};
use runtime::{Builder, Runtime};
use support::{Pinger, Server, eventually, handlers, settled};

use crate::alone;

const MANY: usize = 1_000;
const VERY_MANY: usize = 5_000;

/// B22, B23.
#[test]
fn a_ring_of_8_serves_5000_sockets() {
    let _alone = alone("5,000 sockets on a ring of 8");
    let limit = support::raise_fd_limit();
    assert!(
        limit > 2 * VERY_MANY + 100,
        "the hard limit of descriptors is {limit}"
    );
    let server = Server::start_on(tiny_ring, handlers::echo_copy);
    // It stays, so that what the server has at rest is all there: the armed accept, an armed receive.
    let mut resident = Pinger::new(support::connect_many(server.addr(), 1), 64);
    resident.rounds(1);
    let at_rest = server.run(tasks_and_ops);
    let mut pinger = Pinger::new(support::connect_many(server.addr(), VERY_MANY), 64);
    pinger.rounds(3);
    println!("{:?}", server.metrics());
    // They all hang up at once, and all is given back.
    drop(pinger);
    eventually("tasks and ops", at_rest, || server.run(tasks_and_ops));
    resident.rounds(1);
    Pinger::new(support::connect_many(server.addr(), MANY), 1000).rounds(2);
    server.stop();
}

/// B22: nobody reaps while the sockets become ready, so the completions are far more than the queue can hold.
#[test]
fn a_flood_of_completions_is_served_whole() {
    let _alone = alone("a flood of completions");
    support::raise_fd_limit();
    let build = || {
        Builder::new()
            .completion_entries(64)
            .ring_entries(32)
            .build()
            .unwrap()
    };
    let server = Server::start_on(build, handlers::echo_lease);
    let mut pinger = Pinger::new(support::connect_many(server.addr(), VERY_MANY), 64);
    pinger.rounds(1);
    for _ in 0..3 {
        server.hold(|| pinger.send());
        pinger.receive();
    }
    pinger.rounds(1);
    println!("{:?}", server.metrics());
    server.stop();
}

/// B23: in one poll, 1,000 reads in flight are dropped: their cancels do not fit into the queue.
#[test]
fn a_mass_drop_of_streams_cancels_every_read() {
    mass_drop("a mass drop of streams", drop);
}

/// B23: the same, with the tasks that own the streams aborted instead.
#[test]
fn a_mass_abort_of_tasks_cancels_every_read() {
    mass_drop("a mass abort of tasks", |streams| {
        let aborted: Vec<_> = streams
            .into_iter()
            .map(|mut stream| runtime::spawn(async move { stream.read(&mut [0]).await }))
            .collect();
        aborted.iter().for_each(|task| task.abort());
    });
}

fn mass_drop(what: &str, give_up: impl FnOnce(Vec<TcpStream>)) {
    let _alone = alone(what);
    support::raise_fd_limit();
    let before = support::open_fds();
    let runtime = tiny_ring();
    runtime.block_on(async {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let (mut streams, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..MANY {
            let (stream, peer) = support::pair(&listener).await;
            streams.push(stream);
            peers.push(peer);
        }
        let ops_before = runtime::metrics().ops;
        assert!(all_pending(&mut streams).await);
        let all_armed = || runtime::metrics().ops >= ops_before + MANY;
        settled("all reads are armed", true, all_armed).await;
        // Some peers have sent: their buffers are on the way to a reader who is no more.
        peers
            .iter_mut()
            .step_by(2)
            .for_each(|peer| peer.write_all(b"too late").unwrap());

        give_up(streams);
        settled("ops in flight", ops_before, || runtime::metrics().ops).await;
        let in_use = || runtime::metrics().buffers - runtime::metrics().buffers_free;
        settled("buffers in use", 0, in_use).await;
        for peer in &mut peers {
            wait_for_end(peer).await;
        }
    });
    drop(runtime);
    assert_eq!(support::open_fds(), before, "open descriptors");
}

/// Polls a read on each stream once, all in the same poll, and drops the futures.
async fn all_pending(streams: &mut [TcpStream]) -> bool {
    std::future::poll_fn(|cx| {
        let pending = streams.iter_mut().all(|stream| {
            let mut buf = [0];
            std::pin::pin!(stream.read(&mut buf)).poll(cx).is_pending()
        });
        std::task::Poll::Ready(pending)
    })
    .await
}

/// The socket on our side is closed. That may take more turns than the end of its ops.
async fn wait_for_end(peer: &mut Peer) {
    peer.set_nonblocking(true).unwrap();
    let is_over = || match peer.read(&mut [0]) {
        Ok(len) => len == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    };
    settled("the end at the peer", true, is_over).await;
}

/// Many sends at once, on a ring that takes eight.
#[test]
fn a_thousand_sends_of_one_poll_all_go_out() {
    let _alone = alone("1,000 sends of one poll");
    support::raise_fd_limit();
    tiny_ring().block_on(async {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let (mut streams, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..MANY {
            let (stream, peer) = support::pair(&listener).await;
            streams.push(stream);
            peers.push(peer);
        }
        let answered = Rc::new(Cell::new(0));
        for stream in &mut streams {
            assert_eq!(stream.try_write(b"one of many").unwrap(), 11);
        }
        for (mut stream, mut peer) in streams.into_iter().zip(peers) {
            let answered = answered.clone();
            runtime::spawn(async move {
                // The peer's side has been sent to, or will be in the next turns: no thread is needed to read it.
                peer.set_nonblocking(true).unwrap();
                let mut buf = [0; 11];
                settled("bytes at the peer", Some(11), || peer.read(&mut buf).ok()).await;
                assert_eq!(&buf, b"one of many");
                peer.write_all(b"!").unwrap();
                stream.read_exact(&mut [0]).await.unwrap();
                answered.set(answered.get() + 1);
            });
        }
        settled("connections that were answered", MANY, || answered.get()).await;
    });
}

fn tasks_and_ops() -> (usize, usize) {
    let metrics = runtime::metrics();
    (metrics.tasks, metrics.ops)
}

fn tiny_ring() -> Runtime {
    Builder::new()
        .ring_entries(8)
        .completion_entries(16)
        .build()
        .unwrap()
}
