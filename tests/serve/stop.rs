//! The end of a server: nothing that was accepted is lost, nothing hangs, and all is given back.

use std::future::pending;
use std::io::Read;
use std::net::TcpStream as Peer;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::StreamExt;
use futures::channel::mpsc::unbounded;
use net::serve::{Balance, Server};
use runtime::{Builder, Handle};
use support::open_fds;

use crate::{BOTH, alone, answer, ask, at_once, bind, clients, connect, echo, with_workers};

const GRACE: Duration = Duration::from_secs(60);

/// B55: connections that nobody has looked at when the stop comes: accepted, and in the kernel's queue.
#[test]
fn connections_that_wait_when_the_server_stops_are_served() {
    const WAITING: usize = 300;
    let _alone = alone("connections that wait at the stop");
    for balance in BOTH {
        // Few are accepted ahead, so most are in the kernel's queue.
        let runtime = Builder::new()
            .workers(3)
            .accept_backlog(10)
            .build()
            .unwrap();
        runtime.block_on(async {
            let builder = Server::builder().balance(balance).max_connections(1);
            let server = builder.bind(support::loopback()).await.unwrap();
            let addr = server.local_addr().unwrap();
            let stop = server.shutdown_handle();
            let (sender, mut begun) = unbounded();
            let asking = runtime::spawn(async move {
                // The one that is served holds up all others, until it is asked.
                let mut first = connect(addr);
                begun.next().await.unwrap();
                let waiting: Vec<Peer> =
                    clients(move || (0..WAITING).map(|_| connect(addr)).collect()).await;
                stop.shutdown(GRACE);
                clients(move || {
                    ask(&mut first).unwrap();
                    for mut peer in waiting {
                        ask(&mut peer).unwrap();
                        assert_eq!(peer.read(&mut [0]).unwrap(), 0);
                    }
                })
                .await;
            });
            let ended = server.run(move |stream, peer| {
                let _ = sender.unbounded_send(());
                answer(stream, peer)
            });
            let ended = ended.await.unwrap();
            assert_eq!((ended.finished, ended.aborted), (WAITING as u64 + 1, 0));
            asking.await.unwrap();
        });
    }
}

