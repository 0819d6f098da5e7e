//! What a connection costs while nothing happens on it: a little memory, and no time at all.
//!
//! The server is a process of its own, so that each side has descriptors enough and the memory is the server's.

use std::net::{SocketAddr, TcpStream as Peer};
use std::thread;
use std::time::Duration;

use net::TcpStream;
use support::{Child, Parent, Pinger, Server, ThreadUsage, Watchdog, handlers};

const WARM_UP: usize = 1_000;
const CONNECTIONS: usize = 10_000;
const LIMIT_BYTES: usize = 1024;
/// How long the server is watched while it has nothing to do.
const WATCHED: Duration = Duration::from_secs(2);

#[test]
fn idle_copying_connections_cost_at_most_a_kibibyte_and_no_time() {
    const NAME: &str = "idle_copying_connections_cost_at_most_a_kibibyte_and_no_time";
    match Parent::in_child(NAME) {
        Some(parent) => serve(&parent, handlers::echo_copy_buf),
        None => check(NAME),
    }
}

#[test]
fn idle_leasing_connections_cost_at_most_a_kibibyte_and_no_time() {
    const NAME: &str = "idle_leasing_connections_cost_at_most_a_kibibyte_and_no_time";
    match Parent::in_child(NAME) {
        Some(parent) => serve(&parent, handlers::echo_lease),
        None => check(NAME),
    }
}

fn check(name: &str) {
    let _alone = support::alone(name, Duration::from_secs(120));
    support::raise_fd_limit();
    let mut child = Child::start(name);
    let addr = child.hear().parse().unwrap();
    assert_costs_no_time(&mut child, 0);

    let warm = open_and_ping(addr, WARM_UP);
    let before: usize = child.ask("memory").parse().unwrap();
    let idle = open_and_ping(addr, CONNECTIONS);
    let after: usize = child.ask("memory").parse().unwrap();
    let each = after.saturating_sub(before) / CONNECTIONS;
    println!("{each} bytes for each idle connection");
    assert!(each <= LIMIT_BYTES, "{each} bytes for each idle connection");

    assert_costs_no_time(&mut child, CONNECTIONS);
    // They were idle, not dead.
    Pinger::new(idle, 64).rounds(1);
    drop(warm);
    child.finish();
}

/// Each connection has echoed one message, like one that is used now and then. Only a few do so at the same time:
/// what a burst needs is not what an idle connection costs.
fn open_and_ping(addr: SocketAddr, count: usize) -> Vec<Peer> {
    const AT_ONCE: usize = 50;
    let mut streams = Vec::new();
    while streams.len() < count {
        let mut pinger = Pinger::new(support::connect_many(addr, AT_ONCE), 64);
        pinger.rounds(1);
        streams.extend(pinger.into_streams());
    }
    streams
}

fn assert_costs_no_time(child: &mut Child, connections: usize) {
    let answer = child.ask("idle");
    println!("{connections} idle connections, {WATCHED:?}: {answer}");
    let mut numbers = answer.split(' ').map(|number| number.parse().unwrap());
    let mut next = || -> u64 { numbers.next().unwrap() };
    let (enters, sleeps, cpu_ns) = (next(), next(), next());
    // The two questions for the counters wake the worker, and each may take a turn more to fall asleep again. Once a
    // second it looks whether connections that have just gone quiet are still there, at some of them.
    let looks = if connections > 0 {
        WATCHED.as_secs() + 1
    } else {
        0
    };
    assert!(enters <= 4 + looks, "{enters} enters with nothing to do");
    assert!(sleeps <= 4 + looks, "{sleeps} wake-ups with nothing to do");
    let cpu = Duration::from_nanos(cpu_ns);
    let bound = Duration::from_millis(20) * support::patience();
    assert!(cpu < bound, "{cpu:?} of CPU with nothing to do");
}

/// The child: answers questions about itself until the parent has no more.
fn serve<H, F>(parent: &Parent, handler: H)
where
    H: Fn(TcpStream) -> F + Send + 'static,
    F: Future<Output = std::io::Result<()>> + 'static,
{
    without_huge_pages();
    let _watchdog = Watchdog::start("the child", Duration::from_secs(120));
    support::raise_fd_limit();
    let server = Server::start(handler);
    let worker = server.run(support::thread_id);
    parent.say(&server.addr().to_string());
    while let Some(question) = parent.hear() {
        let answer = match question.as_str() {
            "memory" => support::resident_bytes().to_string(),
            _ => idle_usage(&server, worker),
        };
        parent.say(&answer);
    }
    server.stop();
}

/// What a huge page holds beyond what was asked for is no connection's.
fn without_huge_pages() {
    // SAFETY: has no memory arguments.
    let done = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// Enters, sleeps and nanoseconds of CPU of the worker while nobody wants anything from it.
fn idle_usage(server: &Server, worker: i32) -> String {
    let enters_before = server.metrics().enters;
    let before: ThreadUsage = support::thread_usage(worker);
    // Doing nothing for a while is what is measured here.
    thread::sleep(WATCHED);
    let after = support::thread_usage(worker);
    let enters = server.metrics().enters - enters_before;
    let sleeps = after.sleeps - before.sleeps;
    format!("{enters} {sleeps} {}", after.cpu_ns - before.cpu_ns)
}
