//! One call of the kernel per turn of the loop, and no other call.
//!
//! The budgets hold on the ring with multishot receives and silent sends, the rung that a current kernel gives. On
//! lower rungs a message costs more, by design, so there these tests check only that the messages arrive.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use futures::{AsyncReadExt, AsyncWriteExt};
use net::TcpStream;
use runtime::Metrics;
use support::{CallCounter, Calls, Pinger, Server, Watchdog};

const MESSAGES: u64 = 100_000;
const MESSAGE_LEN: usize = 64;
/// By then the receive is armed and all memory is there.
const WARM_UP: u64 = 1_000;

#[test]
fn one_connection_costs_one_enter_per_message_and_no_other_call() {
    let _watchdog = Watchdog::start("ping-pong", Duration::from_secs(120));
    let (sender, report) = channel();
    let server = Server::start(move |stream| measured_echo(stream, sender.clone()));
    let mut pinger = Pinger::new(support::connect_many(server.addr(), 1), MESSAGE_LEN);
    pinger.rounds((WARM_UP + messages()) as usize);
    let cost = report.recv().unwrap();
    drop(pinger);
    server.stop();
    println!("{cost:?}");
    if !cost.is_on_the_fast_rung() {
        return println!("no silent sends on this rung: budgets not checked");
    }
    assert!(cost.enters <= messages() * 105 / 100, "{cost:?}");
    // A multishot receive stays armed, so all that is submitted is one send per message.
    let per_message = if runtime::features().multishot_recv.is_on() {
        1
    } else {
        2
    };
    assert!(
        cost.submissions <= per_message * messages() * 101 / 100,
        "{cost:?}"
    );
    // And a send that went through says nothing.
    assert!(cost.completions <= messages() * 101 / 100, "{cost:?}");
    // Without provided buffers a receive waits for readiness and then calls `recv`.
    let expected: &[_] = match runtime::features().buffer_ring.is_on() {
        true => &[],
        false => &[(libc::SYS_recvfrom as usize, messages())],
    };
    if let Some(other_calls) = &cost.other_calls {
        assert_eq!(other_calls, expected);
    }
}

#[test]
fn fifty_connections_share_their_enters() {
    const CONNECTIONS: usize = 50;
    let _watchdog = Watchdog::start("ping-pong of 50", Duration::from_secs(120));
    let server = Server::start(support::handlers::echo_copy);
    let streams = support::connect_many(server.addr(), CONNECTIONS);
    let mut pinger = Pinger::new(streams, MESSAGE_LEN);
    pinger.rounds(20);
    let before = server.metrics();
    pinger.rounds(messages() as usize / CONNECTIONS);
    let after = server.metrics();
    drop(pinger);
    server.stop();
    let enters = after.enters - before.enters;
    println!("{enters} enters for {} messages", messages());
    if after.silent_sends == 0 {
        return println!("no silent sends on this rung: budgets not checked");
    }
    assert!(enters <= messages() / 2, "{enters} enters");
}

/// How many are counted here and now.
fn messages() -> u64 {
    support::rounds(MESSAGES as usize) as u64
}

/// What the worker has counted so far.
struct Counters {
    metrics: Metrics,
    calls: Option<Calls>,
}

impl Counters {
    /// From inside: asking from another thread would cost calls. To look at the metrics is one itself, which so comes
    /// before the calls that are counted.
    fn before(calls: Option<&CallCounter>) -> Self {
        let metrics = runtime::metrics();
        let calls = calls.map(CallCounter::snapshot);
        Self { metrics, calls }
    }

    /// And here after them.
    fn after(calls: Option<&CallCounter>) -> Self {
        let calls = calls.map(CallCounter::snapshot);
        let metrics = runtime::metrics();
        Self { metrics, calls }
    }
}

/// What the steady state has cost.
#[derive(Debug)]
struct Cost {
    enters: u64,
    submissions: u64,
    completions: u64,
    silent_sends: u64,
    /// By number. `None` where the calls could not be watched.
    other_calls: Option<Vec<(usize, u64)>>,
}

impl Cost {
    fn between(before: &Counters, after: &Counters) -> Self {
        let calls = before.calls.as_ref().zip(after.calls.as_ref());
        Self {
            enters: after.metrics.enters - before.metrics.enters,
            submissions: after.metrics.submissions - before.metrics.submissions,
            completions: after.metrics.completions - before.metrics.completions,
            silent_sends: after.metrics.silent_sends - before.metrics.silent_sends,
            other_calls: calls.map(|(before, after)| CallCounter::difference(before, after)),
        }
    }

    fn is_on_the_fast_rung(&self) -> bool {
        self.silent_sends > 0
    }
}

async fn measured_echo(mut stream: TcpStream, report: Sender<Cost>) -> io::Result<()> {
    let calls = CallCounter::watch_this_thread();
    let mut buf = [0; MESSAGE_LEN];
    for _ in 0..WARM_UP {
        echo_one(&mut stream, &mut buf).await?;
    }
    let clock_is_called = calls.as_ref().is_some_and(is_clock_called);
    let before = Counters::before(calls.as_ref());
    for _ in 0..messages() {
        echo_one(&mut stream, &mut buf).await?;
    }
    let after = Counters::after(calls.as_ref());
    let mut cost = Cost::between(&before, &after);
    if clock_is_called && let Some(calls) = &mut cost.other_calls {
        calls.retain(|&(number, _)| number != CLOCK);
    }
    report.send(cost).unwrap();
    Ok(())
}

/// Whether the clock is a system call here, as on emulated machines. Elsewhere it is read from memory, and a clock that
/// is called is one too many.
fn is_clock_called(calls: &CallCounter) -> bool {
    let before = calls.snapshot();
    let _now = Instant::now();
    calls.snapshot()[CLOCK] > before[CLOCK]
}

const CLOCK: usize = libc::SYS_clock_gettime as usize;

async fn echo_one(stream: &mut TcpStream, buf: &mut [u8; MESSAGE_LEN]) -> io::Result<()> {
    stream.read_exact(buf).await?;
    stream.write_all(buf).await
}
