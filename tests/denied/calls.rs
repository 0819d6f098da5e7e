//! Whole calls refused (B46): to set up a ring, only to use it, only to register something with it.

use crate::case::{Case, here};

const REFUSED: [&str; 2] = ["refused to this process", "allows io_uring_setup"];
const MISSING: [&str; 2] = ["has no io_uring", "use Linux 5"];
const NO_MEMORY: [&str; 2] = ["no memory for a ring", "ulimit -l"];
const INVALID: [&str; 2] = ["Invalid argument", "use Linux 5"];

/// B46: Docker, containerd and Podman say EPERM, gVisor and old kernels ENOSYS, security modules EACCES.
#[test]
fn a_setup_that_is_refused_is_a_fallback_that_says_why() {
    assert_falls_back("io_uring_setup", libc::EPERM, REFUSED);
    assert_falls_back("io_uring_setup", libc::EACCES, REFUSED);
    assert_falls_back("io_uring_setup", libc::ENOSYS, MISSING);
}

/// B46, B47: no set of flags is one that this kernel knows.
#[test]
fn a_setup_that_knows_no_flags_is_a_fallback_that_says_why() {
    assert_falls_back("io_uring_setup", libc::EINVAL, INVALID);
}

/// B49: the smallest ring is too large.
#[test]
fn a_setup_without_memory_is_a_fallback_that_says_why() {
    assert_falls_back("io_uring_setup", libc::ENOMEM, NO_MEMORY);
}

/// B46: a profile that knows one of the calls and not the others.
#[test]
fn a_ring_that_may_not_be_entered_is_a_fallback_that_says_why() {
    assert_falls_back("io_uring_enter", libc::EPERM, REFUSED);
    assert_falls_back("io_uring_enter", libc::EACCES, REFUSED);
    assert_falls_back("io_uring_enter", libc::ENOSYS, MISSING);
    assert_falls_back("io_uring_enter", libc::EINVAL, INVALID);
}

/// B46: nothing may be registered, which is not what a kernel says that only does not know what.
#[test]
fn a_ring_that_may_not_be_registered_with_is_a_fallback_that_says_why() {
    assert_falls_back("io_uring_register", libc::EPERM, REFUSED);
    assert_falls_back("io_uring_register", libc::EACCES, REFUSED);
    assert_falls_back("io_uring_register", libc::ENOSYS, MISSING);
}

fn assert_falls_back(call: &str, errno: i32, [cause, cure]: [&str; 2]) {
    if here().is_none() {
        return;
    }
    println!(
        "{call} fails with {}",
        std::io::Error::from_raw_os_error(errno)
    );
    Case::new()
        .deny(call, errno)
        .run()
        .assert_fell_back(cause, cure);
}
