//! Plots that show what the tables say. Each is a grid of panels, a panel for each scenario.

use std::io;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::tables::{grouped, ratio_to};
use crate::catalogue::{BASE, Kind, Load, SCENARIOS, Scenario};
use crate::results::{Results, Sample, Spread};

/// Writes all plots for which there is data, and returns their names with what they show.
pub(crate) fn write(results: &Results, directory: &Path) -> io::Result<Vec<Plot>> {
    let plots = [
        Plot {
            file: "throughput.svg",
            title: "Operations per second, tokio = 1 (longer is better)",
            panels: throughput(results),
        },
        Plot {
            file: "cpu.svg",
            title: "Server CPU time per operation, nanoseconds (shorter is better)",
            panels: cpu(results),
        },
        Plot {
            file: "latency.svg",
            title: "Latency, microseconds: p50, p99 and p99.9 (further left is better)",
            panels: latency(results),
        },
        Plot {
            file: "memory.svg",
            title: "Memory of 10,000 idle connections (shorter is better)",
            panels: memory(results),
        },
    ];
    let mut written = Vec::new();
    for plot in plots {
        if !plot.panels.is_empty() {
            plot.draw(&directory.join(plot.file))
                .map_err(io::Error::other)?;
            written.push(plot);
        }
    }
    Ok(written)
}

/// A file with panels.
pub(crate) struct Plot {
    pub(crate) file: &'static str,
    pub(crate) title: &'static str,
    panels: Vec<Panel>,
}

struct Panel {
    title: String,
    rows: Vec<Row>,
    scale: Scale,
    /// A line to compare with.
    mark: Option<f64>,
}

struct Row {
    name: String,
    kind: Kind,
    /// A bar's end with the range of the rounds, or three points.
    value: Spread,
    label: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scale {
    /// Bars from zero.
    Bars,
    /// Points on a logarithmic axis.
    Points,
}

// --- what is shown --------------------------------------------------------------------------------------------------

fn throughput(results: &Results) -> Vec<Panel> {
    let panel = |scenario: &Scenario| {
        let ratio = |name: &str| ratio_to(results, scenario, name, BASE, Sample::rate);
        let mut panel = Panel::bars(results, heading(scenario), ratio, |value| {
            format!("{value:.2}")
        });
        panel.rows.reverse();
        panel.mark = Some(1.0);
        panel
    };
    busy().map(panel).filter(Panel::has_rows).collect()
}

fn cpu(results: &Results) -> Vec<Panel> {
    let panel = |scenario: &Scenario| {
        let cost = |name: &str| results.spread(scenario.key, name, Sample::cpu_per_operation);
        Panel::bars(results, heading(scenario), cost, whole)
    };
    busy().map(panel).filter(Panel::has_rows).collect()
}

fn latency(results: &Results) -> Vec<Panel> {
    let timed = busy().filter(|scenario| !matches!(scenario.load, Load::Packets { .. }));
    let panel = |scenario: &Scenario| {
        let points = |name: &str| {
            let median = |quantile: fn(&crate::load::Latency) -> u64| {
                let values = results
                    .samples(scenario.key, name)
                    .filter_map(|sample| Some(quantile(sample.latency_ns.as_ref()?) as f64 / 1e3));
                Spread::of(values.collect()).map(|spread| spread.median)
            };
            Some(Spread {
                min: median(|latency| latency.p50)?,
                median: median(|latency| latency.p99)?,
                max: median(|latency| latency.p999)?,
            })
        };
        let mut panel = Panel::bars(results, heading(scenario), points, whole);
        for row in &mut panel.rows {
            let Spread { min, median, max } = row.value;
            row.label = format!("{} · {} · {}", whole(min), whole(median), whole(max));
        }
        panel
            .rows
            .sort_by(|a, b| a.value.min.total_cmp(&b.value.min));
        panel.scale = Scale::Points;
        panel
    };
    timed.map(panel).filter(Panel::has_rows).collect()
}

fn memory(results: &Results) -> Vec<Panel> {
    let Some(scenario) = SCENARIOS.iter().find(|scenario| scenario.is_idle()) else {
        return Vec::new();
    };
    let each = |name: &str| results.spread(scenario.key, name, Sample::bytes_per_connection);
    let all = |name: &str| {
        let mib = |sample: &Sample| sample.resident_bytes as f64 / f64::from(1 << 20);
        results.spread(scenario.key, name, mib)
    };
    let panels = [
        Panel::bars(results, "bytes per connection".to_owned(), each, whole),
        Panel::bars(results, "whole process, MiB".to_owned(), all, whole),
    ];
    panels.into_iter().filter(Panel::has_rows).collect()
}

fn busy() -> impl Iterator<Item = &'static Scenario> {
    SCENARIOS.iter().filter(|scenario| !scenario.is_idle())
}

