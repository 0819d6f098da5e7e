use std::cell::RefCell;
use std::task::Waker;
use std::time::Duration;

use super::Instant;
use super::clock::{Clock, Source};
use super::queue::Queue;

pub(crate) use super::queue::TimerKey;

/// The clock and the timers of one worker.
///
/// The worker asks [`park_timeout`](Self::park_timeout) how long it may be idle, and calls
/// [`fire_expired`](Self::fire_expired) once per turn. Futures insert and remove timers by key.
///
/// The life of a timer:
///
/// ```text
///             insert (1)            fire (3)
///   (nothing) ─────────▶ waiting ──────────────▶ gone: has_fired() is true
///                        │    ▲ │
///    update_waker (2)    └────┘ └──────────────▶ gone: waker dropped, memory free
///    reschedule               remove (4)
/// ```
///
/// Rule: **no borrow is held while a waker is cloned, woken or dropped.** Each of the three may run any code, and
/// that code may come back here. So wakers are cloned before the borrow and handed out of it.
///
/// The owner is the worker. Futures hold a `Weak`, so that the ring timers → waker → task → future → timers is not
/// closed, and dropping this drops every waker; a future that is left finds nothing and leaves it at that.
pub(crate) struct Timers {
    clock: Clock,
    queue: RefCell<Queue>,
}

/// What a worker with nothing to do should do, as far as time is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Park {
    /// No timer will ever fire: sleep until some other event.
    Forever,
    /// Sleep for this long at most, then fire. Zero: do not sleep, a timer is due. Whoever rounds this must round it
    /// up; to round a rest of less than a millisecond to zero is to spin until the deadline.
    For(Duration),
    /// The clock is paused before the next deadline: look for other events once, without sleeping, and if there are
    /// none call [`Timers::advance_to_next`], then fire.
    Advance,
}

impl Timers {
    pub(crate) fn new(source: Source) -> Self {
        Self {
            clock: Clock::new(source),
            queue: RefCell::new(Queue::new()),
        }
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Reads the clock.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Arrow 1: wakes `waker` in the first [`fire`](Self::fire) at or after the deadline.
    pub(crate) fn insert(&self, deadline: Instant, waker: &Waker) -> TimerKey {
        let waker = waker.clone();
        self.queue
            .borrow_mut()
            .insert(self.clock.tick(deadline), waker)
    }

    /// Arrow 2: has the timer wake another waker. False if the timer is gone.
    #[must_use]
    pub(crate) fn update_waker(&self, key: TimerKey, waker: &Waker) -> bool {
        match self.queue.borrow_mut().waker_mut(key) {
            None => return false,
            Some(current) if current.will_wake(waker) => return true,
            Some(_) => {}
        }
        let mut waker = waker.clone();
        if let Some(current) = self.queue.borrow_mut().waker_mut(key) {
            // Leaves the old one in `waker`, to be dropped after the borrow.
            std::mem::swap(current, &mut waker);
            return true;
        }
        // Cloning the waker removed the timer. Odd, but foreign code may.
        false
    }

    /// Moves the timer to another deadline, behind those that have the same. Gives its new key, or `None` if the
    /// timer is gone.
    pub(crate) fn reschedule(&self, key: TimerKey, deadline: Instant) -> Option<TimerKey> {
        let mut queue = self.queue.borrow_mut();
        let waker = queue.remove(key)?;
        Some(queue.insert(self.clock.tick(deadline), waker))
    }

    /// Whether the timer is gone. The caller did not remove it, so it has fired.
    #[must_use]
    pub(crate) fn has_fired(&self, key: TimerKey) -> bool {
        !self.queue.borrow().contains(key)
    }

    /// Arrow 4: takes the timer out and drops its waker. Does nothing if the timer is gone.
    pub(crate) fn remove(&self, key: TimerKey) {
        let waker = self.queue.borrow_mut().remove(key);
        drop(waker);
    }

    /// When the first timer is due. Timers that never fire do not count.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let tick = self.queue.borrow_mut().next_deadline()?;
        Some(self.clock.instant(tick))
    }

    /// What a worker with nothing else to do should do. Reads the clock only if there is a timer.
    pub(crate) fn park_timeout(&self) -> Park {
        let Some(deadline) = self.next_deadline() else {
            return Park::Forever;
        };
        let wait = deadline - self.now();
        if self.clock.is_paused() && !wait.is_zero() {
            Park::Advance
        } else {
            Park::For(wait)
        }
    }

    /// Moves a paused clock to the next deadline, if that lies ahead. Fires nothing.
    pub(crate) fn advance_to_next(&self) {
        if let Some(deadline) = self.next_deadline() {
            self.clock.advance(deadline - self.now());
        }
    }

    /// [`fire`](Self::fire) at the present time. Reads the clock only if there is a timer.
    pub(crate) fn fire_expired(&self) -> usize {
        match self.next_deadline() {
            Some(_) => self.fire(self.now()),
            None => 0,
        }
    }

    /// Arrow 3: wakes all timers that are due at `now`, in order, and tells how many.
    ///
    /// It wakes at most as many as there were at the start, so that wakers that keep inserting timers that are
    /// already due cannot hold the worker here. The rest stays due, and [`park_timeout`](Self::park_timeout) says so.
    pub(crate) fn fire(&self, now: Instant) -> usize {
        let tick = self.clock.tick(now);
        let limit = self.queue.borrow().len();
        let mut fired = 0;
        while fired < limit
            && let Some(waker) = self.pop_due(tick)
        {
            fired += 1;
            waker.wake();
        }
        fired
    }

    fn pop_due(&self, tick: u64) -> Option<Waker> {
        self.queue.borrow_mut().pop_due(tick)
    }
}

#[cfg(test)]
pub(super) mod tests;
