//! Time as a program sees it: mostly on a paused clock, so that no result depends on how fast the machine is.
//! Tests on the real clock assert only that nothing comes early.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, ready};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::FutureExt;
use futures::future::{join_all, poll_immediate};
use runtime::time::{
    self, Duration, Elapsed, Instant, MissedTickBehavior, interval, interval_at, sleep,
    sleep_until, timeout, timeout_at,
};

fn new_runtime() -> runtime::Runtime {
    runtime::Builder::new().build().expect("a runtime")
}

fn run<F: Future>(future: F) -> F::Output {
    new_runtime().block_on(future)
}

/// Runs with a clock that only moves when nothing else is left to do.
fn run_paused<F: Future>(future: F) -> F::Output {
    run(async {
        time::pause();
        future.await
    })
}

const MS: Duration = Duration::from_millis(1);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Durations that have overflowed something in some runtime. All end after any that a test waits for.
const HUGE: [Duration; 5] = [
    Duration::from_millis(1 << 32),
    Duration::from_millis(1 << 53),
    Duration::from_nanos(u64::MAX),
    Duration::from_millis(u64::MAX),
    Duration::MAX,
];

// Sleeping.

#[test]
fn idle_worker_moves_a_paused_clock_to_the_very_deadline() {
    run_paused(async {
        let start = Instant::now();
        for (n, nap) in [MS, Duration::from_nanos(1), YEAR].into_iter().enumerate() {
            let before = Instant::now();
            sleep(nap).await;
            assert_eq!(before.elapsed(), nap, "nap {n}");
        }
        sleep_until(start + 2 * YEAR).await;
        assert_eq!(start.elapsed(), 2 * YEAR);
    });
}

#[test]
fn paused_clock_waits_for_tasks_that_are_ready() {
    run_paused(async {
        let start = Instant::now();
        let nap = runtime::spawn(sleep(MS));
        for _ in 0..1000 {
            runtime::yield_now().await;
            assert_eq!(start.elapsed(), Duration::ZERO);
        }
        nap.await.unwrap();
        assert_eq!(start.elapsed(), MS);
    });
}

#[test]
fn sleeping_for_no_time_takes_a_turn_and_no_more() {
    run_paused(async {
        let start = Instant::now();
        for deadline in [start, start - YEAR, start - Duration::MAX] {
            let mut nap = sleep_until(deadline);
            assert!(!nap.is_elapsed());
            assert_eq!(poll_immediate(&mut nap).await, None);
            nap.await;
        }
        sleep(Duration::ZERO).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    });
}

#[test]
fn task_that_sleeps_for_no_time_lets_others_run() {
    run(async {
        let other = runtime::spawn(sleep(MS));
        while !other.is_finished() {
            sleep(Duration::ZERO).await;
        }
    });
}

#[test]
fn tasks_are_woken_in_the_order_of_their_deadlines() {
    run_paused(async {
        let order = Rc::new(RefCell::new(Vec::new()));
        let naps = [30_u32, 10, 20, 10, 0]
            .into_iter()
            .enumerate()
            .map(|(n, ms)| {
                let order = Rc::clone(&order);
                runtime::spawn(async move {
                    sleep(ms * MS).await;
                    order.borrow_mut().push(n);
                })
            });
        for nap in naps.collect::<Vec<_>>() {
            nap.await.unwrap();
        }
        assert_eq!(*order.borrow(), [4, 1, 3, 2, 0]);
    });
}

/// B38.
#[test]
fn huge_durations_never_end_and_hold_nobody_up() {
    run_paused(async {
        let start = Instant::now();
        for huge in HUGE {
            let (mut every, mut late) = (interval(huge), interval_at(start + huge, huge));
            assert!(every.tick().now_or_never().is_some());
            let (mut nap, mut limit) = (sleep(huge), timeout(huge, pending::<()>()));
            let (mut second, mut first) = (pin!(every.tick()), pin!(late.tick()));
            for wait in [Duration::ZERO, 10 * MS] {
                let before = Instant::now();
                sleep(wait).await;
                assert_eq!(before.elapsed(), wait);
                assert_eq!(poll_immediate(&mut nap).await, None);
                assert_eq!(poll_immediate(&mut limit).await, None);
                assert_eq!(poll_immediate(&mut second).await, None);
                assert_eq!(poll_immediate(&mut first).await, None);
            }
        }
    });
}

