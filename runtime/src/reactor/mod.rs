//! The reactor: submits operations, collects their completions, and tells their owners. It polls no task.
//!
//! Completions are copied out of the kernel's queue first and acted on afterwards, and no borrow is held while an
//! op, a waker or a destructor runs. So these may submit, cancel and drop as they like.
//!
//! | here | what happens there |
//! | --- | --- |
//! | this file | the reactor is made, and answers what ops ask |
//! | `submit` | requests go to the kernel, or wait for room |
//! | `turn` | one round: submit, sleep, collect |
//! | `complete` | completions find their owners |
//! | `end` | the shutdown |
//! | `op`, `socket`, `send_buf` | operations, and the sockets that they belong to |
//! | `driver` | the kernel interfaces |
//! | `pool` | receive buffers |
//! | `probe` | what the kernel can do |

mod alarms;
mod complete;
mod counters;
pub(crate) mod driver;
mod end;
pub(crate) mod op;
pub(crate) mod pool;
pub(crate) mod probe;
pub(crate) mod send_buf;
mod silent;
pub(crate) mod socket;
mod submit;
mod turn;
mod waiters;

use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use self::alarms::Alarm;
use self::alarms::Alarms;
pub(crate) use self::counters::Counters;
pub(crate) use self::driver::Park;
use self::driver::epoll::Epoll;
use self::driver::home::Home;
use self::driver::uring::{Sizes, Uring};
use self::driver::{Cqe, Driver, Request};
use self::op::recv::RecvOp;
use self::op::send::SendOp;
use self::op::spares::Spares;
use self::op::system::{Linux, System};
use self::op::wake::{Bell, WakeOp};
use self::op::{Interest, Key, Slots, Via};
use self::pool::Pool;
use self::probe::{Features, Findings};
use self::silent::Silents;
use self::socket::{Endpoint, Socket};
pub(crate) use self::waiters::Waiters;
use crate::error::{BuildError, Cause};

/// Everything that bounds a worker's memory and patience.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) sizes: Sizes,
    pub(crate) buffers: u16,
    pub(crate) buffer_size: usize,
    pub(crate) recv_high_water: usize,
    pub(crate) send_high_water: usize,
    pub(crate) accept_backlog: usize,
    pub(crate) linger: Duration,
}

/// One worker's side of the kernel.
pub(crate) struct Reactor {
    /// `None` once the reactor is shut down. Looked at through [`driver`](Self::driver) only.
    driver: RefCell<Option<Box<dyn Driver>>>,
    /// The process that the driver is for.
    home: Home,
    system: Box<dyn System>,
    /// Set when the shutdown begins: no op is started any more.
    closed: Cell<bool>,
    slots: RefCell<Slots>,
    /// Requests that found the submission queue full; they keep their order.
    backlog: RefCell<VecDeque<Queued>>,
    silent: RefCell<Silents<SendOp>>,
    /// Entries that the kernel had taken, in a count that wraps, when all their completions were last collected. A full
    /// queue may have been submitted since, and what that left is not known yet.
    accounted: Cell<u32>,
    /// Ops that a cancel did not find although they are in flight.
    missed: RefCell<Vec<Key>>,
    /// Somebody waits for what only the return of the next enter tells, such as the end of a silent op.
    stay_awake: Cell<bool>,
    /// Sockets with bytes to send.
    dirty: RefCell<VecDeque<SendOp>>,
    /// Outboxes whose owner is gone and that still hold bytes.
    draining: Cell<usize>,
    /// Sockets with an inbox, each of which knows its place.
    inboxes: RefCell<Vec<Weak<Endpoint>>>,
    /// How many of them may have missed something, and when they shall listen again.
    doubts: Cell<usize>,
    listen_at: Cell<Option<Instant>>,
    alarms: Alarms,
    pool: Rc<Pool>,
    pub(crate) spares: Spares,
    pub(crate) limits: Limits,
    features: &'static Features,
    pub(crate) counters: Counters,
    /// Ready I/O operations that the current poll may still do.
    budget: Cell<u32>,
    /// How other threads end its sleep.
    bell: Arc<Bell>,
    /// The completions of a pass, and how many of them were acted on. The others stay if a waker or a destructor panics.
    arrived: RefCell<Vec<Cqe>>,
    acted_on: Cell<usize>,
}

