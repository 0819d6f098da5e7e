//! The executor's programs on Ringshot and on tokio, by criterion. `cargo run --release -p bench -- micro` runs this in
//! rounds, and compares.

use std::time::Duration;

use criterion::{Criterion, SamplingMode, Throughput};
use micro::{LOT, Ringshot, Runtime, TokioCurrent, TokioMulti};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A program on one runtime: does so many operations, and tells what they cost.
type Program<R> = fn(&R, u64) -> Duration;

fn main() {
    let mut criterion = Criterion::default()
        .without_plots()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600))
        .sample_size(20)
        .configure_from_args();
    let cpus = sched_getaffinity(None).expect("the CPUs of this process");
    let first = (0..CpuSet::MAX_CPU).find(|&cpu| cpus.is_set(cpu));
    let mut one = CpuSet::new();
    one.set(first.expect("this runs on a CPU"));

    macro_rules! compare {
        ($kind:ident, $rival:ident: $($program:ident)*) => {$(
            let name = stringify!($program);
            compare::<$rival>(&mut criterion, name, $kind, micro::$program, micro::$program);
        )*};
    }
    sched_setaffinity(None, &one).expect("the CPU is ours");
    compare!(EACH, TokioCurrent: spawn join yield_alone yield_among_many wake ping_pong block_on);
    compare!(EACH, TokioCurrent: cancel_one cancel_one_behind);
    compare!(LOTS, TokioCurrent: cancel_lot cancel_lot_behind fire_lot);
    sched_setaffinity(None, &cpus).expect("the CPUs were ours");
    compare!(EACH, TokioMulti: remote_ping_pong remote_join);
    criterion.final_summary();
}

/// Each operation is one of criterion's iterations.
const EACH: u64 = 1;
/// A whole lot of them is.
const LOTS: u64 = LOT;

fn compare<R: Runtime>(
    criterion: &mut Criterion,
    name: &str,
    operations: u64,
    ours: Program<Ringshot>,
    theirs: Program<R>,
) {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(operations));
    if operations > 1 {
        group.sampling_mode(SamplingMode::Flat).sample_size(10);
    }
    group.bench_function("ringshot", |bencher| {
        let runtime = Ringshot::new();
        bencher.iter_custom(|count| ours(&runtime, count));
    });
    group.bench_function("tokio", |bencher| {
        let runtime = R::new();
        bencher.iter_custom(|count| theirs(&runtime, count));
    });
    group.finish();
}
