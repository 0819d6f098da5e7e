//! Five results of the kernel's authors that Ringshot is built on, each with its mechanism on and off.
//!
//! They are run like the scenarios, by the same generator and in the same rounds; the servers are ours under
//! `RINGSHOT_DISABLE`, and a loop of no-ops where the kernel's call itself is the question.

use crate::catalogue::{Kind, Load, OURS, Peer, RINGS, Scenario, TOKIO};

/// One of the five.
#[derive(Debug)]
pub(crate) struct Seed {
    pub(crate) name: &'static str,
    pub(crate) mechanism: &'static str,
    /// What its author measured, on their machine.
    pub(crate) theirs: &'static str,
    /// The keys of its scenarios.
    pub(crate) scenarios: &'static str,
    /// With the mechanism and without, by the names of their cases.
    pub(crate) pairs: &'static [(&'static str, &'static str)],
    /// What the reader must know to compare.
    pub(crate) honesty: &'static str,
}

pub(crate) const SEEDS: [Seed; 5] = [
    Seed {
        name: "accept",
        mechanism: "multishot accept (5.19): one armed operation yields every connection",
        theirs: "10,000 clients connect, send 128 bytes, read them back and close: 1,927,634 to 1,894,750 clock units, \
                 so 1.7 % less",
        scenarios: "A",
        pairs: &[("multishot", "single-shot")],
        honesty: "1,000 clients at once instead of 10,000, whose connects would be dropped by the listener's queue and \
                  sent again after a second. Most of the time is the kernel's work to open and close a connection. \
                  Single-shot needs a turn for each connection, in which other sockets are served as well.",
    },
    Seed {
        name: "enter",
        mechanism: "registered ring (5.18): an enter finds its ring without counting a file reference",
        theirs: "polled reads from a fast disk, one operation for each enter, in a process with several threads: \
                 7.00 to 8.02 million operations per second, so 13 % less time",
        scenarios: "NE",
        pairs: &[
            ("registered", "by descriptor"),
            ("ring_fd on", "ring_fd off"),
        ],
        honesty: "The first table is the call itself, with a no-op, in a process with two threads; the second is an \
                  ordinary server with one enter for each message, where TCP costs many times as much as the reference.",
    },
    Seed {
        name: "batch",
        mechanism: "many operations and completions for each enter (inline completions are kept in a list since 5.9)",
        theirs: "a test with no-ops 20 % faster; a server for UDP packets spent 25 % of its time on writing completions, \
                 and less than 1 % afterwards",
        scenarios: "BC",
        pairs: &[
            ("32 per enter", "1 per enter"),
            ("one enter for a turn", "one enter for each send"),
        ],
        honesty: "The kernel's list cannot be turned off, so this shows what it is for: filling it. There is no switch \
                  for that either: the first table is a hand-written loop of no-ops, and the second our server with \
                  `Builder::ring_entries(1)`, a queue that must be submitted for each send.",
    },
    Seed {
        name: "recv",
        mechanism: "a receive that does not try what would fail: multishot (6.0), and `POLL_FIRST` (5.19) where it must be \
                    single-shot",
        theirs: "a receive of 16 bytes that succeeds at once takes 1,110 ns; one whose first try fails 2,290 ns in all, \
                 of which 550 ns ask the socket for readiness",
        scenarios: "R",
        pairs: &[
            ("multishot", "single-shot, hints"),
            ("single-shot, hints", "single-shot, no hints"),
        ],
        honesty: "Figures are of whole messages, received and sent back, and not of the receive alone. The hints only \
                  pay for sockets that are empty when the receive is armed, as all are here.",
    },
    Seed {
        name: "send",
        mechanism: "everything that is queued on a socket goes out in one send",
        theirs: "32-byte packets, one send each 3,125 µs, about 65 in a bundle (6.10) 2,320 µs, so 26 % less; gathered by \
                 one `sendmsg` within 1 % of that",
        scenarios: "S",
        pairs: &[
            ("coalesced", "one send each"),
            ("65 packets a send", "one send each"),
        ],
        honesty: "Here a send carries as many packets as were written since the last turn, up to 64 KiB, so the \
                  difference is larger by far; 65 packets a send is their case. With \
                  `Builder::send_high_water(32)` our server waits until each packet has gone. Only the server's side \
                  is counted; theirs is the time of both. Bundles are not in the table: the runtime gathers instead.",
    },
];

/// Their loads. The letters are not shown.
pub(crate) const SCENARIOS: [Scenario; 7] = [
    Scenario {
        key: 'A',
        title: "accept: connect, 128 B, close; 1,000 at once",
        load: Load::Short { at_once: 1000 },
    },
    Scenario {
        key: 'N',
        title: "enter: one no-op each, in a process with two threads",
        load: Load::Orders,
    },
    Scenario {
        key: 'E',
        title: "enter: echo, 1 connection × 64 B × depth 1",
        load: Load::Echo {
            connections: 1,
            size: 64,
            depth: 1,
        },
    },
    Scenario {
        key: 'B',
        title: "batch: no-ops",
        load: Load::Orders,
    },
    Scenario {
        key: 'C',
        title: "batch: echo, 50 × 64 B × 1",
        load: Load::Echo {
            connections: 50,
            size: 64,
            depth: 1,
        },
    },
    Scenario {
        key: 'R',
        title: "recv: echo, 16 × 16 B × 1",
        load: Load::Echo {
            connections: 16,
            size: 16,
            depth: 1,
        },
    },
    Scenario {
        key: 'S',
        title: "send: 32-byte packets, 16 connections",
        load: Load::Packets { connections: 16 },
    },
];

