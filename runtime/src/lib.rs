//! Ringshot's runtime: a thread-per-core executor for Linux whose sockets are streams fed by io_uring.
//!
//! **A completion engine with a readiness face.** Multishot operations belong to the *socket*, not to the future
//! that happens to wait. So the API takes borrowed buffers and reads like the one you know, and dropping any future
//! loses no byte, no connection and no buffer.
//!
//! Sockets with names and addresses are in the crate `ringshot-net` (`use net::TcpListener`); this one has tasks,
//! [`time`] and the building blocks in [`io`].
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//!
//! #[runtime::main]
//! async fn main() -> Result<(), runtime::JoinError> {
//!     let task = runtime::spawn(async {
//!         runtime::time::sleep(Duration::from_millis(1)).await;
//!         "done"
//!     });
//!     assert_eq!(task.await?, "done");
//!     Ok(())
//! }
//! ```

#[cfg(not(target_os = "linux"))]
compile_error!("Ringshot runs on Linux only: it is built on io_uring");

mod blocking;
mod builder;
mod context;
mod cpus;
mod error;
mod executor;
#[cfg(feature = "metrics")]
mod export;
mod handle;
pub mod io;
mod metrics;
#[cfg(all(test, ringshot_loom))]
mod models;
mod reactor;
pub mod signal;
#[cfg(feature = "sim")]
pub mod sim;
mod spawn;
mod sync;
pub mod time;
mod watch;
mod worker;
mod workers;

pub use ringshot_macros::{main, test};

pub use crate::{
    blocking::spawn_blocking,
    builder::{Backend, Builder, Runtime},
    cpus::{Pinning, Workers},
    error::BuildError,
    executor::{JoinError, JoinHandle, yield_now},
    handle::Handle,
    metrics::{Histogram, Metrics, metrics},
    reactor::probe::{Feature, Features},
    spawn::{features, spawn, spawn_on, spawn_on_each, worker},
};
