use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::Instant;
use super::sleep::{Sleep, sleep_until};

/// Ticks at once and then every `period`.
///
/// The period counts from this call, not from one tick to the next, so the time that work takes between ticks does
/// not add up. What happens when the work takes longer than a period is [`MissedTickBehavior`]'s choice; the default
/// is [`Burst`](MissedTickBehavior::Burst).
///
/// # Panics
///
/// Panics if `period` is zero. Any other period is allowed; after one that is too long to count, the next tick never
/// comes.
///
/// # Examples
///
/// ```
/// use runtime::time::{Duration, Instant, interval};
///
/// #[runtime::main]
/// async fn main() {
///     let start = Instant::now();
///     let mut interval = interval(Duration::from_millis(2));
///     for _ in 0..4 {
///         interval.tick().await; // after 0, 2, 4 and 6 ms
///     }
///     assert!(start.elapsed() >= Duration::from_millis(6));
/// }
/// ```
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    interval_at(Instant::now(), period)
}

/// Ticks at `start` and then every `period`.
///
/// If `start` has passed, the first tick comes at once.
///
/// # Panics
///
/// Panics if `period` is zero.
///
/// # Examples
///
/// ```
/// use runtime::time::{Duration, Instant, interval_at};
///
/// #[runtime::main]
/// async fn main() {
///     let start = Instant::now() + Duration::from_millis(3);
///     let mut interval = interval_at(start, Duration::from_millis(2));
///     assert_eq!(interval.tick().await, start);
///     assert_eq!(interval.tick().await, start + Duration::from_millis(2));
/// }
/// ```
#[track_caller]
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    assert!(
        !period.is_zero(),
        "the period of an interval must not be zero"
    );
    Interval {
        next: sleep_until(start),
        at_once: true,
        period,
        missed: MissedTickBehavior::default(),
    }
}

/// What an [`Interval`] does when a tick is taken late.
///
/// With a period of 50 ms and work of 120 ms before the third tick is taken, ticks come at:
///
/// ```text
///  Burst  0  50          170 170     200     250        catches up, then as planned
///  Delay  0  50          170            220     270     a full period after the late tick
///  Skip   0  50          170         200     250        leaves out what was missed, then as planned
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissedTickBehavior {
    /// Hands out every missed tick, one per turn of the loop without waiting, until it has caught up. The number of
    /// ticks is right in the long run.
    #[default]
    Burst,
    /// Counts on from when the late tick was taken, so that ticks are a period apart. The plan moves by the delay. A
    /// tick that is late by less than 5 ms, or by less than a period, is not late: the jitter of timers does not add
    /// up.
    Delay,
    /// Goes on at the next multiple of the period. The plan stays, missed ticks are left out.
    Skip,
}

impl MissedTickBehavior {
    /// When the tick after the one planned for `planned` and taken at `now` is due.
    fn next(self, planned: Instant, now: Instant, period: Duration) -> Instant {
        let late = now - planned;
        match self {
            Self::Delay if late > period.min(TOLERANCE) => now + period,
            Self::Skip if late >= period => now + (period - remainder(late, period)),
            _ => planned + period,
        }
    }
}

/// A tick that is late by less is on time for [`MissedTickBehavior::Delay`].
const TOLERANCE: Duration = Duration::from_millis(5);

fn remainder(dividend: Duration, divisor: Duration) -> Duration {
    let nanos = dividend.as_nanos() % divisor.as_nanos();
    // What is left over is less than the dividend, which fits; so each part fits too.
    let secs = u64::try_from(nanos / NANOS_PER_SEC).unwrap_or(u64::MAX);
    let nanos = u32::try_from(nanos % NANOS_PER_SEC).unwrap_or(0);
    Duration::new(secs, nanos)
}

const NANOS_PER_SEC: u128 = 1_000_000_000;

