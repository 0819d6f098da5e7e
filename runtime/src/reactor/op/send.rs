//! Send: what was written to a socket and not handed to the kernel yet, and the op that hands it over.
//!
//! One send in flight per socket, ever: two would interleave as soon as one goes short. Everything queued goes out
//! in one send at the end of the turn, in one of three kinds:
//!
//! | kind | flags | completion | when |
//! | --- | --- | --- | --- |
//! | silent | `DONTWAIT`, `WAITALL`, skip success | none if all went out; else the count, at once | nobody waits for its end |
//! | prompt | `DONTWAIT` | always, at once | a task waits, the owner is gone, or FIN follows |
//! | armed | `WAITALL` | when all went out, or an error | kernels before 5.13, where a task waits or the last one went short |
//!
//! After one that went short, the next is tried when there is room again (see [`room`](super::room)).

use std::cell::RefCell;
use std::io;
use std::mem;
use std::net::Shutdown;
use std::num::NonZeroI32;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll};

use io_uring::{opcode, squeue, types};

use super::room::RoomOp;
use super::spares::{Gather, MAX_GATHER, Spares};
use super::{Completion, Interest, Key, Op, Via};
use crate::reactor::fifo::Fifo;
use crate::reactor::pool::Pool;
use crate::reactor::send_buf::SendBuf;
use crate::reactor::socket::Socket;
use crate::reactor::{Alarm, Reactor, Waiters};

/// The sending side of one socket.
pub(crate) struct SendOp {
    socket: Socket,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    queue: Fifo<Chunk>,
    /// How much of the first chunk is gone.
    offset: usize,
    /// Bytes not yet handed to the kernel, those in flight included.
    queued: usize,
    flight: Option<Flight>,
    /// The last send went short: the socket's buffer is full, so the next one waits for room.
    blocked: bool,
    /// The op that tells of room.
    room: Option<Key>,
    dirty: bool,
    shutdown_on_drop: bool,
    error: Option<NonZeroI32>,
    ending: Ending,
    owner: Owner,
    waiters: Waiters,
}

/// A send that the kernel has, or will have with the next enter.
struct Flight {
    key: Key,
    kind: Kind,
    /// Chunks at the front of the queue that it refers to; they must not change.
    chunks: u8,
    bytes: usize,
    gather: Option<Box<Gather>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Silent,
    Prompt,
    Armed,
}

/// The end of the write direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ending {
    #[default]
    Open,
    /// To be shut down when the queue is empty.
    Wanted,
    Done,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Owner {
    #[default]
    Present,
    /// Gone while bytes were queued; they are being drained.
    Draining,
    /// Gone for longer than the linger; what is left will be dropped.
    Abandoned,
    Gone,
}

/// A piece of the queue. The bytes of each are on the heap, in the pool or static: they stay where they are when the
/// chunk itself moves.
enum Chunk {
    /// Copied from small writes, into a buffer of the worker's.
    Copied(Vec<u8>),
    Owned(SendBuf),
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Owned(bytes) => bytes.as_ref(),
        }
    }
}

impl SendOp {
    pub(crate) fn new(socket: Socket) -> Rc<Self> {
        Rc::new(Self {
            socket,
            state: RefCell::default(),
        })
    }

    // ---- for the writer ----

