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
//! | `world` | the network, the time and chance, which all share |
//! | `ops` | operations in flight, and their cancels |
//! | `time` | sleep |
//! | this file | the ring: its queues and its buffers |
#![allow(unsafe_code)]

mod calls;
mod faults;
mod network;
mod ops;
mod sqe;
mod time;
mod world;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::{Duration, Instant};

use io_uring::squeue;

use self::calls::Calls;
pub use self::faults::Faults;
use self::network::Network;
use self::ops::Armed;
use self::sqe::{Memory, Sqe};
use self::world::World;
use super::{Cqe, Driver, DriverCounters, Park, Request};
use crate::reactor::op::system::System;

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

impl Driver for Sim {
    fn push_entry(&mut self, entry: &squeue::Entry) -> Option<u32> {
        if self.submissions.len() == self.max_submissions {
            return None;
        }
        self.submissions.push_back(Sqe::read(entry));
        self.pushed = self.pushed.wrapping_add(1);
        Some(self.pushed)
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

    fn turn(&mut self, park: Park, arrived: &mut Vec<Cqe>) -> io::Result<()> {
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

/// Not the kernel's: a send that did not go out whole, which is no success for `SKIP_SUCCESS`.
const SHORT: u32 = 1 << 15;

/// The time that a turn takes, so that a task that waits in a loop gets somewhere.
const TURN: Duration = Duration::from_micros(1);

const LOOK_OUTSIDE: u64 = 16;
