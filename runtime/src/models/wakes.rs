//! Wakes from other threads against the worker's sleep: each one is followed by a poll.

use futures::future::join;

use super::{Home, after, crowded_model, model};

#[test]
fn the_main_future_is_woken_from_another_thread() {
    model(|home| {
        home.block_on(after(|| {}));
    });
}

#[test]
fn the_main_future_is_woken_from_two_threads() {
    crowded_model(|home| {
        home.block_on(join(after(|| {}), after(|| {})));
    });
}

#[test]
fn a_task_is_woken_from_another_thread() {
    model(|home| {
        let task = home.spawn(after(|| {}));
        home.block_on(task).unwrap();
    });
}

#[test]
fn a_task_is_woken_from_two_threads() {
    crowded_model(|home| {
        let task = home.spawn(join(after(|| {}), after(|| {})));
        home.block_on(task).unwrap();
    });
}

#[test]
fn two_tasks_are_woken_from_two_threads() {
    crowded_model(|home| {
        let tasks = [home.spawn(after(|| {})), home.spawn(after(|| {}))];
        home.block_on(async {
            for task in tasks {
                task.await.unwrap();
            }
        });
    });
}

#[test]
fn a_task_and_the_main_future_are_woken_from_two_threads() {
    crowded_model(|home| {
        let task = home.spawn(after(|| {}));
        home.block_on(join(task, after(|| {}))).0.unwrap();
    });
}

#[test]
fn a_task_is_woken_from_the_thread_of_another_worker() {
    model(|home| {
        let task = home.spawn(after(|| Neighbour(Home::new())));
        home.block_on(task).unwrap();
    });
}

/// A worker on a thread that wakes a task of another.
struct Neighbour(Home);

impl Drop for Neighbour {
    fn drop(&mut self) {
        let strangers = self.0.worker.executor.has_ready();
        self.0.shut_down();
        assert!(!strangers, "a worker has taken a task of another one");
    }
}
