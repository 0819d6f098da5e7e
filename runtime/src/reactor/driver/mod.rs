//! Drivers: the kernel interfaces that a reactor can run on. They move requests in and completions out; what these
//! mean is the reactor's business.

pub(crate) mod epoll;
pub(crate) mod uring;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::ptr::NonNull;
use std::time::Duration;

use io_uring::squeue;

use self::epoll::Epoll;
use self::uring::Uring;
use super::op::Interest;

/// The driver of one worker, chosen once, at its start.
pub(crate) enum Driver {
    Uring(Uring),
    Epoll(Epoll),
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

impl Driver {
    /// Queues a request. It is given back if there is no room.
    pub(crate) fn push(&mut self, request: Request) -> Result<(), Request> {
        match self {
            Self::Uring(uring) => uring.push_request(request),
            Self::Epoll(epoll) => {
                epoll.push(request);
                Ok(())
            }
        }
    }

    /// Submits what is queued, without looking at completions.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        match self {
            Self::Uring(uring) => uring.submit(),
            Self::Epoll(_) => Ok(()),
        }
    }

    /// One turn: submits what is queued, sleeps if told to, appends what has completed to `arrived`.
    pub(crate) fn turn(&mut self, park: Park, arrived: &mut VecDeque<Cqe>) -> io::Result<()> {
        match self {
            Self::Uring(uring) => uring.turn(park, arrived),
            Self::Epoll(epoll) => epoll.turn(park, arrived),
        }
    }

    /// Whether another turn would bring completions at once.
    pub(crate) fn has_more(&mut self) -> bool {
        match self {
            Self::Uring(uring) => uring.wants_enter(),
            Self::Epoll(_) => false,
        }
    }

    /// Entries pushed since the start, wrapping.
    pub(crate) fn pushed(&self) -> u32 {
        match self {
            Self::Uring(uring) => uring.pushed(),
            Self::Epoll(_) => 0,
        }
    }

    /// Entries that the kernel has taken since the start, wrapping.
    pub(crate) fn consumed(&self) -> u32 {
        match self {
            Self::Uring(uring) => uring.consumed(),
            Self::Epoll(_) => 0,
        }
    }

    /// Whether completions wait in the kernel because the completion queue was full.
    pub(crate) fn is_overflowing(&mut self) -> bool {
        match self {
            Self::Uring(uring) => uring.is_overflowing(),
            Self::Epoll(_) => false,
        }
    }

    /// Somebody has tried and found that the descriptor is not ready, since the last turn.
    pub(crate) fn clear_ready(&mut self, fd: RawFd, interest: Interest) {
        match self {
            // The ring looks for itself at every request.
            Self::Uring(_) => {}
            Self::Epoll(epoll) => epoll.clear_ready(fd, interest),
        }
    }

    /// How often the descriptor was told to be ready, where that is remembered here.
    pub(crate) fn news(&mut self, fd: RawFd, interest: Interest) -> u32 {
        match self {
            Self::Uring(_) => 0,
            Self::Epoll(epoll) => epoll.news(fd, interest),
        }
    }

    /// The descriptor leaves this driver, though it stays open.
    pub(crate) fn forget(&mut self, fd: RawFd) {
        match self {
            Self::Uring(_) => {}
            Self::Epoll(epoll) => epoll.forget(fd),
        }
    }

    /// Lets the kernel fill a buffer, from the next [`publish`](Self::publish) on.
    pub(crate) fn provide(&mut self, id: u16, address: NonNull<u8>, len: usize) {
        match self {
            Self::Uring(uring) => uring.provide(id, address, len),
            Self::Epoll(_) => {}
        }
    }

    pub(crate) fn publish(&mut self) {
        match self {
            Self::Uring(uring) => uring.publish(),
            Self::Epoll(_) => {}
        }
    }

    pub(crate) fn counters(&self) -> DriverCounters {
        match self {
            Self::Uring(uring) => uring.counters(),
            Self::Epoll(epoll) => epoll.counters(),
        }
    }
}
