//! Tasks: how they end, who is told, who gets a turn, and who may wake them.

mod aborts;
mod errors;
mod fairness;
mod nesting;
mod product;
mod threads;

use std::time::Duration;

use support::Alone;

fn alone(what: &str) -> Alone {
    support::alone(what, Duration::from_secs(60))
}