/// B38.
#[test]
fn huge_durations_do_not_disturb_the_real_clock() {
    run(async {
        let never = HUGE.map(|huge| runtime::spawn(sleep(huge)));
        let start = Instant::now();
        sleep(10 * MS).await;
        assert!(start.elapsed() >= 10 * MS);
        assert!(never.iter().all(|nap| !nap.is_finished()));
    });
}

/// B40.
#[test]
fn short_sleeps_are_never_early() {
    run(async {
        for micros in (1..=900).step_by(7) {
            let start = std::time::Instant::now();
            sleep(Duration::from_micros(micros)).await;
            assert!(start.elapsed() >= Duration::from_micros(micros));
        }
    });
}

/// B14.
#[test]
fn many_sleeps_at_once_are_never_early() {
    run(async {
        let naps = (0..2000_u64).map(|n| async move {
            let nap = Duration::from_micros(n * 7919 % 20_000);
            let start = std::time::Instant::now();
            sleep(nap).await;
            assert!(start.elapsed() >= nap);
        });
        join_all(naps).await;
    });
}

// The future.

#[test]
fn reset_moves_a_running_timer_and_revives_a_finished_one() {
    run_paused(async {
        let start = Instant::now();
        let mut nap = sleep(100 * MS);
        for (deadline, name) in [(10, "sooner"), (30, "after it was ready"), (31, "again")] {
            Pin::new(&mut nap).reset(start + deadline * MS);
            assert_eq!(nap.deadline(), start + deadline * MS);
            assert_eq!(poll_immediate(&mut nap).await, None, "{name}");
            (&mut nap).await;
            assert_eq!(start.elapsed(), deadline * MS, "{name}");
            assert!(nap.is_elapsed());
            assert_eq!(poll_immediate(&mut nap).await, Some(()), "stays ready");
        }

        let mut nap = sleep(MS);
        assert_eq!(poll_immediate(&mut nap).await, None);
        Pin::new(&mut nap).reset(start + 50 * MS);
        nap.await;
        assert_eq!(start.elapsed(), 50 * MS);
    });
}

/// Counts wakes; its strong count tells who holds it.
struct Counter(AtomicUsize);

impl Counter {
    fn new() -> (Arc<Self>, Waker) {
        let counter = Arc::new(Self(AtomicUsize::new(0)));
        (Arc::clone(&counter), Waker::from(counter))
    }

