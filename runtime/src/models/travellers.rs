//! Tasks that are spawned from other threads: a closure on its way, against the worker's sleep, its end and an abort.

use std::future::pending;
use std::sync::Arc;

use loom::future::block_on;
use loom::thread;

use super::{Drops, after, crowded_model, model, touch};
use crate::executor::spawn_on;

#[test]
fn a_task_from_another_thread_runs_at_home() {
    crowded_model(|home| {
        let drops = Drops::new();
        let (witness, remote) = (drops.witness(), Arc::clone(&home.remote));
        home.block_on(after(move || {
            let task = spawn_on(&remote, move || async move {
                drop(witness);
                42
            });
            assert_eq!(block_on(task).unwrap(), 42);
        }));
        assert_eq!((drops.at_home(), drops.elsewhere()), (1, 0));
        assert_eq!(home.worker.executor.tasks(), 0);
    });
}

#[test]
fn a_task_that_is_aborted_on_its_way_ends_once() {
    crowded_model(|home| {
        let drops = Drops::new();
        let (witness, remote) = (drops.witness(), Arc::clone(&home.remote));
        home.block_on(after(move || {
            let task = spawn_on(&remote, move || async move {
                let _witness = witness;
                pending::<()>().await;
            });
            task.abort();
            assert!(block_on(task).unwrap_err().is_cancelled());
        }));
        assert_eq!((drops.at_home(), drops.elsewhere()), (1, 0));
        assert_eq!(home.worker.executor.tasks(), 0);
    });
}

#[test]
fn a_task_on_its_way_to_a_worker_that_ends_is_dropped_once_and_its_handle_told() {
    model(|home| {
        let drops = Drops::new();
        let (witness, remote) = (drops.witness(), Arc::clone(&home.remote));
        let spawner = thread::spawn(move || {
            touch();
            let task = spawn_on(&remote, move || async move {
                let _witness = witness;
                pending::<()>().await;
            });
            touch();
            assert!(block_on(task).unwrap_err().is_cancelled());
        });
        home.shut_down();
        spawner.join().unwrap();
        // Here if the closure had arrived, on the thread that sent it if it was refused.
        assert_eq!(drops.at_home() + drops.elsewhere(), 1);
        assert_eq!(home.worker.executor.tasks(), 0);
    });
}
