use std::collections::BTreeMap;

/// A sorted map from windows to slots, made for windows that are not far from each other.
///
/// [`SPAN`] windows in a row have an array, and a bit each that says whether there is a slot. Where the row begins does
/// not matter, as long as all that is in it fits, so it moves when it must. All other windows are in a tree. A window
/// is never in both.
pub(super) struct Windows {
    /// Made with the first window.
    row: Vec<u32>,
    taken: Bits,
    /// The first window of the row.
    start: u64,
    others: BTreeMap<u64, u32>,
}

impl Windows {
    pub(super) fn new() -> Self {
        Self {
            row: Vec::new(),
            taken: Bits::new(),
            start: 0,
            others: BTreeMap::new(),
        }
    }

    pub(super) fn first(&self) -> Option<u64> {
        let in_row = self.taken.first_from(place(self.start));
        let in_row = in_row.map(|place| self.window(place));
        match self.others.first_key_value() {
            Some((&other, _)) => Some(in_row.map_or(other, |in_row| in_row.min(other))),
            None => in_row,
        }
    }

    /// Gives the slot that the window has had before.
    pub(super) fn insert(&mut self, window: u64, slot: u32) -> Option<u32> {
        if !self.reaches(window) && !self.reach(window) {
            return self.others.insert(window, slot);
        }
        let place = place(window);
        let old = std::mem::replace(&mut self.row[place], slot);
        if self.taken.insert(place) {
            // It may have been out of reach before.
            self.others.remove(&window)
        } else {
            Some(old)
        }
    }

    pub(super) fn remove(&mut self, window: u64) -> Option<u32> {
        if self.reaches(window) && self.taken.remove(place(window)) {
            Some(self.row[place(window)])
        } else {
            self.others.remove(&window)
        }
    }

    fn reaches(&self, window: u64) -> bool {
        window.wrapping_sub(self.start) < self.row.len() as u64
    }

    /// Moves the row so that it reaches the window, if it can without losing one.
    fn reach(&mut self, window: u64) -> bool {
        let start = place(self.start);
        let (first, last) = match (self.taken.first_from(start), self.taken.last_before(start)) {
            (Some(first), Some(last)) => (self.window(first), self.window(last)),
            _ => (window, window),
        };
        let start = first.min(window);
        let fits = last.max(window) - start < SPAN as u64;
        if fits {
            self.row.resize(SPAN, 0);
            self.start = start;
        }
        fits
    }

    /// The window that has this place now.
    fn window(&self, place: usize) -> u64 {
        let offset = (place as u64).wrapping_sub(self.start) % SPAN as u64;
        self.start + offset
    }
}

/// The place of a window in the row, wherever that begins.
fn place(window: u64) -> usize {
    (window % SPAN as u64) as usize
}

/// A circle of [`SPAN`] bits, and a bit for each word of them that is not zero.
struct Bits {
    words: [u64; 64],
    filled: u64,
}

impl Bits {
    const fn new() -> Self {
        Self {
            words: [0; 64],
            filled: 0,
        }
    }

    /// False if it was there.
    fn insert(&mut self, at: usize) -> bool {
        let word = &mut self.words[at / 64];
        let old = *word;
        *word |= 1 << (at % 64);
        self.filled |= 1 << (at / 64);
        old != *word
    }

    /// False if it was not there.
    fn remove(&mut self, at: usize) -> bool {
        let word = &mut self.words[at / 64];
        let old = *word;
        *word &= !(1 << (at % 64));
        if *word == 0 {
            self.filled &= !(1 << (at / 64));
        }
        old != *word
    }

    /// The first one that is met on the way round from `start`.
    fn first_from(&self, start: usize) -> Option<usize> {
        let word = start / 64;
        let rest = self.words[word] >> (start % 64);
        if rest != 0 {
            return Some(start + rest.trailing_zeros() as usize);
        }
        // What lies in this word, but before `start`, comes last.
        let filled = self.filled.rotate_right(word as u32 + 1);
        let word = (word + 1 + filled.trailing_zeros() as usize) % 64;
        (filled != 0).then(|| word * 64 + self.words[word].trailing_zeros() as usize)
    }

