//! The figures of a worker: how busy it is, what it holds, and how fast it wakes up.

use std::future::{pending, poll_fn};
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use futures::channel::oneshot;
use net::{TcpListener, TcpStream};
use runtime::{Builder, Handle, Metrics};
use support::{eventually, settled};

use crate::alone;

fn build(workers: usize) -> runtime::Runtime {
    Builder::new().workers(workers).build().unwrap()
}

#[test]
fn a_worker_that_works_is_busy_and_one_that_sleeps_is_not() {
    let _alone = alone("busy");
    let runtime = build(3);
    let handle = runtime.handle();
    assert_eq!(handle.metrics(1).elapsed, Duration::ZERO, "not started");
    let (release, held) = mpsc::channel::<()>();
    let works = handle.spawn_on(1, move || async move { held.recv().unwrap() });
    handle.spawn_on(2, pending::<()>);
    // From here on one is in a poll, the other one asleep.
    eventually("worker 2 sleeps", true, || {
        let first = handle.metrics(2);
        thread::sleep(Duration::from_millis(1));
        let second = handle.metrics(2);
        second.awake == first.awake && second.elapsed > first.elapsed && second.tasks == 1
    });
    eventually("worker 1 works", true, || is_in_a_poll(&handle, 1));
    let before = [handle.metrics(1), handle.metrics(2)];
    thread::sleep(Duration::from_millis(20));
    let [works_since, sleeps_since] =
        [1, 2].map(|worker| handle.metrics(worker).since(&before[worker - 1]));
    assert_eq!(works_since.busy_ratio(), 1.0, "{works_since:?}");
    assert_eq!(sleeps_since.busy_ratio(), 0.0, "{sleeps_since:?}");
    assert!(works_since.elapsed >= Duration::from_millis(20));
    // It is blocked, which uses no CPU.
    assert!(
        works_since.cpu < Duration::from_millis(10),
        "{works_since:?}"
    );
    release.send(()).unwrap();
    runtime.block_on(works).unwrap();
}

/// It has not slept for a while.
fn is_in_a_poll(handle: &Handle, worker: usize) -> bool {
    let before = handle.metrics(worker);
    thread::sleep(Duration::from_millis(5));
    let since = handle.metrics(worker).since(&before);
    since.elapsed > Duration::ZERO && since.busy_ratio() == 1.0
}

/// Also what the kernel does for it, and for no longer than it lives.
#[test]
fn a_worker_that_computes_uses_the_cpu() {
    const WORK: Duration = Duration::from_millis(30);
    let _alone = alone("CPU time");
    let runtime = build(2);
    let handle = runtime.handle();
    let before = handle.metrics(1);
    assert_eq!(before.cpu, Duration::ZERO);
    let work = handle.spawn_on(1, || async {
        while runtime::metrics().cpu < WORK {
            std::hint::spin_loop();
        }
    });
    runtime.block_on(work).unwrap();
    let spent = handle.metrics(1).since(&before);
    assert!(spent.cpu >= WORK, "{spent:?}");
    assert!(spent.busy_ratio() > 0.0);
    let unused = handle.metrics(0).cpu;
    assert!(unused < WORK * support::patience(), "worker 0 has waited");
    drop(runtime);
    let last = handle.metrics(1).cpu;
    assert!(last >= WORK);
    assert_eq!(handle.metrics(1).cpu, last, "its thread is gone");
}

#[test]
fn outside_block_on_worker_0_is_not_busy() {
    let _alone = alone("outside");
    let runtime = build(1);
    let handle = runtime.handle();
    let unused = handle.metrics(0);
    assert_eq!((unused.awake, unused.cpu), (Duration::ZERO, Duration::ZERO));
    runtime.block_on(runtime::yield_now());
    let before = handle.metrics(0);
    assert!(before.awake > Duration::ZERO);
    thread::sleep(Duration::from_millis(5));
    let since = handle.metrics(0).since(&before);
    assert!(since.elapsed >= Duration::from_millis(5));
    assert_eq!(since.awake, Duration::ZERO);
    assert_eq!(since.cpu, Duration::ZERO);
}

/// Whatever the moment in which a snapshot is taken, no time is lost or counted twice.
#[test]
fn time_awake_never_exceeds_the_time_that_has_gone_by() {
    let _alone = alone("busy time");
    build(2).block_on(async {
        let handle = Handle::current();
        let restless = runtime::spawn_on(1, || async {
            loop {
                runtime::time::sleep(Duration::from_micros(50)).await;
            }
        });
        settled("started", true, || {
            handle.metrics(1).elapsed > Duration::ZERO
        })
        .await;
        let mut last = handle.metrics(1);
        for _ in 0..20_000 {
            let now = handle.metrics(1);
            assert!(now.awake <= now.elapsed, "{now:?}");
            assert!(now.elapsed >= last.elapsed);
            last = now;
        }
        restless.abort();
        assert!(restless.await.unwrap_err().is_cancelled());
    });
}

