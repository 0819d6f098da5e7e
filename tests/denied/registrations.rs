//! Single registrations refused (B47): what needs them is off, all else is on.

use crate::case::{Case, Report, here};

// linux/io_uring.h
const PROBE: u32 = 8;
const RING_FDS: u32 = 20;
const UNREGISTER_RING_FDS: u32 = 21;
const BUFFER_RING: u32 = 22;
const UNREGISTER_BUFFER_RING: u32 = 23;
const SEND_MSG_RING: u32 = 31;
/// No kernel has as many.
const ALL: u32 = 40;

/// B47: since 5.18.
#[test]
fn without_a_registered_ring_descriptor_all_else_stays() {
    assert_only_without(RING_FDS, "ring_fd", &["ring_fd"]);
}

/// B47: since 5.19.
#[test]
fn without_a_buffer_ring_all_that_needs_none_stays() {
    let without = ["buffer_ring", "multishot_recv", "poll_first", "recv_limit"];
    assert_only_without(BUFFER_RING, "buffer_ring", &without);
}

/// B47: since 6.13.
#[test]
fn without_messages_to_a_ring_all_else_stays() {
    assert_only_without(SEND_MSG_RING, "msg_ring", &["msg_ring"]);
}

/// B47: what is not used may be refused without a word.
#[test]
fn registrations_that_are_not_used_are_not_missed() {
    let used = [
        PROBE,
        RING_FDS,
        UNREGISTER_RING_FDS,
        BUFFER_RING,
        UNREGISTER_BUFFER_RING,
        SEND_MSG_RING,
    ];
    let Some(here) = here() else { return };
    for opcode in (0..ALL).filter(|opcode| !used.contains(opcode)) {
        println!("registration {opcode} is refused");
        let report = Case::new().deny_register(opcode, libc::EPERM).run();
        report.assert_on_a_ring();
        assert_eq!(report.features, here.features);
    }
}

/// Nothing that a profile can think of makes a program fail.
#[test]
fn refused_probes_and_refused_ends_of_registrations_are_survived() {
    if here().is_none() {
        return;
    }
    for opcode in [PROBE, UNREGISTER_RING_FDS, UNREGISTER_BUFFER_RING] {
        println!("registration {opcode} is refused");
        let report = Case::new().deny_register(opcode, libc::EPERM).run();
        assert_eq!(report.build_error, None, "{report:?}");
    }
}

/// B47, with what a kernel says that does not know the operation.
#[test]
fn a_kernel_that_knows_no_registration_at_all_still_gives_a_ring() {
    let Some(here) = here() else { return };
    let report = Case::new().deny("io_uring_register", libc::EINVAL).run();
    report.assert_on_a_ring();
    let without = [
        "ring_fd",
        "buffer_ring",
        "multishot_recv",
        "poll_first",
        "recv_limit",
        "msg_ring",
    ];
    assert_same_but_for(&report, here, &without);
}

fn assert_only_without(opcode: u32, feature: &str, without: &[&str]) {
    let Some(here) = here() else { return };
    for errno in [libc::EPERM, libc::EINVAL] {
        let report = Case::new().deny_register(opcode, errno).run();
        report.assert_on_a_ring();
        assert_same_but_for(&report, here, without);
        // The kernel's own words, as they tell a refusal from a lack.
        let reason = report.why_off(feature);
        let errno = std::io::Error::from_raw_os_error(errno).to_string();
        assert!(
            reason.contains(&errno),
            "{feature} is off because `{reason}`"
        );
    }
}

/// The features `without` are off, and all others as they were.
pub fn assert_same_but_for(report: &Report, here: &Report, without: &[&str]) {
    for (name, off) in &report.features {
        let expected = here.is_on(name) && !without.contains(&name.as_str());
        assert_eq!(off.is_none(), expected, "{name}: {report:?}");
    }
}
