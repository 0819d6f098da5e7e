//! [`metrics()`], and how other threads see what a worker counts.
//!
//! Only the worker writes, with plain stores, so counting costs it no lock and no exchange with another core; readers
//! take what they find.

use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

pub use self::histogram::Histogram;
use self::histogram::Tally;
use crate::context;
use crate::reactor::op::system;

mod histogram;

/// What the current worker has counted since its start, and what it holds now.
///
/// Counters are plain integers of the worker, which reading copies; the CPU time is asked for with one system call. Those of
/// other workers, and from other threads: [`Handle::metrics`](crate::Handle::metrics).
///
/// # Panics
///
/// Outside a runtime.
///
/// # Examples
///
/// ```
/// # runtime::Builder::new().build()?.block_on(async {
/// let before = runtime::metrics();
/// runtime::spawn(async {}).await?;
/// let spent = runtime::metrics().since(&before);
/// println!("{} system calls, {} polls", spent.enters, spent.polls);
/// # Ok::<_, std::io::Error>(()) })?;
/// # Ok::<_, std::io::Error>(())
/// ```
#[track_caller]
pub fn metrics() -> Metrics {
    context::worker().metrics()
}

/// A snapshot of one worker's counters. See [`metrics()`].
///
/// Times are those of the system's clock. In a simulation they are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Time since the worker's start.
    pub elapsed: Duration,
    /// Of this, the time that it was not in a call that may sleep: it polled tasks, and acted on completions. A task that
    /// blocks counts; to look for news ([`Builder::spin`](crate::Builder::spin)) does not.
    ///
    /// Of worker 0 only its time inside `block_on` counts, from the first wait on, here and for [`cpu`](Self::cpu).
    pub awake: Duration,
    /// CPU time of the worker's thread, in the program and in the kernel, which does its part of the work (it sends, it
    /// receives) inside the call that may then sleep.
    pub cpu: Duration,
    /// Calls of `io_uring_enter`.
    pub enters: u64,
    /// Entries submitted to the kernel (operations, cancels, closes).
    pub submissions: u64,
    /// Completions taken from the kernel.
    pub completions: u64,
    /// Polls of spawned tasks.
    pub polls: u64,
    /// Polls that took longer than [`Builder::slow_poll_threshold`](crate::Builder::slow_poll_threshold), counted at
    /// their end. 0 without a threshold.
    pub slow_polls: u64,
    /// Polls that were found to go on for longer than the threshold, counted while they did.
    pub stalls: u64,
    /// The longest poll since the start, of tasks and of the future of `block_on`. Zero without a threshold.
    pub longest_poll: Duration,
    /// Multishot operations that the kernel had ended and that were armed again.
    pub rearms: u64,
    /// Receives that found no buffer in the pool.
    pub starvations: u64,
    /// Receives and accepts that were paused because the program did not keep up.
    pub pauses: u64,
    /// Sends that ask for no completion if they go out whole.
    pub silent_sends: u64,
    /// Silent sends that did not go out whole, and were continued by an armed one.
    pub short_sends: u64,
    /// Sends that ask for a completion.
    pub armed_sends: u64,
    /// Turns in which the completion queue was found full, with more waiting in the kernel.
    pub overflows: u64,
    /// Submissions that the kernel did not take at once (EBUSY, EAGAIN, ENOMEM).
    pub refusals: u64,
    /// Completions that belong to no operation. Always 0, or something is wrong.
    pub unknown_completions: u64,
    /// Wakes from other threads that had to end the worker's sleep.
    pub remote_wakes: u64,
    /// How long these took, from the call of the other thread until the worker was back from the kernel. A wake that
    /// came when the worker was just waking up by itself is not among them.
    pub wake_latency: Histogram,
    /// Spawned tasks that have not ended.
    pub tasks: usize,
    /// Of these, how many were ready to be polled when the worker's turn ended: the length of its queue.
    pub ready: usize,
    /// Operations in flight, the worker's own wake included.
    pub ops: usize,
    /// Streams that belong to the worker, accepted and connected ones.
    pub connections: usize,
    /// Receive buffers in use or ready for use.
    pub buffers: usize,
    /// Of these, how many nobody holds.
    pub buffers_free: usize,
}