    /// Whether a write would be taken now; an error that ended the direction is told here, to every writer.
    pub(crate) fn check_writable(&self) -> Option<io::Result<()>> {
        let state = self.state.borrow();
        if let Some(errno) = state.error {
            return Some(Err(io::Error::from_raw_os_error(errno.get())));
        }
        if state.ending != Ending::Open {
            return Some(Err(io::Error::from_raw_os_error(libc::EPIPE)));
        }
        if self.reactor().is_closed() {
            return Some(Err(io::Error::from_raw_os_error(libc::ECANCELED)));
        }
        (state.queued < self.high_water()).then_some(Ok(()))
    }

    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.reactor().take_budget() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        match self.check_writable() {
            Some(ready) => Poll::Ready(ready),
            None => {
                self.wait(cx);
                Poll::Pending
            }
        }
    }

    /// Copies as much of `buf` as there is room for. Call it when writable.
    pub(crate) fn write(self: &Rc<Self>, buf: &[u8]) -> usize {
        let reactor = self.reactor();
        let mut state = self.state.borrow_mut();
        let taken = buf
            .len()
            .min(self.high_water().saturating_sub(state.queued));
        state.append(&buf[..taken], &reactor.spares);
        drop(state);
        self.mark_dirty();
        taken
    }

    /// Queues a whole buffer without copying it. Call it when writable.
    pub(crate) fn send(self: &Rc<Self>, buf: SendBuf) {
        if buf.is_empty() {
            return;
        }
        let mut state = self.state.borrow_mut();
        if buf.len() <= SMALL {
            // Cheaper than a slice of its own, and a lease goes back to the pool right now.
            state.append(buf.as_ref(), &self.reactor().spares);
        } else {
            state.queued += buf.len();
            state.queue.push_back(Chunk::Owned(buf));
        }
        drop(state);
        self.mark_dirty();
    }

    /// Waits until there is room again.
    pub(crate) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.check_writable() {
            Some(Err(_)) if self.state.borrow().error.is_none() => Poll::Ready(Ok(())),
            Some(ready) => Poll::Ready(ready),
            None => {
                self.wait(cx);
                Poll::Pending
            }
        }
    }

    pub(crate) fn queued(&self) -> usize {
        self.state.borrow().queued
    }

    /// Waits until everything is handed to the kernel.
    pub(crate) fn poll_drain(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = self.state.borrow();
        if let Some(errno) = state.error {
            return Poll::Ready(Err(io::Error::from_raw_os_error(errno.get())));
        }
        // Drained is also: nothing of this outbox is in flight.
        if state.queued == 0 && state.room.is_none() {
            return Poll::Ready(Ok(()));
        }
        if !self.reactor().is_at_home() {
            // In a forked child nothing goes out any more.
            return Poll::Ready(Err(io::Error::from_raw_os_error(libc::ECANCELED)));
        }
        drop(state);
        self.wait(cx);
        Poll::Pending
    }

    /// Waits until everything is handed to the kernel, then ends the write direction, once.
    pub(crate) fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.state.borrow_mut();
        match state.ending {
            Ending::Done => return Poll::Ready(Ok(())),
            Ending::Open => state.ending = Ending::Wanted,
            Ending::Wanted => {}
        }
        drop(state);
        std::task::ready!(self.poll_drain(cx))?;
        Poll::Ready(self.end())
    }

    pub(crate) fn shutdown_on_drop(&self, shutdown: bool) {
        self.state.borrow_mut().shutdown_on_drop = shutdown;
    }

    /// The owner is gone. What is queued is drained in the background; then the write direction ends, if that was
    /// asked for (otherwise the last owner of the descriptor ends both by closing it).
    pub(crate) fn disown(self: &Rc<Self>) {
        let mut state = self.state.borrow_mut();
        let shutdown = state.shutdown_on_drop;
        let waiters = state.waiters.take();
        if shutdown && state.ending == Ending::Open {
            state.ending = Ending::Wanted;
        }
        let left = state.queued > 0 && state.error.is_none();
        state.owner = if left { Owner::Draining } else { Owner::Gone };
        let armed = (state.flight.as_ref()).is_some_and(|flight| flight.kind == Kind::Armed);
        // Only a send that is tried at once, by the ring, is sure to say soon that it is stuck.
        let waits = armed || state.blocked || self.reactor().via() == Via::Readiness;
        let stuck = left && waits;
        drop(state);
        drop(waiters);
        if left {
            // The end of a silent send would be seen only when something else ends the worker's sleep.
            self.await_silent();
            self.reactor().drain_started();
            if stuck {
                self.linger();
            }
        } else if shutdown && self.reactor().is_at_home() {
            // Not in a forked child, which must not end its parent's connection by letting go of a copy. The error of a peer that is gone already has nobody to be told to.
            let _ = self.end();
        }
    }

    fn wait(&self, cx: &mut Context<'_>) {
        self.state.borrow_mut().waiters.register(cx.waker());
        self.await_silent();
    }

    /// Makes the end of a silent send known soon, if one is in flight.
    fn await_silent(&self) {
        let state = self.state.borrow();
        if (state.flight.as_ref()).is_some_and(|flight| flight.kind == Kind::Silent) {
            self.reactor().stay_awake();
        }
    }

    /// Ends the write direction.
    fn end(&self) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        if mem::replace(&mut state.ending, Ending::Done) == Ending::Done {
            return Ok(());
        }
        drop(state);
        // A direct call: through the ring it would run on a kernel thread and cost ten times as much.
        match self.socket.shutdown(Shutdown::Write) {
            // The peer has reset the connection: there is no direction left to end.
            Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => Ok(()),
            ended => ended,
        }
    }

    fn mark_dirty(self: &Rc<Self>) {
        let mut state = self.state.borrow_mut();
        if state.queued == 0 || state.flight.is_some() || mem::replace(&mut state.dirty, true) {
            return;
        }
        drop(state);
        self.reactor().mark_dirty(Rc::clone(self));
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    fn high_water(&self) -> usize {
        self.reactor().limits.send_high_water
    }

    fn reactor(&self) -> &Rc<Reactor> {
        self.socket.reactor()
    }

    // ---- for the reactor ----

    /// Sends what is queued. Called once a turn, when all writers have had their say.
    pub(crate) fn flush(self: Rc<Self>) {
        let reactor = self.reactor();
        let mut state = self.state.borrow_mut();
        state.dirty = false;
        if state.owner == Owner::Abandoned {
            drop(state);
            // Destructors of the buffers may wake tasks.
            reactor.stay_awake();
            return self.give_up(libc::ECANCELED);
        }
        if state.flight.is_some() || state.queued == 0 || state.error.is_some() {
            return;
        }
        if state.blocked && reactor.features().multishot_poll.is_on() {
            drop(state);
            return self.await_room();
        }
        let kind = state.choose_kind(reactor);
        let counters = &reactor.counters;
        match kind {
            Kind::Silent => counters.silent_sends.add(1),
            Kind::Prompt | Kind::Armed => counters.armed_sends.add(1),
        }
        let flight = state.gather(kind, &reactor.spares);
        state.flight = Some(flight);
        drop(state);
        let op = Rc::clone(&self) as Rc<dyn Op>;
        let key = match kind {
            Kind::Silent => reactor.submit_silently(op),
            // It does not wait, so it needs no kernel that can.
            Kind::Prompt if reactor.features().multishot_poll.is_on() => {
                reactor.submit(op, Via::Ring)
            }
            Kind::Prompt | Kind::Armed => reactor.submit(op, reactor.via()),
        };
        let Some(key) = key else {
            return self.give_up(libc::ECANCELED);
        };
        if let Some(flight) = &mut self.state.borrow_mut().flight {
            flight.key = key;
        }
    }

    /// Arms the op that tells of room, unless it is.
    fn await_room(self: &Rc<Self>) {
        if self.state.borrow().room.is_some() {
            return;
        }
        let room = RoomOp::new(Rc::clone(self));
        match self.reactor().submit(room, Via::Ring) {
            Some(key) => self.state.borrow_mut().room = Some(key),
            None => self.give_up(libc::ECANCELED),
        }
    }

    /// There may be room; more such news follow, or not.
    pub(crate) fn room(self: &Rc<Self>, more: bool) {
        let mut state = self.state.borrow_mut();
        if !more {
            state.room = None;
        }
        state.blocked = false;
        let drained = state.queued == 0;
        drop(state);
        let closed = self.reactor().is_closed();
        if closed && !drained {
            self.give_up(libc::ECANCELED);
        }
        self.mark_dirty();
        if closed || drained && !more {
            self.wake();
        }
    }

    /// Takes `sent` bytes off the queue and sees what is next.
    fn sent(self: &Rc<Self>, sent: usize) {
        let spares = &self.reactor().spares;
        let mut done = spares.take_done();
        let mut state = self.state.borrow_mut();
        state.consume(sent, spares, &mut done);
        let drained = state.queued == 0;
        // Also if nobody waits for it any more: writes fail since it was asked for, and the peer waits for it.
        let ends = drained && state.ending == Ending::Wanted;
        drop(state);
        // The destructor of an owned buffer is the user's code.
        done.clear();
        spares.put_done(done);
        if drained {
            self.drained(ends);
        } else {
            self.mark_dirty();
        }
    }

    /// The owner is gone and the peer has not taken everything yet: that is borne with for a while.
    fn linger(self: &Rc<Self>) {
        let this: Rc<dyn Alarm> = Rc::clone(self) as _;
        let reactor = self.reactor();
        reactor.set_alarm(reactor.limits.linger, Rc::downgrade(&this));
    }

    /// The queue is empty.
    fn drained(&self, ends: bool) {
        if ends {
            // It only fails if the peer is gone, which has no use for the end anyway.
            let _ = self.end();
        }
        let mut state = self.state.borrow_mut();
        if matches!(state.owner, Owner::Draining | Owner::Abandoned) {
            state.owner = Owner::Gone;
            self.reactor().drain_ended();
        }
        let room = state.room;
        drop(state);
        if let Some(key) = room {
            // Its last completion takes it away.
            self.reactor().cancel(key);
        }
    }

    /// No byte will go out any more.
    fn give_up(&self, errno: i32) {
        let mut state = self.state.borrow_mut();
        state.error = NonZeroI32::new(errno);
        state.flight = None;
        state.queued = 0;
        state.offset = 0;
        let chunks = mem::take(&mut state.queue);
        drop(state);
        drop(chunks);
        self.drained(false);
    }

    fn wake(&self) {
        let high_water = self.high_water();
        let mut state = self.state.borrow_mut();
        // Whoever waits for room or for the drain finds it; the others wait on.
        let waiters = if state.queued < high_water || state.error.is_some() {
            state.waiters.take()
        } else {
            Waiters::default()
        };
        drop(state);
        waiters.wake();
    }
}

