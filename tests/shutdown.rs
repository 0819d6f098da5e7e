//! The end of a runtime: nothing that is pending holds it up, all is given back, and what outlives it is harmless.

use std::cell::Cell;
use std::future::{Future, pending, poll_fn};
use std::io::{Read, Write};
use std::net::TcpStream as Peer;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use futures::channel::oneshot;
use futures::executor::block_on;
use futures::{AsyncReadExt, AsyncWriteExt, FutureExt, StreamExt};
use net::{TcpListener, TcpStream};
use runtime::time::sleep;
use runtime::{Builder, JoinHandle, Runtime};
use support::{Alone, Blackhole, open_fds, pattern, settled};

const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// B06.
#[test]
fn nothing_that_is_pending_holds_up_the_exit() {
    let _alone = alone("an exit with all sorts of pending ops");
    let blackhole = Blackhole::new();
    for _ in 0..5 {
        let fds_before = open_fds();
        let drops = Drops::new();
        let runtime = build();
        let (left, peers) = runtime.block_on(leave_all_sorts_pending(&drops, &blackhole));
        let started = Instant::now();
        drop(runtime);
        assert!(
            left.elapsed() < Duration::from_secs(5),
            "{:?}",
            left.elapsed()
        );
        println!("drop of the runtime: {:?}", started.elapsed());
        assert_eq!(drops.count(), PENDING_TASKS, "tasks that were dropped");
        drop(peers);
        assert_eq!(open_fds(), fds_before, "open descriptors");
    }
}

/// An armed accept, 100 armed receives, a connect to nobody and a sleep of a year.
const PENDING_TASKS: usize = 103;

async fn leave_all_sorts_pending(drops: &Drops, blackhole: &Blackhole) -> (Instant, Vec<Peer>) {
    let ops_before = runtime::metrics().ops;
    let listener = TcpListener::bind(support::loopback()).await.unwrap();
    let mut peers = Vec::new();
    for _ in 0..100 {
        let (mut stream, peer) = support::pair(&listener).await;
        peers.push(peer);
        drops.spawn(async move { stream.read(&mut [0]).await.map(|_| ()) });
    }
    drops.spawn(async move { listener.incoming().next().await.unwrap().map(|_| ()) });
    let nobody = blackhole.addr();
    drops.spawn(async move { TcpStream::connect(nobody).await.map(|_| ()) });
    drops.spawn(async {
        sleep(A_YEAR).await;
        Ok(())
    });
    let all_armed = || runtime::metrics().ops >= ops_before + PENDING_TASKS - 1;
    settled("all ops are in flight", true, all_armed).await;
    (Instant::now(), peers)
}

/// B07: the ops are complete when the runtime goes, and nobody has been told yet.
#[test]
fn completions_that_no_task_has_seen_do_not_hold_up_the_exit() {
    const STREAMS: usize = 100;
    let _alone = alone("unseen completions");
    let fds_before = open_fds();
    for round in 0..50 {
        let runtime = build();
        let drops = Drops::new();
        let peers = runtime.block_on(async {
            let listener = TcpListener::bind(support::loopback()).await.unwrap();
            let mut peers = Vec::new();
            for _ in 0..STREAMS {
                let (mut stream, peer) = support::pair(&listener).await;
                peers.push(peer);
                drops.spawn(async move {
                    stream.read_exact(&mut [0]).await?;
                    pending().await
                });
            }
            for _ in 0..round {
                runtime::yield_now().await;
            }
            peers
                .iter_mut()
                .for_each(|peer| peer.write_all(b"unread").unwrap());
            // From none to a few: with luck there is a turn in which the driver knows and the tasks do not.
            for _ in 0..round % 4 {
                runtime::yield_now().await;
            }
            peers
        });
        drop(runtime);
        assert_eq!(drops.count(), STREAMS, "tasks that were dropped");
        drop(peers);
    }
    assert_eq!(open_fds(), fds_before, "open descriptors");
}

