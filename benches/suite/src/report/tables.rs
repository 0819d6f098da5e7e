//! A table for each scenario.

use std::fmt::Write;

use crate::catalogue::{BASE, LIMIT, SCENARIOS, Scenario};
use crate::results::{PeerEntry, Results, Sample, Spread};

/// All scenarios that were run, each with its title.
pub(crate) fn all(results: &Results) -> String {
    let mut text = String::new();
    for scenario in &SCENARIOS {
        if let Some(table) = of(results, scenario) {
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "### {} · {}\n\n{table}\n",
                scenario.key, scenario.title
            );
        }
    }
    text
}

/// The table of one scenario; `None` if nobody took part.
fn of(results: &Results, scenario: &Scenario) -> Option<String> {
    let rows: Vec<String> = results
        .peers
        .iter()
        .filter_map(|peer| row(results, scenario, peer))
        .collect();
    if rows.is_empty() {
        return None;
    }
    let unit = scenario.unit();
    let header = if scenario.is_idle() {
        "| server | bytes per connection | whole process, MiB | CPU while idle, µs/s |\n\
         | --- | ---: | ---: | ---: |\n"
            .to_owned()
    } else {
        format!(
            "| server | server CPU, ns per {unit} | / {BASE} | / {LIMIT} | {unit}s per second | / {BASE} \
             | p50, µs | p99, µs | calls per {unit} | memory, MiB | busy: server, generator |\n\
             | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        )
    };
    Some(header + &rows.concat() + &notes(results, scenario))
}

fn row(results: &Results, scenario: &Scenario, peer: &PeerEntry) -> Option<String> {
    let name = &peer.name;
    if results.samples(scenario.key, name).next().is_none() {
        let failure = results
            .failures
            .iter()
            .find(|failure| failure.scenario == scenario.key && failure.peer == *name)?;
        return Some(format!("| {name} | failed: {} |\n", failure.error));
    }
    if scenario.is_idle() {
        idle_row(results, scenario, name)
    } else {
        busy_row(results, scenario, name)
    }
}

fn idle_row(results: &Results, scenario: &Scenario, name: &str) -> Option<String> {
    let each = results.spread(scenario.key, name, Sample::bytes_per_connection)?;
    let whole = results.spread(scenario.key, name, resident_mib)?;
    let cpu = results.spread(scenario.key, name, |sample| sample.server_busy() * 1e6)?;
    Some(format!(
        "| {name} | {} | {:.1} | {:.0} |\n",
        with_range(each),
        whole.median,
        cpu.median
    ))
}

fn busy_row(results: &Results, scenario: &Scenario, name: &str) -> Option<String> {
    let key = scenario.key;
    let cpu = results.spread(key, name, Sample::cpu_per_operation)?;
    let rate = results.spread(key, name, Sample::rate)?;
    let median = |figure: fn(&Sample) -> f64| results.spread(key, name, figure).map(|s| s.median);
    let cpu_ratio = |base| ratio(results, scenario, name, base, Sample::cpu_per_operation);
    let calls = results.calls_per_operation(key, name);
    let quantile = |of: fn(&Sample) -> Option<u64>| {
        let nanoseconds = results.samples(key, name).filter_map(of);
        let spread = Spread::of(nanoseconds.map(|value| value as f64 / 1e3).collect());
        spread.map_or_else(dash, |spread| microseconds(spread.median))
    };
    let noisy = results
        .samples(key, name)
        .filter(|sample| sample.noisy)
        .count();
    Some(format!(
        "| {name} | {}{} | {} | {} | {} | {} | {} | {} | {} | {:.1} | {:.0} %, {:.0} % |\n",
        with_range(cpu),
        if noisy > 0 {
            format!(" †{noisy}")
        } else {
            String::new()
        },
        cpu_ratio(BASE),
        cpu_ratio(LIMIT),
        grouped(rate.median),
        ratio(results, scenario, name, BASE, Sample::rate),
        quantile(|sample| Some(sample.latency_ns?.p50)),
        quantile(|sample| Some(sample.latency_ns?.p99)),
        calls.map_or_else(dash, precise),
        median(resident_mib)?,
        median(Sample::server_busy)? * 100.0,
        median(Sample::generator_busy)? * 100.0,
    ))
}

/// What a reader must know beside the figures.
fn notes(results: &Results, scenario: &Scenario) -> String {
    let mut notes = String::new();
    let noisy = results
        .samples
        .iter()
        .any(|sample| sample.scenario == scenario.key && sample.noisy);
    if noisy && !scenario.is_idle() {
        notes += "\n† with how many rounds the machine was not calm, even after repeats.\n";
    }
    notes
}

/// The median of the ratios within each round, so that a slow minute of the machine is in both.
pub(crate) fn ratio_to(
    results: &Results,
    scenario: &Scenario,
    name: &str,
    base: &str,
    figure: fn(&Sample) -> f64,
) -> Option<Spread> {
    let of_round = |sample: &Sample| {
        let mut others = results.samples(scenario.key, base);
        let other = others.find(|other| other.round == sample.round)?;
        Some(figure(sample) / figure(other))
    };
    Spread::of(
        results
            .samples(scenario.key, name)
            .filter_map(of_round)
            .collect(),
    )
}

fn ratio(
    results: &Results,
    scenario: &Scenario,
    name: &str,
    base: &str,
    figure: fn(&Sample) -> f64,
) -> String {
    ratio_to(results, scenario, name, base, figure)
        .map_or_else(dash, |spread| precise(spread.median))
}

fn resident_mib(sample: &Sample) -> f64 {
    sample.resident_bytes as f64 / f64::from(1 << 20)
}

pub(crate) fn with_range(spread: Spread) -> String {
    let Spread { min, median, max } = spread;
    // Figures of an optimised packet are below ten nanoseconds.
    if median < 100.0 {
        format!("{median:.1} ({min:.1}–{max:.1})")
    } else {
        format!("{} ({}–{})", grouped(median), grouped(min), grouped(max))
    }
}

/// A ratio with its range.
pub(crate) fn ranged(spread: Spread) -> String {
    let Spread { min, median, max } = spread;
    if min == max {
        return precise(median);
    }
    format!("{} ({}–{})", precise(median), precise(min), precise(max))
}

pub(crate) fn precise(value: f64) -> String {
    match value {
        // Zeros would hide the figure.
        0.0..0.0001 if value > 0.0 => "< 0.0001".to_owned(),
        0.0001..0.01 => format!("{value:.4}"),
        100.0.. => grouped(value),
        _ => format!("{value:.2}"),
    }
}

pub(crate) fn microseconds(value: f64) -> String {
    if value < 100.0 {
        format!("{value:.1}")
    } else {
        grouped(value)
    }
}

/// A whole number with commas between the thousands.
pub(crate) fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value <= -0.5 {
        format!("-{text}")
    } else {
        text
    }
}

pub(crate) fn dash() -> String {
    "–".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped(999.4), "999");
        assert_eq!(grouped(1_234_567.0), "1,234,567");
        assert_eq!(grouped(-1_234.0), "-1,234");
        assert_eq!(grouped(-0.2), "0");
    }
}
