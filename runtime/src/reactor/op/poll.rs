//! Poll: readiness of a descriptor in one direction, for things that are not sockets of ours.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::task::{Context, Poll};

use io_uring::{opcode, squeue, types};

use super::{Completion, Interest, Key, Op};
use crate::reactor::pool::Pool;
use crate::reactor::{Reactor, Waiters};

/// What is known of a descriptor's readiness in one direction.
///
/// The kernel tells of *changes* only, so readiness is remembered until somebody finds by trying that it is over.
pub(crate) struct PollOp {
    fd: RawFd,
    interest: Interest,
    reactor: Rc<Reactor>,
    state: RefCell<State>,
    multishot: Cell<bool>,
}

/// When a readiness was known: what was heard of up to then, by the op and by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct News {
    op: u32,
    driver: u32,
}

#[derive(Default)]
struct State {
    key: Option<Key>,
    ready: bool,
    news: u32,
    error: Option<i32>,
    waiters: Waiters,
}

impl PollOp {
    pub(crate) fn new(fd: RawFd, interest: Interest, reactor: Rc<Reactor>) -> Rc<Self> {
        Rc::new(Self {
            fd,
            interest,
            reactor,
            state: RefCell::default(),
            multishot: Cell::new(true),
        })
    }

    pub(crate) fn poll_ready(self: &Rc<Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.state.borrow_mut();
        if let Some(errno) = state.error.take() {
            return Poll::Ready(Err(io::Error::from_raw_os_error(errno)));
        }
        if state.ready {
            return Poll::Ready(Ok(()));
        }
        state.waiters.register(cx.waker());
        let idle = state.key.is_none();
        drop(state);
        if idle {
            self.arm();
        }
        Poll::Pending
    }

    /// The number of the latest news; what was found by trying before it is out of date.
    pub(crate) fn news(&self) -> News {
        News {
            op: self.state.borrow().news,
            driver: self.reactor.news(self.fd, self.interest),
        }
    }

    /// Somebody tried, after the given news and before any other, and would have blocked.
    pub(crate) fn clear_ready(&self, news: News) {
        if self.news() != news {
            return;
        }
        self.state.borrow_mut().ready = false;
        self.reactor.clear_ready(self.fd, self.interest);
    }

    pub(crate) fn disown(&self) {
        let key = self.state.borrow_mut().key.take();
        if let Some(key) = key {
            self.reactor.release(key);
        }
    }

    /// Nothing waits for the descriptor any more, which may be closed next.
    pub(crate) fn forget(&self) {
        self.reactor.forget(self.fd);
    }

    fn arm(self: &Rc<Self>) {
        let via = self.reactor.via();
        let key = (self.reactor).submit(Rc::clone(self), via);
        let mut state = self.state.borrow_mut();
        state.key = key;
        if key.is_none() {
            state.error = Some(libc::ECANCELED);
            let waiters = state.waiters.take();
            drop(state);
            waiters.wake();
        }
    }
}

// SAFETY: the entry points to nothing.
unsafe impl Op for PollOp {
    fn ring_form(&self) -> squeue::Entry {
        let events = match self.interest {
            Interest::Readable => libc::POLLIN | libc::POLLRDHUP | libc::POLLPRI,
            Interest::Writable => libc::POLLOUT,
        };
        opcode::PollAdd::new(types::Fd(self.fd), events as u32)
            .multi(self.multishot.get())
            .build()
    }

    fn interest(&self) -> (RawFd, Interest) {
        (self.fd, self.interest)
    }

    fn attempt(&self, _: &Rc<Pool>) -> Option<Completion> {
        // Being ready is all that is asked for.
        Some(Completion::once(0, None))
    }

    fn complete(self: Rc<Self>, done: Completion) {
        let mut state = self.state.borrow_mut();
        if !done.more {
            state.key = None;
        }
        match -done.result {
            ..=0 => {
                state.ready = true;
                state.news = state.news.wrapping_add(1);
            }
            libc::ECANCELED | libc::EINTR | libc::EAGAIN => {}
            // Kernels before 5.13 have only the single-shot form, which is armed anew each time.
            libc::EINVAL if self.multishot.replace(false) => {}
            errno => state.error = Some(errno),
        }
        let waiters = state.waiters.take();
        drop(state);
        waiters.wake();
    }
}
