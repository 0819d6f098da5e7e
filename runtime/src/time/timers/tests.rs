//! The timers, driven by hand on a paused clock.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Wake;

use super::*;
use crate::time::clock::NEVER;

thread_local! {
    /// Ids of the wakers that were woken, in order.
    static WOKEN: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    /// How many wakers exist.
    static ALIVE: Cell<usize> = const { Cell::new(0) };
    /// What `on_wake` and `on_drop` work on.
    static TIMERS: RefCell<Option<Rc<Timers>>> = const { RefCell::new(None) };
}

/// A waker that records, and then runs code of its own.
struct Probe {
    id: u64,
    on_wake: fn(&Timers),
    on_drop: fn(&Timers),
}

impl Probe {
    fn waker(id: u64) -> Waker {
        Self::with(id, |_| {}, |_| {})
    }

    fn with(id: u64, on_wake: fn(&Timers), on_drop: fn(&Timers)) -> Waker {
        ALIVE.set(ALIVE.get() + 1);
        Waker::from(Arc::new(Self {
            id,
            on_wake,
            on_drop,
        }))
    }
}

impl Wake for Probe {
    fn wake(self: Arc<Self>) {
        WOKEN.with_borrow_mut(|woken| woken.push(self.id));
        with_timers(self.on_wake);
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        ALIVE.set(ALIVE.get() - 1);
        with_timers(self.on_drop);
    }
}

fn with_timers(f: fn(&Timers)) {
    // At the end of the thread what a failed test left behind is dropped.
    let timers = TIMERS.try_with(|timers| timers.borrow().clone());
    if let Ok(Some(timers)) = timers {
        f(&timers);
    }
}

fn paused() -> Rc<Timers> {
    let timers = Rc::new(Timers::new(Source::Real));
    timers.clock().pause();
    TIMERS.set(Some(Rc::clone(&timers)));
    timers
}

fn fire(timers: &Timers) -> Vec<u64> {
    let fired = timers.fire_expired();
    let woken = WOKEN.take();
    assert_eq!(woken.len(), fired);
    woken
}

/// Xorshift: the same numbers in every run.
pub(in crate::time) struct Random(u64);

impl Random {
    pub(in crate::time) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    pub(in crate::time) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    /// From nanoseconds to years and past the end of time, with many that are equal.
    fn duration(&mut self) -> Duration {
        match self.below(9) {
            0 => Duration::from_nanos(self.below(4)),
            1 => Duration::from_millis(self.below(10)),
            2 => Duration::from_secs(3 * YEAR_SECS),
            3 => Duration::from_secs(self.below(1000 * YEAR_SECS)),
            4 if self.below(10) == 0 => Duration::MAX,
            5 => Duration::from_millis(self.below(200_000)),
            _ => Duration::from_nanos(self.below(50_000_000_000)),
        }
    }
}

const YEAR_SECS: u64 = 365 * 24 * 3600;

/// B39.
#[test]
fn random_use_agrees_with_a_sorted_map() {
    for seed in 1..=30 {
        Model::new(seed).run(3000);
    }
}

