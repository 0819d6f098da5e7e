//! A whole run: builds the servers, takes them in turns, and keeps what was found.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::calibrate::Calibration;
use crate::calls::Counter;
use crate::catalogue::{Peer, Scenario};
use crate::measure::Target;
use crate::process::{GENERATOR_CORE, pin};
use crate::results::{Failure, Machine, PeerEntry, Results, Settings};
use crate::servers;

/// What to run.
pub(crate) struct Plan {
    pub(crate) scenarios: Vec<&'static Scenario>,
    pub(crate) peers: Vec<&'static Peer>,
    pub(crate) settings: Settings,
    pub(crate) count_calls: bool,
    /// Where the raw data goes.
    pub(crate) directory: PathBuf,
}

impl Plan {
    /// Runs it, and returns the results and where they were written.
    pub(crate) fn run(&self) -> io::Result<(Results, PathBuf)> {
        let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let path = (self.directory).join(format!("{}.json", started.replace(':', "-")));
        let log = path.with_extension("log");
        std::fs::create_dir_all(&self.directory)?;
        raise_descriptor_limit()?;

        let progress = progress_bar(self.steps());
        let (entries, targets) = self.build(&log, &progress);
        pin(GENERATOR_CORE)?;
        progress.set_message("looking at the machine");
        let mut calibration = Calibration::new(self.settings.repeats_in_all)?;
        let counter = if self.count_calls {
            Counter::find()
        } else {
            None
        };
        let mut results = Results {
            started,
            machine: Machine::this(),
            settings: self.settings.clone(),
            usual_speed: calibration.usual(),
            peers: entries,
            samples: Vec::new(),
            calls: Vec::new(),
            call_counter: if self.count_calls {
                Counter::name(counter).to_owned()
            } else {
                "nobody: it was not asked for".to_owned()
            },
            failures: Vec::new(),
            again: Vec::new(),
        };
        for round in 1..=self.settings.rounds {
            for scenario in &self.scenarios {
                if scenario.is_idle() && round > self.settings.idle_rounds {
                    continue;
                }
                let place = format!(
                    "round {round} of {}: {}",
                    self.settings.rounds, scenario.key
                );
                if progress.is_hidden() {
                    // No terminal: a line in the log for what would be seen there.
                    eprintln!(
                        "{place} ({} %)",
                        progress.position() * 100 / self.steps().max(1)
                    );
                }
                for target in targets.iter().filter(|target| target.peer.takes(scenario)) {
                    progress.set_message(format!("{place} {}", target.peer.name));
                    attempt(&mut results, scenario, target, |results| {
                        let sample =
                            target.measure(scenario, round, &self.settings, &mut calibration)?;
                        results.samples.push(sample);
                        Ok(())
                    });
                    progress.inc(weight(scenario));
                }
            }
            // Whoever interrupts a long run keeps its whole rounds.
            results.usual_speed = calibration.usual();
            results.save(&path)?;
        }
        if let Some(counter) = counter {
            self.count(counter, &targets, &mut results, &progress);
        }
        results.save(&path)?;
        progress.finish_and_clear();
        Ok((results, path))
    }

    fn build(&self, log: &Path, progress: &ProgressBar) -> (Vec<PeerEntry>, Vec<Target>) {
        let (mut entries, mut targets) = (Vec::new(), Vec::new());
        for &peer in &self.peers {
            progress.set_message(format!("building {}", peer.name));
            let built = servers::build(peer);
            entries.push(PeerEntry {
                name: peer.name.to_owned(),
                about: peer.about.to_owned(),
                kind: peer.kind,
                version: servers::version(peer),
                build_error: built.as_ref().err().cloned(),
            });
            match built {
                Ok(binary) => targets.push(Target {
                    peer,
                    binary,
                    log: log.to_path_buf(),
                }),
                Err(error) => {
                    progress.suspend(|| eprintln!("{} does not build: {error}", peer.name));
                }
            }
        }
        progress.reset_eta();
        (entries, targets)
    }

    fn count(
        &self,
        counter: Counter,
        targets: &[Target],
        results: &mut Results,
        progress: &ProgressBar,
    ) {
        for scenario in self.scenarios.iter().filter(|scenario| !scenario.is_idle()) {
            for target in targets.iter().filter(|target| target.peer.takes(scenario)) {
                progress.set_message(format!(
                    "counting calls: {} {}",
                    scenario.key, target.peer.name
                ));
                attempt(results, scenario, target, |results| {
                    let calls = target.count_calls(scenario, &self.settings, counter)?;
                    results.calls.push(calls);
                    Ok(())
                });
                progress.inc(1);
            }
        }
    }

    /// What the progress bar counts.
    fn steps(&self) -> u64 {
        let weigh = |scenario: &&'static Scenario| {
            let peers = self.peers.iter().filter(|peer| peer.takes(scenario));
            let peers = peers.count() as u64;
            let (rounds, counting) = match scenario.is_idle() {
                true => (self.settings.idle_rounds.min(self.settings.rounds), 0),
                false => (self.settings.rounds, u64::from(self.count_calls)),
            };
            peers * (rounds as u64 * weight(scenario) + counting)
        };
        self.scenarios.iter().map(weigh).sum()
    }
}

/// Does something with a server unless it has failed in this scenario before. A failure ends its part only.
fn attempt(
    results: &mut Results,
    scenario: &Scenario,
    target: &Target,
    work: impl FnOnce(&mut Results) -> io::Result<()>,
) {
    let failed_before = results
        .failures
        .iter()
        .any(|failure| failure.scenario == scenario.key && failure.peer == target.peer.name);
    if failed_before {
        return;
    }
    if let Err(error) = work(results) {
        results.failures.push(Failure {
            scenario: scenario.key,
            peer: target.peer.name.to_owned(),
            error: error.to_string(),
        });
    }
}

/// How long a measurement takes, in those of an echo.
fn weight(scenario: &Scenario) -> u64 {
    if scenario.is_idle() { 3 } else { 2 }
}

/// Ten thousand connections need as many descriptors, here and in the server, which inherits the limit.
fn raise_descriptor_limit() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    Ok(setrlimit(Resource::Nofile, raised)?)
}

pub(crate) fn progress_bar(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}  ({eta} left)");
    // It draws only when a measurement begins or ends: a timer of its own would disturb the generator.
    ProgressBar::new(steps).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
