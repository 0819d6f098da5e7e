//! A receive with a buffer of its own, for a task that waits while the pool is empty.

use std::cell::UnsafeCell;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;

use io_uring::{opcode, squeue, types};

use super::recv::RecvOp;
use super::{Completion, Interest, Op};
use crate::reactor::pool::{Lease, Pool};

/// One op, one chunk. What it brings goes to the socket's inbox like any other chunk.
pub(super) struct HeapRecv {
    recv: RecvOp,
    /// The kernel's while the op is in flight.
    buffer: UnsafeCell<Vec<u8>>,
}

impl HeapRecv {
    pub(super) fn new(recv: RecvOp) -> Rc<Self> {
        Rc::new(Self {
            recv,
            buffer: UnsafeCell::new(vec![0; HEAP_CHUNK]),
        })
    }

    fn fd(&self) -> RawFd {
        self.recv.socket().as_raw_fd()
    }
}

// SAFETY: the only pointer in the entry is that of `buffer`, whose bytes are on the heap; nobody looks at it before
// `complete`, as it is submitted once and its only completion is its final one.
unsafe impl Op for HeapRecv {
    fn ring_form(&self) -> squeue::Entry {
        // SAFETY: the op is not in flight yet, so nothing else refers to the buffer.
        let buffer = unsafe { &mut *self.buffer.get() };
        opcode::Recv::new(types::Fd(self.fd()), buffer.as_mut_ptr(), HEAP_CHUNK as u32).build()
    }

    fn interest(&self) -> (RawFd, Interest) {
        (self.fd(), Interest::Readable)
    }

    fn attempt(&self, pool: &Rc<Pool>) -> Option<Completion> {
        self.recv.attempt(pool)
    }

    fn complete(self: Rc<Self>, mut done: Completion) {
        if let Ok(n @ 1..) = usize::try_from(done.result) {
            // SAFETY: the op's only completion is here, so the kernel is done with the buffer.
            let mut bytes = std::mem::take(unsafe { &mut *self.buffer.get() });
            bytes.truncate(n);
            done.buffer = Some(Lease::heap(bytes));
        }
        self.recv.complete(done);
    }
}

/// What a socket receives at most at once while the pool is empty.
pub(super) const HEAP_CHUNK: usize = 4096;
