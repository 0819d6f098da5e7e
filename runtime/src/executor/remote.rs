//! The inbox for wakes from other threads, and the handshake that makes them reach a sleeping worker.

use std::mem;
use std::sync::{Arc, PoisonError};

use super::queue::Queue;
use super::{Runnable, TaskId};
use crate::sync::{AtomicBool, AtomicU8, AtomicU64, Mutex, MutexGuard, Ordering};

/// What other threads know of a worker: a place to put woken tasks, and a bell.
///
/// ```text
///              worker: about to sleep            other thread: push, then notify
///   AWAKE ───────────────────────────▶ SLEEPING ───────────────────────────────▶ NOTIFIED   (rings the bell)
///     ▲                                   │                                          │
///     └───────────────────────────────────┴──────────── worker: woke up ─────────────┘
/// ```
///
/// Both sides exchange the state, the worker before it looks for work, the other thread after it has written its work.
/// Exchanges of one value have one order, and the later one sees what the earlier thread had written. So either the
/// other thread finds SLEEPING, or the worker finds the work: no wake is lost. The state must never be stored plainly,
/// which would cut this chain. Only the step SLEEPING → NOTIFIED costs a system call.
///
/// On cache lines of its own, as its worker writes to it whenever it sleeps.
#[repr(align(128))]
pub(crate) struct Remote {
    inbox: Mutex<Inbox>,
    /// Whether the inbox holds something; spares the worker the lock in nearly every turn. Written under the lock.
    pending: AtomicBool,
    state: AtomicU8,
    rings: AtomicU64,
    bell: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Inbox {
    woken: Vec<Runnable>,
    aborted: Vec<TaskId>,
    closed: bool,
    /// Why there is no worker.
    refusal: Option<Arc<str>>,
}

impl Remote {
    /// `bell` must make a sleeping worker return, from whichever thread it is called.
    pub(crate) fn new(bell: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            inbox: Mutex::default(),
            pending: AtomicBool::new(false),
            state: AtomicU8::new(AWAKE),
            rings: AtomicU64::new(0),
            bell: Box::new(bell),
        }
    }

    /// Hands a woken task to the worker.
    ///
    /// After [`close`](Self::close) no task is alive, so there is none to be woken. Should there be one it is leaked:
    /// it belongs to the worker's thread and must not be dropped on another.
    pub(crate) fn push(&self, runnable: Runnable) {
        let mut inbox = self.lock();
        if inbox.closed {
            drop(inbox);
            std::mem::forget(runnable);
            return;
        }
        inbox.woken.push(runnable);
        self.pending.store(true, Ordering::Release);
        drop(inbox);
        self.notify();
    }

    /// Asks the worker to drop a task.
    pub(crate) fn abort(&self, id: TaskId) {
        let mut inbox = self.lock();
        if inbox.closed {
            return;
        }
        inbox.aborted.push(id);
        self.pending.store(true, Ordering::Release);
        drop(inbox);
        self.notify();
    }

    /// Makes the worker look for work, if it sleeps. What it shall find must have been written before.
    pub(crate) fn notify(&self) {
        if self.state.swap(NOTIFIED, Ordering::AcqRel) == SLEEPING {
            self.rings.fetch_add(1, Ordering::Relaxed);
            (self.bell)();
        }
    }

    /// Worker: says that it is about to sleep. It must look for work once more after this.
    pub(crate) fn prepare_sleep(&self) {
        self.state.swap(SLEEPING, Ordering::AcqRel);
    }

    /// Worker: it is awake, and will look for work before it sleeps again. Returns whether somebody has rung.
    pub(crate) fn wake_up(&self) -> bool {
        self.state.swap(AWAKE, Ordering::AcqRel) == NOTIFIED
    }

    /// Worker: whether the inbox may hold something.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    /// Worker: moves the woken tasks into `queue`, and returns the tasks to abort.
    pub(super) fn drain_into(&self, queue: &mut Queue<Runnable>) -> Vec<TaskId> {
        let mut inbox = self.lock();
        self.pending.store(false, Ordering::Relaxed);
        queue.append(&mut inbox.woken);
        mem::take(&mut inbox.aborted)
    }

    /// Worker: no task is alive any more; later wakes have nobody to reach.
    pub(crate) fn close(&self) {
        let mut inbox = self.lock();
        inbox.closed = true;
        let late = mem::take(&mut inbox.woken);
        drop(inbox);
        drop(late);
    }

    /// How often the bell was rung.
    pub(crate) fn rings(&self) -> u64 {
        self.rings.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        // Nothing in the critical sections can panic half-way, so a poisoned lock still guards a whole inbox.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tasks that come from other threads, and workers that may not be there.
impl Remote {
    /// Hands a task that has never run to the worker. It is given back if the worker takes none (any more).
    pub(crate) fn admit(&self, runnable: Runnable) -> Result<(), Runnable> {
        let mut inbox = self.lock();
        if inbox.closed {
            return Err(runnable);
        }
        inbox.woken.push(runnable);
        self.pending.store(true, Ordering::Release);
        drop(inbox);
        self.notify();
        Ok(())
    }

    /// The worker could not be started: drops what waits for it, all of which has never run.
    pub(crate) fn refuse(&self, reason: Arc<str>) {
        self.lock().refusal = Some(reason);
        self.close();
    }

    /// Another attempt to start the worker begins.
    pub(crate) fn reopen(&self) {
        let mut inbox = self.lock();
        inbox.closed = false;
        inbox.refusal = None;
    }

    /// Why there is no worker.
    pub(crate) fn refusal(&self) -> Option<Arc<str>> {
        self.lock().refusal.clone()
    }
}

const AWAKE: u8 = 0;
const SLEEPING: u8 = 1;
const NOTIFIED: u8 = 2;
