//! Time, which passes only here: what a sleep waits for, and how a run that gets nowhere ends.

use std::fmt::Write as _;
use std::time::Duration;

use super::Sim;
use super::sqe::Opcode;

impl Sim {
    /// Sleeps until there is a completion, or for at most `limit`.
    pub(super) fn sleep(&mut self, limit: Option<Duration>) {
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

    pub(super) fn pass_time(&mut self, by: Duration) {
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
    pub(super) fn check_progress(&mut self) {
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
}

const MAX_IDLE_TURNS: u32 = 100_000;

/// Real time.
const OUTSIDE_PATIENCE: Duration = Duration::from_secs(10);
