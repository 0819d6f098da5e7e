//! The runtime on a simulated kernel: what must hold whatever the kernel does, over many seeds.
//!
//! `RINGSHOT_SIM_SEEDS=N` runs N seeds of each instead of some hundred; `RINGSHOT_SIM_SEED=S` runs that one.

mod streams;
