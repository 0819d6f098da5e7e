//! Slow polls: each worker takes the time of its polls, and a watchdog sees those that do not end.
//!
//! Only with [`Builder::slow_poll_threshold`](crate::Builder::slow_poll_threshold). A poll then costs two looks at the
//! clock and a lock that nobody else wants.

use std::cell::Cell;
use std::io;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::executor::Origin;
use crate::metrics::Published;
use crate::workers::Crew;

/// A worker's own eye on its polls.
pub(crate) struct Watch {
    threshold: Duration,
    worker: usize,
    crew: Arc<Crew>,
    published: Arc<Published>,
    polls: Cell<u64>,
    /// When the last warning was logged.
    warned: Cell<Option<Instant>>,
    /// Slow polls since then.
    unsaid: Cell<u64>,
}

impl Watch {
    pub(crate) fn new(threshold: Duration, worker: usize, crew: &Arc<Crew>) -> Self {
        Self {
            threshold,
            worker,
            crew: Arc::clone(crew),
            published: Arc::clone(crew.metrics(worker)),
            polls: Cell::new(0),
            warned: Cell::new(None),
            unsaid: Cell::new(0),
        }
    }

    /// Takes the time of a poll, which may panic.
    pub(crate) fn time<R>(&self, origin: Origin, poll: impl FnOnce() -> R) -> R {
        let number = self.polls.get() + 1;
        self.polls.set(number);
        let since = Instant::now();
        self.crew.scene(self.worker).enter(Poll {
            number,
            since,
            origin,
        });
        let _left = Left {
            watch: self,
            number,
            since,
            origin,
        };
        poll()
    }

    fn warn(&self, took: Duration, origin: Origin) {
        // A task that is slow in every poll shall not fill the log.
        let now = Instant::now();
        let is_early = |warned: Instant| now.saturating_duration_since(warned) < QUIET;
        if self.warned.get().is_some_and(is_early) {
            return self.unsaid.set(self.unsaid.get() + 1);
        }
        self.warned.set(Some(now));
        tracing::warn!(
            worker = self.worker,
            ?took,
            spawned_at = %origin.spawned_at,
            future = origin.future(),
            unsaid = self.unsaid.take(),
            "a slow poll held its worker up; work that blocks or computes for long belongs into spawn_blocking"
        );
    }
}

/// The poll has ended, well or by a panic, when this is dropped.
struct Left<'a> {
    watch: &'a Watch,
    number: u64,
    since: Instant,
    origin: Origin,
}

impl Drop for Left<'_> {
    fn drop(&mut self) {
        let Self { watch, .. } = self;
        watch.crew.scene(watch.worker).leave(self.number);
        let took = self.since.elapsed();
        let is_slow = took > watch.threshold;
        watch.published.note_poll(took, is_slow);
        if is_slow {
            watch.warn(took, self.origin);
        }
    }
}

/// What a worker is doing, as the watchdog sees it.
#[derive(Default)]
pub(crate) struct Scene {
    /// The last poll that has begun.
    poll: Mutex<Option<Poll>>,
    /// The number of the last poll that has ended.
    ended: AtomicU64,
}

#[derive(Clone, Copy)]
struct Poll {
    /// Counted from 1.
    number: u64,
    since: Instant,
    origin: Origin,
}

impl Scene {
    fn enter(&self, poll: Poll) {
        *lock(&self.poll) = Some(poll);
    }

    fn leave(&self, number: u64) {
        self.ended.store(number, Ordering::Release);
    }

    /// The poll that the worker is in.
    fn current(&self) -> Option<Poll> {
        let poll = (*lock(&self.poll))?;
        (poll.number > self.ended.load(Ordering::Acquire)).then_some(poll)
    }
}

/// A thread that says which worker does not come out of a poll. It sleeps but for a look every now and then.
pub(crate) struct Watchdog {
    over: Arc<Over>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Over {
    said: Mutex<bool>,
    news: Condvar,
}

impl Watchdog {
    pub(crate) fn start(name: &str, threshold: Duration, crew: Arc<Crew>) -> io::Result<Self> {
        let over = Arc::<Over>::default();
        let thread = thread::Builder::new()
            .name(format!("{name}-watch"))
            .spawn({
                let over = Arc::clone(&over);
                move || watch(&crew, threshold, &over)
            })?;
        Ok(Self {
            over,
            thread: Some(thread),
        })
    }

    /// In a forked child, which has no such thread.
    pub(crate) fn forget(mut self) {
        mem::forget(self.thread.take());
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        *lock(&self.over.said) = true;
        self.over.news.notify_all();
        if thread.join().is_err() {
            tracing::error!("the watchdog has panicked");
        }
    }
}

fn watch(crew: &Crew, threshold: Duration, over: &Over) {
    // Often enough to be of use, seldom enough to cost nothing.
    let pause = threshold.clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
    let mut reported = vec![0; crew.count()];
    let mut said = lock(&over.said);
    while !*said {
        drop(said);
        for (worker, reported) in reported.iter_mut().enumerate() {
            look(crew, worker, threshold, reported);
        }
        said = lock(&over.said);
        if !*said {
            let waited = over.news.wait_timeout(said, pause);
            said = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// `reported` is the last poll of this worker that was reported.
fn look(crew: &Crew, worker: usize, threshold: Duration, reported: &mut u64) {
    let Some(poll) = crew.scene(worker).current() else {
        return;
    };
    let so_far = poll.since.elapsed();
    if so_far <= threshold || poll.number == *reported {
        return;
    }
    *reported = poll.number;
    crew.metrics(worker).note_stall();
    tracing::warn!(
        worker,
        ?so_far,
        spawned_at = %poll.origin.spawned_at,
        future = poll.origin.future(),
        "a worker does not come out of a poll, and serves nobody meanwhile; work that blocks or computes for long \
         belongs into spawn_blocking"
    );
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No critical section here can panic half-way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Between two warnings of one worker.
const QUIET: Duration = Duration::from_secs(1);

/// Between two looks of the watchdog.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
