//! The end: what is written goes out, what is in flight is cancelled, and the driver is given back.

use std::mem;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::{Park, Reactor};

impl Reactor {
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

/// How long a shutdown waits for cancelled ops.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(5);
