//! The run queue.

use std::mem;

/// Tasks that wait for their poll, first in, first out.
///
/// Two stacks instead of a ring: what comes is put on one, what goes is taken from the other. When that is empty they
/// change places, and what has come is turned over, once for all. A push and a pop are then a few instructions each,
/// as no index ever wraps. Neither stack keeps more room than it needed for the tasks that were ready at one time.
pub(super) struct Queue<T> {
    /// The last one is the next.
    going: Vec<T>,
    /// In the order in which they came.
    coming: Vec<T>,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        Self {
            going: Vec::new(),
            coming: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn push(&mut self, item: T) {
        self.coming.push(item);
    }

    /// Appends all of `items`, and leaves none there.
    pub(super) fn append(&mut self, items: &mut Vec<T>) {
        self.coming.append(items);
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.going.is_empty() {
            mem::swap(&mut self.going, &mut self.coming);
            self.going.reverse();
            // So that a burst that had room once has it again, whichever stack it finds.
            if self.coming.capacity() < self.going.capacity() {
                self.coming.reserve_exact(self.going.capacity());
            }
        }
        self.going.pop()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.going.is_empty() && self.coming.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.going.len() + self.coming.len()
    }
}

#[cfg(all(test, not(ringshot_loom)))]
mod tests {
    use super::Queue;

    #[test]
    fn who_comes_first_goes_first() {
        let mut queue = Queue::new();
        let (mut came, mut went) = (0, 0);
        // Bursts and pauses, so that some come while others go, and none are left now and then.
        for round in 0..1000_usize {
            for _ in 0..round * 7 % 13 {
                queue.push(came);
                came += 1;
            }
            let mut others: Vec<_> = (came..came + round % 5).collect();
            came += others.len();
            queue.append(&mut others);
            assert!(others.is_empty());
            for _ in 0..round * 5 % 19 {
                assert_eq!(queue.len(), came - went);
                assert_eq!(queue.is_empty(), went == came);
                let next = queue.pop();
                assert_eq!(next, (went < came).then_some(went));
                went += usize::from(next.is_some());
            }
        }
        assert!(came > 5_000 && went > 5_000, "{came} came, {went} went");
    }

    #[test]
    fn a_burst_has_room_if_one_like_it_was_there_before() {
        let mut queue = Queue::new();
        let mut room = Vec::new();
        for burst in [50, 1, 50, 50, 1, 1, 50] {
            (0..burst).for_each(|item| queue.push(item));
            while queue.pop().is_some() {}
            room.push((queue.coming.capacity(), queue.going.capacity()));
        }
        let first = room[0];
        assert!(first.0 >= 50 && first.1 >= 50, "{first:?}");
        assert!(
            room.iter()
                .all(|(coming, going)| coming + going == first.0 + first.1)
        );
    }

    #[test]
    fn a_queue_that_is_never_empty_does_not_grow() {
        let mut queue = Queue::new();
        for item in 0..5 {
            queue.push(item);
        }
        for item in 5..100_000 {
            queue.push(item);
            assert_eq!(queue.pop(), Some(item - 5));
        }
        let room = queue.going.capacity() + queue.coming.capacity();
        assert!(room <= 32, "room for {room}");
    }
}
