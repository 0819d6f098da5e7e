//! What it costs to cross from one thread to another: messages there and back, tasks, and wakes of a thread that sleeps.
//! In more detail than in `executor`, and on our other rungs.
//!
//! Each variant runs the same program with the same channels (`futures::channel`), in a process of its own. The variants
//! take turns, round by round, so that a slow minute of the machine hits all of them; what is printed is the median of
//! the rounds with the smallest and the largest, and the CPU time of the whole process.
//!
//! ```sh
//! cargo bench --manifest-path benches/peers/Cargo.toml -p micro --bench cross      # [-- --rounds N]
//! ```
//!
//! tokio's program awaits in `block_on`, which is a thread of its own there, so that its messages cross threads as ours
//! do. Tasks that talk to each other inside its pool often end up on one thread and then cost less; here that is
//! `runtime::spawn`. Not shown: more than two threads, and what a loaded machine does to any of this.

use std::env;
use std::future::Future;
use std::io;
use std::process::Command;
use std::sync::mpsc as std_mpsc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::future::join_all;

/// Each with the environment that makes it what it is.
const VARIANTS: [(&str, Program, &str, &str); 5] = [
    ("ringshot", Program::Ringshot, "", ""),
    (
        "ringshot, eventfd",
        Program::Ringshot,
        "RINGSHOT_DISABLE",
        "msg_ring",
    ),
    (
        "ringshot, epoll",
        Program::Ringshot,
        "RINGSHOT_BACKEND",
        "epoll",
    ),
    ("tokio, multi-thread", Program::Tokio, "", ""),
    ("std::sync::mpsc and threads", Program::Std, "", ""),
];

const WORKLOADS: [(&str, Workload); 5] = [
    ("ping-pong, a round", Workload::PingPong),
    ("spawn and await, each", Workload::Spawn),
    ("spawn 1,000, await all, each", Workload::Batch),
    ("wake of a sleeper, median", Workload::Wake(50)),
    ("wake of a sleeper, 99th percentile", Workload::Wake(99)),
];

#[derive(Clone, Copy)]
enum Program {
    Ringshot,
    Tokio,
    Std,
}

#[derive(Clone, Copy)]
enum Workload {
    PingPong,
    Spawn,
    Batch,
    /// The percentile.
    Wake(usize),
}

