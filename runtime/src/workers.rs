//! The workers of one runtime: how they start, how they are reached, how they end. Glue, no algorithms.
//!
//! Worker 0 is the thread that built the runtime. Every other one has a thread of its own, started when something is
//! first sent to it.

use std::future::Future;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crate::builder::Builder;
use crate::context;
use crate::cpus::Allowed;
use crate::error::{BuildError, Cause};
use crate::executor::{self, JoinHandle, Remote};
use crate::metrics::Published;
use crate::reactor::driver::home::Home;
use crate::reactor::op::wake::Bell;
use crate::reactor::{FORKED, Reactor};
use crate::time::Source;
use crate::watch::Scene;
use crate::worker::Worker;

/// What every thread may know of a runtime. It outlives the runtime for as long as somebody has a handle.
pub(crate) struct Crew {
    builder: Builder,
    /// The CPUs that the runtime's threads share.
    allowed: Allowed,
    seats: Box<[Seat]>,
    /// No worker is started any more.
    closing: AtomicBool,
    /// When the workers give up what is left to send.
    drained: Mutex<Option<Instant>>,
    /// A forked child has none of the threads, and must not wait for what one of them has locked.
    home: Home,
    /// Threads of workers.
    running: Mutex<usize>,
    ended: Condvar,
}

/// The place of one worker, there before and after the worker itself. On cache lines of its own, as its worker writes to
/// them in every turn, and so is what it counts.
#[repr(align(128))]
struct Seat {
    remote: Arc<Remote>,
    /// Made when the worker starts.
    bell: Arc<OnceLock<Arc<Bell>>>,
    thread: Mutex<Thread>,
    /// Spares the lock once it is. Worker 0 always is.
    started: AtomicBool,
    stop: Stop,
    metrics: Arc<Published>,
    scene: Scene,
}

enum Thread {
    /// Never started, or the start has failed: there are no tasks.
    Vacant,
    Running(thread::JoinHandle<()>),
    /// Joined, or given up. What is in the inbox is its own to drop.
    Over,
}

impl Crew {
    pub(crate) fn new(builder: &Builder) -> Arc<Self> {
        Arc::new(Self {
            builder: builder.clone(),
            allowed: Allowed::of_this_thread(),
            seats: (0..builder.worker_count()).map(|_| Seat::new()).collect(),
            closing: AtomicBool::new(false),
            drained: Mutex::default(),
            home: Home::here(),
            running: Mutex::new(0),
            ended: Condvar::new(),
        })
    }

    /// Makes a worker for the calling thread.
    pub(crate) fn start_here(self: &Arc<Self>, worker: usize) -> Result<Rc<Worker>, BuildError> {
        let bell = self.bell(worker)?;
        let cpu = self.builder.pinning().pin(worker, &self.allowed);
        let reactor = self.builder.reactor(&bell)?;
        if self.count() > 1 || cpu.is_some() {
            tracing::info!(worker, of = self.count(), ?cpu, cpus = %self.allowed, "a worker has started");
        }
        Ok(self.seat_with(worker, reactor, Source::Real))
    }

    /// Gives a seat to a worker with this reactor.
    pub(crate) fn seat_with(
        self: &Arc<Self>,
        worker: usize,
        reactor: Rc<Reactor>,
        clock: Source,
    ) -> Rc<Worker> {
        let seat = self.seat(worker);
        seat.started.store(true, Ordering::Release);
        Worker::new(
            worker,
            Arc::clone(self),
            reactor,
            Arc::clone(&seat.remote),
            clock,
        )
    }

    /// The bell of a worker, made at the first attempt to start it.
    pub(crate) fn bell(&self, worker: usize) -> Result<Arc<Bell>, BuildError> {
        let seat = self.seat(worker);
        if let Some(bell) = seat.bell.get() {
            return Ok(Arc::clone(bell));
        }
        let bell = Bell::new().map_err(|error| BuildError::new(Cause::Descriptors, error))?;
        Ok(Arc::clone(seat.bell.get_or_init(|| bell)))
    }

