//! Rare orders of common events: many arms in one poll, empty pools, user code that calls back, and runtimes that end
//! under everybody's hands. The same on every rung.

mod buffers;
mod ends;
mod options;
mod owners;
mod readiness;
mod reentry;

use std::future::Future;
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use runtime::Builder;
use runtime::io::{Inbox, Socket};
use runtime::time::timeout;
use support::Alone;

/// More polls than one turn has, a few times over: afterwards some turns have passed.
const SOME_TURNS: usize = 200;

/// What a runtime waits at its end for operations that do not end is longer than that.
const PROMPT: Duration = Duration::from_secs(4);

/// Runs `body` on a worker, which ends promptly afterwards.
fn run(what: &str, builder: Builder, body: impl AsyncFnOnce()) {
    let _alone = alone(what);
    let runtime = builder.build().unwrap();
    runtime.block_on(body());
    let start = Instant::now();
    drop(runtime);
    let took = start.elapsed();
    assert!(took < PROMPT, "the end took {took:?}");
}

fn alone(what: &str) -> Alone {
    support::alone(what, Duration::from_secs(60))
}

/// A pool that one greedy stream can empty.
fn small_pool() -> Builder {
    Builder::new().buffers(2).buffer_size(4096)
}

/// Fails, instead of hanging, when `event` does not come.
async fn soon<F: Future>(what: &str, event: F) -> F::Output {
    match timeout(Duration::from_secs(10), event).await {
        Ok(output) => output,
        Err(_) => panic!("{what}: nothing for 10 s, {:?}", runtime::metrics()),
    }
}

async fn some_turns() {
    for _ in 0..SOME_TURNS {
        runtime::yield_now().await;
    }
}

/// The near end as an [`Inbox`], the far end for the test.
fn inbox() -> (Inbox, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    (Inbox::new(Socket::new(near).unwrap()), far)
}

/// Everything up to the end of the stream, while the worker takes its turns. The peer becomes nonblocking.
async fn read_to_end_at(peer: &mut (impl Read + std::os::fd::AsFd)) -> Vec<u8> {
    socket2::SockRef::from(&*peer)
        .set_nonblocking(true)
        .unwrap();
    let mut bytes = Vec::new();
    let ended = || match peer.read_to_end(&mut bytes) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
            false
        }
    };
    support::settled("the end of the stream", true, ended).await;
    bytes
}
