//! The end of many workers: nothing holds it up, nothing is left, and what outlives it is harmless.

use std::future::{pending, poll_fn};
use std::io::{Read, Write};
use std::net::TcpStream as Peer;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use futures::channel::mpsc::unbounded;
use futures::channel::oneshot;
use futures::{AsyncReadExt, AsyncWriteExt, FutureExt, StreamExt};
use net::{TcpListener, TcpStream};
use runtime::time::sleep;
use runtime::{Builder, Handle, JoinHandle, Runtime};
use support::{open_fds, resident_bytes};

use crate::{alone, build, no_threads};

const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// B10, with workers: every task is dropped once, on the thread that it lived on.
#[test]
fn a_thousand_runtimes_leave_nothing_behind() {
    const ROUNDS: usize = 1_000;
    const TASKS: usize = 20;
    let _alone = support::alone("1,000 runtimes", Duration::from_secs(120));
    let fds_before = open_fds();
    let mut resident_before = 0;
    for round in 0..ROUNDS {
        if round == 100 {
            resident_before = resident_bytes();
        }
        let drops = Arc::new(AtomicUsize::new(0));
        let runtime = Builder::new().workers(3).name("thousand").build().unwrap();
        let peers = runtime.block_on(async {
            let tasks = runtime::spawn_on_each({
                let drops = Arc::clone(&drops);
                move |_| leave_pending(TASKS, drops)
            });
            futures::future::try_join_all(tasks).await.unwrap()
        });
        drop(runtime);
        drop(peers);
        assert_eq!(
            drops.load(Ordering::SeqCst),
            3 * (TASKS + 1),
            "tasks that were dropped"
        );
        assert_eq!(open_fds(), fds_before, "open descriptors");
        no_threads("thousand");
    }
    let grown = resident_bytes().saturating_sub(resident_before);
    assert!(grown < 4 << 20, "900 runtimes left {grown} bytes");
}

async fn leave_pending(tasks: usize, drops: Arc<AtomicUsize>) -> Peer {
    let listener = TcpListener::bind(support::loopback()).await.unwrap();
    let (mut stream, peer) = support::pair(&listener).await;
    let guard = Guard::new(&drops);
    runtime::spawn(async move {
        let _guard = guard;
        stream.read_exact(&mut [0]).await.unwrap();
    });
    for _ in 0..tasks {
        let guard = Guard::new(&drops);
        runtime::spawn(async move {
            let _guard = guard;
            sleep(A_YEAR).await;
        });
    }
    runtime::yield_now().await;
    peer
}

#[test]
fn what_is_sent_after_the_end_is_dropped_and_said() {
    let _alone = alone("tasks after the end");
    let runtime = build(3);
    let handle = runtime.handle();
    let stuck = handle.spawn_on(1, pending::<()>);
    let after = handle.spawn_on(1, || async {});
    runtime.block_on(after).unwrap();
    drop(runtime);
    assert!(
        stuck
            .now_or_never()
            .expect("an answer")
            .unwrap_err()
            .is_cancelled()
    );
    // Worker 0, one that was started, and one that was not.
    for worker in 0..3 {
        let drops = Arc::new(AtomicUsize::new(0));
        let guard = Guard::new(&drops);
        let task = handle.spawn_on(worker, move || async move { drop(guard) });
        assert_eq!(
            drops.load(Ordering::SeqCst),
            1,
            "the closure is dropped at once"
        );
        let error = task.now_or_never().expect("an answer").unwrap_err();
        assert!(error.is_cancelled());
        assert_eq!(
            error.to_string(),
            "the task was aborted, or its runtime was shut down"
        );
    }
    handle.shutdown();
    let metrics = handle.metrics(1);
    assert_eq!((metrics.tasks, metrics.ops), (0, 0));
}

