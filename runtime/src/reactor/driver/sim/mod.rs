//! The simulated driver: a kernel in memory, with its own sockets and its own time, that does what it may do at the
//! worst moment.
//!
//! It reads the same entries as the real one and keeps the same promises, no more: an op has one completion without
//! `F_MORE`, memory is touched until then and not after, a silent send that went out whole leaves nothing. Within
//! these it decides by a seed, so a run that went wrong goes wrong again.
//!
//! | here | what it stands for |
//! | --- | --- |
//! | `sqe` | reading entries |
//! | `network` | connections: bytes, ends, resets |
//! | `faults` | how often what goes wrong |
//! | `calls` | the direct system calls, on the same network |
//! | this file | the ring: queues, ops in flight, cancels, buffers, sleep |
#![allow(unsafe_code)]

mod calls;
mod faults;
mod network;
mod sqe;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::{Duration, Instant};

use io_uring::squeue;

use self::calls::Calls;
pub use self::faults::Faults;
use self::network::Network;
use self::sqe::{Hearing, Memory, Opcode, Recv, Slices, Sqe};
use super::{Cqe, Driver, DriverCounters, Park, Request};
use crate::reactor::op::system::System;

/// What the ring and the calls share: the network, the time, and chance.
struct World {
    rng: fastrand::Rng,
    faults: Faults,
    network: Network,
    now: Rc<Cell<Instant>>,
    /// Accepts that will still find no descriptor.
    outage: u32,
    /// What the runtime did that no kernel should be asked for.
    violations: Vec<String>,
}

/// A look at the world from outside of the ring.
pub(crate) struct Observer(Rc<RefCell<World>>);

/// The simulated ring.
pub(crate) struct Sim {
    world: Rc<RefCell<World>>,
    submissions: VecDeque<Sqe>,
    max_submissions: usize,
    completions: VecDeque<Cqe>,
    max_completions: usize,
    /// Completions that found no room.
    overflow: VecDeque<Cqe>,
    /// Ops in flight, in the order of their submission.
    armed: BTreeMap<u64, Armed>,
    next_armed: u64,
    buffers: VecDeque<(u16, Memory)>,
    unpublished: Vec<(u16, Memory)>,
    skip_success: bool,
    pushed: u32,
    consumed: u32,
    counters: DriverCounters,
    idle_turns: u32,
    /// Descriptors that are not simulated are looked at in some turns only: it takes a system call.
    looks_outside: bool,
}

struct Armed {
    sqe: Sqe,
    /// Of a send: what went out already.
    sent: usize,
    /// Of a poll: the news that were told.
    news: Option<u32>,
    /// Of a listener.
    port: Option<u16>,
}

/// What became of a try.
enum Tried {
    /// It waits.
    Pending,
    /// A completion, and the op goes on.
    More(i32, u32),
    Done(i32, u32),
}

/// What a simulation is made of.
pub(crate) struct Parts {
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) system: Box<dyn System>,
    pub(crate) observer: Observer,
    /// The time in the simulation.
    pub(crate) now: Rc<Cell<Instant>>,
}

/// Makes a simulated kernel for one worker.
pub(crate) fn new(seed: u64, faults: Faults, skip_success: bool) -> Parts {
    let mut rng = fastrand::Rng::with_seed(seed);
    let now = Rc::new(Cell::new(Instant::now()));
    let capacity = 1 << rng.u32(4..17);
    let max_submissions = 1 << rng.usize(1..7);
    let world = Rc::new(RefCell::new(World {
        faults: faults.draw(&mut rng),
        network: Network::new(capacity),
        now: Rc::clone(&now),
        outage: 0,
        violations: Vec::new(),
        rng,
    }));
    let max_completions = max_submissions << world.borrow_mut().rng.usize(1..6);
    let sim = Sim {
        world: Rc::clone(&world),
        submissions: VecDeque::new(),
        max_submissions,
        completions: VecDeque::new(),
        max_completions,
        overflow: VecDeque::new(),
        armed: BTreeMap::new(),
        next_armed: 0,
        buffers: VecDeque::new(),
        unpublished: Vec::new(),
        skip_success,
        pushed: 0,
        consumed: 0,
        counters: DriverCounters::default(),
        idle_turns: 0,
        looks_outside: true,
    };
    Parts {
        driver: Box::new(sim),
        system: Box::new(Calls(Rc::clone(&world))),
        observer: Observer(world),
        now,
    }
}

