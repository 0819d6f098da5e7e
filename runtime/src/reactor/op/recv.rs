//! Receive: what has arrived on a socket and was not read yet, and the op that brings more.
//!
//! ```text
//!            read finds nothing                       final completion
//!   Idle ─────────────────────────▶ InFlight ────────────────────────────────▶ Idle
//!    ▲ ▲                               │                      multishot: armed again at once
//!    │ │               too much unread │                      single-shot: at the next read
//!    │ └──── final completion ──── Stopping                   no buffer: at once if a task waits, else at the next read
//!    └────── owner dropped (from anywhere; an op in flight is released)
//! ```
//!
//! How too much is kept from coming: where the kernel can limit a multishot (6.17), it is armed with what there is
//! room for, and ends by itself. Elsewhere it is cancelled at the high-water mark, after which single-shot receives
//! are used for a while: a multishot may deliver 33 chunks before a cancel reaches it.

use std::cell::{RefCell, RefMut};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll};

use io_uring::{opcode, squeue, types};

use super::heap::{HEAP_CHUNK, HeapRecv};
use super::hearing::Hearing;
use super::unread::Unread;
use super::{Completion, Interest, Key, Via};
use crate::reactor::driver::uring::GROUP;
use crate::reactor::pool::{Lease, Pool};
use crate::reactor::socket::Socket;
use crate::reactor::{Reactor, Waiters};

/// The receiving side of one socket, as its inboxes and the reactor know it: a reference to the socket.
#[derive(Clone)]
pub(crate) struct RecvOp(Socket);

/// What a socket holds of it.
#[derive(Default)]
pub(crate) struct RecvSide(RefCell<State>);

struct State {
    unread: Unread,
    phase: Phase,
    form: Form,
    end: Option<End>,
    /// The next op starts when little is unread, not only when a reader finds nothing.
    eager: bool,
    /// Single-shot receives to go before the socket is trusted with a multishot again.
    paced: u8,
    /// The last completion said that the socket holds more, or nothing was received yet.
    maybe_more: bool,
    hearing: Hearing,
    waiters: Waiters,
    /// Inboxes of the socket.
    owners: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    InFlight(Key),
    /// In flight and cancelled; data may still come before its end.
    Stopping(Key),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Eof,
    Error(i32),
}

/// What follows from a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Nothing,
    /// Too much is unread.
    Pause(Key),
    /// No buffer was left.
    Feed,
    /// The kernel has ended a multishot.
    Rearm,
}

/// How the next bytes are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// One op, a chunk for every arrival, into buffers of the pool.
    Multishot,
    /// One op, one chunk, into a buffer of the pool.
    Single,
    /// One op, one chunk, into a buffer of its own ([`HeapRecv`]): when the pool is empty.
    Heap,
    /// Wait until there is something, then one `recv(2)`.
    Readiness,
}

/// What a reader finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Data,
    /// No more will come. [`RecvOp::take_end`] says why.
    Ended,
}

impl RecvOp {
    /// The receiving side of a socket, for one inbox more.
    pub(crate) fn new(socket: Socket) -> Self {
        let op = Self(socket);
        let mut state = op.state().borrow_mut();
        if state.owners == 0 {
            op.reactor().add_inbox(op.0.endpoint());
        }
        state.owners += 1;
        drop(state);
        op
    }

    // ---- for the reader ----

    /// What is there now; if nothing is, makes sure that it will come.
    pub(crate) fn status(&self) -> Option<Status> {
        let status = self.state().borrow().status();
        if status.is_none() {
            self.want(self.state().borrow_mut());
        }
        status
    }

    /// Like [`status`](Self::status), and wakes the task when it changes.
    #[inline(always)]
    pub(crate) fn poll_status(&self, cx: &mut Context<'_>) -> Poll<Status> {
        let status = self.state().borrow().status();
        match status {
            Some(status) if self.reactor().take_budget() => Poll::Ready(status),
            Some(_) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None => {
                self.wait(cx);
                Poll::Pending
            }
        }
    }

    /// Copies what is there, and consumes it.
    pub(crate) fn read(&self, buf: &mut [u8]) -> usize {
        let mut state = self.state().borrow_mut();
        let copied = state.unread.read(buf);
        self.fetch_ahead(state);
        copied
    }

    /// Copies what is there, and keeps it.
    pub(crate) fn peek(&self, buf: &mut [u8]) -> usize {
        self.state().borrow().unread.peek(buf)
    }

    /// Takes the oldest chunk.
    #[inline(always)]
    pub(crate) fn pop(&self) -> Option<Lease> {
        let mut state = self.state().borrow_mut();
        let lease = state.unread.pop();
        self.fetch_ahead(state);
        lease
    }

