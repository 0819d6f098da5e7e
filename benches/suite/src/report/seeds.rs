//! The five results of the kernel's authors, each with its mechanism on and off.

use std::fmt::Write;

use super::tables::{dash, grouped, precise, ranged, ratio_to, with_range};
use crate::catalogue::Scenario;
use crate::results::{Results, Sample, Spread};
use crate::seeds::{self, CASES, SEEDS, Seed};

/// Those of them that were run.
pub(crate) fn all(results: &Results) -> String {
    SEEDS.iter().filter_map(|seed| of(results, seed)).collect()
}

fn of(results: &Results, seed: &Seed) -> Option<String> {
    let scenarios = seed.scenarios.chars().filter_map(seeds::scenario);
    let tables: String = scenarios
        .filter_map(|scenario| table(results, scenario))
        .collect();
    if tables.is_empty() {
        return None;
    }
    let mut text = format!("### {}: {}\n\n{tables}", seed.name, seed.mechanism);
    let pairs = seed.pairs.iter();
    for sentence in pairs.filter_map(|&(on, off)| sentence(results, seed, on, off)) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "* **Here:** {sentence}");
    }
    let _ = writeln!(
        text,
        "* **Its author:** {}.\n* {}\n",
        seed.theirs, seed.honesty
    );
    Some(text)
}

fn table(results: &Results, scenario: &Scenario) -> Option<String> {
    let cases: Vec<_> = CASES.iter().filter(|case| case.takes(scenario)).collect();
    let on = cases.first()?.name;
    let rows: String = cases
        .iter()
        .filter_map(|case| row(results, scenario, case.name, on, case.about))
        .collect();
    if rows.is_empty() {
        return None;
    }
    let unit = scenario.unit();
    Some(format!(
        "{}\n\n\
         | | | server CPU, ns per {unit} | / {on} | calls per {unit} | {unit}s per second |\n\
         | --- | --- | ---: | ---: | ---: | ---: |\n{rows}\n",
        scenario.title
    ))
}

fn row(
    results: &Results,
    scenario: &Scenario,
    name: &str,
    on: &str,
    about: &str,
) -> Option<String> {
    let key = scenario.key;
    if let Some(failure) =
        (results.failures.iter()).find(|failure| failure.scenario == key && failure.peer == name)
    {
        return Some(format!(
            "| {name} | {about} | failed: {} |\n",
            failure.error
        ));
    }
    let cpu = results.spread(key, name, Sample::cpu_per_operation)?;
    let rate = results.spread(key, name, Sample::rate)?;
    let ratio = ratio_to(results, scenario, name, on, Sample::cpu_per_operation);
    let calls = results.calls_per_operation(key, name);
    let noisy = results.samples(key, name).filter(|sample| sample.noisy);
    let noisy = match noisy.count() {
        0 => String::new(),
        rounds => format!(" †{rounds}"),
    };
    Some(format!(
        "| {name} | {about} | {}{noisy} | {} | {} | {} |\n",
        with_range(cpu),
        ratio.map_or_else(dash, ranged),
        calls.map_or_else(dash, precise),
        grouped(rate.median),
    ))
}

/// What the rounds say, and whether they agree.
fn sentence(results: &Results, seed: &Seed, on: &str, off: &str) -> Option<String> {
    let ratio = seed.scenarios.chars().find_map(|key| {
        let scenario = seeds::scenario(key)?;
        ratio_to(results, scenario, off, on, Sample::cpu_per_operation)
    })?;
    Some(format!("\"{off}\" against \"{on}\": {}.", verdict(ratio)))
}

fn verdict(ratio: Spread) -> String {
    let Spread { min, median, max } = ratio;
    let change = (median - 1.0) * 100.0;
    let amount = if median >= 2.0 {
        format!("{} times the CPU time", precise(median))
    } else if change >= 0.0 {
        format!("{change:.1} % more CPU time")
    } else {
        format!("{:.1} % less CPU time", -change)
    };
    let agreement = if min > 1.0 {
        "more in every round, so the mechanism pays here"
    } else if max < 1.0 {
        "less in every round, so the mechanism does not pay here"
    } else {
        "but the rounds do not agree on the sign, so this shows no difference"
    };
    format!(
        "{amount}, {agreement} ({} to {})",
        precise(min),
        precise(max)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_that_disagree_show_no_difference() {
        let said = |min, median, max| verdict(Spread { min, median, max });
        assert!(said(0.98, 1.03, 1.05).contains("no difference"));
        assert!(said(1.01, 1.03, 1.05).starts_with("3.0 % more CPU time, more in every round"));
        assert!(said(0.90, 0.95, 0.99).starts_with("5.0 % less CPU time, less in every round"));
        assert!(said(2.0, 4.0, 5.0).starts_with("4.00 times the CPU time"));
    }
}