/// Whoever has got an answer to connecting, and then to a first question, gets one to the next.
#[test]
fn a_stop_under_load_breaks_no_conversation() {
    const CLIENTS: usize = 16;
    let _alone = alone("a stop under load");
    for balance in BOTH {
        with_workers(3, async {
            let (server, addr) = bind(balance).await;
            let stop = server.shutdown_handle();
            let asked = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&asked);
            let stopping = runtime::spawn(async move {
                let ready = || count.load(Ordering::SeqCst) > 200;
                support::settled("the load is there", true, ready).await;
                stop.shutdown(GRACE);
                stop
            });
            let load = runtime::spawn(clients(move || {
                at_once(CLIENTS, |_| {
                    // Until the server is gone.
                    while let Ok(mut peer) = Peer::connect(addr) {
                        peer.set_read_timeout(Some(GRACE)).unwrap();
                        // A connection in the moment of the end may be reset, but then before its first answer.
                        if ask(&mut peer).is_err() {
                            continue;
                        }
                        for _ in 0..5 {
                            ask(&mut peer).unwrap();
                            asked.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                });
            }));
            let ended = server.run(echo).await.unwrap();
            assert_eq!(ended.aborted, 0);
            load.await.unwrap();
            let stop = stopping.await.unwrap();
            let total: u64 = stop.connections().iter().map(|worker| worker.total).sum();
            assert_eq!(ended.finished, total);
        });
    }
}

#[test]
fn handlers_that_do_not_end_in_time_are_dropped() {
    const CONNECTIONS: usize = 20;
    let _alone = alone("handlers that do not end");
    let fds_before = open_fds();
    for balance in BOTH {
        let dropped = Arc::new(AtomicUsize::new(0));
        let peers = with_workers(3, async {
            let (server, addr) = bind(balance).await;
            let stop = server.shutdown_handle();
            let (sender, begun) = unbounded();
            let stopping = runtime::spawn(async move {
                let peers: Vec<Peer> = (0..CONNECTIONS).map(|_| connect(addr)).collect();
                begun.take(CONNECTIONS).count().await;
                // A first order that is too generous, and one that is not.
                stop.shutdown(Duration::from_secs(100_000));
                runtime::yield_now().await;
                stop.shutdown(Duration::from_millis(20));
                peers
            });
            let counter = Arc::clone(&dropped);
            let ended = server.run(move |stream, _| {
                let guard = Guard(Arc::clone(&counter));
                sender.unbounded_send(()).unwrap();
                async move {
                    let _kept = (stream, guard);
                    pending::<()>().await
                }
            });
            let ended = ended.await.unwrap();
            assert_eq!((ended.finished, ended.aborted), (0, CONNECTIONS as u64));
            stopping.await.unwrap()
        });
        assert_eq!(dropped.load(Ordering::SeqCst), CONNECTIONS);
        for mut peer in peers {
            assert!(matches!(peer.read(&mut [0]), Ok(0) | Err(_)));
        }
        support::eventually("open descriptors", fds_before, open_fds);
    }
}

#[test]
fn a_server_that_is_dropped_stops_at_once() {
    let _alone = alone("a server that is dropped");
    for balance in BOTH {
        with_workers(3, async {
            let (server, addr) = bind(balance).await;
            let counts = server.shutdown_handle();
            let mut running = Box::pin(server.run(echo));
            let mut peers: Vec<Peer> = (0..10).map(|_| connect(addr)).collect();
            while counts
                .connections()
                .iter()
                .map(|worker| worker.active)
                .sum::<usize>()
                < 10
            {
                assert!((&mut running).now_or_never().is_none());
                runtime::yield_now().await;
            }
            drop(running);
            clients(move || {
                for peer in &mut peers {
                    assert!(matches!(peer.read(&mut [0]), Ok(0) | Err(_)));
                }
            })
            .await;
            let refused = || Peer::connect(addr).is_err();
            support::settled("nobody listens", true, refused).await;
        });
    }
}

/// The runtime ends while the server runs: an error of the server, and nothing hangs.
#[test]
fn a_runtime_that_ends_ends_its_servers() {
    let _alone = alone("a runtime that ends");
    let fds_before = open_fds();
    for balance in BOTH {
        let started = Instant::now();
        let peer = with_workers(3, async {
            let (server, addr) = bind(balance).await;
            let handle = Handle::current();
            let (sender, mut begun) = unbounded();
            let peer = connect(addr);
            let running = server.run(move |stream, peer| {
                sender.unbounded_send(()).unwrap();
                echo(stream, peer)
            });
            let ending = async {
                begun.next().await.unwrap();
                handle.shutdown();
            };
            let (ended, ()) = futures::join!(running, ending);
            assert!(ended.is_err());
            peer
        });
        drop(peer);
        assert!(started.elapsed() < Duration::from_secs(60));
        support::eventually("open descriptors", fds_before, open_fds);
    }
}

/// A port is free again as soon as the server has ended.
#[test]
fn a_server_may_follow_another_on_the_same_port() {
    let _alone = alone("servers on one port");
    with_workers(2, async {
        let (server, addr) = bind(Balance::PerWorker).await;
        let mut next = Some(server);
        for _ in 0..10 {
            let server = match next.take() {
                Some(server) => server,
                None => Server::builder().bind(addr).await.unwrap(),
            };
            let stop = server.shutdown_handle();
            let asking = runtime::spawn(async move {
                clients(move || ask(&mut connect(addr)).unwrap()).await;
                stop.shutdown(GRACE);
            });
            server.run(answer).await.unwrap();
            asking.await.unwrap();
        }
    });
}

struct Guard(Arc<AtomicUsize>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
