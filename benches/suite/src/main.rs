//! The benchmark suite: runs the loads against Ringshot, other runtimes and hand-written loops, and writes the report.
//!
//! See `README.md` in this directory.

// A program for a person at a terminal.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod calibrate;
mod calls;
mod catalogue;
mod count;
mod load;
mod measure;
mod micro;
mod process;
mod report;
mod results;
mod run;
mod seeds;
mod servers;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::catalogue::{Kind, PEERS, Peer, SCENARIOS, Scenario};
use crate::count::Count;
use crate::report::Parts;
use crate::results::{PeerEntry, Settings};
use crate::run::Plan;
use crate::seeds::{SEEDS, Seed};

/// Benchmarks of Ringshot against other runtimes and against hand-written loops
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure, print a summary, and keep the raw data in `benches/suite/results`
    Run(RunArgs),
    /// Write docs/benchmarks.md and its plots from the last runs of `run`, `micro` and `seeds`
    Report {
        /// The raw data of `run` [default: the last one]; of several, what a later one has measured counts
        #[arg(long)]
        results: Vec<PathBuf>,
        /// Where to write
        #[arg(long, default_value = "docs")]
        directory: PathBuf,
    },
    /// Measure the executor without a network, against tokio
    Micro {
        /// Rounds of all benchmarks, of about a minute each
        #[arg(long, default_value_t = 5)]
        rounds: usize,
    },
    /// Measure five of the kernel's mechanisms, each on and off
    Seeds(SeedArgs),
    /// Count instructions under callgrind and compare them with benches/budget.toml
    Count {
        /// Make the counts the budget
        #[arg(long)]
        write: bool,
        /// How often each count is taken; the median is used
        #[arg(long, default_value_t = 1)]
        repeats: usize,
    },
    /// Print the scenarios and the servers
    List,
}

#[derive(Args)]
struct RunArgs {
    /// A look that takes less than five minutes (once the servers are built)
    #[arg(long)]
    quick: bool,
    /// The scenarios, by their letters
    #[arg(long, value_delimiter = ',', value_parser = parse_scenario)]
    only: Vec<&'static Scenario>,
    /// The servers, by their names
    #[arg(long, value_delimiter = ',', value_parser = parse_peer)]
    peers: Vec<&'static Peer>,
    /// Rounds of each measurement [default: 7, quick: 3]
    #[arg(long)]
    rounds: Option<usize>,
    /// Seconds of each measurement [default: 2, quick: 0.25]
    #[arg(long)]
    seconds: Option<f64>,
    /// How often a disturbed measurement is taken again [default: 3, quick: 1]
    #[arg(long)]
    repeats: Option<usize>,
    /// Do not count system calls
    #[arg(long)]
    no_calls: bool,
}

#[derive(Args)]
struct SeedArgs {
    /// A look that takes some two minutes (once the servers are built)
    #[arg(long)]
    quick: bool,
    /// Which of them: accept, enter, batch, recv, send
    #[arg(long, value_delimiter = ',', value_parser = parse_seed)]
    only: Vec<&'static Seed>,
    /// Rounds of each measurement [default: 7, quick: 3]
    #[arg(long)]
    rounds: Option<usize>,
    /// Seconds of each measurement [default: 1, quick: 0.25]
    #[arg(long)]
    seconds: Option<f64>,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => run(&args),
        Command::Report { results, directory } => report(results, &directory),
        Command::Micro { rounds } => micro(rounds.max(1)),
        Command::Seeds(args) => seeds(&args),
        Command::Count { write, repeats } => Count {
            repeats: repeats.max(1),
            write,
        }
        .run(),
        Command::List => {
            list();
            Ok(ExitCode::SUCCESS)
        }
    };
    result.unwrap_or_else(|error| {
        eprintln!("bench: {error}");
        ExitCode::FAILURE
    })
}