#[test]
fn streams_are_counted_where_they_live() {
    let _alone = alone("connections");
    build(2).block_on(async {
        let handle = Handle::current();
        let connections = |worker| handle.metrics(worker).connections;
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (close, closed) = oneshot::channel::<()>();
        let elsewhere = runtime::spawn_on(1, move || async move {
            let _streams = [
                TcpStream::connect(addr).await.unwrap(),
                TcpStream::connect(addr).await.unwrap(),
            ];
            closed.await.unwrap();
        });
        let mut here = vec![listener.accept().await.unwrap().0];
        assert_eq!(runtime::metrics().connections, 1);
        here.push(listener.accept().await.unwrap().0);
        assert_eq!(runtime::metrics().connections, 2);
        settled("connections of worker 1", 2, || connections(1)).await;
        close.send(()).unwrap();
        elsewhere.await.unwrap();
        settled("connections of worker 1", 0, || connections(1)).await;
        drop(here);
        assert_eq!(runtime::metrics().connections, 0);
    });
}

#[test]
fn tasks_that_wait_for_their_poll_are_counted() {
    let _alone = alone("the queue");
    build(1).block_on(async {
        assert_eq!(runtime::metrics().ready, 0);
        let tasks: Vec<_> = (0..7).map(|_| runtime::spawn(async {})).collect();
        assert_eq!(runtime::metrics().ready, 7);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(runtime::metrics().ready, 0);
    });
}

/// What a worker counts is seen by others when it sleeps, to the last poll.
#[test]
fn the_figures_of_an_idle_worker_are_exact() {
    const ROUNDS: u64 = 1_000;
    let _alone = alone("exact figures");
    let runtime = build(2);
    let handle = runtime.handle();
    runtime.block_on(async {
        for round in 1..=ROUNDS {
            // Polled twice, the first time for the wake of itself.
            runtime::spawn_on(1, yield_once).await.unwrap();
            settled("polls", 2 * round, || handle.metrics(1).polls).await;
        }
    });
    assert_eq!(handle.metrics(1).tasks, 0);
}

async fn yield_once() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// B12: each wake of a worker that sleeps is in the histogram, or came as it was waking up by itself.
#[test]
fn wakes_from_other_threads_are_in_the_histogram() {
    const WAKES: u64 = 200;
    let _alone = alone("wake latency");
    let runtime = build(2);
    let handle = runtime.handle();
    runtime.block_on(handle.spawn_on(1, || async {})).unwrap();
    let before: Metrics = handle.metrics(1);
    let sleeps = || {
        let [first, second] = [handle.metrics(1), handle.metrics(1)];
        second.elapsed > first.elapsed && second.awake == first.awake
    };
    for _ in 0..WAKES {
        eventually("worker 1 sleeps", true, sleeps);
        let task = handle.spawn_on(1, || async {});
        futures::executor::block_on(task).unwrap();
    }
    // Its counters are those of its sleep.
    eventually("worker 1 sleeps", true, sleeps);
    let spent = handle.metrics(1).since(&before);
    let latency = spent.wake_latency;
    println!("{} wakes: {latency:?}", spent.remote_wakes);
    assert!(spent.remote_wakes >= WAKES / 2, "{spent:?}");
    assert!(latency.count() <= spent.remote_wakes);
    assert!(latency.count() >= WAKES / 2, "{latency:?}");
    let median = latency.quantile(0.5).unwrap();
    assert!(median <= latency.quantile(1.0).unwrap());
    let buckets: Vec<_> = latency.buckets().collect();
    assert!(buckets.is_sorted_by(|a, b| a.0 < b.0));
    assert_eq!(
        buckets.iter().map(|(_, count)| count).sum::<u64>(),
        latency.count()
    );
}

#[test]
fn calls_for_each_operation_are_at_most_one_when_nothing_is_batched() {
    let _alone = alone("enters per operation");
    build(1).block_on(async {
        let (mut a, mut b) = support_pair().await;
        let before = runtime::metrics();
        for _ in 0..100 {
            use futures::{AsyncReadExt, AsyncWriteExt};
            a.write_all(b"ping").await.unwrap();
            let mut buf = [0; 4];
            b.read_exact(&mut buf).await.unwrap();
        }
        let spent = runtime::metrics().since(&before);
        let ratio = spent.enters_per_operation();
        println!(
            "{ratio:.2} enters for each of {} completions",
            spent.completions
        );
        assert!(ratio.is_finite() && ratio > 0.0);
        assert!(spent.busy_ratio() > 0.0);
    });
    assert_eq!(Metrics::default().enters_per_operation(), 0.0);
}

async fn support_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(support::loopback()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (connected, accepted) =
        futures::future::join(TcpStream::connect(addr), listener.accept()).await;
    (connected.unwrap(), accepted.unwrap().0)
}
