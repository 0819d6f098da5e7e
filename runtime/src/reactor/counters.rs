//! Plain counters of one worker.

use std::cell::Cell;

/// A number that only its worker touches.
#[derive(Debug, Default)]
pub(crate) struct Counter(Cell<u64>);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.set(self.0.get().wrapping_add(n));
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.get()
    }
}

/// What a reactor counts; see [`Metrics`](crate::Metrics) for what each means.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) submissions: Counter,
    pub(crate) completions: Counter,
    pub(crate) rearms: Counter,
    pub(crate) starvations: Counter,
    pub(crate) pauses: Counter,
    pub(crate) silent_sends: Counter,
    pub(crate) short_sends: Counter,
    pub(crate) armed_sends: Counter,
    pub(crate) refusals: Counter,
    pub(crate) unknown: Counter,
}
