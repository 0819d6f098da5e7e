//! The shutdown, while other threads wake, abort and await the tasks.

use std::future::pending;

use loom::future::block_on;
use loom::sync::Arc;
use loom::thread;

use super::{Drops, Home, after, crowded_model, model, touch};
use crate::executor::{Origin, Remote, Tag};

#[test]
fn a_task_that_is_woken_is_dropped_once_at_home() {
    model(|home| {
        let drops = Drops::new();
        spawn_owner(home, &drops);
        home.start();
        assert_all_dropped(home, &drops, 1);
    });
}

#[test]
fn tasks_that_are_woken_are_dropped_once_at_home() {
    crowded_model(|home| {
        let drops = Drops::new();
        spawn_owner(home, &drops);
        spawn_owner(home, &drops);
        home.start();
        assert_all_dropped(home, &drops, 2);
    });
}

#[test]
fn a_task_that_is_aborted_is_dropped_once_and_its_handle_told() {
    model(|home| {
        let drops = Drops::new();
        let witness = drops.witness();
        let task = home.spawn(async move {
            let _witness = witness;
            pending::<()>().await;
        });
        let aborter = thread::spawn(move || {
            touch();
            task.abort();
            assert!(block_on(task).unwrap_err().is_cancelled());
        });
        assert_all_dropped(home, &drops, 1);
        aborter.join().unwrap();
    });
}

#[test]
fn a_handle_that_is_awaited_is_told() {
    model(|home| {
        let task = home.spawn(pending::<()>());
        let waiter = thread::spawn(move || {
            touch();
            assert!(block_on(task).unwrap_err().is_cancelled());
        });
        home.shut_down();
        waiter.join().unwrap();
    });
}

#[test]
fn wakes_and_aborts_after_the_end_reach_nobody() {
    crowded_model(|home| {
        let drops = Drops::new();
        let task = spawn_owner(home, &drops);
        home.start();
        let aborter = thread::spawn(move || {
            touch();
            task.abort();
        });
        home.shut_down();
        assert_eq!((drops.at_home(), drops.elsewhere()), (1, 0));
        let late = home.spawn(after(|| {}));
        assert!(late.is_finished(), "a closed executor keeps a task");
        aborter.join().unwrap();
    });
}

/// The executor closes the inbox when no task is alive, so this cannot happen while that is right.
#[test]
fn a_task_in_a_closed_inbox_is_never_dropped_elsewhere() {
    loom::model(|| {
        let drops = Drops::new();
        let witness = drops.untracked_witness();
        let future = async move {
            let _witness = witness;
            pending::<()>().await;
        };
        let (runnable, task) = async_task::Builder::new()
            .metadata(Tag {
                origin: Origin::here::<()>(),
                home: std::sync::Arc::new(Remote::new(|| {})),
            })
            .spawn_local(|_| future, |_| {});
        let remote = Arc::new(Remote::new(|| {}));
        let pusher = thread::spawn({
            let remote = Arc::clone(&remote);
            move || remote.push(runnable)
        });
        remote.close();
        drop(remote);
        pusher.join().unwrap();
        assert_eq!(drops.elsewhere(), 0);
        task.detach();
    });
}

/// A task that another thread wakes, as soon as it was polled.
fn spawn_owner(home: &Home, drops: &Drops) -> crate::JoinHandle<()> {
    let witness = drops.witness();
    home.spawn(async move {
        let _witness = witness;
        after(|| {}).await;
        pending::<()>().await;
    })
}

fn assert_all_dropped(home: &Home, drops: &Drops, count: usize) {
    home.shut_down();
    assert_eq!((drops.at_home(), drops.elsewhere()), (count, 0));
    assert_eq!(home.worker.executor.tasks(), 0);
    assert!(!home.worker.executor.has_ready());
}