impl Observer {
    /// Connections that the program holds.
    pub(crate) fn open_ends(&self) -> usize {
        let mut world = self.0.borrow_mut();
        let now = world.now.get();
        world.network.sweep(now);
        world.network.open_ends()
    }

    /// What the runtime did wrong.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.0.borrow().violations.clone()
    }
}

impl World {
    fn chance(&mut self, rate: impl Fn(&Faults) -> f64) -> bool {
        let rate = rate(&self.faults);
        rate > 0.0 && self.rng.f64() < rate
    }

    /// When what is sent now arrives.
    fn arrival(&mut self) -> Instant {
        let latency = self.faults.latency.mul_f64(self.rng.f64());
        self.now.get() + latency
    }

    fn advance_to(&mut self, at: Instant) {
        let now = self.now.get().max(at);
        self.now.set(now);
        self.network.settle(now);
    }

    /// Accepts, if no descriptor is short.
    fn accept(&mut self, listener: RawFd) -> Option<i32> {
        let now = self.now.get();
        let comes =
            Network::port(listener).map_or(true, |port| self.network.has_waiting(port, now));
        if comes && self.outage == 0 && self.chance(|faults| faults.outages) {
            self.outage = self.rng.u32(1..5);
        }
        if comes && self.outage > 0 {
            self.outage -= 1;
            return Some(-libc::EMFILE);
        }
        self.network.accept(listener, now)
    }

    /// Receives at most `most` bytes; fewer by chance.
    fn recv(&mut self, fd: RawFd, most: usize) -> Option<Result<Vec<u8>, i32>> {
        let there = self.network.readable(fd).min(most);
        let most = match there {
            2.. if self.chance(|faults| faults.short_receives) => self.rng.usize(1..there),
            _ => most,
        };
        self.network.recv(fd, most)
    }

    /// Sends what there is room for; less by chance. `None`: nothing.
    fn send(&mut self, fd: RawFd, mut bytes: Vec<u8>) -> Option<i32> {
        if self.network.is_end(fd) && self.chance(|faults| faults.resets) {
            let arrival = self.arrival();
            self.network.reset(fd, arrival);
        }
        let room = match self.network.room(fd)? {
            Ok(room) => room,
            Err(errno) => {
                self.network.take_error(fd);
                return Some(errno);
            }
        };
        let mut n = bytes.len().min(room);
        if n > 0 && self.chance(|faults| faults.short_sends) {
            n = self.rng.usize(..n);
            let arrival = self.arrival();
            self.network.find_room(fd, arrival);
            if n == 0 {
                return None;
            }
        }
        let wanted = bytes.len();
        bytes.truncate(n);
        tracing::trace!(fd, wanted, n, ?bytes, "sends");
        let arrival = self.arrival();
        self.network.send(fd, bytes, arrival);
        i32::try_from(n).ok()
    }
}

impl Driver for Sim {
    fn push_entry(&mut self, entry: &squeue::Entry) -> bool {
        if self.submissions.len() == self.max_submissions {
            return false;
        }
        self.submissions.push_back(Sqe::read(entry));
        self.pushed = self.pushed.wrapping_add(1);
        true
    }

    fn push(&mut self, request: Request) -> Result<(), Request> {
        if self.submissions.len() == self.max_submissions {
            return Err(request);
        }
        self.push_entry(&request.into_entry(self.skip_success));
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        self.counters.enters += 1;
        self.take_submissions().map(drop)
    }

