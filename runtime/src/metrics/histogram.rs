//! [`Histogram`]: latencies, by powers of two.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often something took how long, in a fixed number of buckets, each twice as wide as the one before.
///
/// # Examples
///
/// ```
/// # let runtime = runtime::Builder::new().workers(2).build()?;
/// let latency = runtime.handle().metrics(1).wake_latency;
/// if let Some(bound) = latency.quantile(0.99) {
///     println!("99 of 100 wakes took less than {bound:?}");
/// }
/// for (bound, count) in latency.buckets() {
///     println!("less than {bound:?}: {count}");
/// }
/// # Ok::<_, runtime::BuildError>(())
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Histogram([u64; BUCKETS]);

impl Histogram {
    /// How many there are in all buckets.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The buckets from the shortest to the longest: the duration that everything in it is below, and how many are in it.
    /// The first bound is 1,024 ns, the next 2,048 ns, and so on; the last one, [`Duration::MAX`], is for all from
    /// 268 ms on.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let counts = self.0.iter().enumerate();
        counts.map(|(index, count)| (bound(index), *count))
    }

    /// A duration that this part of them (0 to 1) is below: the bound of the bucket, so at most twice the exact one.
    /// `None` if there are none.
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let count = self.count();
        // At least one, and never more than there are.
        let wanted = ((part * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        self.buckets().find_map(|(bound, count)| {
            seen += count;
            (seen >= wanted).then_some(bound)
        })
    }

    pub(super) fn since(&self, earlier: &Self) -> Self {
        let difference = |index: usize| self.0[index].saturating_sub(earlier.0[index]);
        Self(std::array::from_fn(difference))
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filled = self.buckets().filter(|(_, count)| *count > 0);
        f.debug_map().entries(filled).finish()
    }
}

/// The same for other threads to read. One thread adds.
#[derive(Debug, Default)]
pub(super) struct Tally([AtomicU64; BUCKETS]);

impl Tally {
    pub(super) fn add(&self, nanoseconds: u64) {
        let bucket = &self.0[index(nanoseconds)];
        bucket.store(bucket.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(super) fn load(&self) -> Histogram {
        let counts = |index: usize| self.0[index].load(Ordering::Relaxed);
        Histogram(std::array::from_fn(counts))
    }
}

fn index(nanoseconds: u64) -> usize {
    let units = nanoseconds >> FIRST_BITS;
    let bits = (u64::BITS - units.leading_zeros()) as usize;
    bits.min(BUCKETS - 1)
}

fn bound(index: usize) -> Duration {
    match index {
        LAST => Duration::MAX,
        _ => Duration::from_nanos(1 << (FIRST_BITS + index)),
    }
}

/// What is below 2 to this power, in nanoseconds, is in the first bucket.
const FIRST_BITS: usize = 10;

const BUCKETS: usize = 20;
const LAST: usize = BUCKETS - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_duration_is_below_the_bound_of_its_bucket_and_of_no_shorter_one() {
        for nanoseconds in [0, 1, 1_023, 1_024, 2_047, 2_048, 1_000_000, 268_435_455] {
            let index = index(nanoseconds);
            let duration = Duration::from_nanos(nanoseconds);
            assert!(duration < bound(index), "{duration:?}");
            assert!(index == 0 || duration >= bound(index - 1));
        }
        for long in [268_435_456, u64::MAX] {
            assert_eq!(index(long), LAST);
        }
    }

    #[test]
    fn quantiles_are_bounds_of_buckets() {
        let tally = Tally::default();
        assert_eq!(tally.load().quantile(0.5), None);
        for _ in 0..99 {
            tally.add(1_500);
        }
        tally.add(1_000_000_000);
        let histogram = tally.load();
        assert_eq!(histogram.count(), 100);
        for (part, expected) in [(0.0, 2_048), (0.5, 2_048), (0.99, 2_048)] {
            let expected = Some(Duration::from_nanos(expected));
            assert_eq!(histogram.quantile(part), expected);
        }
        assert_eq!(histogram.quantile(1.0), Some(Duration::MAX));
        let earlier = histogram;
        tally.add(0);
        assert_eq!(tally.load().since(&earlier).count(), 1);
    }
}
