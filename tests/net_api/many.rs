//! Many of the same at once: what kernels and runtimes get wrong once in a thousand times.

use std::collections::HashSet;
use std::io::{ErrorKind, Read};
use std::net::{Ipv6Addr, SocketAddr, TcpStream as Peer};
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use futures::{FutureExt, StreamExt};
use net::{TcpListener, TcpStream};
use runtime::Builder;
use runtime::time::timeout;
use socket2::SockRef;
use support::{Blackhole, Watchdog, settled};

/// B03: the address of a connect is the kernel's to read until it has begun, wherever the future and its caller's stack
/// are by then.
#[test]
fn a_thousand_connects_of_each_family_reach_the_address_that_they_were_given() {
    let _watchdog = Watchdog::start("1,000 connects of each family", Duration::from_secs(60));
    Builder::new().build().unwrap().block_on(async {
        for local in [support::loopback(), (Ipv6Addr::LOCALHOST, 0).into()] {
            let listener = TcpListener::bind(local).await.unwrap();
            let addr = listener.local_addr().unwrap();
            for _ in 0..20 {
                // Queued in one poll each, then the futures move and the stack is overwritten.
                let mut connects: Vec<_> = (0..50)
                    .map(|_| Box::pin(TcpStream::connect(addr)))
                    .collect();
                let early: Vec<_> = connects
                    .iter_mut()
                    .map(|connect| connect.now_or_never())
                    .collect();
                assert!(early.iter().all(Option::is_none), "a connect takes a turn");
                assert_ne!(overwrite_the_stack(&addr), 0);
                let accepts = join_all((0..50).map(|_| listener.accept()));
                let (streams, accepted) = futures::join!(join_all(connects), accepts);
                let mut near: Vec<SocketAddr> = (streams.iter())
                    .map(|stream| stream.as_ref().unwrap().local_addr().unwrap())
                    .collect();
                let mut far: Vec<SocketAddr> = accepted
                    .iter()
                    .map(|accepted| accepted.as_ref().unwrap().1)
                    .collect();
                near.sort();
                far.sort();
                assert_eq!(near, far);
            }
        }
    });
}

#[inline(never)]
fn overwrite_the_stack(addr: &SocketAddr) -> u8 {
    let noise = [addr.port() as u8 | 1; 16 << 10];
    std::hint::black_box(&noise)[usize::from(addr.port()) % noise.len()]
}

/// B04: each of many connects that nobody answers ends with its own time limit, and leaves no socket.
#[test]
fn five_hundred_connects_to_nobody_end_in_time() {
    let _watchdog = Watchdog::start("500 connects to nobody", Duration::from_secs(60));
    let limit = Duration::from_millis(300);
    Builder::new().build().unwrap().block_on(async {
        let ops = runtime::metrics().ops;
        let blackhole = Blackhole::new();
        let started = Instant::now();
        let connects = (0..500).map(|_| timeout(limit, TcpStream::connect(blackhole.addr())));
        let results = join_all(connects).await;
        assert!(started.elapsed() >= limit, "too early");
        assert!(results.iter().all(Result::is_err), "somebody has answered");
        settled("ops in flight", ops, || runtime::metrics().ops).await;
    });
}

/// B35: what two tasks send over one stream is not interleaved within a buffer, and keeps each task's order, also when
/// sends go short.
#[test]
fn sends_of_two_tasks_keep_the_order_of_each_and_stay_whole() {
    const RECORDS: u32 = 1_000;
    let _watchdog = Watchdog::start("two senders", Duration::from_secs(60));
    Builder::new().build().unwrap().block_on(async {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let (stream, mut peer) = support::pair(&listener).await;
        SockRef::from(&stream).set_send_buffer_size(4096).unwrap();
        let stream = Rc::new(stream);
        let senders = [0_u32, 1].map(|sender| {
            let stream = stream.clone();
            runtime::spawn(async move {
                for number in 0..RECORDS {
                    // The head says who, which, and how long; the rest repeats the number.
                    let len = 12 + (number * 7919 % 3000 / 4 * 4);
                    let mut record = Vec::new();
                    for word in [sender, number, len] {
                        record.extend(word.to_le_bytes());
                    }
                    while record.len() < len as usize {
                        record.extend(number.to_le_bytes());
                    }
                    stream.send(record).await.unwrap();
                    if number % 16 == sender {
                        runtime::yield_now().await;
                    }
                }
            })
        });
        let reading = runtime::spawn_blocking(move || {
            let mut next = [0_u32; 2];
            while next != [RECORDS; 2] {
                let mut head = [0; 12];
                peer.read_exact(&mut head).unwrap();
                let word =
                    |index: usize| u32::from_le_bytes(head[4 * index..][..4].try_into().unwrap());
                let (sender, number, len) = (word(0), word(1), word(2));
                assert_eq!(number, next[sender as usize], "of sender {sender}");
                next[sender as usize] += 1;
                let mut body = vec![0; len as usize - 12];
                peer.read_exact(&mut body).unwrap();
                assert!(body.chunks(4).all(|word| word == number.to_le_bytes()));
            }
        });
        for sender in senders {
            sender.await.unwrap();
        }
        reading.await.unwrap();
    });
}

/// B18: the accept is stopped by a backlog that is full, again and again, and some peers have reset before it; there is
/// never more than one accept in flight, and nobody is forgotten.
#[test]
fn an_accept_that_is_stopped_again_and_again_serves_all_with_one_op() {
    const CONNECTIONS: usize = 3_000;
    let _watchdog = Watchdog::start("a busy accept", Duration::from_secs(100));
    support::raise_fd_limit();
    let runtime = Builder::new().accept_backlog(4).build().unwrap();
    runtime.block_on(async {
        let ops = runtime::metrics().ops;
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let connecting = runtime::spawn_blocking(move || {
            let mut alive = Vec::new();
            for index in 0..CONNECTIONS {
                let peer = support::connect(addr);
                match index % 10 {
                    3 => support::reset(peer),
                    // Kept, so that no port comes twice.
                    _ => alive.push(peer),
                }
            }
            alive
        });
        let mut connecting = connecting.fuse();
        let mut incoming = listener.incoming();
        let (mut served, mut alive) = (HashSet::new(), None::<Vec<Peer>>);
        let mut most = 0;
        let is_served = |served: &HashSet<SocketAddr>, alive: &Option<Vec<Peer>>| {
            let is_served = |peer: &Peer| served.contains(&peer.local_addr().unwrap());
            (alive.as_ref()).is_some_and(|alive| alive.iter().all(is_served))
        };
        while !is_served(&served, &alive) {
            futures::select! {
                stream = incoming.next() => match stream.unwrap().unwrap().peer_addr() {
                    Ok(addr) => {
                        served.insert(addr);
                    }
                    // It has reset meanwhile.
                    Err(error) => assert_eq!(error.kind(), ErrorKind::NotConnected),
                },
                peers = connecting => alive = Some(peers.unwrap()),
            }
            if served.len() % 50 == 0 {
                // Meanwhile the backlog fills up.
                runtime::time::sleep(Duration::from_millis(2)).await;
            }
            most = most.max(runtime::metrics().ops - ops);
        }
        assert_eq!(most, 1, "accepts in flight");
    });
}
