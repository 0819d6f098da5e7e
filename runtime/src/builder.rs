//! [`Builder`] and [`Runtime`]: options, construction and the order of the end. No algorithms.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::io;
use std::mem;
use std::pin::pin;
use std::rc::Rc;
use std::str::FromStr;
use std::sync::{Arc, Once};
use std::thread;
use std::time::{Duration, Instant};

use crate::context;
use crate::cpus::{Allowed, Pinning, Workers};
use crate::error::{BuildError, Cause, variable};
use crate::handle::Handle;
use crate::reactor::driver::uring::Sizes;
use crate::reactor::op::wake::Bell;
use crate::reactor::pool::{MAX_BUFFER_SIZE, MAX_POOL_SIZE};
use crate::reactor::probe::Disabled;
use crate::reactor::{Limits, Reactor};
use crate::watch::Watchdog;
use crate::worker::Worker;
use crate::workers::Crew;

/// The kernel interface that a runtime uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// The best that works here.
    #[default]
    Auto,
    /// io_uring, or an error that says why not.
    Uring,
    /// epoll. Slower, and there where io_uring is refused or not wanted.
    Epoll,
}

impl Backend {
    /// What the operator says, which counts more than what the program says.
    fn or_environment(self) -> Result<Self, BuildError> {
        let name = variable(BACKEND_VARIABLE);
        if name.is_empty() {
            return Ok(self);
        }
        name.parse()
            .map_err(|error| invalid(format!("{BACKEND_VARIABLE}: {error}")))
    }
}

impl FromStr for Backend {
    type Err = BuildError;

    /// `auto`, `uring` or `epoll`.
    fn from_str(name: &str) -> Result<Self, BuildError> {
        match name {
            "auto" => Ok(Self::Auto),
            "uring" => Ok(Self::Uring),
            "epoll" => Ok(Self::Epoll),
            _ => Err(invalid(format!(
                "there is no backend `{name}`: use `auto`, `uring` or `epoll`"
            ))),
        }
    }
}

