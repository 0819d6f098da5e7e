//! Wakes from the first other thread that a process ever has (B13).
//!
//! Whatever a worker sleeps on is set up while it is the only thread of its process, and must work when it no longer
//! is. The usual test harness starts a thread for each test, so this binary has none: it runs each scenario in a
//! process of its own, and its `main` is that process's only thread.

use std::future::poll_fn;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use futures::StreamExt;
use futures::channel::oneshot;
use futures::task::AtomicWaker;
use runtime::Builder;
use runtime::time::sleep;

const SCENARIOS: [(&str, fn()); 3] = [
    (
        "the_first_other_thread_can_wake_a_worker_that_has_slept",
        first_thread,
    ),
    (
        "the_first_blocking_work_wakes_a_worker_that_has_slept",
        first_blocking_work,
    ),
    (
        "each_of_many_wakes_from_the_first_other_thread_is_seen",
        many_wakes,
    ),
];

/// Which scenario a process is for.
const VARIABLE: &str = "RINGSHOT_TEST_SCENARIO";

/// Seconds, after which the kernel ends a process that hangs. A watchdog of ours would be a thread.
const LIMIT: u32 = 50;

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(VARIABLE) {
        let scenario = SCENARIOS.iter().find(|(known, _)| *known == name);
        run(scenario.expect("a scenario of this binary").1);
        return ExitCode::SUCCESS;
    }
    let mut code = ExitCode::SUCCESS;
    for (name, _) in SCENARIOS {
        let itself = std::env::current_exe().unwrap();
        let status = Command::new(itself).env(VARIABLE, name).status().unwrap();
        println!("test {name} ... {status}");
        if !status.success() {
            code = ExitCode::FAILURE;
        }
    }
    code
}

fn run(scenario: fn()) {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
    assert_eq!(threads, 1, "threads at the start");
    // SAFETY: takes a number; the signal ends this process.
    unsafe { libc::alarm(LIMIT) };
    scenario();
}

/// B13.
fn first_thread() {
    Builder::new().build().unwrap().block_on(async {
        has_slept().await;
        for round in 0..100 {
            let (sender, receiver) = oneshot::channel();
            let (going, go) = mpsc::channel();
            let waking = thread::spawn(move || {
                go.recv().unwrap();
                sender.send(round).unwrap();
            });
            going.send(()).unwrap();
            assert_eq!(receiver.await.unwrap(), round);
            waking.join().unwrap();
        }
    });
}

/// B13, with the threads for blocking work, which start when there is some.
fn first_blocking_work() {
    Builder::new().build().unwrap().block_on(async {
        has_slept().await;
        for round in 0..100 {
            let (sender, receiver) = mpsc::channel();
            let work = runtime::spawn_blocking(move || receiver.recv().unwrap());
            runtime::yield_now().await;
            sender.send(round).unwrap();
            assert_eq!(work.await.unwrap(), round);
        }
    });
}

/// B13: the wakes meet the worker in every state, and nobody waits for an answer.
fn many_wakes() {
    const WAKES: u32 = 20_000;
    Builder::new().build().unwrap().block_on(async {
        has_slept().await;
        let waker = Arc::new(AtomicWaker::new());
        let (sender, mut sent) = futures::channel::mpsc::unbounded();
        let waking = thread::spawn({
            let waker = Arc::clone(&waker);
            move || {
                for number in 0..WAKES {
                    sender.unbounded_send(number).unwrap();
                    waker.wake();
                    thread::yield_now();
                }
            }
        });
        let mut seen = 0;
        poll_fn(|cx| {
            waker.register(cx.waker());
            while let Poll::Ready(number) = sent.poll_next_unpin(cx) {
                let Some(number) = number else {
                    return Poll::Ready(());
                };
                assert_eq!(number, seen);
                seen += 1;
            }
            Poll::Pending
        })
        .await;
        assert_eq!(seen, WAKES);
        waking.join().unwrap();
    });
}

/// The worker goes to sleep once while it is alone.
async fn has_slept() {
    sleep(Duration::from_millis(1)).await;
}