    /// Puts back what was taken and not consumed.
    pub(crate) fn unpop(&self, lease: Lease) {
        let mut state = self.state().borrow_mut();
        state.unread.unpop(lease);
    }

    pub(crate) fn unread(&self) -> usize {
        self.state().borrow().unread.len()
    }

    /// Why no more will come: the end of the stream, or an error, which is told once.
    pub(crate) fn take_end(&self) -> io::Result<()> {
        let mut state = self.state().borrow_mut();
        match state.end {
            Some(End::Error(errno)) => {
                // That the runtime is gone stays true.
                if !self.reactor().is_closed() {
                    state.end = Some(End::Eof);
                }
                Err(io::Error::from_raw_os_error(errno))
            }
            Some(End::Eof) | None => Ok(()),
        }
    }

    /// Stops the op and waits for its end. Whoever reads afterwards starts a new one.
    pub(crate) fn poll_stop(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state().borrow_mut();
        // Reading what is left must not fetch more.
        state.eager = false;
        match state.phase {
            Phase::Idle => return Poll::Ready(()),
            Phase::Stopping(_) => {}
            Phase::InFlight(key) => {
                state.phase = Phase::Stopping(key);
                self.reactor().cancel(key);
            }
        }
        state.waiters.register(cx.waker());
        Poll::Pending
    }

    /// An inbox is gone. With the last one nothing is received any more, and what was is dropped.
    pub(crate) fn disown(&self) {
        let mut state = self.state().borrow_mut();
        state.owners -= 1;
        if state.owners > 0 {
            return;
        }
        self.set_hearing(&mut state, Hearing::default());
        let left = mem::take(&mut *state);
        drop(state);
        self.reactor().remove_inbox(self.0.endpoint());
        if let Phase::InFlight(key) | Phase::Stopping(key) = left.phase {
            self.reactor().release(key);
        }
        // Wakers, whose destructors may run any code.
        drop(left);
    }

    // ---- for the reactor ----

    /// Copies unread bytes to the heap, so that their buffers return to the pool.
    pub(crate) fn copy_out(&self) {
        self.state().borrow_mut().unread.copy_out();
    }

    /// Called now and then while the op is in doubt: looks whether it has missed something, if it was quiet since the last
    /// call and there are `looks` left.
    pub(crate) fn listen_again(&self, looks: &mut u32) {
        let mut state = self.state().borrow_mut();
        let (Hearing::EmptiedOnce { quiet } | Hearing::EmptiedTwice { quiet }) = &mut state.hearing
        else {
            return;
        };
        if !mem::replace(quiet, true) || *looks == 0 {
            return;
        }
        *looks -= 1;
        // What comes from now on is news.
        self.set_hearing(&mut state, Hearing::Proved);
        drop(state);
        if self.reactor().system().is_readable(self.0.as_raw_fd()) {
            self.arm_anew();
        }
    }

    #[inline]
    fn set_hearing(&self, state: &mut State, hearing: Hearing) {
        let was = mem::replace(&mut state.hearing, hearing);
        match (was.is_doubted(), hearing.is_doubted()) {
            (false, true) => self.reactor().doubt_begins(),
            (true, false) => self.reactor().doubt_ends(),
            _ => {}
        }
    }

    // ---- arming ----

    fn wait(&self, cx: &mut Context<'_>) {
        let mut state = self.state().borrow_mut();
        state.waiters.register(cx.waker());
        self.want(state);
    }

    /// Somebody wants bytes and there are none.
    #[inline(always)]
    fn want(&self, state: RefMut<'_, State>) {
        let is_idle = state.phase == Phase::Idle;
        drop(state);
        if self.reactor().is_closed() {
            self.fail(libc::ECANCELED);
        } else if is_idle {
            self.arm();
        }
    }

    fn arm(&self) {
        let form = self.choose_form();
        self.state().borrow_mut().form = form;
        let reactor = self.reactor();
        let key = match form {
            Form::Multishot | Form::Single => reactor.submit(self.clone(), Via::Ring),
            Form::Heap => reactor.submit(HeapRecv::new(self.clone()), Via::Ring),
            Form::Readiness => reactor.submit(self.clone(), Via::Readiness),
        };
        match key {
            Some(key) => {
                let mut state = self.state().borrow_mut();
                state.phase = Phase::InFlight(key);
                self.set_hearing(&mut state, Hearing::default());
            }
            None => self.fail(libc::ECANCELED),
        }
    }

    /// Nothing will come any more.
    fn fail(&self, errno: i32) {
        let mut state = self.state().borrow_mut();
        state.phase = Phase::Idle;
        state.end.get_or_insert(End::Error(errno));
        let waiters = state.waiters.take();
        drop(state);
        waiters.wake();
    }

