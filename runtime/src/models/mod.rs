//! Models of everything that more than one thread touches, run by `loom` on each interleaving and on each value that
//! the memory model lets a load return:
//!
//! ```text
//! RUSTFLAGS="--cfg ringshot_loom" cargo test --release -p ringshot-runtime --lib models
//! ```
//!
//! They run the product's own code: `Remote`, `Executor`, `JoinHandle`, the thread-local, and the worker's loop with
//! its main waker. Two things are replaced. The reactor's part of a turn is a [`Bell`], so the worker's sleep is one
//! that loom can see: a lost wake is a deadlock, which loom reports. And the types of [`crate::sync`] are loom's.
//!
//! What they do not show:
//!
//! * The task cell is `async-task`'s, whose atomics are not loom's. The real one runs here, but each of its steps is
//!   one piece: other threads come in between only where it calls us, to schedule, to poll and to drop. Loom tries both
//!   orders of two steps only if it knows that they meet, so whoever is about to use a task cell says so ([`touch`]).
//!   That wakes and outputs hand over what happened before is the cell's promise; the futures here keep their state
//!   under a lock.
//! * That a bell which was rung ends the kernel's sleep. The tests with real rings show that.
//! * Reactor, timers, sockets and buffers, which one thread has for itself.
#![allow(clippy::unwrap_used, reason = "what is refused here fails the model")]

mod shutdown;
mod tasks;
mod travellers;
mod wakes;

use std::cell::RefCell;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use loom::alloc::Track;
use loom::sync::{Condvar, Mutex};
use loom::thread::{self, ThreadId};

use crate::context::{self, Entered};
use crate::executor::Remote;
use crate::reactor::driver::uring::Sizes;
use crate::reactor::op::wake::Bell as Eventfd;
use crate::reactor::{Limits, Park, Reactor};
use crate::sync::AtomicBool;
use crate::time::Source;
use crate::worker::Worker;
use crate::workers::Crew;
use crate::{Builder, JoinHandle};

/// Runs a model on every interleaving. The worker is on its first thread, and the shutdown is its end.
fn model(run: impl Fn(&Home) + Send + Sync + 'static) {
    check(loom::model::Builder::new(), run);
}

/// The same where there are too many interleavings to try all: those in which at most three times a thread is stopped
/// in the middle (`LOOM_MAX_PREEMPTIONS` sets another number).
fn crowded_model(run: impl Fn(&Home) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    check(builder, run);
}

fn check(builder: loom::model::Builder, run: impl Fn(&Home) + Send + Sync + 'static) {
    builder.check(move || {
        CELLS.set(Arc::new(AtomicBool::new(false)));
        // When the model fails loom is gone, and a shutdown would hide the failure by one of its own.
        let home = ManuallyDrop::new(Home::new());
        run(&home);
        home.shut_down();
        drop(ManuallyDrop::into_inner(home));
    });
}

/// A worker on the thread that made it.
struct Home {
    worker: Rc<Worker>,
    remote: Arc<Remote>,
    bell: Arc<Bell>,
    _entered: Entered,
}

impl Home {
    fn new() -> Self {
        let bell = Arc::new(Bell::new());
        let remote = Arc::new(Remote::new({
            let bell = Arc::clone(&bell);
            move || bell.ring()
        }));
        // It is never asked for anything.
        let reactor = Eventfd::new().map(|fd| Reactor::on_epoll(LIMITS, fd, "it is a model"));
        let reactor = reactor.unwrap().unwrap();
        let crew = Crew::new(&Builder::new().workers(1));
        let worker = Worker::new(0, crew, reactor, Arc::clone(&remote), Source::Real);
        let entered = context::enter(Rc::clone(&worker)).unwrap();
        Self {
            worker,
            remote,
            bell,
            _entered: entered,
        }
    }

