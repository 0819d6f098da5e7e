//! Wake: how another thread makes a sleeping worker return.

use std::cell::UnsafeCell;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use io_uring::{opcode, squeue, types};

use super::{Completion, Interest, Op, Via, attempted};
use crate::reactor::Reactor;
use crate::reactor::driver::WAKE;
use crate::reactor::driver::home::Home;
use crate::reactor::pool::Pool;

/// Makes a worker return from its sleep. It may be rung from any thread, also after the worker is gone.
///
/// It sends a message to the worker's ring, where the kernel takes one from a thread that need not have a ring of its
/// own (since 6.13): the message is the completion, so the worker has nothing to read and nothing to arm again.
/// Otherwise, and should that fail, it writes to an eventfd.
pub(crate) struct Bell {
    eventfd: OwnedFd,
    /// The worker's ring, for as long as it is open. Whoever rings keeps the lock for as long: the number may be
    /// somebody else's once it is closed. Nobody waits for it, as only the one who finds the worker asleep rings.
    ring: Mutex<Option<RawFd>>,
    home: Home,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        // Blocking: a read through the ring shall wait, which kernels of old refuse on a file that is not.
        // SAFETY: takes no pointer.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Arc::new(Self {
            // SAFETY: a new descriptor that nobody else owns.
            eventfd: unsafe { OwnedFd::from_raw_fd(fd) },
            ring: Mutex::new(None),
            home: Home::here(),
        }))
    }

    /// From now on messages go to this ring. It must stay open until [`disconnect`](Self::disconnect).
    pub(crate) fn connect(&self, ring: RawFd) {
        *self.lock() = Some(ring);
    }

    pub(crate) fn disconnect(&self) {
        *self.lock() = None;
    }

    /// For the attempt form, which must not wait.
    fn set_nonblocking(&self) {
        // SAFETY: takes no pointer. There is no other flag to be kept.
        let set = unsafe { libc::fcntl(self.eventfd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        debug_assert_eq!(set, 0, "an eventfd of our own");
    }

    pub(crate) fn ring(&self) {
        if !self.home.is_here() {
            return; // a forked child has no worker to be woken, and its parent's shall sleep on
        }
        let told = self.lock().is_some_and(|ring| message(ring).is_ok());
        if !told {
            self.write();
        }
    }

    fn write(&self) {
        let one = 1_u64.to_ne_bytes();
        // It never waits, as the counter cannot fill up: it would take 2⁶⁴ − 1 wakes.
        // SAFETY: the eight bytes live until the call returns.
        let written =
            unsafe { libc::write(self.eventfd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        debug_assert_eq!(written, 8, "ringing a bell");
    }

    fn lock(&self) -> MutexGuard<'_, Option<RawFd>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leaves a completion with the `user_data` [`WAKE`] on a ring, at once, from whichever thread (since 6.13).
///
/// The entry of a message could be submitted to the sender's own ring instead (since 5.18). But then it leaves when the
/// sender's turn ends, or never, if a task there blocks until it is answered.
pub(crate) fn message(ring: RawFd) -> io::Result<()> {
    let entry = opcode::MsgRingData::new(types::Fd(ring), 0, WAKE, None).build();
    // SAFETY: the kernel reads one entry, which lives until the call returns and points to nothing.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            NO_RING,
            REGISTER_SEND_MSG_RING,
            ptr::from_ref(&entry),
            1,
        )
    };
    match sent {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The worker's side of the eventfd: a read of it, always armed. It reads exactly eight bytes and never relies on a
/// short read, which some kernels (6.15.4) retry on such files.
pub(crate) struct WakeOp {
    bell: Arc<Bell>,
    /// Written by the kernel, read by nobody.
    count: UnsafeCell<[u8; 8]>,
    reactor: std::rc::Weak<Reactor>,
}

impl WakeOp {
    pub(crate) fn new(bell: Arc<Bell>, reactor: &Rc<Reactor>) -> Rc<Self> {
        if reactor.via() == Via::Readiness {
            bell.set_nonblocking();
        }
        Rc::new(Self {
            bell,
            count: UnsafeCell::new([0; 8]),
            reactor: Rc::downgrade(reactor),
        })
    }

    pub(crate) fn arm(self: &Rc<Self>) {
        if let Some(reactor) = self.reactor.upgrade() {
            reactor.submit(Rc::clone(self), reactor.via());
        }
    }

    fn fd(&self) -> RawFd {
        self.bell.eventfd.as_raw_fd()
    }
}

// SAFETY: the entry points to `count`, which is inside the `Rc`, never moves, and is touched by the kernel only.
unsafe impl Op for WakeOp {
    fn ring_form(&self) -> squeue::Entry {
        opcode::Read::new(types::Fd(self.fd()), self.count.get().cast(), 8).build()
    }

    fn interest(&self) -> (RawFd, Interest) {
        (self.fd(), Interest::Readable)
    }

    fn attempt(&self, _: &Rc<Pool>) -> Option<Completion> {
        // SAFETY: `count` is eight bytes, and no read of the ring is in flight while this op waits for readiness.
        let read = unsafe { libc::read(self.fd(), self.count.get().cast(), 8) };
        attempted(read).map(|result| Completion::once(result, None))
    }

    fn complete(self: Rc<Self>, done: Completion) {
        // The wake has done its work by ending the sleep. An error here would mean that the descriptor is gone.
        match -done.result {
            ..=0 | libc::EINTR => self.arm(),
            libc::ECANCELED => {}
            errno => tracing::error!(errno, "the worker can no longer be woken"),
        }
    }
}

// linux/io_uring.h
const NO_RING: libc::c_int = -1;
const REGISTER_SEND_MSG_RING: libc::c_uint = 31;

#[cfg(test)]
mod tests {
    use super::*;

    /// B51.
    #[test]
    fn a_forked_child_rings_no_bell_of_its_parent() {
        let bell = Bell::new().unwrap();
        bell.set_nonblocking();
        // SAFETY: the child only rings the bell and ends, without a destructor.
        let child = unsafe { libc::fork() };
        if child == 0 {
            bell.ring();
            // SAFETY: ends this process, which nobody relies on.
            unsafe { libc::_exit(0) };
        }
        let mut status = -1;
        // SAFETY: `status` outlives the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child has ended well");
        let is_rung = || {
            let mut count = [0_u8; 8];
            // SAFETY: eight bytes that outlive the call.
            let read =
                unsafe { libc::read(bell.eventfd.as_raw_fd(), count.as_mut_ptr().cast(), 8) };
            read == 8
        };
        assert!(!is_rung());
        bell.ring();
        assert!(is_rung());
    }
}
