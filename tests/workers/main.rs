//! Many workers in one runtime: how they start, what crosses between them, and how they end.

mod cpus;
mod crossing;
mod end;
mod idle;
mod spin;
mod start;
mod wakes;

use std::time::Duration;

use runtime::{Builder, Runtime};
use support::Alone;

fn alone(what: &str) -> Alone {
    support::alone(what, Duration::from_secs(60))
}

fn build(workers: usize) -> Runtime {
    Builder::new().workers(workers).build().unwrap()
}

/// Threads of this process whose name starts with `prefix`.
fn threads(prefix: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    // A thread may end while we look at it.
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with(prefix)).count()
}

/// A thread that was joined may be seen for a moment more.
fn no_threads(prefix: &str) {
    support::eventually("threads", 0, || threads(prefix));
}
