//! Connections: what was connected is accepted, once, also when descriptors run out and waiters give up.

use std::collections::BTreeSet;
use std::io;
use std::pin::pin;

use futures::future::{Either, join_all, select};
use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use net::{TcpListener, TcpStream};
use runtime::sim::Faults;
use runtime::time::{Duration, timeout};

use crate::explore;
use crate::streams::pause;

#[test]
fn every_connection_is_accepted_once() {
    let mut faults = Faults::hidden();
    faults.outages = 0.3;
    explore(faults, async |rng| {
        let count = 1 + rng.below(20);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let mut accepter = rng.fork();
        let accepting = async {
            let mut accepted = BTreeSet::new();
            let mut streams = Vec::new();
            while accepted.len() < count {
                let next = listener.accept();
                let taken = match select(pin!(next), pin!(pause(&mut accepter))).await {
                    Either::Left((taken, _)) => taken,
                    // Given up: it is there for the next one.
                    Either::Right(_) => continue,
                };
                match taken {
                    Ok((stream, peer)) => {
                        assert!(accepted.insert(peer), "{peer} was accepted twice");
                        streams.push(stream);
                    }
                    Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EMFILE)),
                }
            }
            (accepted, streams)
        };
        let connecting = join_all((0..count).map(|_| async {
            let stream = TcpStream::connect(address).await.expect("connected");
            (stream.local_addr().expect("an address"), stream)
        }));
        let ((accepted, _streams), connected) = futures::join!(accepting, connecting);
        let connected: BTreeSet<_> = connected.iter().map(|(name, _)| *name).collect();
        assert_eq!(accepted, connected);
    });
}

/// A listener that is dropped lets go of what it has accepted and of what waits: every client sees an end.
#[test]
fn a_dropped_listener_leaves_no_client_waiting() {
    explore(Faults::hidden(), async |rng| {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let count = 1 + rng.below(12);
        let clients: Vec<_> = (0..count)
            .map(|_| {
                runtime::spawn(async move {
                    // Refused, if it comes too late.
                    let Ok(mut stream) = TcpStream::connect(address).await else {
                        return;
                    };
                    match stream.read(&mut [0; 1]).await {
                        Ok(n) => assert_eq!(n, 0),
                        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
                    }
                })
            })
            .collect();
        pause(rng).await;
        let some = listener.incoming().take(rng.below(count + 1));
        let taken = timeout(
            Duration::from_millis(rng.below(10) as u64),
            some.collect::<Vec<_>>(),
        );
        let taken = taken.await;
        pause(rng).await;
        drop(listener);
        drop(taken);
        for client in clients {
            client.await.expect("no panic");
        }
    });
}

/// A connect that is given up leaves no socket, on either side.
#[test]
fn a_connect_that_is_given_up_leaves_nothing() {
    let mut faults = Faults::hidden();
    faults.refusals = 0.2;
    explore(faults, async |rng| {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let server = runtime::spawn(async move {
            let mut incoming = listener.incoming();
            while let Some(Ok(mut stream)) = incoming.next().await {
                runtime::spawn(async move {
                    let _ = stream.read(&mut [0; 1]).await;
                });
            }
        });
        for _ in 0..1 + rng.below(10) {
            let connect = pin!(TcpStream::connect(address));
            if let Either::Left((stream, _)) = select(connect, pin!(pause(rng))).await {
                drop(stream);
            }
        }
        server.abort();
        assert!(server.await.is_err());
    });
}

/// A peer says something and resets the connection; however these two fall into the turns, both are heard.
#[test]
fn a_reset_behind_the_last_bytes_is_heard() {
    explore(Faults::hidden(), async |rng| {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let count = 1 + rng.below(12);
        let mut talker = rng.fork();
        let talking = async {
            for _ in 0..count {
                let mut stream = TcpStream::connect(address).await.expect("connected");
                for _ in 0..talker.below(4) {
                    let bytes = vec![b'.'; talker.size(100)];
                    stream.write_all(&bytes).await.expect("taken");
                    pause(&mut talker).await;
                }
                let linger = Some(Duration::ZERO);
                stream.set_linger(linger).expect("set");
            }
        };
        let hearing = async {
            let mut listeners = Vec::new();
            for _ in 0..count {
                let (mut stream, _) = listener.accept().await.expect("accepted");
                listeners.push(runtime::spawn(async move {
                    let mut heard = [0; 40];
                    loop {
                        match stream.read(&mut heard).await {
                            Ok(n) => assert!(n > 0, "a reset is no end"),
                            Err(error) => return error.kind(),
                        }
                    }
                }));
            }
            join_all(listeners).await
        };
        let ((), ends) = futures::join!(talking, hearing);
        for end in ends {
            assert_eq!(end.expect("no panic"), io::ErrorKind::ConnectionReset);
        }
    });
}
