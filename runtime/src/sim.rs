//! Deterministic simulation: a server and its clients in one process, on a kernel that is made up.
//!
//! The runtime is the real one, down to the entries that it submits. What is simulated is the kernel beneath it: the
//! ring, the sockets, the network between them, and time. It does what a kernel may do, at the moment that a seed picks:
//! short reads, late completions, queues that are full, cancels that come too late (see [`Faults`]). So one test sees
//! in a second what takes weeks to happen, and a seed that fails fails again.
//!
//! ```
//! # use std::io;
//! # use runtime::io::{AcceptStream, Inbox, Outbox, Socket, connect};
//! # use futures::StreamExt;
//!
//! for seed in 0..10 {
//!     runtime::sim::run(seed, async {
//!         // Your server and your clients: `net::TcpListener`, `net::TcpStream`, timers, tasks.
//! #       let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
//! #       let address = listener.local_addr()?;
//! #       let mut connections = AcceptStream::new(Socket::new(listener)?);
//! #       let socket = Socket::new(socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?)?;
//! #       let address = address.into();
//! #       let (connected, accepted) = futures::join!(connect(&socket, &address), connections.next());
//! #       connected?;
//! #       let server = Socket::new(accepted.expect("endless")?)?;
//! #       let (outbox, mut inbox) = (Outbox::new(socket), Inbox::new(server));
//! #       std::future::poll_fn(|cx| outbox.poll_write(cx, b"hello")).await?;
//! #       let chunk = inbox.stream().next().await.expect("bytes")?;
//! #       assert!(b"hello".starts_with(&chunk));
//! #       io::Result::Ok(())
//!     })
//! #   .expect("no faults that a program can see");
//! }
//! ```
//!
//! # What is simulated
//!
//! * Streams that connect to a listener **of the same simulation**. Addresses and socket options are real, and so is
//!   `bind`; the bytes are not.
//! * Time: [`time`](crate::time) runs on a clock that jumps to the next thing that happens. An hour takes no time.
//! * The ring: sizes, queues that overflow, features that are missing.
//!
//! # What is not
//!
//! * Threads ([`spawn_blocking`](crate::spawn_blocking), host names, which are looked up on one): they run, in real
//!   time, so what depends on them is not repeatable, and a time-out around one may fire at once.
//! * Chance of your own, the addresses of ports, `std::time`, hash maps with random keys: what depends on them differs
//!   from run to run. Seed them, too.
//! * Workers: there is one, whatever the builder says.
//! * System calls made around the runtime, such as `libc::send` with the descriptor of a stream.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

pub use crate::reactor::driver::sim::Faults;

use crate::builder::{Builder, Runtime};
use crate::error::BuildError;
use crate::reactor::driver::sim;
use crate::reactor::{Reactor, probe};
use crate::time::Source;
use crate::workers::Crew;

/// Runs a future in a simulation with the [hidden](Faults::hidden) faults, and everything else drawn from the seed.
///
/// # Panics
///
/// As [`Simulation::run`].
pub fn run<F: Future>(seed: u64, future: F) -> F::Output {
    Simulation::new(seed).run(future)
}

/// A simulation's settings.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use runtime::sim::{Faults, Simulation};
///
/// let simulation = Simulation::new(7).faults(Faults::all());
/// let slept = simulation.run(async {
///     let start = runtime::time::Instant::now();
///     runtime::time::sleep(Duration::from_secs(3600)).await;
///     start.elapsed()
/// });
/// assert!(slept >= Duration::from_secs(3600));
/// ```
#[derive(Clone, Debug)]
pub struct Simulation {
    seed: u64,
    faults: Faults,
    builder: Option<Builder>,
    without: Option<Vec<&'static str>>,
}

/// How a simulation ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// Ends of connections that nobody has closed.
    pub open_connections: usize,
    /// What the runtime has asked the kernel for that it never should. Empty, or there is a fault in Ringshot.
    pub violations: Vec<String>,
}

