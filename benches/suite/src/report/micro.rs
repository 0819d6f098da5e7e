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
pub(crate) const METHOD: &str = include_str!("micro.md");
