//! Slots: the life of an op between its submission and its final completion.

use std::os::fd::RawFd;

use slab::Slab;

use super::{InFlight, Interest};
use crate::reactor::silent::SILENT;

/// The name of one submission of an op: its slot and the slot's generation. It is the `user_data` of the SQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// Names nothing.
    pub(crate) const NONE: Self = Self {
        index: u32::MAX,
        generation: u32::MAX,
    };

    pub(crate) fn to_user_data(self) -> u64 {
        (u64::from(self.generation) << 32) | u64::from(self.index)
    }

    /// The `user_data` of a cancel of this op.
    pub(crate) fn to_cancel(self) -> u64 {
        self.to_user_data() | CANCEL
    }

    /// Whether a `user_data` is that of something without a slot: a cancel, a silent send, or what has no name at all.
    #[inline]
    pub(crate) fn names_no_slot(user_data: u64) -> bool {
        user_data & (CANCEL | SILENT) != 0
    }

    pub(crate) fn is_cancel(user_data: u64) -> bool {
        user_data & CANCEL != 0
    }

    /// The op that a cancel was for.
    pub(crate) fn from_cancel(user_data: u64) -> Self {
        Self::from_user_data(user_data & !CANCEL)
    }

    /// Any number is accepted: `user_data` is input, and [`Slots`] checks it.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the two halves of the number"
    )]
    pub(crate) fn from_user_data(user_data: u64) -> Self {
        Self {
            index: user_data as u32,
            generation: (user_data >> 32) as u32,
        }
    }
}

/// Whether somebody still waits for the op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Armed,
    Orphaned,
}

/// What can happen to an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// A completion arrived; `last` if no other follows.
    Completed { last: bool },
    /// Its owner was dropped.
    Released,
}

/// What has to be done about it.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// Tell the op.
    Deliver,
    /// Give back what the completion carries.
    Reclaim,
    /// Ask the kernel to stop.
    Cancel,
    Nothing,
}

/// The life cycle of an op; completions, drops and shutdown all go through here.
///
/// ```text
///  insert                 1 completion, more to come: deliver
///    │                        ┌─────┐
///    └──────────────────▶ Armed ◀───┘ ──── 2 last completion: deliver ────────▶ (slot is free)
///                           │
///               3 released: cancel          4 completion, more to come: reclaim
///                           ▼                  ┌─────┐
///                        Orphaned ◀────────────┘ ── 5 last completion: reclaim ──▶ (slot is free)
/// ```
///
/// `None` as the next state: the slot is free. 6: releasing an orphan does nothing, its cancel is on its way.
fn transition(state: State, event: Event) -> (Option<State>, Effect) {
    match (state, event) {
        (State::Armed, Event::Completed { last: false }) => (Some(State::Armed), Effect::Deliver),
        (State::Armed, Event::Completed { last: true }) => (None, Effect::Deliver),
        (State::Armed, Event::Released) => (Some(State::Orphaned), Effect::Cancel),
        (State::Orphaned, Event::Completed { last: false }) => {
            (Some(State::Orphaned), Effect::Reclaim)
        }
        (State::Orphaned, Event::Completed { last: true }) => (None, Effect::Reclaim),
        (State::Orphaned, Event::Released) => (Some(State::Orphaned), Effect::Nothing),
    }
}

/// How the kernel is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// By the op's own SQE.
    Ring,
    /// By waiting for readiness; the op's attempt form does the work.
    Readiness,
}

struct Slot {
    op: InFlight,
    generation: u32,
    state: State,
    via: Via,
}

/// All ops in flight of one reactor.
#[derive(Default)]
pub(crate) struct Slots {
    slab: Slab<Slot>,
    next_generation: u32,
}

/// What the reactor does with a completion. Carries the op, so that it is called without a borrow of the slots.
#[must_use]
pub(crate) enum Next {
    Deliver(InFlight),
    Reclaim(InFlight),
    /// The readiness that the op waited for is there: attempt it.
    Attempt(InFlight),
    /// Nobody waits for the op any more, and it holds nothing.
    Drop(InFlight),
    /// No such op: its slot was freed, or the number never was one of ours.
    Unknown,
}