/// Options of a [`Runtime`].
///
/// Every option is a bound, with a default that fits a server of many thousand connections. What a worker takes
/// by default: 84 KiB for the ring, 4 KiB for the ring of buffers, and of the 4 MiB of buffers only what is
/// received into. Where locked memory is limited (RLIMIT_MEMLOCK) the rings are made smaller until they fit, and
/// that is logged once, as a warning.
///
/// # Examples
///
/// ```
/// let runtime = runtime::Builder::new()
///     .buffers(64)
///     .buffer_size(4096)
///     .build()?;
/// runtime.block_on(async { /* … */ });
/// # Ok::<_, runtime::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    backend: Backend,
    limits: Limits,
    workers: Workers,
    pinning: Pinning,
    name: String,
    stack_size: Option<usize>,
    slow_poll: Option<Duration>,
    spin: Duration,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// The defaults.
    pub fn new() -> Self {
        Self {
            backend: Backend::Auto,
            limits: Limits {
                sizes: Sizes {
                    submissions: 256,
                    completions: 4096,
                },
                buffers: 256,
                buffer_size: 16 * 1024,
                recv_high_water: 64 * 1024,
                send_high_water: 64 * 1024,
                accept_backlog: 128,
                linger: Duration::from_secs(30),
            },
            workers: Workers::Exactly(1),
            pinning: Pinning::Off,
            name: "ringshot".to_owned(),
            stack_size: None,
            slow_poll: None,
            spin: Duration::ZERO,
        }
    }

    /// How many workers: a number, or [`Workers::PerCore`]. Default: 1. (`#[runtime::main]` asks for one per core.)
    ///
    /// The thread that builds the runtime is worker 0. Each of the others has a thread of its own, which is started
    /// when something is first sent to it ([`spawn_on`](crate::spawn_on)); until then it costs about 1 KiB.
    pub fn workers(mut self, workers: impl Into<Workers>) -> Self {
        self.workers = workers.into();
        self
    }

    /// Which CPU each worker keeps to. Default: [`Pinning::Off`].
    ///
    /// Worker 0 is the thread that builds the runtime; it may move again when the runtime is dropped. Threads that are
    /// started by a pinned worker inherit its one CPU, except those of [`spawn_blocking`](crate::spawn_blocking).
    pub fn pin(mut self, pinning: impl Into<Pinning>) -> Self {
        self.pinning = pinning.into();
        self
    }

    /// What the workers' threads are called: worker 2 is `name-2`. Default: `ringshot`. The system shows 15 bytes.
    ///
    /// Worker 0 keeps the name of the thread that builds the runtime.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Stack of each worker's thread, in bytes. Default: that of the standard library, 2 MiB, of which memory is taken
    /// as it is used. Worker 0 has the stack of the thread that builds the runtime.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Warns of polls that take longer than this: such a task holds up all others of its worker, and all its
    /// connections. Default: off.
    ///
    /// A warning (`tracing`) names the worker, the place where the task was spawned, and the type of its future. One
    /// comes when a poll has ended, at most once a second for each worker, and one while it goes on, from a thread
    /// that looks at all workers: every threshold, but not more often than every 10 ms, nor less often than every
    /// second. [`Metrics::slow_polls`](crate::Metrics::slow_polls), [`Metrics::stalls`](crate::Metrics::stalls) and
    /// [`Metrics::longest_poll`](crate::Metrics::longest_poll) count them.
    ///
    /// With it each poll costs some 100 ns more. The cure is [`spawn_blocking`](crate::spawn_blocking), or
    /// [`yield_now`](crate::yield_now) every now and then.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = runtime::Builder::new()
    ///     .slow_poll_threshold(Duration::from_millis(20))
    ///     .build()?;
    /// runtime.block_on(async {
    ///     let rude = runtime::spawn(async { std::thread::sleep(Duration::from_millis(50)) });
    ///     rude.await.unwrap(); // WARN … a slow poll held its worker up … worker=0 took=50ms spawned_at=src/main.rs:7:16
    ///     assert_eq!(runtime::metrics().slow_polls, 1);
    /// });
    /// # Ok::<_, runtime::BuildError>(())
    /// ```
    pub fn slow_poll_threshold(mut self, threshold: Duration) -> Self {
        self.slow_poll = Some(threshold);
        self
    }

    /// How long a worker with nothing to do looks for news before it sleeps. Default: not at all.
    ///
    /// What comes meanwhile, from a socket or from another thread, is answered without the time that it takes to wake a
    /// thread: some microseconds less for each message of a connection that waits for its answer. The price is the CPU:
    /// a worker that waits uses all of it for that long, so it needs a core of its own ([`pin`](Self::pin)), and on a
    /// machine with one it takes the time from those whom it waits for. On a ring a look is two loads from memory; with
    /// epoll it is a system call.
    ///
    /// Time spent so is not [`awake`](crate::Metrics::awake), but it is [`cpu`](crate::Metrics::cpu). A timer ends it
    /// in time. 50 µs is much; a worker that looks for ever is asked for by [`Duration::MAX`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = runtime::Builder::new()
    ///     .spin(Duration::from_micros(50))
    ///     .build()?;
    /// runtime.block_on(runtime::time::sleep(Duration::from_millis(1)));
    /// # Ok::<_, runtime::BuildError>(())
    /// ```
    pub fn spin(mut self, limit: Duration) -> Self {
        self.spin = limit;
        self
    }

    /// The kernel interface. Default: [`Backend::Auto`].
    ///
    /// The environment variable `RINGSHOT_BACKEND` (`auto`, `uring` or `epoll`) counts more than this option.
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// Entries of the submission queue, rounded up to a power of two. Default: 256; 64 bytes each.
    ///
    /// It bounds a batch, not the operations in flight: a full queue is submitted early.
    pub fn ring_entries(mut self, entries: u32) -> Self {
        self.limits.sizes.submissions = entries;
        self
    }

    /// Entries of the completion queue, rounded up to a power of two, at least those of the submission queue.
    /// Default: 4,096; 16 bytes each.
    ///
    /// When it is full, completions wait in the kernel, and multishot operations must be armed again.
    pub fn completion_entries(mut self, entries: u32) -> Self {
        self.limits.sizes.completions = entries;
        self
    }

    /// Receive buffers that a worker may have, of at most 4 GiB in all. Default: 256. It starts with at most 64 and takes
    /// more when they run short.
    pub fn buffers(mut self, count: u16) -> Self {
        self.limits.buffers = count;
        self
    }

    /// Bytes of each receive buffer, which is the most that one chunk holds. Default: 16 KiB.
    ///
    /// All buffers together are address space; memory is taken as it is received into.
    pub fn buffer_size(mut self, bytes: usize) -> Self {
        self.limits.buffer_size = bytes;
        self
    }

    /// Unread bytes of one socket past which it is paused. Default: 64 KiB.
    pub fn recv_high_water(mut self, bytes: usize) -> Self {
        self.limits.recv_high_water = bytes;
        self
    }

    /// Unsent bytes of one socket past which writes wait. Default: 64 KiB.
    pub fn send_high_water(mut self, bytes: usize) -> Self {
        self.limits.send_high_water = bytes;
        self
    }

    /// Connections that one listener accepts ahead of the program. Default: 128; one descriptor each.
    ///
    /// Past it the accept is stopped. What the kernel has queued for the listener by then may still be delivered, at
    /// most the backlog that it listens with.
    pub fn accept_backlog(mut self, connections: usize) -> Self {
        self.limits.accept_backlog = connections;
        self
    }

    /// How long a peer may take for the unsent bytes of a dropped stream, once they do not go out at once. Default:
    /// 30 s. What is left then is dropped; to be sure that a slow peer gets everything, close the stream and wait.
    ///
    /// It also bounds how long `block_on` waits for them at its end.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.limits.linger = linger;
        self
    }

    /// Makes a runtime for this thread.
    ///
    /// The first one of a process tries what the kernel can do, which takes about a millisecond. Where io_uring
    /// cannot be used, [`Backend::Auto`] falls back to epoll and logs why, once, as a warning.
    ///
    /// # Errors
    ///
    /// When descriptors have run out, an option cannot be met, or [`Backend::Uring`] cannot be had. The error says
    /// why, and what would help.
    pub fn build(&self) -> Result<Runtime, BuildError> {
        self.check()?;
        // What an operator says is checked also where it does not matter.
        Disabled::from_environment()?;
        let unpinned = self.pinning.is_on().then(Allowed::of_this_thread);
        match Crew::new(self).start_here(0) {
            Ok(worker) => {
                let runtime = Runtime::new(worker, unpinned);
                let watchdog = self.watchdog(&runtime.worker.crew)?;
                runtime.watchdog.set(watchdog);
                Ok(runtime)
            }
            Err(error) => {
                unpinned.inspect(Allowed::apply);
                Err(error)
            }
        }
    }

    pub(crate) fn worker_count(&self) -> usize {
        self.workers.count()
    }

    pub(crate) fn pinning(&self) -> &Pinning {
        &self.pinning
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn name_prefix(&self) -> &str {
        &self.name
    }

    pub(crate) fn slow_poll(&self) -> Option<Duration> {
        self.slow_poll
    }

    pub(crate) fn spin_limit(&self) -> Duration {
        self.spin
    }

    fn watchdog(&self, crew: &Arc<Crew>) -> Result<Option<Watchdog>, BuildError> {
        let started =
            (self.slow_poll).map(|limit| Watchdog::start(&self.name, limit, Arc::clone(crew)));
        started
            .transpose()
            .map_err(|error| BuildError::new(Cause::Other("no thread could be started"), error))
    }

    /// What a worker's thread is made from.
    pub(crate) fn thread(&self, worker: usize) -> thread::Builder {
        let thread = thread::Builder::new().name(format!("{}-{worker}", self.name));
        match self.stack_size {
            Some(bytes) => thread.stack_size(bytes),
            None => thread,
        }
    }

    pub(crate) fn reactor(&self, bell: &Arc<Bell>) -> Result<Rc<Reactor>, BuildError> {
        let on_uring = || Reactor::on_uring(self.limits.clone(), Arc::clone(bell));
        let on_epoll = |why: &str| Reactor::on_epoll(self.limits.clone(), Arc::clone(bell), why);
        match self.backend.or_environment()? {
            Backend::Uring => on_uring(),
            Backend::Epoll => on_epoll("it was asked for"),
            Backend::Auto => match on_uring() {
                Err(error) if error.is_refusal() => {
                    static ONCE: Once = Once::new();
                    ONCE.call_once(|| tracing::warn!(%error, "falling back to epoll"));
                    on_epoll(&error.to_string())
                }
                made => made,
            },
        }
    }

    /// What the builder says, if it can be.
    #[cfg(feature = "sim")]
    pub(crate) fn limits(&self) -> Result<Limits, BuildError> {
        self.check()?;
        Ok(self.limits.clone())
    }

    fn check(&self) -> Result<(), BuildError> {
        let limits = &self.limits;
        let positive = [
            ("ring_entries", limits.sizes.submissions as usize),
            ("completion_entries", limits.sizes.completions as usize),
            ("buffers", usize::from(limits.buffers)),
            ("buffer_size", limits.buffer_size),
            ("recv_high_water", limits.recv_high_water),
            ("send_high_water", limits.send_high_water),
            ("accept_backlog", limits.accept_backlog),
            ("workers", self.worker_count()),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(invalid(format!("Builder::{name} must be at least 1")));
        }
        if limits.buffer_size > MAX_BUFFER_SIZE {
            return Err(invalid(format!(
                "Builder::buffer_size must be at most {MAX_BUFFER_SIZE}"
            )));
        }
        // A u16 times what was just checked.
        if u64::from(limits.buffers) * limits.buffer_size as u64 > MAX_POOL_SIZE {
            return Err(invalid(format!(
                "Builder::buffers times Builder::buffer_size must be at most {MAX_POOL_SIZE}"
            )));
        }
        if self.worker_count() > MAX_WORKERS {
            return Err(invalid(format!(
                "Builder::workers must be at most {MAX_WORKERS}"
            )));
        }
        if self.pinning == Pinning::To(Vec::new()) {
            return Err(invalid(
                "Builder::pin needs at least one CPU to pin to".to_owned(),
            ));
        }
        if self.name.contains('\0') {
            return Err(invalid(
                "Builder::name must not contain a zero byte".to_owned(),
            ));
        }
        if limits.buffers > MAX_BUFFERS {
            return Err(invalid(format!(
                "Builder::buffers must be at most {MAX_BUFFERS}"
            )));
        }
        Ok(())
    }
}

