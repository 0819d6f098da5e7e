//! `RINGSHOT_BACKEND`: the operator decides, and is told if that cannot be.

use crate::case::{Case, Report, here};

const VARIABLE: &str = "RINGSHOT_BACKEND";

#[test]
fn the_operator_can_choose_epoll_and_is_not_warned_of_it() {
    let report = run("epoll");
    assert_eq!(report.build_error, None);
    assert_eq!(report.backend, "Epoll");
    assert_eq!(report.log, [""; 0]);
    // It counts more than what the program asks for, which here is `Backend::Uring`.
    assert_eq!(report.strict_error, None);
    for (name, off) in &report.features {
        let reason = off.as_deref().unwrap_or_default();
        assert!(
            reason.contains("asked for"),
            "{name} is off because `{reason}`"
        );
    }
}

#[test]
fn the_operator_can_leave_the_choice_to_us() {
    let Some(here) = here() else { return };
    for value in ["auto", ""] {
        let report = run(value);
        report.assert_on_a_ring();
        assert_eq!(report.features, here.features);
    }
}

/// What was asked for is never replaced in silence.
#[test]
fn the_operator_can_insist_on_a_ring() {
    if here().is_none() {
        return;
    }
    run("uring").assert_on_a_ring();
    for call in ["io_uring_setup", "io_uring_enter", "io_uring_register"] {
        println!("{call} is refused");
        let case = Case::new().env(VARIABLE, "uring");
        let report = case.deny(call, libc::EPERM).run();
        let error = report.build_error.as_deref();
        let error = error.unwrap_or_else(|| panic!("{call} is refused: {report:?}"));
        assert!(error.contains("seccomp"), "{error}");
        assert!(error.contains("allows io_uring_setup"), "{error}");
        assert_eq!(report.log, [""; 0], "an error is returned, not logged");
    }
}

#[test]
fn an_unknown_backend_is_an_error_that_lists_the_known_ones() {
    for value in ["io_uring", "URING", "kqueue"] {
        assert_is_an_error(&run(value), value);
    }
    assert_is_an_error(&Case::new().garbled_env(VARIABLE).run(), "\u{fffd}");
}

/// The other tests pass on whatever there is, so a ring that our own fault makes useless would show nowhere: its
/// self-tests would fail, and epoll would serve.
#[test]
fn a_kernel_that_has_everything_is_used_whole() {
    if kernel() < (6, 18) || !has_rings() {
        return println!("this kernel does not have everything, or not for us");
    }
    let case = Case::new().env(VARIABLE, "").env("RINGSHOT_DISABLE", "");
    let report = case.run();
    report.assert_on_a_ring();
    for (name, off) in &report.features {
        assert_eq!(*off, None, "{name}");
    }
}

/// Its version, as far as features come with it.
fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse().ok());
    (numbers.next().unwrap(), numbers.next().unwrap_or(0))
}

/// Whether somebody who is not us gets one.
fn has_rings() -> bool {
    let mut params = [0_u8; 120];
    // SAFETY: `struct io_uring_params` has 120 bytes, which outlive the call.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr()) };
    // SAFETY: the descriptor is new, so nobody else has it.
    fd >= 0 && unsafe { libc::close(fd as i32) } == 0
}

fn run(value: &str) -> Report {
    Case::new().env(VARIABLE, value).run()
}

fn assert_is_an_error(report: &Report, value: &str) {
    let error = report.build_error.as_deref();
    let error = error.unwrap_or_else(|| panic!("`{value}` was taken: {report:?}"));
    for word in [VARIABLE, "`auto`", "`uring`", "`epoll`"] {
        assert!(error.contains(word), "no {word} in `{error}`");
    }
}
