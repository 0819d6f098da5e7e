//! Polls that take too long (B45): counted, and said with worker and task, also while they go on.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt};
use net::TcpStream;
use net::serve::{Balance, Server};
use runtime::{Builder, Handle, JoinHandle, Runtime};
use support::{eventually, settled};

use crate::{alone, lines, log};

/// Said when a poll has ended, and while it goes on.
const SLOW: &str = "a slow poll held its worker up";
const STALL: &str = "does not come out of a poll";

/// Long enough that only who wants to is slow, also on a busy machine.
fn threshold() -> Duration {
    Duration::from_millis(100) * support::patience()
}

fn build(workers: usize) -> Runtime {
    Builder::new()
        .workers(workers)
        .slow_poll_threshold(threshold())
        .build()
        .unwrap()
}

/// As a rude task does it.
fn compute() {
    thread::sleep(2 * threshold());
}

#[test]
fn a_slow_poll_is_counted_and_named_by_worker_and_place() {
    let _alone = alone("slow polls");
    log();
    build(2).block_on(async {
        let here = format!("{}:{}", file!(), line!() + 1);
        is_said(0, &here, || runtime::spawn(async { compute() })).await;
        let there = format!("{}:{}", file!(), line!() + 1);
        is_said(1, &there, || runtime::spawn_on(1, || async { compute() })).await;
    });
}

/// Spawns until it is said. That is the first time, unless another poll was slow less than a second before.
async fn is_said(worker: usize, place: &str, spawn: impl Fn() -> JoinHandle<()>) {
    let handle = Handle::current();
    let mut polls = 0;
    let said = loop {
        spawn().await.unwrap();
        polls += 1;
        let counted = || handle.metrics(worker).slow_polls >= polls;
        settled("slow polls", true, counted).await;
        let said = lines(&[SLOW, &format!("worker={worker}"), place]);
        if !said.is_empty() {
            break said;
        }
    };
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("WARN"), "{said:?}");
    assert!(said[0].contains("a_slow_poll_is_counted"), "{said:?}");
    assert!(handle.metrics(worker).longest_poll >= 2 * threshold());
}

/// That of `block_on` as well, and it may panic.
#[test]
fn the_future_of_block_on_is_watched_too() {
    let _alone = alone("a slow main future");
    log();
    let runtime = build(1);
    let place = format!("{}:{}", file!(), line!() + 1);
    runtime.block_on(async { compute() });
    assert_eq!(runtime.handle().metrics(0).slow_polls, 1);
    assert_eq!(lines(&[SLOW, &place]).len(), 1, "{:?}", log().lines());
    let panicking = format!("{}:{}", file!(), line!() + 1);
    let panics = || runtime.block_on(async { resume_unwind(Box::new("on purpose")) });
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    // It is in no poll any more, so nobody says so however long that lasts.
    let said = lines(&[STALL, &panicking]).len();
    thread::sleep(3 * threshold());
    assert_eq!(lines(&[STALL, &panicking]).len(), said);
    assert_eq!(runtime.block_on(async { 42 }), 42);
}

#[test]
fn polls_below_the_threshold_are_not_counted() {
    let _alone = alone("quick polls");
    let runtime = Builder::new()
        .slow_poll_threshold(Duration::from_secs(3_600))
        .build()
        .unwrap();
    runtime.block_on(async {
        runtime::spawn(async { compute() }).await.unwrap();
        let metrics = runtime::metrics();
        assert_eq!((metrics.slow_polls, metrics.stalls), (0, 0));
        assert!(metrics.longest_poll >= 2 * threshold());
    });
}

#[test]
fn without_a_threshold_nothing_is_timed() {
    let _alone = alone("no threshold");
    Builder::new().build().unwrap().block_on(async {
        let place = format!("{}:{}", file!(), line!() + 1);
        runtime::spawn(async { compute() }).await.unwrap();
        assert_eq!(runtime::metrics().slow_polls, 0);
        assert_eq!(runtime::metrics().longest_poll, Duration::ZERO);
        assert_eq!(lines(&[&place]).len(), 0);
    });
}

/// A task that is slow each time does not fill the log; the counter knows them all.
#[test]
fn many_slow_polls_are_said_once_a_second() {
    const POLLS: u64 = 4;
    let _alone = alone("many slow polls");
    log();
    build(1).block_on(async {
        let place = format!("{}:{}", file!(), line!() + 1);
        let task = runtime::spawn(async {
            for _ in 0..POLLS {
                compute();
                runtime::yield_now().await;
            }
        });
        task.await.unwrap();
        assert!(runtime::metrics().slow_polls >= POLLS);
        let seconds = (runtime::metrics().elapsed.as_secs() + 1) as usize;
        let said = lines(&[SLOW, &place]).len();
        assert!(said <= seconds, "{said} in {seconds} s");
    });
}

