//! [`Handle`]: a runtime, as any thread may know it.

use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use crate::workers::Crew;
use crate::{JoinHandle, Metrics, context};

/// A runtime that may be reached from any thread, also after it has ended.
///
/// # Examples
///
/// A thread that is no worker starts a task, and waits for it with any executor:
///
/// ```
/// let runtime = runtime::Builder::new().workers(2).build()?;
/// let handle = runtime.handle();
/// let answer = std::thread::spawn(move || {
///     let task = handle.spawn_on(1, || async { 6 * 7 });
///     futures::executor::block_on(task)
/// });
/// assert_eq!(answer.join().unwrap()?, 42);
/// # Ok::<_, std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Handle(Arc<Crew>);

impl Handle {
    pub(crate) fn new(crew: &Arc<Crew>) -> Self {
        Self(Arc::clone(crew))
    }

    /// The runtime of the current thread.
    ///
    /// # Panics
    ///
    /// Outside a runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// # runtime::Builder::new().build()?.block_on(async {
    /// assert_eq!(runtime::Handle::current().workers(), 1);
    /// # });
    /// # Ok::<_, runtime::BuildError>(())
    /// ```
    #[track_caller]
    pub fn current() -> Self {
        Self::new(&context::worker().crew)
    }

    /// The runtime of the current thread, if it has one.
    pub fn try_current() -> Option<Self> {
        context::try_with(|worker| Self::new(&worker.crew))
    }

    /// How many workers there are, those included that have not been started.
    pub fn workers(&self) -> usize {
        self.0.count()
    }

    /// Whether the worker has been started. Worker 0 is from the beginning, every other one when something is first
    /// sent to it.
    ///
    /// # Panics
    ///
    /// If there is no such worker.
    #[track_caller]
    pub fn is_started(&self, worker: usize) -> bool {
        self.0.is_started(worker)
    }

    /// Starts a task on a worker of choice: `f` is called there, and the future that it returns stays there. So `f`
    /// must be `Send`, and the future need not be.
    ///
    /// Worker 0 is the thread of [`Runtime::block_on`](crate::Runtime::block_on), and runs tasks while that does. The
    /// other workers run on threads of their own, which start when they are first needed.
    ///
    /// A panic of `f` or of the future is the handle's error. So is the failure to start the worker. When the runtime
    /// has ended, `f` is dropped and awaiting the handle gives a [`JoinError`](crate::JoinError) that says so.
    ///
    /// # Panics
    ///
    /// If there is no such worker; and in a forked child of the process that built the runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::{cell::RefCell, rc::Rc};
    ///
    /// # let runtime = runtime::Builder::new().workers(2).build()?;
    /// # runtime.block_on(async {
    /// let task = runtime::Handle::current().spawn_on(1, || async {
    ///     let log = Rc::new(RefCell::new(Vec::new())); // never leaves worker 1
    ///     log.borrow_mut().push(runtime::worker());
    ///     log.take()
    /// });
    /// assert_eq!(task.await?, [1]);
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn_on<C, F>(&self, worker: usize, f: C) -> JoinHandle<F::Output>
    where
        C: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        self.0.spawn_on(worker, f)
    }

    /// Starts a task on every worker. Each gets a clone of `f`, which is called there with the number of the worker.
    /// The handles come in the order of the workers.
    ///
    /// # Examples
    ///
    /// ```
    /// # let runtime = runtime::Builder::new().workers(2).build()?;
    /// # runtime.block_on(async {
    /// for task in runtime::Handle::current().spawn_on_each(|worker| async move { worker * 10 }) {
    ///     println!("{}", task.await?);
    /// }
    /// # Ok::<_, std::io::Error>(()) })?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn_on_each<C, F>(&self, f: C) -> Vec<JoinHandle<F::Output>>
    where
        C: FnOnce(usize) -> F + Clone + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        // No closure spawns, as it would not pass on who calls.
        let mut tasks = Vec::with_capacity(self.workers());
        for worker in 0..self.workers() {
            let f = f.clone();
            tasks.push(self.spawn_on(worker, move || f(worker)));
        }
        tasks
    }

    /// What a worker has counted since its start, and what it holds; all zero if it has not been started.
    ///
    /// Reading it does not disturb the worker, and works for one that is blocked. Times are those of the call; counters
    /// those of the worker's last turn, so they are exact while it sleeps. Each number is right for itself; a worker that
    /// is at work may be one number ahead of another.
    ///
    /// # Panics
    ///
    /// If there is no such worker.
    ///
    /// # Examples
    ///
    /// ```
    /// # let runtime = runtime::Builder::new().workers(2).build()?;
    /// let handle = runtime.handle();
    /// for worker in 0..handle.workers() {
    ///     let metrics = handle.metrics(worker);
    ///     println!("worker {worker}: {} tasks, {:.0} % busy", metrics.tasks, metrics.busy_ratio() * 100.0);
    /// }
    /// # Ok::<_, runtime::BuildError>(())
    /// ```
    #[track_caller]
    pub fn metrics(&self, worker: usize) -> Metrics {
        self.0.metrics(worker).load()
    }

    /// The [name](crate::Builder::name) of the runtime.
    #[cfg(feature = "metrics")]
    pub(crate) fn name(&self) -> &str {
        self.0.name()
    }

    /// Begins the end of the runtime, from any thread: no task is started any more, and every worker drops its tasks,
    /// each on the thread that it lives on. Returns at once.
    ///
    /// The future of [`Runtime::block_on`](crate::Runtime::block_on) is not a task: it runs on, and sockets on its
    /// thread go on working. So it can say goodbye before it returns.
    ///
    /// # Examples
    ///
    /// ```
    /// # let runtime = runtime::Builder::new().workers(2).build()?;
    /// # runtime.block_on(async {
    /// let task = runtime::spawn_on(1, std::future::pending::<()>);
    /// runtime::Handle::current().shutdown();
    /// assert!(task.await.unwrap_err().is_cancelled());
    /// # });
    /// # Ok::<_, runtime::BuildError>(())
    /// ```
    pub fn shutdown(&self) {
        if !self.0.is_at_home() {
            return; // a forked child ends nothing of its parent's
        }
        // By a task, as only the worker itself may touch its tasks.
        drop(self.0.spawn_on(0, || async {
            if let Some(worker) = context::try_with(Rc::clone) {
                worker.executor.begin_close();
            }
        }));
        self.0.ask_to_stop(None);
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("workers", &self.workers())
            .finish_non_exhaustive()
    }
}
