//! Wakes and answers that cross threads.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc as std_mpsc;
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::channel::mpsc;
use futures::task::AtomicWaker;
use runtime::{Builder, JoinHandle, Runtime};
use support::{Rng, Server};

use crate::alone;

/// B12: with pauses around the time that the worker needs to fall asleep, so that wakes meet it in every state.
#[test]
fn each_wake_from_another_thread_is_seen() {
    const WAKES: usize = 2_000;
    let _alone = alone("wakes from another thread");
    let mut rng = Rng::from_env();
    let (sender, mut receiver) = mpsc::unbounded::<Instant>();
    let (seen_sender, seen) = std_mpsc::channel();
    let waking = thread::spawn(move || {
        for _ in 0..WAKES {
            spin(Duration::from_micros(rng.below(200) as u64));
            if rng.one_in(4) {
                thread::sleep(Duration::from_micros(rng.below(1000) as u64));
            }
            sender.unbounded_send(Instant::now()).unwrap();
            seen.recv().unwrap();
        }
    });
    let mut latencies = Vec::new();
    Builder::new().build().unwrap().block_on(async {
        while let Some(sent) = receiver.next().await {
            latencies.push(sent.elapsed());
            seen_sender.send(()).unwrap();
        }
    });
    waking.join().unwrap();
    assert_eq!(latencies.len(), WAKES);
    latencies.sort_unstable();
    let [median, p99] = [WAKES / 2, WAKES * 99 / 100].map(|index| latencies[index]);
    println!(
        "median {median:?}, p99 {p99:?}, longest {:?}",
        latencies[WAKES - 1]
    );
    let bound = Duration::from_millis(100) * support::patience();
    assert!(p99 < bound, "p99 is {p99:?}");
}

/// B12: nobody waits for an answer here: the wakes pile up, and none may be the one that is lost.
#[test]
fn wakes_from_two_threads_at_full_speed_lose_nothing() {
    const STEPS: u64 = 100_000;
    let _alone = alone("wakes at full speed");
    let waker = Arc::new(AtomicWaker::new());
    let counter = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (waker, counter) = (waker.clone(), counter.clone());
            thread::spawn(move || {
                for _ in 0..STEPS {
                    counter.fetch_add(1, Ordering::SeqCst);
                    waker.wake();
                }
            })
        })
        .collect();
    Builder::new()
        .build()
        .unwrap()
        .block_on(std::future::poll_fn(|cx| {
            waker.register(cx.waker());
            match counter.load(Ordering::SeqCst) {
                count if count == 2 * STEPS => Poll::Ready(()),
                _ => Poll::Pending,
            }
        }));
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

/// The clones of a waker may be dropped by any thread, also after the task has ended.
#[test]
fn wakers_may_be_cloned_and_dropped_elsewhere() {
    let _alone = alone("wakers elsewhere");
    let (sender, wakers) = std_mpsc::channel::<Waker>();
    let elsewhere = thread::spawn(move || {
        for waker in wakers {
            let copy = waker.clone();
            waker.wake();
            drop(copy);
        }
    });
    Builder::new().build().unwrap().block_on(async {
        let tasks: Vec<_> = (0..1_000)
            .map(|_| {
                let sender = sender.clone();
                let mut polled = false;
                runtime::spawn(std::future::poll_fn(move |cx| {
                    sender.send(cx.waker().clone()).unwrap();
                    if std::mem::replace(&mut polled, true) {
                        return Poll::Ready(());
                    }
                    Poll::Pending
                }))
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    drop(sender);
    elsewhere.join().unwrap();
}

/// B11.
#[test]
fn a_handle_may_be_awaited_on_another_thread() {
    let _alone = alone("handles on another thread");
    let server = Server::start(support::handlers::echo_copy);
    for round in 0..2_000_u64 {
        let handle: JoinHandle<u64> = server.run(move || {
            runtime::spawn(async move {
                for _ in 0..round % 5 {
                    runtime::yield_now().await;
                }
                if round % 7 == 0 {
                    runtime::time::sleep(Duration::from_micros(50)).await;
                }
                round
            })
        });
        assert_eq!(futures::executor::block_on(handle).unwrap(), round);
    }
    let stuck = server.run(|| runtime::spawn(std::future::pending::<()>()));
    stuck.abort();
    assert!(
        futures::executor::block_on(stuck)
            .unwrap_err()
            .is_cancelled()
    );
    let failing = server.run(|| runtime::spawn(async { std::panic::panic_any("as planned") }));
    let error = futures::executor::block_on::<JoinHandle<()>>(failing).unwrap_err();
    assert_eq!(error.into_panic().downcast_ref(), Some(&"as planned"));
    server.stop();
}

/// B45.
#[test]
fn blocking_work_runs_beside_the_worker() {
    let _alone = alone("blocking work");
    Builder::new().build().unwrap().block_on(async {
        let worker = thread::current().id();
        let (sender, receiver) = std_mpsc::channel();
        let blocked = runtime::spawn_blocking(move || {
            assert_ne!(thread::current().id(), worker);
            // Ends only if the worker goes on meanwhile.
            receiver.recv().unwrap()
        });
        runtime::yield_now().await;
        sender.send(42).unwrap();
        assert_eq!(blocked.await.unwrap(), 42);

        let failing = runtime::spawn_blocking(|| -> () { std::panic::panic_any("as planned") });
        let error = failing.await.unwrap_err();
        assert_eq!(error.into_panic().downcast_ref(), Some(&"as planned"));
        let many: Vec<_> = (0..100)
            .map(|n| runtime::spawn_blocking(move || n * 2))
            .collect();
        for (n, handle) in many.into_iter().enumerate() {
            assert_eq!(handle.await.unwrap(), n * 2);
        }
    });
}

/// They would wake up for nothing, now and then, for as long as the process lives.
#[test]
fn the_threads_of_blocking_work_end_when_they_have_nothing_to_do() {
    let _alone = alone("idle threads");
    Builder::new().build().unwrap().block_on(async {
        let work: Vec<_> = (0..20)
            .map(|_| runtime::spawn_blocking(|| thread::sleep(Duration::from_millis(1))))
            .collect();
        for done in work {
            done.await.unwrap();
        }
    });
    support::eventually("threads of the pool", 0, support::pool_threads);
}

/// B11: what must stay on its thread cannot leave it. That this compiles is the test.
#[test]
fn what_belongs_to_a_worker_is_not_send() {
    trait AmbiguousIfSend<A> {
        fn is_not_send() {}
    }
    impl<T: ?Sized> AmbiguousIfSend<()> for T {}
    struct Ambiguous;
    impl<T: ?Sized + Send> AmbiguousIfSend<Ambiguous> for T {}

    <Runtime as AmbiguousIfSend<_>>::is_not_send();
    <JoinHandle<Rc<()>> as AmbiguousIfSend<_>>::is_not_send();
    <net::TcpStream as AmbiguousIfSend<_>>::is_not_send();
    <net::TcpListener as AmbiguousIfSend<_>>::is_not_send();
    <runtime::io::Lease as AmbiguousIfSend<_>>::is_not_send();
    <runtime::time::Sleep as AmbiguousIfSend<_>>::is_not_send();
}

fn spin(duration: Duration) {
    let start = Instant::now();
    while start.elapsed() < duration {
        std::hint::spin_loop();
    }
}
