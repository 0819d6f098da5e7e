//! What is measured, and who is.

use serde::{Deserialize, Serialize};
use server::Mode;

/// A load, with the letter by which it is called.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) key: char,
    pub(crate) title: &'static str,
    pub(crate) load: Load,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    Echo {
        connections: usize,
        size: usize,
        depth: usize,
    },
    Short {
        at_once: usize,
    },
    Idle {
        connections: usize,
    },
    Packets {
        connections: usize,
    },
    /// Work that the server is told to do.
    Orders,
}

impl Scenario {
    /// What the server has to do.
    pub(crate) fn mode(&self) -> Mode {
        match self.load {
            Load::Packets { .. } => Mode::Packets,
            _ => Mode::Echo,
        }
    }

    /// What is counted.
    pub(crate) fn unit(&self) -> &'static str {
        match self.load {
            Load::Echo { .. } => "message",
            Load::Short { .. } | Load::Idle { .. } => "connection",
            Load::Packets { .. } => "packet",
            Load::Orders => "no-op",
        }
    }

    /// Connections that are open at the same time.
    pub(crate) fn connections(&self) -> usize {
        match self.load {
            Load::Echo { connections, .. }
            | Load::Idle { connections }
            | Load::Packets { connections } => connections,
            Load::Short { at_once, .. } => at_once,
            Load::Orders => 1,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.load, Load::Idle { .. })
    }
}

pub(crate) const SCENARIOS: [Scenario; 8] = [
    Scenario {
        key: 'a',
        title: "echo, 1 connection × 64 B × depth 1",
        load: Load::Echo {
            connections: 1,
            size: 64,
            depth: 1,
        },
    },
    Scenario {
        key: 'b',
        title: "echo, 50 × 64 B × 1",
        load: Load::Echo {
            connections: 50,
            size: 64,
            depth: 1,
        },
    },
    Scenario {
        key: 'c',
        title: "echo, 1,000 × 64 B × 1",
        load: Load::Echo {
            connections: 1000,
            size: 64,
            depth: 1,
        },
    },
    Scenario {
        key: 'd',
        title: "echo, 50 × 1 KiB × 16",
        load: Load::Echo {
            connections: 50,
            size: 1 << 10,
            depth: 16,
        },
    },
    Scenario {
        key: 'e',
        title: "echo, 50 × 16 KiB × 1",
        load: Load::Echo {
            connections: 50,
            size: 16 << 10,
            depth: 1,
        },
    },
    Scenario {
        key: 'f',
        title: "connect, 128 B, close; 200 at once",
        load: Load::Short { at_once: 200 },
    },
    Scenario {
        key: 'g',
        title: "10,000 idle connections",
        load: Load::Idle {
            connections: 10_000,
        },
    },
    Scenario {
        key: 'h',
        title: "32-byte packets by `write_all`, 16 connections",
        load: Load::Packets { connections: 16 },
    },
];

/// A server, by the name that `--peers` and the report use.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) kind: Kind,
    pub(crate) home: Home,
    pub(crate) package: &'static str,
    pub(crate) binary: &'static str,
    pub(crate) variant: &'static str,
    /// It may run on the generator's core, too.
    pub(crate) all_cores: bool,
    /// Variables that it is started with.
    pub(crate) environment: &'static [(&'static str, &'static str)],
    /// The crate whose version the report names.
    pub(crate) dependency: Option<&'static str>,
    /// The letters of its scenarios.
    pub(crate) scenarios: &'static str,
}

/// How the report shows a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    Ours,
    /// Another runtime, as people use it.
    Rival,
    /// The same with a change that somebody has to know of.
    Variant,
    /// Ours in other words.
    OurVariant,
    /// A loop without a runtime.
    Loop,
}

/// The workspace that builds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    Main,
    Peers,
}

impl Peer {
    pub(crate) fn takes(&self, scenario: &Scenario) -> bool {
        self.scenarios.contains(scenario.key)
    }
}

/// The one that all are compared with.
pub(crate) const BASE: &str = "tokio";
/// The one that shows what is possible.
pub(crate) const LIMIT: &str = "limit";

const ALL: &str = "abcdefgh";
const ECHOES: &str = "abcdefg";

const RIVAL: Peer = Peer {
    name: "",
    about: "",
    kind: Kind::Rival,
    home: Home::Peers,
    package: "",
    binary: "",
    variant: "",
    all_cores: false,
    environment: &[],
    dependency: None,
    scenarios: ALL,
};

pub(crate) const OURS: Peer = Peer {
    kind: Kind::Ours,
    home: Home::Main,
    package: "bench-ringshot",
    binary: "bench-ringshot",
    ..RIVAL
};

