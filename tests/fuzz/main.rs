//! Random sequences of calls on both ends of one connection, against a model of two queues of bytes: whatever is
//! called, cancelled or dropped in whatever order, bytes arrive once and in order, the end arrives once and not
//! early, errors come only where there is a reason, nothing hangs, and all is given back.
//!
//! `RINGSHOT_TEST_CASES` says how many sequences are tried. One that fails is printed, made as short as it can be.

mod case;
mod ends;
mod model;
mod steps;

use std::time::Duration;

use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use support::Watchdog;

#[test]
fn two_streams_behave_like_two_queues_whatever_is_called_on_them() {
    let config = Config {
        cases: cases(),
        // Sequences depend on the kernel's timing, so a stored one proves little. It is printed.
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..Config::default()
    };
    let run = |case: steps::Case| {
        let _watchdog = Watchdog::start(&format!("{case:?}"), Duration::from_secs(60));
        case::run(case);
        Ok::<_, TestCaseError>(())
    };
    match TestRunner::new(config).run(&steps::cases(), run) {
        Ok(()) => {}
        Err(TestError::Fail(reason, case)) => panic!("{reason}: {case:?}"),
        Err(error) => panic!("{error}"),
    }
}

fn cases() -> u32 {
    match std::env::var("RINGSHOT_TEST_CASES") {
        Ok(text) => text.parse().expect("RINGSHOT_TEST_CASES is a number"),
        Err(_) => 200,
    }
}
