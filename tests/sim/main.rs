//! The runtime on a simulated kernel: what must hold whatever the kernel does, over many seeds.
//!
//! `RINGSHOT_SIM_SEEDS=N` runs N seeds of each test instead of some hundred. `RINGSHOT_SIM_SEED=S` runs that one, and
//! logs every entry and completion.

mod ahead;
mod bounds;
mod connections;
mod replay;
mod streams;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use runtime::Metrics;
use runtime::sim::{Faults, Simulation};
use runtime::time::{Duration, sleep};
use support::Rng;

/// Seeds of each test, unless the environment says otherwise.
const SEEDS: u64 = 300;

/// Runs a program for every seed. Whatever the program does and the seed brings: everything is given back in the end.
fn explore(faults: Faults, program: impl AsyncFn(&mut Rng)) {
    let one = number("RINGSHOT_SIM_SEED");
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None => 0..number("RINGSHOT_SIM_SEEDS").unwrap_or(SEEDS),
    };
    if one.is_some() {
        let _ = tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
            .without_time()
            .try_init();
    }
    for seed in seeds {
        let ran = catch_unwind(AssertUnwindSafe(|| simulate(seed, faults, &program)));
        if let Err(panic) = ran {
            println!("replay with RINGSHOT_SIM_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

fn simulate(seed: u64, faults: Faults, program: &impl AsyncFn(&mut Rng)) {
    let simulation = Simulation::new(seed).faults(faults);
    let ((), report) = simulation.run_with_report(async {
        let before = runtime::metrics();
        program(&mut Rng::new(seed)).await;
        let after = at_rest(&before).await;
        assert_eq!(after.tasks, before.tasks, "tasks are left");
        assert_eq!(after.ops, before.ops, "operations are left");
        assert_eq!(after.buffers, after.buffers_free, "buffers are held");
        assert_eq!(after.unknown_completions, 0);
    });
    assert_eq!(report.violations, Vec::<String>::new());
    assert_eq!(report.open_connections, 0, "connections are left open");
}

/// What there is when everything that was let go has come to its end.
async fn at_rest(before: &Metrics) -> Metrics {
    for _ in 0..10_000 {
        let now = runtime::metrics();
        if now.tasks == before.tasks && now.ops == before.ops && now.buffers == now.buffers_free {
            return now;
        }
        sleep(Duration::from_millis(10)).await;
    }
    runtime::metrics()
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().expect("a number"))
}
