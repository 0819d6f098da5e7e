//! Tasks: the run queue, spawning, joining, and the inbox for wakes from other threads.
//!
//! The executor knows no reactor and no clock. It says that it has work by ringing a [`Remote`]'s bell, which
//! may be done from any thread and polls nothing.
//!
//! The task cell is `async-task`'s. A task's future is created, polled and dropped on its worker only, so it
//! need not be `Send`; its waker may travel. A task that another thread spawns travels as a closure, which its worker
//! calls to make the future.

mod join;
mod origin;
mod queue;
mod remote;
#[cfg(all(test, not(ringshot_loom)))]
mod tests;
mod tracked;
mod traveller;
mod yield_now;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use slab::Slab;

use self::{
    join::Name,
    queue::Queue,
    tracked::{Output, Place, Tracked},
};
pub(crate) use self::{join::panic_message, origin::Origin, remote::Remote, traveller::spawn_on};
pub use self::{
    join::{JoinError, JoinHandle},
    yield_now::yield_now,
};
use crate::sync::thread;

/// A task that is ready to be polled.
pub(crate) type Runnable = async_task::Runnable<Tag>;

/// What a task's cell holds beside its future.
pub(crate) struct Tag {
    pub(crate) origin: Origin,
    /// Its worker. Here rather than in the function that queues a woken task: if that holds something, each wake keeps
    /// the cell alive by a reference more.
    pub(crate) home: Arc<Remote>,
}

/// The name of a task on its worker. Numbers are not used twice, so a name that is out of date reaches nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskId {
    key: usize,
    number: u64,
}

/// The tasks of one worker.
pub(crate) struct Executor {
    ready: RefCell<Queue<Runnable>>,
    timed: bool,
    /// Every task whose future is alive, so that an abort or a shutdown can reach it.
    tasks: RefCell<Slab<Alive>>,
    /// How many reasons there are to ask whether a task is doomed: one for each that is aborted, one if the executor is
    /// closed. So a poll looks at one number, as long as there is none.
    dooms: Cell<usize>,
    spawned: Cell<u64>,
    remote: Arc<Remote>,
    polls: Cell<u64>,
    closed: Cell<bool>,
}

struct Alive {
    waker: Waker,
    /// Its number, and in the highest bit whether it is aborted: then its next poll drops the future. Together they take
    /// the room of one word in each entry, and no worker lives long enough for a number that needs the bit.
    number: u64,
}

impl Alive {
    fn is_aborted(&self) -> bool {
        self.number & ABORTED != 0
    }
}

impl Executor {
    /// With `timed` a turn is bounded by time as well as by polls.
    pub(crate) fn new(remote: Arc<Remote>, timed: bool) -> Rc<Self> {
        Rc::new(Self {
            timed,
            ready: RefCell::new(Queue::new()),
            tasks: RefCell::default(),
            dooms: Cell::new(0),
            spawned: Cell::new(0),
            remote,
            polls: Cell::new(0),
            closed: Cell::new(false),
        })
    }