impl Simulation {
    /// A simulation in which everything is drawn from `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            faults: Faults::hidden(),
            builder: None,
            without: None,
        }
    }

    /// What goes wrong. Default: [`Faults::hidden`].
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// The runtime's options. Its backend does not matter. Default: small buffers and bounds, drawn from the seed.
    pub fn builder(mut self, builder: Builder) -> Self {
        self.builder = Some(builder);
        self
    }

    /// The features that the kernel lacks, as `RINGSHOT_DISABLE` names them. Default: drawn from the seed.
    pub fn without(mut self, features: &[&'static str]) -> Self {
        self.without = Some(features.to_vec());
        self
    }

    /// Runs a future, and the tasks that it spawns, until it is ready.
    ///
    /// # Panics
    ///
    /// If the future panics; if it waits for something that cannot happen any more, or spins; if the runtime itself
    /// misbehaves. The panic's message ends with the seed.
    pub fn run<F: Future>(self, future: F) -> F::Output {
        let seed = self.seed;
        let (output, report) = self.run_with_report(future);
        assert!(
            report.violations.is_empty(),
            "the runtime misbehaved: {}; seed {seed}",
            report.violations.join("; ")
        );
        output
    }

    /// Like [`run`](Self::run), and tells what is left at the end instead of judging it.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run), but not if the runtime misbehaves.
    pub fn run_with_report<F: Future>(self, future: F) -> (F::Output, Report) {
        let ran = catch_unwind(AssertUnwindSafe(|| self.simulate(future)));
        match ran {
            Ok(Ok(done)) => done,
            Ok(Err(error)) => panic!("no simulation: {error}"),
            Err(panic) => match message(panic.as_ref()) {
                Some(message) => panic!("{message}; seed {}", self.seed),
                None => resume_unwind(panic),
            },
        }
    }

    fn simulate<F: Future>(&self, future: F) -> Result<(F::Output, Report), BuildError> {
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let builder = (self.builder.clone()).unwrap_or_else(|| small(&mut rng));
        let without =
            (self.without.clone()).unwrap_or_else(|| RUNGS[rng.usize(..RUNGS.len())].to_vec());
        let features = probe::simulated(&without);
        let parts = sim::new(rng.u64(..), self.faults, features.skip_success.is_on());
        // Others would have threads, and what threads do is not repeatable.
        let crew = Crew::new(&builder.clone().workers(1));
        let reactor = Reactor::new(
            parts.driver,
            parts.system,
            features,
            builder.limits()?,
            crew.bell(0)?,
        )?;
        let worker = crew.seat_with(0, reactor, Source::Simulated(parts.now));
        let runtime = Runtime::new(worker, None);
        let output = runtime.block_on(future);
        drop(runtime);
        let report = Report {
            open_connections: parts.observer.open_ends(),
            violations: parts.observer.violations(),
        };
        Ok((output, report))
    }
}

/// Bounds that are met soon.
fn small(rng: &mut fastrand::Rng) -> Builder {
    Builder::new()
        .buffers(1 << rng.u32(..6))
        .buffer_size(1 << rng.usize(..11))
        .recv_high_water(1 << rng.usize(..13))
        .send_high_water(1 << rng.usize(..13))
        .accept_backlog(rng.usize(1..9))
}

fn message(panic: &(dyn Any + Send)) -> Option<&str> {
    (panic.downcast_ref::<&str>().copied())
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
}

/// What kernels of some ages lack. The first two are what most run on.
const RUNGS: [&[&str]; 8] = [
    &[],
    &[],
    &["recv_limit"],
    &["silent_send"],
    &["multishot_recv", "multishot_accept"],
    &[
        "poll_first",
        "multishot_recv",
        "multishot_accept",
        "silent_send",
    ],
    &[
        "buffer_ring",
        "multishot_accept",
        "multishot_poll",
        "skip_success",
    ],
    &["fast_poll"],
];