    fn turn(&mut self, park: Park, arrived: &mut VecDeque<Cqe>) -> io::Result<()> {
        self.counters.enters += 1;
        self.pass_time(TURN);
        let had = self.submissions.len();
        self.looks_outside = self.counters.enters.is_multiple_of(LOOK_OUTSIDE);
        let submitted = self.take_submissions();
        self.unload_overflow();
        self.go_on();
        if let (Park::Sleep(limit), Ok(true)) = (park, &submitted)
            && self.completions.is_empty()
            && !self.chance(|faults| faults.interruptions)
        {
            self.sleep(limit);
        }
        if had > 0 || !self.completions.is_empty() {
            self.idle_turns = 0;
        } else {
            self.idle_turns += 1;
            self.check_progress();
        }
        arrived.extend(self.completions.drain(..));
        submitted.map(drop)
    }

    fn has_more(&mut self) -> bool {
        !self.overflow.is_empty() || self.world.borrow_mut().rng.u8(..8) == 0
    }

    fn pushed(&self) -> u32 {
        self.pushed
    }

    fn consumed(&self) -> u32 {
        self.consumed
    }

    fn is_overflowing(&mut self) -> bool {
        !self.overflow.is_empty()
    }

    fn provide(&mut self, id: u16, address: NonNull<u8>, len: usize) {
        let known = self.buffers.iter().chain(&self.unpublished);
        if known.into_iter().any(|(other, _)| *other == id) {
            self.violation(format!("buffer {id} is provided twice"));
        }
        self.unpublished.push((id, Memory::new(address, len)));
    }

    fn publish(&mut self) {
        self.buffers.extend(self.unpublished.drain(..));
    }

    fn counters(&self) -> DriverCounters {
        self.counters
    }
}

impl Sim {
    // ---- submitting ----

    /// Takes entries off the queue. Whether all were taken.
    fn take_submissions(&mut self) -> io::Result<bool> {
        if self.submissions.is_empty() {
            return Ok(true);
        }
        if self.chance(|faults| faults.refused_submissions) {
            let errnos = [libc::EAGAIN, libc::EBUSY, libc::ENOMEM];
            let errno = self.world.borrow_mut().rng.choice(errnos);
            return Err(io::Error::from_raw_os_error(errno.unwrap_or(libc::EAGAIN)));
        }
        let mut most = self.submissions.len();
        if self.chance(|faults| faults.partial_submissions) {
            most = self.world.borrow_mut().rng.usize(1..=most);
        }
        for _ in 0..most {
            if let Some(sqe) = self.submissions.pop_front() {
                self.consumed = self.consumed.wrapping_add(1);
                self.issue(sqe);
            }
        }
        Ok(self.submissions.is_empty())
    }

    fn issue(&mut self, sqe: Sqe) {
        let user_data = sqe.user_data;
        tracing::trace!(
            op = sqe.opcode.name(),
            fd = sqe.fd,
            user_data,
            "is submitted"
        );
        match sqe.opcode {
            Opcode::Cancel { target } => self.cancel(&sqe, target),
            Opcode::Close => {
                let mut world = self.world.borrow_mut();
                let arrival = world.arrival();
                world.network.close(network::take(sqe.fd), arrival);
                drop(world);
                self.complete(&sqe, 0, 0);
            }
            Opcode::Connect { ref address } => {
                let refused = self.chance(|faults| faults.refusals);
                let mut world = self.world.borrow_mut();
                let established = world.arrival();
                let connected = match refused {
                    true => Err(-libc::ECONNREFUSED),
                    false => calls::connect(&mut world.network, sqe.fd, address, established),
                };
                drop(world);
                match connected {
                    Ok(()) => drop(self.arm(sqe)),
                    Err(errno) => self.complete(&sqe, errno, 0),
                }
            }
            // A silent send is over when its entry was taken. Whatever waits is armed first, and tried with all others.
            Opcode::Send { wait: false, .. } | Opcode::Nop | Opcode::Unknown => {
                let key = self.arm(sqe);
                self.try_op(key);
            }
            Opcode::Recv(Recv { poll_first, .. }) => {
                let late = poll_first || self.chance(|faults| faults.late);
                let key = self.arm(sqe);
                if !late {
                    self.try_op(key);
                }
            }
            Opcode::Poll { .. }
            | Opcode::Accept { .. }
            | Opcode::Send { .. }
            | Opcode::Read { .. } => {
                self.arm(sqe);
            }
        }
    }