/// Our server as it is, for the cases to differ from.
const CASE: Peer = Peer {
    kind: Kind::OurVariant,
    variant: "lease",
    ..OURS
};

const NOPS: Peer = Peer {
    binary: "nops",
    ..RINGS
};

/// The first one of a scenario is what the others are compared with.
pub(crate) const CASES: [Peer; 24] = [
    Peer {
        name: "multishot",
        about: "Ringshot as it is",
        scenarios: "AR",
        ..CASE
    },
    Peer {
        name: "single-shot",
        about: "without `multishot_accept`",
        environment: &[(DISABLE, "multishot_accept")],
        scenarios: "A",
        ..CASE
    },
    Peer {
        name: "tokio",
        about: "tokio, current-thread runtime",
        scenarios: "AR",
        ..TOKIO
    },
    Peer {
        name: "registered",
        about: "hand-written loop; the enter is given the index of the registered ring",
        variant: "1",
        scenarios: "N",
        ..NOPS
    },
    Peer {
        name: "by descriptor",
        about: "the same, given the descriptor",
        variant: "1 by-descriptor",
        scenarios: "N",
        ..NOPS
    },
    Peer {
        name: "ring_fd on",
        about: "Ringshot as it is",
        scenarios: "E",
        ..CASE
    },
    Peer {
        name: "ring_fd off",
        about: "without `ring_fd`",
        environment: &[(DISABLE, "ring_fd")],
        scenarios: "E",
        ..CASE
    },
    Peer {
        name: "32 per enter",
        about: "hand-written loop",
        variant: "32",
        scenarios: "B",
        ..NOPS
    },
    Peer {
        name: "1 per enter",
        about: "hand-written loop",
        variant: "1",
        scenarios: "B",
        ..NOPS
    },
    Peer {
        name: "8 per enter",
        about: "hand-written loop",
        variant: "8",
        scenarios: "B",
        ..NOPS
    },
    Peer {
        name: "128 per enter",
        about: "hand-written loop",
        variant: "128",
        scenarios: "B",
        ..NOPS
    },
    Peer {
        name: "one enter for a turn",
        about: "Ringshot as it is",
        scenarios: "C",
        ..CASE
    },
    Peer {
        name: "one enter for each send",
        about: "with `Builder::ring_entries(1)`",
        variant: "one-entry",
        scenarios: "C",
        ..CASE
    },
    Peer {
        name: "single-shot, hints",
        about: "without `multishot_recv`",
        environment: &[(DISABLE, "multishot_recv")],
        scenarios: "R",
        ..CASE
    },
    Peer {
        name: "single-shot, no hints",
        about: "without `multishot_recv` and `poll_first`",
        environment: &[(DISABLE, "multishot_recv,poll_first")],
        scenarios: "R",
        ..CASE
    },
    Peer {
        name: "poll, then recv, in the ring",
        about: "without `buffer_ring`",
        environment: &[(DISABLE, "buffer_ring")],
        scenarios: "R",
        ..CASE
    },
    Peer {
        name: "poll, then each call, in the ring",
        about: "without `fast_poll`",
        environment: &[(DISABLE, "fast_poll")],
        scenarios: "R",
        ..CASE
    },
    Peer {
        name: "epoll",
        about: "Ringshot without a ring",
        environment: &[("RINGSHOT_BACKEND", "epoll")],
        scenarios: "R",
        ..CASE
    },
    Peer {
        name: "coalesced",
        about: "Ringshot as it is: `write_all` for each packet",
        scenarios: "S",
        ..CASE
    },
    Peer {
        name: "one send each",
        about: "with `Builder::send_high_water(32)`",
        variant: "one-packet",
        scenarios: "S",
        ..CASE
    },
    Peer {
        name: "65 packets a send",
        about: "with `Builder::send_high_water(65 * 32)`",
        variant: "65-packets",
        scenarios: "S",
        ..CASE
    },
    Peer {
        name: "gathered",
        about: "`send(Bytes)` for each packet, which is not copied but gathered by `sendmsg`",
        variant: "gather",
        scenarios: "S",
        ..CASE
    },
    Peer {
        name: "loop, one send each",
        about: "hand-written ring loop",
        binary: "plain",
        scenarios: "S",
        ..RINGS
    },
    Peer {
        name: "tokio, one send each",
        about: "tokio, current-thread runtime",
        scenarios: "S",
        ..TOKIO
    },
];

pub(crate) fn scenario(key: char) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.key == key)
}

/// Of `accept`, in each round.
pub(crate) const CONNECTIONS: u64 = 10_000;
/// Where the raw data goes, beside that of the scenarios.
pub(crate) const PART: &str = "seeds";
const DISABLE: &str = "RINGSHOT_DISABLE";

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(name: &str, keys: &str) -> bool {
        let cases = CASES.iter().filter(|case| case.name == name);
        cases
            .flat_map(|case| case.scenarios.chars())
            .any(|key| keys.contains(key))
    }

    #[test]
    fn every_pair_is_of_cases_that_its_seed_runs() {
        for seed in &SEEDS {
            for (on, off) in seed.pairs {
                assert!(takes(on, seed.scenarios), "{on}");
                assert!(takes(off, seed.scenarios), "{off}");
            }
            assert!(seed.scenarios.chars().all(|key| scenario(key).is_some()));
        }
    }
}
