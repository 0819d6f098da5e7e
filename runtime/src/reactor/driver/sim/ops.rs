//! Operations in flight: how they are tried, what they find, and how they are stopped.

use std::os::fd::RawFd;
use std::time::Duration;

use super::network::{self, Network};
use super::sqe::{Hearing, Memory, Opcode, Recv, Slices, Sqe};
use super::world::World;
use super::{SHORT, Sim, calls};

/// One of them.
pub(super) struct Armed {
    pub(super) sqe: Sqe,
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

impl Sim {
    pub(super) fn issue(&mut self, sqe: Sqe) {
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
    pub(super) fn go_on(&mut self) -> bool {
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
    pub(super) fn try_op(&mut self, key: u64) -> bool {
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
                recv.hearing = arm(&mut world);
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
        recv.hearing = match recv.hearing {
            // A kernel does not try once more what it has just emptied, so it waits from here on.
            Hearing::Arming if nonempty == 0 && multishot => arm(&mut world),
            Hearing::Once if nonempty == 0 => match events & libc::POLLERR as u32 {
                0 => Hearing::All,
                _ => Hearing::Nothing,
            },
            hearing => hearing,
        };
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
}

/// A multishot receive begins to wait.
fn arm(world: &mut World) -> Hearing {
    match world.chance(|faults| faults.spent_news) {
        true => Hearing::Once,
        false => Hearing::All,
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

/// Completions of one op at a time.
const MAX_ITEMS: usize = 4;
