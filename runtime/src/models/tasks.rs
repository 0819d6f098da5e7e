//! Tasks against those who abort, await or drop their handles on other threads.

use std::future::pending;

use futures::channel::oneshot;
use futures::future::join;
use loom::future::block_on;

use super::{Drops, after, crowded_model, model, touch};

#[test]
fn an_abort_from_another_thread_drops_the_task_at_home() {
    crowded_model(|home| {
        let drops = Drops::new();
        let witness = drops.witness();
        let task = home.spawn(async move {
            let _witness = witness;
            pending::<()>().await;
        });
        let seen = drops.clone();
        home.block_on(after(move || {
            task.abort();
            assert!(block_on(task).unwrap_err().is_cancelled());
            assert_eq!(seen.at_home(), 1, "the handle was told before the drop");
        }));
        assert_eq!((drops.at_home(), drops.elsewhere()), (1, 0));
        assert_eq!(home.worker.executor.tasks(), 0);
    });
}

#[test]
fn a_task_that_is_aborted_and_woken_ends_once() {
    crowded_model(|home| {
        let drops = Drops::new();
        let witness = drops.witness();
        let task = home.spawn(async move {
            let _witness = witness;
            after(|| {}).await;
            42
        });
        home.block_on(after(move || {
            task.abort();
            match block_on(task) {
                Ok(output) => assert_eq!(output, 42),
                Err(error) => assert!(error.is_cancelled()),
            }
        }));
        assert_eq!((drops.at_home(), drops.elsewhere()), (1, 0));
        assert_eq!(home.worker.executor.tasks(), 0);
    });
}

#[test]
fn an_abort_that_is_late_reaches_nobody_else() {
    crowded_model(|home| {
        let first = home.spawn(async {});
        home.start();
        // The new task takes the place of the old one, whose name is out of date.
        let aborts = after(move || first.abort());
        let second = home.spawn(async {
            aborts.await;
            42
        });
        assert_eq!(home.block_on(second).unwrap(), 42);
    });
}

#[test]
fn an_output_is_awaited_on_another_thread() {
    model(|home| {
        let drops = Drops::new();
        let witness = drops.witness();
        let task = home.spawn(async move {
            touch();
            witness
        });
        home.block_on(after(move || drop(block_on(task).unwrap())));
        assert_eq!((drops.at_home(), drops.elsewhere()), (0, 1));
    });
}

#[test]
fn an_output_whose_handle_is_dropped_on_another_thread_is_dropped_once() {
    model(|home| {
        let drops = Drops::new();
        let witness = drops.witness();
        let task = home.spawn(async move {
            touch();
            witness
        });
        home.block_on(after(move || drop(task)));
        home.start();
        assert_eq!(drops.at_home() + drops.elsewhere(), 1);
        assert_eq!(home.worker.executor.tasks(), 0);
    });
}

#[test]
fn a_task_goes_on_when_its_handle_is_dropped_on_another_thread() {
    crowded_model(|home| {
        let drops = Drops::new();
        let witness = drops.witness();
        let (end, ended) = oneshot::channel();
        let task = home.spawn(async move {
            after(|| {}).await;
            drop(witness);
            end.send(()).unwrap();
        });
        home.block_on(join(after(move || drop(task)), ended))
            .1
            .unwrap();
        assert_eq!((drops.at_home(), drops.elsewhere()), (1, 0));
    });
}
