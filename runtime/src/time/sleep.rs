use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::Instant;
use super::timers::{TimerKey, Timers};
use crate::context;

/// Waits for `duration`, counted from this call.
///
/// The future becomes ready in the first turn of the worker's loop at or after that time, never before. A duration of
/// zero takes one turn, so other tasks and I/O get to run. A duration that is too long to count, such as
/// `Duration::MAX`, is never over.
///
/// Needs a runtime when it is polled, not when it is called. Outside a runtime the call reads the real clock.
///
/// # Cancel safety
///
/// Dropping the future frees its timer at once. A new call counts from its own beginning; to wait for the rest
/// of the time in a `select!` loop, poll one [`Sleep`] by reference (it is `Unpin`).
///
/// # Panics
///
/// The future panics when it is polled outside a runtime.
///
/// # Examples
///
/// ```
/// use runtime::time::{Duration, Instant, sleep};
///
/// #[runtime::main]
/// async fn main() {
///     let start = Instant::now();
///     sleep(Duration::from_millis(5)).await;
///     assert!(start.elapsed() >= Duration::from_millis(5));
/// }
/// ```
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(Instant::now() + duration)
}

/// Waits until `deadline`.
///
/// The future becomes ready in the first turn of the worker's loop at or after the deadline, never before. If the
/// deadline has passed already, that is the next turn.
///
/// # Cancel safety
///
/// Dropping the future frees its timer at once, and a new call with the same deadline goes on with the same wait.
///
/// # Panics
///
/// The future panics when it is polled outside a runtime.
///
/// # Examples
///
/// ```
/// use runtime::time::{Duration, Instant, sleep_until};
///
/// #[runtime::main]
/// async fn main() {
///     let deadline = Instant::now() + Duration::from_millis(5);
///     sleep_until(deadline).await;
///     assert!(Instant::now() >= deadline);
/// }
/// ```
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep {
        deadline,
        state: State::Idle,
    }
}

/// Future of [`sleep()`] and [`sleep_until`].
///
/// Its timer starts at the first poll and is freed when it fires or when this is dropped. Once ready it stays ready,
/// until [`reset`](Self::reset). If it is polled in another runtime than before, it moves there.
///
/// # Examples
///
/// One wait across many turns of a loop:
///
/// ```
/// use futures::future::{Either, select};
/// use runtime::time::{Duration, sleep};
///
/// #[runtime::main]
/// async fn main() {
///     let mut end = sleep(Duration::from_millis(10));
///     let mut rounds = 0;
///     loop {
///         match select(&mut end, sleep(Duration::from_millis(1))).await {
///             Either::Left(_) => break,
///             Either::Right(_) => rounds += 1,
///         }
///     }
///     assert!(rounds < 10);
/// }
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    deadline: Instant,
    state: State,
}

enum State {
    /// No timer: not polled yet, or reset after it was ready.
    Idle,
    Armed(Registration),
    Done,
}

impl Sleep {
    /// The instant this waits for.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether the timer has fired. False before the first poll, even if the deadline has passed.
    #[must_use]
    pub fn is_elapsed(&self) -> bool {
        match &self.state {
            State::Idle => false,
            State::Armed(registration) => registration.has_fired(),
            State::Done => true,
        }
    }

    /// Changes the deadline, whether this has been ready or not.
    ///
    /// A timer that is running is moved, and wakes the task at the new deadline without another poll. In the other
    /// cases the timer starts at the next poll.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::pin::pin;
    ///
    /// use runtime::time::{Duration, Instant, sleep};
    ///
    /// #[runtime::main]
    /// async fn main() {
    ///     let start = Instant::now();
    ///     let mut nap = pin!(sleep(Duration::from_secs(3600)));
    ///     nap.as_mut().reset(start + Duration::from_millis(2));
    ///     nap.await;
    ///     assert!(start.elapsed() >= Duration::from_millis(2));
    /// }
    /// ```
    pub fn reset(self: Pin<&mut Self>, deadline: Instant) {
        self.get_mut().set_deadline(deadline);
    }

    pub(super) fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
        let moved = match &mut self.state {
            State::Armed(registration) => registration.reschedule(deadline),
            State::Idle | State::Done => false,
        };
        if !moved {
            self.state = State::Idle;
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if let State::Done = this.state {
            return Poll::Ready(());
        }
        let timers = context::timers();
        let waiting = match &this.state {
            State::Armed(registration) if registration.is_with(&timers) => {
                timers.update_waker(registration.key, cx.waker())
            }
            // It fired in the runtime that polled this before.
            State::Armed(registration) if registration.has_fired() => false,
            _ => {
                this.state = State::Armed(Registration::new(&timers, this.deadline, cx.waker()));
                true
            }
        };
        if waiting {
            return Poll::Pending;
        }
        this.state = State::Done;
        Poll::Ready(())
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep")
            .field("deadline", &self.deadline)
            .field("elapsed", &self.is_elapsed())
            .finish()
    }
}

/// A timer that was inserted and that nobody else removes.
struct Registration {
    timers: Weak<Timers>,
    key: TimerKey,
}

impl Registration {
    fn new(timers: &Rc<Timers>, deadline: Instant, waker: &Waker) -> Self {
        Self {
            timers: Rc::downgrade(timers),
            key: timers.insert(deadline, waker),
        }
    }

    fn is_with(&self, timers: &Rc<Timers>) -> bool {
        std::ptr::eq(self.timers.as_ptr(), Rc::as_ptr(timers))
    }

    /// False also if the runtime is gone: its timers will not fire any more.
    fn has_fired(&self) -> bool {
        self.timers
            .upgrade()
            .is_some_and(|timers| timers.has_fired(self.key))
    }

    /// Moves the timer; false if there is none to move.
    fn reschedule(&mut self, deadline: Instant) -> bool {
        let key = self
            .timers
            .upgrade()
            .and_then(|timers| timers.reschedule(self.key, deadline));
        if let Some(key) = key {
            self.key = key;
        }
        key.is_some()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(timers) = self.timers.upgrade() {
            timers.remove(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compiles only while `Sleep` is `Unpin`.
    const fn assert_unpin<T: Unpin>() {}
    const _: () = assert_unpin::<Sleep>();

    /// Ambiguous, and so an error, if `Sleep` is `Send`: another thread must not touch the worker's timers.
    trait NotSend<Marker> {
        const HOLDS: () = ();
    }
    struct IsSend;
    impl<T> NotSend<()> for T {}
    impl<T: Send> NotSend<IsSend> for T {}
    const _: () = <Sleep as NotSend<_>>::HOLDS;
}
