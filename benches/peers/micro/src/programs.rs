//! The programs. Each does a number of operations, and returns what they have cost.
//!
//! What runs on one thread counts the CPU time of that thread, so that other processes on a busy machine are not in it;
//! what crosses threads counts the time that passes.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::channel::oneshot;
use futures::future::join_all;
use futures::{StreamExt, poll};

use crate::Runtime;

/// Tasks that do nothing, spawned a hundred at a time, detached, and run.
pub fn spawn<R: Runtime>(runtime: &R, count: u64) -> Duration {
    in_task(runtime, async move {
        let clock = Clock::cpu();
        for number in 1..=count {
            drop(R::spawn(async {}));
            if number.is_multiple_of(100) {
                // Behind all of them in the run queue.
                R::yield_now().await;
            }
        }
        R::yield_now().await;
        clock.stop()
    })
}

/// One task at a time: spawned, run, and awaited.
pub fn join<R: Runtime>(runtime: &R, count: u64) -> Duration {
    in_task(runtime, async move {
        let clock = Clock::cpu();
        for _ in 0..count {
            R::spawn(async {}).await;
        }
        clock.stop()
    })
}

/// The only task there is.
pub fn yield_alone<R: Runtime>(runtime: &R, count: u64) -> Duration {
    in_task(runtime, async move {
        let clock = Clock::cpu();
        yields::<R>(count).await;
        clock.stop()
    })
}

/// One of a hundred tasks that all do so.
pub fn yield_among_many<R: Runtime>(runtime: &R, count: u64) -> Duration {
    in_task(runtime, async move {
        let clock = Clock::cpu();
        join_all((0..100).map(|_| R::spawn(yields::<R>(count.div_ceil(100))))).await;
        clock.stop()
    })
}

async fn yields<R: Runtime>(count: u64) {
    for _ in 0..count {
        R::yield_now().await;
    }
}

