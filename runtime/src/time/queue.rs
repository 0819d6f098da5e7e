mod near;
mod windows;

use std::iter;
use std::mem;
use std::task::Waker;

use slab::Slab;

use self::near::{Entry, Near};
use self::windows::Windows;
use super::clock::NEVER;

/// The timers that wait, ordered by (deadline, order of insertion).
///
/// Nearly every timer is a timeout that is cancelled long before it is due, so timers are sorted only when their time
/// comes close. The time axis is cut into windows of [`WINDOW_BITS`]. The timers of the first window are `near`,
/// which knows the exact order; the timers of each later window are a list in no order, and `far` knows the lists.
///
/// ```text
///             ┌──── near ──────┐   far: window ─▶ list
///  time ──────┤ 5 ms 7 ms 9 ms ├───┤ … ├───┤ … … ├──────┤ … ├──▶
///             └────────────────┘
///               insert, take: O(log) of one window     insert, take: O(1)
/// ```
///
/// When `near` has run out, the next window is sorted into it ([`settle`](Self::settle)), so a timer moves at most once.
/// Nothing depends on what time it is: a jump of the clock costs the same as a step. A timer that is taken out of a list
/// leaves nothing behind, and `near` holds no more than twice what it needs. A warm queue does not allocate, except that
/// windows of more than a minute ahead are in a tree.
///
/// Why not one heap: with a million timers, taking one out of the middle misses the cache at every level. Why not a
/// hierarchical wheel: it moves timers several times, and knows the next deadline only as well as its levels are fine, so
/// that the worker would wake up just to sort.
///
/// Whatever runs foreign code (dropping or waking a `Waker`) is left to the caller: wakers are handed out, never dropped
/// here.
pub(super) struct Queue {
    near: Near,
    /// For each later window that has timers, the slot of its first one. All of these windows lie behind that of
    /// the first of `near`, until that is taken out: then [`settle`](Self::settle) is due.
    far: Windows,
    waiting: Slab<Waiting>,
    next_seq: u64,
}

struct Waiting {
    waker: Waker,
    deadline: u64,
    seq: u64,
    place: Place,
}

/// Where a timer is.
#[derive(Clone, Copy)]
enum Place {
    Near,
    /// In the list of its window. A link to itself ends the list.
    Far {
        previous: u32,
        next: u32,
    },
}

