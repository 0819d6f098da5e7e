//! The worker: one thread's executor, reactor and timers, and the turn that joins them.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::context;
use crate::executor::{Executor, Origin, Remote, Runnable};
use crate::metrics::{Counted, Metrics, Published};
use crate::reactor::{Park, Reactor};
use crate::sync::{AtomicBool, Ordering};
use crate::time::{self, Source, Timers};
use crate::watch::Watch;
use crate::workers::Crew;

pub(crate) struct Worker {
    /// Which of the crew it is.
    pub(crate) index: usize,
    pub(crate) crew: Arc<Crew>,
    pub(crate) executor: Rc<Executor>,
    pub(crate) reactor: Rc<Reactor>,
    pub(crate) timers: Rc<Timers>,
    remote: Arc<Remote>,
    published: Arc<Published>,
    /// Its time is the system's.
    timed: bool,
    /// How long it looks for news before it sleeps.
    spin: Duration,
    watch: Option<Watch>,
}

impl Worker {
    pub(crate) fn new(
        index: usize,
        crew: Arc<Crew>,
        reactor: Rc<Reactor>,
        remote: Arc<Remote>,
        clock: Source,
    ) -> Rc<Self> {
        let timed = clock.is_real();
        let threshold = crew.slow_poll_threshold().filter(|_| timed);
        let published = Arc::clone(crew.metrics(index));
        if timed {
            published.begin();
        }
        Rc::new(Self {
            index,
            published,
            timed,
            spin: if timed { crew.spin() } else { Duration::ZERO },
            watch: threshold.map(|threshold| Watch::new(threshold, index, &crew)),
            crew,
            executor: Executor::new(Arc::clone(&remote), timed),
            reactor,
            timers: Rc::new(Timers::new(clock)),
            remote,
        })
    }

    /// Runs turns until `future` is ready.
    #[track_caller]
    pub(crate) fn block_on<F: Future>(&self, future: Pin<&mut F>) -> F::Output {
        self.drive(future, |park| self.reactor.turn(park))
    }

    /// The loop of `block_on`. `enter` is the reactor's part of a turn; the models have another in its place.
    #[track_caller]
    pub(crate) fn drive<F: Future>(
        &self,
        mut future: Pin<&mut F>,
        enter: impl Fn(Park),
    ) -> F::Output {
        let main = Arc::new(MainWaker {
            woken: AtomicBool::new(true),
            remote: Arc::clone(&self.remote),
        });
        let waker = Waker::from(Arc::clone(&main));
        let mut cx = Context::from_waker(&waker);
        let origin = Origin::here::<F>();
        let mut on_duty = None;
        loop {
            if main.woken.swap(false, Ordering::AcqRel) {
                self.reactor.refill_budget();
                let polled = self.poll_main(future.as_mut(), origin, &mut cx);
                if let Poll::Ready(output) = polled {
                    return output;
                }
            }
            if self.timed && on_duty.is_none() {
                // Not for a future that is ready at once: the clocks cost more than all the rest.
                on_duty = Some(OnDuty::new(&self.published));
            }
            let before_each = || {
                // A task may have forked. In the child the others are not polled.
                self.reactor.refuse_child();
                self.reactor.refill_budget();
            };
            self.executor.run(before_each, |task| self.poll(task));
            self.turn(|| main.woken.load(Ordering::Acquire), &enter);
        }
    }

    #[inline(always)] // one caller, once for each poll
    fn poll(&self, task: Runnable) {
        match &self.watch {
            None => task.run(),
            Some(watch) => watch.time(task.metadata().origin, || task.run()),
        };
    }

    fn poll_main<F: Future>(
        &self,
        future: Pin<&mut F>,
        origin: Origin,
        cx: &mut Context<'_>,
    ) -> Poll<F::Output> {
        match &self.watch {
            None => future.poll(cx),
            Some(watch) => watch.time(origin, || future.poll(cx)),
        }
    }

    /// Drops all tasks, then ends the reactor, as far as it is not ended yet. What dropped streams have left to send
    /// is given up at the deadline.
    pub(crate) fn shut_down(&self, deadline: Option<Instant>) {
        self.executor.close();
        self.reactor.shut_down(deadline);
        self.publish();
    }

    /// One turn of I/O and timers. It sleeps only if there is nothing else to do.
    fn turn(&self, main_is_woken: impl Fn() -> bool, enter: impl Fn(Park)) {
        // Before it may sleep, so that what others read of a sleeping worker is up to date.
        self.publish();
        let has_work = || self.executor.has_ready() || self.remote.is_pending() || main_is_woken();
        if has_work() {
            enter(Park::Poll);
        } else {
            self.sleep(has_work, enter);
        }
        self.executor.take_inbox();
        self.timers.fire_expired();
    }