    fn choose_form(&self) -> Form {
        let features = self.reactor().features();
        if self.reactor().via() == Via::Readiness || !features.buffer_ring.is_on() {
            Form::Readiness
        } else if self.reactor().pool().free() == 0 {
            Form::Heap
        } else if features.multishot_recv.is_on() && self.state().borrow().paced == 0 {
            Form::Multishot
        } else {
            Form::Single
        }
    }

    /// Below the low-water mark the next bytes are fetched ahead of the reader.
    #[inline(always)]
    fn fetch_ahead(&self, state: RefMut<'_, State>) {
        let fetch = state.eager
            && state.phase == Phase::Idle
            && state.end.is_none()
            && state.unread.len() <= self.low_water();
        drop(state);
        if fetch {
            self.arm();
        }
    }

    /// What has to happen after a completion was taken in.
    #[inline(always)]
    fn next(&self, state: &State, starved: bool, stopped: bool) -> Next {
        match state.phase {
            Phase::InFlight(key) => {
                let high_water = self.reactor().limits.recv_high_water;
                if state.unread.len() >= high_water && !self.is_limited(state.form) {
                    Next::Pause(key)
                } else {
                    Next::Nothing
                }
            }
            Phase::Idle if state.end.is_none() && !stopped => match state.form {
                _ if starved => Next::Feed,
                Form::Multishot => Next::Rearm,
                Form::Single | Form::Heap | Form::Readiness => Next::Nothing,
            },
            Phase::Idle | Phase::Stopping(_) => Next::Nothing,
        }
    }

    #[cold]
    fn go_on(&self, next: Next) {
        let counters = &self.reactor().counters;
        let mut state = self.state().borrow_mut();
        match next {
            Next::Nothing => {}
            Next::Pause(key) => {
                counters.pauses.add(1);
                state.paced = PACED_RECEIVES;
                state.eager = true;
                state.phase = Phase::Stopping(key);
                drop(state);
                self.reactor().cancel(key);
            }
            // A task that waits does not depend on others giving buffers back: if there is still none, the next
            // receive brings its own. Where nobody waits, the next reader arms.
            Next::Feed => {
                counters.starvations.add(1);
                let waited_for = !state.waiters.is_empty();
                drop(state);
                if waited_for {
                    self.arm();
                }
            }
            Next::Rearm => {
                counters.rearms.add(1);
                state.eager = true;
                self.fetch_ahead(state);
            }
        }
    }

    /// Stops the op in flight; the next one starts when it is over.
    fn arm_anew(&self) {
        let mut state = self.state().borrow_mut();
        if let Phase::InFlight(key) = state.phase {
            state.eager = true;
            state.phase = Phase::Stopping(key);
            drop(state);
            self.reactor().counters.rearms.add(1);
            self.reactor().cancel(key);
        }
    }

    /// Whether the op in flight ends by itself before too much is unread.
    fn is_limited(&self, form: Form) -> bool {
        form == Form::Multishot && self.reactor().features().recv_limit.is_on()
    }

    fn low_water(&self) -> usize {
        self.reactor().limits.recv_high_water / 4
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.0
    }

    fn state(&self) -> &RefCell<State> {
        &self.0.endpoint().recv.0
    }

    fn reactor(&self) -> &Rc<Reactor> {
        self.0.reactor()
    }
}

impl From<Socket> for RecvOp {
    fn from(socket: Socket) -> Self {
        Self(socket)
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            unread: Unread::default(),
            phase: Phase::default(),
            form: Form::Multishot,
            end: None,
            eager: false,
            paced: 0,
            maybe_more: true,
            hearing: Hearing::default(),
            waiters: Waiters::default(),
            owners: 0,
        }
    }
}

impl State {
    fn status(&self) -> Option<Status> {
        if !self.unread.is_empty() {
            Some(Status::Data)
        } else if self.end.is_some() {
            Some(Status::Ended)
        } else {
            None
        }
    }
}

// ---- as an op; the entries point to nothing ----

impl RecvOp {
    pub(super) fn ring_form(&self) -> squeue::Entry {
        let fd = self.0.as_raw_fd();
        let state = self.state().borrow();
        match state.form {
            form @ Form::Multishot if self.is_limited(form) => {
                let room = (self.reactor().limits.recv_high_water)
                    .saturating_sub(state.unread.len())
                    .max(1);
                limited_form(fd, u32::try_from(room).unwrap_or(u32::MAX))
            }
            Form::Multishot | Form::Readiness => multishot_form(fd),
            Form::Single | Form::Heap => {
                let is_empty = !state.maybe_more;
                single_form(fd, is_empty && self.reactor().features().poll_first.is_on())
            }
        }
    }

    pub(super) fn interest(&self) -> (RawFd, Interest) {
        (self.0.as_raw_fd(), Interest::Readable)
    }

