//! The one thread-local: which worker runs on this thread.
//!
//! Only public free functions and wakers look here. Everything inside the runtime is handed what it needs.

use std::cell::RefCell;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;

use crate::executor::{Remote, Runnable, TaskId};
use crate::reactor::Reactor;
use crate::sync::thread_local;
use crate::time::Timers;
use crate::worker::Worker;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Worker>>> = const { RefCell::new(None) };
}

/// Makes `worker` the current one until the guard is dropped. `None` if this thread runs another one already.
pub(crate) fn enter(worker: Rc<Worker>) -> Option<Entered> {
    // While the thread ends there may be no thread-local any more; then there is no current worker.
    CURRENT
        .try_with(|current| {
            let mut current = current.borrow_mut();
            if current
                .as_ref()
                .is_some_and(|running| running.reactor.is_at_home())
            {
                return None;
            }
            // One that was running when this process was forked from its own will not go on here, and is left alone.
            mem::forget(current.replace(worker));
            Some(Entered(()))
        })
        .ok()
        .flatten()
}

/// While it lives, this thread has a current worker.
pub(crate) struct Entered(());

impl Drop for Entered {
    fn drop(&mut self) {
        // The borrow ends before the worker is dropped.
        let worker = CURRENT.try_with(RefCell::take);
        drop(worker);
    }
}

/// Calls `f` with the current worker, if there is one.
pub(crate) fn try_with<R>(f: impl FnOnce(&Rc<Worker>) -> R) -> Option<R> {
    CURRENT
        .try_with(|current| current.borrow().as_ref().map(f))
        .ok()
        .flatten()
}

/// The current worker.
///
/// # Panics
///
/// Outside a runtime.
#[track_caller]
pub(crate) fn worker() -> Rc<Worker> {
    match try_with(Rc::clone) {
        Some(worker) => worker,
        None => panic!("{OUTSIDE}"),
    }
}

/// The timers of the current worker, if there is one.
pub(crate) fn try_timers() -> Option<Rc<Timers>> {
    try_with(|worker| Rc::clone(&worker.timers))
}

/// The timers of the current worker.
///
/// # Panics
///
/// Outside a runtime.
#[track_caller]
pub(crate) fn timers() -> Rc<Timers> {
    match try_timers() {
        Some(timers) => timers,
        None => panic!("{OUTSIDE}"),
    }
}

/// The reactor of the current worker.
///
/// # Errors
///
/// Outside a runtime.
pub(crate) fn reactor() -> std::io::Result<Rc<Reactor>> {
    try_with(|worker| Rc::clone(&worker.reactor)).ok_or_else(|| std::io::Error::other(OUTSIDE))
}

/// Queues a woken task: directly when its worker runs on this thread, through the worker's inbox otherwise.
pub(crate) fn schedule(runnable: Runnable) {
    let mut runnable = Some(runnable);
    try_with(|worker| {
        let executor = &worker.executor;
        if let Some(ours) = runnable.take_if(|task| executor.owns(&task.metadata().home)) {
            executor.push(ours);
        }
    });
    if let Some(foreign) = runnable {
        send_home(foreign);
    }
}

#[cold]
fn send_home(runnable: Runnable) {
    let home = Arc::clone(&runnable.metadata().home);
    home.push(runnable);
}

/// Queues a task that has never run, in the same way. It is given back if its worker takes none (any more).
pub(crate) fn admit(remote: &Arc<Remote>, runnable: Runnable) -> Result<(), Runnable> {
    let mut runnable = Some(runnable);
    try_with(|worker| {
        if worker.executor.owns(remote)
            && !worker.executor.is_closed()
            && let Some(runnable) = runnable.take()
        {
            worker.executor.push(runnable);
        }
    });
    runnable.map_or(Ok(()), |runnable| remote.admit(runnable))
}

/// Drops a task before its next poll: directly when its worker runs on this thread, through its inbox otherwise.
pub(crate) fn abort(remote: &Arc<Remote>, id: TaskId) {
    let local = try_with(|worker| {
        let local = worker.executor.owns(remote);
        if local {
            worker.executor.abort(id);
        }
        local
    });
    if local != Some(true) {
        remote.abort(id);
    }
}

const OUTSIDE: &str = "this needs a Ringshot runtime on the current thread: call it from inside \
    `#[runtime::main]`, `#[runtime::test]` or `Runtime::block_on`";
