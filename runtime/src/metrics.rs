//! [`metrics`].

use std::sync::atomic::{AtomicU64, Ordering};

use crate::context;

/// What the current worker has counted since its start, and what it holds now.
///
/// Counters are plain integers of the worker; reading them costs no more than copying them.
///
/// # Panics
///
/// Outside a runtime.
///
/// # Examples
///
/// ```
/// # runtime::Builder::new().build()?.block_on(async {
/// let before = runtime::metrics();
/// runtime::spawn(async {}).await?;
/// let after = runtime::metrics();
/// println!("{} system calls, {} polls", after.enters - before.enters, after.polls - before.polls);
/// # Ok::<_, std::io::Error>(()) })?;
/// # Ok::<_, std::io::Error>(())
/// ```
#[track_caller]
pub fn metrics() -> Metrics {
    context::worker().metrics()
}

/// A snapshot of one worker's counters. See [`metrics`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Calls of `io_uring_enter`.
    pub enters: u64,
    /// Entries submitted to the kernel (operations, cancels, closes).
    pub submissions: u64,
    /// Completions taken from the kernel.
    pub completions: u64,
    /// Polls of spawned tasks.
    pub polls: u64,
    /// Multishot operations that the kernel had ended and that were armed again.
    pub rearms: u64,
    /// Receives that found no buffer in the pool.
    pub starvations: u64,
    /// Receives and accepts that were paused because the program did not keep up.
    pub pauses: u64,
    /// Sends that ask for no completion if they go out whole.
    pub silent_sends: u64,
    /// Silent sends that did not go out whole, and were continued by an armed one.
    pub short_sends: u64,
    /// Sends that ask for a completion.
    pub armed_sends: u64,
    /// Turns in which the completion queue was found full, with more waiting in the kernel.
    pub overflows: u64,
    /// Submissions that the kernel did not take at once (EBUSY, EAGAIN, ENOMEM).
    pub refusals: u64,
    /// Completions that belong to no operation. Always 0, or something is wrong.
    pub unknown_completions: u64,
    /// Wakes from other threads that had to end the worker's sleep.
    pub remote_wakes: u64,
    /// Spawned tasks that have not ended.
    pub tasks: usize,
    /// Operations in flight, the worker's own wake included.
    pub ops: usize,
    /// Receive buffers in use or ready for use.
    pub buffers: usize,
    /// Of these, how many nobody holds.
    pub buffers_free: usize,
}

/// A worker's counters, as other threads see them. Only the worker stores.
#[derive(Debug, Default)]
pub(crate) struct Published([AtomicU64; FIELDS]);

impl Published {
    pub(crate) fn store(&self, metrics: &Metrics) {
        for (published, value) in self.0.iter().zip(metrics.to_array()) {
            published.store(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn load(&self) -> Metrics {
        let mut values = [0; FIELDS];
        for (value, published) in values.iter_mut().zip(&self.0) {
            *value = published.load(Ordering::Relaxed);
        }
        Metrics::from_array(values)
    }
}

impl Metrics {
    fn to_array(self) -> [u64; FIELDS] {
        // Named one by one, so that a new field is not forgotten here.
        let Self {
            enters,
            submissions,
            completions,
            polls,
            rearms,
            starvations,
            pauses,
            silent_sends,
            short_sends,
            armed_sends,
            overflows,
            refusals,
            unknown_completions,
            remote_wakes,
            tasks,
            ops,
            buffers,
            buffers_free,
        } = self;
        [
            enters,
            submissions,
            completions,
            polls,
            rearms,
            starvations,
            pauses,
            silent_sends,
            short_sends,
            armed_sends,
            overflows,
            refusals,
            unknown_completions,
            remote_wakes,
            tasks as u64,
            ops as u64,
            buffers as u64,
            buffers_free as u64,
        ]
    }

    fn from_array(values: [u64; FIELDS]) -> Self {
        let [
            enters,
            submissions,
            completions,
            polls,
            rearms,
            starvations,
            pauses,
            silent_sends,
            short_sends,
            armed_sends,
            overflows,
            refusals,
            unknown_completions,
            remote_wakes,
            tasks,
            ops,
            buffers,
            buffers_free,
        ] = values;
        let count = |value| usize::try_from(value).unwrap_or(usize::MAX);
        Self {
            enters,
            submissions,
            completions,
            polls,
            rearms,
            starvations,
            pauses,
            silent_sends,
            short_sends,
            armed_sends,
            overflows,
            refusals,
            unknown_completions,
            remote_wakes,
            tasks: count(tasks),
            ops: count(ops),
            buffers: count(buffers),
            buffers_free: count(buffers_free),
        }
    }
}

const FIELDS: usize = 18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_what_is_read() {
        let values = std::array::from_fn(|index| index as u64 + 1);
        let metrics = Metrics::from_array(values);
        assert_eq!(metrics.to_array(), values);
        let published = Published::default();
        assert_eq!(published.load(), Metrics::default());
        published.store(&metrics);
        assert_eq!(published.load(), metrics);
    }
}
