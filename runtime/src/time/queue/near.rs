use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The timers that come next, in exact order.
///
/// A batch is sorted once and taken off its end; what comes one by one is a heap. Both compare what lies side by side
/// in memory and never look a timer up. So a timer that is taken out of the middle leaves its entry behind, dead. Nobody
/// sees it: the first of either is always alive, and the dead are never much more than the living.
pub(super) struct Near {
    /// The first one last.
    sorted: Vec<Reverse<Entry>>,
    /// The first one on top.
    heap: BinaryHeap<Reverse<Entry>>,
    /// How many entries are alive.
    alive: usize,
}

/// A timer and its place in the order: by deadline, then by insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) deadline: u64,
    pub(super) seq: u64,
    pub(super) slot: u32,
}

impl Near {
    pub(super) fn new() -> Self {
        Self {
            sorted: Vec::new(),
            heap: BinaryHeap::new(),
            alive: 0,
        }
    }

    pub(super) fn first(&self) -> Option<Entry> {
        // The greater one of two that are reversed; `None` is less than any.
        let first = self.sorted.last().max(self.heap.peek())?;
        Some(first.0)
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.heap.push(Reverse(entry));
        self.alive += 1;
    }

    /// Adds many. That they come before all that are here is usual, and cheap.
    pub(super) fn add(&mut self, batch: impl Iterator<Item = Entry>) {
        let start = self.sorted.len();
        self.sorted.extend(batch.map(Reverse));
        self.alive += self.sorted.len() - start;
        self.sorted[start..].sort_unstable();
        let (before, batch) = self.sorted.split_at(start);
        if before.last() > batch.first() {
            self.heap.extend(self.sorted.drain(start..));
        }
    }

    /// Has one entry less that `is_alive`.
    pub(super) fn bury(&mut self, is_alive: impl Fn(Entry) -> bool) {
        self.alive -= 1;
        if self.len() > 2 * self.alive + FEW {
            self.sorted.retain(|entry| is_alive(entry.0));
            self.heap.retain(|entry| is_alive(entry.0));
        }
        while self.sorted.pop_if(|entry| !is_alive(entry.0)).is_some() {}
        while let Some(first) = self.heap.peek()
            && !is_alive(first.0)
        {
            self.heap.pop();
        }
    }

    /// Entries, also those that are dead.
    pub(super) fn len(&self) -> usize {
        self.sorted.len() + self.heap.len()
    }
}

/// So many dead entries are not worth a search for them.
pub(super) const FEW: usize = 64;

#[cfg(test)]
impl Near {
    /// All entries, also those that are dead, in no order.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> {
        self.sorted.iter().chain(&self.heap).map(|entry| entry.0)
    }

    pub(super) fn capacity(&self) -> usize {
        self.sorted.capacity() + self.heap.capacity()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::time::timers::tests::Random;

    fn entry(deadline: u64, seq: u64) -> Entry {
        Entry {
            deadline,
            seq,
            slot: 0,
        }
    }

    /// Batches that come before all, behind all and in between, single ones, and taking out any: as a sorted map.
    #[test]
    fn near_agrees_with_a_sorted_map() {
        let mut random = Random::new(1);
        for _ in 0..20 {
            let mut near = Near::new();
            let mut model = BTreeMap::new();
            for seq in 0..500 {
                match random.below(8) {
                    0 => {
                        let (start, count) = (random.below(1000), random.below(100));
                        let batch = (0..count).map(|n| entry(start + n * 37 % 50, seq << 8 | n));
                        let batch: Vec<_> = batch.collect();
                        model.extend(batch.iter().map(|&entry| (entry, ())));
                        near.add(batch.into_iter());
                    }
                    1 => {
                        let single = entry(random.below(1000), seq << 8);
                        model.insert(single, ());
                        near.push(single);
                    }
                    choice if !model.is_empty() => {
                        let count = model.len() as u64;
                        let any = if choice < 5 { 0 } else { random.below(count) };
                        let any = *model.keys().nth(any as usize).unwrap();
                        model.remove(&any);
                        near.bury(|entry| model.contains_key(&entry));
                    }
                    _ => {}
                }
                assert_eq!(near.first(), model.keys().next().copied());
                assert!(near.len() <= 2 * model.len() + FEW);
                let alive = near.entries().filter(|entry| model.contains_key(entry));
                assert_eq!(alive.count(), model.len());
            }
        }
    }
}
