//! What is measured meanwhile, and the judgement at the end.

use std::fmt::Display;
use std::sync::atomic::Ordering::Relaxed;

use crate::ledger::{Ledger, Side};
use crate::side::Outcome;

/// Samples of the resident memory, one a second.
#[derive(Debug, Default)]
pub struct Memory {
    samples: Vec<usize>,
}

impl Memory {
    pub fn sample(&mut self) -> usize {
        let resident = support::resident_bytes();
        self.samples.push(resident);
        resident
    }

    /// After the warm-up (a minute, or a quarter of a short run), and at the end: the median of as long a time each.
    fn first_and_last(&self) -> Option<(usize, usize)> {
        let window = (self.samples.len() / 4).min(WARM_UP);
        let after_warm_up = self.samples.get(window..2 * window)?;
        let at_the_end = self.samples.get(self.samples.len() - window..)?;
        Some((median(after_warm_up)?, median(at_the_end)?))
    }

    fn peak(&self) -> usize {
        self.samples.iter().copied().max().unwrap_or(0)
    }
}

fn median(samples: &[usize]) -> Option<usize> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

/// A line for each second.
pub fn status(ledger: &Ledger, memory: &mut Memory) -> String {
    let sides = [Side::Server, Side::Clients].map(|side| ledger.metrics(side));
    let [server, clients] = sides;
    let submissions: u64 = sides.iter().map(|side| side.submissions).sum();
    format!(
        "{} fds, {} resident, in flight {}+{}, buffers {}+{} ({}+{} free), tasks {}+{}, done: {} operations, \
         {} connections, {} verified, {} cancels, {} wrong",
        support::open_fds(),
        bytes(memory.sample() as u64),
        server.ops,
        clients.ops,
        server.buffers,
        clients.buffers,
        server.buffers_free,
        clients.buffers_free,
        server.tasks,
        clients.tasks,
        submissions,
        ledger.connections.load(Relaxed),
        bytes(ledger.verified_bytes.load(Relaxed)),
        ledger.cancels.load(Relaxed),
        ledger.wrong_bytes.load(Relaxed),
    )
}

/// What the load has put a runtime through: a counter that stays at nothing here is a state that was not tried.
pub fn hardships(ledger: &Ledger, side: Side) -> String {
    let metrics = ledger.metrics(side);
    format!(
        "{side:?}: {} enters, {} completions, {} polls, {} re-arms, {} starvations, {} pauses, {} silent sends, {} \
         short, {} armed, {} overflows, {} refusals, {} remote wakes",
        metrics.enters,
        metrics.completions,
        metrics.polls,
        metrics.rearms,
        metrics.starvations,
        metrics.pauses,
        metrics.silent_sends,
        metrics.short_sends,
        metrics.armed_sends,
        metrics.overflows,
        metrics.refusals,
        metrics.remote_wakes,
    )
}

/// The table of the end.
#[derive(Debug, Default)]
pub struct Verdict {
    checks: Vec<Check>,
}

#[derive(Debug)]
struct Check {
    what: String,
    seen: String,
    bound: String,
    holds: bool,
}

impl Verdict {
    pub fn check(
        &mut self,
        what: impl Display,
        seen: impl Display,
        bound: impl Display,
        holds: bool,
    ) {
        self.checks.push(Check {
            what: what.to_string(),
            seen: seen.to_string(),
            bound: bound.to_string(),
            holds,
        });
    }

    pub fn equal<T: PartialEq + Display>(&mut self, what: impl Display, seen: T, bound: T) {
        let holds = seen == bound;
        self.check(what, seen, bound, holds);
    }

    pub fn work_done(&mut self, ledger: &Ledger) {
        let idle: Vec<_> = ledger
            .rounds()
            .into_iter()
            .filter(|(_, count)| *count == 0)
            .map(|(name, _)| name)
            .collect();
        self.equal(
            "loads that finished nothing",
            idle.join(", "),
            String::new(),
        );
        let connections = ledger.connections.load(Relaxed);
        self.check("connections", connections, "some", connections > 0);
        let verified = ledger.verified_bytes.load(Relaxed);
        self.check("bytes verified", verified, "some", verified > 0);
        self.equal("wrong bytes", ledger.wrong_bytes.load(Relaxed), 0);
        self.equal("complaints", ledger.complaint_count(), 0);
    }

    pub fn side(&mut self, side: Side, outcome: Option<&Outcome>) {
        let Some(outcome) = outcome else {
            return self.check(format!("{side:?}: end"), "hangs or panicked", "ends", false);
        };
        let name = |what| format!("{side:?}: {what}");
        let error = outcome.result.as_ref().err().map(ToString::to_string);
        self.equal(name("error"), error.unwrap_or_default(), String::new());
        let (before, after) = (outcome.before, outcome.after);
        self.equal(name("tasks"), after.tasks, before.tasks);
        self.equal(name("operations in flight"), after.ops, before.ops);
        self.equal(name("buffers held"), after.buffers, before.buffers);
        self.equal(
            name("unknown completions"),
            outcome.metrics.unknown_completions,
            0,
        );
    }

    pub fn memory(&mut self, memory: &Memory) {
        let Some((first, last)) = memory.first_and_last() else {
            return self.check("resident memory", "too short a run", "4 samples", false);
        };
        let bound = first + GROWTH;
        self.check(
            "resident memory at the end",
            bytes(last as u64),
            format!(
                "{} ({} after the warm-up + {})",
                bytes(bound as u64),
                bytes(first as u64),
                bytes(GROWTH as u64)
            ),
            last <= bound,
        );
        println!("peak of resident memory: {}", bytes(memory.peak() as u64));
    }

    /// Prints the table and says whether all is well.
    pub fn print(&self) -> bool {
        let width = |part: fn(&Check) -> &str, head: &str| {
            let widths = self.checks.iter().map(|check| part(check).chars().count());
            widths.max().unwrap_or(0).max(head.len())
        };
        let what = width(|check| &check.what, "what");
        let seen = width(|check| &check.seen, "seen");
        let bound = width(|check| &check.bound, "must be");
        println!(
            "| {:what$} | {:seen$} | {:bound$} | verdict |",
            "what", "seen", "must be"
        );
        println!(
            "| {:-<what$} | {:-<seen$} | {:-<bound$} | ------- |",
            "", "", ""
        );
        for check in &self.checks {
            let verdict = if check.holds { "good" } else { "BREACH" };
            println!(
                "| {:what$} | {:seen$} | {:bound$} | {verdict:7} |",
                check.what, check.seen, check.bound
            );
        }
        let passed = self.checks.iter().filter(|check| check.holds).count();
        let failed = self.checks.len() - passed;
        println!("soak: {passed} passed, {failed} failed");
        failed == 0
    }
}

pub fn bytes(count: u64) -> String {
    match count {
        0..0x10_0000 => format!("{:.1} KiB", count as f64 / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", count as f64 / f64::from(1 << 20)),
        _ => format!("{:.2} GiB", count as f64 / f64::from(1 << 30)),
    }
}

/// Seconds.
const WARM_UP: usize = 60;

/// What the allocator may keep in pieces. A leak of one small thing for each connection is more within minutes.
const GROWTH: usize = 16 << 20;