/// A request on its way, and the silent send that it starts, if it does.
type Queued = (Request, Option<SendOp>);

impl Reactor {
    /// A reactor for the calling thread, on a ring.
    pub(crate) fn on_uring(limits: Limits, bell: Arc<Bell>) -> Result<Rc<Self>, BuildError> {
        let Findings { features, disabled } = probe::findings()?;
        let mut uring = Uring::new(limits.sizes, disabled).map_err(BuildError::from_ring)?;
        let (asked, mut limits) = (limits.clone(), limits);
        if features.buffer_ring.is_on() {
            limits.buffers = register_buffers(&mut uring, limits.buffers)?;
        }
        let entries = uring.ring().params().sq_entries();
        if entries < asked.sizes.submissions.min(MAX_ENTRIES) || limits.buffers < asked.buffers {
            warn_of_shortage(entries, limits.buffers);
        }
        tracing::info!(
            submissions = uring.ring().params().sq_entries(),
            completions = uring.ring().params().cq_entries(),
            task_work = ?uring.task_work(),
            registered = uring.registered().is_ok(),
            buffers = limits.buffers,
            buffer_size = limits.buffer_size,
            %features,
            "a worker starts"
        );
        let ring = uring.ring().as_raw_fd();
        let (uring, linux) = (Box::new(uring), Box::new(Linux));
        let reactor = Self::new(uring, linux, features, limits, Arc::clone(&bell))?;
        if features.msg_ring.is_on() {
            bell.connect(ring);
        }
        Ok(reactor)
    }

    /// A reactor for the calling thread, on epoll, because of `reason`.
    pub(crate) fn on_epoll(
        limits: Limits,
        bell: Arc<Bell>,
        reason: &str,
    ) -> Result<Rc<Self>, BuildError> {
        let epoll = Epoll::new().map_err(|error| BuildError::new(Cause::Descriptors, error))?;
        let features = probe::without_uring(reason);
        tracing::info!(
            buffers = limits.buffers,
            buffer_size = limits.buffer_size,
            %features,
            "a worker starts"
        );
        Self::new(Box::new(epoll), Box::new(Linux), features, limits, bell)
    }

    /// A reactor on the driver that is given.
    pub(crate) fn new(
        driver: Box<dyn Driver>,
        system: Box<dyn System>,
        features: &'static Features,
        limits: Limits,
        bell: Arc<Bell>,
    ) -> Result<Rc<Self>, BuildError> {
        let pool = Pool::new(limits.buffers, limits.buffer_size)
            .map_err(|error| BuildError::new(Cause::Other("no memory for the buffers"), error))?;
        // Room for a whole completion queue, so that no burst allocates; memory is taken as it is used.
        let completions = limits.sizes.completions.min(MAX_ENTRIES);
        let reactor = Rc::new(Self {
            driver: RefCell::new(Some(driver)),
            home: Home::here(),
            system,
            closed: Cell::new(false),
            slots: RefCell::default(),
            backlog: RefCell::default(),
            silent: RefCell::default(),
            accounted: Cell::new(0),
            missed: RefCell::default(),
            stay_awake: Cell::new(false),
            dirty: RefCell::default(),
            draining: Cell::new(0),
            inboxes: RefCell::default(),
            doubts: Cell::new(0),
            listen_at: Cell::new(None),
            alarms: Alarms::default(),
            pool,
            spares: Spares::default(),
            limits,
            features,
            counters: Counters::default(),
            budget: Cell::new(BUDGET),
            bell: Arc::clone(&bell),
            arrived: RefCell::new(Vec::with_capacity(completions as usize)),
            acted_on: Cell::new(0),
        });
        WakeOp::new(bell, &reactor).arm();
        reactor.flush_pool();
        Ok(reactor)
    }

    // ---- what ops ask for ----

    /// How this reactor asks for operations that have no ring form of their own choice.
    pub(crate) fn via(&self) -> Via {
        if self.features.fast_poll.is_on() {
            Via::Ring
        } else {
            Via::Readiness
        }
    }

    /// Somebody has just tried and found that the descriptor is not ready.
    pub(crate) fn clear_ready(&self, fd: RawFd, interest: Interest) {
        if let Some(driver) = self.driver().as_mut() {
            driver.clear_ready(fd, interest);
        }
    }

