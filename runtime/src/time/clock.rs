use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant as StdInstant};

use super::Instant;

/// The clock of one worker: that of its source, until somebody pauses it.
///
/// It also maps instants to the ticks in which the queue counts: nanoseconds since the clock was made.
pub(super) struct Clock {
    source: Source,
    base: Instant,
    mode: Cell<Mode>,
}

/// What a clock shows while nobody has touched it.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Real,
    /// Moved by whoever simulates the world around the worker.
    #[cfg_attr(not(feature = "sim"), expect(dead_code))]
    Simulated(Rc<Cell<StdInstant>>),
}

impl Source {
    pub(crate) fn is_real(&self) -> bool {
        matches!(self, Self::Real)
    }

    fn now(&self) -> StdInstant {
        match self {
            Self::Real => StdInstant::now(),
            Self::Simulated(now) => now.get(),
        }
    }
}

#[derive(Clone, Copy)]
enum Mode {
    /// As the source.
    Running,
    Paused {
        at: Instant,
    },
    /// Runs at the pace of the source, from what it showed (`at`) when it was resumed (at the source's time `since`).
    Resumed {
        at: Instant,
        since: StdInstant,
    },
}

impl Clock {
    pub(super) fn new(source: Source) -> Self {
        Self {
            base: Instant::from_std(source.now()),
            mode: Cell::new(Mode::Running),
            source,
        }
    }

    pub(super) fn now(&self) -> Instant {
        match self.mode.get() {
            Mode::Running => Instant::from_std(self.source.now()),
            Mode::Paused { at } => at,
            Mode::Resumed { at, since } => at + (self.source.now() - since),
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        matches!(self.mode.get(), Mode::Paused { .. })
    }

    /// Stops the clock; a stopped one stays as it is.
    pub(super) fn pause(&self) {
        self.mode.set(Mode::Paused { at: self.now() });
    }

    /// Lets a stopped clock run on from where it stands; a running one stays as it is.
    pub(super) fn resume(&self) {
        if let Mode::Paused { at } = self.mode.get() {
            self.mode.set(Mode::Resumed {
                at,
                since: self.source.now(),
            });
        }
    }

    /// Moves a stopped clock forward, but never into what counts as *never*; a running one stays as it is.
    pub(super) fn advance(&self, by: Duration) {
        if let Mode::Paused { at } = self.mode.get() {
            let last = self.instant(NEVER - 1);
            self.mode.set(Mode::Paused {
                at: (at + by).min(last),
            });
        }
    }

    /// The tick of an instant: 0 for all that lies before the clock was made, [`NEVER`] for what is too far to count.
    pub(super) fn tick(&self, instant: Instant) -> u64 {
        let since = instant.duration_since(self.base).as_nanos();
        u64::try_from(since).unwrap_or(NEVER)
    }

    pub(super) fn instant(&self, tick: u64) -> Instant {
        self.base + Duration::from_nanos(tick)
    }
}

/// The tick that no clock reaches, about 584 years after it was made.
pub(super) const NEVER: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paused_clock_moves_only_by_hand() {
        let clock = Clock::new(Source::Real);
        clock.advance(Duration::from_secs(1000));
        assert!(clock.now() < clock.base + Duration::from_secs(1000));

        clock.pause();
        let at = clock.now();
        std::thread::sleep(Duration::from_millis(2));
        clock.pause();
        assert_eq!(clock.now(), at);
        clock.advance(Duration::from_secs(5));
        assert_eq!(clock.now(), at + Duration::from_secs(5));
    }

    #[test]
    fn resumed_clock_runs_on_from_where_it_stood() {
        let clock = Clock::new(Source::Real);
        clock.resume();
        clock.pause();
        clock.advance(Duration::from_secs(3600));
        let at = clock.now();
        clock.resume();
        clock.resume();
        assert!(!clock.is_paused());
        assert!(clock.now() >= at);
        let later = clock.now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(clock.now() >= later + Duration::from_millis(2));

        clock.pause();
        assert!(clock.now() >= later);
    }

    #[test]
    fn clock_stops_short_of_never() {
        let clock = Clock::new(Source::Real);
        clock.pause();
        clock.advance(Duration::MAX);
        clock.advance(Duration::MAX);
        assert_eq!(clock.tick(clock.now()), NEVER - 1);
    }

    #[test]
    fn ticks_saturate_at_both_ends() {
        let clock = Clock::new(Source::Real);
        assert_eq!(clock.tick(clock.base - Duration::from_secs(1)), 0);
        assert_eq!(clock.tick(clock.base), 0);
        assert_eq!(clock.tick(clock.base + Duration::from_nanos(7)), 7);
        assert_eq!(clock.tick(clock.base + Duration::MAX), NEVER);
        assert_eq!(clock.instant(7), clock.base + Duration::from_nanos(7));
    }
}
