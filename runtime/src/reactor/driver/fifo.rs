//! A queue that costs no allocation while it holds one item.

use std::collections::VecDeque;

/// First in, first out. Most queues never hold more than one item, so the first one lives inside; a descriptor with one
/// that waits then owns no queue on the heap.
#[derive(Debug)]
pub(super) struct Fifo<T> {
    first: Option<T>,
    /// Boxed, as it is nearly always empty: a word, not four, for every descriptor.
    #[expect(clippy::box_collection, reason = "see above")]
    rest: Option<Box<VecDeque<T>>>,
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Self {
            first: None,
            rest: None,
        }
    }
}

impl<T> Fifo<T> {
    #[inline(always)]
    pub(super) fn push_back(&mut self, item: T) {
        // The rest is empty whenever the first place is.
        if self.first.is_none() {
            self.first = Some(item);
        } else {
            self.rest.get_or_insert_default().push_back(item);
        }
    }

    #[inline(always)]
    pub(super) fn pop_front(&mut self) -> Option<T> {
        let next = self.rest.as_mut().and_then(|rest| rest.pop_front());
        std::mem::replace(&mut self.first, next)
    }

    /// Takes out the first item that equals `item`. Whether there was one.
    pub(super) fn remove(&mut self, item: &T) -> bool
    where
        T: PartialEq,
    {
        if self.first.as_ref() == Some(item) {
            self.pop_front();
            return true;
        }
        let Some(rest) = &mut self.rest else {
            return false;
        };
        match rest.iter().position(|other| other == item) {
            Some(index) => rest.remove(index).is_some(),
            None => false,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        (self.first.iter()).chain(self.rest.iter().flat_map(|rest| rest.iter()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_queue_at_every_length() {
        let mut fifo = Fifo::default();
        let mut model = VecDeque::new();
        for step in 0..1000_u32 {
            match step.wrapping_mul(2_654_435_761) % 8 {
                0..=3 => {
                    fifo.push_back(step);
                    model.push_back(step);
                }
                4 => {
                    let item = step.wrapping_sub(2);
                    let index = model.iter().position(|other| *other == item);
                    assert_eq!(fifo.remove(&item), index.is_some());
                    index.map(|index| model.remove(index));
                }
                _ => assert_eq!(fifo.pop_front(), model.pop_front()),
            }
            assert!(fifo.iter().eq(&model));
            assert_eq!(fifo.is_empty(), model.is_empty());
        }
    }
}