impl Metrics {
    /// What was counted between an earlier snapshot of the same worker and this one. What does not count but is held
    /// ([`tasks`](Self::tasks) to [`buffers_free`](Self::buffers_free), [`longest_poll`](Self::longest_poll)) stays as it
    /// is.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # runtime::Builder::new().build()?.block_on(async {
    /// let before = runtime::metrics();
    /// runtime::time::sleep(Duration::from_millis(10)).await;
    /// let spent = runtime::metrics().since(&before);
    /// println!("{:.0} % busy", spent.busy_ratio() * 100.0);
    /// assert!(spent.elapsed >= Duration::from_millis(10) && spent.awake <= spent.elapsed);
    /// # });
    /// # Ok::<_, std::io::Error>(())
    /// ```
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut spent = *self;
        spent.subtract_counts(earlier);
        spent.elapsed = self.elapsed.saturating_sub(earlier.elapsed);
        // It may be read a moment too high, but never be more than there was.
        spent.awake = (self.awake.saturating_sub(earlier.awake)).min(spent.elapsed);
        spent.cpu = self.cpu.saturating_sub(earlier.cpu);
        spent.slow_polls = self.slow_polls.saturating_sub(earlier.slow_polls);
        spent.stalls = self.stalls.saturating_sub(earlier.stalls);
        spent.wake_latency = self.wake_latency.since(&earlier.wake_latency);
        spent
    }

    /// The part of its time that the worker was busy, 0 to 1: [`cpu`](Self::cpu) or [`awake`](Self::awake), whichever is
    /// more. A worker that works uses its CPU, and one that is blocked by a task is awake. One that looks for news
    /// ([`Builder::spin`](crate::Builder::spin)) uses its CPU whether there is any or not: there `awake` says more.
    pub fn busy_ratio(&self) -> f64 {
        let busy = self.cpu.max(self.awake).min(self.elapsed);
        ratio(busy.as_secs_f64(), self.elapsed.as_secs_f64())
    }

    /// System calls for each operation that came to its end: for each completion, and each send that went out whole and
    /// left none.
    pub fn enters_per_operation(&self) -> f64 {
        let silent = self.silent_sends.saturating_sub(self.short_sends);
        ratio(self.enters as f64, (self.completions + silent) as f64)
    }
}

fn ratio(part: f64, of: f64) -> f64 {
    if of > 0.0 { part / of } else { 0.0 }
}

/// The numbers that a worker counts anyway, and stores for others as they are, named once.
macro_rules! counted {
    (counts: $($count:ident)+; held: $($held:ident)+) => {
        /// What a worker has counted; see [`Metrics`].
        pub(crate) struct Counted {
            $(pub(crate) $count: u64,)+
            $(pub(crate) $held: usize,)+
        }

        #[derive(Debug, Default)]
        struct Numbers {
            $($count: AtomicU64,)+
            $($held: AtomicUsize,)+
        }

        impl Numbers {
            #[inline(always)]
            fn store(&self, counted: &Counted) {
                $(self.$count.store(counted.$count, Ordering::Relaxed);)+
                $(self.$held.store(counted.$held, Ordering::Relaxed);)+
            }

            fn load(&self) -> Counted {
                Counted {
                    $($count: self.$count.load(Ordering::Relaxed),)+
                    $($held: self.$held.load(Ordering::Relaxed),)+
                }
            }
        }

        impl From<Counted> for Metrics {
            fn from(counted: Counted) -> Self {
                Self {
                    $($count: counted.$count,)+
                    $($held: counted.$held,)+
                    ..Self::default()
                }
            }
        }

        impl Metrics {
            fn subtract_counts(&mut self, earlier: &Self) {
                $(self.$count = self.$count.saturating_sub(earlier.$count);)+
            }
        }
    };
}

counted! {
    counts: enters submissions completions polls rearms starvations pauses silent_sends short_sends armed_sends
        overflows refusals unknown_completions remote_wakes;
    held: tasks ready ops connections buffers buffers_free
}

/// A worker's counters, as other threads see them. Only the worker stores.
///
/// On cache lines of its own: its worker writes to it in every turn. Others do when they wake it from its sleep.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Published {
    numbers: Numbers,
    time: Time,
    cpu: Cpu,
    call: Call,
    wake_latency: Tally,
    slow_polls: AtomicU64,
    /// Written by the watchdog.
    stalls: AtomicU64,
    /// Nanoseconds.
    longest_poll: AtomicU64,
}

impl Published {
    /// Worker: shows what it has counted. What is told by the other calls here is not taken from it.
    #[inline(always)] // one caller, once a turn
    pub(crate) fn store(&self, counted: &Counted) {
        self.numbers.store(counted);
    }