impl Slots {
    /// Takes a slot, or gives the op back when all 2³² − 1 of them are taken.
    #[inline(always)]
    pub(crate) fn insert(&mut self, op: InFlight, via: Via) -> Option<Key> {
        let index = u32::try_from(self.slab.vacant_key()).ok()?;
        // Never zero, so that no op's `user_data` is.
        self.next_generation = (self.next_generation.wrapping_add(1) & MAX_GENERATION).max(1);
        let generation = self.next_generation;
        self.slab.insert(Slot {
            op,
            generation,
            state: State::Armed,
            via,
        });
        Some(Key { index, generation })
    }

    /// A completion arrived. Frees the slot if it was the last one.
    #[inline(always)]
    pub(crate) fn completed(&mut self, key: Key, failed: bool, more: bool) -> Next {
        let Some(slot) = self.find(key) else {
            return Next::Unknown;
        };
        // Readiness is not the op's own completion, unless it failed: the op goes on in its attempt form.
        if slot.via == Via::Readiness && slot.state == State::Armed && !failed {
            return Next::Attempt(slot.op.clone());
        }
        let via = slot.via;
        let (state, effect) = transition(slot.state, Event::Completed { last: !more });
        let op = match state {
            Some(state) => {
                slot.state = state;
                slot.op.clone()
            }
            None => self.slab.remove(key.index as usize).op,
        };
        match effect {
            Effect::Deliver => Next::Deliver(op),
            // Readiness carries nothing that could be given back.
            _ if via == Via::Readiness => Next::Drop(op),
            _ => Next::Reclaim(op),
        }
    }

    /// An attempt has succeeded: the op is over.
    pub(crate) fn attempted(&mut self, key: Key) -> Next {
        match self.remove(key) {
            Some(op) => Next::Deliver(op),
            None => Next::Unknown,
        }
    }

    /// Takes the op out of its slot.
    #[inline(always)]
    fn remove(&mut self, key: Key) -> Option<InFlight> {
        self.find(key)?;
        Some(self.slab.remove(key.index as usize).op)
    }

    /// The op's owner lets go. Whether a cancel must be sent.
    pub(crate) fn release(&mut self, key: Key) -> bool {
        let Some(slot) = self.find(key) else {
            return false;
        };
        let (state, effect) = transition(slot.state, Event::Released);
        if let Some(state) = state {
            slot.state = state;
        }
        effect == Effect::Cancel
    }

    /// What an op in flight waits for.
    pub(crate) fn interest(&mut self, key: Key) -> Option<(RawFd, Interest)> {
        self.find(key).map(|slot| slot.op.interest())
    }

    /// Everything in flight.
    pub(crate) fn keys(&self) -> Vec<Key> {
        (self.slab.iter())
            .filter_map(|(index, slot)| {
                Some(Key {
                    index: u32::try_from(index).ok()?,
                    generation: slot.generation,
                })
            })
            .collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    #[inline]
    fn find(&mut self, key: Key) -> Option<&mut Slot> {
        (self.slab.get_mut(key.index as usize)).filter(|slot| slot.generation == key.generation)
    }
}

/// Tells the completion of a cancel from that of the op.
const CANCEL: u64 = 1 << 63;

/// The two topmost bits of a generation are those of [`CANCEL`] and [`SILENT`].
const MAX_GENERATION: u32 = u32::MAX >> 2;

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    use crate::reactor::op::{Completion, Op};
    use crate::reactor::pool::Pool;

    struct Inert;

    // SAFETY: a NOP points to nothing.
    #[allow(unsafe_code)]
    unsafe impl Op for Inert {
        fn ring_form(&self) -> io_uring::squeue::Entry {
            io_uring::opcode::Nop::new().build()
        }
        fn interest(&self) -> (i32, Interest) {
            (-1, Interest::Readable)
        }
        fn attempt(&self, _: &Rc<Pool>) -> Option<Completion> {
            None
        }
        fn complete(self: Rc<Self>, _: Completion) {}
    }

