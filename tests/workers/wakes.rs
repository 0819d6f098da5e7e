//! Wakes between workers: none is lost, none waits for a timeout, and storms cost few calls (B12, B14).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::channel::mpsc;
use runtime::Handle;
use runtime::time::sleep;
use support::Rng;

use crate::{alone, build};

/// B12: the worker is idle, and no timer of its own would ever wake it.
#[test]
fn an_idle_worker_is_woken_by_a_thread_that_is_none() {
    const WAKES: usize = 1_000;
    let _alone = alone("wakes of an idle worker");
    let runtime = build(2);
    let handle = runtime.handle();
    let waking = thread::spawn(move || {
        let (sender, mut receiver) = mpsc::unbounded::<Instant>();
        let (seen_sender, seen) = std::sync::mpsc::channel();
        let task = handle.spawn_on(1, || async move {
            while let Some(sent) = receiver.next().await {
                seen_sender.send(sent.elapsed()).unwrap();
            }
        });
        let mut latencies: Vec<Duration> = (0..WAKES)
            .map(|_| {
                // It falls asleep meanwhile.
                thread::sleep(Duration::from_micros(500));
                sender.unbounded_send(Instant::now()).unwrap();
                seen.recv().unwrap()
            })
            .collect();
        drop(sender);
        futures::executor::block_on(task).unwrap();
        latencies.sort_unstable();
        let [median, p99] = [WAKES / 2, WAKES * 99 / 100].map(|index| latencies[index]);
        println!(
            "median {median:?}, p99 {p99:?}, longest {:?}",
            latencies[WAKES - 1]
        );
        latencies[WAKES / 2]
    });
    let median = waking.join().unwrap();
    assert!(
        median < Duration::from_millis(100),
        "the median is {median:?}"
    );
    drop(runtime);
}

/// Three workers pass tokens on, each in its own pace, so that a wake meets its receiver in every state.
#[test]
fn no_token_that_goes_round_is_lost() {
    const ROUNDS: u64 = 5_000;
    let _alone = alone("tokens that go round");
    build(3).block_on(async {
        let (mut senders, mut receivers): (Vec<_>, Vec<_>) =
            (0..3).map(|_| mpsc::unbounded::<u64>()).unzip();
        let first = senders[0].clone();
        senders.rotate_left(1);
        let mut tasks = Vec::new();
        for (worker, (next, receiver)) in senders.drain(..).zip(receivers.drain(..)).enumerate() {
            tasks.push(runtime::spawn_on(worker, move || {
                pass_on(worker, next, receiver)
            }));
        }
        for token in 0..4 {
            first.unbounded_send(token).unwrap();
        }
        drop(first);
        for (worker, task) in tasks.into_iter().enumerate() {
            assert_eq!(task.await.unwrap(), 4 * ROUNDS, "worker {worker}");
        }
    });

    async fn pass_on(
        worker: usize,
        next: mpsc::UnboundedSender<u64>,
        mut receiver: mpsc::UnboundedReceiver<u64>,
    ) -> u64 {
        let mut rng = Rng::from_env();
        let mut seen = 0;
        let mut rounds = [0; 4];
        while seen < 4 * ROUNDS {
            let token = receiver.next().await.expect("the ring is closed");
            seen += 1;
            rounds[token as usize] += 1;
            if rng.one_in(20) {
                sleep(Duration::from_micros(rng.below(100) as u64)).await;
            }
            // The last worker takes the token out of the ring when it has gone round often enough.
            if worker < 2 || rounds[token as usize] < ROUNDS {
                next.unbounded_send(token).unwrap();
            }
        }
        seen
    }
}

/// Only a worker that sleeps costs a call, and one that is being woken costs no second one.
#[test]
fn a_storm_of_wakes_costs_few_calls() {
    const WAKES: u64 = 100_000;
    let _alone = alone("a storm of wakes");
    build(2).block_on(async {
        let (sender, mut receiver) = mpsc::unbounded::<u64>();
        let task = runtime::spawn_on(1, || async move {
            let mut sum = 0;
            while let Some(number) = receiver.next().await {
                sum += number;
            }
            sum
        });
        // In one poll, and so in one turn of this worker.
        for number in 0..WAKES {
            sender.unbounded_send(number).unwrap();
        }
        drop(sender);
        assert_eq!(task.await.unwrap(), WAKES * (WAKES - 1) / 2);
        let wakes = Handle::current().metrics(1).remote_wakes;
        println!("{wakes} calls for {WAKES} wakes");
        assert!(wakes < WAKES / 10, "{wakes} calls");
    });
}

/// B14: sleeps and wakes from elsewhere, with one source of the deadline.
#[test]
fn timers_keep_their_time_beside_wakes_from_elsewhere() {
    const SLEEPS: usize = 2_000;
    let _alone = alone("timers and wakes");
    build(2).block_on(async {
        let ticks = Arc::new(AtomicU64::new(0));
        let timers = runtime::spawn_on(1, {
            let ticks = Arc::clone(&ticks);
            move || async move {
                let tasks: Vec<_> = (0..SLEEPS)
                    .map(|index| {
                        let ticks = Arc::clone(&ticks);
                        runtime::spawn(async move {
                            let delay = Duration::from_micros((index as u64 * 7919) % 50_000);
                            let start = Instant::now();
                            sleep(delay).await;
                            ticks.fetch_add(1, Ordering::Relaxed);
                            start.elapsed().checked_sub(delay).expect("never early")
                        })
                    })
                    .collect();
                let mut late = Vec::new();
                for task in tasks {
                    late.push(task.await.unwrap());
                }
                late.sort_unstable();
                late
            }
        });
        while !timers.is_finished() {
            runtime::spawn_on(1, || async {}).await.unwrap();
            sleep(Duration::from_micros(300)).await;
        }
        let late = timers.await.unwrap();
        assert_eq!(ticks.load(Ordering::Relaxed), SLEEPS as u64);
        println!(
            "median {:?}, longest {:?}",
            late[SLEEPS / 2],
            late[SLEEPS - 1]
        );
        assert!(late[SLEEPS / 2] < Duration::from_millis(100));
    });
}