    pub(crate) fn load(&self) -> Metrics {
        self.complete(self.numbers.load())
    }

    /// Adds what is not stored but told.
    pub(crate) fn complete(&self, counted: Counted) -> Metrics {
        let (elapsed, awake) = self.time.spent();
        Metrics {
            elapsed,
            awake,
            cpu: self.cpu.spent(),
            wake_latency: self.wake_latency.load(),
            slow_polls: self.slow_polls.load(Ordering::Relaxed),
            stalls: self.stalls.load(Ordering::Relaxed),
            longest_poll: Duration::from_nanos(self.longest_poll.load(Ordering::Relaxed)),
            ..counted.into()
        }
    }

    /// Worker: it is there.
    pub(crate) fn begin(&self) {
        self.time.begin();
    }

    /// Worker: it takes turns from now on, on this thread.
    pub(crate) fn start(&self) {
        self.time.wake_up();
        self.cpu.start();
    }

    /// Worker: it takes none for a while, or never again.
    pub(crate) fn stop(&self) {
        self.cpu.stop();
        self.time.fall_asleep();
    }

    /// Worker: it is about to say that it sleeps.
    pub(crate) fn prepare_sleep(&self) {
        self.call.forget();
    }

    /// Worker: it makes a call that may sleep.
    pub(crate) fn fall_asleep(&self) {
        self.time.fall_asleep();
    }

    /// Another thread: has found the worker asleep, and is about to wake it.
    pub(crate) fn note_call(&self) {
        self.call.note();
    }

    /// Worker: it is awake, and another thread was about to wake it, or not.
    pub(crate) fn wake_up(&self, called: bool) {
        let now = self.time.wake_up();
        if let Some(called) = self.call.at().filter(|_| called) {
            self.wake_latency.add(now.saturating_sub(called));
        }
    }

    /// Worker: a poll has taken that long, which may be too long.
    pub(crate) fn note_poll(&self, took: Duration, is_slow: bool) {
        let longest = self.longest_poll.load(Ordering::Relaxed);
        let took = nanoseconds(took);
        if took > longest {
            self.longest_poll.store(took, Ordering::Relaxed);
        }
        if is_slow {
            let slow = self.slow_polls.load(Ordering::Relaxed);
            self.slow_polls.store(slow + 1, Ordering::Relaxed);
        }
    }

    /// Watchdog: a poll goes on for too long.
    pub(crate) fn note_stall(&self) {
        self.stalls.fetch_add(1, Ordering::Relaxed);
    }
}

/// How long something has been on, all in all, by a clock in nanoseconds.
///
/// Above one bit, which says whether it is on. While it is off, how long it has been on until then; while it is on, what
/// the clock would have shown at its start if it had always been on. Either stands still meanwhile, so one store tells
/// all, and nobody finds it half-way.
#[derive(Debug, Default)]
struct Stopwatch(AtomicU64);

impl Stopwatch {
    fn start(&self, now: u64) {
        let state = self.0.load(Ordering::Relaxed);
        if state & ON == 0 {
            let begun = now.saturating_sub(state >> 1);
            self.0.store(begun << 1 | ON, Ordering::Relaxed);
        }
    }

    fn stop(&self, now: impl FnOnce() -> u64) {
        let state = self.0.load(Ordering::Relaxed);
        if state & ON != 0 {
            let spent = now().saturating_sub(state >> 1);
            self.0.store(spent << 1, Ordering::Relaxed);
        }
    }

    /// How long it has been on, at a time that is asked for after this, so that the state tells of the past.
    fn read(&self) -> impl Fn(u64) -> u64 {
        let state = self.0.load(Ordering::Relaxed);
        move |now| match state & ON {
            0 => state >> 1,
            _ => now.saturating_sub(state >> 1),
        }
    }
}

/// How much of its time a worker is awake.
#[derive(Debug, Default)]
struct Time {
    /// By the monotonic clock; 0 if it has not started.
    started: AtomicU64,
    awake: Stopwatch,
}

impl Time {
    fn begin(&self) {
        self.started.store(system::monotonic(), Ordering::Relaxed);
    }

    fn fall_asleep(&self) {
        self.awake.stop(system::monotonic);
    }

    /// Returns the time.
    fn wake_up(&self) -> u64 {
        let now = system::monotonic();
        self.awake.start(now);
        now
    }