impl State {
    fn append(&mut self, mut bytes: &[u8], spares: &Spares) {
        self.queued += bytes.len();
        let in_flight = self
            .flight
            .as_ref()
            .map_or(0, |flight| flight.chunks.into());
        while !bytes.is_empty() {
            // A chunk in flight is the kernel's to read: it is never appended to.
            let room = match self.queue.back() {
                Some(Chunk::Copied(last)) if self.queue.len() > in_flight => {
                    last.capacity() - last.len()
                }
                _ => 0,
            };
            if room == 0 {
                self.queue.push_back(Chunk::Copied(spares.take_buffer()));
            }
            if let Some(Chunk::Copied(last)) = self.queue.back_mut() {
                let n = bytes.len().min(last.capacity() - last.len());
                last.extend_from_slice(&bytes[..n]);
                bytes = &bytes[n..];
            }
        }
    }

    fn choose_kind(&self, reactor: &Reactor) -> Kind {
        let waits_for_room = reactor.features().multishot_poll.is_on();
        if self.blocked && !waits_for_room {
            Kind::Armed
        } else if self.owner != Owner::Present || self.ending == Ending::Wanted {
            Kind::Prompt
        } else if reactor.features().silent_send.is_on()
            && self.waiters.is_empty()
            && self.queue.len() <= MAX_GATHER
        {
            Kind::Silent
        } else if waits_for_room {
            Kind::Prompt
        } else {
            Kind::Armed
        }
    }

