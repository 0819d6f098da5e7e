//! The bounds of a turn, without a worker around them.

use std::time::{Duration, Instant};

use super::*;

/// An executor with more tasks than a turn polls.
fn crowded(timed: bool) -> Rc<Executor> {
    let executor = Executor::new(Arc::new(Remote::new(|| {})), timed);
    for _ in 0..2 * MAX_POLLS {
        drop(executor.spawn(async {}));
    }
    executor
}

/// One turn; how many tasks were polled, each after `work`.
fn turn(executor: &Executor, work: impl Fn()) -> u64 {
    let (polled, left) = (executor.polls(), executor.ready());
    executor.run(&work, |runnable| {
        runnable.run();
    });
    let polled = executor.polls() - polled;
    assert_eq!(executor.ready() as u64, left as u64 - polled);
    polled
}

/// What a long poll does.
fn compute(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[test]
fn a_turn_polls_so_many_tasks_and_leaves_the_rest() {
    let executor = crowded(false);
    assert_eq!(turn(&executor, || {}), u64::from(MAX_POLLS));
    assert_eq!(
        turn(&executor, || compute(MAX_RUN)),
        u64::from(MAX_POLLS),
        "not timed"
    );
    assert_eq!((turn(&executor, || {}), executor.tasks()), (0, 0));
}

#[test]
fn a_turn_of_long_polls_ends_at_the_second_look_at_the_clock() {
    let executor = crowded(true);
    let looks = u64::from(POLLS_PER_CLOCK_READ);
    for _ in 0..2 {
        let polled = turn(&executor, || compute(MAX_RUN));
        // At the first one, if the system has stopped the thread just there.
        assert!(polled == looks || polled == 2 * looks, "{polled} polls");
    }
    executor.close();
    assert_eq!((executor.ready(), executor.tasks()), (0, 0));
}

#[test]
fn a_turn_of_short_polls_goes_on_for_all_of_them() {
    // More often than not: the system may stop the thread for as long as a turn lasts.
    let polled = (0..100).map(|_| {
        let executor = crowded(true);
        let polled = turn(&executor, || {});
        executor.close();
        polled
    });
    assert_eq!(polled.max(), Some(u64::from(MAX_POLLS)));
}

#[test]
fn a_task_takes_few_bytes_beside_its_future() {
    // Of each there is one for every connection that a server holds.
    assert_eq!(size_of::<Option<Alive>>(), 24);
    assert_eq!(size_of::<Tracked<[u64; 4]>>(), 16 + 32);
}

#[test]
fn an_abort_by_a_name_that_is_out_of_date_reaches_nobody() {
    let executor = Executor::new(Arc::new(Remote::new(|| {})), false);
    let (first, old) = executor.enlist(Waker::noop().clone());
    drop(first);
    let (second, new) = executor.enlist(Waker::noop().clone());
    assert_eq!((old.key, second.key), (new.key, new.key), "the same place");
    executor.abort(old);
    assert!(!second.is_doomed());
    executor.abort(new);
    assert!(second.is_doomed());
    executor.abort(new);
    drop(second);
    let (third, _) = executor.enlist(Waker::noop().clone());
    assert!(!third.is_doomed(), "the mark outlived its task");
    assert_eq!(executor.dooms.get(), 0);
}