    /// The last one that is met on the way round from `start`.
    fn last_before(&self, start: usize) -> Option<usize> {
        let word = start / 64;
        let rest = self.words[word] & !(u64::MAX << (start % 64));
        if rest != 0 {
            return Some(word * 64 + rest.ilog2() as usize);
        }
        let filled = self.filled.rotate_right(word as u32);
        let word = (word + filled.checked_ilog2()? as usize) % 64;
        Some(word * 64 + self.words[word].ilog2() as usize)
    }
}

/// A bit for each word of 64 is one word. That is 69 seconds of windows, in 16 KiB.
const SPAN: usize = 64 * 64;

#[cfg(test)]
impl Windows {
    /// Those of the row in no order, and the others.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        let filled = (0..64).filter(|&word| self.taken.words[word] != 0);
        let bits = filled.flat_map(|word| word * 64..word * 64 + 64);
        let taken = bits.filter(|at| self.taken.words[at / 64] >> (at % 64) & 1 == 1);
        let row = taken.map(|at| (self.window(at), self.row[at]));
        row.chain(self.others.iter().map(|(&window, &slot)| (window, slot)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::timers::tests::Random;

    const WIDE: u64 = SPAN as u64;
    const LAST: u64 = u64::MAX;

    #[test]
    fn windows_agree_with_a_sorted_map() {
        let mut random = Random::new(2);
        for round in 0..60 {
            // From all in the row to all around it, from the start of time to its end.
            let width = [10, WIDE, WIDE + 1, 3 * WIDE, 100 * WIDE][round % 5];
            let lowest = [0, 1000 * WIDE - 7, LAST - width][round % 3];
            let mut windows = Windows::new();
            let mut model = BTreeMap::new();
            for step in 0..4000 {
                let window = lowest + 1 + random.below(width);
                match random.below(10) {
                    0..6 => assert_eq!(windows.insert(window, step), model.insert(window, step)),
                    6 | 7 => assert_eq!(windows.remove(window), model.remove(&window)),
                    8 if random.below(100) == 0 => {
                        while let Some(first) = windows.first() {
                            assert_eq!(
                                model.pop_first(),
                                windows.remove(first).map(|slot| (first, slot))
                            );
                        }
                    }
                    _ => {
                        let first = windows.first();
                        let slot = first.and_then(|first| windows.remove(first));
                        assert_eq!(first.zip(slot), model.pop_first());
                    }
                }
                assert_eq!(windows.first(), model.keys().next().copied());
            }
            assert!(
                windows
                    .iter()
                    .all(|(window, slot)| model.remove(&window) == Some(slot))
            );
            assert!(model.is_empty());
        }
    }

    #[test]
    fn the_row_goes_where_the_windows_are() {
        let mut windows = Windows::new();
        let others = |windows: &Windows| windows.others.len();
        windows.insert(5 * WIDE, 0);
        windows.insert(6 * WIDE - 1, 1);
        windows.insert(6 * WIDE, 2);
        assert_eq!(others(&windows), 1);
        // Both ends are taken, so it cannot move.
        windows.insert(5 * WIDE - 1, 3);
        assert_eq!(others(&windows), 2);
        // Now it can, and takes what lies there.
        windows.remove(5 * WIDE);
        assert_eq!(windows.insert(6 * WIDE, 4), Some(2));
        assert_eq!(others(&windows), 1);
        // And back.
        windows.remove(6 * WIDE);
        assert_eq!(windows.insert(5 * WIDE - 1, 5), Some(3));
        assert_eq!(others(&windows), 1);
        assert_eq!(windows.first(), Some(5 * WIDE - 1));
    }

    #[test]
    fn bits_are_found_all_round() {
        for at in [0, 1, 63, 64, 65, 2000, SPAN - 64, SPAN - 1] {
            for next in [at + 1, at + 63, at + 64, at + 1000].map(|next| next % SPAN) {
                let mut bits = Bits::new();
                assert!(bits.insert(at) && bits.insert(next) && !bits.insert(at));
                for start in 0..SPAN {
                    let way = |bit: usize| (bit + SPAN - start) % SPAN;
                    let (near, far) = if way(at) < way(next) {
                        (at, next)
                    } else {
                        (next, at)
                    };
                    assert_eq!(bits.first_from(start), Some(near));
                    assert_eq!(bits.last_before(start), Some(far));
                }
                assert!(bits.remove(at) && !bits.remove(at) && bits.remove(next));
                assert_eq!((bits.first_from(at), bits.last_before(at)), (None, None));
            }
        }
    }
}
