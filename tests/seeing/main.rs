//! What a program can see of its workers: their figures, polls that take too long, and spans.

mod export;
mod figures;
mod slow;
mod spans;

use std::sync::OnceLock;
use std::time::Duration;

use support::{Alone, Log};
use tracing_subscriber::filter::LevelFilter;

fn alone(what: &str) -> Alone {
    support::alone(what, Duration::from_secs(60))
}

/// What this process logs, whichever test asks first.
fn log() -> &'static Log {
    static LOG: OnceLock<Log> = OnceLock::new();
    LOG.get_or_init(|| Log::start(LevelFilter::INFO))
}

/// The lines of the log with all these words.
fn lines(words: &[&str]) -> Vec<String> {
    let lines = log().lines().into_iter();
    lines
        .filter(|line| words.iter().all(|word| line.contains(word)))
        .collect()
}