    /// Puts a task on the run queue. Once the executor is closed the future is dropped at once.
    #[track_caller]
    pub(crate) fn spawn<F>(self: &Rc<Self>, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
    {
        // It gets its place when it has a waker, which is when it has a cell.
        let id = self.next_id();
        let place = Place {
            executor: Rc::clone(self),
            key: id.key,
        };
        let tag = Tag {
            origin: Origin::here::<F>(),
            home: Arc::clone(&self.remote),
        };
        let (runnable, task) = Tracked::new(place, future).into_cell(tag);
        self.insert(id, runnable.waker());
        let handle = JoinHandle::new(task.fallible(), Name::Here(id), Arc::clone(&self.remote));
        if self.closed.get() {
            runnable.run();
        } else {
            self.push(runnable);
        }
        handle
    }

    /// Takes a task into the list of those that are alive.
    fn enlist(self: &Rc<Self>, waker: Waker) -> (Place, TaskId) {
        let id = self.next_id();
        self.insert(id, waker);
        let place = Place {
            executor: Rc::clone(self),
            key: id.key,
        };
        (place, id)
    }

    /// The name of the next task that is inserted.
    fn next_id(&self) -> TaskId {
        let number = self.spawned.get() + 1;
        self.spawned.set(number);
        let key = self.tasks.borrow().vacant_key();
        TaskId { key, number }
    }

    fn insert(&self, id: TaskId, waker: Waker) {
        let number = id.number;
        let key = self.tasks.borrow_mut().insert(Alive { waker, number });
        debug_assert_eq!(key, id.key);
    }

    /// Whether tasks are dropped instead of run.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Appends a woken task to the run queue.
    #[inline(always)]
    pub(crate) fn push(&self, runnable: Runnable) {
        self.ready.borrow_mut().push(runnable);
    }

    /// Whether this executor drains `remote`.
    #[inline]
    pub(crate) fn owns(&self, remote: &Arc<Remote>) -> bool {
        Arc::ptr_eq(&self.remote, remote)
    }

    /// Takes in what other threads have woken and aborted.
    #[inline]
    pub(crate) fn take_inbox(&self) {
        if self.remote.is_pending() {
            self.empty_inbox();
        }
    }

    fn empty_inbox(&self) {
        let aborts = self.remote.drain_into(&mut self.ready.borrow_mut());
        for id in aborts {
            self.abort(id);
        }
    }

    /// Marks a task, if it is alive, so that its next run drops it, and makes it run.
    pub(crate) fn abort(&self, id: TaskId) {
        let waker = match self.tasks.borrow_mut().get_mut(id.key) {
            // Not if it is aborted already, as the number says that, too.
            Some(task) if task.number == id.number => {
                task.number |= ABORTED;
                task.waker.clone()
            }
            _ => return,
        };
        self.dooms.set(self.dooms.get() + 1);
        waker.wake();
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.borrow().is_empty()
    }

    /// Tasks that wait for their poll.
    pub(crate) fn ready(&self) -> usize {
        self.ready.borrow().len()
    }

    /// Polls ready tasks by `poll`, until none is left or the budget is spent. `before_each` runs before every poll.
    pub(crate) fn run(&self, before_each: impl Fn(), poll: impl Fn(Runnable)) {
        let mut since = None;
        for number in 0..MAX_POLLS {
            before_each();
            let Some(runnable) = self.next_ready() else {
                return;
            };
            self.polls.set(self.polls.get() + 1);
            // A panic of the future is kept for its handle.
            poll(runnable);
            let is_last_of_some = number % POLLS_PER_CLOCK_READ == POLLS_PER_CLOCK_READ - 1;
            if is_last_of_some && self.timed {
                let start = *since.get_or_insert_with(Instant::now);
                if start.elapsed() >= MAX_RUN {
                    return;
                }
            }
        }
    }

    /// From now on every task is dropped at its next poll, which comes soon, and every task that is spawned at once.
    pub(crate) fn begin_close(&self) {
        if !self.closed.replace(true) {
            self.dooms.set(self.dooms.get() + 1);
        }
        let wakers: Vec<Waker> = (self.tasks.borrow().iter())
            .map(|(_, task)| task.waker.clone())
            .collect();
        for waker in wakers {
            waker.wake();
        }
    }

    /// Drops every task on this thread, and from now on every task that is spawned.
    pub(crate) fn close(&self) {
        loop {
            self.begin_close();
            self.take_inbox();
            while let Some(runnable) = self.next_ready() {
                runnable.run();
            }
            if self.tasks() == 0 {
                break;
            }
            // A task that another thread has just woken is on its way here, and nobody else may drop it.
            thread::yield_now();
        }
        self.remote.close();
    }

    /// Tasks whose future is alive.
    pub(crate) fn tasks(&self) -> usize {
        self.tasks.borrow().len()
    }

    /// Polls since the start.
    pub(crate) fn polls(&self) -> u64 {
        self.polls.get()
    }

    /// Whether a task's next poll shall drop it.
    #[inline]
    fn is_doomed(&self, key: usize) -> bool {
        self.dooms.get() > 0 && self.is_among_the_doomed(key)
    }

    #[cold]
    fn is_among_the_doomed(&self, key: usize) -> bool {
        self.closed.get() || (self.tasks.borrow().get(key)).is_some_and(Alive::is_aborted)
    }

    /// A task's future is gone.
    fn forget(&self, key: usize) {
        // The borrow ends before the waker is dropped.
        let task = self.tasks.borrow_mut().try_remove(key);
        if task.is_some_and(|task| task.is_aborted()) {
            self.dooms.set(self.dooms.get() - 1);
        }
    }

    fn next_ready(&self) -> Option<Runnable> {
        self.ready.borrow_mut().pop()
    }
}

/// Polls per turn of the loop: enough to batch submissions, few enough that I/O is looked at often.
const MAX_POLLS: u32 = 61;

/// The other bound of a turn: time spent in tasks.
const MAX_RUN: Duration = Duration::from_micros(500);

/// Reading the clock costs about as much as a short poll, so it is read once for several.
const POLLS_PER_CLOCK_READ: u32 = 8;

/// The bit of a number that says that the task is aborted.
const ABORTED: u64 = 1 << 63;
