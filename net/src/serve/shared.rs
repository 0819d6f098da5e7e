//! What all workers know of a server.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use super::{Balance, Connections, Ended};

pub(super) struct Shared {
    balance: Balance,
    max_connections: usize,
    /// Connections that are served or on their way.
    open: AtomicUsize,
    /// Somebody waits for one to end.
    full: AtomicBool,
    seats: Box<[Seat]>,
    /// Of the one who accepts for all.
    acceptor: Mutex<Option<Waker>>,
    /// No connection comes from there any more.
    acceptor_done: AtomicBool,
    stop: Mutex<Option<Stop>>,
    stopping: AtomicBool,
    accept_errors: AtomicU64,
    finished: AtomicU64,
    aborted: AtomicU64,
}

/// One worker's part, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Seat {
    active: AtomicUsize,
    total: AtomicU64,
    panicked: AtomicU64,
    mail: Mutex<VecDeque<Mail>>,
    waker: Mutex<Option<Waker>>,
}

/// A connection on its way to the worker that shall serve it.
pub(super) type Mail = (TcpStream, SocketAddr, Ticket);

/// The order to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) grace: Duration,
    /// Later orders have higher numbers.
    pub(super) number: u64,
}

/// Room for one connection, as long as this lives.
pub(super) struct Ticket {
    shared: Arc<Shared>,
    /// The worker that it counts for.
    index: Option<usize>,
}

/// How the time of a connection came to its end.
#[derive(Clone, Copy)]
pub(super) enum End {
    Finished,
    Panicked,
    Aborted,
}

impl Shared {
    pub(super) fn new(workers: usize, max_connections: usize, balance: Balance) -> Arc<Self> {
        Arc::new(Self {
            balance,
            max_connections,
            open: AtomicUsize::new(0),
            full: AtomicBool::new(false),
            seats: (0..workers).map(|_| Seat::default()).collect(),
            acceptor: Mutex::default(),
            acceptor_done: AtomicBool::new(balance == Balance::PerWorker),
            stop: Mutex::default(),
            stopping: AtomicBool::new(false),
            accept_errors: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            aborted: AtomicU64::new(0),
        })
    }

    pub(super) fn balance(&self) -> Balance {
        self.balance
    }

    // ---- who is woken ----

    /// Whoever waits says so before looking at what to wait for; whoever changes that does it before waking.
    pub(super) fn register(&self, index: Option<usize>, waker: &Waker) {
        let slot = match index {
            Some(index) => &self.seats[index].waker,
            None => &self.acceptor,
        };
        let mut slot = lock(slot);
        match &*slot {
            Some(known) if known.will_wake(waker) => {}
            _ => *slot = Some(waker.clone()),
        }
    }

    fn wake(&self, index: Option<usize>) {
        let slot = match index {
            Some(index) => &self.seats[index].waker,
            None => &self.acceptor,
        };
        let waker = lock(slot).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn wake_all(&self) {
        self.wake(None);
        (0..self.seats.len()).for_each(|index| self.wake(Some(index)));
    }

    // ---- the end ----

    pub(super) fn stop(&self, grace: Duration) {
        {
            let mut stop = lock(&self.stop);
            let number = stop.map_or(1, |stop| stop.number + 1);
            *stop = Some(Stop { grace, number });
            self.stopping.store(true, Ordering::SeqCst);
        }
        self.wake_all();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(super) fn last_stop(&self) -> Option<Stop> {
        *lock(&self.stop)
    }

    pub(super) fn acceptor_is_done(&self) -> bool {
        self.acceptor_done.load(Ordering::SeqCst)
    }

    pub(super) fn acceptor_has_ended(&self) {
        self.acceptor_done.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    // ---- connections ----

    /// Room for one connection more. `None` if there is none; then a registered waker is woken when one has ended.
    pub(super) fn try_enter(self: &Arc<Self>) -> Option<Ticket> {
        if self.max_connections != usize::MAX {
            let enter = |open: usize| (open < self.max_connections).then_some(open + 1);
            let enter = || (self.open).fetch_update(Ordering::SeqCst, Ordering::SeqCst, enter);
            // Said before it is looked at once more, so that an end in between is not missed.
            enter()
                .or_else(|_| {
                    self.full.store(true, Ordering::SeqCst);
                    enter()
                })
                .ok()?;
        }
        Some(self.ticket())
    }

    /// For a connection that was accepted already and must not be lost.
    pub(super) fn enter(self: &Arc<Self>) -> Ticket {
        if self.max_connections != usize::MAX {
            self.open.fetch_add(1, Ordering::SeqCst);
        }
        self.ticket()
    }

    fn ticket(self: &Arc<Self>) -> Ticket {
        Ticket {
            shared: Arc::clone(self),
            index: None,
        }
    }

    /// The worker with the fewest connections, looked for from `from` on, so that equals take turns.
    pub(super) fn least_loaded(&self, from: usize) -> usize {
        let count = self.seats.len();
        let turn = (0..count).map(|step| (from + step) % count);
        turn.min_by_key(|index| self.seats[*index].active.load(Ordering::Relaxed))
            .unwrap_or(0)
    }

    pub(super) fn send(&self, index: usize, mail: Mail) {
        lock(&self.seats[index].mail).push_back(mail);
        self.wake(Some(index));
    }

    pub(super) fn receive(&self, index: usize) -> Option<Mail> {
        lock(&self.seats[index].mail).pop_front()
    }

    // ---- counting ----

    pub(super) fn note_accept_error(&self) {
        self.accept_errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn accept_errors(&self) -> u64 {
        self.accept_errors.load(Ordering::Relaxed)
    }

    pub(super) fn connections(&self) -> Vec<Connections> {
        self.seats
            .iter()
            .map(|seat| Connections {
                active: seat.active.load(Ordering::Relaxed),
                total: seat.total.load(Ordering::Relaxed),
                panicked: seat.panicked.load(Ordering::Relaxed),
            })
            .collect()
    }

    pub(super) fn ended(&self) -> Ended {
        Ended {
            finished: self.finished.load(Ordering::Relaxed),
            aborted: self.aborted.load(Ordering::Relaxed),
        }
    }
}

impl Ticket {
    /// A connection is given to a worker.
    pub(super) fn assign(mut self, index: usize) -> Self {
        let seat = &self.shared.seats[index];
        seat.active.fetch_add(1, Ordering::Relaxed);
        seat.total.fetch_add(1, Ordering::Relaxed);
        self.index = Some(index);
        self
    }

    pub(super) fn note(&self, end: End) {
        let counter = match (end, self.index) {
            (End::Panicked, Some(index)) => &self.shared.seats[index].panicked,
            (End::Finished, _) => &self.shared.finished,
            _ => &self.shared.aborted,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let shared = &self.shared;
        if let Some(index) = self.index {
            shared.seats[index].active.fetch_sub(1, Ordering::Relaxed);
        }
        if shared.max_connections != usize::MAX {
            shared.open.fetch_sub(1, Ordering::SeqCst);
            if shared.full.swap(false, Ordering::SeqCst) {
                shared.wake_all();
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No critical section here can panic half-way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
