//! A report as a picture. For each place it shows E7's ratios one by one, E8's by request size, and the
//! store's sending; then the time to open a store, and the cost of cleaning by the share of live units. The
//! scale is logarithmic, so that twice as fast and half as fast are equally far from the centre.

use braid_draw::{Anchor, Axis, Drawing, FAINT, INK, goal_colour};

use crate::report::{Amplification, Cache, Experiment, Load, Report, Row, Timing, show_size};

// Distinct for colour-blind readers (Okabe and Ito).
const SERIES: [&str; 3] = ["#0072b2", "#e69f00", "#cc79a7"];

const WIDTH: f64 = 1120.0;
const HEAD: f64 = 84.0;
/// The positions of a list of rows: its labels end at `labels_end`, then comes the axis.
#[derive(Clone, Copy)]
struct Frame {
    labels_end: f64,
    axis: (f64, f64),
}

/// Positions of the single ratios.
const SINGLES: Frame = Frame { labels_end: 265.0, axis: (280.0, 570.0) };
/// Positions for sending, whose names are longer; each row's other side is named at `AGAINST`.
const SENDING: Frame = Frame { labels_end: 320.0, axis: (335.0, 640.0) };
const AGAINST: f64 = 710.0;
/// Position of the ratios by request size.
const SIZES: (f64, f64) = (680.0, 1080.0);
const ROW: f64 = 26.0;
const PANEL_HEIGHT_MIN: f64 = 260.0;

/// The report as SVG.
pub fn svg(report: &Report) -> String {
    let mut drawing = Drawing::default();
    let title = format!("The store against raw files: rate over rate, braid {}", report.version);
    drawing.text((20.0, 28.0), Anchor::Start, 18, &title);
    let machine = &report.machine;
    let where_ = format!(
        "{}, {} processors, kernel {}; dots: medians, lines: least to greatest of the pairs",
        machine.cpu, machine.cpus, machine.kernel
    );
    drawing.text((20.0, 48.0), Anchor::Start, 12, &where_);
    drawing.goals_legend("target");
    let mut top = HEAD + 30.0;
    for place in &report.places {
        let rows = |experiment| -> Vec<&Row> {
            let of = |row: &&Row| row.place == place.label && row.experiment == experiment;
            report.rows.iter().filter(of).collect()
        };
        let singles = rows(Experiment::E7);
        let sizes = rows(Experiment::E8);
        let sending = rows(Experiment::Sending);
        drawing.text((20.0, top), Anchor::Start, 15, &place.label);
        drawing.text((SINGLES.axis.0, top), Anchor::Start, 12, "row by row");
        drawing.text((SIZES.0, top), Anchor::Start, 12, "by request size, one at a time");
        let length = f64::from(u32::try_from(singles.len()).unwrap_or(0)) * ROW;
        let height = length.max(PANEL_HEIGHT_MIN);
        one_by_one(&mut drawing, SINGLES, &singles, top + 12.0, length);
        by_size(&mut drawing, &sizes, top + 12.0, height);
        top += height + 84.0;
        if !sending.is_empty() {
            let heading = format!("{}, sending: by sendfile over by a copy", place.label);
            drawing.text((20.0, top), Anchor::Start, 15, &heading);
            let length = f64::from(u32::try_from(sending.len()).unwrap_or(0)) * ROW;
            one_by_one(&mut drawing, SENDING, &sending, top + 12.0, length);
            let mut y = top + 12.0 + ROW / 2.0;
            for row in &sending {
                drawing.text((AGAINST, y + 4.0), Anchor::Start, 12, &format!("against: {}", row.against));
                y += ROW;
            }
            top += length + 64.0;
        }
    }
    if !report.times.is_empty() || !report.amplification.is_empty() {
        top += 10.0;
        times(&mut drawing, &report.times, top);
        amplification(&mut drawing, &report.amplification, top, PANEL_HEIGHT_MIN);
        top += PANEL_HEIGHT_MIN + 100.0;
    }
    drawing.finish(WIDTH, top - 20.0)
}

