//! Hours of everything at once: what a server meets in years, with every byte looked at.
//!
//! A server on one runtime; clients on another, and on plain threads. They echo, hurry, dawdle, hoard, drop, reset,
//! cancel and half-close, beside storms of timers and tasks. At the end nothing may be lost, wrong or left over.
//!
//! What is done follows from the seed; when it is done depends on the machine, so a seed does not replay a run. A
//! complaint names the seed of its round.

mod chores;
mod clients;
mod foreign;
mod ledger;
mod server;
mod side;
mod verdict;
mod wire;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use futures::channel::oneshot;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use support::Rng;

use crate::ledger::{Ledger, Side};
use crate::side::SideThread;
use crate::verdict::{Memory, Verdict, hardships, status};

/// Loads the runtime with everything at once, checks every byte, and ends with a verdict.
#[derive(Parser)]
#[command(after_help = "\
Try it:
  cargo run --release --example soak -- --minutes 3
  RINGSHOT_BACKEND=epoll cargo run --release --example soak -- --minutes 3

Ctrl-C ends it early, with a verdict.

Exit status: 0 when all is well, 1 when anything is not, 2 for a wrong argument.")]
struct Args {
    /// How long the load lasts
    #[arg(long, default_value_t = 3.0, value_parser = minutes)]
    minutes: f64,

    /// From which the choice of actions follows; by default a new one
    #[arg(long)]
    seed: Option<u64>,
}

fn minutes(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(minutes) if (0.1..=100_000.0).contains(&minutes) => Ok(minutes),
        _ => Err("a number from 0.1 to 100000 is needed".to_owned()),
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    match soak(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Says whether all was well.
fn soak(args: &Args) -> io::Result<bool> {
    let seed = args.seed.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |since| since.as_nanos() as u64)
    });
    let mut rng = Rng::new(seed);
    let ledger = Arc::new(Ledger::default());
    report_panics(&ledger);
    let interrupted = catch_signals()?;
    let fds_at_first = support::open_fds();

    let listener = std::net::TcpListener::bind(support::loopback())?;
    let addr = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel();
    let (server, features) = SideThread::build(server::builder(), {
        let (ledger, rng) = (ledger.clone(), rng.fork());
        move || server::serve(ledger, rng, listener, stopped)
    })?;
    let (clients, _) = SideThread::build(runtime::Builder::new(), {
        let (ledger, rng) = (ledger.clone(), rng.fork());
        move || clients::run(ledger, rng, addr)
    })?;
    // Without the listener, which goes with the server.
    let fds_when_idle = support::open_fds() - 1;
    println!("soak: {} minutes, seed {seed} ({features})", args.minutes);

    server.run();
    clients.run();
    let foreign = foreign::start(&ledger, &mut rng, addr);
    let mut memory = Memory::default();
    let mut verdict = Verdict::default();
    let stalled = watch(args, &ledger, &mut memory, &interrupted);
    verdict.equal("loads that stood still", stalled.join(", "), String::new());

    ledger.stop();
    for thread in foreign {
        // A panic was noticed by the hook.
        let _ = thread.join();
    }
    let clients_outcome = clients.outcome(4 * PATIENCE);
    let _ = stop.send(());
    let server_outcome = server.outcome(4 * PATIENCE);
    let ends = [
        (Side::Server, server, server_outcome),
        (Side::Clients, clients, clients_outcome),
    ];
    verdict.work_done(&ledger);
    for (side, _, outcome) in &ends {
        verdict.side(*side, outcome.as_ref());
    }
    verdict.equal(
        "descriptors when all is idle",
        settled_fds(fds_when_idle),
        fds_when_idle,
    );
    for (side, thread, outcome) in ends {
        // One that hangs cannot be waited for.
        if let Some(outcome) = outcome {
            ledger.publish(side, outcome.metrics);
            thread.end();
        }
    }
    verdict.equal(
        "descriptors at the end",
        settled_fds(fds_at_first),
        fds_at_first,
    );
    verdict.memory(&memory);
    for complaint in ledger.take_complaints() {
        println!("{complaint}");
    }
    println!("{}", status(&ledger, &mut memory));
    for side in [Side::Server, Side::Clients] {
        println!("{}", hardships(&ledger, side));
    }
    for (load, count) in ledger.rounds() {
        println!("{load}: {count} rounds");
    }
    Ok(verdict.print())
}

/// Shows what goes on until the time is over. Returns the loads that stood still.
fn watch(
    args: &Args,
    ledger: &Ledger,
    memory: &mut Memory,
    interrupted: &AtomicBool,
) -> Vec<&'static str> {
    let duration = Duration::from_secs_f64(args.minutes * 60.0);
    let start = Instant::now();
    let display = Display::new(duration);
    let mut seconds = 0;
    let is_over = || start.elapsed() >= duration || interrupted.load(Relaxed);
    while !is_over() {
        seconds += 1;
        let next = start + Duration::from_secs(seconds);
        while Instant::now() < next && !is_over() {
            thread::sleep(Duration::from_millis(20));
        }
        for complaint in ledger.take_complaints() {
            display.line(&complaint);
        }
        display.progress(seconds, &status(ledger, memory));
        let stalled = ledger.stalled(PATIENCE + PATIENCE / 2);
        if !stalled.is_empty() || ledger.complaint_count() >= TOO_MANY {
            display.line("this is enough");
            return stalled;
        }
    }
    Vec::new()
}

/// A bar on a terminal; elsewhere a line now and then.
struct Display {
    bar: ProgressBar,
    is_terminal: bool,
}

impl Display {
    fn new(duration: Duration) -> Self {
        let is_terminal = io::stdout().is_terminal();
        let target = if is_terminal {
            ProgressDrawTarget::stdout()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(duration.as_secs()), target);
        if let Ok(style) = ProgressStyle::with_template("{wide_bar} {elapsed}/{len} s\n{msg}") {
            bar.set_style(style);
        }
        Self { bar, is_terminal }
    }

    fn progress(&self, seconds: u64, status: &str) {
        if self.is_terminal {
            self.bar.set_position(seconds);
            self.bar.set_message(status.to_owned());
        } else if seconds.is_multiple_of(10) {
            println!("{seconds} s: {status}");
        }
    }

    fn line(&self, line: &str) {
        self.bar.suspend(|| println!("{line}"));
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The open descriptors, once they are `expected`, or after a while.
fn settled_fds(expected: usize) -> usize {
    let start = Instant::now();
    while support::open_fds() != expected && start.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(10));
    }
    support::open_fds()
}

/// Every panic is a breach, also in a task that nobody awaits.
fn report_panics(ledger: &Arc<Ledger>) {
    let ledger = ledger.clone();
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        ledger.complain(panic);
        print(panic);
    }));
}

/// The first signal ends the run, the second one the process.
fn catch_signals() -> io::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, interrupted.clone())?;
        signal_hook::flag::register(signal, interrupted.clone())?;
    }
    Ok(interrupted)
}

/// How long one round of a load may take. All of them are done within a second or two.
const PATIENCE: Duration = Duration::from_secs(60);

/// Complaints after which the run ends early.
const TOO_MANY: u64 = 1000;
