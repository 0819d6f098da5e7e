//! Workers that look for news before they sleep (`Builder::spin`): they miss nothing, cost no call while they look,
//! and come to sleep all the same.

use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use futures::channel::mpsc;
use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use net::TcpListener;
use runtime::time::sleep;
use runtime::{Builder, Handle, Runtime};
use support::Pinger;

use crate::alone;

/// The test's own thread does not look, as it would take the CPU from the worker that does.
fn build(limit: Duration) -> (Runtime, Handle) {
    let runtime = Builder::new().workers(2).spin(limit).build().unwrap();
    let handle = runtime.handle();
    (runtime, handle)
}

/// Sends a word to a task of worker 1 and waits for the answer, again and again.
struct Words {
    sender: mpsc::UnboundedSender<()>,
    answers: Receiver<()>,
}

impl Words {
    fn start(handle: &Handle) -> Self {
        let (sender, mut words) = mpsc::unbounded();
        let (answer, answers) = channel();
        // Detached: it ends with the sender.
        drop(handle.spawn_on(1, move || async move {
            while words.next().await.is_some() {
                answer.send(()).unwrap();
            }
        }));
        Self { sender, answers }
    }

    fn exchange(&self) {
        self.sender.unbounded_send(()).unwrap();
        self.answers.recv().unwrap();
    }
}

#[test]
fn a_worker_that_looks_for_ever_is_woken_without_a_call() {
    const WORDS: usize = 1_000;
    let _alone = alone("a worker that looks for ever");
    let (runtime, handle) = build(Duration::MAX);
    let words = Words::start(&handle);
    // From here on it has been started.
    words.exchange();
    let before = handle.metrics(1).remote_wakes;
    for _ in 0..WORDS {
        // It would fall asleep meanwhile.
        thread::sleep(Duration::from_micros(100));
        words.exchange();
    }
    assert_eq!(handle.metrics(1).remote_wakes - before, 0);
    // It notices that, too.
    drop(runtime);
}

#[test]
fn a_short_look_ends_in_a_sleep() {
    let _alone = alone("a short look");
    let (runtime, handle) = build(Duration::from_micros(100));
    let words = Words::start(&handle);
    words.exchange();
    let before = handle.metrics(1).remote_wakes;
    // Until one of them has found it asleep.
    while handle.metrics(1).remote_wakes == before {
        thread::sleep(Duration::from_millis(1));
        words.exchange();
    }
    drop(runtime);
}

#[test]
fn time_spent_looking_is_not_awake() {
    const WATCHED: Duration = Duration::from_millis(200);
    let _alone = alone("time spent looking");
    let (runtime, handle) = build(Duration::MAX);
    let words = Words::start(&handle);
    words.exchange();
    let before = handle.metrics(1);
    // What it does while nobody wants anything of it is what is watched.
    thread::sleep(WATCHED);
    let spent = handle.metrics(1).since(&before);
    assert!(spent.elapsed >= WATCHED);
    assert!(spent.awake < spent.elapsed / 2, "{:?}", spent.awake);
    assert!(spent.cpu > Duration::ZERO, "it looks");
    drop(runtime);
}

#[test]
fn timers_fire_while_the_worker_looks() {
    const DELAY: Duration = Duration::from_millis(5);
    let _alone = alone("timers while the worker looks");
    for limit in [Duration::from_micros(10), Duration::MAX] {
        let (runtime, _) = build(limit);
        runtime.block_on(async {
            for _ in 0..20 {
                let start = Instant::now();
                sleep(DELAY).await;
                assert!(start.elapsed() >= DELAY);
            }
        });
    }
}

#[test]
fn connections_are_served_while_the_worker_looks() {
    const CONNECTIONS: usize = 8;
    let _alone = alone("connections while the worker looks");
    for limit in [Duration::from_micros(10), Duration::MAX] {
        let (runtime, _) = build(limit);
        let listener = runtime.block_on(async { TcpListener::bind(support::loopback()).await });
        let listener = listener.unwrap();
        let addr = listener.local_addr().unwrap();
        let peers = thread::spawn(move || {
            let mut pinger = Pinger::new(support::connect_many(addr, CONNECTIONS), 100);
            for _ in 0..200 {
                pinger.rounds(1);
            }
        });
        runtime.block_on(async {
            let mut tasks = Vec::new();
            for _ in 0..CONNECTIONS {
                let (mut stream, _) = listener.accept().await.unwrap();
                tasks.push(runtime::spawn(async move {
                    let mut bytes = [0; 100];
                    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
                        stream.write_all(&bytes[..count]).await.unwrap();
                    }
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
        });
        peers.join().unwrap();
    }
}
