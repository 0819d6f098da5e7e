//! Accept: connections that were accepted and not taken yet, and the op that brings more.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use io_uring::{opcode, squeue, types};

use super::{Completion, Interest, Key, Op, Via};
use crate::reactor::pool::Pool;
use crate::reactor::socket::Socket;
use crate::reactor::{Alarm, Reactor, Waiters};

/// The accepting side of one listener.
pub(crate) struct AcceptOp {
    socket: Socket,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    accepted: VecDeque<OwnedFd>,
    phase: Phase,
    /// What the next `accept` shall report.
    error: Option<i32>,
    /// The listener cannot accept any more, ever: every `accept` reports this.
    dead: Option<i32>,
    /// Descriptors or memory are short, and that was reported.
    outage: bool,
    waiters: Waiters,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    InFlight(Key),
    /// In flight and cancelled; connections may still come before its end.
    Stopping(Key),
    /// Waits for the alarm before it tries again.
    BackingOff,
}

impl AcceptOp {
    pub(crate) fn new(socket: Socket) -> Rc<Self> {
        let op = Rc::new(Self {
            socket,
            state: RefCell::default(),
        });
        op.set_nonblocking(true);
        op
    }

    /// A connection or an error, if there is one now; if not, makes sure that it will come.
    pub(crate) fn accept(self: &Rc<Self>) -> Option<io::Result<OwnedFd>> {
        let (taken, resume) = {
            let mut state = self.state.borrow_mut();
            let taken = state.take();
            let resume = state.phase == Phase::Idle
                && state.accepted.len() <= self.limit() / 2
                && state.dead.is_none();
            (taken, resume)
        };
        if resume {
            self.arm();
        }
        match taken {
            None if self.reactor().is_closed() => {
                Some(Err(io::Error::from_raw_os_error(libc::ECANCELED)))
            }
            taken => taken,
        }
    }

    pub(crate) fn poll_accept(self: &Rc<Self>, cx: &mut Context<'_>) -> Poll<io::Result<OwnedFd>> {
        if !self.reactor().take_budget() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        match self.accept() {
            Some(taken) => Poll::Ready(taken),
            None => {
                self.register(cx.waker());
                Poll::Pending
            }
        }
    }

    /// Stops the op and waits for its end. Whoever accepts afterwards starts a new one.
    pub(crate) fn poll_stop(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.borrow_mut();
        match state.phase {
            Phase::Idle => return Poll::Ready(()),
            Phase::BackingOff => {
                state.phase = Phase::Idle;
                return Poll::Ready(());
            }
            Phase::Stopping(_) => {}
            Phase::InFlight(key) => {
                state.phase = Phase::Stopping(key);
                self.reactor().cancel(key);
            }
        }
        state.waiters.register(cx.waker());
        Poll::Pending
    }

    /// Everything that was accepted and not taken.
    pub(crate) fn take_accepted(&self) -> VecDeque<OwnedFd> {
        mem::take(&mut self.state.borrow_mut().accepted)
    }

    /// The owner is gone: stop, and close what nobody took.
    pub(crate) fn disown(&self) {
        let mut state = self.state.borrow_mut();
        let phase = mem::take(&mut state.phase);
        let accepted = mem::take(&mut state.accepted);
        let waiters = state.waiters.take();
        drop(state);
        drop((accepted, waiters));
        self.set_nonblocking(false);
        if let Phase::InFlight(key) | Phase::Stopping(key) = phase {
            self.reactor().release(key);
        }
    }

    /// For the attempt form: a connection that was there may be gone again, taken by another process. The ring wants
    /// a blocking listener (before 6.1 it does not wait for one that is not).
    fn set_nonblocking(&self, nonblocking: bool) {
        // The mode belongs to the file, which a forked child shares with its parent.
        if self.reactor().via() == Via::Readiness
            && self.reactor().is_at_home()
            && let Err(error) = socket2::SockRef::from(&self.socket).set_nonblocking(nonblocking)
        {
            tracing::warn!(%error, "a listener's blocking mode cannot be changed");
        }
    }

    fn register(&self, waker: &Waker) {
        self.state.borrow_mut().waiters.register(waker);
    }

    fn arm(self: &Rc<Self>) {
        let via = self.reactor().via();
        let key = (self.reactor()).submit(Rc::clone(self), via);
        let mut state = self.state.borrow_mut();
        match key {
            Some(key) => state.phase = Phase::InFlight(key),
            None => state.dead = Some(libc::ECANCELED),
        }
    }

    fn back_off(self: &Rc<Self>) {
        let this: Rc<dyn Alarm> = Rc::clone(self) as _;
        self.reactor().set_alarm(BACK_OFF, Rc::downgrade(&this));
    }

