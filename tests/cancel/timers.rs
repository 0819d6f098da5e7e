use std::time::{Duration, Instant};

use futures::FutureExt;
use runtime::Builder;
use runtime::time::{self, interval, sleep, timeout};
use support::{Fate, partial};

use crate::{random_pause, run};

#[test]
fn given_up_timers_do_not_disturb_the_others() {
    run("given-up timers", Builder::new(), async |mut rng| {
        let others: Vec<_> = (0..100)
            .map(|_| {
                let pause = random_pause(&mut rng) * 20;
                runtime::spawn(async move {
                    let start = Instant::now();
                    sleep(pause).await;
                    (pause, start.elapsed())
                })
            })
            .collect();
        for _ in 0..1_000 {
            let pause = random_pause(&mut rng);
            let fate = Fate::random(&mut rng);
            match rng.below(4) {
                0 => _ = partial(fate, sleep(pause)).await,
                1 => assert!(partial(fate, sleep(Duration::MAX)).await.is_none()),
                2 => _ = partial(fate, timeout(pause, std::future::pending::<()>())).await,
                _ => {
                    let mut ticks = interval(pause + Duration::from_micros(1));
                    _ = partial(fate, ticks.tick()).await;
                    _ = partial(fate, ticks.tick()).await;
                }
            }
        }
        for other in others {
            let (pause, elapsed) = other.await.unwrap();
            assert!(elapsed >= pause, "{elapsed:?} is early for {pause:?}");
        }
    });
}

#[test]
fn a_dropped_timer_frees_its_memory_at_once() {
    run("dropped timers", Builder::new(), async |mut rng| {
        let mut start_and_drop = |count| {
            for _ in 0..count {
                let far = Duration::from_secs(3600) + random_pause(&mut rng) * 1000;
                assert!(sleep(far).now_or_never().is_none());
            }
        };
        start_and_drop(10_000);
        let before = support::resident_bytes();
        start_and_drop(300_000);
        let grown = support::resident_bytes().saturating_sub(before);
        assert!(grown < 4 << 20, "300,000 dropped timers left {grown} bytes");
    });
}

#[test]
fn a_given_up_tick_is_the_next_one() {
    run("given-up ticks", Builder::new(), async |mut rng| {
        time::pause();
        let period = Duration::from_millis(10);
        let start = time::Instant::now();
        let mut ticks = interval(period);
        for number in 0..200 {
            let tick = loop {
                let fate = Fate::random(&mut rng);
                if let Some(tick) = partial(fate, ticks.tick()).await {
                    break tick;
                }
                // The clock is moved by an idle worker, not by one that yields.
                if rng.one_in(4) {
                    sleep(period / 3).await;
                }
            };
            assert_eq!(tick.duration_since(start), period * number);
        }
        time::resume();
    });
}

#[test]
fn a_given_up_advance_has_moved_the_clock_from_its_first_poll_on() {
    run("given-up advances", Builder::new(), async |mut rng| {
        time::pause();
        let step = Duration::from_secs(1);
        let mut expected = time::Instant::now();
        for _ in 0..200 {
            let fate = Fate::random(&mut rng);
            let _ = partial(fate, time::advance(step)).await;
            if fate.polls > 0 {
                expected = expected.checked_add(step).unwrap();
            }
            assert_eq!(time::Instant::now(), expected);
        }
        time::resume();
    });
}
