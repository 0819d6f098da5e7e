//! The public free functions of the current worker.

use std::future::Future;

use crate::reactor::probe::{self, Features};
use crate::{JoinHandle, context};

/// Starts a task on this worker. It runs beside its spawner, on the same thread, so it need not be `Send`.
///
/// It makes its first step when the spawner next awaits. A panic of the task ends that task alone and is the
/// handle's error.
///
/// # Panics
///
/// Outside a runtime.
///
/// # Examples
///
/// ```
/// use std::{cell::Cell, rc::Rc};
///
/// # runtime::Builder::new().build()?.block_on(async {
/// let shared = Rc::new(Cell::new(0)); // no Send, no Mutex
/// let task = runtime::spawn({
///     let shared = Rc::clone(&shared);
///     async move { shared.set(shared.get() + 1) }
/// });
/// task.await?;
/// assert_eq!(shared.get(), 1);
/// # Ok::<_, std::io::Error>(()) })?;
/// # Ok::<_, std::io::Error>(())
/// ```
#[track_caller]
pub fn spawn<F: Future + 'static>(future: F) -> JoinHandle<F::Output> {
    context::worker().executor.spawn(future)
}

/// What the current worker makes use of; outside a runtime, what the self-tests of this process have found.
///
/// # Panics
///
/// Outside a runtime, if io_uring cannot be used and no runtime was built yet.
///
/// # Examples
///
/// See [`Features`].
#[track_caller]
pub fn features() -> &'static Features {
    if let Some(features) = context::try_with(|worker| worker.reactor.features()) {
        return features;
    }
    match (probe::findings(), probe::fallen_back()) {
        (Ok(findings), _) => &findings.features,
        (Err(_), Some(features)) => features,
        (Err(error), None) => panic!("there are no features before a runtime is built: {error}"),
    }
}