/// Tasks, wakes and aborts come from a foreign thread and from the workers themselves while the runtime ends.
#[test]
fn tasks_may_cross_the_end() {
    const ROUNDS: usize = 300;
    let _alone = alone("tasks across the end");
    for _ in 0..ROUNDS {
        let runtime = build(3);
        let handle = runtime.handle();
        let drops = Arc::new(AtomicUsize::new(0));
        let made = Arc::new(AtomicUsize::new(0));
        let (sender, started) = mpsc::channel();
        let spawning = thread::spawn({
            let (drops, made) = (Arc::clone(&drops), Arc::clone(&made));
            move || {
                let spawn = |round: usize| -> JoinHandle<()> {
                    made.fetch_add(1, Ordering::SeqCst);
                    let mut guard = Guard::new(&drops);
                    handle.spawn_on(round % 3, move || {
                        guard.moved();
                        async move {
                            let _guard = guard;
                            if round.is_multiple_of(2) {
                                pending::<()>().await;
                            }
                        }
                    })
                };
                let mut tasks: Vec<_> = (0..30).map(spawn).collect();
                sender.send(()).unwrap();
                tasks.extend((30..200).map(spawn));
                tasks.iter().step_by(3).for_each(JoinHandle::abort);
                for task in tasks {
                    // Each has an answer: it does not hang.
                    let _ = futures::executor::block_on(task);
                }
            }
        });
        started.recv().unwrap();
        runtime.block_on(runtime::yield_now());
        drop(runtime);
        spawning.join().unwrap();
        assert_eq!(drops.load(Ordering::SeqCst), made.load(Ordering::SeqCst));
    }
}

#[test]
fn wakers_that_outlive_their_worker_are_harmless() {
    let _alone = alone("wakers that outlive their worker");
    let fds_before = open_fds();
    let runtime = build(2);
    let wakers = runtime.block_on(async {
        let (sender, waker) = oneshot::channel();
        drop(runtime::spawn_on(1, || async move {
            sender.send(own_waker().await).unwrap();
            pending::<()>().await
        }));
        let finished = runtime::spawn_on(1, own_waker);
        [waker.await.unwrap(), finished.await.unwrap()]
    });
    drop(runtime);
    wakers.iter().for_each(Waker::wake_by_ref);
    // A runtime that has come since is not disturbed by them.
    let next = build(2);
    next.block_on(async {
        let copies = wakers.clone();
        let wake = move || async move { copies.into_iter().for_each(Waker::wake) };
        runtime::spawn_on(1, wake).await.unwrap();
    });
    drop(next);
    thread::spawn(move || drop(wakers)).join().unwrap();
    assert_eq!(open_fds(), fds_before);
}

async fn own_waker() -> Waker {
    poll_fn(|cx| Poll::Ready(cx.waker().clone())).await
}

#[test]
fn bytes_that_a_worker_has_left_to_send_arrive() {
    let _alone = alone("bytes at the end");
    bytes_arrive_at_the_end(drop);
}

#[test]
fn bytes_that_a_worker_has_left_to_send_arrive_if_a_limited_end_has_time_for_them() {
    let _alone = alone("bytes at a limited end");
    bytes_arrive_at_the_end(|runtime| {
        runtime.shutdown_timeout(Duration::from_secs(50)).unwrap();
    });
}

fn bytes_arrive_at_the_end(end: impl FnOnce(Runtime)) {
    // More than the kernel takes, in one piece, which the runtime owns.
    const LEN: usize = 16 << 20;
    let runtime = build(2);
    let peer = runtime.block_on(async {
        let task = runtime::spawn_on(1, || async {
            let listener = TcpListener::bind(support::loopback()).await.unwrap();
            let (stream, peer) = support::pair(&listener).await;
            stream.send(support::pattern::bytes(0, LEN)).await.unwrap();
            peer
        });
        task.await.unwrap()
    });
    let reading = thread::spawn(move || {
        let mut peer = peer;
        let mut received = Vec::new();
        peer.read_to_end(&mut received).unwrap();
        received
    });
    end(runtime);
    let received = reading.join().unwrap();
    assert_eq!(received.len(), LEN);
    support::pattern::check(&received, 0);
}