/// Names one timer. `seq` is never used twice, so the key of a timer that is gone matches nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerKey {
    slot: u32,
    seq: u64,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            near: Near::new(),
            far: Windows::new(),
            waiting: Slab::new(),
            next_seq: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn insert(&mut self, deadline: u64, waker: Waker) -> TimerKey {
        let seq = self.next_seq;
        self.next_seq += 1;
        let vacant = self.waiting.vacant_entry();
        let slot = u32::try_from(vacant.key()).expect(FITS);
        let place = match self.near.first() {
            Some(first) if window(deadline) <= window(first.deadline) => {
                self.near.push(Entry {
                    deadline,
                    seq,
                    slot,
                });
                Place::Near
            }
            _ => Place::Far {
                previous: slot,
                next: self.far.insert(window(deadline), slot).unwrap_or(slot),
            },
        };
        vacant.insert(Waiting {
            waker,
            deadline,
            seq,
            place,
        });
        if let Place::Far { next, .. } = place
            && next != slot
        {
            self.relink(next, Some(slot), None);
        }
        TimerKey { slot, seq }
    }

    /// Takes a timer out. `None` if it has fired or was taken out before.
    pub(super) fn remove(&mut self, key: TimerKey) -> Option<Waker> {
        self.contains(key).then(|| self.take(key.slot))
    }

    pub(super) fn contains(&self, key: TimerKey) -> bool {
        self.waiting
            .get(key.slot as usize)
            .is_some_and(|waiting| waiting.seq == key.seq)
    }

    pub(super) fn waker_mut(&mut self, key: TimerKey) -> Option<&mut Waker> {
        let waiting = self.waiting.get_mut(key.slot as usize)?;
        (waiting.seq == key.seq).then_some(&mut waiting.waker)
    }

    /// The earliest deadline that will ever be reached.
    #[inline]
    pub(super) fn next_deadline(&mut self) -> Option<u64> {
        if self.waiting.is_empty() {
            return None;
        }
        self.first_deadline()
    }

    fn first_deadline(&mut self) -> Option<u64> {
        self.settle();
        let first = self.near.first()?;
        (first.deadline != NEVER).then_some(first.deadline)
    }

    /// Takes out the first timer if its deadline is not after `now`.
    pub(super) fn pop_due(&mut self, now: u64) -> Option<Waker> {
        if self.next_deadline()? > now {
            return None;
        }
        let first = self.near.first()?.slot;
        Some(self.take(first))
    }

    fn take(&mut self, slot: u32) -> Waker {
        let gone = self.waiting.remove(slot as usize);
        match gone.place {
            Place::Near => {
                let waiting = &self.waiting;
                let waits = |entry: Entry| {
                    let waiting = waiting.get(entry.slot as usize);
                    waiting.is_some_and(|waiting| waiting.seq == entry.seq)
                };
                self.near.bury(waits);
            }
            Place::Far { previous, next } => {
                self.unlink(slot, previous, next, window(gone.deadline));
            }
        }
        if self.waiting.is_empty() {
            self.reset();
        }
        gone.waker
    }

    /// Starts afresh once the last timer is gone: slots are handed out in order again, which keeps neighbours in time
    /// neighbours in memory, and what a burst has allocated is given back.
    fn reset(&mut self) {
        debug_assert!(self.near.first().is_none() && self.far.first().is_none());
        if self.waiting.capacity() > KEPT_CAPACITY {
            *self = Self {
                next_seq: self.next_seq,
                ..Self::new()
            };
        } else {
            self.waiting.clear();
        }
    }
}

/// Far: lists of windows.
impl Queue {
    /// Takes a timer that is in no slot any more out of the list of its window.
    fn unlink(&mut self, slot: u32, previous: u32, next: u32, window: u64) {
        let (is_first, is_last) = (previous == slot, next == slot);
        if !is_last {
            self.relink(next, Some(if is_first { next } else { previous }), None);
        }
        if !is_first {
            self.relink(previous, None, Some(if is_last { previous } else { next }));
        } else if is_last {
            self.far.remove(window);
        } else {
            self.far.insert(window, next);
        }
    }

    fn relink(&mut self, slot: u32, new_previous: Option<u32>, new_next: Option<u32>) {
        if let Place::Far { previous, next } = &mut self.waiting[slot as usize].place {
            *previous = new_previous.unwrap_or(*previous);
            *next = new_next.unwrap_or(*next);
        }
    }

    /// Makes the first of `near` the first timer of all.
    fn settle(&mut self) {
        while let Some(first) = self.far.first() {
            if let Some(near) = self.near.first()
                && window(near.deadline) < first
            {
                break;
            }
            let mut listed = self.far.remove(first);
            let waiting = &mut self.waiting;
            self.near.add(iter::from_fn(|| {
                let slot = listed.take()?;
                let timer = &mut waiting[slot as usize];
                if let Place::Far { next, .. } = mem::replace(&mut timer.place, Place::Near) {
                    listed = (next != slot).then_some(next);
                }
                Some(Entry {
                    deadline: timer.deadline,
                    seq: timer.seq,
                    slot,
                })
            }));
        }
    }
}

fn window(deadline: u64) -> u64 {
    deadline >> WINDOW_BITS
}

/// A window is about 17 ms. At 100,000 timers a second that is 1,700 to sort; and timeouts of 30 s are 1,800 windows.
const WINDOW_BITS: u32 = 24;

