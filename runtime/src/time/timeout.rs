use std::error::Error;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;

use super::Instant;
use super::sleep::{Sleep, sleep, sleep_until};

/// Runs a future for `duration` at most, counted from this call.
///
/// Gives the future's output, or [`Elapsed`] if the time is over first. The future is polled before the time is
/// looked at, so one that is ready wins, even with a duration of zero. A duration that is too long to count, such as
/// `Duration::MAX`, is never over.
///
/// The limit can only act when the future yields: one that computes for a second is not interrupted.
///
/// # Cancel safety
///
/// Dropping this, or awaiting it until the time is over, drops the future inside. So it is as safe to cancel, and as
/// safe to time out, as that future. To keep it, lend it: `timeout(duration, &mut future)`, pinned if need be.
///
/// # Panics
///
/// The future panics if it is polled outside a runtime and the inner future is not ready.
///
/// # Examples
///
/// ```
/// use std::future::{pending, ready};
///
/// use runtime::time::{Duration, timeout};
///
/// #[runtime::main]
/// async fn main() {
///     assert_eq!(timeout(Duration::ZERO, ready(7)).await, Ok(7));
///     assert!(timeout(Duration::from_millis(5), pending::<()>()).await.is_err());
/// }
/// ```
pub fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Timeout<F::IntoFuture> {
    Timeout {
        future: future.into_future(),
        limit: sleep(duration),
    }
}

/// Runs a future until `deadline` at most.
///
/// Same as [`timeout()`], with a fixed end. A future that is ready wins, even if the deadline has passed.
///
/// # Cancel safety
///
/// As that of the future inside; see [`timeout()`].
///
/// # Panics
///
/// The future panics if it is polled outside a runtime and the inner future is not ready.
///
/// # Examples
///
/// One deadline for several steps:
///
/// ```
/// use runtime::time::{Duration, Elapsed, Instant, timeout_at};
///
/// #[runtime::main]
/// async fn main() -> Result<(), Elapsed> {
///     let deadline = Instant::now() + Duration::from_secs(5);
///     timeout_at(deadline, async { /* connect */ }).await?;
///     timeout_at(deadline, async { /* request */ }).await
/// }
/// ```
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
    Timeout {
        future: future.into_future(),
        limit: sleep_until(deadline),
    }
}

pin_project! {
    /// Future of [`timeout()`] and [`timeout_at`].
    ///
    /// Its timer starts only when the inner future was not ready at the first poll.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        limit: Sleep,
    }
}

impl<F> Timeout<F> {
    /// The future inside.
    pub fn get_ref(&self) -> &F {
        &self.future
    }

    /// The future inside.
    pub fn get_mut(&mut self) -> &mut F {
        &mut self.future
    }

    /// The future inside, without the limit.
    pub fn into_inner(self) -> F {
        self.future
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        Pin::new(this.limit).poll(cx).map(|()| Err(Elapsed(())))
    }
}

/// The time given to [`timeout()`] or [`timeout_at`] was over before the future was ready.
///
/// Turns into an [`io::Error`] of kind [`TimedOut`](io::ErrorKind::TimedOut), so `?` works in functions that do I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed(());

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the operation took longer than its timeout")
    }
}

impl Error for Elapsed {}

impl From<Elapsed> for io::Error {
    fn from(elapsed: Elapsed) -> Self {
        Self::new(io::ErrorKind::TimedOut, elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elapsed_becomes_a_timed_out_error() {
        let error = io::Error::from(Elapsed(()));
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), Elapsed(()).to_string());
    }
}
