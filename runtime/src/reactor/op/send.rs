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

use std::cell::{RefCell, RefMut};
use std::io;
use std::mem;
use std::net::Shutdown;
use std::num::NonZeroI32;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll};

use io_uring::{opcode, squeue};

use super::outgoing::{Flight, Kind, Outgoing};
use super::room::RoomOp;
use super::spares::Spares;
use super::{Completion, Interest, Key, Op, Via};
use crate::reactor::pool::Pool;
use crate::reactor::send_buf::SendBuf;
use crate::reactor::socket::{Endpoint, Socket};
use crate::reactor::{Alarm, Reactor, Waiters};

/// The sending side of one socket, as its outboxes and the reactor know it: a reference to the socket.
#[derive(Clone)]
pub(crate) struct SendOp(Socket);

/// What a socket holds of it.
#[derive(Default)]
pub(crate) struct SendSide(RefCell<State>);

#[derive(Default)]
struct State {
    /// What is to be sent; none if there is nothing.
    outgoing: Option<Box<Outgoing>>,
    /// The last send went short: the socket's buffer is full, so the next one waits for room.
    blocked: bool,
    dirty: bool,
    shutdown_on_drop: bool,
    error: Option<NonZeroI32>,
    ending: Ending,
    owner: Owner,
    /// Outboxes of the socket.
    owners: u32,
    waiters: Waiters,
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

impl SendOp {
    /// The sending side of a socket, for one outbox more.
    pub(crate) fn new(socket: Socket) -> Self {
        let op = Self(socket);
        let mut state = op.state().borrow_mut();
        state.owners += 1;
        if state.owner == Owner::Draining {
            op.reactor().drain_ended();
        }
        if state.owners == 1 {
            state.owner = Owner::Present;
            state.shutdown_on_drop = false;
        }
        drop(state);
        op
    }

    // ---- for the writer ----

    /// Whether a write would be taken now; an error that ended the direction is told here, to every writer.
    #[inline]
    pub(crate) fn check_writable(&self) -> Option<io::Result<()>> {
        let state = self.state().borrow();
        let error = match state.error {
            Some(errno) => errno.get(),
            None if state.ending != Ending::Open => libc::EPIPE,
            None if self.reactor().is_closed() => libc::ECANCELED,
            None => return (state.queued() < self.high_water()).then_some(Ok(())),
        };
        Some(Err(io::Error::from_raw_os_error(error)))
    }

    #[inline(always)]
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
    #[inline(always)]
    pub(crate) fn write(&self, buf: &[u8]) -> usize {
        let reactor = self.reactor();
        let mut state = self.state().borrow_mut();
        if buf.is_empty() {
            return 0;
        }
        let taken = buf
            .len()
            .min(self.high_water().saturating_sub(state.queued()));
        state
            .outgoing(&reactor.spares)
            .append(&buf[..taken], &reactor.spares);
        self.mark_dirty(&mut state);
        taken
    }

    /// Queues a whole buffer without copying it. Call it when writable.
    pub(crate) fn send(&self, buf: SendBuf) {
        let bytes = buf.as_ref();
        if bytes.is_empty() {
            return;
        }
        let spares = &self.reactor().spares;
        let mut state = self.state().borrow_mut();
        let outgoing = state.outgoing(spares);
        if bytes.len() <= SMALL {
            // Cheaper than a slice of its own, and a lease goes back to the pool right now.
            outgoing.append(bytes, spares);
        } else {
            outgoing.push(buf);
        }
        self.mark_dirty(&mut state);
    }

    /// Waits until there is room again.
    pub(crate) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.check_writable() {
            Some(Err(_)) if self.state().borrow().error.is_none() => Poll::Ready(Ok(())),
            Some(ready) => Poll::Ready(ready),
            None => {
                self.wait(cx);
                Poll::Pending
            }
        }
    }

    pub(crate) fn queued(&self) -> usize {
        self.state().borrow().queued()
    }