#[derive(Parser)]
struct Args {
    /// Rounds of each variant
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// Nanoseconds.
#[derive(Clone, Copy)]
struct Cost {
    wall: f64,
    cpu: f64,
}

fn main() -> io::Result<()> {
    if let Ok(child) = env::var(CHILD) {
        let (variant, workload) = child.split_once(' ').expect("two numbers");
        let number = |text: &str| text.parse::<usize>().expect("a number");
        let (program, workload) = (VARIANTS[number(variant)].1, WORKLOADS[number(workload)].1);
        let cost = measure(program, workload);
        println!("{} {}", cost.wall, cost.cpu);
        return Ok(());
    }
    let args = Args::parse();
    for (workload, (title, _)) in WORKLOADS.iter().enumerate() {
        let mut costs = vec![Vec::new(); VARIANTS.len()];
        for _ in 0..args.rounds {
            for (variant, costs) in costs.iter_mut().enumerate() {
                costs.push(run(variant, workload)?);
            }
        }
        println!(
            "\n{title:<34} {:>9} {:>20} {:>9}",
            "median", "(least to most)", "CPU"
        );
        for ((name, ..), costs) in VARIANTS.iter().zip(costs) {
            let (wall, least, most) = spread(costs.iter().map(|cost| cost.wall));
            let (cpu, ..) = spread(costs.iter().map(|cost| cost.cpu));
            println!("  {name:<32} {wall:>6.2} µs ({least:>6.2} to {most:>7.2}) {cpu:>6.2} µs");
        }
    }
    Ok(())
}

fn run(variant: usize, workload: usize) -> io::Result<Cost> {
    let mut child = Command::new(env::current_exe()?);
    child.env(CHILD, format!("{variant} {workload}"));
    let (.., variable, value) = VARIANTS[variant];
    if !variable.is_empty() {
        child.env(variable, value);
    }
    let output = child.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text.split_whitespace().map(|text| text.parse::<f64>());
    match (numbers.next(), numbers.next()) {
        (Some(Ok(wall)), Some(Ok(cpu))) => Ok(Cost { wall, cpu }),
        _ => Err(io::Error::other(format!("a child failed: {output:?}"))),
    }
}

/// Median, least and most, in microseconds.
fn spread(values: impl Iterator<Item = f64>) -> (f64, f64, f64) {
    let mut values: Vec<f64> = values.map(|nanoseconds| nanoseconds / 1_000.0).collect();
    values.sort_by(f64::total_cmp);
    (
        values[values.len() / 2],
        values[0],
        values[values.len() - 1],
    )
}

// ---- the programs ----

fn measure(program: Program, workload: Workload) -> Cost {
    match program {
        Program::Ringshot => {
            let runtime = (runtime::Builder::new().workers(2).build()).expect("a runtime");
            runtime.block_on(works(Ringshot, workload))
        }
        Program::Tokio => {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .build()
                .expect("a runtime");
            runtime.block_on(works(Tokio, workload))
        }
        Program::Std => std_works(workload),
    }
}

/// Starts a task on another thread than that of `block_on`.
trait Elsewhere {
    fn spawn<F>(&self, future: F) -> impl Future<Output = ()>
    where
        F: Future<Output = ()> + Send + 'static;
}

struct Ringshot;

impl Elsewhere for Ringshot {
    fn spawn<F: Future<Output = ()> + Send + 'static>(
        &self,
        future: F,
    ) -> impl Future<Output = ()> {
        let task = runtime::spawn_on(1, move || future);
        async move { task.await.expect("it does not panic") }
    }
}

struct Tokio;

impl Elsewhere for Tokio {
    fn spawn<F: Future<Output = ()> + Send + 'static>(
        &self,
        future: F,
    ) -> impl Future<Output = ()> {
        let task = tokio::spawn(future);
        async move { task.await.expect("it does not panic") }
    }
}

async fn works(there: impl Elsewhere, workload: Workload) -> Cost {
    match workload {
        Workload::PingPong => {
            let (ping, pings) = unbounded();
            let (pong, mut pongs) = unbounded();
            let echo = there.spawn(echo(pings, pong));
            let mut rounds = async |count: usize| {
                for _ in 0..count {
                    ping.unbounded_send(()).expect("somebody listens");
                    pongs.next().await.expect("an answer");
                }
            };
            rounds(WARM_UP).await;
            let clock = Clock::start();
            rounds(ROUNDS).await;
            let cost = clock.stop(ROUNDS);
            drop(ping);
            echo.await;
            cost
        }
        Workload::Spawn => {
            let rounds = async |count: usize| {
                for _ in 0..count {
                    there.spawn(async {}).await;
                }
            };
            rounds(WARM_UP).await;
            let clock = Clock::start();
            rounds(ROUNDS).await;
            clock.stop(ROUNDS)
        }
        Workload::Batch => {
            let rounds = async |count: usize| {
                for _ in 0..count {
                    join_all((0..BATCH).map(|_| there.spawn(async {}))).await;
                }
            };
            rounds(5).await;
            let clock = Clock::start();
            rounds(BATCHES).await;
            clock.stop(BATCHES * BATCH)
        }
        Workload::Wake(percentile) => {
            let (sender, receiver) = unbounded();
            let (seen_sender, seen) = std_mpsc::channel();
            let sleeper = there.spawn(sleeper(receiver, seen_sender));
            let cost = thread::spawn(move || {
                wakes(|now| drop(sender.unbounded_send(now)), &seen, percentile)
            });
            let cost = cost.join().expect("it does not panic");
            sleeper.await;
            cost
        }
    }
}

async fn echo(mut pings: UnboundedReceiver<()>, pong: UnboundedSender<()>) {
    while pings.next().await.is_some() {
        pong.unbounded_send(()).expect("somebody listens");
    }
}