    fn sleep(&self, has_work: impl Fn() -> bool, enter: impl Fn(Park)) {
        if !self.spin.is_zero() && self.spin(&has_work, &enter) {
            return;
        }
        self.published.prepare_sleep();
        // From here on a wake from another thread rings the bell; one that came just before is seen below.
        self.remote.prepare_sleep();
        let timers = self.timers.park_timeout();
        let park = match timers {
            _ if has_work() => Park::Poll,
            time::Park::Advance | time::Park::For(Duration::ZERO) => Park::Poll,
            time::Park::For(limit) => Park::Sleep(self.bounded_by_alarms(Some(limit))),
            time::Park::Forever => Park::Sleep(self.bounded_by_alarms(None)),
        };
        let timed = self.timed && park != Park::Poll;
        if timed {
            self.published.fall_asleep();
        }
        enter(park);
        let called = self.remote.wake_up();
        if timed {
            self.published.wake_up(called);
        }
        if timers == time::Park::Advance && !has_work() {
            self.timers.advance_to_next();
        }
    }

    /// Looks for news, for as long as [`Builder::spin`](crate::Builder::spin) says, and whether there is work now. It
    /// has not said that it sleeps: whoever brings work rings no bell.
    #[cold]
    fn spin(&self, has_work: impl Fn() -> bool, enter: impl Fn(Park)) -> bool {
        let limit = match self.timers.park_timeout() {
            time::Park::Advance => return false,
            time::Park::For(limit) => self.bounded_by_alarms(Some(limit)),
            time::Park::Forever => self.bounded_by_alarms(None),
        };
        let spin = limit.map_or(self.spin, |limit| limit.min(self.spin));
        let start = Instant::now();
        loop {
            // What tasks have queued goes out, and what has come is acted on.
            enter(Park::Poll);
            if has_work() {
                return true;
            }
            // Looking is no work.
            self.published.fall_asleep();
            let found = loop {
                if has_work() || self.reactor.has_news() {
                    break true;
                }
                if start.elapsed() >= spin {
                    break false;
                }
                std::hint::spin_loop();
            };
            self.published.wake_up(false);
            if !found {
                return false;
            }
        }
    }

    /// The sleep's one deadline: that of the timers, or of the reactor's own alarms.
    fn bounded_by_alarms(&self, limit: Option<Duration>) -> Option<Duration> {
        let alarm =
            (self.reactor.deadline()).map(|at| at.saturating_duration_since(self.reactor.now()));
        match (limit, alarm) {
            (Some(limit), Some(alarm)) => Some(limit.min(alarm)),
            (limit, alarm) => limit.or(alarm),
        }
    }

    /// Shows other threads what was counted.
    fn publish(&self) {
        self.published.store(&self.counted());
    }

    pub(crate) fn metrics(&self) -> Metrics {
        self.published.complete(self.counted())
    }

    #[inline(always)] // a turn stores what it loads, and needs no copy in between
    fn counted(&self) -> Counted {
        let counters = &self.reactor.counters;
        let driver = self.reactor.driver_counters();
        let pool = self.reactor.pool();
        Counted {
            enters: driver.enters,
            submissions: counters.submissions.get(),
            completions: counters.completions.get(),
            polls: self.executor.polls(),
            rearms: counters.rearms.get(),
            starvations: counters.starvations.get(),
            pauses: counters.pauses.get(),
            silent_sends: counters.silent_sends.get(),
            short_sends: counters.short_sends.get(),
            armed_sends: counters.armed_sends.get(),
            overflows: driver.overflows,
            refusals: counters.refusals.get(),
            unknown_completions: counters.unknown.get(),
            remote_wakes: self.remote.rings(),
            tasks: self.executor.tasks(),
            ready: self.executor.ready(),
            ops: self.reactor.ops(),
            connections: self.reactor.inboxes(),
            buffers: pool.born(),
            buffers_free: pool.free(),
        }
    }
}

/// While it lives, the worker takes turns.
struct OnDuty<'a>(&'a Published);

impl<'a> OnDuty<'a> {
    fn new(published: &'a Published) -> Self {
        published.start();
        Self(published)
    }
}

impl Drop for OnDuty<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Wakes the future that `block_on` was given.
struct MainWaker {
    woken: AtomicBool,
    remote: Arc<Remote>,
}

impl Wake for MainWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.woken.swap(true, Ordering::AcqRel) {
            return;
        }
        // On the worker's own thread the loop looks at the flag before it sleeps.
        let local = context::try_with(|worker| worker.executor.owns(&self.remote));
        if local != Some(true) {
            self.remote.notify();
        }
    }
}