/// B08: the queue holds eight entries, so the cancels of the end do not fit, while peers go on sending.
#[test]
fn cancels_that_do_not_fit_into_the_ring_do_not_hold_up_the_exit() {
    const STREAMS: usize = 200;
    let _alone = alone("an exit with a small ring");
    let fds_before = open_fds();
    for _ in 0..20 {
        let drops = Drops::new();
        let runtime = Builder::new()
            .ring_entries(8)
            .completion_entries(16)
            .build()
            .unwrap();
        let mut peers = runtime.block_on(async {
            let ops_before = runtime::metrics().ops;
            let listener = TcpListener::bind(support::loopback()).await.unwrap();
            let mut peers = Vec::new();
            for _ in 0..STREAMS {
                let (mut stream, peer) = support::pair(&listener).await;
                peers.push(peer);
                drops.spawn(async move {
                    stream.read_exact(&mut [0; 100]).await?;
                    pending().await
                });
            }
            let all_armed = || runtime::metrics().ops >= ops_before + STREAMS;
            settled("receives are armed", true, all_armed).await;
            peers
        });
        let sending = thread::spawn(move || {
            for peer in &mut peers {
                // It may be closed already.
                let _ = peer.write_all(b"too late for anybody");
            }
            peers
        });
        let started = Instant::now();
        drop(runtime);
        assert!(started.elapsed() < Duration::from_secs(5));
        assert_eq!(drops.count(), STREAMS, "tasks that were dropped");
        drop(sending.join().unwrap());
        assert_eq!(open_fds(), fds_before, "open descriptors");
    }
}

/// B09.
#[test]
fn sockets_that_are_dropped_last_of_all_are_closed() {
    const PAIRS: usize = 1_000;
    let _alone = alone("last drops");
    let fds_before = open_fds();
    let runtime = build();
    for _ in 0..2 {
        runtime.block_on(async {
            let listener = TcpListener::bind(support::loopback()).await.unwrap();
            let mut pairs = Vec::new();
            for _ in 0..PAIRS {
                pairs.push(support::pair(&listener).await);
            }
            drop(pairs);
        });
    }
    drop(runtime);
    assert_eq!(open_fds(), fds_before, "open descriptors");
}

/// B10.
#[test]
fn a_thousand_runtimes_leave_nothing_behind() {
    let _alone = alone("1,000 runtimes");
    let fds_before = open_fds();
    let mut resident_before = 0;
    for round in 0..1_000 {
        if round == 100 {
            resident_before = support::resident_bytes();
        }
        let drops = Drops::new();
        let runtime = build();
        let peer = runtime.block_on(async {
            let listener = TcpListener::bind(support::loopback()).await.unwrap();
            let (mut stream, mut peer) = support::pair(&listener).await;
            peer.write_all(b"hello").unwrap();
            stream.read_exact(&mut [0; 5]).await.unwrap();
            drops.spawn(async move { stream.read(&mut [0]).await.map(|_| ()) });
            for _ in 0..20 {
                drops.spawn(async {
                    sleep(A_YEAR).await;
                    Ok(())
                });
            }
            runtime::yield_now().await;
            peer
        });
        drop(runtime);
        drop(peer);
        assert_eq!(drops.count(), 21, "tasks that were dropped");
        assert_eq!(open_fds(), fds_before, "open descriptors");
    }
    let grown = support::resident_bytes().saturating_sub(resident_before);
    assert!(grown < 4 << 20, "900 runtimes left {grown} bytes");
}

#[test]
fn tasks_are_dropped_with_the_runtime_even_if_they_spawn_in_their_destructors() {
    struct SpawnOnDrop(Rc<Cell<usize>>);
    impl Drop for SpawnOnDrop {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
            if self.0.get() < 10 {
                let next = SpawnOnDrop(self.0.clone());
                // May be refused with a panic, since the runtime is going: then `next` is dropped in the unwinding.
                let spawn = move || drop(runtime::spawn(hold(next)));
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(spawn));
            }
        }
    }
    async fn hold(_held: SpawnOnDrop) {
        pending().await
    }

    let _alone = alone("spawns in destructors");
    let drops = Rc::new(Cell::new(0));
    let runtime = build();
    runtime.block_on(async {
        runtime::spawn(hold(SpawnOnDrop(drops.clone())));
        runtime::yield_now().await;
    });
    drop(runtime);
    assert_eq!(
        Rc::strong_count(&drops),
        1,
        "somebody still holds the counter"
    );
    assert!(drops.get() >= 1);
}