/// The workers, owned by the thread that built them, which is worker 0.
///
/// Usually made by [`#[runtime::main]`](crate::main). Dropping it ends all workers: each drops its tasks on its own
/// thread, sends what streams have left to send (bounded by [`Builder::linger`]), cancels everything in flight and
/// waits for its end. The drop waits for all of them. So a task that does not return from its poll holds it up; see
/// [`shutdown_timeout`](Self::shutdown_timeout).
///
/// Sockets, timers, handles, wakers and leases may outlive it. They are inert then: operations fail with ECANCELED.
///
/// It belongs to the process that built it. A child of that process that is forked, and does not start another
/// program, cannot use it: `block_on` panics there, no further task is polled, sockets are inert, and dropping the
/// runtime leaks it. The parent notices nothing. The child may build a runtime of its own.
///
/// # Examples
///
/// ```
/// let runtime = runtime::Builder::new().build()?;
/// let answer = runtime.block_on(async { runtime::spawn(async { 42 }).await });
/// assert_eq!(answer.unwrap(), 42);
/// # Ok::<_, runtime::BuildError>(())
/// ```
pub struct Runtime {
    worker: Rc<Worker>,
    /// The CPUs that this thread could use before it was pinned.
    unpinned: Option<Allowed>,
    watchdog: Cell<Option<Watchdog>>,
    over: Cell<bool>,
}

