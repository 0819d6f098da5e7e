//! The public free functions of the current worker.

use std::future::Future;

use crate::reactor::probe::{self, Features};
use crate::{Handle, JoinHandle, context};

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
///
/// A span of `tracing` does not follow into a task by itself. [`Instrument`](tracing::Instrument) takes it along: it is
/// entered for each poll of the task, and left before another task has its turn. What goes to another worker, or to
/// [`spawn_blocking`](crate::spawn_blocking), takes the span itself along:
///
/// ```
/// use tracing::{Instrument, Span, info, info_span};
///
/// # runtime::Builder::new().workers(2).build()?.block_on(async {
/// let request = async {
///     let query = async { info!("in the span of the request") };
///     runtime::spawn(query.in_current_span()).await?;
///
///     let span = Span::current(); // asked for here: on the other worker it is another one
///     let log = move || async { info!("in it as well") }.instrument(span);
///     runtime::spawn_on(1, log).await
/// };
/// request.instrument(info_span!("request", id = 7)).await?;
/// # Ok::<_, std::io::Error>(()) })?;
/// # Ok::<_, std::io::Error>(())
/// ```
#[track_caller]
pub fn spawn<F: Future + 'static>(future: F) -> JoinHandle<F::Output> {
    context::worker().executor.spawn(future)
}

/// Starts a task on another worker of this runtime, or on this one: [`Handle::spawn_on`].
///
/// # Panics
///
/// Outside a runtime, and if there is no such worker.
///
/// # Examples
///
/// ```
/// # runtime::Builder::new().workers(2).build()?.block_on(async {
/// let task = runtime::spawn_on(1, || async { runtime::worker() });
/// assert_eq!(task.await?, 1);
/// # Ok::<_, std::io::Error>(()) })?;
/// # Ok::<_, std::io::Error>(())
/// ```
#[track_caller]
pub fn spawn_on<C, F>(worker: usize, f: C) -> JoinHandle<F::Output>
where
    C: FnOnce() -> F + Send + 'static,
    F: Future + 'static,
    F::Output: Send + 'static,
{
    context::worker().crew.spawn_on(worker, f)
}

/// Starts a task on every worker of this runtime: [`Handle::spawn_on_each`].
///
/// # Panics
///
/// Outside a runtime.
///
/// # Examples
///
/// ```
/// # runtime::Builder::new().workers(2).build()?.block_on(async {
/// for (worker, task) in runtime::spawn_on_each(|worker| async move { worker }).into_iter().enumerate() {
///     assert_eq!(task.await?, worker);
/// }
/// # Ok::<_, std::io::Error>(()) })?;
/// # Ok::<_, std::io::Error>(())
/// ```
#[track_caller]
pub fn spawn_on_each<C, F>(f: C) -> Vec<JoinHandle<F::Output>>
where
    C: FnOnce(usize) -> F + Clone + Send + 'static,
    F: Future + 'static,
    F::Output: Send + 'static,
{
    Handle::current().spawn_on_each(f)
}

/// The number of this worker. The thread of [`Runtime::block_on`](crate::Runtime::block_on) is worker 0.
///
/// # Panics
///
/// Outside a runtime.
///
/// # Examples
///
/// See [`spawn_on`].
#[track_caller]
pub fn worker() -> usize {
    context::worker().index
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
