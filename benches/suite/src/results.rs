//! The raw data of a run, as it is kept in JSON.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::calibrate::Speed;
use crate::catalogue::Kind;
use crate::load::Latency;

/// Everything that a run has found out.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) started: String,
    pub(crate) machine: Machine,
    pub(crate) settings: Settings,
    pub(crate) usual_speed: Speed,
    pub(crate) peers: Vec<PeerEntry>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) calls: Vec<Calls>,
    /// Who counted the system calls, or why nobody did.
    pub(crate) call_counter: String,
    pub(crate) failures: Vec<Failure>,
    /// What was measured again, and is here in place of what this run has found.
    #[serde(default)]
    pub(crate) again: Vec<Again>,
}

/// A later run of some scenarios.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Again {
    pub(crate) scenarios: String,
    pub(crate) started: String,
    pub(crate) settings: Settings,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_mib: u64,
    pub(crate) kernel: String,
    pub(crate) compiler: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) quick: bool,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    pub(crate) short_connections: u64,
    pub(crate) idle_rounds: usize,
    /// Of one measurement.
    pub(crate) repeats: usize,
    /// Of all measurements together, so that a noisy machine does not make a quick look long.
    pub(crate) repeats_in_all: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PeerEntry {
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) kind: Kind,
    pub(crate) version: Option<String>,
    /// Why it could not be built.
    pub(crate) build_error: Option<String>,
}

/// One measurement of one server under one load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) scenario: char,
    pub(crate) peer: String,
    pub(crate) round: usize,
    pub(crate) operations: u64,
    pub(crate) seconds: f64,
    pub(crate) server_cpu_ns: u64,
    pub(crate) generator_cpu_ns: u64,
    pub(crate) latency_ns: Option<Latency>,
    pub(crate) resident_bytes: u64,
    /// Before the connections of this load were opened.
    pub(crate) resident_bytes_before: u64,
    pub(crate) connections: usize,
    /// Speed of both cores before and after.
    pub(crate) speed: [Speed; 2],
    /// How often it was taken; the best was kept.
    pub(crate) attempts: usize,
    /// Even the best was taken between odd speeds.
    pub(crate) noisy: bool,
}

impl Sample {
    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds
    }

    pub(crate) fn cpu_per_operation(&self) -> f64 {
        self.server_cpu_ns as f64 / self.operations as f64
    }

    pub(crate) fn bytes_per_connection(&self) -> f64 {
        let grown = self.resident_bytes as f64 - self.resident_bytes_before as f64;
        grown / self.connections as f64
    }

    /// How much of its core the server used.
    pub(crate) fn server_busy(&self) -> f64 {
        self.server_cpu_ns as f64 / 1e9 / self.seconds
    }

    pub(crate) fn generator_busy(&self) -> f64 {
        self.generator_cpu_ns as f64 / 1e9 / self.seconds
    }
}

/// System calls of a run that was made for counting them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Calls {
    pub(crate) scenario: char,
    pub(crate) peer: String,
    pub(crate) operations: u64,
    pub(crate) calls: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) scenario: char,
    pub(crate) peer: String,
    pub(crate) error: String,
}

impl Results {
    pub(crate) fn save(&self, path: &Path) -> io::Result<()> {
        save(self, path)
    }

    pub(crate) fn load(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
    }

    /// Takes the scenarios of a later run instead of its own.
    pub(crate) fn take(&mut self, later: Self) {
        let taken: BTreeSet<char> = later.samples.iter().map(|sample| sample.scenario).collect();
        self.samples.retain(|old| !taken.contains(&old.scenario));
        self.calls.retain(|old| !taken.contains(&old.scenario));
        self.failures.retain(|old| !taken.contains(&old.scenario));
        self.samples.extend(later.samples);
        self.calls.extend(later.calls);
        self.failures.extend(later.failures);
        self.again.push(Again {
            scenarios: taken.into_iter().collect(),
            started: later.started,
            settings: later.settings,
        });
    }

    pub(crate) fn samples<'a>(
        &'a self,
        scenario: char,
        peer: &'a str,
    ) -> impl Iterator<Item = &'a Sample> {
        let wanted = move |sample: &&Sample| sample.scenario == scenario && sample.peer == peer;
        self.samples.iter().filter(wanted)
    }

    /// The spread of a figure over the rounds, or `None` if there is no round.
    pub(crate) fn spread(
        &self,
        scenario: char,
        peer: &str,
        figure: impl Fn(&Sample) -> f64,
    ) -> Option<Spread> {
        Spread::of(self.samples(scenario, peer).map(figure).collect())
    }

    pub(crate) fn calls_per_operation(&self, scenario: char, peer: &str) -> Option<f64> {
        let calls = self
            .calls
            .iter()
            .find(|calls| calls.scenario == scenario && calls.peer == peer)?;
        Some(calls.calls as f64 / calls.operations as f64)
    }
}

/// A figure over all rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
}

impl Spread {
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (first, last) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Some(Self {
            min: *first,
            median,
            max: *last,
        })
    }
}

impl Machine {
    /// This one. What the system does not tell is "unknown".
    pub(crate) fn this() -> Self {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kilobytes = field(&memory, "MemTotal")
            .and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
        Self {
            cpu: field(&cpu, "model name").unwrap_or("unknown").to_owned(),
            cores: cpu
                .lines()
                .filter(|line| line.starts_with("processor"))
                .count(),
            memory_mib: kilobytes.unwrap_or_default() / 1024,
            kernel: first_line(Command::new("uname").arg("-r")),
            compiler: first_line(Command::new("rustc").arg("--version")),
        }
    }
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

fn first_line(command: &mut Command) -> String {
    let output = command
        .output()
        .map(|output| output.stdout)
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&output);
    text.lines().next().unwrap_or("unknown").trim().to_owned()
}

/// Writes raw data.
pub(crate) fn save(data: &impl Serialize, path: &Path) -> io::Result<()> {
    let text = serde_json::to_string_pretty(data)?;
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(path, text + "\n")
}

/// Where runs are kept: the scenarios' own, or those of a part.
pub(crate) fn directory(part: &str) -> PathBuf {
    let suite = Path::new(env!("CARGO_MANIFEST_DIR"));
    suite.join("results").join(part)
}

/// The run that was written last, if there is one.
pub(crate) fn latest(directory: &Path) -> Option<PathBuf> {
    let files = fs::read_dir(directory).ok()?;
    let files = files.filter_map(|entry| Some(entry.ok()?.path()));
    let is_json = |path: &PathBuf| (path.extension()).is_some_and(|extension| extension == "json");
    files.filter(is_json).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_is_between_the_middle_ones() {
        let spread = Spread::of(vec![4.0, 1.0, 3.0, 2.0]);
        let expected = Spread {
            min: 1.0,
            median: 2.5,
            max: 4.0,
        };
        assert_eq!(spread, Some(expected));
        assert_eq!(Spread::of(Vec::new()), None);
    }
}
