//! Sends in flight that leave no completion when they succeed.

use std::collections::VecDeque;

/// The silent sends in flight, in the order of their submission.
///
/// They need no slot: each is over when the entries up to its own were taken by the kernel and all completions of that
/// were seen. If it leaves a completion all the same (it went short, or failed), its `user_data` says which one it is:
/// the sends are numbered in order.
pub(super) struct Silents<T> {
    queue: VecDeque<Silent<T>>,
    /// The number of the first in the queue. Numbers wrap.
    first: u32,
}

struct Silent<T> {
    /// `None` once it has left a completion. Until then it keeps what the kernel reads.
    op: Option<T>,
    /// Entries pushed up to this one, wrapping.
    pushed: u32,
}

impl<T> Default for Silents<T> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            first: 0,
        }
    }
}

impl<T> Silents<T> {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The `user_data` of the send that is pushed next.
    #[inline]
    pub(super) fn next_user_data(&self) -> u64 {
        // There are never as many in flight as there are numbers.
        SILENT | u64::from(self.first.wrapping_add(self.queue.len() as u32))
    }

    #[inline]
    pub(super) fn push(&mut self, op: T, pushed: u32) {
        let op = Some(op);
        self.queue.push_back(Silent { op, pushed });
    }

    /// The send that has left a completion with this `user_data`. Any number is accepted.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the lower half is the number"
    )]
    pub(super) fn take(&mut self, user_data: u64) -> Option<T> {
        let index = (user_data as u32).wrapping_sub(self.first);
        self.queue.get_mut(index as usize)?.op.take()
    }

    /// Removes the first send if it is over, in view of how many entries are accounted for. What is removed is `None`
    /// if it has left a completion.
    #[inline]
    pub(super) fn settle(&mut self, accounted: u32) -> Option<Option<T>> {
        let silent = self.queue.front()?;
        if (accounted.wrapping_sub(silent.pushed) as i32) < 0 {
            return None;
        }
        self.first = self.first.wrapping_add(1);
        self.queue.pop_front().map(|silent| silent.op)
    }
}

/// Tells the `user_data` of a silent send from that of an op with a slot.
pub(super) const SILENT: u64 = 1 << 62;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_settle_in_order_as_far_as_is_accounted_for() {
        let mut silents = Silents::default();
        silents.push('a', 3);
        silents.push('b', 5);
        assert_eq!(silents.settle(2), None);
        assert_eq!(silents.settle(4), Some(Some('a')));
        assert_eq!(silents.settle(4), None);
        assert_eq!(silents.settle(5), Some(Some('b')));
        assert!(silents.is_empty());
    }

    #[test]
    fn a_completion_finds_its_send_once_and_no_other() {
        // The numbers wrap in between.
        let mut silents = Silents {
            first: u32::MAX - 1,
            ..Silents::default()
        };
        let mut names = Vec::new();
        for op in 0..4 {
            names.push(silents.next_user_data());
            silents.push(op, (u32::MAX - 2).wrapping_add(op));
        }
        assert_eq!(silents.take(names[2]), Some(2));
        assert_eq!(silents.take(names[2]), None);
        for op in [Some(0), Some(1), None, Some(3)] {
            assert_eq!(silents.settle(1), Some(op));
        }
        for stale in names {
            assert_eq!(silents.take(stale), None);
        }
        assert_eq!(silents.take(u64::MAX), None);
    }
}
