//! What the integration tests share: servers on their own thread, clients over `std`, counters of the process
//! (descriptors, resident memory, CPU time), position-coded bytes, seeded randomness, and a watchdog that turns a
//! hang into a failure.
//!
//! A test waits for an event, never for a while. Where the kernel tells nothing (a count below `/proc` that has to
//! settle), [`eventually`] polls with a bound.

mod blackhole;
mod calls;
mod child;
mod clients;
mod guard;
pub mod handlers;
mod log;
mod partial;
pub mod pattern;
mod process;
mod rng;
mod server;
mod settle;

use std::time::Duration;

pub use blackhole::Blackhole;
pub use calls::{CallCounter, Calls, EnterRefuser};
pub use child::{Child, Parent};
pub use clients::{Pinger, connect, connect_many, loopback, pair, read_to_fin, reset};
pub use guard::{Alone, Watchdog, alone};
pub use log::Log;
pub use partial::{Fate, partial};
pub use process::{
    ThreadUsage, leave_fd_room, open_fds, pool_threads, raise_fd_limit, resident_bytes, thread_id,
    thread_usage,
};
pub use rng::Rng;
pub use server::Server;
pub use settle::{eventually, settled};

/// How many bytes the long streams carry: `RINGSHOT_TEST_BYTES`, or 1 GiB in a release build and 256 MiB in a debug
/// build, where the checking of the bytes costs more than their transport.
pub fn long_stream_bytes() -> u64 {
    match std::env::var("RINGSHOT_TEST_BYTES") {
        Ok(text) => text
            .parse()
            .expect("RINGSHOT_TEST_BYTES is a number of bytes"),
        Err(_) if cfg!(debug_assertions) => 256 << 20,
        Err(_) => 1 << 30,
    }
}

/// How many of `usual` rounds a test runs that wins by repetition: fewer where [`patience`] says that each takes longer.
pub fn rounds(usual: usize) -> usize {
    (usual / patience() as usize).max(1)
}

/// The CPU time that a worker may use while it is watched idling for so long: 5 %, or more where each instruction costs
/// more. One that spins uses all of it.
pub fn idle_cpu(watched: Duration) -> Duration {
    (watched / 20 * patience()).min(watched / 2)
}

/// How many times longer than usual a test may wait before it fails: `RINGSHOT_TEST_PATIENCE`, for emulated machines.
pub fn patience() -> u32 {
    match std::env::var("RINGSHOT_TEST_PATIENCE") {
        Ok(text) => text.parse().expect("RINGSHOT_TEST_PATIENCE is a number"),
        Err(_) => 1,
    }
}