    pub(super) fn attempt(&self, pool: &Rc<Pool>) -> Option<Completion> {
        let fd = self.0.as_raw_fd();
        let system = self.reactor().system();
        let mut result = None;
        let buffer = pool.fill(|bytes| {
            result = system.recv(fd, bytes);
            usize::try_from(result?).ok().filter(|n| *n > 0)
        });
        if buffer.is_none() && result.is_none() && pool.free() == 0 {
            let mut heap = vec![0; HEAP_CHUNK];
            result = system.recv(fd, &mut heap);
            heap.truncate(usize::try_from(result?).unwrap_or(0));
            return Some(Completion::once(result?, Some(Lease::heap(heap))));
        }
        Some(Completion::once(result?, buffer))
    }

    #[inline(always)] // one caller, once for each message
    pub(super) fn complete(&self, done: Completion) {
        let pool = self.reactor().pool();
        let mut state = self.state().borrow_mut();
        let stopped = matches!(state.phase, Phase::Stopping(_));
        if !done.more {
            state.phase = Phase::Idle;
            if state.form == Form::Single {
                state.paced = state.paced.saturating_sub(1);
            }
        }
        state.maybe_more = done.nonempty;
        let mut deaf = false;
        if state.hearing != Hearing::Proved || !done.more {
            let hearing;
            (hearing, deaf) = match done.more {
                true => state.hearing.after(done.nonempty),
                // One that has ended hears nothing, and the next one is armed.
                false => (Hearing::default(), false),
            };
            self.set_hearing(&mut state, hearing);
        }
        let mut starved = false;
        match (done.result, done.buffer) {
            (1.., Some(lease)) => state.unread.push(lease, pool),
            (0, _) => state.end = Some(End::Eof),
            (result, _) => match -result {
                libc::ENOBUFS => starved = true,
                libc::ECANCELED | libc::EINTR | libc::EAGAIN => {}
                // The kernel names a buffer that it does not have: bytes are lost, and that must be seen.
                ..0 => state.end = Some(End::Error(libc::EIO)),
                errno => state.end = Some(End::Error(errno)),
            },
        }
        if deaf && !stopped {
            drop(state);
            self.arm_anew();
            state = self.state().borrow_mut();
        }
        let next = self.next(&state, starved, stopped);
        if next != Next::Nothing {
            drop(state);
            self.go_on(next);
            state = self.state().borrow_mut();
        }
        // A waiter that finds nothing would only go back to sleep, unless it waits for the op's end.
        if state.status().is_some() || state.phase == Phase::Idle {
            let waiters = state.waiters.take();
            drop(state);
            waiters.wake();
        }
    }
}

/// One armed op, a completion for every arrival (since 6.0).
pub(crate) fn multishot_form(fd: RawFd) -> squeue::Entry {
    opcode::RecvMulti::new(types::Fd(fd), GROUP).build()
}

/// A multishot that ends by itself with the chunk that reaches `limit` bytes, which must not be zero (since 6.17). The
/// rest stays in the socket, and TCP's window makes the peer wait.
pub(crate) fn limited_form(fd: RawFd, limit: u32) -> squeue::Entry {
    const _: () = assert!(size_of::<squeue::Entry>() == size_of::<[u32; 16]>());
    // SAFETY: both are 64 plain bytes: an entry is the kernel's `struct io_uring_sqe` and nothing else.
    let mut words: [u32; 16] = unsafe { mem::transmute(multishot_form(fd)) };
    words[SQE_OPTLEN_WORD] = limit;
    // SAFETY: as above; the kernel accepts or refuses every value of the changed field.
    unsafe { mem::transmute(words) }
}

/// One op, one chunk, into a buffer that the kernel picks when there is something to put in.
///
/// A first try on a socket that is empty costs as much as one that succeeds; `poll_first` (since 5.19) skips it.
pub(crate) fn single_form(fd: RawFd, poll_first: bool) -> squeue::Entry {
    let hint = if poll_first { RECVSEND_POLL_FIRST } else { 0 };
    opcode::Recv::new(types::Fd(fd), std::ptr::null_mut(), 0)
        .buf_group(GROUP)
        .ioprio(hint)
        .build()
        .flags(squeue::Flags::BUFFER_SELECT)
}

/// linux/io_uring.h: `sqe->optlen` lies at byte 44. The crate has no name for it.
const SQE_OPTLEN_WORD: usize = 44 / 4;

/// linux/io_uring.h: `IORING_RECVSEND_POLL_FIRST`.
const RECVSEND_POLL_FIRST: u16 = 1 << 0;

/// Single-shot receives after a pause, before the next multishot: one multishot may deliver 33 chunks before it
/// can be stopped.
const PACED_RECEIVES: u8 = 16;
