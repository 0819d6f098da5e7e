use std::collections::BTreeMap;
use std::task::Waker;

use slab::Slab;

use super::clock::NEVER;

/// The timers that wait, ordered by (deadline, order of insertion).
///
/// Nearly every timer is a timeout that is cancelled long before it is due, so timers are sorted only when their time
/// comes close. The time axis is cut into windows of [`WINDOW_BITS`]. The timers of the first window are a heap, `near`,
/// which knows the exact order; the timers of each later window are a list in no order, and `far` knows the lists.
///
/// ```text
///             ┌── near: heap ──┐   far: window ─▶ list
///  time ──────┤ 5 ms 7 ms 9 ms ├───┤ … ├───┤ … … ├──────┤ … ├──▶
///             └────────────────┘
///                  insert, take: O(log) of one window     insert, take: O(1) and one look-up of the window
/// ```
///
/// When `near` has run out, the next window becomes the heap ([`settle`](Self::settle)), so a timer moves at most once.
/// Nothing depends on what time it is: a jump of the clock costs the same as a step. A timer that is taken out leaves
/// nothing behind. A warm queue does not allocate, except that `far` makes a node for about every sixth window that is
/// new while others are there.
///
/// Why not one heap: with a million timers, taking one out of the middle misses the cache at every level. Why not a
/// hierarchical wheel: it moves timers several times, and knows the next deadline only as well as its levels are fine, so
/// that the worker would wake up just to sort.
///
/// Whatever runs foreign code (dropping or waking a `Waker`) is left to the caller: wakers are handed out, never dropped
/// here.
pub(super) struct Queue {
    /// A heap with four children per node: half as deep as a binary one, and four children are in two cache lines.
    near: Vec<Entry>,
    /// For each later window that has timers, the slot of its first one. All of these windows lie behind that of
    /// the root of `near`, until the root is taken out: then [`settle`](Self::settle) is due.
    far: BTreeMap<u64, usize>,
    waiting: Slab<Waiting>,
    next_seq: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    deadline: u64,
    seq: u64,
    slot: usize,
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
    /// At this position of the heap.
    Near { position: usize },
    /// In the list of its window. A link to itself ends the list.
    Far { previous: usize, next: usize },
}

/// Names one timer. `seq` is never used twice, so the key of a timer that is gone matches nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerKey {
    slot: usize,
    seq: u64,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            near: Vec::new(),
            far: BTreeMap::new(),
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
        let entry = self.waiting.vacant_entry();
        let slot = entry.key();
        entry.insert(Waiting {
            waker,
            deadline,
            seq,
            place: Place::Far {
                previous: slot,
                next: slot,
            },
        });
        match self.near.first() {
            Some(root) if window(deadline) <= window(root.deadline) => self.push_near(slot),
            _ => self.link(slot),
        }
        TimerKey { slot, seq }
    }

    /// Takes a timer out. `None` if it has fired or was taken out before.
    pub(super) fn remove(&mut self, key: TimerKey) -> Option<Waker> {
        self.contains(key).then(|| self.take(key.slot))
    }

    pub(super) fn contains(&self, key: TimerKey) -> bool {
        self.waiting
            .get(key.slot)
            .is_some_and(|waiting| waiting.seq == key.seq)
    }

    pub(super) fn waker_mut(&mut self, key: TimerKey) -> Option<&mut Waker> {
        let waiting = self.waiting.get_mut(key.slot)?;
        (waiting.seq == key.seq).then_some(&mut waiting.waker)
    }

    /// The earliest deadline that will ever be reached.
    pub(super) fn next_deadline(&mut self) -> Option<u64> {
        self.settle();
        let root = self.near.first()?;
        (root.deadline != NEVER).then_some(root.deadline)
    }

    /// Takes out the first timer if its deadline is not after `now`.
    pub(super) fn pop_due(&mut self, now: u64) -> Option<Waker> {
        if self.next_deadline()? > now {
            return None;
        }
        let root = self.near.first()?.slot;
        Some(self.take(root))
    }

    fn take(&mut self, slot: usize) -> Waker {
        let gone = self.waiting.remove(slot);
        match gone.place {
            Place::Near { position } => self.close_gap(position),
            Place::Far { previous, next } => self.unlink(slot, previous, next, gone.deadline),
        }
        if self.waiting.is_empty() {
            self.reset();
        }
        gone.waker
    }

    /// Starts afresh once the last timer is gone: slots are handed out in order again, which keeps neighbours in time
    /// neighbours in memory, and what a burst has allocated is given back.
    fn reset(&mut self) {
        debug_assert!(self.near.is_empty() && self.far.is_empty());
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
    /// Puts a timer at the front of the list of its window.
    fn link(&mut self, slot: usize) {
        let window = window(self.waiting[slot].deadline);
        if let Some(first) = self.far.insert(window, slot) {
            self.relink(first, Some(slot), None);
            self.relink(slot, None, Some(first));
        }
    }

    /// Takes a timer that is in no slot any more out of the list of its window.
    fn unlink(&mut self, slot: usize, previous: usize, next: usize, deadline: u64) {
        let (is_first, is_last) = (previous == slot, next == slot);
        if !is_last {
            self.relink(next, Some(if is_first { next } else { previous }), None);
        }
        if !is_first {
            self.relink(previous, None, Some(if is_last { previous } else { next }));
        } else if is_last {
            self.far.remove(&window(deadline));
        } else {
            self.far.insert(window(deadline), next);
        }
    }

    fn relink(&mut self, slot: usize, new_previous: Option<usize>, new_next: Option<usize>) {
        if let Place::Far { previous, next } = &mut self.waiting[slot].place {
            *previous = new_previous.unwrap_or(*previous);
            *next = new_next.unwrap_or(*next);
        }
    }

    /// Makes the root of `near` the first timer of all.
    fn settle(&mut self) {
        while let Some(first) = self.far.first_entry() {
            if let Some(root) = self.near.first()
                && window(root.deadline) < *first.key()
            {
                break;
            }
            let mut slot = first.remove();
            while let Place::Far { next, .. } = self.waiting[slot].place {
                self.push_near(slot);
                // The last one links to itself, and is near by now.
                slot = next;
            }
        }
    }
}

