//! The runtimes, with all of their drivers on, as a server has them.

use std::future::Future;
use std::time::Duration;

use runtime::{Builder, Pinning};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

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
        // The second worker starts when something is sent to it. Two threads that share a CPU talk to each other in a
        // fifth of the time, and whether they do is the scheduler's mood; so here and below each has its own.
        let mut builder = Builder::new().workers(2);
        builder = builder.pin(Pinning::PerCore);
        Self(builder.build().expect(RUNS))
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

/// `block_on` is a thread beside its one worker; each on a CPU of its own.
pub struct TokioMulti {
    runtime: tokio::runtime::Runtime,
    /// Those of the thread that it was made on.
    cpus: CpuSet,
}

impl Runtime for TokioMulti {
    fn new() -> Self {
        let cpus = sched_getaffinity(None).expect(CPUS);
        let mut two = (0..CpuSet::MAX_CPU).filter(|&cpu| cpus.is_set(cpu)).cycle();
        let [here, there] = [(); 2].map(|()| two.next().expect(CPUS));
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all();
        builder.on_thread_start(move || keep_to(there));
        let runtime = builder.build().expect(RUNS);
        keep_to(here);
        Self { runtime, cpus }
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
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

impl Drop for TokioMulti {
    fn drop(&mut self) {
        sched_setaffinity(None, &self.cpus).expect(CPUS);
    }
}

fn keep_to(cpu: usize) {
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).expect(CPUS);
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
const CPUS: &str = "the CPUs of this process are ours";
