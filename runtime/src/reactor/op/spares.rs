//! What sends borrow for a moment: buffers for small writes, and the slices of a gathered send.

use std::cell::RefCell;
use std::mem;

use super::outgoing::Outgoing;
use crate::reactor::send_buf::SendBuf;

/// What a `sendmsg` needs besides the bytes. Boxed while in flight, as its message points to its slices.
pub(crate) struct Gather {
    pub(crate) message: libc::msghdr,
    slices: [libc::iovec; MAX_GATHER],
}

impl Gather {
    fn new() -> Box<Self> {
        let empty = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        Box::new(Self {
            // SAFETY: all zeros is a message without address, slices or control data.
            message: unsafe { mem::zeroed() },
            slices: [empty; MAX_GATHER],
        })
    }

    pub(super) fn fill<'a>(self: &mut Box<Self>, slices: impl Iterator<Item = &'a [u8]>) {
        let mut count = 0;
        for (slot, bytes) in self.slices.iter_mut().zip(slices) {
            slot.iov_base = bytes.as_ptr().cast_mut().cast();
            slot.iov_len = bytes.len();
            count += 1;
        }
        self.message.msg_iov = self.slices.as_mut_ptr();
        self.message.msg_iovlen = count;
    }
}

/// Things that sends borrow for a moment, kept by the worker: an idle connection holds none, and a busy one
/// allocates none.
#[derive(Default)]
pub(crate) struct Spares {
    buffers: RefCell<Vec<Vec<u8>>>,
    #[expect(
        clippy::vec_box,
        reason = "what a socket holds is a word while it has nothing to send"
    )]
    outgoings: RefCell<Vec<Box<Outgoing>>>,
    #[expect(
        clippy::vec_box,
        reason = "a gather points into itself, so it never moves"
    )]
    gathers: RefCell<Vec<Box<Gather>>>,
    /// Empty: room for owned buffers between their end and their drop.
    done: RefCell<Vec<SendBuf>>,
}

impl Spares {
    #[inline(always)]
    pub(super) fn take_buffer(&self) -> Vec<u8> {
        let spare = self.buffers.borrow_mut().pop();
        spare.unwrap_or_else(|| Vec::with_capacity(CHUNK))
    }

    #[inline(always)]
    pub(super) fn put_buffer(&self, mut buffer: Vec<u8>) {
        let mut buffers = self.buffers.borrow_mut();
        if buffers.len() < MAX_SPARE_BUFFERS {
            buffer.clear();
            buffers.push(buffer);
        }
    }

    #[inline(always)]
    pub(super) fn take_outgoing(&self) -> Box<Outgoing> {
        self.outgoings.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps one that has nothing to send.
    #[inline(always)]
    pub(super) fn put_outgoing(&self, outgoing: Box<Outgoing>) {
        let mut outgoings = self.outgoings.borrow_mut();
        if outgoings.len() < MAX_SPARE_BUFFERS && outgoing.is_small() {
            outgoings.push(outgoing);
        }
    }

    pub(super) fn take_done(&self) -> Vec<SendBuf> {
        self.done.take()
    }

    pub(super) fn put_done(&self, done: Vec<SendBuf>) {
        self.done.replace(done);
    }

    pub(super) fn take_gather(&self) -> Box<Gather> {
        let spare = self.gathers.borrow_mut().pop();
        spare.unwrap_or_else(Gather::new)
    }

    pub(super) fn put_gather(&self, gather: Box<Gather>) {
        let mut gathers = self.gathers.borrow_mut();
        if gathers.len() < MAX_SPARE_GATHERS {
            gathers.push(gather);
        }
    }
}

/// The size of a chunk of small writes.
pub(super) const CHUNK: usize = 16 * 1024;

/// Chunks that one send takes; the kernel's own bound is 1,024.
pub(super) const MAX_GATHER: usize = 64;

/// 4 MiB of spare chunks at most, and as much again in heads of outboxes.
const MAX_SPARE_BUFFERS: usize = 256;

const MAX_SPARE_GATHERS: usize = 64;