    fn arm(&mut self, sqe: Sqe) -> u64 {
        let known = self.armed.values();
        if sqe.user_data != 0
            && known
                .into_iter()
                .any(|other| other.sqe.user_data == sqe.user_data)
        {
            self.violation(format!("{:#x} names two ops in flight", sqe.user_data));
        }
        let key = self.next_armed;
        self.next_armed += 1;
        let listens = matches!(sqe.opcode, Opcode::Accept { .. } | Opcode::Poll { .. });
        let port = (listens && !self.world.borrow().network.is_end(sqe.fd))
            .then(|| Network::port(sqe.fd).ok())
            .flatten();
        let armed = Armed {
            sqe,
            sent: 0,
            news: None,
            port,
        };
        self.armed.insert(key, armed);
        key
    }

    // ---- ops in flight ----

    /// Tries ops that wait, in any order. Some are late.
    fn go_on(&mut self) -> bool {
        let mut keys: Vec<u64> = self.armed.keys().copied().collect();
        self.world.borrow_mut().rng.shuffle(&mut keys);
        let mut any = false;
        for key in keys {
            if !self.chance(|faults| faults.late) {
                any |= self.try_op(key);
            }
        }
        any
    }

    /// Tries an op until it would wait, but not for ever. Whether it has a completion.
    fn try_op(&mut self, key: u64) -> bool {
        let mut any = false;
        let tries = self.world.borrow_mut().rng.usize(1..=MAX_ITEMS);
        for _ in 0..tries {
            let Some(mut armed) = self.armed.remove(&key) else {
                return any;
            };
            match self.attempt(&mut armed) {
                Tried::Pending => {
                    self.armed.insert(key, armed);
                    return any;
                }
                Tried::More(result, flags) => {
                    any = true;
                    // A multishot op ends when the kernel has no room for a completion, or likes to.
                    let ends = self.completions.len() >= self.max_completions
                        || self.chance(|faults| faults.multishot_ends);
                    if ends {
                        self.complete(&armed.sqe, result, flags);
                        return true;
                    }
                    self.complete(&armed.sqe, result, flags | MORE);
                    self.armed.insert(key, armed);
                }
                Tried::Done(result, flags) => {
                    self.complete(&armed.sqe, result, flags);
                    return true;
                }
            }
        }
        any
    }

    fn attempt(&mut self, armed: &mut Armed) -> Tried {
        let fd = armed.sqe.fd;
        match &mut armed.sqe.opcode {
            Opcode::Nop => Tried::Done(0, 0),
            Opcode::Accept { multishot } => {
                let mut world = self.world.borrow_mut();
                let waits = match armed.port {
                    Some(port) => world.network.has_waiting(port, world.now.get()),
                    // It does not listen, and will be told.
                    None => true,
                };
                let accepted = if waits { world.accept(fd) } else { None };
                match accepted {
                    None => Tried::Pending,
                    Some(fd) if fd >= 0 && *multishot => Tried::More(fd, 0),
                    Some(result) => Tried::Done(result, 0),
                }
            }
            Opcode::Connect { .. } => {
                let world = self.world.borrow();
                (world.network.connected(fd, world.now.get()))
                    .map_or(Tried::Pending, |result| Tried::Done(result, 0))
            }
            Opcode::Recv(recv) => self.recv(fd, recv),
            Opcode::Send { bytes, wait } => self.send(fd, bytes, *wait, &mut armed.sent),
            Opcode::Poll { events, multishot } => {
                self.poll(fd, armed.port, *events, *multishot, &mut armed.news)
            }
            Opcode::Read { into } => self.read(fd, *into),
            Opcode::Cancel { .. } | Opcode::Close | Opcode::Unknown => {
                Tried::Done(-libc::EINVAL, 0)
            }
        }
    }