    /// Whether this is the process that the runtime was built in.
    pub(crate) fn is_at_home(&self) -> bool {
        self.home.is_here()
    }

    pub(crate) fn count(&self) -> usize {
        self.seats.len()
    }

    /// Whether the worker has been started.
    pub(crate) fn is_started(&self, worker: usize) -> bool {
        self.seat(worker).started.load(Ordering::Acquire)
    }

    #[track_caller]
    pub(crate) fn metrics(&self, worker: usize) -> &Arc<Published> {
        &self.seat(worker).metrics
    }

    pub(crate) fn scene(&self, worker: usize) -> &Scene {
        &self.seat(worker).scene
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn name(&self) -> &str {
        self.builder.name_prefix()
    }

    pub(crate) fn slow_poll_threshold(&self) -> Option<Duration> {
        self.builder.slow_poll()
    }

    /// How long a worker looks for news before it sleeps.
    pub(crate) fn spin(&self) -> Duration {
        self.builder.spin_limit()
    }

    /// The CPUs that the runtime's threads share, if each worker keeps to one of them.
    pub(crate) fn allowed_if_pinned(&self) -> Option<&Allowed> {
        self.builder.pinning().is_on().then_some(&self.allowed)
    }

    /// Starts a task on any worker. The worker is started if it is not there yet.
    #[track_caller]
    pub(crate) fn spawn_on<C, F>(
        self: &Arc<Self>,
        worker: usize,
        closure: C,
    ) -> JoinHandle<F::Output>
    where
        C: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        assert!(self.is_at_home(), "{FORKED}");
        let seat = self.seat(worker);
        if !seat.started.load(Ordering::Acquire) {
            self.start(worker);
        }
        executor::spawn_on(&seat.remote, closure)
    }

    #[track_caller]
    fn seat(&self, worker: usize) -> &Seat {
        let count = self.count();
        match self.seats.get(worker) {
            Some(seat) => seat,
            None => panic!(
                "there is no worker {worker}: this runtime has {count}, and the first is worker 0"
            ),
        }
    }

    // ---- the start of a worker ----

    fn start(self: &Arc<Self>, worker: usize) {
        let seat = self.seat(worker);
        let mut thread = lock(&seat.thread);
        if !matches!(*thread, Thread::Vacant) {
            return;
        }
        if self.closing.load(Ordering::SeqCst) {
            return seat.remote.close();
        }
        seat.remote.reopen();
        let crew = Arc::clone(self);
        *lock(&self.running) += 1;
        match self.builder.thread(worker).spawn(move || crew.run(worker)) {
            Ok(handle) => {
                *thread = Thread::Running(handle);
                seat.started.store(true, Ordering::Release);
            }
            Err(error) => {
                self.one_has_ended();
                let error = BuildError::new(Cause::Other("no thread could be started"), error);
                self.refuse(worker, &error);
            }
        }
    }

    /// A worker cannot be had. Its seat must be vacant, so that the next task for it tries again.
    fn refuse(&self, worker: usize, error: &BuildError) {
        tracing::error!(worker, %error, "a worker could not be started, so its tasks are dropped");
        (self.seat(worker).remote).refuse(error.to_string().into());
    }

    /// The whole life of a worker, on its own thread.
    fn run(self: Arc<Self>, worker: usize) {
        let seat = self.seat(worker);
        match self.start_here(worker) {
            Ok(made) => self.work(&made),
            Err(error) => {
                let mut thread = lock(&seat.thread);
                seat.started.store(false, Ordering::Release);
                *thread = Thread::Vacant;
                self.refuse(worker, &error);
            }
        }
        self.one_has_ended();
    }

