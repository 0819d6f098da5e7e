//! A queue that costs no allocation while it holds one item.

use std::collections::VecDeque;

/// First in, first out. Most sockets never hold more than one chunk, so the first one lives inside; an idle
/// connection then owns no queue on the heap.
#[derive(Debug)]
pub(crate) struct Fifo<T> {
    first: Option<T>,
    rest: VecDeque<T>,
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Self {
            first: None,
            rest: VecDeque::new(),
        }
    }
}

impl<T> Fifo<T> {
    pub(crate) fn push_back(&mut self, item: T) {
        // The rest is empty whenever the first place is.
        if self.first.is_none() {
            self.first = Some(item);
        } else {
            self.rest.push_back(item);
        }
    }

    pub(crate) fn push_front(&mut self, item: T) {
        if let Some(first) = self.first.replace(item) {
            self.rest.push_front(first);
        }
    }

    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let item = self.first.take();
        self.first = self.rest.pop_front();
        item
    }

    pub(crate) fn front(&self) -> Option<&T> {
        self.first.as_ref()
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut T> {
        self.first.as_mut()
    }

    pub(crate) fn back(&self) -> Option<&T> {
        self.rest.back().or(self.first.as_ref())
    }

    pub(crate) fn back_mut(&mut self) -> Option<&mut T> {
        self.rest.back_mut().or(self.first.as_mut())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        self.first.iter().chain(&self.rest)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.first.iter_mut().chain(&mut self.rest)
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
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
            match step.wrapping_mul(2_654_435_761) % 7 {
                0..=2 => {
                    fifo.push_back(step);
                    model.push_back(step);
                }
                3 => {
                    fifo.push_front(step);
                    model.push_front(step);
                }
                _ => assert_eq!(fifo.pop_front(), model.pop_front()),
            }
            assert!(fifo.iter().eq(&model));
            assert_eq!(fifo.len(), model.len());
            assert_eq!(fifo.is_empty(), model.is_empty());
            assert_eq!(fifo.front(), model.front());
            assert_eq!(fifo.back(), model.back());
            assert_eq!(fifo.front_mut(), model.front_mut());
            assert_eq!(fifo.back_mut(), model.back_mut());
        }
    }
}