async fn sleeper(mut receiver: UnboundedReceiver<Instant>, seen: std_mpsc::Sender<Duration>) {
    while let Some(sent) = receiver.next().await {
        seen.send(sent.elapsed()).expect("somebody listens");
    }
}

/// From a thread that is no worker, with time enough to fall asleep in between.
fn wakes(send: impl Fn(Instant), seen: &std_mpsc::Receiver<Duration>, percentile: usize) -> Cost {
    let clock = Clock::start();
    let mut late: Vec<Duration> = (0..WAKES)
        .map(|_| {
            thread::sleep(Duration::from_micros(300));
            send(Instant::now());
            seen.recv().expect("an answer")
        })
        .collect();
    late.sort_unstable();
    Cost {
        wall: late[(WAKES * percentile / 100).min(WAKES - 1)].as_nanos() as f64,
        ..clock.stop(WAKES)
    }
}

fn std_works(workload: Workload) -> Cost {
    type Job = Box<dyn FnOnce() + Send>;
    let (jobs, todo) = std_mpsc::channel::<Job>();
    let (done, answers) = std_mpsc::channel::<()>();
    let worker = thread::spawn(move || todo.into_iter().for_each(|job| job()));
    let job = || -> Job {
        let done = done.clone();
        Box::new(move || done.send(()).unwrap_or_default())
    };
    let rounds = |count: usize, batch: usize| {
        for _ in 0..count {
            for _ in 0..batch {
                jobs.send(job()).expect("somebody listens");
            }
            for _ in 0..batch {
                answers.recv().expect("an answer");
            }
        }
    };
    let cost = match workload {
        Workload::PingPong => {
            let (ping, pings) = std_mpsc::channel::<()>();
            let (pong, pongs) = std_mpsc::channel::<()>();
            let echo = thread::spawn(move || {
                pings
                    .iter()
                    .for_each(|()| pong.send(()).unwrap_or_default())
            });
            let rounds = |count: usize| {
                for _ in 0..count {
                    ping.send(()).expect("somebody listens");
                    pongs.recv().expect("an answer");
                }
            };
            rounds(WARM_UP);
            let clock = Clock::start();
            rounds(ROUNDS);
            let cost = clock.stop(ROUNDS);
            drop(ping);
            echo.join().expect("it does not panic");
            cost
        }
        Workload::Spawn => {
            rounds(WARM_UP, 1);
            let clock = Clock::start();
            rounds(ROUNDS, 1);
            clock.stop(ROUNDS)
        }
        Workload::Batch => {
            rounds(5, BATCH);
            let clock = Clock::start();
            rounds(BATCHES, BATCH);
            clock.stop(BATCHES * BATCH)
        }
        Workload::Wake(percentile) => {
            let (seen_sender, seen) = std_mpsc::channel();
            let send = |now: Instant| {
                let seen = seen_sender.clone();
                let job: Job = Box::new(move || seen.send(now.elapsed()).unwrap_or_default());
                jobs.send(job).expect("somebody listens");
            };
            wakes(send, &seen, percentile)
        }
    };
    drop(jobs);
    worker.join().expect("it does not panic");
    cost
}

struct Clock {
    wall: Instant,
    cpu: f64,
}

impl Clock {
    fn start() -> Self {
        Self {
            wall: Instant::now(),
            cpu: cpu_time(),
        }
    }

    fn stop(&self, count: usize) -> Cost {
        Cost {
            wall: self.wall.elapsed().as_nanos() as f64 / count as f64,
            cpu: (cpu_time() - self.cpu) / count as f64,
        }
    }
}

/// Of all threads of this process, in nanoseconds.
fn cpu_time() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills one timespec, which outlives the call.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Which variant and which workload a process is for.
const CHILD: &str = "RINGSHOT_BENCH_CHILD";

const WARM_UP: usize = 2_000;
const ROUNDS: usize = 20_000;
const BATCH: usize = 1_000;
const BATCHES: usize = 100;
const WAKES: usize = 1_000;