    /// Describes as many chunks as fit in one send.
    fn gather(&self, kind: Kind, spares: &Spares) -> Flight {
        let chunks = self.queue.len().min(MAX_GATHER);
        let slices = (self.queue.iter().take(chunks).enumerate()).map(|(index, chunk)| {
            let skipped = if index == 0 { self.offset } else { 0 };
            &chunk.bytes()[skipped..]
        });
        let bytes = slices.clone().map(<[u8]>::len).sum();
        let gather = (chunks > 1).then(|| {
            let mut gather = spares.take_gather();
            gather.fill(slices);
            gather
        });
        Flight {
            key: Key::NONE,
            kind,
            // At most `MAX_GATHER`.
            chunks: chunks as u8,
            bytes,
            gather,
        }
    }

    /// Takes `sent` bytes off the front; owned buffers that are done go to `done`.
    fn consume(&mut self, mut sent: usize, spares: &Spares, done: &mut Vec<SendBuf>) {
        self.queued = self.queued.saturating_sub(sent);
        while sent > 0 {
            let Some(front) = self.queue.front() else {
                break;
            };
            let left = front.bytes().len() - self.offset;
            if sent < left {
                self.offset += sent;
                break;
            }
            sent -= left;
            self.offset = 0;
            match self.queue.pop_front() {
                Some(Chunk::Copied(buffer)) => spares.put_buffer(buffer),
                Some(Chunk::Owned(buffer)) => done.push(buffer),
                None => break,
            }
        }
    }
}

// SAFETY: the entries point to bytes of the chunks in flight, which stay where they are until the flight ends (chunks
// are only removed by `consume` and `give_up`, which run after the flight has ended, and never appended to while
// `flight.chunks` counts them), and to the flight's own `Gather`, boxed and untouched until then.
unsafe impl Op for SendOp {
    fn ring_form(&self) -> squeue::Entry {
        let state = self.state.borrow();
        let fd = self.socket.as_raw_fd();
        let Some(flight) = &state.flight else {
            return opcode::Nop::new().build(); // never: `flush` has just set it
        };
        let flags = flight.kind.flags();
        match (&flight.gather, state.queue.front()) {
            (Some(gather), _) => gather_form(fd, gather, flags),
            (None, Some(front)) => send_form(fd, &front.bytes()[state.offset..], flags),
            (None, None) => opcode::Nop::new().build(),
        }
        .flags(flight.kind.entry_flags())
    }

    fn interest(&self) -> (RawFd, Interest) {
        (self.socket.as_raw_fd(), Interest::Writable)
    }