    /// What happens after a completion was taken in.
    fn go_on(self: &Rc<Self>, stopped: bool) {
        let limit = self.limit();
        let mut state = self.state.borrow_mut();
        match state.phase {
            // Past the bound connections wait in the kernel, whose own backlog then pushes back.
            Phase::InFlight(key) if state.accepted.len() >= limit => {
                self.reactor().counters.pauses.add(1);
                state.phase = Phase::Stopping(key);
                drop(state);
                self.reactor().cancel(key);
            }
            Phase::Idle if state.outage && !stopped => {
                state.phase = Phase::BackingOff;
                drop(state);
                self.back_off();
            }
            // After an error the next `accept` arms, so that one failure is one report and never a spin.
            Phase::Idle
                if !stopped
                    && state.error.is_none()
                    && state.dead.is_none()
                    && state.accepted.len() < limit =>
            {
                self.reactor().counters.rearms.add(1);
                drop(state);
                self.arm();
            }
            _ => {}
        }
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    fn limit(&self) -> usize {
        self.reactor().limits.accept_backlog
    }

    fn reactor(&self) -> &Rc<Reactor> {
        self.socket.reactor()
    }
}

impl State {
    fn take(&mut self) -> Option<io::Result<OwnedFd>> {
        if let Some(fd) = self.accepted.pop_front() {
            return Some(Ok(fd));
        }
        let errno = self.error.take().or(self.dead)?;
        Some(Err(io::Error::from_raw_os_error(errno)))
    }

    fn fail(&mut self, errno: i32) {
        match errno {
            libc::ECANCELED | libc::EINTR | libc::EAGAIN => {}
            libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM => {
                // One report for each outage; the back-off goes on until a connection gets through.
                if !mem::replace(&mut self.outage, true) {
                    self.error = Some(errno);
                }
            }
            libc::EINVAL | libc::EBADF | libc::ENOTSOCK | libc::EOPNOTSUPP => {
                self.dead = Some(errno);
            }
            // An error of one connection that never came to be (ECONNABORTED, a firewall's EPERM, …).
            errno => self.error = Some(errno),
        }
    }
}

// SAFETY: the entries point to nothing.
unsafe impl Op for AcceptOp {
    fn ring_form(&self) -> squeue::Entry {
        let fd = self.socket.as_raw_fd();
        if self.reactor().features().multishot_accept.is_on() {
            multishot_form(fd)
        } else {
            opcode::Accept::new(types::Fd(fd), std::ptr::null_mut(), std::ptr::null_mut())
                .flags(libc::SOCK_CLOEXEC)
                .build()
        }
    }

    fn interest(&self) -> (RawFd, Interest) {
        (self.socket.as_raw_fd(), Interest::Readable)
    }

    fn attempt(&self, _: &Rc<Pool>) -> Option<Completion> {
        let accepted = self.reactor().system().accept(self.socket.as_raw_fd());
        accepted.map(|result| Completion::once(result, None))
    }

    fn complete(self: Rc<Self>, done: Completion) {
        let mut state = self.state.borrow_mut();
        let stopped = matches!(state.phase, Phase::Stopping(_));
        if !done.more {
            state.phase = Phase::Idle;
        }
        match accepted(done.result) {
            Ok(fd) => {
                state.outage = false;
                state.accepted.push_back(fd);
            }
            Err(error) => state.fail(error.raw_os_error().unwrap_or(libc::EIO)),
        }
        drop(state);
        self.go_on(stopped);
        let waiters = self.state.borrow_mut().waiters.take();
        waiters.wake();
    }

    fn reclaim(&self, done: Completion) {
        drop(accepted(done.result));
    }
}

impl Alarm for AcceptOp {
    fn ring(self: Rc<Self>) {
        let mut state = self.state.borrow_mut();
        if state.phase == Phase::BackingOff {
            state.phase = Phase::Idle;
            drop(state);
            self.arm();
        }
    }
}

/// One armed op, a completion for every connection (since 5.19). Connections are close-on-exec, and blocking, which
/// ring operations do not care about.
pub(crate) fn multishot_form(fd: RawFd) -> squeue::Entry {
    opcode::AcceptMulti::new(types::Fd(fd))
        .flags(libc::SOCK_CLOEXEC)
        .build()
}

/// The connection that an accept's completion hands over.
pub(crate) fn accepted(result: i32) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    // SAFETY: a completion of an accept gives a new descriptor to whoever takes it, which is here, once.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// How long a listener waits when descriptors or memory have run out. The connections wait in the kernel.
const BACK_OFF: Duration = Duration::from_millis(50);