    fn recv(&mut self, fd: RawFd, recv: &mut Recv) -> Tried {
        let mut world = self.world.borrow_mut();
        if !world.network.is_end(fd) {
            return Tried::Done(-libc::ENOTCONN, 0);
        }
        let Some(into) = recv.into else {
            drop(world);
            return self.recv_provided(fd, recv);
        };
        let received = world.recv(fd, into.len());
        match received {
            None => Tried::Pending,
            Some(Err(errno)) => Tried::Done(errno, 0),
            Some(Ok(bytes)) => {
                into.write(&bytes);
                Tried::Done(len_of(&bytes), nonempty(&world.network, fd))
            }
        }
    }

    /// A receive into a buffer of the kernel's choice.
    fn recv_provided(&mut self, fd: RawFd, recv: &mut Recv) -> Tried {
        let multishot = recv.multishot;
        if recv.hearing == Hearing::Nothing {
            return Tried::Pending;
        }
        let missing = self.chance(|faults| faults.missing_buffers);
        let mut world = self.world.borrow_mut();
        let (events, _) = world.network.poll(fd, world.now.get());
        if events & libc::POLLIN as u32 == 0 {
            if multishot && recv.hearing == Hearing::Arming {
                let once = world.chance(|faults| faults.spent_news);
                recv.hearing = if once { Hearing::Once } else { Hearing::All };
            }
            // Armed without a buffer at hand it ends at once (facts: at arm time, too), by chance.
            let ends = self.buffers.is_empty() && world.rng.bool();
            return if ends { NO_BUFFERS } else { Tried::Pending };
        }
        if missing || self.buffers.is_empty() {
            return NO_BUFFERS;
        }
        let Some((id, into)) = self.buffers.front().copied() else {
            return NO_BUFFERS;
        };
        let bytes = match world.recv(fd, into.len()) {
            None => return Tried::Pending,
            Some(Err(errno)) => return Tried::Done(errno, 0),
            Some(Ok(bytes)) => bytes,
        };
        if bytes.is_empty() {
            return Tried::Done(0, 0);
        }
        self.buffers.pop_front();
        into.write(&bytes);
        let len = len_of(&bytes);
        let nonempty = nonempty(&world.network, fd);
        if recv.hearing == Hearing::Once && nonempty == 0 {
            let reset = events & libc::POLLERR as u32 != 0;
            recv.hearing = if reset {
                Hearing::Nothing
            } else {
                Hearing::All
            };
        }
        let flags = BUFFER | u32::from(id) << BUFFER_SHIFT | nonempty;
        if let Some(left) = &mut recv.left {
            *left = left.saturating_sub(len as u32);
            if *left == 0 {
                return Tried::Done(len, flags);
            }
        }
        match multishot {
            true => Tried::More(len, flags),
            false => Tried::Done(len, flags),
        }
    }

    fn send(&mut self, fd: RawFd, bytes: &mut Slices, wait: bool, sent: &mut usize) -> Tried {
        let mut world = self.world.borrow_mut();
        if !world.network.is_end(fd) {
            return Tried::Done(-libc::ENOTCONN, 0);
        }
        let left = bytes.read();
        let len = left.len();
        let total = |sent: usize| i32::try_from(sent).unwrap_or(i32::MAX);
        match world.send(fd, left) {
            None if wait => Tried::Pending,
            None if *sent == 0 => Tried::Done(-libc::EAGAIN, 0),
            None => Tried::Done(total(*sent), SHORT),
            Some(errno @ ..0) if *sent == 0 => Tried::Done(errno, 0),
            Some(..0) => Tried::Done(total(*sent), SHORT),
            Some(n) => {
                let n = n as usize;
                bytes.advance(n);
                *sent += n;
                match (n == len, wait) {
                    (true, _) => Tried::Done(total(*sent), 0),
                    (false, true) => Tried::Pending,
                    (false, false) => Tried::Done(total(*sent), SHORT),
                }
            }
        }
    }

