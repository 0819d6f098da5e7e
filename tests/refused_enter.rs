//! A kernel that is short of something refuses single calls to enter the ring (B01, B22). Nothing that was queued is
//! lost or done twice, nothing that is in flight is freed, and the program is not told.

use std::time::Duration;

use net::TcpStream;
use runtime::{Backend, Builder};
use support::{EnterRefuser, Fate, Pinger, Rng, Server, Watchdog, handlers, partial};

const CONNECTIONS: usize = 50;
const MESSAGE: usize = 3_000;

/// B01, B22.
#[test]
fn an_enter_that_is_refused_now_and_then_loses_nothing() {
    check("every third enter is refused", |call| {
        (call % 3 == 0).then(|| ERRORS[call as usize / 3 % ERRORS.len()])
    });
}

/// B01, B22: as long as it is refused, the runtime is patient.
#[test]
fn an_enter_that_is_refused_many_times_in_a_row_loses_nothing() {
    check("ten of twenty enters are refused", |call| {
        (call % 20 >= 10).then(|| ERRORS[call as usize / 20 % ERRORS.len()])
    });
}

/// What a kernel says when it has no memory, no room for completions, or a signal.
const ERRORS: [i32; 4] = [libc::EAGAIN, libc::EBUSY, libc::ENOMEM, libc::EINTR];

fn check(what: &str, refuse: impl FnMut(u64) -> Option<i32> + Send + 'static) {
    let _watchdog = Watchdog::start(what, Duration::from_secs(60));
    // Small, so that entries are submitted in the middle of a turn, too.
    let build = || {
        Builder::new()
            .ring_entries(8)
            .completion_entries(16)
            .buffers(16)
            .build()
            .unwrap()
    };
    let server = Server::start_on(build, echo_with_given_up_reads);
    let mut before = Pinger::new(support::connect_many(server.addr(), CONNECTIONS), MESSAGE);
    before.rounds(2);
    let refuser = server
        .run(|| EnterRefuser::watch_this_thread(refuse))
        .expect("seccomp filters can be installed");
    before.rounds(5);
    // Connections come and go.
    for _ in 0..5 {
        Pinger::new(support::connect_many(server.addr(), CONNECTIONS), MESSAGE).rounds(2);
    }
    before.rounds(5);
    drop(before);
    support::eventually("tasks", true, || server.metrics().tasks <= 1);
    let on_ring = server.run(|| runtime::features().backend) == Backend::Uring;
    assert_eq!(refuser.refusals() > 0, on_ring, "refusals");
    assert_eq!(server.metrics().unknown_completions, 0);
    // The end is refused now and then as well.
    server.stop();
}

/// Peeks are started and given up in between, into buffers that nobody may write to afterwards.
async fn echo_with_given_up_reads(stream: TcpStream) -> std::io::Result<()> {
    let mut rng = Rng::new(1);
    for _ in 0..10 {
        let mut canary = [0xEE; 100];
        let once = Fate {
            polls: 1,
            forget: rng.one_in(2),
        };
        match partial(once, stream.peek(&mut canary)).await {
            Some(seen) => drop(seen?),
            None => {
                runtime::yield_now().await;
                assert_eq!(canary, [0xEE; 100]);
            }
        }
    }
    handlers::echo_copy(stream).await
}
