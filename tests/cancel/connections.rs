use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use futures::future::{Either, select};
use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use net::{TcpListener, TcpStream};
use runtime::Builder;
use runtime::time::{sleep, timeout};
use support::{Blackhole, Fate, Rng, open_fds, partial};

use crate::{listen, random_pause, run, wait_for_end};

/// B20.
#[test]
fn given_up_accepts_lose_no_connection() {
    const COUNT: u32 = 2_000;
    run("given-up accepts", Builder::new(), async |mut rng| {
        let listener = listen().await;
        let addr = listener.local_addr().unwrap();
        let mut peer_rng = rng.fork();
        let peers = thread::spawn(move || open_numbered_connections(addr, COUNT, &mut peer_rng));
        let seen = Rc::new(RefCell::new(Vec::new()));
        let mut readers = Vec::new();
        while readers.len() < COUNT as usize {
            if let Some(mut stream) = accept_waveringly(&listener, &mut rng).await {
                let seen = seen.clone();
                readers.push(runtime::spawn(async move {
                    let mut number = [0; 4];
                    stream.read_exact(&mut number).await.unwrap();
                    seen.borrow_mut().push(u32::from_le_bytes(number));
                }));
            }
        }
        for reader in readers {
            reader.await.unwrap();
        }
        peers.join().unwrap();
        seen.borrow_mut().sort_unstable();
        assert_eq!(*seen.borrow(), Vec::from_iter(0..COUNT));
    });
}

/// B20.
#[test]
fn connections_that_nobody_claimed_are_closed_with_their_listener() {
    run("unclaimed connections", Builder::new(), async |mut rng| {
        for _ in 0..20 {
            let listener = listen().await;
            let addr = listener.local_addr().unwrap();
            let mut peers = support::connect_many(addr, rng.below(64));
            let fate = Fate {
                polls: 1,
                forget: rng.one_in(2),
            };
            let accepted = partial(fate, listener.accept()).await;
            peers.extend(support::connect_many(addr, 16));
            for _ in 0..rng.below(200) {
                runtime::yield_now().await;
            }
            drop((listener, accepted));
            for peer in &mut peers {
                wait_for_end(peer).await;
            }
        }
    });
}

/// B20.
#[test]
fn given_up_connects_close_their_sockets() {
    run("given-up connects", Builder::new(), async |mut rng| {
        let listener = std::net::TcpListener::bind(support::loopback()).unwrap();
        let addr = listener.local_addr().unwrap();
        let echo = thread::spawn(move || echo_one_byte_each(&listener));
        let mut connected = 0;
        for _ in 0..500 {
            let fate = Fate::dropped(&mut rng);
            if let Some(stream) = partial(fate, TcpStream::connect(addr)).await {
                assert_eq!(echoed(stream.unwrap(), 1).await, Some(1));
                connected += 1;
            }
        }
        let last = TcpStream::connect(addr).await.unwrap();
        assert_eq!(echoed(last, LAST).await, None);
        assert_eq!(
            echo.join().unwrap(),
            connected,
            "connections that sent a byte"
        );
    });
}

/// B04.
#[test]
fn given_up_connects_to_nobody_close_their_sockets() {
    run("connects to nobody", Builder::new(), async |mut rng| {
        let blackhole = Blackhole::new();
        for _ in 0..300 {
            let fate = Fate::dropped(&mut rng);
            let connect = TcpStream::connect(blackhole.addr());
            let connect = timeout(random_pause(&mut rng), connect);
            if let Some(result) = partial(fate, connect).await {
                assert!(result.is_err(), "nobody is there: {result:?}");
            }
        }
    });
}

/// B02.
#[test]
fn forgotten_connects_leak_no_more_than_their_own_sockets() {
    let _alone = support::alone("forgotten connects", Duration::from_secs(60));
    let blackhole = Blackhole::new();
    let before = open_fds();
    let runtime = Builder::new().build().unwrap();
    runtime.block_on(async {
        for polls in [0, 1, 2, 10] {
            let fate = Fate {
                polls,
                forget: true,
            };
            let result = partial(fate, TcpStream::connect(blackhole.addr())).await;
            assert!(result.is_none(), "nobody is there");
        }
    });
    drop(runtime);
    let leaked = open_fds() - before;
    assert!(
        leaked <= 4,
        "4 forgotten connects leaked {leaked} descriptors"
    );
}

/// Opens connections one after the other and sends each its number.
fn open_numbered_connections(addr: SocketAddr, count: u32, rng: &mut Rng) {
    for number in 0..count {
        let mut peer = support::connect(addr);
        peer.write_all(&number.to_le_bytes()).unwrap();
        if rng.one_in(8) {
            thread::sleep(random_pause(rng) / 4);
        }
    }
}

/// Asks for a connection in one of the ways that there are, and mostly gives up.
async fn accept_waveringly(listener: &TcpListener, rng: &mut Rng) -> Option<TcpStream> {
    let fate = Fate::random(rng);
    let accepted = match rng.below(5) {
        0 => partial(fate, listener.accept())
            .await
            .map(|accepted| accepted.map(|(stream, _)| stream)),
        1 => partial(fate, listener.incoming().next())
            .await
            .map(Option::unwrap),
        2 => {
            let poll = std::future::poll_fn(|cx| listener.poll_accept(cx));
            partial(fate, poll)
                .await
                .map(|accepted| accepted.map(|(stream, _)| stream))
        }
        3 => {
            let accepted = timeout(Duration::from_micros(50), listener.accept())
                .await
                .ok();
            accepted.map(|accepted| accepted.map(|(stream, _)| stream))
        }
        _ => {
            let (accept, pause) = (pin!(listener.accept()), pin!(sleep(random_pause(rng))));
            match select(accept, pause).await {
                Either::Left((accepted, _)) => Some(accepted.map(|(stream, _)| stream)),
                Either::Right(_) => None,
            }
        }
    };
    accepted.map(Result::unwrap)
}

/// Ends the echo below, which does not answer it.
const LAST: u8 = 0xFF;

/// What came back for `byte`.
async fn echoed(mut stream: TcpStream, byte: u8) -> Option<u8> {
    stream.write_all(&[byte]).await.unwrap();
    let mut answer = [0];
    let len = stream.read(&mut answer).await.unwrap();
    (len == 1).then_some(answer[0])
}

/// Serves connections one by one until [`LAST`] arrives. Returns how many have sent a byte: the others were given up.
fn echo_one_byte_each(listener: &std::net::TcpListener) -> usize {
    let mut served = 0;
    loop {
        let (mut stream, _) = listener.accept().unwrap();
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) if byte[0] == LAST => return served,
            Ok(1) => {
                stream.write_all(&byte).unwrap();
                served += 1;
            }
            Ok(_) | Err(_) => {}
        }
    }
}