#[test]
fn a_stream_that_outlives_its_runtime_is_harmless() {
    let _alone = alone("a stream that outlives its runtime");
    let fds_before = open_fds();
    let (mut stream, mut idle, listener, mut peer) = block_on_and_drop(async {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let (mut stream, peer) = support::pair(&listener).await;
        let (idle, _) = support::pair(&listener).await;
        // Its receive and the listener's accept are in flight at the end.
        assert!(stream.read(&mut [0]).now_or_never().is_none());
        runtime::yield_now().await;
        (stream, idle, listener, peer)
    });
    assert_harmless(&mut stream);
    assert_harmless(&mut idle);
    assert!(block_on(listener.accept()).is_err());
    drop((idle, listener));
    // Another runtime is not its home either, and does not wait for it for ever.
    build().block_on(async {
        assert!(matches!(stream.read(&mut [0]).await, Ok(0) | Err(_)));
        assert!(stream.write(b"hello").await.is_err());
    });
    drop(stream);
    peer.set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    // FIN or RST: the socket is closed with its last owner, also without a ring.
    assert!(matches!(peer.read(&mut [0]), Ok(0) | Err(_)));
    drop(peer);
    assert_eq!(open_fds(), fds_before, "open descriptors");
}

/// B30.
#[test]
fn a_lease_that_outlives_its_runtime_keeps_its_bytes() {
    let _alone = alone("a lease that outlives its runtime");
    let (mut lease, _stream) = block_on_and_drop(async {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let (mut stream, mut peer) = support::pair(&listener).await;
        peer.write_all(&pattern::bytes(0, 1000)).unwrap();
        let chunk = stream.recv_stream().next().await.unwrap().unwrap();
        assert_eq!(chunk.len(), 1000, "a small write arrives whole");
        (chunk, stream)
    });
    // Whoever gets freed memory next overwrites it.
    let noise = vec![vec![0xEE_u8; 16 << 10]; 300];
    pattern::check(&lease, 0);
    let head = lease.split_to(100);
    drop(noise);
    pattern::check(&head, 0);
    pattern::check(&lease, 100);
    drop(head);
    lease.advance(100);
    pattern::check(&Vec::from(lease), 200);
}

#[test]
fn wakers_that_outlive_their_runtime_are_harmless() {
    let _alone = alone("wakers that outlive their runtime");
    let wakers = block_on_and_drop(async {
        let main = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        let (sender, task) = oneshot::channel();
        runtime::spawn(async move {
            sender
                .send(poll_fn(|cx| Poll::Ready(cx.waker().clone())).await)
                .unwrap();
            pending::<()>().await
        });
        let finished = runtime::spawn(poll_fn(|cx| Poll::Ready(cx.waker().clone())));
        [main, task.await.unwrap(), finished.await.unwrap()]
    });
    wakers.iter().for_each(Waker::wake_by_ref);
    let foreign = wakers.clone();
    thread::spawn(move || foreign.into_iter().for_each(Waker::wake))
        .join()
        .unwrap();
    // A runtime that has come since is not disturbed by them.
    let runtime = build();
    runtime.block_on(async {
        wakers.iter().for_each(Waker::wake_by_ref);
        runtime::yield_now().await;
    });
    drop(runtime);
    wakers.into_iter().for_each(Waker::wake);
}

