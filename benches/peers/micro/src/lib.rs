//! What the executor benchmarks compare: the same small programs, and the runtimes that they run on.

mod programs;
mod runtimes;

pub use programs::{
    Clock, LOT, block_on, cancel_lot, cancel_lot_behind, cancel_one, cancel_one_behind, fire_lot,
    join, ping_pong, remote_join, remote_ping_pong, spawn, wake, yield_alone, yield_among_many,
};
pub use runtimes::{Ringshot, Runtime, TokioCurrent, TokioMulti};
