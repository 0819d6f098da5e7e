//! Waiting for what tells nobody when it is there.

use std::fmt::Debug;
use std::thread;
use std::time::{Duration, Instant};

const BOUND: Duration = Duration::from_secs(20);

/// Polls `read` until it returns `expected`, from a thread that is not a worker. Fails after 20 s, with the last
/// value that was seen.
pub fn eventually<T: PartialEq + Debug>(what: &str, expected: T, mut read: impl FnMut() -> T) {
    let bound = BOUND * crate::patience();
    let start = Instant::now();
    loop {
        let seen = read();
        if seen == expected {
            return;
        }
        assert!(
            start.elapsed() < bound,
            "{what}: {seen:?} is not {expected:?}"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// The same on a worker, which takes its turns meanwhile.
pub async fn settled<T: PartialEq + Debug>(what: &str, expected: T, mut read: impl FnMut() -> T) {
    let bound = BOUND * crate::patience();
    let start = Instant::now();
    loop {
        let seen = read();
        if seen == expected {
            return;
        }
        assert!(
            start.elapsed() < bound,
            "{what}: {seen:?} is not {expected:?}"
        );
        runtime::yield_now().await;
    }
}