    fn attempt(&self, _: &Rc<Pool>) -> Option<Completion> {
        let state = self.state.borrow();
        let fd = self.socket.as_raw_fd();
        let system = self.reactor().system();
        let sent = match &state.flight.as_ref()?.gather {
            Some(gather) => system.send_gathered(fd, gather),
            None => system.send(fd, &state.queue.front()?.bytes()[state.offset..]),
        };
        sent.map(|result| Completion::once(result, None))
    }

    fn complete(self: Rc<Self>, done: Completion) {
        let reactor = Rc::clone(self.reactor());
        let mut state = self.state.borrow_mut();
        let Some(flight) = state.flight.take() else {
            return;
        };
        if let Some(gather) = flight.gather {
            reactor.spares.put_gather(gather);
        }
        if flight.kind == Kind::Silent {
            reactor.counters.short_sends.add(1);
        }
        let sent = usize::try_from(done.result).unwrap_or(0);
        state.blocked =
            sent < flight.bytes && flight.kind != Kind::Armed || done.result == -libc::EAGAIN;
        let stuck = state.blocked && state.owner == Owner::Draining;
        let abandoned = state.owner == Owner::Abandoned;
        drop(state);
        match -done.result {
            _ if abandoned => self.give_up(libc::ECANCELED),
            ..=0 | libc::EAGAIN | libc::EINTR => self.sent(sent),
            // Not by us: somebody else has let go of the same descriptor.
            libc::ECANCELED if !reactor.is_closed() => self.sent(sent),
            errno => self.give_up(errno),
        }
        if stuck {
            self.linger();
        }
        self.wake();
    }

    fn settled(self: Rc<Self>) {
        let mut state = self.state.borrow_mut();
        let Some(flight) = state.flight.take() else {
            return;
        };
        if let Some(gather) = flight.gather {
            self.reactor().spares.put_gather(gather);
        }
        drop(state);
        self.sent(flight.bytes);
        self.wake();
    }
}

impl Alarm for SendOp {
    /// The linger is over and the peer has still not taken everything: the rest is dropped.
    fn ring(self: Rc<Self>) {
        let mut state = self.state.borrow_mut();
        if state.owner != Owner::Draining {
            return;
        }
        tracing::debug!("unsent bytes of a closed socket are dropped after the linger");
        state.owner = Owner::Abandoned;
        let key = state.flight.as_ref().map(|flight| flight.key);
        drop(state);
        match key {
            // Its completion gives up the rest.
            Some(key) => self.reactor().cancel(key),
            None => self.give_up(libc::ECANCELED),
        }
    }
}

impl Kind {
    fn flags(self) -> i32 {
        match self {
            // With WAITALL a short send counts as failed, so that it is not silent.
            Self::Silent => libc::MSG_NOSIGNAL | libc::MSG_WAITALL | libc::MSG_DONTWAIT,
            // Never with WAITALL: kernels before 6.1 (and Debian's 5.10, which has the ring of 5.15) then answer a
            // short send with EAGAIN, as if nothing had gone out. The self-test of silent sends looks for that.
            Self::Prompt => libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
            // Without DONTWAIT the kernel waits for room, and with WAITALL until the last byte found some (5.19;
            // older ones end short, and the rest is sent again).
            Self::Armed => libc::MSG_NOSIGNAL | libc::MSG_WAITALL,
        }
    }

    fn entry_flags(self) -> squeue::Flags {
        match self {
            Self::Silent => squeue::Flags::SKIP_SUCCESS,
            Self::Prompt | Self::Armed => squeue::Flags::empty(),
        }
    }
}

/// A silent send of one slice, as the self-test tries it.
pub(crate) fn silent_form(fd: RawFd, bytes: &'static [u8]) -> squeue::Entry {
    send_form(fd, bytes, Kind::Silent.flags()).flags(Kind::Silent.entry_flags())
}

fn send_form(fd: RawFd, bytes: &[u8], flags: i32) -> squeue::Entry {
    // A send takes at most 2 GiB at once anyway, and reports how much it took.
    let len = u32::try_from(bytes.len()).unwrap_or(MAX_SEND);
    opcode::Send::new(types::Fd(fd), bytes.as_ptr(), len)
        .flags(flags)
        .build()
}

fn gather_form(fd: RawFd, gather: &Gather, flags: i32) -> squeue::Entry {
    opcode::SendMsg::new(types::Fd(fd), &raw const gather.message)
        .flags(flags as u32)
        .build()
}

/// An owned buffer that is copied all the same.
const SMALL: usize = 1024;

/// What one SEND takes at most; it reports how much it took.
const MAX_SEND: u32 = 1 << 30;
