//! Tasks and answers between workers, and from threads that are none.

use std::cell::Cell;
use std::future::pending;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::{self, ThreadId};

use futures::channel::oneshot;
use futures::future::join_all;
use runtime::{Handle, JoinHandle};
use support::Rng;

use crate::{alone, build};

#[test]
fn a_task_runs_on_the_worker_of_choice_and_need_not_be_send() {
    let _alone = alone("spawn_on");
    build(3).block_on(async {
        let mut threads = vec![thread::current().id()];
        for worker in [2, 1, 0, 1] {
            let task = runtime::spawn_on(worker, move || async move {
                let local = Rc::new(Cell::new(0));
                let inner = runtime::spawn({
                    let local = Rc::clone(&local);
                    async move { local.set(runtime::worker()) }
                });
                inner.await.unwrap();
                assert_eq!(local.get(), worker);
                thread::current().id()
            });
            let thread = task.await.unwrap();
            assert_eq!(threads[0] == thread, worker == 0);
            threads.push(thread);
        }
        assert_eq!(threads[2], threads[4], "worker 1 is one thread");
        assert_ne!(threads[1], threads[2]);
    });
}

#[test]
fn a_task_on_each_worker_knows_which_it_is() {
    let _alone = alone("spawn_on_each");
    build(4).block_on(async {
        let tasks = runtime::spawn_on_each(|worker| async move {
            assert_eq!(runtime::worker(), worker);
            (worker, thread::current().id())
        });
        let mut threads: Vec<ThreadId> = Vec::new();
        for (index, task) in join_all(tasks).await.into_iter().enumerate() {
            let (worker, thread) = task.unwrap();
            assert_eq!(worker, index);
            assert!(!threads.contains(&thread));
            threads.push(thread);
        }
    });
}

/// B11: by another worker, by this one, by a plain thread; before and after the task has ended.
#[test]
fn a_handle_may_be_awaited_on_any_worker_and_on_any_thread() {
    const ROUNDS: u64 = 10_000;
    let _alone = alone("handles anywhere");
    let runtime = build(3);
    let handle = runtime.handle();
    let plain = thread::spawn(move || {
        let mut rng = Rng::from_env();
        for round in 0..ROUNDS {
            let task = handle.spawn_on(1, move || yielding(round));
            if rng.one_in(3) {
                thread::yield_now();
            }
            assert_eq!(futures::executor::block_on(task).unwrap(), round);
        }
    });
    runtime.block_on(async {
        for round in 0..ROUNDS {
            let task = runtime::spawn_on(1, move || yielding(round));
            let awaits = runtime::spawn_on(2, move || task);
            assert_eq!(awaits.await.unwrap().unwrap(), round);
        }
    });
    plain.join().unwrap();
}

async fn yielding(round: u64) -> u64 {
    for _ in 0..round % 4 {
        runtime::yield_now().await;
    }
    round
}

#[test]
fn a_panic_on_another_worker_is_the_handles_error_and_nothing_else() {
    let _alone = alone("panics on another worker");
    build(2).block_on(async {
        let before = runtime::spawn_on(1, || async {
            runtime::yield_now().await;
            "before"
        });
        let in_future = runtime::spawn_on(1, || async { std::panic::panic_any("future") });
        let in_closure = runtime::spawn_on(1, || {
            std::panic::panic_any("closure");
            #[allow(unreachable_code)]
            async {}
        });
        let cases: [(JoinHandle<()>, _); 2] = [(in_future, "future"), (in_closure, "closure")];
        for (task, payload) in cases {
            let error = task.await.unwrap_err();
            assert_eq!(error.into_panic().downcast_ref(), Some(&payload));
        }
        assert_eq!(before.await.unwrap(), "before");
        assert_eq!(runtime::spawn_on(1, || async { 42 }).await.unwrap(), 42);
    });
}

/// Aborted on its way, in its first poll, and while it waits: dropped there, at most run once, and the handle knows.
#[test]
fn an_abort_reaches_a_task_wherever_it_is() {
    const ROUNDS: usize = 3_000;
    let _alone = alone("aborts");
    let drops = Arc::new(Drops::default());
    let starts = Arc::new(AtomicUsize::new(0));
    build(2).block_on(async {
        let there = runtime::spawn_on(1, || async { thread::current().id() })
            .await
            .unwrap();
        let mut rng = Rng::from_env();
        for _ in 0..ROUNDS {
            let guard = drops.guard(Some(there));
            let starts = Arc::clone(&starts);
            let task = runtime::spawn_on(1, move || {
                starts.fetch_add(1, Ordering::Relaxed);
                async move {
                    let _guard = guard.here();
                    pending::<()>().await
                }
            });
            for _ in 0..rng.below(4) {
                runtime::yield_now().await;
            }
            task.abort();
            task.abort();
            assert!(task.await.unwrap_err().is_cancelled());
        }
    });
    assert_eq!(drops.count.load(Ordering::SeqCst), ROUNDS);
    assert!(starts.load(Ordering::SeqCst) <= ROUNDS);
}

