//! What the simulation promises of itself: the same seed is the same run, and what cannot go on is said.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use futures::{AsyncReadExt, AsyncWriteExt};
use net::TcpListener;
use runtime::sim::{Faults, Simulation};
use runtime::time::{Duration, Instant, sleep};

use crate::streams::connect;

#[test]
fn a_seed_is_always_the_same_run() {
    for seed in 0..50 {
        assert_eq!(history(seed), history(seed), "seed {seed}");
    }
    assert_ne!(history(1), history(2));
}

/// When every chunk came, and how large it was.
fn history(seed: u64) -> Vec<(Duration, usize)> {
    let log = Rc::new(RefCell::new(Vec::new()));
    Simulation::new(seed).run(async {
        let start = Instant::now();
        let (mut client, mut server) = connect(1).await.expect("connected").remove(0);
        let writer = runtime::spawn(async move {
            for _ in 0..50 {
                client.write_all(&[7; 100]).await.expect("written");
                sleep(Duration::from_micros(50)).await;
            }
        });
        let mut buf = [0; 1000];
        loop {
            let n = server.read(&mut buf).await.expect("read");
            log.borrow_mut().push((start.elapsed(), n));
            if n == 0 {
                break;
            }
        }
        writer.await.expect("no panic");
    });
    log.take()
}

#[test]
fn time_takes_no_time() {
    let real = std::time::Instant::now();
    Simulation::new(0).run(async {
        let start = Instant::now();
        sleep(Duration::from_secs(365 * 24 * 3600)).await;
        assert!(start.elapsed() >= Duration::from_secs(365 * 24 * 3600));
    });
    assert!(real.elapsed() < Duration::from_secs(60));
}

/// What waits for ever says so, with the seed, instead of hanging.
#[test]
fn a_wait_for_nothing_is_an_error() {
    let stuck = catch_unwind(AssertUnwindSafe(|| {
        Simulation::new(12).faults(Faults::none()).run(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
            let _ = listener.accept().await;
        });
    }));
    let message = stuck.expect_err("it cannot go on");
    let message = message.downcast_ref::<String>().expect("a message");
    assert!(
        message.contains("stuck") && message.contains("accept"),
        "{message}"
    );
    assert!(message.ends_with("seed 12"), "{message}");
}

/// Threads are not simulated, and work all the same.
#[test]
fn work_on_other_threads_comes_back() {
    for seed in 0..20 {
        let answer = Simulation::new(seed)
            .run(async { runtime::spawn_blocking(|| 42).await.expect("no panic") });
        assert_eq!(answer, 42);
    }
}