fn heading(scenario: &Scenario) -> String {
    format!("{} · {}", scenario.key, scenario.title.replace('`', ""))
}

fn whole(value: f64) -> String {
    if value < 100.0 {
        format!("{value:.1}")
    } else {
        grouped(value)
    }
}

impl Panel {
    fn bars(
        results: &Results,
        title: String,
        value: impl Fn(&str) -> Option<Spread>,
        label: impl Fn(f64) -> String,
    ) -> Self {
        let row = |peer: &crate::results::PeerEntry| {
            let value = value(&peer.name)?;
            Some(Row {
                name: peer.name.clone(),
                kind: peer.kind,
                value,
                label: label(value.median),
            })
        };
        let mut rows: Vec<Row> = results.peers.iter().filter_map(row).collect();
        rows.sort_by(|a, b| a.value.median.total_cmp(&b.value.median));
        Self {
            title,
            rows,
            scale: Scale::Bars,
            mark: None,
        }
    }

    fn has_rows(&self) -> bool {
        !self.rows.is_empty()
    }

    fn height(&self) -> i32 {
        TITLE + ROW * self.rows.len() as i32 + GAP
    }
}

// --- how it is drawn ------------------------------------------------------------------------------------------------

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>>;

impl Plot {
    fn draw(&self, path: &Path) -> Drawn {
        let lines: Vec<&[Panel]> = self.panels.chunks(COLUMNS).collect();
        let heights = lines.iter().map(|line| height_of(line));
        let size = (WIDTH * COLUMNS as i32 + GAP, HEADER + heights.sum::<i32>());
        let root = SVGBackend::new(path, (size.0 as u32, size.1 as u32)).into_drawing_area();
        root.fill(&WHITE)?;
        text(&root, self.title, (GAP, HEADER / 2), 16, HPos::Left, INK)?;
        let mut top = HEADER;
        for line in lines {
            for (column, panel) in line.iter().enumerate() {
                panel.draw(&root, GAP + WIDTH * column as i32, top)?;
            }
            top += height_of(line);
        }
        root.present()
    }
}

fn height_of(line: &[Panel]) -> i32 {
    line.iter().map(Panel::height).max().unwrap_or_default()
}

impl Panel {
    fn draw(&self, root: &Area<'_>, left: i32, top: i32) -> Drawn {
        text(
            root,
            &self.title,
            (left, top + TITLE / 2),
            13,
            HPos::Left,
            INK,
        )?;
        let start = left + NAMES;
        let axis = Axis::of(self, start);
        let rows_top = top + TITLE;
        for (index, row) in self.rows.iter().enumerate() {
            let middle = rows_top + ROW * index as i32 + ROW / 2;
            let ink = if row.kind == Kind::Ours { OURS } else { INK };
            text(root, &row.name, (start - 6, middle), 12, HPos::Right, ink)?;
            match self.scale {
                Scale::Bars => row.draw_bar(root, &axis, middle)?,
                Scale::Points => row.draw_points(root, &axis, middle)?,
            }
        }
        if let Some(mark) = self.mark {
            let bottom = rows_top + ROW * self.rows.len() as i32;
            let x = axis.x(mark);
            root.draw(&PathElement::new(
                [(x, rows_top), (x, bottom)],
                INK.stroke_width(1),
            ))?;
        }
        Ok(())
    }
}

