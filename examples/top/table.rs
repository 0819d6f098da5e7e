//! The table: a row for each worker.

use std::time::Duration;

use console::{Alignment, pad_str, style};
use runtime::{Handle, Metrics};

pub struct Table {
    before: Vec<Metrics>,
}

impl Table {
    pub fn new(handle: &Handle) -> Self {
        Self {
            before: snapshots(handle),
        }
    }

    /// The lines of the table, with what has happened since the last one.
    pub fn next(&mut self, handle: &Handle) -> Vec<String> {
        let now = snapshots(handle);
        let pairs = now.iter().zip(&self.before);
        let rows: Vec<_> = pairs.map(|(now, before)| now.since(before)).collect();
        self.before = now;

        let names = COLUMNS.iter().map(|column| column.name.to_owned());
        let mut lines = vec![style(line("worker", names)).bold().to_string()];
        for (worker, row) in rows.iter().enumerate() {
            let cells = COLUMNS.iter().map(|column| (column.cell)(row));
            lines.push(line(&worker.to_string(), cells));
        }
        lines
    }
}

fn snapshots(handle: &Handle) -> Vec<Metrics> {
    let workers = 0..handle.workers();
    workers.map(|worker| handle.metrics(worker)).collect()
}

fn line(first: &str, cells: impl Iterator<Item = String>) -> String {
    let mut line = pad_str(first, 6, Alignment::Right, None).into_owned();
    for (cell, column) in cells.zip(COLUMNS) {
        line.push_str("  ");
        line.push_str(&pad_str(&cell, column.width, Alignment::Right, None));
    }
    line
}

struct Column {
    name: &'static str,
    width: usize,
    cell: fn(&Metrics) -> String,
}

/// What `of` holds is that of the last second.
const COLUMNS: &[Column] = &[
    Column {
        name: "busy             ",
        width: 17,
        cell: busy,
    },
    Column {
        name: "sends/s",
        width: 7,
        cell: |of| rate(of.silent_sends + of.armed_sends, of),
    },
    Column {
        name: "calls/s",
        width: 7,
        cell: |of| rate(of.enters, of),
    },
    Column {
        name: "per op",
        width: 6,
        cell: |of| format!("{:.2}", of.enters_per_operation()),
    },
    Column {
        name: "polls/s",
        width: 7,
        cell: |of| rate(of.polls, of),
    },
    Column {
        name: "queue",
        width: 5,
        cell: |of| of.ready.to_string(),
    },
    Column {
        name: "conns",
        width: 5,
        cell: |of| of.connections.to_string(),
    },
    Column {
        name: "ops",
        width: 5,
        cell: |of| of.ops.to_string(),
    },
    Column {
        name: "buffers",
        width: 7,
        cell: |of| format!("{}/{}", of.buffers - of.buffers_free, of.buffers),
    },
    Column {
        name: "starved",
        width: 7,
        cell: |of| alarm(of.starvations),
    },
    Column {
        name: "wakes/s",
        width: 7,
        cell: |of| rate(of.remote_wakes, of),
    },
    Column {
        name: "p99",
        width: 7,
        cell: |of| of.wake_latency.quantile(0.99).map_or("-".to_owned(), below),
    },
    Column {
        name: "longest",
        width: 7,
        cell: |of| short(of.longest_poll),
    },
    Column {
        name: "slow",
        width: 4,
        cell: |of| alarm(of.slow_polls.max(of.stalls)),
    },
];

/// A bar of ten, and the number.
fn busy(of: &Metrics) -> String {
    let ratio = of.busy_ratio();
    let full = (ratio * 10.0).round() as usize;
    let bar = "█".repeat(full) + &"░".repeat(10 - full.min(10));
    let bar = match ratio {
        ..0.7 => style(bar).green(),
        ..0.9 => style(bar).yellow(),
        _ => style(bar).red(),
    };
    format!("{bar} {:5.1}%", ratio * 100.0)
}

fn rate(count: u64, of: &Metrics) -> String {
    let seconds = of.elapsed.as_secs_f64();
    let rate = if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    };
    format!("{rate:.0}")
}

/// Something that should be zero.
fn alarm(count: u64) -> String {
    match count {
        0 => "0".to_owned(),
        count => style(count).red().bold().to_string(),
    }
}

fn below(bound: Duration) -> String {
    match bound {
        Duration::MAX => "long".to_owned(),
        bound => format!("<{}", short(bound)),
    }
}

/// Three digits are enough.
fn short(duration: Duration) -> String {
    match duration.as_micros() {
        micros @ ..1_000 => format!("{micros}µs"),
        micros @ ..1_000_000 => format!("{:.1}ms", micros as f64 / 1e3),
        micros => format!("{:.1}s", micros as f64 / 1e6),
    }
}