/// Draws a line for each time, with its target.
fn times(drawing: &mut Drawing, times: &[Timing], top: f64) {
    let Some(first) = times.first() else { return };
    drawing.text((20.0, top), Anchor::Start, 15, &format!("{}, opening", first.place));
    let about = format!("{} objects, {} GiB of log: seconds to open", first.objects, first.log_bytes >> 30);
    drawing.text((SINGLES.axis.0, top), Anchor::Start, 12, &about);
    let top = top + 12.0;
    let length = f64::from(u32::try_from(times.len()).unwrap_or(0)) * ROW;
    let values = times.iter().flat_map(|time| [time.seconds.min, time.seconds.max, time.target_seconds]);
    let axis = Axis::over(values, SINGLES.axis);
    drawing.grid(&axis, top, length);
    let mut y = top + ROW / 2.0;
    for time in times {
        let colour = goal_colour(Some(time.is_met()));
        drawing.text((SINGLES.labels_end, y + 4.0), Anchor::End, 12, &time.title());
        drawing.line((axis.at(time.seconds.min), y), (axis.at(time.seconds.max), y), colour, 1.5);
        let target = axis.at(time.target_seconds);
        drawing.line((target, y - 7.0), (target, y + 7.0), INK, 2.0);
        drawing.dot((axis.at(time.seconds.median), y), 4.5, colour);
        let seconds = format!("{:.2} s", time.seconds.median);
        drawing.text((SINGLES.axis.1 + 10.0, y + 4.0), Anchor::Start, 12, &seconds);
        y += ROW;
    }
}

/// Draws two curves for each load: solid for the measured values, dashed for the simulated ones.
fn amplification(drawing: &mut Drawing, points: &[Amplification], top: f64, height: f64) {
    let Some(first) = points.first() else { return };
    let (from, to) = SIZES;
    let heading = format!("{}: bytes written for one of the foreground, by % live", first.place);
    drawing.text((from, top), Anchor::Start, 12, &heading);
    let top = top + 12.0;
    let values = points.iter().flat_map(|point| [point.measured, point.simulated]);
    let axis = Axis::from_one(values, (top + height, top));
    for (y, name) in axis.marks() {
        drawing.line((from, y), (to, y), FAINT, 1.0);
        drawing.text((from - 8.0, y + 4.0), Anchor::End, 11, &name);
    }
    let percents = points.iter().map(|point| point.live_percent);
    let low = percents.clone().min().unwrap_or(0);
    let high = percents.clone().max().unwrap_or(100);
    let place = |percent: u32| {
        let share = f64::from(percent - low) / f64::from((high - low).max(1));
        from + 20.0 + (to - from - 40.0) * share
    };
    let mut marks: Vec<u32> = percents.collect();
    marks.sort_unstable();
    marks.dedup();
    for percent in marks {
        let name = format!("{percent} %");
        drawing.text((place(percent), top + height + 16.0), Anchor::Middle, 11, &name);
    }
    let mut at = from;
    for (load, colour) in [Load::Uniform, Load::HotCold].into_iter().zip(SERIES) {
        let of_load = || points.iter().filter(|point| point.load == load);
        let curve = |value: fn(&Amplification) -> f64| -> Vec<(f64, f64)> {
            of_load().map(|point| (place(point.live_percent), axis.at(value(point)))).collect()
        };
        let measured = curve(|point| point.measured);
        drawing.dashes(&curve(|point| point.simulated), colour);
        drawing.curve(&measured, colour);
        for &point in &measured {
            drawing.dot(point, 3.5, colour);
        }
        drawing.dot((at + 4.0, top + height + 34.0), 4.0, colour);
        drawing.text((at + 14.0, top + height + 38.0), Anchor::Start, 12, load.name());
        at += 90.0;
    }
    drawing.text((at + 80.0, top + height + 38.0), Anchor::Start, 12, "dashes: simulated");
}