    fn work(&self, worker: &Rc<Worker>) {
        let seat = self.seat(worker.index);
        let turns = || {
            let _entered = context::enter(Rc::clone(worker));
            worker.block_on(pin!(seat.stop.asked()));
            worker.shut_down(*lock(&self.drained));
        };
        let Err(panic) = catch_unwind(AssertUnwindSafe(turns)) else {
            return;
        };
        // Only the kernel can have done that, by refusing a ring that worked before. Nothing can complete any more:
        // tasks get their end all the same, and what the kernel may still write to is leaked.
        let what = executor::panic_message(panic.as_ref());
        tracing::error!(
            worker = worker.index,
            what,
            "a worker has failed, so its tasks are dropped"
        );
        let end = || {
            let _entered = context::enter(Rc::clone(worker));
            worker.executor.close();
        };
        if catch_unwind(AssertUnwindSafe(end)).is_err() {
            tracing::error!(worker = worker.index, "its tasks could not be dropped");
        }
        mem::forget(Rc::clone(worker));
        seat.remote.refuse(format!("it has failed: {what}").into());
    }

    // ---- the end ----

    /// Tells all workers with threads of their own to end. No worker is started from now on.
    pub(crate) fn ask_to_stop(&self, drained: Option<Instant>) {
        *lock(&self.drained) = drained;
        self.closing.store(true, Ordering::SeqCst);
        for seat in self.seats.iter().skip(1) {
            // A start that is going on ends first, and is told then.
            match *lock(&seat.thread) {
                Thread::Vacant => seat.remote.close(),
                Thread::Running(_) => seat.stop.ask(),
                Thread::Over => {}
            }
        }
    }

    /// Waits for the threads. Returns the workers that did not end in time; their threads are left alone.
    pub(crate) fn join(&self, deadline: Option<Instant>) -> Vec<usize> {
        let all_ended = self.wait_for_ends(deadline);
        let mut late = Vec::new();
        for (worker, seat) in self.seats.iter().enumerate() {
            let thread = mem::replace(&mut *lock(&seat.thread), Thread::Over);
            match thread {
                Thread::Running(handle) if all_ended || handle.is_finished() => {
                    if handle.join().is_err() {
                        tracing::error!(worker, "the thread of a worker has panicked");
                    }
                }
                Thread::Running(_) => late.push(worker),
                Thread::Vacant | Thread::Over => {}
            }
        }
        late
    }

    fn wait_for_ends(&self, deadline: Option<Instant>) -> bool {
        let mut running = lock(&self.running);
        while *running > 0 {
            running = match deadline {
                None => (self.ended.wait(running)).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return false;
                    }
                    let waited = self.ended.wait_timeout(running, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        true
    }

    fn one_has_ended(&self) {
        *lock(&self.running) -= 1;
        self.ended.notify_all();
    }
}

impl Seat {
    fn new() -> Self {
        let bell: Arc<OnceLock<Arc<Bell>>> = Arc::default();
        let metrics = Arc::<Published>::default();
        let (rung, noted) = (Arc::clone(&bell), Arc::clone(&metrics));
        Self {
            // A worker that was never started does not sleep, so nobody rings for it.
            remote: Arc::new(Remote::new(move || {
                if let Some(bell) = rung.get() {
                    noted.note_call();
                    bell.ring();
                }
            })),
            bell,
            thread: Mutex::new(Thread::Vacant),
            started: AtomicBool::new(false),
            stop: Stop::default(),
            metrics,
            scene: Scene::default(),
        }
    }
}

/// What a worker's thread waits for.
#[derive(Default)]
struct Stop {
    asked: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Stop {
    fn ask(&self) {
        self.asked.store(true, Ordering::SeqCst);
        let waker = lock(&self.waker).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn asked(&self) -> impl Future<Output = ()> {
        std::future::poll_fn(|cx: &mut Context<'_>| {
            // Registered before it is looked at: who asks does it the other way round.
            *lock(&self.waker) = Some(cx.waker().clone());
            if self.asked.load(Ordering::SeqCst) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No critical section here can panic half-way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
