//! Drivers: the kernel interfaces that a reactor can run on. They move requests in and completions out; what these
//! mean is the reactor's business.

pub(crate) mod epoll;
mod fifo;
pub(crate) mod home;
#[cfg(feature = "sim")]
pub(crate) mod sim;
pub(crate) mod uring;

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::ptr::NonNull;
use std::time::Duration;

use io_uring::{opcode, squeue, types};

use super::op::{Interest, close};

/// The driver of one worker, chosen once, at its start. What a method does by default is what a driver does that has
/// nothing to remember there.
pub(crate) trait Driver {
    /// Queues an operation in its ring form, and says how many are [`pushed`](Self::pushed) with it. `None` if there was
    /// no room. Only a ring is asked.
    fn push_entry(&mut self, entry: &squeue::Entry) -> Option<u32>;

    /// Queues any request. It is given back if there is no room.
    fn push(&mut self, request: Request) -> Result<(), Request>;

    /// Submits what is queued, without looking at completions.
    fn submit(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// One turn: submits what is queued, sleeps if told to, appends what has completed to `arrived`.
    fn turn(&mut self, park: Park, arrived: &mut Vec<Cqe>) -> io::Result<()>;

    /// Whether another turn would bring completions at once.
    fn has_more(&mut self) -> bool {
        false
    }

    /// Whether a turn would find something, as far as can be told without one. For somebody who looks again and again.
    fn has_news(&mut self) -> bool {
        self.has_more()
    }

    /// Entries pushed since the start, wrapping.
    fn pushed(&self) -> u32 {
        0
    }

    /// Entries that the kernel has taken since the start, wrapping.
    fn consumed(&self) -> u32 {
        0
    }

    /// Whether completions wait in the kernel because the completion queue was full.
    fn is_overflowing(&mut self) -> bool {
        false
    }

    /// Somebody has tried and found that the descriptor is not ready, since the last turn.
    fn clear_ready(&mut self, _fd: RawFd, _interest: Interest) {}

    /// How often the descriptor was told to be ready, where that is remembered here.
    fn news(&mut self, _fd: RawFd, _interest: Interest) -> u32 {
        0
    }

    /// The descriptor leaves this driver, though it stays open.
    fn forget(&mut self, _fd: RawFd) {}

    /// Lets the kernel fill a buffer, from the next [`publish`](Self::publish) on.
    fn provide(&mut self, _id: u16, _address: NonNull<u8>, _len: usize) {}

    fn publish(&mut self) {}

    fn counters(&self) -> DriverCounters;
}

/// What a reactor asks of its driver.
pub(crate) enum Request {
    /// An operation in its ring form. Only a ring takes it.
    Entry(squeue::Entry),
    /// A completion with this `user_data`, once, as soon as the descriptor is ready.
    Readiness(Wait),
    /// The operation, or the wait, shall end soon. It has a completion of its own only if it fails.
    Cancel {
        of: Wait,
        user_data: u64,
    },
    Close(OwnedFd),
}

impl Request {
    /// The request as an SQE. With `skip_success` what nobody waits for has a completion only if it fails.
    pub(crate) fn into_entry(self, skip_success: bool) -> squeue::Entry {
        let silence = if skip_success {
            squeue::Flags::SKIP_SUCCESS
        } else {
            squeue::Flags::empty()
        };
        match self {
            Self::Entry(entry) => entry,
            Self::Readiness(wait) => poll_form(wait).user_data(wait.user_data),
            Self::Cancel { of, user_data } => (opcode::AsyncCancel::new(of.user_data).build())
                .flags(silence)
                .user_data(user_data),
            Self::Close(fd) => (close::ring_form(fd).flags(silence)).user_data(UNNAMED),
        }
    }
}

/// Waiting for readiness, once.
fn poll_form(wait: Wait) -> squeue::Entry {
    let events = match wait.interest {
        Interest::Readable => libc::POLLIN | libc::POLLRDHUP,
        Interest::Writable => libc::POLLOUT,
    };
    opcode::PollAdd::new(types::Fd(wait.fd), events as u32).build()
}

/// Who waits for which descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) user_data: u64,
    pub(crate) fd: RawFd,
    pub(crate) interest: Interest,
}

/// One completion, copied out of the kernel's queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cqe {
    pub(crate) user_data: u64,
    pub(crate) result: i32,
    pub(crate) flags: u32,
}

/// The `user_data` of closes, which nobody waits for.
pub(crate) const UNNAMED: u64 = u64::MAX;

/// The `user_data` of messages that end a sleep, and do nothing else.
pub(crate) const WAKE: u64 = u64::MAX - 1;

/// What a turn does when there is nothing to reap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Park {
    /// Return at once: there is other work.
    Poll,
    /// Sleep until something happens, or for this long.
    Sleep(Option<Duration>),
}

/// What a driver has counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DriverCounters {
    pub(crate) enters: u64,
    pub(crate) overflows: u64,
}
