//! The start of workers: when they are needed, and what if they cannot be had.

use std::future::pending;
use std::thread;

use runtime::{Backend, Builder, Handle};
use support::{Child, Parent, open_fds};

use crate::{alone, build, no_threads, threads};

#[test]
fn a_worker_starts_when_something_is_first_sent_to_it() {
    let _alone = alone("lazy starts");
    let fds_before = open_fds();
    let runtime = Builder::new().workers(64).name("lazy").build().unwrap();
    let of_one = open_fds() - fds_before;
    assert_eq!(threads("lazy"), 0);
    runtime.block_on(async {
        let handle = Handle::current();
        assert_eq!(handle.workers(), 64);
        assert!(handle.is_started(0));
        runtime::spawn(async {}).await.unwrap();
        assert!((1..64).all(|worker| !handle.is_started(worker)));
        runtime::spawn_on(40, || async {}).await.unwrap();
        let started: Vec<_> = (0..64)
            .filter(|worker| handle.is_started(*worker))
            .collect();
        assert_eq!(started, [0, 40]);
        assert_eq!(threads("lazy-40"), 1);
        assert_eq!(threads("lazy"), 1);
        assert_eq!(open_fds(), fds_before + 2 * of_one);
    });
    drop(runtime);
    no_threads("lazy");
    assert_eq!(open_fds(), fds_before);
}

#[test]
fn workers_have_the_name_and_the_stack_that_was_asked_for() {
    let _alone = alone("names and stacks");
    let runtime = Builder::new()
        .workers(2)
        .name("web")
        .stack_size(64 << 20)
        .build()
        .unwrap();
    let name = runtime.block_on(async {
        let task = runtime::spawn_on(1, || async {
            deep(4 << 10);
            thread::current().name().map(str::to_owned)
        });
        task.await.unwrap()
    });
    assert_eq!(name.as_deref(), Some("web-1"));
}

/// Uses a KiB of stack for each step: more than a thread has by default.
fn deep(steps: usize) -> u8 {
    let frame = std::hint::black_box([steps as u8; 1024]);
    match steps {
        0 => frame[0],
        _ => deep(steps - 1).wrapping_add(frame[1]),
    }
}

#[test]
fn options_that_cannot_be_met_are_named() {
    let cases = [
        (
            Builder::new().workers(0),
            "Builder::workers must be at least 1",
        ),
        (
            Builder::new().workers(1 << 20),
            "Builder::workers must be at most 4096",
        ),
        (
            Builder::new().pin(Vec::new()),
            "Builder::pin needs at least one CPU to pin to",
        ),
        (
            Builder::new().name("a\0b"),
            "Builder::name must not contain a zero byte",
        ),
    ];
    for (builder, message) in cases {
        assert_eq!(builder.build().unwrap_err().to_string(), message);
    }
}

/// A worker that cannot be had is the error of the tasks that were sent to it. Later ones try again.
#[test]
fn a_worker_that_cannot_start_is_an_error_of_its_tasks_alone() {
    const NAME: &str = "start::a_worker_that_cannot_start_is_an_error_of_its_tasks_alone";
    let Some(_parent) = Parent::in_child(NAME) else {
        let _alone = alone("a worker that cannot start");
        return Child::start(NAME).finish();
    };
    let runtime = build(3);
    runtime.block_on(async {
        // The eventfd, and nothing for the ring or the epoll.
        support::leave_fd_room(1);
        let tasks = [0; 2].map(|_| runtime::spawn_on(1, pending::<()>));
        for task in tasks {
            let error = task.await.unwrap_err();
            assert!(error.is_cancelled() && !error.is_panic());
            assert!(
                error.to_string().contains("no file descriptor is left"),
                "{error}"
            );
        }
        assert_eq!(runtime::spawn(async { 1 }).await.unwrap(), 1);
        support::raise_fd_limit();
        assert_eq!(runtime::spawn_on(1, || async { 2 }).await.unwrap(), 2);
        assert_eq!(runtime::spawn_on(2, || async { 3 }).await.unwrap(), 3);
    });
}

#[test]
fn many_workers_start_at_once() {
    let _alone = alone("64 workers");
    let fds_before = open_fds();
    for backend in [Backend::Auto, Backend::Epoll] {
        let runtime = Builder::new().workers(64).backend(backend).build().unwrap();
        runtime.block_on(async {
            let tasks = runtime::spawn_on_each(|worker| async move { worker });
            let answers = futures::future::try_join_all(tasks).await.unwrap();
            assert!(answers.into_iter().eq(0..64));
        });
    }
    assert_eq!(open_fds(), fds_before);
}

/// Threads that compete for the start of one worker start one.
#[test]
fn a_worker_is_started_once() {
    let _alone = alone("starts that compete");
    for _ in 0..50 {
        let runtime = Builder::new().workers(2).name("once").build().unwrap();
        let handle = runtime.handle();
        let homes: Vec<_> = thread::scope(|scope| {
            let spawn = || handle.spawn_on(1, || async { thread::current().id() });
            let spawning: Vec<_> = (0..4).map(|_| scope.spawn(spawn)).collect();
            let tasks = spawning.into_iter().map(|thread| thread.join().unwrap());
            tasks
                .map(|task| futures::executor::block_on(task).unwrap())
                .collect()
        });
        assert_eq!(threads("once"), 1);
        assert!(homes.iter().all(|home| *home == homes[0]));
        drop(runtime);
        no_threads("once");
    }
}
