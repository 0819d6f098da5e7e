//! `benches/budget.toml`: how many instructions each operation may take.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::results::Machine;

/// The counts of one tree, and what they were taken with.
#[derive(Debug, Deserialize)]
pub(super) struct Budget {
    /// How far a count may be above its budget: 0.02 is 2 %.
    tolerance: f64,
    /// Another compiler makes other code, and other budgets.
    compiler: String,
    instructions: BTreeMap<String, u64>,
    #[serde(skip)]
    about: BTreeMap<String, &'static str>,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self {
            tolerance: TOLERANCE,
            compiler: Machine::this().compiler,
            instructions: BTreeMap::new(),
            about: BTreeMap::new(),
        }
    }

    /// The one that is checked in; an empty one if there is none.
    pub(super) fn load() -> io::Result<Self> {
        match fs::read_to_string(path()) {
            Ok(text) => toml::from_str(&text)
                .map_err(|error| io::Error::other(format!("{}: {error}", path().display()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::new()),
            Err(error) => Err(error),
        }
    }

    pub(super) fn of(&self, name: &str) -> Option<f64> {
        self.instructions.get(name).map(|&count| count as f64)
    }

    pub(super) fn set(&mut self, name: &'static str, about: &'static str, instructions: f64) {
        // Of some hundreds or thousands.
        let rounded = instructions.round() as u64;
        self.instructions.insert(name.to_owned(), rounded);
        self.about.insert(name.to_owned(), about);
    }

    pub(super) fn save(&self) -> io::Result<PathBuf> {
        fs::write(path(), self.to_string())?;
        Ok(path())
    }

    /// How the counts `new` stand against this.
    pub(super) fn compare(&self, new: &Self) -> Verdict {
        let mut verdict = Verdict {
            above: Vec::new(),
            below: false,
            other_compiler: (self.compiler != new.compiler).then(|| self.compiler.clone()),
        };
        for (name, &count) in &new.instructions {
            let Some(budget) = self.of(name) else {
                verdict.above.push(format!("{name} has no budget"));
                continue;
            };
            let change = count as f64 / budget - 1.0;
            if change > self.tolerance {
                verdict.above.push(format!(
                    "{name} takes {count}, {:.1} % more than its budget of {budget:.0}",
                    change * 100.0
                ));
            }
            verdict.below |= change < -self.tolerance;
        }
        verdict
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# How many instructions each operation takes in user space, under callgrind. `.ci/run` compares.\n\
             # Written by `cargo run --release -p bench -- count --write`.\n\n\
             # How far a count may be above: 0.02 is 2 %.\n\
             tolerance = {}\n\
             # Another compiler makes other code.\n\
             compiler = \"{}\"\n\n\
             [instructions]",
            self.tolerance, self.compiler
        )?;
        for (name, count) in &self.instructions {
            let about = self.about.get(name).copied().unwrap_or_default();
            writeln!(f, "# {about}\n{name} = {count}")?;
        }
        Ok(())
    }
}

/// What came out of a comparison.
#[derive(Debug)]
pub(super) struct Verdict {
    above: Vec<String>,
    /// Something has got clearly better.
    below: bool,
    other_compiler: Option<String>,
}

impl Verdict {
    pub(super) fn is_met(&self) -> bool {
        self.above.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for above in &self.above {
            writeln!(text, "ABOVE: {above}")?;
        }
        if let Some(compiler) = &self.other_compiler {
            writeln!(
                text,
                "The budget is of {compiler}, which is not the compiler here."
            )?;
        }
        if !self.is_met() {
            writeln!(text, "If that is right so, raise the budget: {WRITE}")?;
        } else if self.below {
            writeln!(text, "Better than the budget. To hold it there: {WRITE}")?;
        } else {
            writeln!(text, "Within the budget.")?;
        }
        f.write_str(text.trim_end())
    }
}

fn path() -> PathBuf {
    let suite = Path::new(env!("CARGO_MANIFEST_DIR"));
    suite.with_file_name("budget.toml")
}

/// Above what the same program differs by from run to run.
const TOLERANCE: f64 = 0.02;
const WRITE: &str = "cargo run --release -p bench -- count --write";

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(compiler: &str, instructions: f64) -> Budget {
        let mut budget = Budget::new();
        budget.compiler = compiler.to_owned();
        budget.set("timer", "inserted", instructions);
        budget
    }

    #[test]
    fn a_count_above_the_tolerance_is_not_met_and_one_within_it_is() {
        let old = budget("a", 1000.0);
        assert!(old.compare(&budget("a", 1019.0)).is_met());
        let better = old.compare(&budget("a", 900.0));
        assert!(better.is_met() && better.to_string().contains("--write"));
        let verdict = old.compare(&budget("b", 1021.0));
        assert!(!verdict.is_met());
        let said = verdict.to_string();
        assert!(said.contains("timer takes 1021, 2.1 % more"), "{said}");
        assert!(said.contains("of a, which is not"), "{said}");
    }

    #[test]
    fn an_operation_without_a_budget_is_not_met() {
        let mut old = budget("a", 1000.0);
        old.instructions.clear();
        assert!(!old.compare(&budget("a", 1.0)).is_met());
    }

    #[test]
    fn what_is_written_can_be_read() {
        let text = budget("rustc 1.2.3", 12.0).to_string();
        let read: Budget = toml::from_str(&text).unwrap();
        assert_eq!(read.of("timer"), Some(12.0));
        assert_eq!(read.compiler, "rustc 1.2.3");
        assert_eq!(read.tolerance, TOLERANCE);
    }
}
