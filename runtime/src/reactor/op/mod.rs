//! Operations: what the kernel is doing for us, and who is told when it has done it.
//!
//! One file per op family. It holds the data that the kernel may touch, its *ring form* (the SQE) and its *attempt
//! form* (one nonblocking system call), and what a completion means to it.
//!
//! An op lives in a slot from its submission to its **final** completion, the one without `F_MORE`, whatever
//! happens to futures, sockets or the runtime meanwhile. The slot holds a reference to the op and the op owns its
//! memory, so what the kernel may touch cannot be freed early.
#![allow(unsafe_code)]

pub(crate) mod accept;
pub(crate) mod close;
pub(crate) mod connect;
mod heap;
mod hearing;
pub(crate) mod outgoing;
pub(crate) mod poll;
pub(crate) mod recv;
pub(crate) mod room;
pub(crate) mod send;
mod slots;
pub(crate) mod spares;
pub(crate) mod system;
mod unread;
pub(crate) mod wake;

use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;

use io_uring::squeue;

use self::recv::RecvOp;
pub(crate) use self::slots::{Key, Next, Slots, Via};
use super::pool::{Lease, Pool};

/// One operation that can be submitted, again and again, by the thing that owns it.
///
/// # Safety
///
/// Every pointer in the entry that [`ring_form`](Self::ring_form) returns must stay valid, and what it points to
/// must not be written (or, where the kernel writes, not be touched) by anybody else, from that call until the
/// op's final [`complete`](Self::complete) or [`reclaim`](Self::reclaim) (or until [`SendOp::settled`](send::SendOp::settled)),
/// for as long as an `Rc` of the op exists. The reactor keeps such an `Rc` in the op's slot for all that time.
pub(crate) unsafe trait Op {
    /// The SQE. The reactor sets its `user_data`.
    fn ring_form(&self) -> squeue::Entry;

    /// What has to become ready before [`attempt`](Self::attempt) can succeed.
    fn interest(&self) -> (RawFd, Interest);

    /// One nonblocking try without the ring. `None`: would block, or was interrupted.
    fn attempt(&self, pool: &Rc<Pool>) -> Option<Completion>;

    /// A completion for an op that its owner still waits for.
    fn complete(self: Rc<Self>, done: Completion);

    /// A completion for an op whose owner has let go of it. A buffer in it returns to the pool by being dropped;
    /// whatever else it carries (a descriptor) must be given back here.
    fn reclaim(&self, done: Completion) {
        drop(done);
    }
}

/// What a slot holds of an op. Receives are nearly all of what completes, so they have no virtual call.
#[derive(Clone)]
pub(crate) enum InFlight {
    Recv(RecvOp),
    Other(Rc<dyn Op>),
}

impl From<RecvOp> for InFlight {
    fn from(op: RecvOp) -> Self {
        Self::Recv(op)
    }
}

impl<O: Op + 'static> From<Rc<O>> for InFlight {
    fn from(op: Rc<O>) -> Self {
        Self::Other(op)
    }
}

/// As in [`Op`].
impl InFlight {
    pub(super) fn ring_form(&self) -> squeue::Entry {
        match self {
            Self::Recv(op) => op.ring_form(),
            Self::Other(op) => op.ring_form(),
        }
    }

    pub(super) fn interest(&self) -> (RawFd, Interest) {
        match self {
            Self::Recv(op) => op.interest(),
            Self::Other(op) => op.interest(),
        }
    }

    pub(super) fn attempt(&self, pool: &Rc<Pool>) -> Option<Completion> {
        match self {
            Self::Recv(op) => op.attempt(pool),
            Self::Other(op) => op.attempt(pool),
        }
    }

    #[inline(always)] // one caller for each message
    pub(super) fn complete(self, done: Completion) {
        match self {
            Self::Recv(op) => op.complete(done),
            Self::Other(op) => op.complete(done),
        }
    }

    pub(super) fn reclaim(self, done: Completion) {
        match self {
            Self::Recv(_) => drop(done),
            Self::Other(op) => op.reclaim(done),
        }
    }
}

/// What the kernel says about an op.
#[derive(Debug)]
pub(crate) struct Completion {
    /// As in the CQE: a result, or a negative errno.
    pub(crate) result: i32,
    /// More completions of the same op follow.
    pub(crate) more: bool,
    /// The pool buffer that the kernel filled, its length already set to `result`.
    pub(crate) buffer: Option<Lease>,
    /// The socket is known to hold more (`IORING_CQE_F_SOCK_NONEMPTY`, since 5.19; a hint).
    pub(crate) nonempty: bool,
}

impl Completion {
    /// The only completion of an op that was attempted without the ring.
    pub(crate) fn once(result: i32, buffer: Option<Lease>) -> Self {
        Self {
            result,
            more: false,
            buffer,
            nonempty: false,
        }
    }
}

/// The direction in which an op waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    Readable,
    Writable,
}

/// Turns what a libc call returned into a completion's result, or `None` where trying again later is the answer.
fn attempted(returned: isize) -> Option<i32> {
    if let Ok(result) = i32::try_from(returned)
        && result >= 0
    {
        return Some(result);
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR | libc::EINPROGRESS | libc::EALREADY) => None,
        errno => Some(-errno.unwrap_or(libc::EIO)),
    }
}
