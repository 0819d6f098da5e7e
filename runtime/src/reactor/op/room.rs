//! Room: waiting until a socket whose send buffer was full takes more.

use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;

use io_uring::{opcode, squeue, types};

use super::send::SendOp;
use super::{Completion, Interest, Op};
use crate::reactor::pool::Pool;

/// Armed while an outbox is blocked: tells of every change towards room (multishot poll, since 5.13).
///
/// A send that waits in the kernel would do on most sockets. But the kernel takes a peer's half-close for news that
/// concern every waiter: such a send wakes, finds no room, and after some tries occupies a kernel thread until the peer
/// reads. A poll for each try would complete at once, for ever. Armed once and kept, the poll tells of the half-close
/// once and then of room only.
pub(crate) struct RoomOp {
    /// Held, as nobody else may hold it: the owner of an outbox may be gone before it is empty.
    send: SendOp,
}

impl RoomOp {
    pub(crate) fn new(send: SendOp) -> Rc<Self> {
        Rc::new(Self { send })
    }

    fn fd(&self) -> RawFd {
        self.send.socket().as_raw_fd()
    }
}

// SAFETY: the entry points to nothing.
unsafe impl Op for RoomOp {
    fn ring_form(&self) -> squeue::Entry {
        ring_form(self.fd())
    }

    fn interest(&self) -> (RawFd, Interest) {
        (self.fd(), Interest::Writable)
    }

    fn attempt(&self, _: &Rc<Pool>) -> Option<Completion> {
        Some(Completion::once(0, None))
    }

    fn complete(self: Rc<Self>, done: Completion) {
        self.send.room(done.more);
    }
}

pub(crate) fn ring_form(fd: RawFd) -> squeue::Entry {
    opcode::PollAdd::new(types::Fd(fd), libc::POLLOUT as u32)
        .multi(true)
        .build()
}