#[test]
fn a_destructor_that_panics_on_an_abort_is_the_panic_of_its_task_there_too() {
    struct PanicOnDrop;
    impl Drop for PanicOnDrop {
        fn drop(&mut self) {
            std::panic::panic_any("destructor");
        }
    }

    let _alone = alone("destructors that panic");
    build(2).block_on(async {
        for is_running in [true, false] {
            let (started, start) = oneshot::channel();
            // One that has not arrived yet has a worker that is busy until it is aborted.
            let (abort, aborted) = mpsc::channel::<()>();
            if !is_running {
                drop(runtime::spawn_on(1, move || async move {
                    aborted.recv().unwrap_err();
                }));
            }
            let bomb = PanicOnDrop;
            let task = runtime::spawn_on(1, move || async move {
                let _bomb = bomb;
                started.send(()).unwrap();
                pending::<()>().await;
            });
            if is_running {
                start.await.unwrap();
            }
            task.abort();
            drop(abort);
            let error = task.await.unwrap_err();
            assert_eq!(error.into_panic().downcast_ref(), Some(&"destructor"));
        }
        assert_eq!(runtime::spawn_on(1, || async { 42 }).await.unwrap(), 42);
    });
}

#[test]
fn a_detached_task_runs_to_its_end() {
    let _alone = alone("detached tasks");
    build(2).block_on(async {
        let (sender, receiver) = oneshot::channel();
        drop(runtime::spawn_on(1, || async move {
            runtime::yield_now().await;
            sender.send(runtime::worker()).unwrap();
        }));
        assert_eq!(receiver.await, Ok(1));
    });
}

#[test]
fn what_is_sent_to_worker_0_runs_when_its_thread_does() {
    let _alone = alone("worker 0");
    let runtime = build(1);
    let handle = runtime.handle();
    let (sender, receiver) = mpsc::channel();
    let spawned = thread::spawn(move || {
        handle.spawn_on(0, move || async move {
            sender.send(thread::current().id()).unwrap();
        })
    });
    let task = spawned.join().unwrap();
    assert!(receiver.try_recv().is_err());
    runtime.block_on(task).unwrap();
    assert_eq!(receiver.recv(), Ok(thread::current().id()));
}

#[test]
fn a_worker_that_does_not_exist_is_named() {
    let _alone = alone("no such worker");
    let runtime = build(2);
    let spawn = || runtime.handle().spawn_on(2, pending::<()>);
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(spawn)).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert_eq!(
        message,
        "there is no worker 2: this runtime has 2, and the first is worker 0"
    );
    assert!(Handle::try_current().is_none());
}

/// B45: each worker is alone, so one that is blocked holds up nobody else.
#[test]
fn a_blocked_worker_holds_up_no_other() {
    let _alone = alone("a blocked worker");
    build(3).block_on(async {
        let (release, held) = mpsc::channel::<()>();
        let (sender, blocked) = oneshot::channel();
        let blocking = runtime::spawn_on(1, move || async move {
            sender.send(()).unwrap();
            held.recv().unwrap();
        });
        blocked.await.unwrap();
        for round in 0..1_000 {
            let answer = runtime::spawn_on(2, move || async move {
                runtime::time::sleep(std::time::Duration::from_micros(10)).await;
                round
            });
            assert_eq!(answer.await.unwrap(), round);
        }
        assert!(!blocking.is_finished());
        release.send(()).unwrap();
        blocking.await.unwrap();
    });
}

#[test]
fn metrics_of_other_workers_can_be_read() {
    let _alone = alone("metrics of others");
    build(2).block_on(async {
        let handle = Handle::current();
        assert_eq!(handle.metrics(1), runtime::Metrics::default());
        let task = runtime::spawn_on(1, pending::<()>);
        let tasks = || handle.metrics(1).tasks;
        support::settled("the task is counted", 1, tasks).await;
        task.abort();
        support::settled("its end is counted", 0, tasks).await;
        assert!(handle.metrics(1).polls >= 2);
        assert!(handle.metrics(0).polls == 0, "no task ran here");
    });
}

/// What may cross may cross. That this compiles is the test.
#[test]
fn handles_are_send_and_sync() {
    fn check<T: Send + Sync + Clone + 'static>() {}
    check::<Handle>();
    fn send<T: Send>() {}
    send::<JoinHandle<u8>>();
}

/// Counts drops, and checks where they happen.
#[derive(Default)]
struct Drops {
    count: AtomicUsize,
}

impl Drops {
    fn guard(self: &Arc<Self>, home: Option<ThreadId>) -> Guard {
        Guard {
            drops: Arc::clone(self),
            home: home.map(|home| (home, false)),
        }
    }
}

struct Guard {
    drops: Arc<Drops>,
    /// Where it must be dropped, from the time on that it is there.
    home: Option<(ThreadId, bool)>,
}

impl Guard {
    fn here(mut self) -> Self {
        if let Some((home, arrived)) = &mut self.home {
            assert_eq!(thread::current().id(), *home);
            *arrived = true;
        }
        self
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some((home, true)) = self.home {
            assert_eq!(thread::current().id(), home, "dropped elsewhere");
        }
        self.drops.count.fetch_add(1, Ordering::SeqCst);
    }
}