/// They alone would take 200 GB.
const FITS: &str = "a worker has fewer than 2^32 timers";

/// How many timers' memory an empty queue keeps, so that a warm worker does not allocate.
const KEPT_CAPACITY: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn noop() -> Waker {
        Waker::noop().clone()
    }

    /// Every timer is in exactly one place, and the place says so.
    #[track_caller]
    fn check(queue: &Queue) {
        let is_near = |waiting: &Waiting| matches!(waiting.place, Place::Near);
        let near: Vec<_> = queue.near.entries().collect();
        let mut alive = 0;
        for entry in &near {
            let timer = queue.waiting.get(entry.slot as usize);
            if let Some(timer) = timer.filter(|timer| timer.seq == entry.seq) {
                assert!(is_near(timer) && timer.deadline == entry.deadline);
                alive += 1;
            }
        }
        let timers = queue.waiting.iter().map(|(_, timer)| timer);
        let near_timers = timers.clone().filter(|timer| is_near(timer));
        assert_eq!(near_timers.clone().count(), alive);
        let order = |timer: &Waiting| (timer.deadline, timer.seq);
        let first = queue.near.first();
        let first = first.map(|entry| (entry.deadline, entry.seq));
        assert_eq!(near_timers.map(order).min(), first);
        assert!(near.len() <= 2 * alive + near::FEW);

        let mut listed = 0;
        for (key, first) in queue.far.iter() {
            let (mut before, mut slot) = (first, first);
            loop {
                listed += 1;
                assert_eq!(window(queue.waiting[slot as usize].deadline), key);
                let Place::Far { previous, next } = queue.waiting[slot as usize].place else {
                    panic!("a near timer is in a list");
                };
                assert_eq!(previous, before);
                if next == slot {
                    break;
                }
                (before, slot) = (slot, next);
            }
        }
        assert_eq!(alive + listed, queue.len());
    }

    /// Timers in three windows, in no order, some of them equal.
    fn filled(count: u64) -> (Queue, Vec<TimerKey>) {
        let mut queue = Queue::new();
        let deadlines = (0..count).map(|n| (n * 37 % 3) << WINDOW_BITS | (n * 37 % 11));
        let keys = deadlines.map(|deadline| queue.insert(deadline, noop()));
        let keys = keys.collect();
        check(&queue);
        (queue, keys)
    }

    #[test]
    fn every_timer_can_be_taken_out_of_any_place() {
        for count in 1..60 {
            for victim in 0..count {
                for settled in [false, true] {
                    let (mut queue, keys) = filled(u64::try_from(count).unwrap());
                    if settled {
                        queue.next_deadline().unwrap();
                        check(&queue);
                    }
                    assert!(queue.remove(keys[victim]).is_some());
                    check(&queue);
                    assert!(queue.remove(keys[victim]).is_none());
                    assert!(count == 1 || queue.pop_due(NEVER).is_some());
                    check(&queue);
                    for key in keys {
                        let contained = queue.contains(key);
                        assert_eq!(queue.remove(key).is_some(), contained);
                        check(&queue);
                    }
                    assert_eq!(queue.len(), 0);
                }
            }
        }
    }

    #[test]
    fn timers_come_out_in_order_across_windows() {
        let (mut queue, _) = filled(500);
        let mut count = 0;
        let mut last = 0;
        while let Some(deadline) = queue.next_deadline() {
            assert!(deadline >= last);
            assert!(deadline == 0 || queue.pop_due(deadline - 1).is_none());
            assert!(queue.pop_due(deadline).is_some());
            check(&queue);
            (last, count) = (deadline, count + 1);
        }
        assert_eq!(count, 500);
    }

    #[test]
    fn distant_timers_in_the_heap_do_not_draw_later_ones_into_it() {
        let mut queue = Queue::new();
        let year = 365 * 86_400 * 1_000_000_000;
        queue.insert(year, noop());
        assert_eq!(queue.next_deadline(), Some(year));
        for n in 1..100 {
            queue.insert(n << WINDOW_BITS, noop());
            check(&queue);
        }
        assert_eq!(
            (queue.near.entries().count(), queue.far.iter().count()),
            (2, 98)
        );
        queue.pop_due(NEVER).unwrap();
        assert_eq!(queue.next_deadline(), Some(2 << WINDOW_BITS));
        check(&queue);
    }

    #[test]
    fn never_is_not_a_deadline() {
        let mut queue = Queue::new();
        let key = queue.insert(NEVER, noop());
        assert_eq!(queue.next_deadline(), None);
        assert!(queue.pop_due(NEVER).is_none());
        queue.insert(NEVER - 1, noop());
        assert_eq!(queue.next_deadline(), Some(NEVER - 1));
        assert!(queue.pop_due(NEVER).is_some());
        assert!(queue.contains(key));
    }

    #[test]
    fn stale_key_never_names_the_next_tenant_of_its_slot() {
        let mut queue = Queue::new();
        let stale = queue.insert(1, noop());
        queue.remove(stale).unwrap();
        let tenant = queue.insert(1, noop());
        assert_eq!(stale.slot, tenant.slot);
        assert!(!queue.contains(stale));
        assert!(queue.waker_mut(stale).is_none());
        assert!(queue.remove(stale).is_none());
        assert!(queue.contains(tenant));
    }

    #[test]
    fn empty_queue_keeps_little_memory_and_a_warm_one_allocates_nothing() {
        let mut queue = Queue::new();
        let burst: Vec<_> = (0..50_000).map(|n| queue.insert(n, noop())).collect();
        for &key in &burst {
            queue.remove(key).unwrap();
        }
        assert_eq!((queue.near.capacity(), queue.waiting.capacity()), (0, 0));

        queue.insert(0, noop());
        assert!(burst.iter().all(|&key| !queue.contains(key)));
        queue.pop_due(0).unwrap();

        let fill = |queue: &mut Queue| {
            for n in 0..1000 {
                queue.insert(n, noop());
            }
            while queue.pop_due(NEVER - 1).is_some() {}
            (queue.near.capacity(), queue.waiting.capacity())
        };
        let warm = fill(&mut queue);
        assert_eq!(fill(&mut queue), warm);
        // Slots are handed out in order again.
        assert_eq!(queue.insert(0, noop()).slot, 0);
    }

    #[test]
    fn memory_follows_live_timers_not_cancelled_ones() {
        let mut queue = Queue::new();
        queue.insert(NEVER, noop());
        for n in 0..100_000 {
            let key = queue.insert(n << WINDOW_BITS, noop());
            queue.remove(key).unwrap();
        }
        assert!(queue.near.capacity() <= 8 && queue.waiting.capacity() <= 8);
        assert_eq!(
            (queue.near.entries().count(), queue.far.iter().count()),
            (0, 1)
        );
    }

    #[test]
    fn near_timers_that_are_cancelled_do_not_pile_up() {
        // One by one, behind some that stay.
        let mut queue = Queue::new();
        queue.insert(1, noop());
        assert_eq!(queue.next_deadline(), Some(1));
        queue.insert(1, noop());
        for n in 0..10_000 {
            let key = queue.insert(2 + n, noop());
            queue.remove(key).unwrap();
            check(&queue);
        }
        assert!(queue.near.capacity() <= 4 * near::FEW);

        // All at once, sorted already.
        let keys: Vec<_> = (0..1000).map(|n| queue.insert(NEVER - n, noop())).collect();
        queue.pop_due(1).unwrap();
        queue.pop_due(1).unwrap();
        assert_eq!(queue.next_deadline(), Some(NEVER - 999));
        for key in &keys[..999] {
            queue.remove(*key).unwrap();
            check(&queue);
        }
        assert!(queue.contains(keys[999]));
    }
}
