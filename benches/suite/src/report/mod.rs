//! What people read: the summary after a run, and `docs/benchmarks.md` with its plots.

mod micro;
mod overview;
mod plots;
mod seeds;
mod tables;

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::micro::Figures;
use crate::results::{self, Results};

/// A table for each scenario, for the terminal.
pub(crate) fn summary(results: &Results) -> String {
    tables::all(results) + &problems(results)
}

/// The tables of the seeds, for the terminal.
pub(crate) fn seeds_summary(results: &Results) -> String {
    seeds::all(results) + &problems(results)
}

/// The table of the executor's programs, for the terminal.
pub(crate) fn micro_summary(figures: &Figures) -> String {
    micro::table(figures)
}

/// What a report is made from.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) scenarios: Results,
    pub(crate) seeds: Option<Results>,
    pub(crate) micro: Option<Figures>,
}

impl Parts {
    /// The last run of each part, or what the report in `directory` was made from.
    pub(crate) fn latest(scenarios: Vec<PathBuf>, directory: &Path) -> io::Result<Self> {
        let latest = |part: &str, written: &str| {
            let written = directory.join(PICTURES).join(written);
            results::latest(&results::directory(part))
                .or_else(|| written.exists().then_some(written))
        };
        let mut runs = scenarios.into_iter();
        let first = (runs.next().or_else(|| latest("", RESULTS)))
            .ok_or_else(|| io::Error::other("there is no result yet: run `bench run` first"))?;
        let mut scenarios = Results::load(&first)?;
        for later in runs {
            scenarios.take(Results::load(&later)?);
        }
        let seeds = latest(crate::seeds::PART, SEEDS);
        let micro = latest(crate::micro::PART, MICRO);
        Ok(Self {
            scenarios,
            seeds: seeds.as_deref().map(Results::load).transpose()?,
            micro: micro.as_deref().map(Figures::load).transpose()?,
        })
    }
}

/// Writes the report, its plots and its raw data, and returns the report's path.
pub(crate) fn write(parts: &Parts, directory: &Path) -> io::Result<PathBuf> {
    let results = &parts.scenarios;
    let pictures = directory.join(PICTURES);
    fs::create_dir_all(&pictures)?;
    let plots = plots::write(results, &pictures)?;
    results.save(&pictures.join(RESULTS))?;
    let mut text = introduction(results);
    for plot in plots {
        // Writing to a string does not fail.
        let _ = writeln!(text, "![{}]({PICTURES}/{})\n", plot.title, plot.file);
    }
    text += "Orange is Ringshot, blue are other runtimes, light colours are variants of them (other buffers, other words), \
             green are hand-written loops. A thin line shows the range of the rounds.\n\n";
    text += &format!(
        "## Where Ringshot is behind\n\n{}\n",
        overview::losses(results)
    );
    text += &format!("## All figures\n\n{}", tables::all(results));
    text += &problems(results);
    if let Some(figures) = &parts.micro {
        results::save(figures, &pictures.join(MICRO))?;
        text += &format!(
            "## The executor alone\n\n{} rounds, {}, on {} with Linux {}; tokio {}. \
             Raw data: [`{MICRO}`]({PICTURES}/{MICRO}).\n\n{}\n{}",
            figures.rounds,
            figures.started,
            figures.machine.cpu,
            figures.machine.kernel,
            figures.tokio.as_deref().unwrap_or("of an unknown version"),
            micro::table(figures),
            micro::METHOD,
        );
    }
    if let Some(results) = &parts.seeds {
        results.save(&pictures.join(SEEDS))?;
        text += &format!(
            "## Five mechanisms of the kernel, on and off\n\n\
             Each is what Ringshot uses by default. Ratios are medians of those within the rounds, with the smallest and \
             the largest; † says with how many rounds the machine was not calm, even after repeats. {}{} rounds of {} s, {}, on {} with Linux {}. \
             Raw data: [`{SEEDS}`]({PICTURES}/{SEEDS}).\n\n{}{}",
            if results.settings.quick {
                "**A quick look, not meant to be quoted:** "
            } else {
                ""
            },
            results.settings.rounds,
            results.settings.seconds,
            results.started,
            results.machine.cpu,
            results.machine.kernel,
            seeds::all(results),
            problems(results),
        );
    }
    text += &format!("## Who was measured\n\n{}\n", servers(results));
    text += include_str!("method.md");
    let path = directory.join("benchmarks.md");
    fs::write(&path, text)?;
    Ok(path)
}

fn introduction(results: &Results) -> String {
    let mut again = String::new();
    for run in &results.again {
        let (rounds, seconds) = (run.settings.rounds, run.settings.seconds);
        let _ = writeln!(
            again,
            "| {} once more | {}; {rounds} rounds of {seconds} s |",
            run.scenarios, run.started
        );
    }
    let (machine, settings) = (&results.machine, &results.settings);
    let quick = if settings.quick {
        "\n**This was a quick look, with short measurements and few rounds. It is not meant to be quoted.**\n"
    } else {
        ""
    };
    format!(
        "# Benchmarks\n\n\
         Written by `cargo run --release -p bench -- report`, from a run of `cargo run --release -p bench -- run`.\n\
         Raw data: [`results.json`]({PICTURES}/results.json).\n{quick}\n\
         | | |\n| --- | --- |\n\
         | date | {} |\n| machine | {}, {} cores, {} MiB |\n| kernel | Linux {} |\n| compiler | {} |\n\
         | rounds | {} of {} s; {} for idle connections |\n\
         | usual `getppid` | {:.0} ns on the server's core, {:.0} ns on the generator's |\n\
         | system calls counted by | {} |\n{again}\n\
         ## At a glance\n\n{}\n",
        results.started,
        machine.cpu,
        machine.cores,
        machine.memory_mib,
        machine.kernel,
        machine.compiler,
        settings.rounds,
        settings.seconds,
        settings.idle_rounds,
        results.usual_speed.0[0],
        results.usual_speed.0[1],
        results.call_counter,
        overview::table(results)
    )
}

fn servers(results: &Results) -> String {
    let mut text = String::from("| server | what | version |\n| --- | --- | --- |\n");
    for peer in &results.peers {
        let version = peer.version.as_deref().unwrap_or("–");
        let _ = writeln!(text, "| {} | {} | {version} |", peer.name, peer.about);
    }
    text
}

/// Who could not be built, and who failed.
fn problems(results: &Results) -> String {
    let mut text = String::new();
    for peer in &results.peers {
        if let Some(error) = &peer.build_error {
            let _ = writeln!(text, "* {} does not build here: {error}", peer.name);
        }
    }
    for failure in &results.failures {
        let (scenario, peer, error) = (failure.scenario, &failure.peer, &failure.error);
        let _ = writeln!(text, "* {peer} failed in scenario {scenario}: {error}");
    }
    if text.is_empty() {
        return text;
    }
    format!("## What did not work\n\n{text}\n")
}

const PICTURES: &str = "benchmarks";
// The raw data, in the directory of the pictures.
const RESULTS: &str = "results.json";
const SEEDS: &str = "seeds.json";
const MICRO: &str = "micro.json";
