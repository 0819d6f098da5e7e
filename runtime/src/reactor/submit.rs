//! Submitting: what ops ask of the kernel goes into its queue, or waits here in order until there is room.

use std::os::fd::{OwnedFd, RawFd};

use io_uring::squeue;

use super::Reactor;
use super::driver::{Driver, Request, Wait};
use super::op::send::SendOp;
use super::op::{InFlight, Interest, Key, Via};

impl Reactor {
    /// Starts an op. `None` if the reactor is closed: there will be no completion.
    pub(crate) fn submit(&self, op: impl Into<InFlight>, via: Via) -> Option<Key> {
        if self.is_closed() {
            return None;
        }
        let op = op.into();
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
        op: SendOp,
        mut entry: squeue::Entry,
    ) -> Result<(), SendOp> {
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
    pub(super) fn close(&self, fd: OwnedFd) {
        if self.driver().is_some() {
            self.push(Request::Close(fd));
        }
    }

    pub(super) fn push(&self, request: Request) {
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
    pub(super) fn try_push(&self, request: Request) -> Result<(), Request> {
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
    pub(super) fn try_push_silent(
        &self,
        entry: &mut squeue::Entry,
        op: SendOp,
    ) -> Result<(), SendOp> {
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
}

pub(super) fn wait(key: Key, (fd, interest): (RawFd, Interest)) -> Wait {
    Wait {
        user_data: key.to_user_data(),
        fd,
        interest,
    }
}