    /// The time since the start, and of this the time that it was awake.
    fn spent(&self) -> (Duration, Duration) {
        let started = self.started.load(Ordering::Relaxed);
        if started == 0 {
            return (Duration::ZERO, Duration::ZERO);
        }
        let awake = self.awake.read();
        let now = system::monotonic();
        let elapsed = now.saturating_sub(started);
        (
            Duration::from_nanos(elapsed),
            Duration::from_nanos(awake(now).min(elapsed)),
        )
    }
}

/// How much of the CPU a worker uses.
#[derive(Debug, Default)]
struct Cpu {
    /// That of its thread; 0 if there is none, or none is known.
    clock: AtomicI32,
    used: Stopwatch,
}

impl Cpu {
    fn start(&self) {
        let clock = system::cpu_clock().unwrap_or(0);
        self.clock.store(clock, Ordering::Relaxed);
        if let Some(now) = self.now() {
            self.used.start(now);
        }
    }

    fn stop(&self) {
        self.used.stop(|| self.now().unwrap_or(0));
    }

    fn spent(&self) -> Duration {
        let used = self.used.read();
        // Its thread ends after it has stopped. If it does so just now, the next look finds that.
        Duration::from_nanos(used(self.now().unwrap_or(0)))
    }

    fn now(&self) -> Option<u64> {
        match self.clock.load(Ordering::Relaxed) {
            0 => None,
            clock => system::nanoseconds_of(clock),
        }
    }
}

/// When a worker that sleeps was called. Written by the one who calls it, read by the worker.
#[derive(Debug, Default)]
struct Call(
    /// Nanoseconds of the monotonic clock; 0 if it was not called.
    AtomicU64,
);

impl Call {
    /// Another thread: calls it now.
    fn note(&self) {
        self.0.store(system::monotonic(), Ordering::Relaxed);
    }

    /// Worker: nobody has called it. Before it says that it sleeps, so that what is noted is of that sleep.
    fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Worker: when it was called, if the caller has said so already.
    fn at(&self) -> Option<u64> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            at => Some(at),
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

const ON: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_what_is_read() {
        let published = Published::default();
        assert_eq!(published.load(), Metrics::default());
        let mut counted = published.numbers.load();
        (counted.enters, counted.remote_wakes) = (1, 2);
        (counted.tasks, counted.buffers_free) = (3, 4);
        published.store(&counted);
        let metrics = Metrics {
            enters: 1,
            remote_wakes: 2,
            tasks: 3,
            buffers_free: 4,
            ..Metrics::default()
        };
        assert_eq!(published.load(), metrics);
    }

    #[test]
    fn what_was_counted_between_two_snapshots_is_their_difference() {
        let earlier = Metrics {
            enters: 10,
            elapsed: Duration::from_secs(1),
            awake: Duration::from_millis(900),
            tasks: 7,
            ..Metrics::default()
        };
        let later = Metrics {
            enters: 15,
            elapsed: Duration::from_secs(3),
            awake: Duration::from_millis(1_400),
            tasks: 2,
            ..Metrics::default()
        };
        let spent = later.since(&earlier);
        assert_eq!((spent.enters, spent.tasks), (5, 2));
        assert_eq!(spent.busy_ratio(), 0.25);
        assert_eq!(Metrics::default().busy_ratio(), 0.0);
    }

    #[test]
    fn time_asleep_is_not_busy_and_time_awake_is() {
        let published = Published::default();
        published.begin();
        published.start();
        let awake = published.load();
        assert!(awake.awake <= awake.elapsed);
        published.fall_asleep();
        let asleep = published.load();
        let later = loop {
            let later = published.load();
            if later.elapsed > asleep.elapsed {
                break later;
            }
        };
        assert_eq!(later.awake, asleep.awake, "it stands still");
        published.fall_asleep();
        assert_eq!(published.load().awake, asleep.awake);
        published.wake_up(false);
        let woken = published.load();
        assert!(woken.awake >= asleep.awake && woken.awake < woken.elapsed);
    }

    #[test]
    fn a_call_is_of_one_sleep() {
        let published = Published::default();
        let count = || published.load().wake_latency.count();
        published.prepare_sleep();
        published.note_call();
        published.wake_up(true);
        assert_eq!(count(), 1);
        published.prepare_sleep();
        published.wake_up(true);
        assert_eq!(count(), 1, "the caller has not said when");
        published.note_call();
        published.wake_up(false);
        assert_eq!(count(), 1, "it has woken by itself");
    }
}
