//! `RINGSHOT_DISABLE` (B47, B48): one feature off, then what needs it, and nothing else.

use crate::case::{Case, Report, here};
use crate::registrations::assert_same_but_for;

const VARIABLE: &str = "RINGSHOT_DISABLE";

/// Each name that the variable takes, and the features that are off with it.
const SWITCHES: [(&str, &[&str]); 13] = [
    (
        "fast_poll",
        &[
            "fast_poll",
            "buffer_ring",
            "multishot_accept",
            "multishot_recv",
            "poll_first",
            "recv_limit",
            "silent_send",
        ],
    ),
    ("ext_arg", &["ext_arg", "defer_taskrun"]),
    ("defer_taskrun", &["defer_taskrun"]),
    ("coop_taskrun", &[]),
    ("ring_fd", &["ring_fd"]),
    (
        "buffer_ring",
        &["buffer_ring", "multishot_recv", "poll_first", "recv_limit"],
    ),
    ("multishot_accept", &["multishot_accept"]),
    ("multishot_recv", &["multishot_recv", "recv_limit"]),
    ("poll_first", &["poll_first"]),
    ("recv_limit", &["recv_limit"]),
    ("skip_success", &["skip_success", "silent_send"]),
    ("silent_send", &["silent_send"]),
    ("msg_ring", &["msg_ring"]),
];

/// B47, B48.
#[test]
fn each_feature_can_be_switched_off_alone() {
    let Some(here) = here() else { return };
    for (name, without) in SWITCHES {
        println!("{VARIABLE}={name}");
        let report = run(name);
        report.assert_on_a_ring();
        assert_same_but_for(&report, here, without);
        if without.contains(&name) {
            let reason = report.why_off(name);
            assert!(
                reason.contains(VARIABLE),
                "{name} is off because `{reason}`"
            );
        }
    }
}

/// Of what is off only because something else is, the reason is that, and not the kernel.
#[test]
fn what_is_off_with_another_feature_says_so() {
    let Some(here) = here() else { return };
    for (name, without) in SWITCHES {
        let report = run(name);
        let dependents = without.iter().filter(|dependent| **dependent != name);
        for dependent in dependents.filter(|dependent| here.is_on(dependent)) {
            let reason = report.why_off(dependent);
            let says_so = without.iter().any(|needed| reason.contains(needed));
            assert!(
                says_so,
                "{dependent} is off because `{reason}`, without {name}"
            );
        }
    }
}

#[test]
fn features_can_be_switched_off_in_pairs_and_all_together() {
    let Some(here) = here() else { return };
    let pairs = [
        ["multishot_accept", "multishot_recv"],
        ["buffer_ring", "silent_send"],
        ["defer_taskrun", "coop_taskrun"],
        ["ext_arg", "fast_poll"],
        ["ring_fd", "skip_success"],
    ];
    let all: Vec<&str> = SWITCHES.iter().map(|(name, _)| *name).collect();
    for names in pairs.iter().map(|pair| &pair[..]).chain([&all[..]]) {
        println!("{VARIABLE}={}", names.join(","));
        let report = run(&names.join(","));
        report.assert_on_a_ring();
        let without: Vec<&str> = (SWITCHES.iter())
            .filter(|(name, _)| names.contains(name))
            .flat_map(|(_, without)| without.iter().copied())
            .collect();
        assert_same_but_for(&report, here, &without);
    }
}

#[test]
fn spaces_repetitions_and_empty_names_are_harmless() {
    let Some(here) = here() else { return };
    for (value, without) in [
        (" ring_fd , ring_fd", &["ring_fd"][..]),
        (",,ring_fd,", &["ring_fd"]),
        ("", &[]),
        (" ,", &[]),
    ] {
        println!("{VARIABLE}={value}");
        let report = run(value);
        report.assert_on_a_ring();
        assert_same_but_for(&report, here, without);
    }
}

/// A switch that does nothing because of a typing error is worse than none. So is one whose value is no text.
#[test]
fn an_unknown_feature_is_an_error_that_lists_the_known_ones() {
    for value in ["multishot", "ring_fd,RING_FD", "ring_fd;buffer_ring"] {
        assert_is_an_error(&run(value), value);
    }
    let report = Case::new().garbled_env(VARIABLE).run();
    assert_is_an_error(&report, "\u{fffd}");
}

/// The operator's list is read on epoll as well, where it changes nothing: it is wrong all the same.
#[test]
fn an_unknown_feature_is_an_error_on_epoll_too() {
    let case = Case::new().env("RINGSHOT_BACKEND", "epoll");
    let report = case.env(VARIABLE, "multishot").run();
    assert_is_an_error(&report, "multishot");
}

fn run(value: &str) -> Report {
    Case::new().env(VARIABLE, value).run()
}

fn assert_is_an_error(report: &Report, value: &str) {
    let error = report.build_error.as_deref();
    let error = error.unwrap_or_else(|| panic!("`{value}` was taken: {report:?}"));
    assert!(error.contains(VARIABLE), "{error}");
    for (name, _) in SWITCHES {
        assert!(error.contains(name), "no {name} in `{error}`");
    }
}