impl Row {
    fn draw_bar(&self, root: &Area<'_>, axis: &Axis, middle: i32) -> Drawn {
        let end = axis.x(self.value.median);
        let bar = [(axis.start, middle - BAR / 2), (end, middle + BAR / 2)];
        root.draw(&Rectangle::new(bar, colour(self.kind).filled()))?;
        // From the slowest to the fastest round.
        let (low, high) = (axis.x(self.value.min), axis.x(self.value.max));
        root.draw(&PathElement::new(
            [(low, middle), (high, middle)],
            INK.stroke_width(1),
        ))?;
        text(
            root,
            &self.label,
            (end.max(high) + 5, middle),
            11,
            HPos::Left,
            INK,
        )
    }

    fn draw_points(&self, root: &Area<'_>, axis: &Axis, middle: i32) -> Drawn {
        let colour = colour(self.kind);
        let points = [self.value.min, self.value.median, self.value.max].map(|value| axis.x(value));
        let line = [(points[0], middle), (points[2], middle)];
        root.draw(&PathElement::new(line, colour.stroke_width(2)))?;
        for (x, radius) in points.into_iter().zip([5, 4, 3]) {
            root.draw(&Circle::new((x, middle), radius, colour.filled()))?;
        }
        text(
            root,
            &self.label,
            (points[2] + 8, middle),
            11,
            HPos::Left,
            INK,
        )
    }
}

/// Where a value is.
struct Axis {
    start: i32,
    scale: Scale,
    low: f64,
    high: f64,
}

impl Axis {
    fn of(panel: &Panel, start: i32) -> Self {
        let values = || panel.rows.iter().map(|row| row.value);
        let high = values()
            .map(|value| value.max)
            .fold(panel.mark.unwrap_or(0.0), f64::max);
        let low = values()
            .map(|value| value.min)
            .fold(f64::INFINITY, f64::min);
        Self {
            start,
            scale: panel.scale,
            // A point at the very start would look like zero.
            low: low.max(f64::MIN_POSITIVE) / 1.2,
            high: high.max(f64::MIN_POSITIVE),
        }
    }

    fn x(&self, value: f64) -> i32 {
        let part = match self.scale {
            Scale::Bars => value / self.high,
            Scale::Points => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        self.start + (part.clamp(0.0, 1.0) * f64::from(LENGTH)).round() as i32
    }
}

fn text(
    root: &Area<'_>,
    what: &str,
    at: (i32, i32),
    size: i32,
    side: HPos,
    ink: RGBColor,
) -> Drawn {
    let style = ("sans-serif", size).into_font().color(&ink);
    root.draw(&Text::new(
        what,
        at,
        style.pos(Pos::new(side, VPos::Center)),
    ))
}

fn colour(kind: Kind) -> RGBColor {
    match kind {
        Kind::Ours => OURS,
        Kind::OurVariant => RGBColor(0xf6, 0xc4, 0x9a),
        Kind::Rival => RGBColor(0x7d, 0x97, 0xb5),
        Kind::Variant => RGBColor(0xc9, 0xd3, 0xde),
        Kind::Loop => RGBColor(0x8f, 0xb5, 0x8a),
    }
}

const INK: RGBColor = RGBColor(0x33, 0x33, 0x33);
const OURS: RGBColor = RGBColor(0xd9, 0x5f, 0x0e);

// Pixels.
const COLUMNS: usize = 2;
const WIDTH: i32 = 510;
const NAMES: i32 = 110;
/// Of the longest bar; the rest is for its label.
const LENGTH: i32 = 240;
const ROW: i32 = 19;
const BAR: i32 = 12;
const TITLE: i32 = 28;
const GAP: i32 = 20;
const HEADER: i32 = 48;
