//! A future that is given up, polled or not, dropped or leaked, loses no byte, no connection, no descriptor and no
//! buffer.
//!
//! All tests draw what they do from a seed, which is shown when one fails.

mod connections;
mod ends;
mod reads;
mod reentry;
mod tasks;
mod timers;
mod writes;

use std::fs;
use std::io::{ErrorKind, Read};
use std::net::TcpStream as Peer;
use std::path::Path;
use std::time::{Duration, Instant};

use net::TcpListener;
use runtime::Builder;
use support::{Rng, open_fds, settled};

/// `docs/cancel-safety.md` names tests of several programs, which may be renamed or leave.
#[test]
fn the_document_names_tests_that_exist() {
    // The files that it opens must not be counted by another test.
    let _alone = support::alone("the document", Duration::from_secs(60));
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = fs::read_to_string(root.join("docs/cancel-safety.md")).unwrap();
    let in_quotes = document.split('`').skip(1).step_by(2);
    let named: Vec<_> = in_quotes
        .filter_map(|text| text.split_once(".rs::"))
        .collect();
    assert!(named.len() > 40, "only {} tests are named", named.len());
    for (file, test) in named {
        let folder = if file.starts_with("runtime/") {
            ""
        } else {
            "tests"
        };
        let path = root.join(folder).join(format!("{file}.rs"));
        let code = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}.rs: {error}"));
        assert!(
            code.contains(&format!("fn {test}()")),
            "{file}.rs has no {test}"
        );
    }
}

/// Runs `body` on a runtime of its own and checks that all is given back: ops, buffers, descriptors.
fn run(what: &str, builder: Builder, body: impl AsyncFnOnce(Rng)) {
    let rng = Rng::from_env();
    let what = format!("{what} (seed {})", rng.seed());
    let _alone = support::alone(&what, Duration::from_secs(120));
    let fds_before = open_fds();
    let runtime = builder.build().unwrap();
    runtime.block_on(async {
        let now = || (open_fds(), runtime::metrics().ops);
        let before = now();
        body(rng).await;
        settled("open descriptors and ops", before, now).await;
        let in_use = || runtime::metrics().buffers - runtime::metrics().buffers_free;
        settled("buffers in use", 0, in_use).await;
    });
    drop(runtime);
    // A thread for blocking work that is just starting opens a file or two of the system's (how many CPUs there are).
    support::eventually("open descriptors after the runtime", fds_before, open_fds);
}

async fn listen() -> TcpListener {
    TcpListener::bind(support::loopback()).await.unwrap()
}

/// Waits, without blocking the worker, until the other side is gone: closed or reset.
async fn wait_for_end(peer: &mut Peer) {
    peer.set_nonblocking(true).unwrap();
    let start = Instant::now();
    loop {
        match peer.read(&mut [0; 4096]) {
            Ok(0) => return,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
            Err(error) if error.kind() != ErrorKind::WouldBlock => panic!("{error}"),
            Ok(_) | Err(_) => runtime::yield_now().await,
        }
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "the socket stays open"
        );
    }
}

/// From nothing to 2 ms: on both sides of what a loopback connection takes to react.
fn random_pause(rng: &mut Rng) -> Duration {
    Duration::from_micros(rng.below(2000) as u64)
}