/// Ticks of [`interval()`] and [`interval_at`].
///
/// Its timer starts when a tick is first polled, and is freed when the tick is taken or this is dropped.
#[derive(Debug)]
pub struct Interval {
    next: Sleep,
    /// The next tick does not go through the timers if it is due already. Later ticks do, so that an interval
    /// that has much to catch up with leaves room for others between ticks.
    at_once: bool,
    period: Duration,
    missed: MissedTickBehavior,
}

impl Interval {
    /// Waits for the next tick, and gives the instant for which it was planned.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a tick is taken only when this returns it. Dropped before, the same tick is next.
    ///
    /// # Panics
    ///
    /// Panics outside a runtime, unless the tick is the first one and due.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// Polls for the next tick. When it is pending, the task is woken for the tick.
    ///
    /// # Panics
    ///
    /// As [`tick`](Self::tick).
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        let planned = self.next.deadline();
        if !(self.at_once && planned <= Instant::now()) {
            ready!(Pin::new(&mut self.next).poll(cx));
        }
        self.at_once = false;
        let next = self.missed.next(planned, Instant::now(), self.period);
        self.next.set_deadline(next);
        Poll::Ready(planned)
    }

    /// Puts the next tick one period from now.
    pub fn reset(&mut self) {
        self.reset_after(self.period);
    }

    /// Puts the next tick at the present: it comes at once.
    pub fn reset_immediately(&mut self) {
        self.reset_after(Duration::ZERO);
    }

    /// Puts the next tick `after` from now, and the others a period apart from there.
    pub fn reset_after(&mut self, after: Duration) {
        self.reset_at(Instant::now() + after);
    }

    /// Puts the next tick at `deadline`, and the others a period apart from there. If the deadline has passed, the
    /// tick comes at once.
    pub fn reset_at(&mut self, deadline: Instant) {
        self.at_once = true;
        self.next.set_deadline(deadline);
    }

    /// What happens when a tick is taken late.
    #[must_use]
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.missed
    }

    /// Sets what happens when a tick is taken late; the default is [`Burst`](MissedTickBehavior::Burst).
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.missed = behavior;
    }

    /// The time between two ticks.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn burst_stays_on_plan() {
        let start = Instant::now();
        let next = |late| MissedTickBehavior::Burst.next(start, start + late, 50 * MS) - start;
        assert_eq!(next(Duration::ZERO), 50 * MS);
        assert_eq!(next(120 * MS), 50 * MS);
    }

    #[test]
    fn delay_counts_from_a_late_tick_but_not_from_jitter() {
        let start = Instant::now();
        let next =
            |late, period| MissedTickBehavior::Delay.next(start, start + late, period) - start;
        assert_eq!(next(5 * MS, 50 * MS), 50 * MS);
        assert_eq!(next(6 * MS, 50 * MS), 56 * MS);
        assert_eq!(next(MS, MS), MS);
        assert_eq!(next(2 * MS, MS), 3 * MS);
    }

    #[test]
    fn skip_goes_on_at_a_multiple_of_the_period() {
        let start = Instant::now();
        let next =
            |late, period| MissedTickBehavior::Skip.next(start, start + late, period) - start;
        assert_eq!(next(49 * MS, 50 * MS), 50 * MS);
        assert_eq!(next(50 * MS, 50 * MS), 100 * MS);
        assert_eq!(next(120 * MS, 50 * MS), 150 * MS);
        let years = Duration::from_millis(86_400_000_000);
        assert_eq!(next(years + MS, 7 * MS), years + 8 * MS);
    }

    #[test]
    fn no_period_and_no_delay_overflows() {
        let start = Instant::now();
        let never = start + Duration::MAX;
        for behavior in [
            MissedTickBehavior::Burst,
            MissedTickBehavior::Delay,
            MissedTickBehavior::Skip,
        ] {
            for period in [
                Duration::from_nanos(1),
                Duration::from_millis(u64::MAX),
                Duration::MAX,
            ] {
                for late in [Duration::ZERO, MS, Duration::MAX] {
                    assert!(behavior.next(start, start + late, period) > start);
                }
            }
            assert_eq!(behavior.next(start, start, Duration::MAX), never);
        }
    }
}
