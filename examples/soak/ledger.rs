//! What the loads count and what they complain of, shared by all threads.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use runtime::Metrics;
use support::pattern;

#[derive(Debug, Default)]
pub struct Ledger {
    /// Set when the time is over: loads finish what they are at and start nothing new.
    stopping: AtomicBool,
    pub connections: AtomicU64,
    pub verified_bytes: AtomicU64,
    pub wrong_bytes: AtomicU64,
    pub cancels: AtomicU64,
    /// How often each load has come to its end.
    rounds: Mutex<BTreeMap<&'static str, Rounds>>,
    complaints: Mutex<Vec<String>>,
    complaint_count: AtomicU64,
    sides: [Mutex<Metrics>; 2],
}

/// The two runtimes.
#[derive(Clone, Copy, Debug)]
pub enum Side {
    Server,
    Clients,
}

#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    pub count: u64,
    latest: Instant,
}

impl Ledger {
    pub fn stop(&self) {
        self.stopping.store(true, Relaxed);
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    /// Compares what was received with what belongs at `position` of its stream.
    pub fn verify(&self, received: &[u8], position: u64) {
        let mut expected = [0; 4096];
        let mut wrong = 0;
        let mut at = position;
        for part in received.chunks(expected.len()) {
            let expected = &mut expected[..part.len()];
            pattern::fill(expected, at);
            if part != expected {
                wrong += part.iter().zip(expected).filter(|(a, b)| a != b).count();
            }
            at += part.len() as u64;
        }
        self.verified_bytes
            .fetch_add(received.len() as u64, Relaxed);
        if wrong > 0 {
            self.wrong_bytes.fetch_add(wrong as u64, Relaxed);
            self.complain(format_args!(
                "{wrong} of {} bytes are wrong at stream position {position:#x}",
                received.len()
            ));
        }
    }

    /// A stream that ended must have had so many bytes. What is missing or too much counts as wrong.
    pub fn verify_length(&self, received: u64, expected: u64) {
        if received != expected {
            self.wrong_bytes
                .fetch_add(received.abs_diff(expected), Relaxed);
            self.complain(format_args!(
                "{received} bytes arrived instead of {expected}"
            ));
        }
    }

    /// Something that must not be. The first hundred are kept.
    pub fn complain(&self, what: impl Display) {
        self.complaint_count.fetch_add(1, Relaxed);
        let mut complaints = lock(&self.complaints);
        if complaints.len() < 100 {
            complaints.push(what.to_string());
        }
    }

    pub fn complaint_count(&self) -> u64 {
        self.complaint_count.load(Relaxed)
    }

    /// The complaints since the last call.
    pub fn take_complaints(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.complaints))
    }

    pub fn start_load(&self, name: &'static str) {
        let rounds = Rounds {
            count: 0,
            latest: Instant::now(),
        };
        lock(&self.rounds).insert(name, rounds);
    }

    pub fn finish_round(&self, name: &'static str) {
        if let Some(rounds) = lock(&self.rounds).get_mut(name) {
            rounds.count += 1;
            rounds.latest = Instant::now();
        }
    }

    pub fn rounds(&self) -> Vec<(&'static str, u64)> {
        let rounds = lock(&self.rounds);
        rounds
            .iter()
            .map(|(name, rounds)| (*name, rounds.count))
            .collect()
    }

    /// The loads that have finished nothing for so long.
    pub fn stalled(&self, limit: Duration) -> Vec<&'static str> {
        let rounds = lock(&self.rounds);
        let stalled = rounds
            .iter()
            .filter(|(_, rounds)| rounds.latest.elapsed() > limit);
        stalled.map(|(name, _)| *name).collect()
    }

    pub fn publish(&self, side: Side, metrics: Metrics) {
        *lock(&self.sides[side as usize]) = metrics;
    }

    pub fn metrics(&self, side: Side) -> Metrics {
        *lock(&self.sides[side as usize])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A load that panicked is a complaint of its own; what it has counted is still right.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