    fn armed() -> (Slots, Key) {
        let mut slots = Slots::default();
        let key = slots.insert(Rc::new(Inert).into(), Via::Ring).unwrap();
        (slots, key)
    }

    #[test]
    fn every_transition_is_the_documented_one() {
        let more = Event::Completed { last: false };
        let last = Event::Completed { last: true };
        use Effect::{Cancel, Deliver, Nothing, Reclaim};
        use State::{Armed, Orphaned};
        assert_eq!(transition(Armed, more), (Some(Armed), Deliver));
        assert_eq!(transition(Armed, last), (None, Deliver));
        assert_eq!(transition(Armed, Event::Released), (Some(Orphaned), Cancel));
        assert_eq!(transition(Orphaned, more), (Some(Orphaned), Reclaim));
        assert_eq!(transition(Orphaned, last), (None, Reclaim));
        assert_eq!(
            transition(Orphaned, Event::Released),
            (Some(Orphaned), Nothing)
        );
    }

    #[test]
    fn a_slot_lives_until_the_completion_without_more() {
        let (mut slots, key) = armed();
        assert!(matches!(
            slots.completed(key, false, true),
            Next::Deliver(_)
        ));
        assert_eq!(slots.len(), 1);
        assert!(matches!(
            slots.completed(key, false, false),
            Next::Deliver(_)
        ));
        assert_eq!(slots.len(), 0);
    }

    #[test]
    fn an_orphan_keeps_its_slot_and_is_cancelled_once() {
        let (mut slots, key) = armed();
        assert!(slots.release(key));
        assert!(!slots.release(key));
        assert!(matches!(
            slots.completed(key, false, true),
            Next::Reclaim(_)
        ));
        assert_eq!(slots.len(), 1);
        assert!(matches!(
            slots.completed(key, true, false),
            Next::Reclaim(_)
        ));
        assert_eq!(slots.len(), 0);
    }

    #[test]
    fn readiness_for_an_orphan_is_not_taken_for_its_result() {
        let mut slots = Slots::default();
        let key = slots.insert(Rc::new(Inert).into(), Via::Readiness).unwrap();
        assert!(slots.release(key));
        assert!(matches!(slots.completed(key, false, false), Next::Drop(_)));
        assert_eq!(slots.len(), 0);
    }

    #[test]
    fn a_stale_key_reaches_nobody() {
        let (mut slots, stale) = armed();
        let _ = slots.completed(stale, false, false);
        let fresh = slots.insert(Rc::new(Inert).into(), Via::Ring).unwrap();
        assert_eq!(stale.index, fresh.index);
        assert!(matches!(
            slots.completed(stale, false, false),
            Next::Unknown
        ));
        assert!(!slots.release(stale));
        assert!(slots.remove(stale).is_none());
        assert!(slots.find(fresh).is_some());
    }

    #[test]
    fn user_data_round_trips_and_junk_is_unknown() {
        let (mut slots, key) = armed();
        assert_eq!(Key::from_user_data(key.to_user_data()), key);
        for junk in [0, 1, u64::MAX, u64::MAX - 1, u64::from(u32::MAX)] {
            assert!(matches!(
                slots.completed(Key::from_user_data(junk), false, false),
                Next::Unknown
            ));
        }
    }

    #[test]
    fn a_place_that_is_used_again_has_another_name_each_time() {
        let mut slots = Slots::default();
        let mut names = std::collections::HashSet::new();
        for _ in 0..1_000 {
            let key = slots.insert(Rc::new(Inert).into(), Via::Ring).unwrap();
            assert_eq!(key.index, 0);
            assert!(names.insert(key.to_user_data()));
            assert!(slots.remove(key).is_some());
        }
    }
}
