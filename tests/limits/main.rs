//! When something runs out (descriptors, ring entries, buffers) the runtime slows down. It does not spin, fail, or
//! forget anybody.

mod descriptors;
mod pools;
mod rings;

use std::time::Duration;

use support::Alone;

fn alone(what: &str) -> Alone {
    support::alone(what, Duration::from_secs(120))
}