/// B45: said while it goes on, once for each poll. The others work meanwhile.
#[test]
fn a_poll_that_does_not_end_is_said_while_it_goes_on() {
    let _alone = alone("a poll that does not end");
    log();
    let runtime = build(2);
    let handle = runtime.handle();
    let (release, held) = mpsc::channel::<()>();
    let place = format!("{}:{}", file!(), line!() + 1);
    let blocked = handle.spawn_on(1, move || async move { held.recv().unwrap() });
    let said = || lines(&[STALL, "worker=1", &place]).len();
    eventually("warnings", 1, said);
    assert!(handle.metrics(1).stalls >= 1);
    let ended = || lines(&[SLOW, "worker=1", &place]).len();
    assert_eq!(ended(), 0, "it has not ended");
    runtime.block_on(async {
        // Several looks later.
        runtime::time::sleep(5 * threshold()).await;
    });
    assert_eq!(said(), 1, "the same poll is said once");
    let before = handle.metrics(1).slow_polls;
    release.send(()).unwrap();
    runtime.block_on(blocked).unwrap();
    let counted = || handle.metrics(1).slow_polls > before;
    eventually("the end is counted", true, counted);
    assert!(ended() <= 1);
}

/// B45: worker 0 does not even come back to notice it.
#[test]
fn a_single_worker_that_is_blocked_is_noticed_by_somebody_else() {
    let _alone = alone("a blocked single worker");
    log();
    let runtime = build(1);
    let handle = runtime.handle();
    let (release, held) = mpsc::channel::<()>();
    let watching = thread::spawn(move || {
        eventually("a stall", true, || handle.metrics(0).stalls > 0);
        release.send(()).unwrap();
    });
    runtime.block_on(async move { held.recv().unwrap() });
    watching.join().unwrap();
}

/// B45: of a server, one worker is blocked. Its connections wait, those of the other one do not notice.
#[test]
fn a_blocked_worker_of_a_server_is_named_and_the_others_serve() {
    let _alone = alone("a blocked worker of a server");
    log();
    let runtime = build(2);
    let handle = runtime.handle();
    runtime.block_on(async {
        let server = Server::builder()
            .balance(Balance::LeastConnections)
            .bind(support::loopback())
            .await
            .unwrap();
        let addr = server.local_addr().unwrap();
        let stop = server.shutdown_handle();
        let (release, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let serving = runtime::spawn(server.run(move |mut stream, _| {
            let held = Arc::clone(&held);
            async move {
                let mut byte = [0];
                while stream.read_exact(&mut byte).await.is_ok() {
                    // What no handler should do.
                    if byte == *b"!" {
                        held.lock().unwrap().recv().unwrap();
                    }
                    stream.write_all(&[runtime::worker() as u8]).await?;
                }
                std::io::Result::Ok(())
            }
        }));
        let mut streams = Vec::new();
        for _ in 0..4 {
            streams.push(TcpStream::connect(addr).await.unwrap());
            let all = || stop.connections().iter().map(|of| of.active).sum();
            settled("connections", streams.len(), all).await;
        }
        // The clients are on worker 0, so it must be the other one that is blocked.
        let mut of_worker = [Vec::new(), Vec::new()];
        for mut stream in streams {
            let worker = ask(&mut stream, b"?").await;
            of_worker[worker].push(stream);
        }
        let [mut served, mut blocked] = of_worker;
        assert_eq!((served.len(), blocked.len()), (2, 2));
        blocked[0].write_all(b"!").await.unwrap();
        let said = || {
            let who = ["worker=1", "agent::Connection<", "a_blocked_worker_of_a"];
            !lines(&[STALL, who[0], who[1], who[2]]).is_empty()
        };
        settled("a warning", true, said).await;
        assert!(handle.metrics(1).stalls >= 1);
        for stream in &mut served {
            assert_eq!(ask(stream, b"?").await, 0);
        }
        // It comes back, and has lost nobody.
        release.send(()).unwrap();
        blocked[0].read_exact(&mut [0]).await.unwrap();
        for stream in &mut blocked {
            assert_eq!(ask(stream, b"?").await, 1);
        }
        drop((served, blocked));
        stop.shutdown(Duration::from_secs(10));
        serving.await.unwrap().unwrap();
    });
}

/// The worker that has answered.
async fn ask(stream: &mut TcpStream, question: &[u8]) -> usize {
    stream.write_all(question).await.unwrap();
    let mut answer = [0];
    stream.read_exact(&mut answer).await.unwrap();
    answer[0].into()
}

/// The watchdog ends with its runtime.
#[test]
fn a_thousand_watched_runtimes_leave_no_thread() {
    let _alone = alone("watchdogs");
    for _ in 0..support::rounds(1_000) {
        let runtime = Builder::new()
            .name("dog")
            .slow_poll_threshold(threshold())
            .build()
            .unwrap();
        runtime.block_on(async {});
    }
    eventually("threads", 0, || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names =
            tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|name| name.starts_with("dog-watch")).count()
    });
}