/// Near: a heap whose entries know their slot, and whose slots know their position.
impl Queue {
    fn push_near(&mut self, slot: usize) {
        let Waiting { deadline, seq, .. } = self.waiting[slot];
        let entry = Entry {
            deadline,
            seq,
            slot,
        };
        self.near.push(entry);
        self.sift_up(self.near.len() - 1, entry);
    }

    /// Takes out the entry at a position, whose slot is gone already, and fills the gap with the last one.
    fn close_gap(&mut self, position: usize) {
        let gone = self.near.swap_remove(position);
        if let Some(&moved) = self.near.get(position) {
            if moved.is_before(gone) {
                self.sift_up(position, moved);
            } else {
                self.sift_down(position, moved);
            }
        }
    }

    /// Moves parents down into the hole at `hole` until `entry` fits there.
    fn sift_up(&mut self, mut hole: usize, entry: Entry) {
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            if self.near[parent].is_before(entry) {
                break;
            }
            self.put(hole, self.near[parent]);
            hole = parent;
        }
        self.put(hole, entry);
    }

    /// Moves least children up into the hole at `hole` until `entry` fits there.
    fn sift_down(&mut self, mut hole: usize, entry: Entry) {
        while let Some((child, least)) = self.least_child(hole) {
            if entry.is_before(least) {
                break;
            }
            self.put(hole, least);
            hole = child;
        }
        self.put(hole, entry);
    }

    fn least_child(&self, parent: usize) -> Option<(usize, Entry)> {
        let first = parent * ARITY + 1;
        let mut least = (first, *self.near.get(first)?);
        let end = (first + ARITY).min(self.near.len());
        for child in first + 1..end {
            let entry = self.near[child];
            if entry.is_before(least.1) {
                least = (child, entry);
            }
        }
        Some(least)
    }

    fn put(&mut self, position: usize, entry: Entry) {
        self.near[position] = entry;
        self.waiting[entry.slot].place = Place::Near { position };
    }
}

impl Entry {
    /// By deadline, then by insertion. One wide comparison, which the compiler turns into code without a branch; field by
    /// field it is a branch that is taken at random.
    fn is_before(self, other: Self) -> bool {
        self.order() < other.order()
    }

    fn order(self) -> u128 {
        u128::from(self.deadline) << 64 | u128::from(self.seq)
    }
}

fn window(deadline: u64) -> u64 {
    deadline >> WINDOW_BITS
}

/// A window is about 17 ms. At 100,000 timers a second that is a heap of 1,700; and timeouts of 30 s are 1,800 windows.
const WINDOW_BITS: u32 = 24;

const ARITY: usize = 4;

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
        for (position, entry) in queue.near.iter().enumerate() {
            let waiting = &queue.waiting[entry.slot];
            assert_eq!((waiting.deadline, waiting.seq), (entry.deadline, entry.seq));
            assert!(matches!(waiting.place, Place::Near { position: place } if place == position));
            assert!(position == 0 || queue.near[(position - 1) / ARITY].is_before(*entry));
        }
        let mut listed = 0;
        for (&key, &first) in &queue.far {
            let (mut before, mut slot) = (first, first);
            loop {
                listed += 1;
                assert_eq!(window(queue.waiting[slot].deadline), key);
                let Place::Far { previous, next } = queue.waiting[slot].place else {
                    panic!("a timer of the heap is in a list");
                };
                assert_eq!(previous, before);
                if next == slot {
                    break;
                }
                (before, slot) = (slot, next);
            }
        }
        assert_eq!(queue.near.len() + listed, queue.len());
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
        assert_eq!((queue.near.len(), queue.far.len()), (2, 98));
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
            (queue.near.as_ptr(), queue.waiting.capacity())
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
        assert_eq!((queue.near.len(), queue.far.len()), (0, 1));
    }
}