    fn spawn<F: Future + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        self.worker.executor.spawn(future)
    }

    /// Has everything that was spawned polled once.
    fn start(&self) {
        self.block_on(crate::yield_now());
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.worker.drive(pin!(future), |park| match park {
            Park::Poll => {}
            Park::Sleep(None) => self.bell.wait(),
            Park::Sleep(Some(_)) => panic!("a sleep that ends by itself hides a lost wake"),
        })
    }

    fn shut_down(&self) {
        touch();
        self.worker.shut_down(None);
    }
}

/// What the eventfd is to a real worker.
struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
    /// Each task cell has a share in its worker's `Remote` and so in this: loom tells if one is leaked.
    _alive: Track<()>,
}

impl Bell {
    fn new() -> Self {
        Self {
            rung: Mutex::new(false),
            heard: Condvar::new(),
            _alive: Track::new(()),
        }
    }

    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.heard.notify_one();
    }

    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.heard.wait(rung).unwrap();
        }
        *rung = false;
    }
}

/// A future that is woken by another thread, which is started by the first poll. It does `work` before, and drops what
/// that returns after.
fn after<W, T>(work: W) -> After<W>
where
    W: FnOnce() -> T + Send + 'static,
{
    After {
        work: Some(work),
        done: Arc::default(),
    }
}

struct After<W> {
    work: Option<W>,
    done: Arc<Mutex<bool>>,
}

impl<W, T> Future for After<W>
where
    W: FnOnce() -> T + Send + Unpin + 'static,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        touch();
        if let Some(work) = self.work.take() {
            let (done, waker) = (Arc::clone(&self.done), cx.waker().clone());
            thread::spawn(move || {
                touch();
                let _kept = work();
                *done.lock().unwrap() = true;
                touch();
                waker.wake();
            });
        }
        if *self.done.lock().unwrap() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

/// Tells loom that this thread is about to use a task cell, of which it sees nothing. It orders no memory.
fn touch() {
    CELLS.with_borrow(Arc::clone).swap(true, Ordering::Relaxed);
}

std::thread_local! {
    /// One for each interleaving. Loom's threads are all run by the thread of the test, and share what is local to it.
    static CELLS: RefCell<Arc<AtomicBool>> = panic!("touched outside a model");
}

/// Counts where its witnesses are dropped. The counters are not loom's, so looking at them hides no race.
#[derive(Clone)]
struct Drops {
    home: ThreadId,
    at_home: Arc<AtomicUsize>,
    elsewhere: Arc<AtomicUsize>,
}

impl Drops {
    fn new() -> Self {
        Self {
            home: thread::current().id(),
            at_home: Arc::default(),
            elsewhere: Arc::default(),
        }
    }

    /// Something for a task to own. Loom tells if it is leaked.
    fn witness(&self) -> Witness {
        Witness {
            drops: self.clone(),
            _alive: Some(Track::new(())),
        }
    }

    /// The same where a leak is right.
    fn untracked_witness(&self) -> Witness {
        Witness {
            drops: self.clone(),
            _alive: None,
        }
    }

    /// How many were dropped on the thread that made this.
    fn at_home(&self) -> usize {
        self.at_home.load(Ordering::SeqCst)
    }

    /// How many were dropped on other threads.
    fn elsewhere(&self) -> usize {
        self.elsewhere.load(Ordering::SeqCst)
    }
}

struct Witness {
    drops: Drops,
    _alive: Option<Track<()>>,
}

impl Drop for Witness {
    fn drop(&mut self) {
        let at_home = thread::current().id() == self.drops.home;
        let count = if at_home {
            &self.drops.at_home
        } else {
            &self.drops.elsewhere
        };
        count.fetch_add(1, Ordering::SeqCst);
    }
}

/// Small, as a worker is made for each interleaving.
const LIMITS: Limits = Limits {
    sizes: Sizes {
        submissions: 1,
        completions: 1,
    },
    buffers: 1,
    buffer_size: 1,
    recv_high_water: 1,
    send_high_water: 1,
    accept_backlog: 1,
    linger: Duration::ZERO,
};
