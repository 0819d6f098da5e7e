//! A task's future, as it lies in the task cell.
#![allow(unsafe_code)]

use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use super::{Executor, Runnable, Tag, join};
use crate::context;

pin_project_lite::pin_project! {
    /// A task's future. It leaves the executor's list when it is dropped, and keeps a destructor that panics from
    /// reaching the task cell, which would abort the process.
    pub(super) struct Tracked<F> {
        // `None` once the future is gone, or going. That is why there is no `Option` around the future, which would
        // take a word.
        place: Option<Place>,
        #[pin]
        future: ManuallyDrop<F>,
    }

    impl<F> PinnedDrop for Tracked<F> {
        fn drop(this: Pin<&mut Self>) {
            if this.place.is_some() {
                guarded(|| this.end());
            }
        }
    }
}

impl<F> Tracked<F> {
    pub(super) fn new(place: Place, future: F) -> Self {
        Self {
            place: Some(place),
            future: ManuallyDrop::new(future),
        }
    }

    /// Puts the future into a task cell. `tag.home` must be of the executor that has given the place.
    pub(super) fn into_cell(self, tag: Tag) -> (Runnable, async_task::Task<Output<F::Output>, Tag>)
    where
        F: Future + 'static,
    {
        debug_assert!((self.place.as_ref()).is_some_and(|place| place.executor.owns(&tag.home)));
        let builder = async_task::Builder::new()
            .propagate_panic(true)
            .metadata(tag);
        // Not `spawn_local`, which would remember the thread, in a word, and look which it is at each poll.
        //
        // SAFETY: the future need not be `Send`, so a `Runnable` of it must be used and dropped on this thread, which is
        // that of the executor. The first one goes to `Executor::spawn`, which runs it or has it in its queue. Each other
        // one is made by a wake, or by the last waker or handle that goes, on whichever thread, and given to
        // `context::schedule`. That moves it on to one of two places, and lets go of it nowhere:
        // * The queue of the executor that runs on the calling thread, if that is the one that drains `tag.home`. There
        //   is but one: another worker gets this `Remote` only if the first could not be started, and then it has
        //   no tasks of its own. An executor is behind an `Rc` and never changes its thread, nor does its queue.
        // * The inbox of `tag.home`. It is emptied by that executor, and by `Remote::close`, which is called by its worker
        //   when it ends or fails, and by others only where no worker has run, so that no task of a worker can be in it.
        //   A closed inbox forgets what comes. It is not dropped with something in it: each task in it holds its `home`.
        // The future is dropped by a `Runnable` alone; handles and wakers only free the cell, and what handles get
        // of it, the output, is theirs to send or not (`JoinHandle` is `Send` if the output is).
        // Future and schedule function are `'static`, and the latter is a plain function, so `Send` and `Sync`.
        unsafe { builder.spawn_unchecked(move |_| self, context::schedule) }
    }

    /// Drops the future, if it is there, and then leaves the list, even if the destructor panics.
    fn end(self: Pin<&mut Self>) {
        let this = self.project();
        let Some(_place) = this.place.take() else {
            return;
        };
        // SAFETY: it is dropped where it is pinned, and not moved out.
        let future = unsafe { this.future.get_unchecked_mut() };
        // SAFETY: nobody has dropped it: that is done here only, after the place was taken, which is there once.
        // Nobody uses it later, as all look for the place before.
        unsafe { ManuallyDrop::drop(future) };
    }
}

impl<F: Future> Future for Tracked<F> {
    type Output = Output<F::Output>;

    #[inline(always)] // the task cell is the one caller
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.as_mut().project();
        let Some(place) = this.place else {
            return Poll::Pending; // never: a task that has ended is not polled
        };
        let output = if place.is_doomed() {
            None
        } else {
            // SAFETY: what a pinned `ManuallyDrop` holds is pinned with it: only `end` touches it otherwise, and moves
            // nothing. It is not dropped yet, as the place is there.
            let future = unsafe { this.future.map_unchecked_mut(|future| &mut **future) };
            Some(ready!(future.poll(cx)))
        };
        let output = Output(output);
        // Dropped here, so that a panic of its destructor is the task's panic.
        self.end();
        Poll::Ready(output)
    }
}

/// The place of a task in the list of those that are alive, which it leaves when this is dropped.
pub(super) struct Place {
    pub(super) executor: Rc<Executor>,
    pub(super) key: usize,
}

impl Place {
    /// Whether the task's next poll shall drop it.
    #[inline]
    pub(super) fn is_doomed(&self) -> bool {
        self.executor.is_doomed(self.key)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.executor.forget(self.key);
    }
}

/// A task's output, `None` if it was dropped instead (aborted, or never started). Its destructor cannot abort the
/// process either.
pub(crate) struct Output<T>(pub(super) Option<T>);

impl<T> Drop for Output<T> {
    fn drop(&mut self) {
        if let Some(output) = self.0.take() {
            guarded(|| drop(output));
        }
    }
}

/// Runs a destructor of the user's; a panic stops here.
pub(super) fn guarded(destructor: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(destructor)) {
        tracing::error!(
            panic = join::panic_message(panic.as_ref()),
            "a task's destructor panicked"
        );
    }
}
