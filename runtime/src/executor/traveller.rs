//! Tasks from other threads: a closure on the way, a future once it is there.
#![allow(unsafe_code)]

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};

use super::join::Name;
use super::tracked::{Output, Place, Tracked, guarded};
use super::{JoinHandle, Origin, Remote, Tag, TaskId};
use crate::context;
use crate::sync::{Mutex, MutexGuard};

/// Sends a closure to the worker of `remote`, which calls it there and runs the future that it returns.
///
/// If that worker takes no tasks (any more), the closure is dropped at once, on this thread.
#[track_caller]
pub(crate) fn spawn_on<C, F>(remote: &Arc<Remote>, closure: C) -> JoinHandle<F::Output>
where
    C: FnOnce() -> F + Send + 'static,
    F: Future + 'static,
    F::Output: Send + 'static,
{
    let ticket = Arc::new(Ticket::default());
    let traveller = Traveller {
        ticket: Arc::clone(&ticket),
        home: Arc::clone(remote),
        stage: Stage::OnTheWay {
            closure: Some(closure),
        },
    };
    let (runnable, task) = async_task::Builder::new()
        .propagate_panic(true)
        .metadata(Tag {
            origin: Origin::here::<F>(),
            home: Arc::clone(remote),
        })
        .spawn(move |_| traveller, context::schedule);
    let handle = JoinHandle::new(task.fallible(), Name::Ticket(ticket), Arc::clone(remote));
    if let Err(refused) = context::admit(remote, runnable) {
        drop(refused);
    }
    handle
}

/// What the handle of a travelling task knows of it: its name, as soon as it has one.
#[derive(Debug, Default)]
pub(crate) struct Ticket(Mutex<Journey>);

#[derive(Debug, Default)]
enum Journey {
    #[default]
    OnTheWay,
    Arrived(TaskId),
    /// Aborted before it arrived.
    CalledOff,
    /// There is no worker where it was to go, and why.
    Refused(Arc<str>),
}

impl Ticket {
    /// The task to abort. If it has not arrived yet it will not start.
    pub(super) fn call_off(&self) -> Option<TaskId> {
        let mut journey = self.lock();
        match *journey {
            Journey::Arrived(id) => return Some(id),
            Journey::OnTheWay => *journey = Journey::CalledOff,
            Journey::CalledOff | Journey::Refused(_) => {}
        }
        None
    }

    /// Why it never arrived, if that is why.
    pub(super) fn refusal(&self) -> Option<Arc<str>> {
        match &*self.lock() {
            Journey::Refused(reason) => Some(Arc::clone(reason)),
            _ => None,
        }
    }

    /// `false` if the task was aborted on its way.
    fn arrive(&self, id: TaskId) -> bool {
        let mut journey = self.lock();
        let expected = matches!(*journey, Journey::OnTheWay);
        if expected {
            *journey = Journey::Arrived(id);
        }
        expected
    }

    fn refuse(&self, reason: Arc<str>) {
        let mut journey = self.lock();
        if matches!(*journey, Journey::OnTheWay) {
            *journey = Journey::Refused(reason);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Journey> {
        // No critical section here can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pin_project_lite::pin_project! {
    struct Traveller<C, F> {
        ticket: Arc<Ticket>,
        home: Arc<Remote>,
        #[pin]
        stage: Stage<C, F>,
    }

    impl<C, F> PinnedDrop for Traveller<C, F> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            let StageProjected::OnTheWay { closure } = this.stage.project() else {
                return;
            };
            if let Some(reason) = this.home.refusal() {
                this.ticket.refuse(reason);
            }
            // A destructor that panics must not reach the task cell.
            let closure = closure.take();
            guarded(|| drop(closure));
        }
    }
}

pin_project_lite::pin_project! {
    #[project = StageProjected]
    enum Stage<C, F> {
        OnTheWay { closure: Option<C> },
        Arrived { #[pin] task: Tracked<F> },
    }
}

// SAFETY: what changes threads is a traveller on its way, which is a closure that is `Send`. It becomes `Arrived` in
// its first poll, and is polled and dropped by its `Runnable` only. From that poll on a `Runnable` of it exists only
// where the worker of its `remote` runs: `context::schedule` pushes it to the local queue, or to the inbox, which
// that worker empties, and which forgets it (never drops it) when there is no worker any more. The ticket and `home` are
// `Send` and `Sync`.
unsafe impl<C: Send, F> Send for Traveller<C, F> {}

impl<C, F> Future for Traveller<C, F>
where
    C: FnOnce() -> F,
    F: Future,
{
    type Output = Output<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let StageProjected::OnTheWay { closure } = this.stage.as_mut().project() {
            // Taken first: whatever happens to it now happens inside a poll, where a panic is the task's own.
            let closure = closure.take();
            // With the place taken before the closure is called: if that panics, the executor forgets the task.
            let Some((closure, place)) = closure.zip(arrive(this.ticket, cx)) else {
                return Poll::Ready(Output(None));
            };
            let task = Tracked::new(place, closure());
            this.stage.set(Stage::Arrived { task });
        }
        match this.stage.project() {
            StageProjected::Arrived { task } => task.poll(cx),
            StageProjected::OnTheWay { .. } => Poll::Pending, // never: it has just arrived
        }
    }
}

/// Enters a task into the list of the current executor. `None` if it shall not start.
fn arrive(ticket: &Ticket, cx: &Context<'_>) -> Option<Place> {
    // Without a worker on this thread there is nobody to run it: its worker could not be started.
    let executor = context::try_with(|worker| Rc::clone(&worker.executor))?;
    if executor.is_closed() {
        return None;
    }
    let (place, id) = executor.enlist(cx.waker().clone());
    // A place that is dropped is given up.
    ticket.arrive(id).then_some(place)
}
