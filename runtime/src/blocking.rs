//! [`spawn_blocking`].

use std::cell::Cell;
use std::sync::Arc;

use crate::{JoinHandle, context};

/// Runs a function that blocks on a thread made for that, so that it does not hold up this worker.
///
/// Threads are shared by the whole process, started when needed and ended when idle.
///
/// Aborting the handle of a function that has not started yet keeps it from starting; one that runs is not stopped.
///
/// # Panics
///
/// Outside a runtime. A panic of `f` is the handle's error.
///
/// # Examples
///
/// ```
/// # runtime::Builder::new().build()?.block_on(async {
/// let hosts = runtime::spawn_blocking(|| std::fs::read_to_string("/etc/hosts")).await?;
/// # drop(hosts);
/// # Ok::<_, std::io::Error>(()) })?;
/// # Ok::<_, std::io::Error>(())
/// ```
#[track_caller]
pub fn spawn_blocking<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let worker = context::worker();
    let crew = Arc::clone(&worker.crew);
    let f = move || {
        // Threads are started by the workers' threads, and would share their one CPU.
        if let Some(allowed) = crew.allowed_if_pinned()
            && !SPREAD.replace(true)
        {
            allowed.apply();
        }
        drop(crew);
        f()
    };
    worker.executor.spawn(blocking::unblock(f))
}

thread_local! {
    /// Whether this thread may use all the CPUs that the runtime's workers share.
    static SPREAD: Cell<bool> = const { Cell::new(false) };
}
