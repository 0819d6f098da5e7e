//! Completions: whom each belongs to, and what follows from it.

use std::io;

use io_uring::cqueue;

use super::Reactor;
use super::driver::{Cqe, Request, UNNAMED, WAKE};
use super::op::{Completion, InFlight, Key, Next};
use super::submit::wait;

impl Reactor {
    pub(super) fn dispatch(&self) -> usize {
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

    /// The readiness that an op waited for is there.
    fn attempt(&self, key: Key, op: InFlight) {
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
    pub(super) fn cancel_missed(&self) {
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

    /// Ends the silent sends that the kernel has taken without leaving a completion.
    pub(super) fn settle(&self) {
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
}

fn note_close(result: i32) {
    if result < 0 {
        let error = io::Error::from_raw_os_error(-result);
        tracing::warn!(%error, "a descriptor could not be closed");
    }
}
