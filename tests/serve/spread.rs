//! Which worker serves what (B55), and how many at a time.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use net::serve::{Balance, Connections, Server};

use crate::{BOTH, alone, answer, ask, at_once, bind, clients, connect, echo, with_workers};

const GRACE: Duration = Duration::from_secs(60);

#[test]
fn every_connection_is_served_and_counted() {
    const CLIENTS: usize = 20;
    const EACH: usize = 20;
    let _alone = alone("connections that are served");
    for balance in BOTH {
        with_workers(3, async {
            let (server, addr) = bind(balance).await;
            let stop = server.shutdown_handle();
            let counts = stop.clone();
            let asking = runtime::spawn(async move {
                clients(move || {
                    at_once(CLIENTS, |_| {
                        (0..EACH).for_each(|_| ask(&mut connect(addr)).unwrap())
                    })
                })
                .await;
                stop.shutdown(GRACE);
            });
            let ended = server.run(answer).await.unwrap();
            asking.await.unwrap();
            assert_eq!(
                (ended.finished, ended.aborted),
                ((CLIENTS * EACH) as u64, 0)
            );
            let workers = counts.connections();
            assert_eq!(workers.len(), 3);
            assert!(
                workers
                    .iter()
                    .all(|worker| worker.active == 0 && worker.total > 0)
            );
            let total: u64 = workers.iter().map(|worker| worker.total).sum();
            assert_eq!(total, (CLIENTS * EACH) as u64);
        });
    }
}

/// B55: few and long connections.
#[test]
fn the_worker_with_the_fewest_connections_gets_the_next() {
    const CONNECTIONS: usize = 64;
    let _alone = alone("least connections");
    let rounds = rounds(Balance::LeastConnections, CONNECTIONS, support::rounds(200));
    for workers in rounds {
        let most = workers.iter().max().unwrap();
        assert!(most * 4 * 10 <= CONNECTIONS * 13, "{workers:?}");
    }
}

/// B55: the kernel's hash is even enough for that many.
#[test]
fn the_kernel_spreads_connections_over_listeners() {
    const CONNECTIONS: usize = 64;
    let _alone = alone("a listener for each worker");
    let rounds = rounds(Balance::PerWorker, CONNECTIONS, support::rounds(200));
    let is_uneven = |workers: &&Vec<usize>| workers.iter().max().unwrap() * 4 > 2 * CONNECTIONS;
    let uneven: Vec<_> = rounds.iter().filter(is_uneven).collect();
    assert!(uneven.len() * 20 <= rounds.len(), "{uneven:?}");
}

/// Active connections of four workers, in each round of as many long ones.
fn rounds(balance: Balance, connections: usize, rounds: usize) -> Vec<Vec<usize>> {
    with_workers(4, async {
        let (server, addr) = bind(balance).await;
        let stop = server.shutdown_handle();
        let counting = runtime::spawn(async move {
            let mut seen = Vec::new();
            for _ in 0..rounds {
                let held = clients(move || {
                    let mut held: Vec<_> = (0..connections).map(|_| connect(addr)).collect();
                    held.iter_mut().for_each(|peer| ask(peer).unwrap());
                    held
                })
                .await;
                let active = || -> Vec<usize> {
                    stop.connections()
                        .iter()
                        .map(|worker| worker.active)
                        .collect()
                };
                seen.push(active());
                assert_eq!(seen.last().unwrap().iter().sum::<usize>(), connections);
                drop(held);
                support::settled("all have left", 0, || active().iter().sum()).await;
            }
            stop.shutdown(GRACE);
            seen
        });
        server.run(echo).await.unwrap();
        counting.await.unwrap()
    })
}

#[test]
fn no_more_connections_than_allowed_are_served_at_a_time_and_none_is_lost() {
    const CLIENTS: usize = 40;
    const MOST: usize = 5;
    let _alone = alone("a bound for connections");
    for balance in BOTH {
        with_workers(3, async {
            let builder = Server::builder().balance(balance).max_connections(MOST);
            let server = builder.bind(support::loopback()).await.unwrap();
            let addr = server.local_addr().unwrap();
            let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let stop = server.shutdown_handle();
            let asking = runtime::spawn(async move {
                clients(move || {
                    at_once(CLIENTS, |_| {
                        (0..5).for_each(|_| {
                            let mut peer = connect(addr);
                            ask(&mut peer).unwrap();
                            assert_eq!(peer.read(&mut [0]).unwrap(), 0);
                        })
                    })
                })
                .await;
                stop.shutdown(GRACE);
            });
            let seen = Arc::clone(&most);
            let ended = server.run(move |stream, peer| {
                let (now, most) = (Arc::clone(&now), Arc::clone(&most));
                async move {
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    answer(stream, peer).await.unwrap();
                    now.fetch_sub(1, Ordering::SeqCst);
                }
            });
            assert_eq!(ended.await.unwrap().finished, (CLIENTS * 5) as u64);
            asking.await.unwrap();
            assert!(
                (1..=MOST).contains(&seen.load(Ordering::SeqCst)),
                "{seen:?}"
            );
        });
    }
}

#[test]
fn a_handler_that_panics_ends_its_own_connection_and_is_counted() {
    let _alone = alone("handlers that panic");
    for balance in BOTH {
        with_workers(2, async {
            let (server, addr) = bind(balance).await;
            let stop = server.shutdown_handle();
            let asking = runtime::spawn(async move {
                clients(move || {
                    for round in 0..20 {
                        let mut peer = connect(addr);
                        match round % 2 {
                            0 => ask(&mut peer).unwrap(),
                            _ => {
                                use std::io::Write;
                                peer.write_all(b"bad").unwrap();
                                assert!(matches!(peer.read(&mut [0]), Ok(0) | Err(_)));
                            }
                        }
                    }
                })
                .await;
                let panicked = |workers: Vec<Connections>| {
                    workers.iter().map(|worker| worker.panicked).sum::<u64>()
                };
                support::settled("panics", 10, || panicked(stop.connections())).await;
                stop.shutdown(GRACE);
            });
            let ended = server.run(|mut stream, _| async move {
                use futures::{AsyncReadExt, AsyncWriteExt};
                let mut question = [0; 3];
                stream.read_exact(&mut question).await.unwrap();
                if &question == b"bad" {
                    std::panic::panic_any("as planned");
                }
                stream.write_all(&question).await.unwrap();
            });
            let ended = ended.await.unwrap();
            assert_eq!((ended.finished, ended.aborted), (10, 0));
            asking.await.unwrap();
        });
    }
}

#[test]
fn an_address_that_is_in_use_is_refused() {
    let _alone = alone("an address in use");
    with_workers(2, async {
        let (_server, addr) = bind(Balance::PerWorker).await;
        let error = net::serve(addr, echo).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    });
    let outside = futures::executor::block_on(Server::builder().bind(support::loopback()));
    assert!(outside.is_err());
}
