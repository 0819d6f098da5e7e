//! What every runtime does beside its connections: timers, tasks, blocking work, and saying what it holds.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use runtime::JoinHandle;
use runtime::time::{interval, sleep, timeout};
use support::{Fate, Rng, partial, pattern};

use crate::PATIENCE;
use crate::ledger::{Ledger, Side};
use crate::wire::pause;

/// The loads that need no connection, and the task that publishes the metrics.
pub struct Chores {
    loads: Vec<JoinHandle<()>>,
    publisher: JoinHandle<()>,
}

impl Chores {
    /// They go on until the ledger says that the time is over.
    pub fn start(ledger: &Arc<Ledger>, side: Side, rng: &mut Rng) -> Self {
        let (timers, tasks) = match side {
            Side::Server => ("timers, server", "tasks, server"),
            Side::Clients => ("timers, clients", "tasks, clients"),
        };
        ledger.start_load(timers);
        ledger.start_load(tasks);
        Self {
            loads: vec![
                runtime::spawn(storm_of_timers(timers, ledger.clone(), rng.fork())),
                runtime::spawn(storm_of_tasks(tasks, ledger.clone(), rng.fork())),
            ],
            publisher: runtime::spawn(publish(ledger.clone(), side)),
        }
    }

    pub async fn finish(self) {
        for load in self.loads {
            // A panic has been printed by the hook, and its load stands still, which is noticed.
            let _ = load.await;
        }
        self.publisher.abort();
        let _ = self.publisher.await;
    }
}

/// What a runtime holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holdings {
    pub tasks: usize,
    pub ops: usize,
    pub buffers: usize,
}

impl Holdings {
    pub fn now() -> Self {
        let metrics = runtime::metrics();
        Self {
            tasks: metrics.tasks,
            ops: metrics.ops,
            buffers: metrics.buffers - metrics.buffers_free,
        }
    }

    /// Waits until no more is held than `before`. Returns what is held then, or when that took too long.
    pub async fn settled(before: Self) -> Self {
        let settle = async {
            while Self::now() != before {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let _ = timeout(PATIENCE, settle).await;
        Self::now()
    }
}

async fn publish(ledger: Arc<Ledger>, side: Side) {
    let mut ticks = interval(Duration::from_millis(200));
    loop {
        ticks.tick().await;
        ledger.publish(side, runtime::metrics());
    }
}

/// Timers of all kinds, most of them dropped before they fire. None fires early.
async fn storm_of_timers(name: &'static str, ledger: Arc<Ledger>, mut rng: Rng) {
    while !ledger.is_stopping() {
        for _ in 0..rng.below(1000) {
            let far = Duration::from_secs(rng.below(4000) as u64);
            // Started and dropped.
            let _ = sleep(far).now_or_never();
        }
        let sleepers: Vec<_> = (0..rng.below(100))
            .map(|_| {
                let pause = pause(&mut rng);
                runtime::spawn(async move {
                    let start = Instant::now();
                    sleep(pause).await;
                    start.elapsed() >= pause
                })
            })
            .collect();
        let mut ticks = interval(pause(&mut rng) + Duration::from_micros(1));
        for _ in 0..rng.below(8) {
            let fate = Fate::dropped(&mut rng);
            let _ = partial(fate, ticks.tick()).await;
            if timeout(pause(&mut rng), pending::<()>()).await.is_ok() {
                ledger.complain("a future that never ends has ended");
            }
        }
        for sleeper in sleepers {
            if !matches!(sleeper.await, Ok(true)) {
                ledger.complain("a timer has fired early");
            }
        }
        ledger.finish_round(name);
        sleep(pause(&mut rng)).await;
    }
}

/// Tasks that end by themselves, are aborted, or detached; and work on other threads, whose end wakes this one.
async fn storm_of_tasks(name: &'static str, ledger: Arc<Ledger>, mut rng: Rng) {
    while !ledger.is_stopping() {
        let tasks: Vec<_> = (0..rng.below(50))
            .map(|_| (rng.next_u64(), rng.below(4), Fate::random(&mut rng).polls))
            .map(|(value, fate, yields)| {
                let task = runtime::spawn(async move {
                    for _ in 0..yields {
                        runtime::yield_now().await;
                    }
                    pattern::mix(value)
                });
                (value, fate, task)
            })
            .collect();
        for (value, fate, task) in tasks {
            match fate {
                0 => drop(task),
                1 => {
                    task.abort();
                    // It may have finished before.
                    if task.await.is_ok_and(|output| output != pattern::mix(value)) {
                        ledger.complain("an aborted task has a wrong output");
                    }
                }
                _ => {
                    if !matches!(task.await, Ok(output) if output == pattern::mix(value)) {
                        ledger.complain("a task has no output or a wrong one");
                    }
                }
            }
        }
        for _ in 0..rng.below(4) {
            let (value, pause) = (rng.next_u64(), pause(&mut rng));
            let work = runtime::spawn_blocking(move || {
                std::thread::sleep(pause);
                pattern::mix(value)
            });
            if rng.one_in(4) {
                work.abort();
            } else if !matches!(work.await, Ok(output) if output == pattern::mix(value)) {
                ledger.complain("blocking work has no output or a wrong one");
            }
        }
        ledger.finish_round(name);
        sleep(pause(&mut rng)).await;
    }
}
