//! Who waits for an op's owner: usually one task, sometimes several.

use std::task::Waker;

/// A set of wakers. One costs no allocation; a task that registers again does not grow the set.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    first: Option<Waker>,
    /// Boxed, as it is nearly always empty: a word, not three, in every socket.
    #[expect(clippy::box_collection, reason = "see above")]
    others: Option<Box<Vec<Waker>>>,
}

impl Waiters {
    #[inline(always)]
    pub(crate) fn register(&mut self, waker: &Waker) {
        match &self.first {
            None => self.first = Some(waker.clone()),
            Some(first) if first.will_wake(waker) => {}
            Some(_) => {
                let others = self.others.get_or_insert_default();
                if !others.iter().any(|other| other.will_wake(waker)) {
                    others.push(waker.clone());
                }
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Empties the set. Wake it after every borrow is given up: a waker may run any code.
    #[must_use]
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    #[inline(always)]
    pub(crate) fn wake(self) {
        if let Some(first) = self.first {
            first.wake();
        }
        if let Some(others) = self.others {
            others.into_iter().for_each(Waker::wake);
        }
    }
}

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