/// A task that does not return cannot be dropped. The end does not wait for it longer than it is told.
#[test]
fn a_limited_end_names_the_workers_that_did_not_come_to_theirs() {
    let _alone = alone("a limited end");
    let runtime = Builder::new().workers(4).name("limited").build().unwrap();
    let (release, held) = mpsc::channel::<()>();
    let (sender, ended) = mpsc::channel();
    let drops = Arc::new(AtomicUsize::new(0));
    runtime.block_on(async {
        let (blocks, blocked) = oneshot::channel();
        let guard = Guard::new(&drops);
        drop(runtime::spawn_on(2, move || async move {
            let _guard = guard;
            blocks.send(()).unwrap();
            let _ = held.recv();
            sender.send(()).unwrap();
        }));
        runtime::spawn_on(1, || async {}).await.unwrap();
        blocked.await.unwrap();
    });
    let handle = runtime.handle();
    let started = Instant::now();
    let error = runtime
        .shutdown_timeout(Duration::from_millis(50))
        .unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(20));
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    assert!(error.to_string().contains("[2]"), "{error}");
    assert_eq!(drops.load(Ordering::SeqCst), 0);
    handle.shutdown();
    // What is on its way to it is not lost on a thread where it must not be dropped.
    let late = handle.spawn_on(2, || async {});
    release.send(()).unwrap();
    ended.recv().unwrap();
    support::eventually("the task is dropped", 1, || drops.load(Ordering::SeqCst));
    assert!(
        futures::executor::block_on(late)
            .unwrap_err()
            .is_cancelled()
    );
    no_threads("limited");
}

#[test]
fn a_limited_end_does_not_wait_for_a_slow_peer() {
    let _alone = alone("a slow peer at the end");
    let runtime = build(2);
    let peers = runtime.block_on(async {
        let tasks = runtime::spawn_on_each(|_| {
            async {
                let listener = TcpListener::bind(support::loopback()).await.unwrap();
                let (stream, peer) = support::pair(&listener).await;
                stream.send(vec![0; 16 << 20]).await.unwrap();
                (stream, peer)
            }
            .then(|(stream, peer)| async move {
                // Dropped in a task of its own, after `block_on`, which would wait for it.
                runtime::spawn(async move {
                    let _stream = stream;
                    pending::<()>().await
                });
                peer
            })
        });
        futures::future::try_join_all(tasks).await.unwrap()
    });
    let started = Instant::now();
    runtime.shutdown_timeout(Duration::from_secs(4)).unwrap();
    // Far below the linger of 30 s.
    assert!(
        started.elapsed() < Duration::from_secs(15),
        "{:?}",
        started.elapsed()
    );
    drop(peers);
}

#[test]
fn a_shutdown_through_a_handle_drops_the_tasks_and_leaves_block_on() {
    let _alone = alone("a shutdown through a handle");
    let drops = Arc::new(AtomicUsize::new(0));
    let runtime = build(3);
    runtime.block_on(async {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let (mut stream, mut peer) = support::pair(&listener).await;
        let (sender, mut started) = unbounded();
        let tasks = runtime::spawn_on_each({
            let drops = Arc::clone(&drops);
            move |_| {
                let guard = Guard::new(&drops);
                async move {
                    let _guard = guard;
                    sender.unbounded_send(()).unwrap();
                    pending::<()>().await
                }
            }
        });
        for _ in 0..3 {
            started.next().await.unwrap();
        }
        runtime::spawn_on(1, || async { Handle::current().shutdown() })
            .await
            .unwrap_or_default();
        for task in tasks {
            assert!(task.await.unwrap_err().is_cancelled());
        }
        assert!(runtime::spawn(async {}).await.unwrap_err().is_cancelled());
        assert!(
            runtime::spawn_on(2, || async {})
                .await
                .unwrap_err()
                .is_cancelled()
        );
        // Time to say goodbye.
        stream.write_all(b"bye").await.unwrap();
        stream.close().await.unwrap();
        let mut said = String::new();
        peer.set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        peer.read_to_string(&mut said).unwrap();
        assert_eq!(said, "bye");
    });
    drop(runtime);
    assert_eq!(drops.load(Ordering::SeqCst), 3);
}

