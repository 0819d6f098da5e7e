//! How many instructions an operation takes in user space, under callgrind, against a budget that is checked in.
//!
//! Unlike time, that is nearly the same on every machine and at every moment. It says nothing of the kernel, of caches
//! or of branches; it shows at once whether a change has made the hot path longer.

mod budget;
mod callgrind;
mod load;

use std::io;
use std::process::ExitCode;

use crate::catalogue;
use crate::process::{GENERATOR_CORE, pin};
use crate::results::Spread;
use crate::servers;

use self::budget::Budget;
use self::callgrind::Callgrind;
use self::load::Load;

/// What is counted, by its name in the budget.
#[derive(Debug)]
struct Operation {
    name: &'static str,
    about: &'static str,
    /// Of our server.
    variant: &'static str,
    load: fn() -> Load,
}

const OPERATIONS: [Operation; 4] = [
    Operation {
        name: "echoed_message",
        about: "64 bytes on one of 50 connections, sent back as they came (`recv_stream`, `send`)",
        variant: "lease",
        load: || Load::Echo { connections: 50 },
    },
    Operation {
        name: "copied_message",
        about: "the same through `copy_buf`",
        variant: "copy",
        load: || Load::Echo { connections: 50 },
    },
    Operation {
        name: "connection",
        about: "accepted, a task, one message of 64 bytes sent back, closed; 50 at once",
        variant: "lease",
        load: || Load::Connect { at_once: 50 },
    },
    Operation {
        name: "timer",
        about: "inserted and fired, among 10,000",
        variant: "timers",
        load: || Load::Timers { at_once: 10_000 },
    },
];

/// What to do with the counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count {
    /// How often each is taken; the median is used.
    pub(crate) repeats: usize,
    /// Make them the budget.
    pub(crate) write: bool,
}

impl Count {
    /// Counts, prints, and compares. It fails if a count is above its budget.
    pub(crate) fn run(self) -> io::Result<ExitCode> {
        let ours = catalogue::peer("ringshot").ok_or(io::ErrorKind::NotFound)?;
        eprintln!("building {}", ours.name);
        let server = servers::build(ours).map_err(io::Error::other)?;
        // Server and generator share a core and take turns, so all messages of a round are there when the server looks.
        pin(GENERATOR_CORE)?;
        let old = Budget::load()?;
        let mut new = Budget::new();
        println!("instructions in user space, by callgrind:\n");
        for operation in &OPERATIONS {
            let mut counts = Vec::new();
            for repeat in 1..=self.repeats {
                eprint!("\r{}, {repeat} of {} ", operation.name, self.repeats);
                let mut process = Callgrind::start(&server, operation.variant)?;
                counts.push((operation.load)().count(&mut process)?);
            }
            eprint!("\r");
            let spread = Spread::of(counts).ok_or(io::ErrorKind::InvalidInput)?;
            let budget = old.of(operation.name);
            println!("{}", line(operation, spread, budget));
            new.set(operation.name, operation.about, spread.median);
        }
        println!();
        if self.write {
            println!("written: {}", new.save()?.display());
            return Ok(ExitCode::SUCCESS);
        }
        let verdict = old.compare(&new);
        println!("{verdict}");
        Ok(if verdict.is_met() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

fn line(operation: &Operation, spread: Spread, budget: Option<f64>) -> String {
    let Spread { min, median, max } = spread;
    let budget = budget.map_or_else(
        || "no budget yet".to_owned(),
        |budget| {
            let change = (median / budget - 1.0) * 100.0;
            format!("budget {budget:.0}, {change:+.1} %")
        },
    );
    let range = if min < max {
        format!(" ({min:.0} to {max:.0})")
    } else {
        String::new()
    };
    format!(
        "{:<15} {median:>6.0}{range}  {budget}  {}",
        operation.name, operation.about
    )
}
