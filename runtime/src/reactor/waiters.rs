//! Who waits for an op's owner: usually one task, sometimes several.

use std::mem;
use std::task::Waker;

/// A set of wakers. One costs no allocation; a task that registers again does not grow the set.
///
/// Two words in every socket for each direction, as it has two variants only: the second is also the empty set.
#[derive(Debug)]
pub(crate) enum Waiters {
    One(Waker),
    #[expect(clippy::box_collection, reason = "a word, not three; and rarely there")]
    Several(Option<Box<Vec<Waker>>>),
}

impl Default for Waiters {
    fn default() -> Self {
        Self::Several(None)
    }
}

impl Waiters {
    #[inline(always)]
    pub(crate) fn register(&mut self, waker: &Waker) {
        match self {
            Self::Several(None) => *self = Self::One(waker.clone()),
            Self::One(first) if first.will_wake(waker) => {}
            Self::One(_) | Self::Several(Some(_)) => self.register_several(waker),
        }
    }

    #[cold]
    fn register_several(&mut self, waker: &Waker) {
        let mut wakers = match mem::take(self) {
            Self::One(first) => Box::new(vec![first]),
            Self::Several(wakers) => wakers.unwrap_or_default(),
        };
        if !wakers.iter().any(|other| other.will_wake(waker)) {
            wakers.push(waker.clone());
        }
        *self = Self::Several(Some(wakers));
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Several(None))
    }

    /// Empties the set. Wake it after every borrow is given up: a waker may run any code.
    #[must_use]
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Self {
        mem::take(self)
    }

    #[inline(always)]
    pub(crate) fn wake(self) {
        match self {
            Self::One(waker) => waker.wake(),
            Self::Several(None) => {}
            Self::Several(Some(wakers)) => wakers.into_iter().for_each(Waker::wake),
        }
    }
}

const _: () = assert!(size_of::<Waiters>() == size_of::<Waker>());

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn each_task_is_woken_once_however_often_it_has_registered() {
        let tasks: [Arc<Woken>; 3] = Default::default();
        let mut waiters = Waiters::default();
        assert!(waiters.is_empty());
        for _ in 0..3 {
            for task in &tasks {
                waiters.register(&Arc::clone(task).into());
            }
        }
        assert!(!waiters.is_empty());
        let taken = waiters.take();
        assert!(waiters.is_empty());
        waiters.wake();
        let woken = || tasks.each_ref().map(|task| task.0.load(Ordering::Relaxed));
        assert_eq!(woken(), [0; 3]);
        taken.wake();
        assert_eq!(woken(), [1; 3]);
    }
}
