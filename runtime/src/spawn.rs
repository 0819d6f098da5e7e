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

/// What the self-tests have found at the start of this process's first runtime.
///
/// # Panics
///
/// Before any runtime was built.
///
/// # Examples
///
/// See [`Features`].
#[track_caller]
pub fn features() -> &'static Features {
    match probe::findings() {
        Ok(findings) => &findings.features,
        Err(error) => panic!("no runtime was built yet, and none can be: {error}"),
    }
}
