//! Given-up waits for tasks, for other threads and for names.

use std::cell::Cell;
use std::future::ready;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use net::TcpListener;
use runtime::Builder;
use runtime::time::timeout;
use support::{Fate, partial, settled};

use crate::{random_pause, run};

#[test]
fn a_join_handle_that_was_given_up_by_reference_still_gives_the_output() {
    run("given-up joins", Builder::new(), async |mut rng| {
        for number in 0..500 {
            let yields = rng.below(20);
            let mut handle = runtime::spawn(async move {
                for _ in 0..yields {
                    runtime::yield_now().await;
                }
                number
            });
            let output = loop {
                let fate = Fate::random(&mut rng);
                if let Some(output) = partial(fate, &mut handle).await {
                    break output;
                }
            };
            assert_eq!(output.unwrap(), number);
        }
    });
}

#[test]
fn a_join_handle_that_is_dropped_lets_its_task_run_to_the_end() {
    run("dropped joins", Builder::new(), async |mut rng| {
        let ended = Rc::new(Cell::new(0));
        for number in 0..500 {
            let yields = rng.below(20);
            let ended_too = Rc::clone(&ended);
            let handle = runtime::spawn(async move {
                for _ in 0..yields {
                    runtime::yield_now().await;
                }
                ended_too.set(ended_too.get() + 1);
            });
            // Whatever of it comes first, the end of the task or that of the handle.
            let _ = partial(Fate::dropped(&mut rng), handle).await;
            settled("tasks that ended", number + 1, || ended.get()).await;
        }
    });
}

/// The new task is in the place of the one that has ended, and has another name.
#[test]
fn an_abort_that_comes_too_late_reaches_no_other_task() {
    run("late aborts", Builder::new(), async |_| {
        let ended = runtime::spawn(async {});
        settled("the first task", true, || ended.is_finished()).await;
        let next = runtime::spawn(async {
            for _ in 0..10 {
                runtime::yield_now().await;
            }
        });
        ended.abort();
        let ended = runtime::spawn_blocking(move || {
            ended.abort();
            ended
        });
        ended.await.unwrap().await.unwrap();
        next.await.unwrap();
    });
}

#[test]
fn given_up_yields_leave_nothing_behind() {
    run("given-up yields", Builder::new(), async |mut rng| {
        for _ in 0..1_000 {
            let _ = partial(Fate::random(&mut rng), runtime::yield_now()).await;
        }
        // The wake that was asked for has come to nothing, and the next one is a wake again.
        for _ in 0..10 {
            runtime::yield_now().await;
        }
    });
}

/// Nobody waits for it any more, but it is not stopped in the middle either.
#[test]
fn given_up_blocking_work_runs_to_its_end() {
    run("given-up blocking work", Builder::new(), async |mut rng| {
        let ended = Arc::new(AtomicUsize::new(0));
        for round in 0..100 {
            let (started, has_started) = mpsc::channel();
            let (go, may_go) = mpsc::channel();
            let ended_too = Arc::clone(&ended);
            let mut work = runtime::spawn_blocking(move || {
                started.send(()).unwrap();
                may_go.recv().unwrap();
                ended_too.fetch_add(1, Ordering::Relaxed);
            });
            settled("work has started", true, || has_started.try_recv().is_ok()).await;
            let waiting = timeout(random_pause(&mut rng), &mut work).await;
            assert!(waiting.is_err(), "it waits for us");
            if round % 2 == 0 {
                work.abort();
                assert!(work.await.unwrap_err().is_cancelled());
            } else {
                drop(work);
            }
            go.send(()).unwrap();
            settled("work that ended", round + 1, || {
                ended.load(Ordering::Relaxed)
            })
            .await;
        }
    });
}

/// The lookup runs on another thread and ends there, for nobody; `run` sees that no task and no descriptor stays.
#[test]
fn given_up_lookups_and_binds_leave_nothing_behind() {
    run("given-up lookups", Builder::new(), async |mut rng| {
        for _ in 0..100 {
            let fate = Fate::dropped(&mut rng);
            if let Some(found) = partial(fate, net::lookup_host("localhost:80")).await {
                assert!(found.unwrap().all(|addr| addr.ip().is_loopback()));
            }
            let fate = Fate::dropped(&mut rng);
            if let Some(bound) = partial(fate, TcpListener::bind("localhost:0")).await {
                assert!(bound.unwrap().local_addr().unwrap().ip().is_loopback());
            }
        }
        settled("tasks", 0, || runtime::metrics().tasks).await;
        // A resolver opens files, which the next test shall not count. Its threads end when they have been idle.
        settled("threads of the pool", 0, support::pool_threads).await;
    });
}

/// What was ready at the first poll was not waited for, and a timeout that is given up gives up what is inside.
#[test]
fn a_given_up_timeout_gives_up_what_is_inside() {
    run("given-up timeouts", Builder::new(), async |mut rng| {
        struct CountsDrops(Rc<Cell<usize>>);
        impl Drop for CountsDrops {
            fn drop(&mut self) {
                self.0.set(self.0.get() + 1);
            }
        }
        let drops = Rc::new(Cell::new(0));
        for round in 0..300 {
            let inside = CountsDrops(Rc::clone(&drops));
            let limit = random_pause(&mut rng);
            let never = timeout(limit, async move {
                std::future::pending::<()>().await;
                drop(inside);
            });
            let ended = partial(Fate::dropped(&mut rng), never).await;
            assert!(ended.is_none_or(|ended| ended.is_err()));
            assert_eq!(drops.get(), round + 1, "what was inside is gone");
            assert_eq!(timeout(limit, ready(round)).await, Ok(round));
        }
    });
}
