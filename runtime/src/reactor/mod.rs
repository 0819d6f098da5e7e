//! The reactor: submits operations, collects their completions, and tells their owners. It polls no task.
//!
//! Completions are copied out of the kernel's queue first and acted on afterwards, and no borrow is held while an
//! op, a waker or a destructor runs. So these may submit, cancel and drop as they like.

mod alarms;
mod counters;
pub(crate) mod driver;
mod fifo;
pub(crate) mod op;
pub(crate) mod pool;
pub(crate) mod probe;
pub(crate) mod send_buf;
mod silent;
pub(crate) mod socket;
mod waiters;

use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::{cqueue, squeue};
use slab::Slab;

pub(crate) use self::alarms::Alarm;
use self::alarms::Alarms;
pub(crate) use self::counters::Counters;
pub(crate) use self::driver::Park;
use self::driver::epoll::Epoll;
use self::driver::home::Home;
use self::driver::uring::{Sizes, Uring};
use self::driver::{Cqe, Driver, Request, UNNAMED, WAKE, Wait};
use self::op::recv::RecvOp;
use self::op::send::SendOp;
use self::op::spares::Spares;
use self::op::system::{Linux, System};
use self::op::wake::{Bell, WakeOp};
use self::op::{Completion, Interest, Key, Next, Op, Slots, Via};
use self::pool::Pool;
use self::probe::{Features, Findings};
use self::silent::Silents;
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
    silent: RefCell<Silents<Rc<SendOp>>>,
    /// Entries that the kernel had taken, in a count that wraps, when all their completions were last collected. A full
    /// queue may have been submitted since, and what that left is not known yet.
    accounted: Cell<u32>,
    /// Ops that a cancel did not find although they are in flight.
    missed: RefCell<Vec<Key>>,
    /// Somebody waits for what only the return of the next enter tells, such as the end of a silent op.
    stay_awake: Cell<bool>,
    /// Sockets with bytes to send.
    dirty: RefCell<VecDeque<Rc<SendOp>>>,
    /// Outboxes whose owner is gone and that still hold bytes.
    draining: Cell<usize>,
    inboxes: RefCell<Slab<Weak<RecvOp>>>,
    /// An alarm is set for them to listen again.
    doubting: Cell<bool>,
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
type Queued = (Request, Option<Rc<SendOp>>);

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
            doubting: Cell::new(false),
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

    // ---- submitting ----

    /// Starts an op. `None` if the reactor is closed: there will be no completion.
    pub(crate) fn submit<O: Op + 'static>(&self, op: Rc<O>, via: Via) -> Option<Key> {
        if self.is_closed() {
            return None;
        }
        let entry = match via {
            Via::Ring => Ok(op.ring_form()),
            Via::Readiness => Err(op.interest()),
        };
        let key = self.slots.borrow_mut().insert(op, via)?;
        match entry {
            Ok(mut entry) => {
                entry.set_user_data(key.to_user_data());
                self.push_entry(entry);
            }
            Err(interest) => self.push(Request::Readiness(wait(key, interest))),
        }
        Some(key)
    }

    /// Starts a send, by this entry of its, that leaves no completion when it succeeds in full; [`SendOp::settled`] is
    /// called instead, after the turn's enter. It is given back if the reactor is closed.
    #[inline(always)] // one caller, once for each message
    pub(crate) fn submit_silently(
        &self,
        op: Rc<SendOp>,
        mut entry: squeue::Entry,
    ) -> Result<(), Rc<SendOp>> {
        if self.is_closed() {
            return Err(op);
        }
        let rest = if self.backlog.borrow().is_empty() {
            self.try_push_silent(&mut entry, op)
        } else {
            Err(op)
        };
        if let Err(op) = rest {
            let queued = (Request::Entry(entry), Some(op));
            self.backlog.borrow_mut().push_back(queued);
        }
        Ok(())
    }

    /// Asks the kernel to stop an op whose owner goes on waiting for its end.
    pub(crate) fn cancel(&self, key: Key) {
        let interest = self.slots.borrow_mut().interest(key);
        if let Some(interest) = interest {
            let cancel = Request::Cancel {
                of: wait(key, interest),
                user_data: key.to_cancel(),
            };
            self.push(cancel);
        }
    }

    /// The owner of an op lets go of it. What it still yields is given back.
    pub(crate) fn release(&self, key: Key) {
        let cancel = self.slots.borrow_mut().release(key);
        if cancel {
            self.cancel(key);
        }
    }

    /// Closes a descriptor that no op uses: with the next enter, or at once where that cannot be.
    fn close(&self, fd: OwnedFd) {
        if self.driver().is_some() {
            self.push(Request::Close(fd));
        }
    }

    fn push(&self, request: Request) {
        let rest = if self.backlog.borrow().is_empty() {
            self.try_push(request)
        } else {
            Err(request)
        };
        if let Err(request) = rest {
            self.backlog.borrow_mut().push_back((request, None));
        }
    }

    /// As [`push`](Self::push), for what is an entry anyway, which then need not be passed on as a request.
    fn push_entry(&self, entry: squeue::Entry) {
        if !self.backlog.borrow().is_empty() || !self.try_push_entry(&entry) {
            let request = Request::Entry(entry);
            self.backlog.borrow_mut().push_back((request, None));
        }
    }

    /// Pushes a request; a full queue is submitted first. It is given back if there is no room all the same.
    fn try_push(&self, request: Request) -> Result<(), Request> {
        let mut driver = self.driver();
        let Some(driver) = driver.as_mut() else {
            return Ok(()); // shut down: nothing is in flight, and nothing will be
        };
        if let Err(request) = driver.push(request) {
            self.submit_full_queue(driver.as_mut());
            driver.push(request)?;
        }
        self.counters.submissions.add(1);
        Ok(())
    }

    /// Pushes an entry, in the same way. Whether there was room.
    fn try_push_entry(&self, entry: &squeue::Entry) -> bool {
        match self.driver().as_mut() {
            Some(driver) => self.push_to(driver.as_mut(), entry).is_some(),
            None => true, // as above
        }
    }

    /// Pushes the entry of a silent send, in the same way.
    #[inline(always)] // one caller for each message
    fn try_push_silent(&self, entry: &mut squeue::Entry, op: Rc<SendOp>) -> Result<(), Rc<SendOp>> {
        let mut driver = self.driver();
        let Some(driver) = driver.as_mut() else {
            return Ok(()); // as above
        };
        let mut silent = self.silent.borrow_mut();
        entry.set_user_data(silent.next_user_data());
        match self.push_to(driver.as_mut(), entry) {
            Some(pushed) => {
                silent.push(op, pushed);
                Ok(())
            }
            None => Err(op),
        }
    }

    /// Pushes an entry, and says how many are pushed with it. `None` if there is no room.
    #[inline]
    fn push_to(&self, driver: &mut dyn Driver, entry: &squeue::Entry) -> Option<u32> {
        let mut pushed = driver.push_entry(entry);
        if pushed.is_none() {
            self.submit_full_queue(driver);
            pushed = driver.push_entry(entry);
        }
        if pushed.is_some() {
            self.counters.submissions.add(1);
        }
        pushed
    }

    #[cold]
    fn submit_full_queue(&self, driver: &mut dyn Driver) {
        // Receives may be among the entries, and one that finds no buffer at its start ends at once.
        self.publish(driver);
        // Refused (EBUSY, EAGAIN) is no loss: what does not find room waits in the backlog.
        if let Err(error) = driver.submit() {
            tracing::debug!(%error, "a full submission queue was not taken");
        }
    }

    // ---- the turn ----

    /// One turn: flushes what tasks have queued, makes at most one sleeping call, and tells the owners of what has
    /// completed.
    ///
    /// # Panics
    ///
    /// If the kernel refuses the ring that it gave us, as nothing could ever complete again; and in a forked child.
    pub(crate) fn turn(&self, park: Park) {
        self.refuse_child();
        self.flush();
        let park = if self.must_not_sleep() {
            Park::Poll
        } else {
            park
        };
        let mut reaped = self.pass(park);
        // One call hands out at most 20 pieces of deferred work on 6.13+: ask again while there is more. What a pass
        // brought is acted on before the next one, so that a socket which has enough is stopped in between. The
        // kernel may leave its flag up when nothing is left, so a pass that brought nothing is the last. Where buffers
        // are short, the tasks give some back first.
        while self.has_more()
            && reaped < self.limits.sizes.completions as usize
            && !self.pool.is_short()
        {
            match self.pass(Park::Poll) {
                0 => break,
                more => reaped += more,
            }
        }
        // None was due when a sleep with time left began. If that ended because something came, the turn's end need not
        // look at the clock: whoever sleeps next does, and then has no time left if one is due.
        let has_slept = matches!(park, Park::Sleep(limit) if limit != Some(Duration::ZERO));
        if reaped == 0 || !has_slept {
            self.alarms.ring(|| self.now());
        }
    }

    /// One call to the kernel and what follows from it. Returns how many completions there were.
    fn pass(&self, park: Park) -> usize {
        self.enter(park);
        let reaped = self.dispatch();
        self.cancel_missed();
        self.settle();
        reaped
    }

    /// The clock of the reactor's deadlines.
    pub(crate) fn now(&self) -> Instant {
        self.system.now()
    }

    /// When the reactor itself needs a turn, at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.alarms.next()
    }

    /// Puts everything that tasks have left for the end of the turn into the submission queue.
    fn flush(&self) {
        self.flush_backlog();
        self.flush_pool();
        loop {
            let op = self.dirty.borrow_mut().pop_front();
            match op {
                Some(op) => op.flush(self),
                None => return,
            }
        }
    }

    fn flush_backlog(&self) {
        if !self.backlog.borrow().is_empty() {
            self.push_backlog();
        }
    }

    #[cold]
    fn push_backlog(&self) {
        loop {
            let Some((request, silent)) = self.backlog.borrow_mut().pop_front() else {
                return;
            };
            let rest = match (request, silent) {
                (Request::Entry(mut entry), Some(op)) => {
                    let rest = self.try_push_silent(&mut entry, op).err();
                    rest.map(|op| (Request::Entry(entry), Some(op)))
                }
                (request, _) => self.try_push(request).err().map(|request| (request, None)),
            };
            if let Some(rest) = rest {
                return self.backlog.borrow_mut().push_front(rest);
            }
        }
    }

    /// Shows the kernel the buffers that came back; makes more where they are short.
    fn flush_pool(&self) {
        if self.pool.is_short() && !self.pool.grow() {
            self.relieve();
        }
        if let Some(driver) = self.driver().as_mut() {
            self.publish(driver.as_mut());
        }
    }

    /// Shows the kernel the buffers that are vacant.
    fn publish(&self, driver: &mut dyn Driver) {
        if self.features.buffer_ring.is_on() {
            (self.pool).provide(|id, address, len| driver.provide(id, address, len));
            driver.publish();
        }
    }

    /// Copies unread bytes out of pool buffers, if many buffers are held by slow sockets.
    fn relieve(&self) {
        if self.pool.queued() * 4 < self.pool.born() {
            return;
        }
        self.each_inbox(RecvOp::copy_out);
    }

    /// `act` must not make or drop an inbox.
    fn each_inbox(&self, mut act: impl FnMut(&RecvOp)) {
        for (_, inbox) in self.inboxes.borrow().iter() {
            if let Some(inbox) = inbox.upgrade() {
                act(&inbox);
            }
        }
    }

    fn has_unsubmitted(&self) -> bool {
        let queued = self
            .driver()
            .as_ref()
            .is_some_and(|driver| driver.pushed() != driver.consumed());
        queued || !self.backlog.borrow().is_empty() || !self.dirty.borrow().is_empty()
    }

    fn must_not_sleep(&self) -> bool {
        // Never sleep with entries that the kernel has not seen, with completions that nobody has acted on, nor when
        // only the return of the enter would tell a task what it waits for.
        self.stay_awake.get()
            || !self.backlog.borrow().is_empty()
            || !self.arrived.borrow().is_empty()
    }

    fn enter(&self, park: Park) {
        let mut arrived = self.arrived.borrow_mut();
        let mut driver = self.driver();
        let Some(driver) = driver.as_mut() else {
            return;
        };
        let entered = driver.turn(park, &mut arrived);
        if !driver.is_overflowing() {
            self.accounted.set(driver.consumed());
        }
        let Err(error) = entered else {
            return;
        };
        match error.raw_os_error() {
            // The kernel wants its completions taken first, or has no memory at the moment. The entries stay in
            // the queue for the next turn.
            Some(libc::EBUSY | libc::EAGAIN | libc::ENOMEM) => {
                self.counters.refusals.add(1);
                if arrived.is_empty() {
                    tracing::warn!(%error, "the kernel did not take the submissions; trying again");
                    self.system.pause(REFUSAL_PAUSE);
                }
            }
            _ => panic!("the kernel refused io_uring_enter on a ring that worked before: {error}"),
        }
    }

    fn dispatch(&self) -> usize {
        let mut reaped = 0;
        while let Some(cqe) = self.next_arrived() {
            reaped += 1;
            self.complete(cqe);
        }
        self.arrived.borrow_mut().clear();
        self.acted_on.set(0);
        self.counters.completions.add(reaped as u64);
        reaped
    }

    #[inline]
    fn next_arrived(&self) -> Option<Cqe> {
        let index = self.acted_on.get();
        let cqe = self.arrived.borrow().get(index).copied()?;
        self.acted_on.set(index + 1);
        Some(cqe)
    }

    fn has_more(&self) -> bool {
        self.driver()
            .as_mut()
            .is_some_and(|driver| driver.has_more())
    }

    /// Whether a turn would find something. For somebody who looks again and again instead of sleeping.
    pub(crate) fn has_news(&self) -> bool {
        self.driver()
            .as_mut()
            .is_some_and(|driver| driver.has_news())
    }

    fn complete(&self, cqe: Cqe) {
        // Before anything else: a buffer that nobody wants goes back by being dropped.
        let buffer = cqueue::buffer_select(cqe.flags).and_then(|id| {
            let len = usize::try_from(cqe.result).unwrap_or(0);
            self.pool.filled(id, len)
        });
        if Key::names_no_slot(cqe.user_data) {
            return self.complete_other(cqe);
        }
        let done = Completion {
            result: cqe.result,
            more: cqueue::more(cqe.flags),
            buffer,
            nonempty: cqueue::sock_nonempty(cqe.flags),
        };
        let key = Key::from_user_data(cqe.user_data);
        let next = (self.slots.borrow_mut()).completed(key, done.result < 0, done.more);
        match next {
            Next::Deliver(op) => op.complete(done),
            Next::Reclaim(op) => op.reclaim(done),
            Next::Drop(op) => drop(op),
            Next::Attempt(op) => self.attempt(key, op),
            Next::Unknown => self.complete_unknown(cqe),
        }
    }

    /// A completion that belongs to no op with a slot.
    #[cold]
    fn complete_other(&self, cqe: Cqe) {
        match cqe.user_data {
            UNNAMED => note_close(cqe.result),
            WAKE => {}
            cancel if Key::is_cancel(cancel) => {
                self.cancelled(Key::from_cancel(cancel), cqe.result);
            }
            silent => {
                let op = self.silent.borrow_mut().take(silent);
                match op {
                    Some(op) => op.complete(Completion::once(cqe.result, None)),
                    None => self.complete_unknown(cqe),
                }
            }
        }
    }

    #[cold]
    fn complete_unknown(&self, cqe: Cqe) {
        self.counters.unknown.add(1);
        tracing::error!(?cqe, "a completion of no known operation");
    }

    /// A cancel has completed. Whether it found its op is told by the op's own completion, or by its absence: an op
    /// that the kernel is just about to try again is in none of the places where a cancel looks (ENOENT).
    fn cancelled(&self, key: Key, result: i32) {
        if result < 0 {
            self.missed.borrow_mut().push(key);
        }
    }

    /// Cancels once more what is still in flight after all completions of the turn were seen. Those that found no
    /// room come first: the ops that were missed may be among them, and the completions of new cancels would take
    /// the room again, for ever.
    fn cancel_missed(&self) {
        if self.missed.borrow().is_empty() {
            return;
        }
        let overflows = (self.driver().as_mut()).is_some_and(|driver| driver.is_overflowing());
        if overflows {
            return;
        }
        let mut missed = self.missed.take();
        for key in missed.drain(..) {
            self.cancel(key);
        }
        self.missed.replace(missed);
    }

    /// The readiness that an op waited for is there.
    fn attempt(&self, key: Key, op: Rc<dyn Op>) {
        match op.attempt(&self.pool) {
            Some(done) => {
                let next = self.slots.borrow_mut().attempted(key);
                if let Next::Deliver(op) = next {
                    op.complete(done);
                }
            }
            None => {
                let (fd, interest) = op.interest();
                self.clear_ready(fd, interest);
                self.push(Request::Readiness(wait(key, (fd, interest))));
            }
        }
    }

    /// Ends the silent sends that the kernel has taken without leaving a completion.
    fn settle(&self) {
        let accounted = self.accounted.get();
        loop {
            let settled = self.silent.borrow_mut().settle(accounted);
            match settled {
                Some(Some(op)) => op.settled(),
                Some(None) => {}
                None => break,
            }
        }
        if self.silent.borrow().is_empty() {
            self.stay_awake.set(false);
        }
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
    pub(crate) fn mark_dirty(&self, op: Rc<SendOp>) {
        self.dirty.borrow_mut().push_back(op);
    }

    /// The next enter must not sleep.
    pub(crate) fn stay_awake(&self) {
        self.stay_awake.set(true);
    }

    pub(crate) fn add_inbox(&self, op: &Rc<RecvOp>) -> u32 {
        // There are not 2³² descriptors, of which each inbox has one.
        self.inboxes.borrow_mut().insert(Rc::downgrade(op)) as u32
    }

    /// Streams that are here.
    pub(crate) fn inboxes(&self) -> usize {
        self.inboxes.borrow().len()
    }

    pub(crate) fn remove_inbox(&self, key: u32) {
        let inbox = self.inboxes.borrow_mut().try_remove(key as usize);
        drop(inbox);
    }

    /// An inbox may have missed the end of its connection, which it will know when it listens again.
    pub(crate) fn listen_again_later(self: &Rc<Self>) {
        if !self.doubting.replace(true) {
            let this: Rc<dyn Alarm> = Rc::clone(self) as _;
            self.set_alarm(QUIET, Rc::downgrade(&this));
        }
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

    // ---- the end ----

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

    /// Hands everything written so far to the kernel, and waits for the outboxes whose owners are gone. Each is
    /// bounded by its linger.
    pub(crate) fn drain(&self) {
        self.drain_until(None);
    }

    /// The same, and gives up at the deadline.
    fn drain_until(&self, limit: Option<Instant>) {
        self.turn(Park::Poll);
        while self.draining.get() > 0 || self.has_unsubmitted() {
            let now = self.now();
            if limit.is_some_and(|limit| limit <= now) {
                let streams = self.draining.get();
                return tracing::warn!(streams, "dropped streams did not send everything in time");
            }
            let deadline = self.deadline().into_iter().chain(limit).min();
            let park = match deadline {
                _ if self.draining.get() == 0 => Park::Poll,
                deadline => Park::Sleep(deadline.map(|at| at.saturating_duration_since(now))),
            };
            self.turn(park);
        }
    }

    /// Cancels what is in flight, waits for its end, and gives the ring back. No op is started any more; those
    /// whose owners are still there are told.
    ///
    /// If the kernel does not finish within [`SHUTDOWN_PATIENCE`], the memory that it may still write to is leaked.
    /// `limit` is for the bytes that are left to send.
    pub(crate) fn shut_down(&self, limit: Option<Instant>) {
        self.drain_until(limit);
        self.closed.set(true);
        let keys = self.slots.borrow().keys();
        for key in keys {
            self.cancel(key);
        }
        let deadline = self.now() + SHUTDOWN_PATIENCE;
        while self.ops() > 0 {
            let left = deadline.saturating_duration_since(self.now());
            if left.is_zero() {
                tracing::error!(
                    ops = self.ops(),
                    "operations did not end; leaking their memory"
                );
                mem::forget((self.slots.take(), self.silent.take()));
                mem::forget(Rc::clone(&self.pool));
                break;
            }
            if !self.silent.borrow().is_empty() {
                self.stay_awake();
            }
            self.turn(Park::Sleep(Some(left)));
        }
        // Closes that the last completions have queued.
        self.turn(Park::Poll);
        self.bell.disconnect();
        let driver = self.driver.take();
        drop(driver);
    }
}

impl Alarm for Reactor {
    fn ring(self: Rc<Self>) {
        self.doubting.set(false);
        let mut again = false;
        let mut looks = MAX_LOOKS;
        self.each_inbox(|inbox| again |= inbox.listen_again(&mut looks));
        if again {
            self.listen_again_later();
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

fn wait(key: Key, (fd, interest): (RawFd, Interest)) -> Wait {
    Wait {
        user_data: key.to_user_data(),
        fd,
        interest,
    }
}

fn note_close(result: i32) {
    if result < 0 {
        let error = io::Error::from_raw_os_error(-result);
        tracing::warn!(%error, "a descriptor could not be closed");
    }
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

/// How long to leave a kernel alone that has no memory for a submission.
const REFUSAL_PAUSE: Duration = Duration::from_millis(1);

/// How long a shutdown waits for cancelled ops.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(5);
