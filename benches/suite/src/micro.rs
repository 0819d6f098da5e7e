//! The executor without a network, against tokio: runs the criterion benchmarks of `peers/micro` in rounds.
//!
//! Criterion measures one program after the other, for some seconds each, so a slow moment of the machine is in one of
//! them only. Several rounds of all show how much that matters.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::results::{Machine, Spread, directory, save};
use crate::run::progress_bar;
use crate::servers;

/// A program, by the name of its function in `peers/micro`.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) rival: &'static str,
}

const LOCAL: &str = "current-thread";
const REMOTE: &str = "multi-thread";

pub(crate) const PROGRAMS: [Program; 14] = [
    Program {
        name: "spawn",
        title: "spawn a task that does nothing, detached, and run it; 100 at a time",
        rival: LOCAL,
    },
    Program {
        name: "join",
        title: "spawn such a task and await it",
        rival: LOCAL,
    },
    Program {
        name: "yield_alone",
        title: "`yield_now`, the only task",
        rival: LOCAL,
    },
    Program {
        name: "yield_among_many",
        title: "`yield_now`, among 100 tasks",
        rival: LOCAL,
    },
    Program {
        name: "wake",
        title: "a task wakes itself and is polled again",
        rival: LOCAL,
    },
    Program {
        name: "ping_pong",
        title: "a message to another task of the same thread and back (`futures::channel::mpsc`)",
        rival: LOCAL,
    },
    Program {
        name: "block_on",
        title: "`block_on` of a future that is ready",
        rival: LOCAL,
    },
    Program {
        name: "cancel_one",
        title: "start a timer and drop it",
        rival: LOCAL,
    },
    Program {
        name: "cancel_one_behind",
        title: "start a timer and drop it, behind an earlier timer",
        rival: LOCAL,
    },
    Program {
        name: "cancel_lot",
        title: "start 1,000,000 timers and drop them, each",
        rival: LOCAL,
    },
    Program {
        name: "cancel_lot_behind",
        title: "start 1,000,000 timers and drop them, behind an earlier timer, each",
        rival: LOCAL,
    },
    Program {
        name: "fire_lot",
        title: "1,000,000 timers fire within 0.1 s, each",
        rival: LOCAL,
    },
    Program {
        name: "remote_ping_pong",
        title: "a message to a task of another thread and back",
        rival: REMOTE,
    },
    Program {
        name: "remote_join",
        title: "spawn a task onto another thread and await it",
        rival: REMOTE,
    },
];

/// What the rounds have found.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) started: String,
    pub(crate) machine: Machine,
    pub(crate) rounds: usize,
    pub(crate) tokio: Option<String>,
    pub(crate) figures: Vec<Figure>,
}

/// A program in a round: nanoseconds of one operation.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) program: String,
    pub(crate) round: usize,
    pub(crate) ringshot: f64,
    pub(crate) tokio: f64,
}

impl Figures {
    pub(crate) fn load(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
    }

    pub(crate) fn spread(&self, program: &str, of: fn(&Figure) -> f64) -> Option<Spread> {
        let figures = self.figures.iter();
        let figures = figures.filter(|figure| figure.program == program);
        Spread::of(figures.map(of).collect())
    }
}

/// Runs so many rounds, and returns what they found and where it was written.
pub(crate) fn run(rounds: usize) -> io::Result<(Figures, PathBuf)> {
    let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let path = directory(PART).join(format!("{}.json", started.replace(':', "-")));
    let estimates = path.with_extension("criterion");
    fs::create_dir_all(directory(PART))?;
    let log = File::create(path.with_extension("log"))?;
    let mut figures = Figures {
        started,
        machine: Machine::this(),
        rounds,
        tokio: servers::locked_version("tokio"),
        figures: Vec::new(),
    };
    let progress = progress_bar((rounds * PROGRAMS.len() * 2) as u64);
    progress.set_message("building");
    for round in 1..=rounds {
        measure(&estimates, &log, |program| {
            let place = format!("round {round} of {rounds}: {program}");
            if progress.is_hidden() {
                eprintln!("{place}");
            }
            progress.set_message(place);
            progress.inc(1);
        })?;
        for program in &PROGRAMS {
            let of = |who| estimate(&estimates.join(program.name).join(who));
            figures.figures.push(Figure {
                program: program.name.to_owned(),
                round,
                ringshot: of("ringshot")?,
                tokio: of("tokio")?,
            });
        }
        save(&figures, &path)?;
    }
    progress.finish_and_clear();
    Ok((figures, path))
}

/// One round of criterion, which leaves its estimates in a directory and tells of each program when it begins.
fn measure(estimates: &Path, mut log: &File, mut begins: impl FnMut(&str)) -> io::Result<()> {
    let mut child = servers::cargo_for_peers()?
        .args(["bench", "--package", "micro", "--bench", "executor"])
        .env("CRITERION_HOME", estimates)
        .stdout(Stdio::piped())
        .stderr(log.try_clone()?)
        .spawn()?;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            let line = line?;
            writeln!(log, "{line}")?;
            if let Some(program) = line.strip_prefix("Benchmarking ")
                && !program.contains(':')
            {
                begins(program);
            }
        }
    }
    if child.wait()?.success() {
        Ok(())
    } else {
        Err(io::Error::other(
            "the benchmarks failed; see the .log beside the results",
        ))
    }
}

/// The median of criterion's samples, for one operation.
fn estimate(directory: &Path) -> io::Result<f64> {
    let read = |file| -> io::Result<Value> {
        let text = fs::read_to_string(directory.join("new").join(file))?;
        Ok(serde_json::from_str(&text)?)
    };
    let median = read("estimates.json")?["median"]["point_estimate"].as_f64();
    let operations = read("benchmark.json")?["throughput"]["Elements"].as_f64();
    match (median, operations) {
        (Some(median), Some(operations)) => Ok(median / operations),
        _ => Err(io::Error::other(
            "criterion has left other files than expected",
        )),
    }
}

/// Where the raw data goes, beside that of the scenarios.
pub(crate) const PART: &str = "micro";