/// A destructor may use its runtime, which refuses, and does not hang or panic.
#[test]
fn destructors_on_other_workers_may_spawn_everywhere() {
    struct SpawnOnDrop {
        runtime: Handle,
        home: usize,
        drops: Arc<AtomicUsize>,
        called: Arc<AtomicUsize>,
    }
    impl Drop for SpawnOnDrop {
        fn drop(&mut self) {
            for worker in 0..self.runtime.workers() {
                let guard = Guard::new(&self.drops);
                // The others may not have begun to end.
                let ends = worker == self.home;
                let called = Arc::clone(&self.called);
                drop(self.runtime.spawn_on(worker, move || {
                    called.fetch_add(usize::from(ends), Ordering::SeqCst);
                    async move { drop(guard) }
                }));
            }
        }
    }
    let _alone = alone("spawns in destructors");
    for _ in 0..100 {
        let drops = Arc::new(AtomicUsize::new(0));
        let called = Arc::new(AtomicUsize::new(0));
        let runtime = build(3);
        runtime.block_on(async {
            let tasks = runtime::spawn_on_each({
                let (drops, called) = (Arc::clone(&drops), Arc::clone(&called));
                move |home| {
                    let held = SpawnOnDrop {
                        runtime: Handle::current(),
                        home,
                        drops,
                        called,
                    };
                    async move {
                        drop(runtime::spawn(async move {
                            let _held = held;
                            pending::<()>().await
                        }))
                    }
                }
            });
            futures::future::try_join_all(tasks).await.unwrap();
        });
        drop(runtime);
        assert_eq!(drops.load(Ordering::SeqCst), 9);
        assert_eq!(called.load(Ordering::SeqCst), 0, "on a worker that ends");
    }
}

/// A connection that is used by a worker when the end comes is closed by it.
#[test]
fn the_peers_of_all_workers_see_the_end() {
    let _alone = alone("peers at the end");
    let runtime = build(3);
    let mut peers = runtime.block_on(async {
        let tasks = runtime::spawn_on_each(|_| async {
            let listener = TcpListener::bind(support::loopback()).await.unwrap();
            let (stream, peer) = support::pair(&listener).await;
            runtime::spawn(echo(stream));
            peer
        });
        futures::future::try_join_all(tasks).await.unwrap()
    });
    for peer in &mut peers {
        // Worker 0 sleeps now: only the others answer.
        if peer.peer_addr().is_ok() {
            peer.set_read_timeout(Some(Duration::from_secs(20)))
                .unwrap();
            peer.write_all(b"x").unwrap();
        }
    }
    drop(runtime);
    for mut peer in peers {
        let mut rest = Vec::new();
        let _ = peer.read_to_end(&mut rest);
        assert!(rest.len() <= 1);
    }
}

async fn echo(mut stream: TcpStream) -> std::io::Result<()> {
    let mut buf = [0; 64];
    loop {
        match stream.read(&mut buf).await? {
            0 => return Ok(()),
            len => stream.write_all(&buf[..len]).await?,
        }
    }
}

/// Counts its drop, which must happen on the thread where it was last.
struct Guard {
    home: ThreadId,
    may_move: bool,
    drops: Arc<AtomicUsize>,
}

impl Guard {
    fn new(drops: &Arc<AtomicUsize>) -> Self {
        Self {
            home: thread::current().id(),
            may_move: true,
            drops: Arc::clone(drops),
        }
    }

    /// From now on it stays on this thread.
    fn moved(&mut self) {
        self.home = thread::current().id();
        self.may_move = false;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let here = thread::current().id();
        assert!(self.may_move || here == self.home, "dropped elsewhere");
        self.drops.fetch_add(1, Ordering::SeqCst);
    }
}
