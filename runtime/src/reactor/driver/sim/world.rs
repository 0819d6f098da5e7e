//! The world: what the ring and the direct calls share.

use std::cell::Cell;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::Instant;

use super::faults::Faults;
use super::network::Network;

/// What the ring and the calls share: the network, the time, and chance.
pub(super) struct World {
    pub(super) rng: fastrand::Rng,
    pub(super) faults: Faults,
    pub(super) network: Network,
    pub(super) now: Rc<Cell<Instant>>,
    /// Accepts that will still find no descriptor.
    pub(super) outage: u32,
    /// What the runtime did that no kernel should be asked for.
    pub(super) violations: Vec<String>,
}

impl World {
    pub(super) fn chance(&mut self, rate: impl Fn(&Faults) -> f64) -> bool {
        let rate = rate(&self.faults);
        rate > 0.0 && self.rng.f64() < rate
    }

    /// When what is sent now arrives.
    pub(super) fn arrival(&mut self) -> Instant {
        let latency = self.faults.latency.mul_f64(self.rng.f64());
        self.now.get() + latency
    }

    pub(super) fn advance_to(&mut self, at: Instant) {
        let now = self.now.get().max(at);
        self.now.set(now);
        self.network.settle(now);
    }

    /// Accepts, if no descriptor is short.
    pub(super) fn accept(&mut self, listener: RawFd) -> Option<i32> {
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
    pub(super) fn recv(&mut self, fd: RawFd, most: usize) -> Option<Result<Vec<u8>, i32>> {
        let there = self.network.readable(fd).min(most);
        let most = match there {
            2.. if self.chance(|faults| faults.short_receives) => self.rng.usize(1..there),
            _ => most,
        };
        self.network.recv(fd, most)
    }

    /// Sends what there is room for; less by chance. `None`: nothing.
    pub(super) fn send(&mut self, fd: RawFd, mut bytes: Vec<u8>) -> Option<i32> {
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
