//! Waiting for time: [`sleep()`], [`timeout()`], [`interval()`], and a clock that tests can stop.
//!
//! # What to expect
//!
//! * A timer never fires early. It fires in the first turn of the worker's loop that begins at or after its deadline,
//!   in the order of deadlines; equal deadlines fire in the order in which they were first polled. Resolution is one
//!   nanosecond; how late a timer is depends on the kernel's timer slack (about 50 µs) and on how long tasks run.
//! * Every duration is allowed. What lies more than 584 years after the start of the runtime is *never*: it does not
//!   fire, and it does not overflow or panic. `sleep(Duration::MAX)` waits for ever.
//! * A deadline that has already passed is honoured in the next turn of the loop, so a task that keeps sleeping for no
//!   time still lets the others, and I/O, go on.
//! * A timer costs less than 100 bytes of the worker's memory, from the first poll of its future until it fires or the
//!   future is dropped; a worker with timers has 16 KiB beside them. Making one reads the clock once; starting one, and
//!   cancelling it, is cheap however many there are.
//! * Futures of this module belong to the thread that made them (they are not `Send`). They need a runtime only when
//!   they are polled, and each follows the runtime that polls it.
//!
//! # The clock
//!
//! Time is [`std::time::Instant`], which on Linux is `CLOCK_MONOTONIC`: setting the date does not move it, and it
//! stands still while the machine is suspended, so a timer does not count the time asleep.
//!
//! Each worker has its own view of it, which [`pause`] stops and [`advance`] moves. While the clock is paused and
//! nothing else is left to do, the worker moves it to the next deadline by itself, so a test of an hour's timeout
//! takes no time and its result does not depend on the machine's load.

mod clock;
mod instant;
mod interval;
mod queue;
mod sleep;
mod timeout;
mod timers;

use crate::context;

#[doc(no_inline)]
pub use std::time::Duration;

pub(crate) use self::clock::Source;
pub use self::instant::Instant;
pub use self::interval::{Interval, MissedTickBehavior, interval, interval_at};
pub use self::sleep::{Sleep, sleep, sleep_until};
pub use self::timeout::{Elapsed, Timeout, timeout, timeout_at};
pub(crate) use self::timers::{Park, Timers};

/// Stops the clock of the current worker.
///
/// From here on [`Instant::now`] stays the same until [`advance`] moves it, or until the worker has nothing left to
/// do but wait for a timer: then the clock jumps to that timer's deadline. Sockets and other real events go on in
/// real time, so pause only where timers are all that matters, which is mostly in tests. Instants taken from
/// [`std::time::Instant::now`] do not stop.
///
/// Pausing a paused clock does nothing.
///
/// # Panics
///
/// Panics outside a runtime.
///
/// # Examples
///
/// ```
/// use runtime::time::{self, Duration, Instant};
///
/// #[runtime::main]
/// async fn main() {
///     time::pause();
///     let start = Instant::now();
///     time::sleep(Duration::from_secs(3600)).await; // takes no real time
///     assert_eq!(start.elapsed(), Duration::from_secs(3600));
/// }
/// ```
#[track_caller]
pub fn pause() {
    context::timers().clock().pause();
}

/// Lets the clock of the current worker run again, from the time at which it stood.
///
/// Resuming a running clock does nothing.
///
/// # Panics
///
/// Panics outside a runtime.
#[track_caller]
pub fn resume() {
    context::timers().clock().resume();
}

/// Moves the paused clock of the current worker forward and lets the timers that are now due fire.
///
/// The clock moves in one jump. Timers fire in the order of their deadlines, and the tasks that they wake have their
/// turn before the caller goes on. All of them see the new time, also those with an earlier deadline. The clock goes
/// no further than 584 years after the start of the runtime, so even `Duration::MAX` returns.
///
/// # Cancel safety
///
/// The clock moves at the first poll. Dropping the future after that does not move it back.
///
/// # Panics
///
/// Panics, when polled, if the clock is not paused or outside a runtime.
///
/// # Examples
///
/// ```
/// use runtime::time::{self, Duration, Instant};
///
/// #[runtime::main]
/// async fn main() {
///     time::pause();
///     let start = Instant::now();
///     let nap = runtime::spawn(time::sleep(Duration::from_millis(20)));
///     runtime::yield_now().await; // the task runs and its timer starts
///
///     time::advance(Duration::from_millis(50)).await;
///     nap.await.unwrap();
///     assert_eq!(start.elapsed(), Duration::from_millis(50));
/// }
/// ```
pub async fn advance(duration: Duration) {
    let timers = context::timers();
    assert!(
        timers.clock().is_paused(),
        "`time::advance` needs a paused clock: call `runtime::time::pause()` first"
    );
    timers.clock().advance(duration);
    let now = timers.now();
    // The worker owns the timers; a task that waits here must not keep them alive.
    drop(timers);
    // Of all timers that are due now, this one was inserted last, so it fires last. In the turn after that the worker
    // may poll the caller ahead of the tasks that were woken; one turn more, and they have had theirs.
    sleep_until(now).await;
    sleep_until(now).await;
}