pub(crate) const TOKIO: Peer = Peer {
    package: "peer-tokio",
    binary: "peer-tokio",
    dependency: Some("tokio"),
    ..RIVAL
};

pub(crate) const RINGS: Peer = Peer {
    kind: Kind::Loop,
    package: "peer-rings",
    dependency: Some("io-uring"),
    ..RIVAL
};

pub(crate) const PEERS: [Peer; 19] = [
    Peer {
        name: "ringshot",
        about: "Ringshot; each received buffer is sent back (`recv_stream`, `send`)",
        variant: "lease",
        ..OURS
    },
    Peer {
        name: "ringshot-copy",
        about: "Ringshot; `copy_buf` between the halves of the stream",
        kind: Kind::OurVariant,
        variant: "copy",
        scenarios: ECHOES,
        ..OURS
    },
    Peer {
        name: "ringshot-read",
        about: "Ringshot; tokio's program: `read` into a buffer of 4 KiB, `write_all`",
        kind: Kind::OurVariant,
        variant: "read",
        scenarios: ECHOES,
        ..OURS
    },
    Peer {
        name: "ringshot-spin",
        about: "Ringshot; the worker looks for news for up to 200 µs before it sleeps (`Builder::spin`)",
        kind: Kind::OurVariant,
        variant: "spin",
        scenarios: "ab",
        ..OURS
    },
    Peer {
        name: "ringshot-1-worker",
        about: "Ringshot, `net::serve` with one worker, on both cores",
        kind: Kind::OurVariant,
        variant: "1-worker",
        all_cores: true,
        scenarios: "b",
        ..OURS
    },
    Peer {
        name: "ringshot-2-workers",
        about: "Ringshot, `net::serve` with two workers, on both cores; the generator shares one of them",
        kind: Kind::OurVariant,
        variant: "2-workers",
        all_cores: true,
        scenarios: "b",
        ..OURS
    },
    Peer {
        name: BASE,
        about: "tokio, current-thread runtime",
        variant: "current",
        ..TOKIO
    },
    Peer {
        name: "tokio-multi",
        about: "tokio, multi-thread runtime (on one core, so with one worker)",
        variant: "multi",
        ..TOKIO
    },
    Peer {
        name: "tokio-2-workers",
        about: "tokio, multi-thread runtime, on both cores, so with two workers; the generator shares one of them",
        kind: Kind::Variant,
        variant: "multi",
        all_cores: true,
        scenarios: "b",
        ..TOKIO
    },
    Peer {
        name: "tokio-64k",
        about: "tokio, current-thread, buffers of 64 KiB",
        kind: Kind::Variant,
        variant: "64k",
        scenarios: ECHOES,
        ..TOKIO
    },
    Peer {
        name: "tokio-bufwriter",
        about: "tokio, current-thread, `BufWriter` around the socket",
        kind: Kind::Variant,
        variant: "bufwriter",
        scenarios: "h",
        ..TOKIO
    },
    Peer {
        name: "compio",
        about: "compio on io_uring",
        package: "peer-compio",
        binary: "peer-compio",
        dependency: Some("compio"),
        ..RIVAL
    },
    Peer {
        name: "monoio",
        about: "monoio on io_uring",
        package: "peer-monoio",
        binary: "peer-monoio",
        dependency: Some("monoio"),
        ..RIVAL
    },
    Peer {
        name: "glommio",
        about: "glommio on io_uring",
        package: "peer-glommio",
        binary: "peer-glommio",
        dependency: Some("glommio"),
        ..RIVAL
    },
    Peer {
        name: "ringline",
        about: "ringline on io_uring (an acceptor thread and one worker)",
        package: "peer-ringline",
        binary: "peer-ringline",
        dependency: Some("ringline"),
        ..RIVAL
    },
    Peer {
        name: "smol",
        about: "smol, local executor on epoll",
        package: "peer-smol",
        binary: "peer-smol",
        dependency: Some("smol"),
        ..RIVAL
    },
    Peer {
        name: "epoll",
        about: "hand-written epoll loop, one shared buffer of 4 KiB",
        kind: Kind::Loop,
        package: "peer-epoll",
        binary: "peer-epoll",
        ..RIVAL
    },
    Peer {
        name: "ring-plain",
        about: "hand-written ring loop, one receive or send per connection at a time, buffers of 4 KiB",
        binary: "plain",
        ..RINGS
    },
    Peer {
        name: LIMIT,
        about: "hand-written loop of Ringshot's design: multishot accept and receive, shared buffers, silent gathered sends",
        binary: "limit",
        scenarios: ECHOES,
        ..RINGS
    },
];

pub(crate) fn scenario(key: char) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.key == key)
}

pub(crate) fn peer(name: &str) -> Option<&'static Peer> {
    PEERS.iter().find(|peer| peer.name == name)
}