    /// How often the driver was told that the descriptor is ready.
    pub(crate) fn news(&self, fd: RawFd, interest: Interest) -> u32 {
        let mut driver = self.driver();
        driver
            .as_mut()
            .map_or(0, |driver| driver.news(fd, interest))
    }

    /// A descriptor that was used here leaves, and stays open.
    pub(crate) fn forget(&self, fd: RawFd) {
        if let Some(driver) = self.driver().as_mut() {
            driver.forget(fd);
        }
    }

    pub(crate) fn features(&self) -> &'static Features {
        self.features
    }

    /// For what is done without the driver.
    pub(crate) fn system(&self) -> &dyn System {
        self.system.as_ref()
    }

    pub(crate) fn pool(&self) -> &Rc<Pool> {
        &self.pool
    }

    #[inline(always)]
    pub(crate) fn mark_dirty(&self, op: SendOp) {
        self.dirty.borrow_mut().push_back(op);
    }

    /// The next enter must not sleep.
    pub(crate) fn stay_awake(&self) {
        self.stay_awake.set(true);
    }

    pub(crate) fn add_inbox(&self, endpoint: &Rc<Endpoint>) {
        let mut inboxes = self.inboxes.borrow_mut();
        // There are not 2³² descriptors, of which each of these has one.
        endpoint.listed.set(inboxes.len() as u32);
        inboxes.push(Rc::downgrade(endpoint));
    }

    /// Streams that are here.
    pub(crate) fn inboxes(&self) -> usize {
        self.inboxes.borrow().len()
    }

    pub(crate) fn remove_inbox(&self, endpoint: &Endpoint) {
        let mut inboxes = self.inboxes.borrow_mut();
        let place = endpoint.listed.get();
        drop(inboxes.swap_remove(place as usize));
        if let Some(moved) = inboxes.get(place as usize).and_then(Weak::upgrade) {
            moved.listed.set(place);
        }
        debug_assert!(!inboxes.is_empty() || self.doubts.get() == 0);
    }

    /// An inbox may have missed the end of its connection, which it will know when it listens again.
    pub(crate) fn doubt_begins(&self) {
        self.doubts.set(self.doubts.get() + 1);
        if self.listen_at.get().is_none() {
            self.listen_later();
        }
    }

    /// It has not, or it is gone.
    pub(crate) fn doubt_ends(&self) {
        self.doubts.set(self.doubts.get() - 1);
        if self.doubts.get() == 0 {
            // Or each sleep of a busy worker would have an end to watch for.
            self.listen_at.set(None);
        }
    }

    fn listen_later(&self) {
        self.listen_at.set(self.now().checked_add(QUIET));
    }

    pub(crate) fn set_alarm(&self, after: Duration, alarm: Weak<dyn Alarm>) {
        // An alarm beyond the end of the clock never rings.
        if let Some(at) = self.now().checked_add(after) {
            self.alarms.set(at, alarm);
        }
    }

    /// An outbox with bytes in it has lost its owner.
    pub(crate) fn drain_started(&self) {
        self.draining.set(self.draining.get() + 1);
    }

    pub(crate) fn drain_ended(&self) {
        self.draining.set(self.draining.get() - 1);
    }

    /// Takes one ready operation from the current poll's budget. `false`: the task shall yield.
    #[inline]
    pub(crate) fn take_budget(&self) -> bool {
        match self.budget.get().checked_sub(1) {
            Some(left) => {
                self.budget.set(left);
                true
            }
            // Refilled here as well, for sockets that are polled outside their worker.
            None => {
                self.budget.set(BUDGET);
                false
            }
        }
    }

    pub(crate) fn refill_budget(&self) {
        self.budget.set(BUDGET);
    }

    /// Ops in flight, the wake of the worker included.
    pub(crate) fn ops(&self) -> usize {
        self.slots.borrow().len() + self.silent.borrow().len()
    }

    pub(crate) fn driver_counters(&self) -> driver::DriverCounters {
        (self.driver().as_ref()).map_or_else(Default::default, |driver| driver.counters())
    }

    // ---- whose it is, and until when ----

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get() || !self.is_at_home()
    }

    /// Whether this process made the reactor, and was not forked from the one that did.
    #[inline]
    pub(crate) fn is_at_home(&self) -> bool {
        self.home.is_here()
    }

    /// # Panics
    ///
    /// In a child that was forked from the process of this reactor.
    #[track_caller]
    pub(crate) fn refuse_child(&self) {
        assert!(self.is_at_home(), "{FORKED}");
    }

    /// The driver, if there is one that this process may use.
    #[inline]
    fn driver(&self) -> RefMut<'_, Option<Box<dyn Driver>>> {
        let mut driver = self.driver.borrow_mut();
        if !self.is_at_home() {
            leak(driver.take());
        }
        driver
    }

    /// The clock of the reactor's deadlines.
    pub(crate) fn now(&self) -> Instant {
        self.system.now()
    }

    /// When the reactor itself needs a turn, at the latest.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match (self.alarms.next(), self.listen_at.get()) {
            (Some(alarm), Some(listen)) => Some(alarm.min(listen)),
            (alarm, listen) => alarm.or(listen),
        }
    }

    /// Acts on the deadlines that have come.
    #[inline]
    fn meet_deadlines(&self) {
        if let Some(first) = self.deadline() {
            let now = self.now();
            if first <= now {
                self.ring_alarms(now);
            }
        }
    }

    #[cold]
    fn ring_alarms(&self, now: Instant) {
        self.alarms.ring(now);
        if self.listen_at.get().is_some_and(|at| at <= now) {
            self.listen_at.set(None);
            let mut looks = MAX_LOOKS;
            self.each_inbox(|inbox| inbox.listen_again(&mut looks));
            if self.doubts.get() > 0 {
                self.listen_later();
            }
        }
    }

    /// Whether a turn would find something. For somebody who looks again and again instead of sleeping.
    pub(crate) fn has_news(&self) -> bool {
        self.driver()
            .as_mut()
            .is_some_and(|driver| driver.has_news())
    }

    /// `act` must not make or drop an inbox.
    fn each_inbox(&self, mut act: impl FnMut(&RecvOp)) {
        for inbox in self.inboxes.borrow().iter() {
            if let Some(endpoint) = inbox.upgrade() {
                act(&RecvOp::from(Socket::from(endpoint)));
            }
        }
    }
}