/// Draws a line for each row, with its ratio on an axis.
fn one_by_one(drawing: &mut Drawing, frame: Frame, rows: &[&Row], top: f64, length: f64) {
    let values = rows.iter().flat_map(|row| [row.ratio.min, row.ratio.max, row.target.unwrap_or(1.0)]);
    let axis = Axis::over(values, frame.axis);
    drawing.grid(&axis, top, length);
    drawing.line((axis.at(1.0), top), (axis.at(1.0), top + length), INK, 1.5);
    let mut y = top + ROW / 2.0;
    for row in rows {
        let colour = goal_colour(row.is_met());
        drawing.text((frame.labels_end, y + 4.0), Anchor::End, 12, &row.title());
        drawing.line((axis.at(row.ratio.min), y), (axis.at(row.ratio.max), y), colour, 1.5);
        if let Some(target) = row.target {
            drawing.line((axis.at(target), y - 7.0), (axis.at(target), y + 7.0), INK, 2.0);
        }
        drawing.dot((axis.at(row.ratio.median), y), 4.5, colour);
        let ratio = format!("{:.2}", row.ratio.median);
        drawing.text((frame.axis.1 + 10.0, y + 4.0), Anchor::Start, 12, &ratio);
        y += ROW;
    }
}

/// Draws a curve for each kind of request.
fn by_size(drawing: &mut Drawing, rows: &[&Row], top: f64, height: f64) {
    let (from, to) = SIZES;
    let values = rows.iter().flat_map(|row| [row.ratio.min, row.ratio.max, row.target.unwrap_or(1.0)]);
    let axis = Axis::over(values, (top + height, top));
    for (y, name) in axis.marks() {
        drawing.line((from, y), (to, y), FAINT, 1.0);
        drawing.text((from - 8.0, y + 4.0), Anchor::End, 11, &name);
    }
    drawing.line((from, axis.at(1.0)), (to, axis.at(1.0)), INK, 1.5);
    let mut sizes: Vec<u32> = rows.iter().map(|row| row.request_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let steps = f64::from(u32::try_from(sizes.len()).unwrap_or(1).max(2) - 1);
    let place = |size: u32| {
        let index = sizes.iter().position(|&other| other == size).unwrap_or(0);
        from + 20.0 + (to - from - 40.0) * f64::from(u32::try_from(index).unwrap_or(0)) / steps
    };
    for &size in &sizes {
        drawing.text((place(size), top + height + 16.0), Anchor::Middle, 11, &show_size(size));
    }
    let mut kinds: Vec<(&str, Option<Cache>)> = Vec::new();
    for row in rows {
        if !kinds.contains(&(row.name, row.cache)) {
            kinds.push((row.name, row.cache));
        }
    }
    let mut at = from;
    for (shift, (&(name, cache), colour)) in [0.0, 3.0, -3.0].into_iter().zip(kinds.iter().zip(SERIES)) {
        let mut points = Vec::new();
        for row in rows.iter().filter(|row| (row.name, row.cache) == (name, cache)) {
            // Shifted a little, so that the spreads do not hide one another.
            let x = place(row.request_bytes) + shift;
            drawing.line((x, axis.at(row.ratio.min)), (x, axis.at(row.ratio.max)), colour, 1.0);
            points.push((x, axis.at(row.ratio.median)));
        }
        drawing.curve(&points, colour);
        for &point in &points {
            drawing.dot(point, 3.5, colour);
        }
        let word = cache.map_or(name.to_owned(), |cache| format!("{name}, {}", cache.name()));
        drawing.dot((at + 4.0, top + height + 34.0), 4.0, colour);
        drawing.text((at + 14.0, top + height + 38.0), Anchor::Start, 12, &word);
        at += 120.0;
    }
}