/// The timers, and a map that says what they should do.
struct Model {
    timers: Rc<Timers>,
    random: Random,
    sorted: BTreeMap<(u64, u64), u64>,
    /// Id, key and place in `sorted` of every timer that was ever made.
    made: Vec<(u64, TimerKey, (u64, u64))>,
    inserted: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        Self {
            timers: paused(),
            random: Random::new(seed),
            sorted: BTreeMap::new(),
            made: Vec::new(),
            inserted: 0,
        }
    }

    fn run(mut self, steps: u64) {
        for _ in 0..steps {
            match self.random.below(10) {
                0..=4 => self.insert(),
                5 | 6 => self.cancel_any(),
                7 => self.reschedule_any(),
                _ => self.advance(),
            }
            self.check();
        }
        for (_, key, _) in std::mem::take(&mut self.made) {
            self.timers.remove(key);
        }
        assert_eq!(self.timers.queue.borrow().len(), 0);
        assert_eq!(ALIVE.get(), 0);
    }

    /// Where a timer with this deadline, inserted now, sorts.
    fn place(&mut self) -> (Instant, (u64, u64)) {
        let deadline = self.timers.now() + self.random.duration();
        self.inserted += 1;
        (
            deadline,
            (self.timers.clock().tick(deadline), self.inserted),
        )
    }

    fn insert(&mut self) {
        let (deadline, place) = self.place();
        let id = self.made.len() as u64;
        let key = self.timers.insert(deadline, &Probe::waker(id));
        self.sorted.insert(place, id);
        self.made.push((id, key, place));
    }

    /// Often one that is gone already: its key must do nothing.
    fn cancel_any(&mut self) {
        if let Some(any) = self.any() {
            let (_, key, place) = self.made[any];
            assert_eq!(
                self.timers.has_fired(key),
                !self.sorted.contains_key(&place)
            );
            self.timers.remove(key);
            self.sorted.remove(&place);
        }
    }

    fn reschedule_any(&mut self) {
        if let Some(any) = self.any() {
            let (id, key, old) = self.made[any];
            let (deadline, place) = self.place();
            let moved = self.timers.reschedule(key, deadline);
            assert_eq!(moved.is_some(), self.sorted.remove(&old).is_some());
            if let Some(key) = moved {
                self.sorted.insert(place, id);
                self.made[any] = (id, key, place);
            }
        }
    }

    fn any(&mut self) -> Option<usize> {
        let count = self.made.len() as u64;
        (count > 0).then(|| usize::try_from(self.random.below(count)).unwrap())
    }

    fn advance(&mut self) {
        if self.random.below(2) == 0 {
            self.timers.advance_to_next();
        } else {
            let by = self
                .random
                .duration()
                .min(Duration::from_secs(3 * YEAR_SECS));
            self.timers.clock().advance(by);
        }
        let now = self.timers.clock().tick(self.timers.now());
        let mut due = Vec::new();
        while let Some(first) = self.sorted.first_entry()
            && first.key().0 <= now
        {
            due.push(first.remove());
        }
        assert_eq!(fire(&self.timers), due);
    }

    fn check(&mut self) {
        // Asking sorts, so do not always ask: what happens between two questions must not matter.
        if self.random.below(3) == 0 {
            let first = self.sorted.keys().next().map(|place| place.0);
            let next = first.filter(|tick| *tick != NEVER);
            let next = next.map(|tick| self.timers.clock().instant(tick));
            assert_eq!(self.timers.next_deadline(), next);
        }
        assert_eq!(self.timers.queue.borrow().len(), self.sorted.len());
        assert_eq!(ALIVE.get(), self.sorted.len());
    }
}

#[test]
fn never_early_and_equal_deadlines_in_order_of_insertion() {
    let timers = paused();
    let soon = timers.now() + Duration::from_nanos(10);
    for id in [3, 1, 2] {
        timers.insert(soon, &Probe::waker(id));
    }
    timers.insert(soon - Duration::from_nanos(1), &Probe::waker(0));
    timers.clock().advance(Duration::from_nanos(8));
    assert_eq!(fire(&timers), []);
    timers.clock().advance(Duration::from_nanos(1));
    assert_eq!(fire(&timers), [0]);
    timers.clock().advance(Duration::from_nanos(1));
    assert_eq!(fire(&timers), [3, 1, 2]);
    assert_eq!(timers.fire(timers.now() + Duration::MAX), 0);
}

#[test]
fn park_tells_what_to_do() {
    let timers = Timers::new(Source::Real);
    assert_eq!(timers.park_timeout(), Park::Forever);
    let never = timers.insert(timers.now() + Duration::MAX, Waker::noop());
    assert_eq!(timers.park_timeout(), Park::Forever);
    assert_eq!(timers.fire(timers.now() + Duration::MAX), 0);

    let hour = Duration::from_secs(3600);
    timers.insert(timers.now() + hour, Waker::noop());
    assert!(matches!(timers.park_timeout(), Park::For(wait) if wait <= hour && wait > hour / 2));
    let past = timers.insert(timers.now() - hour, Waker::noop());
    assert_eq!(timers.park_timeout(), Park::For(Duration::ZERO));
    timers.remove(past);
    timers.advance_to_next();
    assert_eq!(timers.fire_expired(), 0);

    timers.clock().pause();
    assert_eq!(timers.park_timeout(), Park::Advance);
    timers.advance_to_next();
    assert_eq!(timers.park_timeout(), Park::For(Duration::ZERO));
    assert_eq!(timers.fire_expired(), 1);
    assert_eq!(timers.park_timeout(), Park::Forever);
    assert!(!timers.has_fired(never));
}