    fn wakes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll_with<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

#[test]
fn only_the_waker_of_the_last_poll_is_woken() {
    run_paused(async {
        let (first, first_waker) = Counter::new();
        let (last, last_waker) = Counter::new();
        let mut nap = sleep(MS);
        assert!(poll_with(&mut nap, &first_waker).is_pending());
        assert!(poll_with(&mut nap, &last_waker).is_pending());
        assert_eq!(Arc::strong_count(&first), 2);
        sleep(2 * MS).await;
        assert_eq!((first.wakes(), last.wakes()), (0, 1));
        assert!(poll_with(&mut nap, &first_waker).is_ready());
    });
}

#[test]
fn reset_timer_wakes_at_the_new_deadline_without_a_poll() {
    run_paused(async {
        let (counter, waker) = Counter::new();
        let mut nap = sleep(MS);
        assert!(poll_with(&mut nap, &waker).is_pending());
        Pin::new(&mut nap).reset(Instant::now() + 10 * MS);
        sleep(9 * MS).await;
        assert_eq!(counter.wakes(), 0);
        sleep(2 * MS).await;
        assert_eq!(counter.wakes(), 1);
    });
}

#[test]
fn dropped_sleep_frees_its_timer_at_once() {
    run_paused(async {
        let (counter, waker) = Counter::new();
        let mut naps: Vec<_> = (1..100_u32).map(|n| sleep(n * YEAR)).collect();
        for nap in &mut naps {
            assert!(poll_with(nap, &waker).is_pending());
        }
        assert_eq!(Arc::strong_count(&counter), 2 + naps.len());
        while naps.pop().is_some() {
            assert_eq!(Arc::strong_count(&counter), 2 + naps.len());
        }
        assert_eq!(counter.wakes(), 0);
    });
}

// Beyond the runtime.

#[test]
fn sleep_outlives_its_runtime_and_goes_on_in_another() {
    let start = Instant::now();
    let (counter, waker) = Counter::new();
    let mut nap = sleep(5 * MS);
    let mut forgotten = sleep(YEAR);
    run(async {
        assert!(poll_with(&mut nap, &waker).is_pending());
        assert!(poll_with(&mut forgotten, &waker).is_pending());
    });
    assert_eq!(Arc::strong_count(&counter), 2);
    assert!(!nap.is_elapsed());
    Pin::new(&mut forgotten).reset(start);
    drop(forgotten);

    run(&mut nap);
    assert!(start.elapsed() >= 5 * MS);
    assert!(nap.is_elapsed());
}

#[test]
fn sleep_moves_between_runtimes_that_both_live() {
    let (first, second) = (new_runtime(), new_runtime());
    let mut nap = sleep(5 * MS);
    first.block_on(async { assert_eq!(poll_immediate(&mut nap).await, None) });
    second.block_on(&mut nap);
    assert!(Instant::now() >= nap.deadline());

    let mut nap = sleep(MS);
    first.block_on(async {
        assert_eq!(poll_immediate(&mut nap).await, None);
        sleep(2 * MS).await;
    });
    // It fired where it was, and says so wherever it is asked.
    assert_eq!(second.block_on(poll_immediate(&mut nap)), Some(()));
}

#[test]
fn sleeping_tasks_are_dropped_with_the_runtime() {
    struct Guard(Rc<Cell<usize>>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    let dropped = Rc::new(Cell::new(0));
    for round in 1..=20 {
        let runtime = new_runtime();
        runtime.block_on(async {
            for n in 0..50_u32 {
                let guard = Guard(Rc::clone(&dropped));
                drop(runtime::spawn(async move {
                    sleep(n * YEAR + YEAR).await;
                    drop(guard);
                }));
            }
            sleep(Duration::ZERO).await;
        });
        drop(runtime);
        assert_eq!(dropped.get(), round * 50);
    }
    assert_eq!(Rc::strong_count(&dropped), 1);
}

#[test]
fn polling_outside_a_runtime_is_a_clear_panic() {
    let outside: [Box<dyn FnOnce()>; 4] = [
        Box::new(|| assert!(sleep(MS).now_or_never().is_none())),
        Box::new(|| assert!(timeout(MS, pending::<()>()).now_or_never().is_none())),
        Box::new(|| assert!(time::advance(MS).now_or_never().is_none())),
        Box::new(time::pause),
    ];
    for call in outside {
        let panic = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or(panic.downcast_ref::<&str>().copied());
        assert!(text.unwrap().contains("runtime"), "{text:?}");
    }
    assert_eq!(timeout(MS, ready(1)).now_or_never(), Some(Ok(1)));
    assert!(interval(MS).tick().now_or_never().is_some());
}

// Timeouts.

#[test]
fn ready_future_wins_over_any_timeout() {
    run_paused(async {
        let now = Instant::now();
        assert_eq!(timeout(Duration::ZERO, ready(1)).await, Ok(1));
        assert_eq!(timeout_at(now - YEAR, ready(2)).await, Ok(2));
        assert_eq!(timeout(Duration::MAX, ready(3)).await, Ok(3));
        // Both are due in the same turn.
        assert_eq!(timeout_at(now + MS, sleep_until(now + MS)).await, Ok(()));
    });
}

#[test]
fn timeout_ends_at_its_deadline() {
    run_paused(async {
        let start = Instant::now();
        assert!(timeout(Duration::ZERO, pending::<()>()).await.is_err());
        assert!(timeout_at(start - YEAR, pending::<()>()).await.is_err());
        assert_eq!(start.elapsed(), Duration::ZERO);

        let elapsed = timeout(5 * MS, sleep(6 * MS)).await.unwrap_err();
        assert_eq!(start.elapsed(), 5 * MS);
        assert!(timeout(6 * MS, sleep(5 * MS)).await.is_ok());
        assert_eq!(start.elapsed(), 10 * MS);

        let error: io::Error = elapsed.into();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.get_ref().is_some_and(|inner| inner.is::<Elapsed>()));
    });
}

#[test]
fn timed_out_future_goes_on_when_it_was_lent() {
    run_paused(async {
        let start = Instant::now();
        let mut nap = sleep(10 * MS);
        let mut rounds = 0;
        while timeout(3 * MS, &mut nap).await.is_err() {
            rounds += 1;
        }
        assert_eq!((rounds, start.elapsed()), (3, 10 * MS));

        let limit = timeout(MS, sleep(4 * MS));
        assert_eq!(limit.get_ref().deadline(), start + 14 * MS);
        limit.into_inner().await;
        assert_eq!(start.elapsed(), 14 * MS);
    });
}

// Intervals.

#[test]
fn first_tick_comes_at_once_and_the_others_on_plan() {
    run_paused(async {
        let start = Instant::now();
        let mut ticks = interval(10 * MS);
        assert_eq!(ticks.tick().now_or_never(), Some(start));
        assert_eq!(ticks.tick().now_or_never(), None);
        for n in 1..=10_000 {
            // Work that takes a varying part of the period does not shift the plan.
            time::advance(n * 7 % 10 * MS).await;
            assert_eq!(ticks.tick().await, start + n * 10 * MS);
            assert_eq!(start.elapsed(), n * 10 * MS);
        }
    });
}

/// When ticks come, in ms, if the task stalls for 35 ms after the third.
async fn ticks_around_a_stall(behavior: MissedTickBehavior) -> Vec<u128> {
    let start = Instant::now();
    let mut ticks = interval(10 * MS);
    ticks.set_missed_tick_behavior(behavior);
    assert_eq!(ticks.missed_tick_behavior(), behavior);
    let mut times = Vec::new();
    for n in 0..9 {
        if n == 3 {
            time::advance(35 * MS).await;
        }
        ticks.tick().await;
        times.push(start.elapsed().as_millis());
    }
    times
}

/// B41.
#[test]
fn missed_ticks_are_caught_up_delayed_or_skipped() {
    run_paused(async {
        let burst = ticks_around_a_stall(MissedTickBehavior::Burst).await;
        assert_eq!(burst, [0, 10, 20, 55, 55, 55, 60, 70, 80]);
        let delay = ticks_around_a_stall(MissedTickBehavior::Delay).await;
        assert_eq!(delay, [0, 10, 20, 55, 65, 75, 85, 95, 105]);
        let skip = ticks_around_a_stall(MissedTickBehavior::Skip).await;
        assert_eq!(skip, [0, 10, 20, 55, 60, 70, 80, 90, 100]);
    });
}

/// B39.
#[test]
fn interval_survives_years_of_uptime() {
    run_paused(async {
        let start = Instant::now();
        let distant = runtime::spawn(sleep(100 * YEAR));
        let mut ticks = interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        for n in 1..=30 {
            time::advance(3 * YEAR).await;
            assert!(ticks.tick().await <= start + n * 3 * YEAR);
            let next = ticks.tick().await;
            assert_eq!(next, start + n * (3 * YEAR + Duration::from_secs(1)));
            assert_eq!(next, Instant::now());
        }
        assert!(!distant.is_finished());
        distant.await.unwrap();
        assert_eq!(start.elapsed(), 100 * YEAR);
    });
}

#[test]
fn catching_up_leaves_room_for_others() {
    run_paused(async {
        let mut ticks = interval(Duration::from_nanos(1));
        time::advance(YEAR).await;
        let other = runtime::spawn(sleep(Duration::ZERO));
        let mut taken = 0;
        while !other.is_finished() {
            ticks.tick().await;
            taken += 1;
            assert!(taken < 1000, "the other task never ran");
        }
    });
}

#[test]
fn dropped_tick_is_not_lost() {
    run_paused(async {
        let start = Instant::now();
        let mut ticks = interval_at(start + 5 * MS, 10 * MS);
        assert!(timeout(3 * MS, ticks.tick()).await.is_err());
        assert!(timeout(MS, ticks.tick()).await.is_err());
        assert_eq!(ticks.tick().await, start + 5 * MS);
        assert_eq!(start.elapsed(), 5 * MS);
    });
}

#[test]
fn interval_can_be_reset() {
    run_paused(async {
        let start = Instant::now();
        let mut ticks = interval(10 * MS);
        assert_eq!(ticks.period(), 10 * MS);
        ticks.tick().await;
        time::advance(4 * MS).await;
        ticks.reset();
        assert_eq!(ticks.tick().await, start + 14 * MS);
        ticks.reset_after(MS);
        assert_eq!(ticks.tick().await, start + 15 * MS);
        ticks.reset_immediately();
        assert_eq!(ticks.tick().now_or_never(), Some(start + 15 * MS));
        ticks.reset_at(start + 40 * MS);
        assert_eq!(ticks.tick().await, start + 40 * MS);
        assert_eq!(ticks.tick().await, start + 50 * MS);
    });
}

#[test]
fn interval_without_a_period_is_refused() {
    run_paused(async {
        assert!(catch_unwind(|| interval(Duration::ZERO)).is_err());
        assert!(catch_unwind(|| interval_at(Instant::now(), Duration::ZERO)).is_err());
    });
}

/// B41.
#[test]
fn ticks_on_the_real_clock_are_never_early() {
    run(async {
        let start = Instant::now();
        let mut ticks = interval_at(start, MS);
        for n in 0..20 {
            assert_eq!(ticks.tick().await, start + n * MS);
            assert!(start.elapsed() >= n * MS);
        }
    });
}

// The clock.

#[test]
fn advance_fires_what_is_due_before_it_returns() {
    run_paused(async {
        let start = Instant::now();
        let woken = Rc::new(RefCell::new(Vec::new()));
        for ms in [20_u32, 5, 11, 10] {
            let woken = Rc::clone(&woken);
            drop(runtime::spawn(async move {
                sleep(ms * MS).await;
                woken.borrow_mut().push(ms);
            }));
        }
        runtime::yield_now().await;
        time::advance(10 * MS).await;
        assert_eq!(start.elapsed(), 10 * MS);
        assert_eq!(*woken.borrow(), [5, 10]);
        time::advance(Duration::ZERO).await;
        assert_eq!(*woken.borrow(), [5, 10]);
        time::advance(Duration::MAX).await;
        time::advance(Duration::MAX).await;
        assert_eq!(*woken.borrow(), [5, 10, 11, 20]);
    });
}

#[test]
fn clock_stops_and_runs_on() {
    run(async {
        let advance = AssertUnwindSafe(time::advance(MS)).catch_unwind().await;
        assert!(advance.is_err(), "a running clock cannot be advanced");

        time::pause();
        time::pause();
        let paused = Instant::now();
        std::thread::sleep(2 * MS);
        assert_eq!(Instant::now(), paused);
        time::advance(YEAR).await;
        time::resume();
        time::resume();
        assert!(paused.elapsed() >= YEAR && paused.elapsed() < YEAR + YEAR);
        let real = std::time::Instant::now();
        sleep(2 * MS).await;
        assert!(real.elapsed() >= 2 * MS);
    });
}