#[test]
fn join_handles_that_outlive_their_runtime_have_an_answer() {
    let _alone = alone("handles that outlive their runtime");
    let (mut stuck, done, aborted, failed) = block_on_and_drop(async {
        let stuck = runtime::spawn(pending::<()>());
        let done = runtime::spawn(async { String::from("done") });
        let aborted = runtime::spawn(pending::<()>());
        let failed = runtime::spawn(async { std::panic::panic_any("failed") });
        aborted.abort();
        settled("the tasks have run", true, || {
            done.is_finished() && failed.is_finished()
        })
        .await;
        (stuck, done, aborted, failed)
    });
    let answer = |handle: &mut JoinHandle<()>| Pin::new(handle).now_or_never().expect("an answer");
    assert!(answer(&mut stuck).unwrap_err().is_cancelled());
    assert_eq!(done.now_or_never().expect("an answer").unwrap(), "done");
    aborted.abort();
    assert!(
        aborted
            .now_or_never()
            .expect("an answer")
            .unwrap_err()
            .is_cancelled()
    );
    assert!(
        failed
            .now_or_never()
            .expect("an answer")
            .unwrap_err()
            .is_panic()
    );
}

/// Remote wakes come in while the runtime goes.
#[test]
fn wakes_from_another_thread_may_cross_the_exit() {
    let _alone = alone("wakes across the exit");
    for _ in 0..200 {
        let runtime = build();
        let (waker_sender, waker) = std::sync::mpsc::channel::<Waker>();
        let wakes = Arc::new(AtomicUsize::new(0));
        let waking = thread::spawn({
            let wakes = wakes.clone();
            move || {
                let waker = waker.recv().unwrap();
                for _ in 0..200 {
                    waker.wake_by_ref();
                    wakes.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        runtime.block_on(async {
            runtime::spawn(poll_fn(move |cx| {
                let _ = waker_sender.send(cx.waker().clone());
                Poll::<()>::Pending
            }));
            settled("the first wake", true, || wakes.load(Ordering::Relaxed) > 0).await;
        });
        drop(runtime);
        waking.join().unwrap();
    }
}

fn build() -> Runtime {
    Builder::new().build().unwrap()
}

fn block_on_and_drop<T>(future: impl Future<Output = T>) -> T {
    let runtime = build();
    let output = runtime.block_on(future);
    drop(runtime);
    output
}

/// Whatever is asked of it, it answers, and the answer is not a panic. Another executor asks, as ours is gone.
fn assert_harmless(stream: &mut TcpStream) {
    assert!(block_on(stream.read(&mut [0])).is_err());
    assert!(block_on(stream.write(b"hello")).is_err());
    // An error is told once; after that the stream has ended.
    assert!(matches!(stream.try_read(&mut [0]), Ok(0) | Err(_)));
    assert!(stream.try_write(b"hello").is_err());
    assert!(stream.peer_addr().is_ok());
    let _ = block_on(stream.flush());
    let _ = block_on(stream.close());
}

fn alone(what: &str) -> Alone {
    support::alone(what, Duration::from_secs(60))
}

/// Counts the tasks that were dropped while they were pending, each on the thread that it lived on.
#[derive(Clone)]
struct Drops {
    count: Rc<Cell<usize>>,
    home: ThreadId,
}

impl Drops {
    fn new() -> Self {
        Self {
            count: Rc::default(),
            home: thread::current().id(),
        }
    }

    /// Spawns a task that is counted when it is dropped, and that never ends by itself.
    fn spawn(&self, future: impl Future<Output = std::io::Result<()>> + 'static) {
        let guard = DropGuard(self.clone());
        runtime::spawn(async move {
            let _guard = guard;
            let result = future.await;
            panic!("a pending task has ended: {result:?}");
        });
    }

    fn count(&self) -> usize {
        self.count.get()
    }
}

struct DropGuard(Drops);

impl Drop for DropGuard {
    fn drop(&mut self) {
        assert_eq!(
            thread::current().id(),
            self.0.home,
            "dropped on another thread"
        );
        // A task that has ended panics, and does not count.
        if !thread::panicking() {
            self.0.count.set(self.0.count.get() + 1);
        }
    }
}