    /// A read of a descriptor that is not simulated: the worker's bell.
    fn read(&self, fd: RawFd, into: Memory) -> Tried {
        if !self.looks_outside || !network::wait_for(fd, libc::POLLIN, Duration::ZERO) {
            return Tried::Pending;
        }
        let mut bytes = vec![0; into.len()];
        // SAFETY: the bytes are ours to write until the call returns.
        let n = unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), bytes.len()) };
        match usize::try_from(n) {
            Ok(n) => {
                into.write(&bytes[..n]);
                Tried::Done(n as i32, 0)
            }
            Err(_) => Tried::Done(network::last_errno(), 0),
        }
    }

    fn poll(
        &mut self,
        fd: RawFd,
        port: Option<u16>,
        wanted: u32,
        multishot: bool,
        told: &mut Option<u32>,
    ) -> Tried {
        let mut world = self.world.borrow_mut();
        if !world.network.is_end(fd) {
            let ready = match port {
                Some(port) => world.network.has_waiting(port, world.now.get()),
                // A descriptor that is not simulated, such as an eventfd.
                None => self.looks_outside && network::wait_for(fd, wanted as i16, Duration::ZERO),
            };
            return match ready {
                true => Tried::Done(wanted as i32, 0),
                false => Tried::Pending,
            };
        }
        let (events, news) = world.network.poll(fd, world.now.get());
        let always = (libc::POLLERR | libc::POLLHUP) as u32;
        let mut happened = events & (wanted | always);
        if multishot && *told == Some(news) {
            happened = 0;
        }
        if happened == 0 {
            let lies = *told != Some(news) && world.chance(|faults| faults.false_readiness);
            *told = Some(news);
            return match (lies, multishot) {
                (false, _) => Tried::Pending,
                (true, true) => Tried::More(wanted as i32, 0),
                (true, false) => Tried::Done(wanted as i32, 0),
            };
        }
        *told = Some(news);
        match multishot {
            true => Tried::More(happened as i32, 0),
            false => Tried::Done(happened as i32, 0),
        }
    }

    fn cancel(&mut self, cancel: &Sqe, target: u64) {
        let found = (self.armed.iter())
            .find(|(_, armed)| armed.sqe.user_data == target)
            .map(|(key, _)| *key);
        let Some(key) = found else {
            return self.complete(cancel, -libc::ENOENT, 0);
        };
        if self.chance(|faults| faults.missed_cancels) {
            let case = self.world.borrow_mut().rng.u8(..3);
            return match case {
                // It is between two tries, in none of the places where a cancel looks, and lives on.
                0 => self.complete(cancel, -libc::ENOENT, 0),
                1 => self.complete(cancel, -libc::EALREADY, 0),
                // It has just done something.
                _ => {
                    self.try_op(key);
                    self.stop(key);
                    self.complete(cancel, 0, 0);
                }
            };
        }
        self.stop(key);
        self.complete(cancel, 0, 0);
    }

    fn stop(&mut self, key: u64) {
        if let Some(armed) = self.armed.remove(&key) {
            let result = match armed.sent {
                0 => -libc::ECANCELED,
                sent => i32::try_from(sent).unwrap_or(i32::MAX),
            };
            self.complete(&armed.sqe, result, SHORT);
        }
    }

    // ---- completions ----

    fn complete(&mut self, sqe: &Sqe, result: i32, flags: u32) {
        let whole = result >= 0 && flags & SHORT == 0;
        if sqe.skip_success && whole {
            return;
        }
        let cqe = Cqe {
            user_data: sqe.user_data,
            result,
            flags: flags & !SHORT,
        };
        tracing::trace!(op = sqe.opcode.name(), fd = sqe.fd, ?cqe, "completes");
        if self.completions.len() < self.max_completions && self.overflow.is_empty() {
            self.completions.push_back(cqe);
        } else {
            self.counters.overflows += 1;
            self.overflow.push_back(cqe);
        }
    }

    fn unload_overflow(&mut self) {
        let room = self.max_completions - self.completions.len();
        let n = room.min(self.overflow.len());
        self.completions.extend(self.overflow.drain(..n));
    }

    // ---- time ----

    /// Sleeps until there is a completion, or for at most `limit`.
    fn sleep(&mut self, limit: Option<Duration>) {
        let now = self.world.borrow().now.get();
        let until = limit.and_then(|limit| now.checked_add(limit));
        loop {
            // Ready ops may be late, but not for ever.
            for key in self.armed.keys().copied().collect::<Vec<_>>() {
                self.try_op(key);
            }
            if !self.completions.is_empty() {
                return;
            }
            let mut world = self.world.borrow_mut();
            let now = world.now.get();
            let arrival = world.network.next_arrival(now);
            self.looks_outside = true;
            match (arrival, until) {
                (Some(arrival), until) if until.is_none_or(|until| arrival < until) => {
                    world.advance_to(arrival);
                }
                (_, Some(until)) => return world.advance_to(until),
                (_, None) => {
                    if world.network.sweep(now) {
                        continue;
                    }
                    drop(world);
                    if !self.wait_outside() {
                        return self.stuck("nothing can happen any more");
                    }
                    self.looks_outside = true;
                }
            }
        }
    }

    fn pass_time(&mut self, by: Duration) {
        let mut world = self.world.borrow_mut();
        let at = world.now.get() + by;
        world.advance_to(at);
    }

    /// Waits for what is not simulated: threads that ring the worker's bell. Whether something came.
    fn wait_outside(&self) -> bool {
        let mut polls: Vec<libc::pollfd> = (self.armed.values())
            .filter_map(|armed| {
                let events = match armed.sqe.opcode {
                    Opcode::Read { .. } => libc::POLLIN,
                    Opcode::Poll { events, .. } => events as i16,
                    _ => return None,
                };
                let fd = armed.sqe.fd;
                let outside = !self.world.borrow().network.is_end(fd);
                outside.then_some(libc::pollfd {
                    fd,
                    events,
                    revents: 0,
                })
            })
            .collect();
        let patience = OUTSIDE_PATIENCE.as_millis() as i32;
        // SAFETY: as many `pollfd`s as are there, and they live until the call returns.
        unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, patience) > 0 }
    }

    /// Turns in which nothing was submitted and nothing completed are a spin, sooner or later.
    fn check_progress(&mut self) {
        if self.idle_turns > MAX_IDLE_TURNS {
            self.idle_turns = 0;
            self.stuck("turns go by and nothing happens");
        }
    }

    fn stuck(&self, how: &str) {
        if std::thread::panicking() {
            return;
        }
        let mut state = String::new();
        for armed in self.armed.values() {
            let _ = write!(
                state,
                " {:#x} ({}, fd {})",
                armed.sqe.user_data,
                armed.sqe.opcode.name(),
                armed.sqe.fd
            );
        }
        panic!("the simulation is stuck: {how}; in flight:{state}");
    }

    // ---- chance ----

    fn chance(&self, rate: impl Fn(&Faults) -> f64) -> bool {
        self.world.borrow_mut().chance(rate)
    }

    fn violation(&self, what: String) {
        self.world.borrow_mut().violations.push(what);
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        for armed in self.armed.values() {
            let name = armed.sqe.opcode.name();
            self.violation(format!("the ring was dropped with a {name} in flight"));
        }
    }
}

fn nonempty(network: &Network, fd: RawFd) -> u32 {
    match network.readable(fd) {
        0 => 0,
        _ => NONEMPTY,
    }
}

fn len_of(bytes: &[u8]) -> i32 {
    i32::try_from(bytes.len()).unwrap_or(i32::MAX)
}

const NO_BUFFERS: Tried = Tried::Done(-libc::ENOBUFS, 0);

// linux/io_uring.h
const BUFFER: u32 = 1 << 0;
const MORE: u32 = 1 << 1;
const NONEMPTY: u32 = 1 << 2;
const BUFFER_SHIFT: u32 = 16;
/// Not the kernel's: a send that did not go out whole, which is no success for `SKIP_SUCCESS`.
const SHORT: u32 = 1 << 15;

/// The time that a turn takes, so that a task that waits in a loop gets somewhere.
const TURN: Duration = Duration::from_micros(1);

/// Completions of one op at a time.
const MAX_ITEMS: usize = 4;

const MAX_IDLE_TURNS: u32 = 100_000;

const LOOK_OUTSIDE: u64 = 16;

/// Real time.
const OUTSIDE_PATIENCE: Duration = Duration::from_secs(10);