/// A task is woken while it runs, and polled again.
pub fn wake<R: Runtime>(runtime: &R, count: u64) -> Duration {
    in_task(runtime, async move {
        let clock = Clock::cpu();
        let mut left = count;
        poll_fn(|cx| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        clock.stop()
    })
}

/// A message to another task on the same thread, and its answer: two wakes.
pub fn ping_pong<R: Runtime>(runtime: &R, count: u64) -> Duration {
    in_task(runtime, async move {
        let (ping, pings) = unbounded();
        let (pong, pongs) = unbounded();
        let echo = R::spawn(echo(pings, pong));
        let clock = Clock::cpu();
        messages(&ping, pongs, count).await;
        let cost = clock.stop();
        drop(ping);
        echo.await;
        cost
    })
}

/// A future that is ready at once.
pub fn block_on<R: Runtime>(runtime: &R, count: u64) -> Duration {
    let clock = Clock::cpu();
    for _ in 0..count {
        runtime.block_on(async {});
    }
    clock.stop()
}

/// A timer that is made, started and dropped, one at a time.
pub fn cancel_one<R: Runtime>(runtime: &R, count: u64) -> Duration {
    runtime.block_on(cancel_each::<R>(count))
}

/// The same behind an earlier timer.
pub fn cancel_one_behind<R: Runtime>(runtime: &R, count: u64) -> Duration {
    runtime.block_on(async {
        let _earlier = earlier::<R>().await;
        cancel_each::<R>(count).await
    })
}

async fn cancel_each<R: Runtime>(count: u64) -> Duration {
    let clock = Clock::cpu();
    for number in 0..count {
        let mut sleep = pin!(R::sleep(due(number, FAR.0, FAR.1)));
        let _pending = poll!(&mut sleep);
    }
    clock.stop()
}

/// A [`LOT`] of timers, all started before the first is dropped; so many times.
pub fn cancel_lot<R: Runtime>(runtime: &R, count: u64) -> Duration {
    runtime.block_on(cancel_lots::<R>(count))
}

/// The same behind an earlier timer.
pub fn cancel_lot_behind<R: Runtime>(runtime: &R, count: u64) -> Duration {
    runtime.block_on(async {
        let _earlier = earlier::<R>().await;
        cancel_lots::<R>(count).await
    })
}

async fn cancel_lots<R: Runtime>(count: u64) -> Duration {
    let mut cost = Duration::ZERO;
    for _ in 0..count {
        let clock = Clock::cpu();
        drop(start_all::<R>(FAR.0, FAR.1).await);
        cost += clock.stop();
    }
    cost
}

/// A [`LOT`] of timers fire within a tenth of a second, all for one task; so many times. Starting them is not counted.
pub fn fire_lot<R: Runtime>(runtime: &R, count: u64) -> Duration {
    runtime.block_on(async {
        let (mut cost, mut lots, mut lead) = (Duration::ZERO, 0, Duration::from_secs(1));
        while lots < count {
            let begun = Clock::wall();
            let sleeps = start_all::<R>(lead, 100).await;
            let taken = begun.stop();
            if taken >= lead {
                // Some were due before they all were there.
                lead = 2 * taken;
                continue;
            }
            let clock = Clock::cpu();
            for sleep in sleeps {
                sleep.await;
            }
            cost += clock.stop();
            lots += 1;
        }
        cost
    })
}

/// A timer that is due before the others and has been seen by the driver, as there is one in most servers. Without it each
/// of the others would be the first, for which tokio interrupts its driver by a system call.
async fn earlier<R: Runtime>() -> Pin<Box<impl Future<Output = ()>>> {
    let mut sleep = Box::pin(R::sleep(FAR.0 / 2));
    let _pending = poll!(&mut sleep);
    R::sleep(Duration::from_millis(1)).await;
    sleep
}

async fn start_all<R: Runtime>(
    lead: Duration,
    spread_ms: u64,
) -> Vec<Pin<Box<impl Future<Output = ()>>>> {
    let sleep = |number| Box::pin(R::sleep(due(number, lead, spread_ms)));
    let mut sleeps: Vec<_> = (0..LOT).map(sleep).collect();
    for sleep in &mut sleeps {
        let _pending = poll!(sleep);
    }
    sleeps
}

/// Scattered, and the same in every run.
fn due(number: u64, lead: Duration, spread_ms: u64) -> Duration {
    let scattered = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % spread_ms;
    lead + Duration::from_millis(scattered)
}

/// A message to a task on another thread, and its answer: two wakes across threads.
pub fn remote_ping_pong<R: Runtime>(runtime: &R, count: u64) -> Duration {
    runtime.block_on(async {
        let (ping, pings) = unbounded();
        let (pong, pongs) = unbounded();
        let echo = R::spawn_elsewhere(echo(pings, pong));
        let clock = Clock::wall();
        messages(&ping, pongs, count).await;
        let cost = clock.stop();
        drop(ping);
        echo.await;
        cost
    })
}

/// One task at a time: spawned onto another thread, run there, and awaited here.
pub fn remote_join<R: Runtime>(runtime: &R, count: u64) -> Duration {
    runtime.block_on(async {
        let clock = Clock::wall();
        for _ in 0..count {
            R::spawn_elsewhere(async {}).await;
        }
        clock.stop()
    })
}

async fn messages(ping: &UnboundedSender<()>, mut pongs: UnboundedReceiver<()>, count: u64) {
    for _ in 0..count {
        ping.unbounded_send(()).expect(LISTENS);
        pongs.next().await.expect(LISTENS);
    }
}

async fn echo(mut pings: UnboundedReceiver<()>, pong: UnboundedSender<()>) {
    while pings.next().await.is_some() {
        // The last one may have gone.
        let _ = pong.unbounded_send(());
    }
}

/// Most programs are tasks, and not what `block_on` was given.
fn in_task<R: Runtime>(
    runtime: &R,
    program: impl Future<Output = Duration> + Send + 'static,
) -> Duration {
    runtime.block_on(async {
        let (sender, receiver) = oneshot::channel();
        let task = R::spawn(async { sender.send(program.await).expect(LISTENS) });
        task.await;
        receiver.await.expect(LISTENS)
    })
}

/// The time since some moment.
pub struct Clock {
    id: libc::clockid_t,
    start: Duration,
}

impl Clock {
    /// CPU time of this thread.
    pub fn cpu() -> Self {
        Self::start(libc::CLOCK_THREAD_CPUTIME_ID)
    }

    pub fn wall() -> Self {
        Self::start(libc::CLOCK_MONOTONIC)
    }

    fn start(id: libc::clockid_t) -> Self {
        let start = now(id);
        Self { id, start }
    }

    pub fn stop(self) -> Duration {
        now(self.id) - self.start
    }
}

fn now(id: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills one timespec, which outlives the call.
    let result = unsafe { libc::clock_gettime(id, &raw mut time) };
    assert_eq!(result, 0, "Linux has both clocks");
    // Neither clock is negative.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Like the time limits of requests: after ten seconds, within a minute.
const FAR: (Duration, u64) = (Duration::from_secs(10), 50_000);
/// Timers of a lot.
pub const LOT: u64 = 1_000_000;
const LISTENS: &str = "the other side listens";
