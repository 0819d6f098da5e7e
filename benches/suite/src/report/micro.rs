//! The executor without a network.

use std::fmt::Write;

use super::tables::{precise, ranged};
use crate::micro::{Figures, PROGRAMS};

pub(crate) fn table(figures: &Figures) -> String {
    let mut text = String::from(
        "| | Ringshot, ns | tokio, ns | tokio's runtime | Ringshot / tokio |\n\
         | --- | ---: | ---: | --- | ---: |\n",
    );
    for program in &PROGRAMS {
        let of = |figure| figures.spread(program.name, figure);
        let (Some(ringshot), Some(tokio), Some(ratio)) = (
            of(|figure| figure.ringshot),
            of(|figure| figure.tokio),
            of(|figure| figure.ringshot / figure.tokio),
        ) else {
            continue;
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            program.title,
            precise(ringshot.median),
            precise(tokio.median),
            program.rival,
            ranged(ratio)
        );
    }
    text
}

/// What is measured, and what is not.
pub(crate) const METHOD: &str = "Measured by criterion (`cargo run --release -p bench -- micro`): medians of the rounds, \
    and the median of the ratios within them, with the smallest and the largest. Programs that stay on one thread count \
    the CPU time of that thread; the last two, which cross threads, count the time that passes. tokio has all of its \
    drivers on, as `#[tokio::main]` does, so a task that yields alone looks at the network each time; Ringshot looks \
    every 61 polls. Timers are futures in boxes of their own, on both sides, and so is the allocation; what starts \
    1,000,000 timers is not in the time that they take to fire. On tokio's side of the last two, `block_on` is one \
    thread and the only worker the other.\n";
