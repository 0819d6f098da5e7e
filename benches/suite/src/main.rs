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
mod process;
mod report;
mod results;
mod run;
mod servers;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::catalogue::{Kind, PEERS, Peer, SCENARIOS, Scenario};
use crate::count::Count;
use crate::results::{PeerEntry, Results, Settings};
use crate::run::Plan;

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
    /// Write docs/benchmarks.md and its plots from a run
    Report {
        /// The raw data [default: the last run]
        #[arg(long)]
        results: Option<PathBuf>,
        /// Where to write
        #[arg(long, default_value = "docs")]
        directory: PathBuf,
    },
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

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => run(&args),
        Command::Report { results, directory } => report(results, &directory),
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

fn report(results: Option<PathBuf>, directory: &std::path::Path) -> io::Result<ExitCode> {
    let path = match results {
        Some(path) => path,
        None => results::latest()?,
    };
    let written = report::write(&Results::load(&path)?, directory)?;
    println!("{}", written.display());
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

fn parse_peer(name: &str) -> Result<&'static Peer, String> {
    catalogue::peer(name).ok_or_else(|| {
        let names: Vec<&str> = PEERS.iter().map(|peer| peer.name).collect();
        format!("the servers are {}", names.join(", "))
    })
}
