//! Everybody gets a turn.

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::net::TcpStream as Peer;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use futures::channel::{mpsc, oneshot};
use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use net::{TcpListener, TcpStream};
use runtime::Builder;
use runtime::time::interval;
use support::{Pinger, handlers};

use crate::alone;

/// More of them than are polled in one turn, and some are woken while others still wait.
#[test]
fn tasks_are_polled_in_the_order_in_which_they_were_woken() {
    const TASKS: usize = 200;
    const ROUNDS: usize = 5;
    let _alone = alone("the order of polls");
    let order = Rc::new(RefCell::new(Vec::new()));
    Builder::new().build().unwrap().block_on(async {
        let spawn = |number| {
            let order = order.clone();
            runtime::spawn(async move {
                for _ in 0..ROUNDS {
                    order.borrow_mut().push(number);
                    runtime::yield_now().await;
                }
            })
        };
        let tasks: Vec<_> = (0..TASKS).map(spawn).collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    let expected: Vec<_> = (0..ROUNDS).flat_map(|_| 0..TASKS).collect();
    assert_eq!(order.take(), expected);
}

/// B42: one task yields in a loop and two wake each other in a loop, so the run queue is never empty.
#[test]
fn busy_tasks_starve_neither_a_socket_nor_a_timer() {
    const PERIOD: Duration = Duration::from_millis(5);
    let _alone = alone("busy tasks");
    Builder::new().build().unwrap().block_on(async {
        let busy = Rc::new(Cell::new(0_u64));
        runtime::spawn(yield_for_ever(busy.clone()));
        spawn_ping_pong_for_ever(busy.clone());
        let ticks = Rc::new(Cell::new(0_u32));
        runtime::spawn(count_ticks(PERIOD, ticks.clone()));

        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let (stream, peer) = support::pair(&listener).await;
        runtime::spawn(handlers::echo_copy(stream));
        let (sender, result) = oneshot::channel();
        let client = thread::spawn(move || sender.send(measure_rounds(peer)).unwrap());
        let started = Instant::now();
        let slowest = result.await.unwrap();
        let elapsed = started.elapsed();
        client.join().unwrap();

        println!(
            "slowest echo {slowest:?}, {} ticks in {elapsed:?}",
            ticks.get()
        );
        assert!(
            busy.get() > 1_000,
            "the busy tasks made {} steps",
            busy.get()
        );
        assert!(
            slowest < Duration::from_millis(500) * support::patience(),
            "an echo took {slowest:?}"
        );
        let due = elapsed.as_millis() / PERIOD.as_millis();
        assert!(
            u128::from(ticks.get()) * 2 >= due,
            "{} of {due} ticks",
            ticks.get()
        );
    });
}

/// B42: the reader always finds a byte, so nothing but the budget makes it yield.
#[test]
fn a_reader_that_is_always_ready_yields() {
    let _alone = alone("an always-ready reader");
    with_busy_stream(async |stream, mut peer, steps| {
        let sender = thread::spawn(move || {
            let chunk = vec![7; 64 << 10];
            while peer.write_all(&chunk).is_ok() {}
        });
        for _ in 0..100_000 {
            stream.read_exact(&mut [0]).await.unwrap();
            steps.set(steps.get() + 1);
        }
        sender
    });
}

/// B42.
#[test]
fn a_writer_that_is_always_ready_yields() {
    let _alone = alone("an always-ready writer");
    with_busy_stream(async |stream, mut peer, steps| {
        let receiver = thread::spawn(move || {
            std::io::copy(&mut peer, &mut std::io::sink()).unwrap();
        });
        for _ in 0..100_000 {
            assert_eq!(stream.write(&[7]).await.unwrap(), 1);
            steps.set(steps.get() + 1);
        }
        receiver
    });
}

/// Runs `body` beside a task that only yields, and checks how many steps were made between two of its turns.
fn with_busy_stream(
    body: impl AsyncFnOnce(&mut TcpStream, Peer, &Cell<usize>) -> thread::JoinHandle<()>,
) {
    /// The coop budget is 128 per poll, and a poll may begin between two looks.
    const LIMIT: usize = 2 * 128;
    Builder::new().build().unwrap().block_on(async {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let (mut stream, peer) = support::pair(&listener).await;
        let steps = Rc::new(Cell::new(0));
        let most = Rc::new(Cell::new(0));
        let (watched, longest) = (steps.clone(), most.clone());
        runtime::spawn(async move {
            loop {
                longest.set(longest.get().max(watched.take()));
                runtime::yield_now().await;
            }
        });
        let helper = body(&mut stream, peer, &steps).await;
        drop(stream);
        runtime::yield_now().await;
        println!("{} steps without a turn for others", most.get());
        assert!((1..=LIMIT).contains(&most.get()), "{} steps", most.get());
        // Our end has to be closed before the peer's thread ends.
        while !helper.is_finished() {
            runtime::yield_now().await;
        }
        helper.join().unwrap();
    });
}

async fn yield_for_ever(steps: Rc<Cell<u64>>) {
    loop {
        runtime::yield_now().await;
        steps.set(steps.get() + 1);
    }
}

fn spawn_ping_pong_for_ever(steps: Rc<Cell<u64>>) {
    let (mut to_second, mut at_second) = mpsc::channel::<()>(1);
    let (mut to_first, mut at_first) = mpsc::channel::<()>(1);
    to_second.try_send(()).unwrap();
    runtime::spawn(async move {
        while at_second.next().await.is_some() {
            to_first.try_send(()).unwrap();
        }
    });
    runtime::spawn(async move {
        while at_first.next().await.is_some() {
            steps.set(steps.get() + 1);
            to_second.try_send(()).unwrap();
        }
    });
}

async fn count_ticks(period: Duration, ticks: Rc<Cell<u32>>) {
    let mut interval = interval(period);
    loop {
        interval.tick().await;
        ticks.set(ticks.get() + 1);
    }
}

/// The slowest of 1,000 round trips.
fn measure_rounds(peer: Peer) -> Duration {
    let mut pinger = Pinger::new(vec![peer], 64);
    let mut slowest = Duration::ZERO;
    for _ in 0..1_000 {
        let started = Instant::now();
        pinger.rounds(1);
        slowest = slowest.max(started.elapsed());
    }
    slowest
}
