//! The first table of the report: every scenario on a line, and where Ringshot is behind.

use std::fmt::Write;

use super::tables::{dash, precise, ratio_to};
use crate::catalogue::{BASE, Kind, LIMIT, Load, SCENARIOS, Scenario};
use crate::results::{Results, Sample};

/// Ringshot, the limit, and the best other runtime, each against tokio.
pub(crate) fn table(results: &Results) -> String {
    let mut text = format!(
        "| scenario | measure | {OURS} / {BASE} | {LIMIT} / {BASE} | best other runtime / {BASE} |\n\
         | --- | --- | ---: | ---: | ---: |\n"
    );
    for (scenario, measure) in measures() {
        let cell = |name| {
            measure
                .ratio(results, scenario, name)
                .map_or_else(dash, precise)
        };
        if results.samples(scenario.key, OURS).next().is_none() {
            continue;
        }
        let best = best_rival(results, scenario, &measure);
        let best = best.map_or_else(dash, |(name, ratio)| format!("{} {name}", precise(ratio)));
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {} · {} | {} | {} | {} | {best} |",
            scenario.key,
            scenario.title,
            measure.title,
            cell(OURS),
            cell(LIMIT)
        );
    }
    text
}

/// A sentence for each scenario in which another runtime is ahead.
pub(crate) fn losses(results: &Results) -> String {
    let mut text = String::new();
    for (scenario, measure) in measures() {
        let Some(ours) = measure.ratio(results, scenario, OURS) else {
            continue;
        };
        let ahead: Vec<String> = runtimes(results)
            .filter_map(|name| Some((name, measure.ratio(results, scenario, name)?)))
            .filter(|&(_, ratio)| measure.is_better(ratio, ours))
            .map(|(name, ratio)| format!("{name} ({})", precise(ratio)))
            .collect();
        if !ahead.is_empty() {
            let _ = writeln!(
                text,
                "* {} · {}: {OURS} is at {} of {BASE}'s {}, behind {}.",
                scenario.key,
                scenario.title,
                precise(ours),
                measure.title,
                ahead.join(", ")
            );
        }
    }
    if text.is_empty() {
        "In none of these scenarios: every other runtime was behind.\n".to_owned()
    } else {
        text
    }
}

/// What a scenario is about.
#[derive(Clone, Copy)]
struct Measure {
    title: &'static str,
    figure: fn(&Sample) -> f64,
    more_is_better: bool,
}

/// Every scenario with what it is about.
fn measures() -> impl Iterator<Item = (&'static Scenario, Measure)> {
    SCENARIOS.iter().flat_map(|scenario| {
        let measures: &[Measure] = match scenario.load {
            Load::Idle { .. } => &[PER_CONNECTION, WHOLE_PROCESS],
            Load::Packets { .. } => &[RATE],
            _ => &[CPU],
        };
        measures.iter().map(move |measure| (scenario, *measure))
    })
}

impl Measure {
    fn ratio(&self, results: &Results, scenario: &Scenario, name: &str) -> Option<f64> {
        ratio_to(results, scenario, name, BASE, self.figure).map(|spread| spread.median)
    }

    fn is_better(&self, one: f64, other: f64) -> bool {
        if self.more_is_better {
            one > other
        } else {
            one < other
        }
    }
}

fn best_rival<'a>(
    results: &'a Results,
    scenario: &Scenario,
    measure: &Measure,
) -> Option<(&'a str, f64)> {
    let others = runtimes(results)
        .filter(|&name| name != BASE)
        .filter_map(|name| Some((name, measure.ratio(results, scenario, name)?)));
    others.reduce(|best, other| {
        if measure.is_better(other.1, best.1) {
            other
        } else {
            best
        }
    })
}

/// The other runtimes, as people use them.
fn runtimes(results: &Results) -> impl Iterator<Item = &str> {
    let rivals = results.peers.iter().filter(|peer| peer.kind == Kind::Rival);
    rivals.map(|peer| peer.name.as_str())
}

const OURS: &str = "ringshot";

const CPU: Measure = Measure {
    title: "server CPU",
    figure: Sample::cpu_per_operation,
    more_is_better: false,
};
const PER_CONNECTION: Measure = Measure {
    title: "memory per connection",
    figure: Sample::bytes_per_connection,
    more_is_better: false,
};
const WHOLE_PROCESS: Measure = Measure {
    title: "memory of the process",
    figure: |sample| sample.resident_bytes as f64,
    more_is_better: false,
};
const RATE: Measure = Measure {
    title: "packets per second",
    figure: Sample::rate,
    more_is_better: true,
};
