//! Options at the ends of their ranges.

use std::future::poll_fn;
use std::io::Write;
use std::time::Duration;

use net::TcpListener;
use runtime::{Backend, Builder};
use support::{pattern, settled};

use crate::{inbox, read_to_end_at, run, soon};

#[test]
fn the_longest_linger_drains_a_dropped_stream() {
    const TOTAL: usize = 16 << 20;
    let builder = Builder::new().linger(Duration::MAX);
    run("an endless linger", builder, async || {
        let idle = runtime::metrics().ops;
        let listener = TcpListener::bind(support::loopback()).await.unwrap();
        let (stream, mut peer) = support::pair(&listener).await;
        stream.send(pattern::bytes(0, TOTAL)).await.unwrap();
        drop(stream);
        let received = read_to_end_at(&mut peer).await;
        assert_eq!(received.len(), TOTAL);
        pattern::check(&received, 0);
        drop(listener);
        settled("operations in flight", idle, || runtime::metrics().ops).await;
    });
}

#[test]
fn a_large_submission_queue_needs_no_other_option() {
    carries_a_byte("8192 entries", Builder::new().ring_entries(8_192));
}

#[test]
fn the_largest_completion_queue_is_what_the_kernel_allows() {
    carries_a_byte(
        "most completions",
        Builder::new().completion_entries(u32::MAX),
    );
}

/// Also with a ring of its own right, where there are rings.
fn carries_a_byte(what: &str, builder: Builder) {
    let has_rings = Builder::new().backend(Backend::Uring).build().is_ok();
    let backend = if has_rings {
        Backend::Uring
    } else {
        Backend::Auto
    };
    run(what, builder.backend(backend), async || {
        let (inbox, mut peer) = inbox();
        assert!(inbox.try_read(&mut [0]).is_err());
        runtime::yield_now().await;
        peer.write_all(b"x").unwrap();
        let mut byte = [0];
        soon("a byte", poll_fn(|cx| inbox.poll_read(cx, &mut byte)))
            .await
            .unwrap();
        assert_eq!(&byte, b"x");
    });
}