    /// Waits until everything is handed to the kernel.
    pub(crate) fn poll_drain(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = self.state().borrow();
        if let Some(errno) = state.error {
            return Poll::Ready(Err(io::Error::from_raw_os_error(errno.get())));
        }
        // Drained is also: nothing of this outbox is in flight.
        if state.queued() == 0 && state.room().is_none() {
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
        let mut state = self.state().borrow_mut();
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
        self.state().borrow_mut().shutdown_on_drop = shutdown;
    }

    /// An outbox is gone. After the last one what is queued is drained in the background; then the write direction ends,
    /// if that was asked for (otherwise the last owner of the descriptor ends both by closing it).
    pub(crate) fn disown(&self) {
        let mut state = self.state().borrow_mut();
        state.owners -= 1;
        if state.owners > 0 {
            return;
        }
        let shutdown = state.shutdown_on_drop;
        let waiters = state.waiters.take();
        if shutdown && state.ending == Ending::Open {
            state.ending = Ending::Wanted;
        }
        let left = state.queued() > 0 && state.error.is_none();
        state.owner = if left { Owner::Draining } else { Owner::Gone };
        let armed = (state.flight()).is_some_and(|flight| flight.kind == Kind::Armed);
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
        self.state().borrow_mut().waiters.register(cx.waker());
        self.await_silent();
    }

    /// Makes the end of a silent send known soon, if one is in flight.
    fn await_silent(&self) {
        let state = self.state().borrow();
        if (state.flight()).is_some_and(|flight| flight.kind == Kind::Silent) {
            self.reactor().stay_awake();
        }
    }

    /// Ends the write direction.
    fn end(&self) -> io::Result<()> {
        let mut state = self.state().borrow_mut();
        if mem::replace(&mut state.ending, Ending::Done) == Ending::Done {
            return Ok(());
        }
        drop(state);
        // A direct call: through the ring it would run on a kernel thread and cost ten times as much.
        match self.0.shutdown(Shutdown::Write) {
            // The peer has reset the connection: there is no direction left to end.
            Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => Ok(()),
            ended => ended,
        }
    }

    #[inline(always)]
    fn mark_dirty(&self, state: &mut State) {
        if state.queued() > 0 && state.flight().is_none() && !mem::replace(&mut state.dirty, true) {
            self.reactor().mark_dirty(self.clone());
        }
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.0
    }

    fn state(&self) -> &RefCell<State> {
        &self.0.endpoint().send.0
    }

    fn high_water(&self) -> usize {
        self.reactor().limits.send_high_water
    }

    fn reactor(&self) -> &Rc<Reactor> {
        self.0.reactor()
    }

    // ---- for the reactor ----

    /// Sends what is queued. Called once a turn, when all writers have had their say.
    #[inline(always)] // one caller, once for each message
    pub(crate) fn flush(self, reactor: &Reactor) {
        let mut state = self.state().borrow_mut();
        state.dirty = false;
        if state.owner == Owner::Abandoned {
            drop(state);
            // Destructors of the buffers may wake tasks.
            reactor.stay_awake();
            return self.give_up(libc::ECANCELED);
        }
        if state.error.is_some() || state.flight().is_some() || state.queued() == 0 {
            return;
        }
        if state.blocked && reactor.features().multishot_poll.is_on() {
            drop(state);
            return self.await_room();
        }
        let kind = state.choose_kind(reactor);
        let Some(outgoing) = &mut state.outgoing else {
            return;
        };
        let counters = &reactor.counters;
        match kind {
            Kind::Silent => counters.silent_sends.add(1),
            Kind::Prompt | Kind::Armed => counters.armed_sends.add(1),
        }
        outgoing.take_off(kind, &reactor.spares);
        if kind == Kind::Silent {
            let entry = outgoing.ring_form(self.0.as_raw_fd());
            drop(state);
            if let Err(this) = reactor.submit_silently(self, entry) {
                this.give_up(libc::ECANCELED);
            }
        } else {
            drop(state);
            self.submit(kind);
        }
    }

    /// Submits a send that leaves a completion.
    fn submit(&self, kind: Kind) {
        let reactor = self.reactor();
        let via = if kind == Kind::Prompt && reactor.features().multishot_poll.is_on() {
            // It does not wait, so it needs no kernel that can.
            Via::Ring
        } else {
            reactor.via()
        };
        let Some(key) = reactor.submit(Rc::clone(self.0.endpoint()), via) else {
            return self.give_up(libc::ECANCELED);
        };
        if let Some(outgoing) = &mut self.state().borrow_mut().outgoing {
            outgoing.name_flight(key);
        }
    }

    /// A silent send was executed in full, and there is no completion.
    pub(crate) fn settled(self) {
        let mut state = self.state().borrow_mut();
        let Some(flight) = state.land(&self.reactor().spares) else {
            return;
        };
        let state = self.sent(state, flight.bytes);
        self.wake(state);
    }

    /// Arms the op that tells of room, unless it is.
    fn await_room(&self) {
        if self.state().borrow().room().is_some() {
            return;
        }
        let room = RoomOp::new(self.clone());
        let Some(key) = self.reactor().submit(room, Via::Ring) else {
            return self.give_up(libc::ECANCELED);
        };
        if let Some(outgoing) = &mut self.state().borrow_mut().outgoing {
            outgoing.room = Some(key);
        }
    }

    /// There may be room; more such news follow, or not.
    pub(crate) fn room(&self, more: bool) {
        let mut state = self.state().borrow_mut();
        state.blocked = false;
        let drained = state.queued() == 0;
        if !more && let Some(mut outgoing) = state.outgoing.take() {
            outgoing.room = None;
            if drained {
                self.reactor().spares.put_outgoing(outgoing);
            } else {
                state.outgoing = Some(outgoing);
            }
        }
        // What the kernel may still read is given up when it has landed.
        let is_idle = state.flight().is_none();
        drop(state);
        let closed = self.reactor().is_closed();
        if closed && !drained && is_idle {
            self.give_up(libc::ECANCELED);
        }
        let mut state = self.state().borrow_mut();
        self.mark_dirty(&mut state);
        if closed || drained && !more {
            self.wake(state);
        }
    }

    /// Takes `sent` bytes off the queue and sees what is next.
    #[inline(always)]
    fn sent<'a>(&'a self, mut state: RefMut<'a, State>, sent: usize) -> RefMut<'a, State> {
        let spares = &self.reactor().spares;
        let done = match &mut state.outgoing {
            Some(outgoing) => outgoing.consume(sent, spares),
            None => None,
        };
        let drained = state.queued() == 0;
        let room = state.room();
        if drained
            && room.is_none()
            && let Some(outgoing) = state.outgoing.take()
        {
            spares.put_outgoing(outgoing);
        }
        if let Some(mut done) = done {
            drop(state);
            // The destructor of an owned buffer is the user's code.
            done.clear();
            spares.put_done(done);
            state = self.state().borrow_mut();
        }
        // Also if nobody waits for the end any more: writes fail since it was asked for, and the peer waits for it.
        let ends = state.ending == Ending::Wanted;
        if !drained {
            self.mark_dirty(&mut state);
        } else if ends || state.owner != Owner::Present || room.is_some() {
            drop(state);
            self.drained(ends, room);
            state = self.state().borrow_mut();
        }
        state
    }

    /// The owner is gone and the peer has not taken everything yet: that is borne with for a while.
    fn linger(&self) {
        let this: Rc<dyn Alarm> = Rc::clone(self.0.endpoint()) as _;
        let reactor = self.reactor();
        reactor.set_alarm(reactor.limits.linger, Rc::downgrade(&this));
    }

    /// The queue is empty, and no news of room are needed any more.
    fn drained(&self, ends: bool, room: Option<Key>) {
        if ends {
            // It only fails if the peer is gone, which has no use for the end anyway.
            let _ = self.end();
        }
        let mut state = self.state().borrow_mut();
        if matches!(state.owner, Owner::Draining | Owner::Abandoned) {
            state.owner = Owner::Gone;
            self.reactor().drain_ended();
        }
        drop(state);
        if let Some(key) = room {
            // Its last completion takes it away.
            self.reactor().cancel(key);
        }
    }

    /// No byte will go out any more.
    fn give_up(&self, errno: i32) {
        let mut state = self.state().borrow_mut();
        state.error = NonZeroI32::new(errno);
        let room = state.room();
        let unsent = state.outgoing.take();
        drop(state);
        drop(unsent);
        self.drained(false, room);
    }

    /// A send has left a completion.
    pub(crate) fn complete(&self, done: Completion) {
        let reactor = Rc::clone(self.reactor());
        let mut state = self.state().borrow_mut();
        let Some(flight) = state.land(&reactor.spares) else {
            return;
        };
        if flight.kind == Kind::Silent {
            reactor.counters.short_sends.add(1);
        }
        let sent = usize::try_from(done.result).unwrap_or(0);
        state.blocked =
            sent < flight.bytes && flight.kind != Kind::Armed || done.result == -libc::EAGAIN;
        let stuck = state.blocked && state.owner == Owner::Draining;
        let error = match -done.result {
            _ if state.owner == Owner::Abandoned => Some(libc::ECANCELED),
            ..=0 | libc::EAGAIN | libc::EINTR => None,
            // Not by us: somebody else has let go of the same descriptor.
            libc::ECANCELED if !reactor.is_closed() => None,
            errno => Some(errno),
        };
        match error {
            None => drop(self.sent(state, sent)),
            Some(errno) => {
                drop(state);
                self.give_up(errno);
            }
        }
        if stuck {
            self.linger();
        }
        self.wake(self.state().borrow_mut());
    }

    /// The linger is over and the peer has still not taken everything: the rest is dropped.
    fn abandon(&self) {
        let mut state = self.state().borrow_mut();
        if state.owner != Owner::Draining {
            return;
        }
        tracing::debug!("unsent bytes of a closed socket are dropped after the linger");
        state.owner = Owner::Abandoned;
        let key = state.flight().map(|flight| flight.key);
        drop(state);
        match key {
            // Its completion gives up the rest.
            Some(key) => self.reactor().cancel(key),
            None => self.give_up(libc::ECANCELED),
        }
    }

    /// Whoever waits for room or for the drain finds it; the others wait on.
    #[inline(always)]
    fn wake(&self, mut state: RefMut<'_, State>) {
        if state.waiters.is_empty() || state.queued() >= self.high_water() && state.error.is_none()
        {
            return;
        }
        let waiters = state.waiters.take();
        drop(state);
        waiters.wake();
    }
}

impl State {
    #[inline]
    fn queued(&self) -> usize {
        self.outgoing
            .as_ref()
            .map_or(0, |outgoing| outgoing.queued())
    }

