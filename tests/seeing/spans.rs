//! Spans of `tracing` follow the work that they were put around (B57).

use std::sync::mpsc;

use futures::future::{join_all, select};
use runtime::Builder;
use support::Rng;
use tracing::{Instrument, Span, info, info_span};

use crate::{alone, lines, log};

/// B57: each on its own span, in turns on one worker. The fmt subscriber names the spans of an event.
#[test]
fn interleaved_tasks_keep_their_own_spans() {
    const TASKS: usize = 100;
    const STEPS: usize = 10;
    let _alone = alone("spans of one worker");
    log();
    Builder::new().build().unwrap().block_on(async {
        let tasks: Vec<_> = (0..TASKS)
            .map(|number| {
                let task = async move {
                    let mut rng = Rng::from_env();
                    for step in 0..STEPS {
                        info!(number, step, "interleaved");
                        for _ in 0..rng.below(3) {
                            runtime::yield_now().await;
                        }
                    }
                };
                runtime::spawn(task.instrument(info_span!("own", number)))
            })
            .collect();
        // Between their polls no span is left entered.
        while !tasks.iter().all(runtime::JoinHandle::is_finished) {
            assert!(Span::current().is_none());
            runtime::yield_now().await;
        }
        for task in join_all(tasks).await {
            task.unwrap();
        }
    });
    let said = lines(&["interleaved"]);
    assert_eq!(said.len(), TASKS * STEPS);
    for number in 0..TASKS {
        let own = format!("own{{number={number}}}: ");
        let field = format!(" number={number} ");
        let of_task = said.iter().filter(|line| line.contains(&own));
        let of_task: Vec<_> = of_task.collect();
        assert_eq!(of_task.len(), STEPS, "{own}");
        assert!(of_task.iter().all(|line| line.contains(&field)));
        assert!(of_task.iter().all(|line| line.matches("own{").count() == 1));
    }
}

/// B57: a span goes along to another worker and back, and to the threads for blocking work.
#[test]
fn a_span_goes_along_to_other_threads() {
    let _alone = alone("spans that travel");
    log();
    Builder::new().workers(2).build().unwrap().block_on(async {
        let span = info_span!("request", id = 7);
        let work = async {
            info!("travel: here");
            // The current span is that of the spawner, so it is asked for here.
            let child = async {
                runtime::yield_now().await;
                info!("travel: spawned");
            };
            runtime::spawn(child.in_current_span()).await.unwrap();
            let span = Span::current();
            let there = runtime::spawn_on(1, move || {
                async {
                    for _ in 0..3 {
                        runtime::yield_now().await;
                        info!("travel: worker {}", runtime::worker());
                    }
                }
                .instrument(span)
            });
            there.await.unwrap();
            let span = Span::current();
            let blocking =
                runtime::spawn_blocking(move || span.in_scope(|| info!("travel: blocking")));
            blocking.await.unwrap();
            info!("travel: back");
        };
        let beside = async {
            loop {
                assert!(Span::current().is_none(), "another task's span");
                runtime::yield_now().await;
            }
        };
        let work = std::pin::pin!(work.instrument(span));
        let beside = std::pin::pin!(beside);
        let _ = select(work, beside).await;
        assert!(Span::current().is_none());
    });
    let said = lines(&["travel: "]);
    assert_eq!(said.len(), 7, "{said:?}");
    for line in &said {
        assert!(line.contains("request{id=7}: "), "{line}");
    }
    assert_eq!(lines(&["travel: worker 1"]).len(), 3);
}

/// What is not asked to follow does not, and what a task has entered ends with its poll.
#[test]
fn spawned_work_that_is_not_asked_to_follow_has_no_span() {
    let _alone = alone("spans that stay");
    log();
    Builder::new().workers(2).build().unwrap().block_on(async {
        let outer = async {
            runtime::spawn(async { info!("stay: spawned") })
                .await
                .unwrap();
            runtime::spawn_on(1, || async { info!("stay: sent") })
                .await
                .unwrap();
            info!("stay: outer");
        };
        outer.instrument(info_span!("staying")).await;
    });
    for (word, expected) in [("spawned", 0), ("sent", 0), ("outer", 1)] {
        let said = lines(&[&format!("stay: {word}")]);
        assert_eq!(said.len(), 1);
        assert_eq!(said[0].matches("staying").count(), expected, "{said:?}");
    }
}

/// A span that is entered while a handle is awaited is that of whoever waits, not of the task.
#[test]
fn awaiting_a_handle_enters_no_span_of_the_task() {
    let _alone = alone("spans of handles");
    log();
    let runtime = Builder::new().workers(2).build().unwrap();
    let handle = runtime.handle();
    let (sender, receiver) = mpsc::channel();
    let task = handle.spawn_on(1, move || {
        async move {
            receiver.recv().unwrap();
            info!("handle: task");
        }
        .instrument(info_span!("inside"))
    });
    sender.send(()).unwrap();
    runtime.block_on(
        async {
            task.await.unwrap();
            info!("handle: waiter");
        }
        .instrument(info_span!("waiting")),
    );
    assert!(lines(&["handle: task"])[0].contains("inside: "));
    let waiter = lines(&["handle: waiter"]);
    assert!(waiter[0].contains("waiting: ") && !waiter[0].contains("inside"));
}
