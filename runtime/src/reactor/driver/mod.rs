//! Drivers: the kernel interfaces that a reactor can run on. They move entries in and completions out; what these
//! mean is the reactor's business.

pub(crate) mod uring;

use std::io;
use std::ptr::NonNull;
use std::time::Duration;

use io_uring::squeue;

use self::uring::Uring;

/// The driver of one worker, chosen once, at its start.
pub(crate) enum Driver {
    Uring(Uring),
}

/// One completion, copied out of the kernel's queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cqe {
    pub(crate) user_data: u64,
    pub(crate) result: i32,
    pub(crate) flags: u32,
}

/// What a turn does when there is nothing to reap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Park {
    /// Return at once: there is other work.
    Poll,
    /// Sleep until something happens, or for this long.
    Sleep(Option<Duration>),
}

/// The submission queue has no room.
#[derive(Debug)]
pub(crate) struct Full;

/// What a driver has counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DriverCounters {
    pub(crate) enters: u64,
    pub(crate) overflows: u64,
}

impl Driver {
    /// Queues an entry; no system call.
    pub(crate) fn push(&mut self, entry: &squeue::Entry) -> Result<(), Full> {
        match self {
            Self::Uring(uring) => uring.push(entry),
        }
    }

    /// Submits what is queued, without looking at completions.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        match self {
            Self::Uring(uring) => uring.submit(),
        }
    }

    /// One turn: submits what is queued, sleeps if told to, appends what has completed to `arrived`.
    pub(crate) fn turn(&mut self, park: Park, arrived: &mut Vec<Cqe>) -> io::Result<()> {
        match self {
            Self::Uring(uring) => uring.turn(park, arrived),
        }
    }

    /// Entries pushed since the start, wrapping.
    pub(crate) fn pushed(&self) -> u32 {
        match self {
            Self::Uring(uring) => uring.pushed(),
        }
    }

    /// Entries that the kernel has taken since the start, wrapping.
    pub(crate) fn consumed(&self) -> u32 {
        match self {
            Self::Uring(uring) => uring.consumed(),
        }
    }

    /// Whether completions wait in the kernel because the completion queue was full.
    pub(crate) fn is_overflowing(&mut self) -> bool {
        match self {
            Self::Uring(uring) => uring.is_overflowing(),
        }
    }

    /// Lets the kernel fill a buffer, from the next [`publish`](Self::publish) on.
    pub(crate) fn provide(&mut self, id: u16, address: NonNull<u8>, len: usize) {
        match self {
            Self::Uring(uring) => uring.provide(id, address, len),
        }
    }

    pub(crate) fn publish(&mut self) {
        match self {
            Self::Uring(uring) => uring.publish(),
        }
    }

    pub(crate) fn counters(&self) -> DriverCounters {
        match self {
            Self::Uring(uring) => uring.counters(),
        }
    }
}