    /// The op that tells of room.
    fn room(&self) -> Option<Key> {
        self.outgoing.as_ref()?.room
    }

    #[inline]
    fn flight(&self) -> Option<&Flight> {
        self.outgoing.as_ref()?.flight()
    }

    /// A send is over.
    #[inline(always)]
    fn land(&mut self, spares: &Spares) -> Option<Flight> {
        self.outgoing.as_mut()?.land(spares)
    }

    /// Where to put what shall be sent.
    #[inline(always)]
    fn outgoing(&mut self, spares: &Spares) -> &mut Outgoing {
        self.outgoing.get_or_insert_with(|| spares.take_outgoing())
    }

    fn choose_kind(&self, reactor: &Reactor) -> Kind {
        let waits_for_room = reactor.features().multishot_poll.is_on();
        if self.blocked && !waits_for_room {
            Kind::Armed
        } else if self.owner != Owner::Present || self.ending == Ending::Wanted {
            Kind::Prompt
        } else if reactor.features().silent_send.is_on()
            && self.waiters.is_empty()
            && (self.outgoing.as_ref()).is_some_and(|outgoing| outgoing.fits_one_send())
        {
            Kind::Silent
        } else if waits_for_room {
            Kind::Prompt
        } else {
            Kind::Armed
        }
    }
}

// SAFETY: an entry points to what `Outgoing::ring_form` says, which stays until the flight lands. It lands when the op has
// ended, and what is given up is not in flight, or was never submitted.
/// The send of a socket, where it leaves a completion and so needs a slot.
unsafe impl Op for Endpoint {
    fn ring_form(&self) -> squeue::Entry {
        match &self.send.0.borrow().outgoing {
            Some(outgoing) => outgoing.ring_form(self.as_raw_fd()),
            None => opcode::Nop::new().build(), // never: `flush` has just seen it
        }
    }

    fn interest(&self) -> (RawFd, Interest) {
        (self.as_raw_fd(), Interest::Writable)
    }

    fn attempt(&self, _: &Rc<Pool>) -> Option<Completion> {
        let state = self.send.0.borrow();
        let outgoing = state.outgoing.as_ref()?;
        let sent = outgoing.attempt(self.as_raw_fd(), self.reactor().system());
        sent.map(|result| Completion::once(result, None))
    }

    fn complete(self: Rc<Self>, done: Completion) {
        SendOp(Socket::from(self)).complete(done);
    }
}

impl Alarm for Endpoint {
    fn ring(self: Rc<Self>) {
        SendOp(Socket::from(self)).abandon();
    }
}

/// An owned buffer that is copied all the same.
const SMALL: usize = 1024;
