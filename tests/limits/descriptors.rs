//! Out of descriptors. The server is a process of its own, since the limit is the process's.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream as Peer};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use futures::{AsyncReadExt, AsyncWriteExt};
use net::{TcpListener, TcpSocket, TcpStream};
use runtime::Builder;
use support::{Child, Parent, Pinger, Server, Watchdog, handlers};

use crate::alone;

/// Connections that the server has descriptors for.
const ROOM: usize = 40;
/// Descriptors that it holds for no good reason, until it is told to let go.
const BALLAST: usize = 30;
/// Connections beyond the limit.
const SURPLUS: usize = 20;

/// B17.
#[test]
fn running_out_of_descriptors_is_one_error_and_no_spin_and_heals_by_itself() {
    const NAME: &str =
        "descriptors::running_out_of_descriptors_is_one_error_and_no_spin_and_heals_by_itself";
    if let Some(parent) = Parent::in_child(NAME) {
        return serve(&parent);
    }
    let _alone = alone(NAME);
    let mut child = Child::start(NAME);
    let addr: SocketAddr = child.hear().parse().unwrap();

    // The kernel completes the handshakes, so all of them connect; the server has room for the first.
    let mut served = Pinger::new(support::connect_many(addr, ROOM), 64);
    served.rounds(1);
    let surplus = support::connect_many(addr, SURPLUS);
    wait_for_errors(&mut child, 1);
    assert_eq!(status(&mut child).live, ROOM);

    // The outage lasts, and costs nothing.
    let before = status(&mut child);
    thread::sleep(Duration::from_secs(1));
    let after = status(&mut child);
    assert_eq!(after.errors, 1, "one error for the outage");
    let enters = after.enters - before.enters;
    assert!(enters < 100, "{enters} enters in one second of outage");
    served.rounds(10);

    // Descriptors are freed by somebody else: nobody tells the runtime.
    let freed = Instant::now();
    child.ask("free");
    let mut late = Pinger::new(surplus, 64);
    late.rounds(1);
    println!("served again after {:?}", freed.elapsed());
    assert!(
        freed.elapsed() < Duration::from_secs(2),
        "{:?}",
        freed.elapsed()
    );
    // Each descriptor that comes free may be taken before the next one comes free.
    let first = status(&mut child).errors;
    assert!((1..=1 + BALLAST).contains(&first), "{first} errors");

    // The second outage ends because connections close.
    let mut streams = support::connect_many(addr, BALLAST);
    wait_for_errors(&mut child, first + 1);
    served.rounds(1);
    let closed = served.into_streams().len();
    Pinger::new(std::mem::take(&mut streams), 64).rounds(1);
    late.rounds(1);
    let errors = status(&mut child).errors;
    let second = first + 1..=first + 1 + closed;
    assert!(second.contains(&errors), "{errors} errors");
    child.finish();
}

/// B17, B18: connections that were reset while they waited for a descriptor are no reason to stop.
#[test]
fn connections_that_die_while_they_wait_for_a_descriptor_are_survived() {
    const NAME: &str =
        "descriptors::connections_that_die_while_they_wait_for_a_descriptor_are_survived";
    if let Some(parent) = Parent::in_child(NAME) {
        return serve(&parent);
    }
    let _alone = alone(NAME);
    let mut child = Child::start(NAME);
    let addr: SocketAddr = child.hear().parse().unwrap();
    let mut served = Pinger::new(support::connect_many(addr, ROOM), 64);
    served.rounds(1);
    let doomed: Vec<Peer> = support::connect_many(addr, SURPLUS);
    wait_for_errors(&mut child, 1);
    doomed.into_iter().for_each(support::reset);
    served.rounds(1);
    child.ask("free");
    let mut late = Pinger::new(support::connect_many(addr, BALLAST - SURPLUS), 64);
    late.rounds(2);
    served.rounds(1);
    child.finish();
}

