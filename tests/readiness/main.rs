//! What becomes ready, who hears of it, and what waiting costs. The same on every rung: with a ring, without its
//! multishots, with polls in the ring, and on epoll.

mod async_fd;
mod fairness;
mod half_close;
mod hang_up;
mod idle;
mod last_words;
mod reuse;
mod sharing;
mod stop;

use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

use runtime::Builder;
use support::Alone;

/// More polls than one turn has, a few times over: afterwards some turns have passed.
const SOME_TURNS: usize = 200;

/// What a runtime waits at its end for operations that do not end is longer than that, and a busy machine is not so slow.
const PROMPT: Duration = Duration::from_secs(4);

/// Runs `body` on a worker. Afterwards no descriptor is open, no operation is in flight, and the worker ends at once.
fn run(what: &str, body: impl AsyncFnOnce()) {
    let _alone = alone(what);
    let before = support::open_fds();
    let runtime = Builder::new().build().unwrap();
    runtime.block_on(async {
        let idle = runtime::metrics().ops;
        body().await;
        support::settled("operations in flight", idle, || runtime::metrics().ops).await;
        assert_eq!(runtime::metrics().unknown_completions, 0);
    });
    let start = Instant::now();
    drop(runtime);
    assert!(
        start.elapsed() < PROMPT,
        "the end took {:?}",
        start.elapsed()
    );
    // A thread for blocking work that is just starting opens a file or two of the system's.
    support::eventually("open descriptors", before, support::open_fds);
}

fn alone(what: &str) -> Alone {
    support::alone(what, Duration::from_secs(60))
}

async fn some_turns() {
    for _ in 0..SOME_TURNS {
        runtime::yield_now().await;
    }
}

/// Reads exactly `len` bytes from a nonblocking peer while the worker takes its turns.
async fn read_exact_at_peer(peer: &mut impl Read, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut done = 0;
    support::settled("bytes at the peer", len, || {
        match peer.read(&mut bytes[done..]) {
            Ok(0) => panic!("the stream ended after {done} of {len} bytes"),
            Ok(n) => done += n,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
        }
        done
    })
    .await;
    bytes
}
