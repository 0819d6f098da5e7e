//! What people read: the summary after a run, and `docs/benchmarks.md` with its plots.

mod tables;

use std::io;
use std::path::{Path, PathBuf};

use crate::results::Results;

/// A table for each scenario, for the terminal.
pub(crate) fn summary(results: &Results) -> String {
    tables::all(results)
}

/// Writes the report and returns its path.
pub(crate) fn write(results: &Results, directory: &Path) -> io::Result<PathBuf> {
    let path = directory.join("benchmarks.md");
    std::fs::write(&path, tables::all(results))?;
    Ok(path)
}
