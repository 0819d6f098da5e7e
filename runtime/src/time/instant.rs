use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::{Duration, Instant as StdInstant};

use crate::context;

/// A point in time on the clock of the current worker.
///
/// It is a [`std::time::Instant`], and converts to and from one for free. It differs in two ways: [`now`](Self::now)
/// reads the worker's clock, which tests can [`pause`](super::pause), and arithmetic saturates: adding too much gives
/// the last instant there is, which a timer takes to mean *never*, instead of a panic.
///
/// # Examples
///
/// ```
/// use runtime::time::{Duration, Instant};
///
/// let start = Instant::now();
/// let never = start + Duration::MAX;
/// assert!(never > start + Duration::from_secs(3600));
/// assert_eq!(start - never, Duration::ZERO);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(StdInstant);

impl Instant {
    /// Reads the clock of the current worker, or the real one outside a runtime.
    #[must_use]
    pub fn now() -> Self {
        match context::try_timers() {
            Some(timers) => timers.now(),
            None => Self(StdInstant::now()),
        }
    }

    /// Wraps an instant of the standard library.
    #[must_use]
    pub fn from_std(instant: StdInstant) -> Self {
        Self(instant)
    }

    /// Gives the instant of the standard library.
    ///
    /// While the clock is paused, or after it was, this may be ahead of or behind [`std::time::Instant::now`].
    #[must_use]
    pub fn into_std(self) -> StdInstant {
        self.0
    }

    /// How much time has passed since this instant; zero if it lies in the future.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Self::now().duration_since(*self)
    }

    /// How much time lies between `earlier` and this instant; zero if `earlier` is the later one.
    #[must_use]
    pub fn duration_since(&self, earlier: Self) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    /// Same as [`duration_since`](Self::duration_since), under the name that says what it does.
    #[must_use]
    pub fn saturating_duration_since(&self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }

    /// How much time lies between `earlier` and this instant, or `None` if `earlier` is the later one.
    #[must_use]
    pub fn checked_duration_since(&self, earlier: Self) -> Option<Duration> {
        self.0.checked_duration_since(earlier.0)
    }

    /// This instant moved forward, or `None` if the result cannot be represented.
    #[must_use]
    pub fn checked_add(&self, duration: Duration) -> Option<Self> {
        self.0.checked_add(duration).map(Self)
    }

    /// This instant moved back, or `None` if the result cannot be represented.
    #[must_use]
    pub fn checked_sub(&self, duration: Duration) -> Option<Self> {
        self.0.checked_sub(duration).map(Self)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<StdInstant> for Instant {
    fn from(instant: StdInstant) -> Self {
        Self::from_std(instant)
    }
}

impl From<Instant> for StdInstant {
    fn from(instant: Instant) -> Self {
        instant.into_std()
    }
}

/// Moves forward, at most to the last instant there is.
impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let moved = self.0.checked_add(duration);
        Self(moved.unwrap_or_else(|| extreme(self.0, StdInstant::checked_add)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

/// Moves back, at most to the first instant there is.
impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        let moved = self.0.checked_sub(duration);
        Self(moved.unwrap_or_else(|| extreme(self.0, StdInstant::checked_sub)))
    }
}

impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, duration: Duration) {
        *self = *self - duration;
    }
}

/// The time between two instants; zero if the right one is the later one.
impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }
}

/// The last instant that steps in one direction can reach.
///
/// The standard library does not tell its bounds, so this finds them by steps that get shorter: about 100 of each
/// kind. The result does not depend on where it starts, so that all saturated instants are equal.
#[cold]
fn extreme(from: StdInstant, step: fn(&StdInstant, Duration) -> Option<StdInstant>) -> StdInstant {
    let mut at = from;
    let mut stride = Duration::MAX;
    while !stride.is_zero() {
        match step(&at, stride) {
            Some(next) => at = next,
            None => stride /= 2,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_one_last_instant() {
        let now = Instant::now();
        let last = now + Duration::MAX;
        assert_eq!(now + Duration::from_secs(1) + Duration::MAX, last);
        assert_eq!(last + Duration::from_nanos(1), last);
        assert_eq!(last + Duration::MAX, last);
        assert_eq!(last.checked_add(Duration::from_nanos(1)), None);
        assert!(now + Duration::from_secs(u64::MAX / 2) <= last);

        let first = now - Duration::MAX - Duration::MAX;
        assert_eq!(first.checked_sub(Duration::from_nanos(1)), None);
        assert_eq!(first - Duration::MAX, first);
        assert_eq!(now - last, Duration::ZERO);
        assert_eq!(now.checked_duration_since(last), None);
    }

    #[test]
    fn ordinary_arithmetic_is_exact() {
        let now = Instant::now();
        let mut later = now + Duration::from_nanos(1_500_000_001);
        assert_eq!(later - now, Duration::from_nanos(1_500_000_001));
        later -= Duration::from_nanos(1);
        later += Duration::from_nanos(500_000_000);
        assert_eq!(later.duration_since(now), Duration::from_secs(2));
        assert_eq!(Instant::from(StdInstant::from(later)), later);
    }
}