impl Runtime {
    pub(crate) fn new(worker: Rc<Worker>, unpinned: Option<Allowed>) -> Self {
        Self {
            worker,
            unpinned,
            watchdog: Cell::new(None),
            over: Cell::new(false),
        }
    }

    /// Runs `future` to its end, and the spawned tasks meanwhile.
    ///
    /// Before it returns, everything that was written is handed to the kernel, and streams that were dropped have
    /// sent what they had (bounded by [`Builder::linger`]). Tasks that have not ended stay, and go on in the next
    /// `block_on`.
    ///
    /// # Panics
    ///
    /// If `future` panics; if this thread is inside a `block_on` already, of this runtime or another; if the kernel
    /// refuses a ring that worked before; and in a process that was forked since the runtime was built.
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.worker.reactor.refuse_child();
        let Some(_entered) = context::enter(Rc::clone(&self.worker)) else {
            panic!(
                "block_on inside block_on: this thread runs a Ringshot runtime already, and blocking it would stop \
                 its sockets and timers. Await the future, spawn it, or use another thread"
            );
        };
        let output = self.worker.block_on(pin!(future));
        self.worker.reactor.drain();
        output
    }

    /// This runtime, for any thread.
    pub fn handle(&self) -> Handle {
        Handle::new(&self.worker.crew)
    }

    /// Ends the runtime as dropping it does, but waits no longer than this for other workers and for what streams have
    /// left to send.
    ///
    /// Tasks are dropped on the threads that they live on, so one that does not return from its poll cannot be dropped.
    /// Its worker's thread is left alone, and ends when the task returns.
    ///
    /// # Errors
    ///
    /// [`TimedOut`](io::ErrorKind::TimedOut) if there are such workers. The error says which.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = runtime::Builder::new().workers(2).build()?;
    /// runtime.handle().spawn_on(1, std::future::pending::<()>);
    /// runtime.shutdown_timeout(Duration::from_secs(1))?;
    /// # Ok::<_, std::io::Error>(())
    /// ```
    pub fn shutdown_timeout(self, timeout: Duration) -> io::Result<()> {
        // A time beyond the end of the clock is no limit.
        let at = |after| Instant::now().checked_add(after);
        // What is left to send gets a part of it: the rest of the end takes time as well.
        let late = self.shut_down(at(timeout / 4 * 3), at(timeout));
        if late.is_empty() {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!(
                "the workers {late:?} did not end within {timeout:?}: a task there does not return from its poll"
            ),
        ))
    }

    /// The order of the end: nothing starts any more; tasks are dropped, each on its worker; outboxes are drained; what
    /// is in flight is cancelled and waited for. The second time there is nothing left to do.
    fn shut_down(&self, drained: Option<Instant>, deadline: Option<Instant>) -> Vec<usize> {
        if self.over.replace(true) {
            return Vec::new();
        }
        if !self.worker.reactor.is_at_home() {
            // In a forked child: the ring, the tasks and the threads are the parent's.
            mem::forget(Rc::clone(&self.worker));
            if let Some(watchdog) = self.watchdog.take() {
                watchdog.forget();
            }
            return Vec::new();
        }
        let crew = &self.worker.crew;
        crew.ask_to_stop(drained);
        {
            // Destructors of tasks find their runtime, unless this thread runs another one just now.
            let _entered = context::enter(Rc::clone(&self.worker));
            self.worker.shut_down(drained);
        }
        let late = crew.join(deadline);
        // Until now it saw what held the end up.
        drop(self.watchdog.take());
        self.unpinned.iter().for_each(Allowed::apply);
        late
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.shut_down(None, None);
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("metrics", &self.worker.metrics())
            .finish_non_exhaustive()
    }
}

fn invalid(what: String) -> BuildError {
    BuildError::new(
        Cause::Configuration(what),
        io::ErrorKind::InvalidInput.into(),
    )
}

const BACKEND_VARIABLE: &str = "RINGSHOT_BACKEND";

/// The kernel's bound for a ring of buffers.
const MAX_BUFFERS: u16 = 1 << 15;

/// Far beyond what a machine has CPUs; a wrong number shall not take memory for a million workers.
const MAX_WORKERS: usize = 4096;
