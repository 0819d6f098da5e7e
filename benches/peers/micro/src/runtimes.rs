//! The runtimes, with all of their drivers on, as a server has them.

use std::future::Future;
use std::time::Duration;

/// What a program needs of a runtime. All but `new` and `block_on` are called inside `block_on`.
pub trait Runtime: 'static {
    fn new() -> Self;

    fn block_on<F: Future>(&self, future: F) -> F::Output;

    /// Dropping what it returns detaches the task.
    fn spawn<F>(future: F) -> impl Future<Output = ()> + Send + 'static
    where
        F: Future<Output = ()> + Send + 'static;

    /// On another thread than that of `block_on`, if there is one.
    fn spawn_elsewhere<F>(future: F) -> impl Future<Output = ()> + Send + 'static
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::spawn(future)
    }

    fn yield_now() -> impl Future<Output = ()> + Send;

    fn sleep(duration: Duration) -> impl Future<Output = ()>;
}

pub struct Ringshot(runtime::Runtime);

impl Runtime for Ringshot {
    fn new() -> Self {
        // The second worker starts when something is sent to it.
        Self(runtime::Builder::new().workers(2).build().expect(RUNS))
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.0.block_on(future)
    }

    fn spawn<F>(future: F) -> impl Future<Output = ()> + Send + 'static
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let task = runtime::spawn(future);
        async { task.await.expect(ENDS) }
    }

    fn spawn_elsewhere<F>(future: F) -> impl Future<Output = ()> + Send + 'static
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let task = runtime::spawn_on(1, move || future);
        async { task.await.expect(ENDS) }
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        runtime::yield_now()
    }

    fn sleep(duration: Duration) -> impl Future<Output = ()> {
        runtime::time::sleep(duration)
    }
}

pub struct TokioCurrent(tokio::runtime::Runtime);

impl Runtime for TokioCurrent {
    fn new() -> Self {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        Self(builder.enable_all().build().expect(RUNS))
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.0.block_on(future)
    }

    fn spawn<F>(future: F) -> impl Future<Output = ()> + Send + 'static
    where
        F: Future<Output = ()> + Send + 'static,
    {
        tokio_spawn(future)
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        tokio::task::yield_now()
    }

    fn sleep(duration: Duration) -> impl Future<Output = ()> {
        tokio::time::sleep(duration)
    }
}

/// `block_on` is a thread beside its one worker.
pub struct TokioMulti(tokio::runtime::Runtime);

impl Runtime for TokioMulti {
    fn new() -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let builder = builder.worker_threads(1).enable_all();
        Self(builder.build().expect(RUNS))
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.0.block_on(future)
    }

    fn spawn<F>(future: F) -> impl Future<Output = ()> + Send + 'static
    where
        F: Future<Output = ()> + Send + 'static,
    {
        tokio_spawn(future)
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        tokio::task::yield_now()
    }

    fn sleep(duration: Duration) -> impl Future<Output = ()> {
        tokio::time::sleep(duration)
    }
}

fn tokio_spawn<F>(future: F) -> impl Future<Output = ()> + Send + 'static
where
    F: Future<Output = ()> + Send + 'static,
{
    let task = tokio::spawn(future);
    async { task.await.expect(ENDS) }
}

const RUNS: &str = "a runtime can be made here";
const ENDS: &str = "the task does not panic";
