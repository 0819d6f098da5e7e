//! Workers with nothing to do cost nothing (B15).

use std::thread;
use std::time::Duration;

use runtime::Handle;
use support::{Child, Parent, thread_id, thread_usage};

use crate::{alone, build};

/// How long the workers are watched while they have nothing to do.
const WATCHED: Duration = Duration::from_secs(2);

/// B15. In a process of its own, so that no other test's thread wakes them.
#[test]
fn idle_workers_use_no_time() {
    const NAME: &str = "idle::idle_workers_use_no_time";
    if Parent::in_child(NAME).is_none() {
        let _alone = alone(NAME);
        return Child::start(NAME).finish();
    }
    let runtime = build(4);
    let handle = runtime.handle();
    let ids = runtime.block_on(async {
        let tasks = runtime::spawn_on_each(|_| async { thread_id() });
        futures::future::try_join_all(tasks).await.unwrap()
    });
    // They have all slept, and said so with the turn before.
    let enters = || -> Vec<u64> { (1..4).map(|worker| handle.metrics(worker).enters).collect() };
    let others = &ids[1..];
    let asleep = || others.iter().all(|id| state(*id) == 'S');
    support::eventually("all workers sleep", true, asleep);
    let (enters_before, before) = (enters(), others.iter().map(|id| thread_usage(*id)));
    let before: Vec<_> = before.collect();
    // Doing nothing for a while is what is measured here.
    thread::sleep(WATCHED);
    assert_eq!(enters(), enters_before);
    for (id, before) in others.iter().zip(before) {
        let after = thread_usage(*id);
        assert_eq!(after.sleeps, before.sleeps, "wake-ups with nothing to do");
        assert!(after.cpu_ns - before.cpu_ns < 20_000_000);
    }
    drop(Handle::clone(&handle));
}

fn state(thread: i32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
    // After the name, which may hold anything.
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}
