//! Alarms: the few deadlines of the reactor's own (back-off after a failed accept, the linger of a closed stream).

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Weak;
use std::time::Instant;

use slab::Slab;

/// Something that wants to be told at a deadline.
pub(crate) trait Alarm {
    fn ring(self: std::rc::Rc<Self>);
}

/// Pending alarms. They are set rarely and never taken back: one whose owner is gone rings nobody.
#[derive(Default)]
pub(crate) struct Alarms {
    owners: RefCell<Slab<Weak<dyn Alarm>>>,
    heap: RefCell<BinaryHeap<Reverse<(Instant, usize)>>>,
}

impl Alarms {
    pub(crate) fn set(&self, at: Instant, owner: Weak<dyn Alarm>) {
        let key = self.owners.borrow_mut().insert(owner);
        self.heap.borrow_mut().push(Reverse((at, key)));
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.borrow().peek().map(|Reverse((at, _))| *at)
    }

    /// Rings all that are due.
    pub(crate) fn ring(&self, now: Instant) {
        while self.next().is_some_and(|at| at <= now) {
            let due = self.heap.borrow_mut().pop();
            if let Some(Reverse((_, key))) = due {
                let owner = self.owners.borrow_mut().remove(key);
                if let Some(owner) = owner.upgrade() {
                    owner.ring();
                }
            }
        }
    }
}
