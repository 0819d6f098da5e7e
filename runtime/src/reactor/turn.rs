//! The turn: what tasks have left is submitted, one call may sleep, and what has come is handed on.

use std::time::Duration;

use super::driver::Driver;
use super::{Park, Reactor, RecvOp, Request};

impl Reactor {
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
            self.meet_deadlines();
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
    pub(super) fn flush_pool(&self) {
        if self.pool.is_short() && !self.pool.grow() {
            self.relieve();
        }
        if let Some(driver) = self.driver().as_mut() {
            self.publish(driver.as_mut());
        }
    }

    /// Shows the kernel the buffers that are vacant.
    pub(super) fn publish(&self, driver: &mut dyn Driver) {
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

    pub(super) fn has_unsubmitted(&self) -> bool {
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

    fn has_more(&self) -> bool {
        self.driver()
            .as_mut()
            .is_some_and(|driver| driver.has_more())
    }
}

/// How long to leave a kernel alone that has no memory for a submission.
const REFUSAL_PAUSE: Duration = Duration::from_millis(1);