/// Connects, listeners and runtimes that find no descriptor say so at once, and do no harm to what there is. Once there
/// are some, nothing remembers the shortage.
#[test]
fn without_descriptors_connects_binds_and_builds_fail_at_once_and_heal() {
    const NAME: &str =
        "descriptors::without_descriptors_connects_binds_and_builds_fail_at_once_and_heal";
    if Parent::in_child(NAME).is_none() {
        let _alone = alone(NAME);
        return Child::start(NAME).finish();
    }
    let _watchdog = Watchdog::start("the child", Duration::from_secs(60));
    let runtime = Builder::new().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (mut stream, mut peer) = support::pair(&listener).await;
        peer.set_nonblocking(true).unwrap();
        let open = support::open_fds();
        for round in 0..20 {
            support::leave_fd_room(0);
            assert_shortage(TcpStream::connect(addr).await.map(drop));
            assert_shortage(TcpListener::bind(support::loopback()).await.map(drop));
            assert_shortage(TcpSocket::new_v4().map(drop));
            // None, or one, which is not enough.
            support::raise_fd_limit();
            support::leave_fd_room(round % 2);
            let error = Builder::new().build().unwrap_err();
            assert!(error.to_string().contains("RLIMIT_NOFILE"), "{error}");
            // What there is goes on.
            peer.write_all(b"ping").unwrap();
            stream.read_exact(&mut [0; 4]).await.unwrap();
            stream.write_all(b"pong").await.unwrap();
            stream.flush().await.unwrap();
            support::settled("an answer", Some(4), || peer.read(&mut [0; 4]).ok()).await;

            support::raise_fd_limit();
            let connected = TcpStream::connect(addr).await.unwrap();
            let mut accepted = listener.accept().await;
            if accepted.is_err() {
                // An accept that began meanwhile was refused a descriptor before it looked for a connection.
                assert_shortage(accepted.map(drop));
                accepted = listener.accept().await;
            }
            drop((connected, accepted.unwrap()));
            drop(TcpListener::bind(support::loopback()).await.unwrap());
            drop(Builder::new().build().unwrap());
            support::settled("open descriptors", open, support::open_fds).await;
        }
    });
}

/// What the kernel can do is found out by the first runtime of a process. If that has too few descriptors to find out, it
/// says so, and nothing is switched off for those that come later.
#[test]
fn a_shortage_at_the_first_start_switches_nothing_off() {
    const NAME: &str = "descriptors::a_shortage_at_the_first_start_switches_nothing_off";
    let features = || {
        Builder::new()
            .build()
            .map(|runtime| runtime.block_on(async { runtime::features().to_string() }))
    };
    let Some(parent) = Parent::in_child(NAME) else {
        let _alone = alone(NAME);
        let mut child = Child::start(NAME);
        assert_eq!(child.hear(), features().unwrap());
        return child.finish();
    };
    let _watchdog = Watchdog::start("the child", Duration::from_secs(60));
    let mut room = 0;
    // As soon as it starts, everything has been found out.
    let found = loop {
        support::raise_fd_limit();
        support::leave_fd_room(room);
        match features() {
            Ok(found) => break found,
            Err(error) => assert!(error.to_string().contains("RLIMIT_NOFILE"), "{error}"),
        }
        room += 1;
    };
    assert!(room > 0, "no runtime without a descriptor");
    support::raise_fd_limit();
    parent.say(&found);
}

fn assert_shortage(result: io::Result<()>) {
    assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EMFILE));
}

/// What the server says about itself.
#[derive(Clone, Copy, Debug)]
struct Status {
    live: usize,
    errors: usize,
    enters: u64,
}

fn status(child: &mut Child) -> Status {
    let answer = child.ask("status");
    let numbers: Vec<u64> = answer
        .split(' ')
        .map(|number| number.parse().unwrap())
        .collect();
    Status {
        live: numbers[0] as usize,
        errors: numbers[1] as usize,
        enters: numbers[2],
    }
}

fn wait_for_errors(child: &mut Child, count: usize) {
    support::eventually("errors of accept", count, || status(child).errors);
}

/// The child.
fn serve(parent: &Parent) {
    let _watchdog = Watchdog::start("the child", Duration::from_secs(60));
    let mut ballast: Vec<File> = (0..BALLAST)
        .map(|_| File::open("/dev/null").unwrap())
        .collect();
    let build = || {
        let runtime = Builder::new().build().unwrap();
        // Now, because an accept that is armed keeps the limit of that moment. The listener is still to come.
        support::leave_fd_room(ROOM + 1);
        runtime
    };
    let server = Server::start_on(build, counted_echo);
    parent.say(&server.addr().to_string());
    let mut errors = 0;
    while let Some(command) = parent.hear() {
        if command == "free" {
            ballast.clear();
        }
        let taken: Vec<io::Error> = server.take_accept_errors();
        for error in &taken {
            assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{error}");
        }
        errors += taken.len();
        let (live, enters) =
            server.run(|| (LIVE.with(|live| live.get()), runtime::metrics().enters));
        parent.say(&format!("{live} {errors} {enters}"));
    }
}

thread_local! {
    /// Connections of this worker.
    static LIVE: Rc<Cell<usize>> = Rc::default();
}

async fn counted_echo(stream: TcpStream) -> io::Result<()> {
    let _counted = Counted::new();
    handlers::echo_copy(stream).await
}

struct Counted(Rc<Cell<usize>>);

impl Counted {
    fn new() -> Self {
        let live = LIVE.with(Rc::clone);
        live.set(live.get() + 1);
        Self(live)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
