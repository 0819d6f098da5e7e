//! Connect.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll};

use io_uring::{opcode, squeue, types};
use socket2::SockAddr;

use super::{Completion, Interest, Key, Op, Via};
use crate::reactor::Waiters;
use crate::reactor::pool::Pool;
use crate::reactor::socket::Socket;

/// One attempt to connect one socket.
pub(crate) struct ConnectOp {
    socket: Socket,
    /// The kernel reads it when the op is issued, which may be a turn after the submission.
    address: SockAddr,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    key: Option<Key>,
    result: Option<i32>,
    waiters: Waiters,
}

impl ConnectOp {
    pub(crate) fn start(socket: Socket, address: SockAddr) -> Rc<Self> {
        let op = Rc::new(Self {
            socket,
            address,
            state: RefCell::default(),
        });
        let via = op.socket.reactor().via();
        if via == Via::Readiness
            && let Some(result) = op.begin()
        {
            op.state.borrow_mut().result = Some(result);
            return op;
        }
        let key = (op.socket.reactor()).submit(Rc::clone(&op), via);
        {
            let mut state = op.state.borrow_mut();
            state.key = key;
            if key.is_none() {
                state.result = Some(-libc::ECANCELED);
            }
        }
        op
    }

    /// Begins the handshake without the ring. `None`: it goes on, and its end is readiness to write.
    fn begin(&self) -> Option<i32> {
        let reactor = self.socket.reactor();
        // What an earlier attempt has left behind says nothing of this one.
        reactor.clear_ready(self.socket.as_raw_fd(), Interest::Writable);
        (reactor.system()).begin_connect(self.socket.as_fd(), &self.address)
    }

    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.state.borrow_mut();
        match state.result {
            Some(0..) => Poll::Ready(Ok(())),
            Some(errno) => Poll::Ready(Err(io::Error::from_raw_os_error(-errno))),
            None => {
                state.waiters.register(cx.waker());
                Poll::Pending
            }
        }
    }

    pub(crate) fn disown(&self) {
        let key = self.state.borrow_mut().key.take();
        if let Some(key) = key {
            self.socket.reactor().release(key);
        }
    }
}

// SAFETY: the entry points to `address`, which is inside the `Rc`, never moves and is never written.
unsafe impl Op for ConnectOp {
    fn ring_form(&self) -> squeue::Entry {
        let fd = types::Fd(self.socket.as_raw_fd());
        opcode::Connect::new(fd, self.address.as_ptr().cast(), self.address.len()).build()
    }

    fn interest(&self) -> (RawFd, Interest) {
        (self.socket.as_raw_fd(), Interest::Writable)
    }

    fn attempt(&self, _: &Rc<Pool>) -> Option<Completion> {
        // Writable: the handshake that was started has ended, one way or the other.
        let system = self.socket.reactor().system();
        let ended = system.end_connect(self.socket.as_fd());
        ended.map(|result| Completion::once(result, None))
    }

    fn complete(self: Rc<Self>, done: Completion) {
        let mut state = self.state.borrow_mut();
        state.result = Some(done.result);
        state.key = None;
        let waiters = state.waiters.take();
        drop(state);
        waiters.wake();
    }
}