#[test]
fn the_last_waker_is_the_one_that_is_woken() {
    let timers = paused();
    let key = timers.insert(timers.now(), &Probe::waker(1));
    let waker = Probe::waker(2);
    assert!(timers.update_waker(key, &waker));
    assert!(timers.update_waker(key, &waker));
    assert_eq!(ALIVE.get(), 1);
    assert_eq!(fire(&timers), [2]);
    assert!(!timers.update_waker(key, &waker));
    assert_eq!(timers.reschedule(key, timers.now()), None);
}

#[test]
fn wakers_may_insert_due_timers_without_holding_the_worker() {
    fn again(timers: &Timers) {
        timers.insert(timers.now(), &Probe::with(9, again, |_| {}));
    }
    let timers = paused();
    timers.insert(timers.now(), &Probe::with(1, again, |_| {}));
    timers.insert(timers.now(), &Probe::waker(2));
    assert_eq!(fire(&timers), [1, 2]);
    assert_eq!(timers.park_timeout(), Park::For(Duration::ZERO));
    assert_eq!(fire(&timers), [9]);
    assert_eq!(fire(&timers), [9]);
}

#[test]
fn wakers_may_remove_timers_that_are_due_too() {
    thread_local!(static VICTIM: Cell<Option<TimerKey>> = const { Cell::new(None) });
    fn remove_victim(timers: &Timers) {
        if let Some(key) = VICTIM.take() {
            timers.remove(key);
            assert_eq!(timers.fire_expired(), 1);
        }
    }
    let timers = paused();
    timers.insert(timers.now(), &Probe::with(1, remove_victim, |_| {}));
    VICTIM.set(Some(timers.insert(timers.now(), &Probe::waker(2))));
    timers.insert(timers.now(), &Probe::waker(3));
    assert_eq!(timers.fire_expired(), 1);
    assert_eq!(WOKEN.take(), [1, 3]);
    assert_eq!(ALIVE.get(), 0);
}

#[test]
fn dropping_a_waker_may_use_the_timers() {
    fn use_timers(timers: &Timers) {
        let key = timers.insert(timers.now(), Waker::noop());
        timers.remove(key);
        assert_eq!(timers.fire(timers.now()), 0);
    }
    let probe = |id| Probe::with(id, use_timers, use_timers);
    let timers = paused();
    let removed = timers.insert(timers.now(), &probe(1));
    let updated = timers.insert(timers.now() + Duration::from_secs(1), &probe(2));
    timers.remove(removed);
    assert!(timers.update_waker(updated, &probe(3)));
    timers.advance_to_next();
    assert_eq!(fire(&timers), [3]);
    assert_eq!(ALIVE.get(), 0);
}

#[test]
fn a_waker_that_panics_leaves_the_others_in_order() {
    let timers = paused();
    timers.insert(timers.now(), &Probe::waker(1));
    timers.insert(
        timers.now(),
        &Probe::with(2, |_| panic!("on purpose"), |_| {}),
    );
    timers.insert(timers.now(), &Probe::waker(3));
    let fire = std::panic::AssertUnwindSafe(|| timers.fire_expired());
    assert!(std::panic::catch_unwind(fire).is_err());
    timers.fire_expired();
    assert_eq!(WOKEN.take(), [1, 2, 3]);
    assert_eq!(ALIVE.get(), 0);
}

#[test]
fn dropping_the_timers_drops_every_waker_once() {
    let timers = paused();
    for id in 0..100 {
        timers.insert(timers.now() + Duration::from_secs(id), &Probe::waker(id));
    }
    TIMERS.take();
    drop(timers);
    assert_eq!(ALIVE.get(), 0);
    assert!(WOKEN.take().is_empty());
}
