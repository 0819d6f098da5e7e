//! [`metrics`].

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