/// In a child the kernel's side of the driver is the parent's. Even to give it back would take it from the parent.
#[cold]
fn leak(driver: Option<Box<dyn Driver>>) {
    mem::forget(driver);
}

/// Registers a ring of buffers, smaller where there is no memory for it. Returns how many buffers it takes.
fn register_buffers(uring: &mut Uring, buffers: u16) -> Result<u16, BuildError> {
    let mut registered = buffers;
    loop {
        match uring.register_buffers(registered) {
            Err(error) if is_shortage(&error) && registered > MIN_BUFFERS => {
                registered = (registered / 2).max(MIN_BUFFERS);
            }
            Err(error) => return Err(BuildError::from_ring(error)),
            Ok(()) => return Ok(registered),
        }
    }
}

/// Locked memory is short. Said once: the next worker fares no better.
fn warn_of_shortage(entries: u32, buffers: u16) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        tracing::warn!(
            entries,
            buffers,
            "there is little locked memory (RLIMIT_MEMLOCK), so a worker gets a smaller ring than it asked for; raise \
             the limit with `ulimit -l`, or ask for less (Builder::ring_entries, Builder::completion_entries, \
             Builder::buffers)"
        );
    });
}

/// Ring memory counts against RLIMIT_MEMLOCK up to 5.11 and again since 6.14.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOMEM)
}

pub(crate) const FORKED: &str = "this process was forked from one with a Ringshot runtime, which it cannot use: the two would \
    share one ring and its sockets. Fork before the runtime is built, start a program instead \
    (std::process::Command), or build a new runtime in the child";

/// Ready I/O operations per poll of a task. An always-ready socket yields after this many.
const BUDGET: u32 = 128;

/// The kernel's bound for a submission queue.
const MAX_ENTRIES: u32 = 1 << 15;

/// A ring of buffers does not get any smaller.
const MIN_BUFFERS: u16 = 16;

/// A receive that may have missed the end, and was quiet for one to two times that long, is looked at.
const QUIET: Duration = Duration::from_secs(1);

/// So many of them at once, at most: each costs a system call.
const MAX_LOOKS: u32 = 1000;