fn run(args: &RunArgs) -> io::Result<ExitCode> {
    let quick = args.quick;
    let or_default =
        |value: Option<usize>, usual, quickly| value.unwrap_or(if quick { quickly } else { usual });
    let rounds = or_default(args.rounds, 7, 3).max(1);
    let plan = Plan {
        scenarios: or_all(&args.only, &SCENARIOS),
        peers: or_all(&args.peers, &PEERS),
        settings: Settings {
            quick,
            rounds,
            seconds: args.seconds.unwrap_or(if quick { 0.25 } else { 2.0 }),
            short_connections: if quick { 4_000 } else { 20_000 },
            idle_rounds: rounds.min(if quick { 1 } else { 3 }),
            repeats: or_default(args.repeats, 3, 1),
            repeats_in_all: if quick { 100 } else { 10_000 },
        },
        count_calls: !args.no_calls,
        directory: results::directory(""),
    };
    let (results, path) = plan.run()?;
    println!("{}", report::summary(&results));
    println!("raw data: {}", path.display());
    // What did not work must not look like success, least of all in CI. But a peer that nobody asked for by its name
    // may not build here.
    let missing = |peer: &&PeerEntry| {
        let wanted = !args.peers.is_empty() || peer.kind != Kind::Rival;
        peer.build_error.is_some() && wanted
    };
    let complete = results.failures.is_empty() && !results.peers.iter().any(|peer| missing(&peer));
    Ok(if complete {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn seeds(args: &SeedArgs) -> io::Result<ExitCode> {
    let quick = args.quick;
    let chosen = or_all(&args.only, &SEEDS);
    let keys: String = chosen.iter().map(|seed| seed.scenarios).collect();
    let rounds = args.rounds.unwrap_or(if quick { 3 } else { 7 });
    let plan = Plan {
        scenarios: keys.chars().filter_map(seeds::scenario).collect(),
        peers: (seeds::CASES.iter())
            .filter(|case| keys.chars().any(|key| case.scenarios.contains(key)))
            .collect(),
        settings: Settings {
            quick,
            rounds: rounds.max(1),
            seconds: args.seconds.unwrap_or(if quick { 0.25 } else { 1.0 }),
            short_connections: seeds::CONNECTIONS,
            idle_rounds: 0,
            repeats: if quick { 1 } else { 3 },
            repeats_in_all: if quick { 50 } else { 1_000 },
        },
        count_calls: true,
        directory: results::directory(seeds::PART),
    };
    let (results, path) = plan.run()?;
    println!("{}", report::seeds_summary(&results));
    println!("raw data: {}", path.display());
    let complete = results.failures.is_empty();
    Ok(
        if complete && results.peers.iter().all(|peer| peer.build_error.is_none()) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        },
    )
}

fn micro(rounds: usize) -> io::Result<ExitCode> {
    let (figures, path) = micro::run(rounds)?;
    println!("{}", report::micro_summary(&figures));
    println!("raw data: {}", path.display());
    Ok(ExitCode::SUCCESS)
}

fn report(results: Vec<PathBuf>, directory: &Path) -> io::Result<ExitCode> {
    let parts = Parts::latest(results, directory)?;
    println!("{}", report::write(&parts, directory)?.display());
    Ok(ExitCode::SUCCESS)
}

fn list() {
    for scenario in &SCENARIOS {
        println!("{}  {}", scenario.key, scenario.title);
    }
    println!();
    for peer in &PEERS {
        println!("{:<16} {}", peer.name, peer.about);
    }
}

fn or_all<T>(chosen: &[&'static T], all: &'static [T]) -> Vec<&'static T> {
    if chosen.is_empty() {
        all.iter().collect()
    } else {
        chosen.to_vec()
    }
}

fn parse_scenario(text: &str) -> Result<&'static Scenario, String> {
    let key = text.chars().next().filter(|_| text.len() == 1);
    key.and_then(catalogue::scenario)
        .ok_or_else(|| "a scenario is one letter from a to h".to_owned())
}

fn parse_seed(name: &str) -> Result<&'static Seed, String> {
    let seed = SEEDS.iter().find(|seed| seed.name == name);
    seed.ok_or_else(|| "the seeds are accept, enter, batch, recv, send".to_owned())
}

fn parse_peer(name: &str) -> Result<&'static Peer, String> {
    catalogue::peer(name).ok_or_else(|| {
        let names: Vec<&str> = PEERS.iter().map(|peer| peer.name).collect();
        format!("the servers are {}", names.join(", "))
    })
}
