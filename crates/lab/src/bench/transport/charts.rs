//! The pictures.

use braid_draw::{Chart, Curve, Style};

use super::{PaperRow, Points};

/// Swift/RAID's figure 4, as far as its text has numbers: raid5, KB/s by window, read and written. Window 1
/// stands for its stop and wait.
const PAPER_READ: [(f64, f64); 2] = [(1.0, 729.0), (5.0, 896.0)];
const PAPER_WRITE: [(f64, f64); 2] = [(1.0, 375.0), (2.0, 559.0)];
/// The rate of the paper's Ethernet.
const PAPER_BITS: u64 = 10_000_000;

/// A picture for each group that has points, by their names.
pub(super) fn all(points: &Points) -> Vec<(String, Chart)> {
    let mut charts = Vec::new();
    for (bits, name) in [(100_000_000, "slow"), (1_000_000_000, "fast")] {
        if points.loss.iter().any(|point| point.0 == bits) {
            charts.push((format!("transport-loss-{name}"), loss(points, bits)));
        }
    }
    for (queue_bytes, name) in [(64 << 10, "64"), (32 << 10, "32")] {
        if points.incast.iter().any(|point| point.0 == queue_bytes) {
            charts.push((format!("transport-incast-{name}"), incast(points, queue_bytes)));
        }
    }
    if points.paper.iter().any(|row| row.bits == PAPER_BITS) {
        charts.push(("transport-paper".to_owned(), paper(points)));
    }
    charts
}

/// A curve for each name, in the order in which the names come first.
fn by_name(points: impl Iterator<Item = (String, (f64, f64))>) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for (name, point) in points {
        match curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push(point),
            None => {
                let number = curves.len();
                let style = if number < COLOURS { Style::Line } else { Style::Dashes };
                curves.push(Curve { name, points: vec![point], colour: number % COLOURS, style });
            }
        }
    }
    curves
}

/// Colours that there are.
const COLOURS: usize = 7;

fn loss(points: &Points, bits: u64) -> Chart {
    let of_link = points.loss.iter().filter(|point| point.0 == bits);
    Chart {
        title: format!("Random losses on a link of {} Mbit/s", bits / 1_000_000),
        subtitle: "one connection, blocks of 256 KiB, queue of 1 MiB".to_owned(),
        x: "frames lost (%)".to_owned(),
        y: "share of what UDP's payload can carry".to_owned(),
        y_max: Some(1.0),
        curves: by_name(of_link.map(|(_, way, percent, share)| (way.shown(), (*percent, *share)))),
        ..Chart::default()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a point of a picture")]
fn incast(points: &Points, queue_bytes: u64) -> Chart {
    let of_queue = points.incast.iter().filter(|point| point.0 == queue_bytes);
    Chart {
        title: format!("Incast: 200 Mbit/s, a queue of {} KiB", queue_bytes >> 10),
        subtitle: "a block of 256 KiB from each server in a round, all in lock-step".to_owned(),
        x: "servers".to_owned(),
        y: "share of what UDP's payload can carry".to_owned(),
        y_max: Some(1.0),
        curves: by_name(of_queue.map(|(_, way, senders, share)| (way.clone(), (*senders as f64, *share)))),
        ..Chart::default()
    }
}

fn paper(points: &Points) -> Chart {
    let mut curves = Vec::new();
    for PaperRow { bits, drives, direction, windows, adaptive } in &points.paper {
        if *bits != PAPER_BITS {
            continue;
        }
        let style = if *direction == "read" { Style::Line } else { Style::Dashes };
        let colour = drives.saturating_sub(3);
        let kb = |rate: f64| rate / 1e3;
        let points = windows.iter().map(|(window, rate)| (*window, kb(*rate))).collect();
        curves.push(Curve { name: format!("{direction}, {drives} drives"), points, colour, style });
        let name = format!("{direction}, {drives} drives, go-back-n");
        curves.push(Curve { name, points: vec![(6.0, kb(*adaptive))], colour, style: Style::Dots });
    }
    for (name, points, style) in
        [("paper: read", PAPER_READ, Style::Line), ("paper: write", PAPER_WRITE, Style::Dashes)]
    {
        curves.push(Curve { name: name.to_owned(), points: points.to_vec(), colour: 6, style });
    }
    Chart {
        title: "Windows over one Ethernet of 10 Mbit/s: raid5".to_owned(),
        subtitle: "as Swift/RAID's figure 4; 40 blocks of 7,340 bytes; go-back-n at 6".to_owned(),
        x: "window (datagrams)".to_owned(),
        y: "KB/s of the file".to_owned(),
        curves,
        ..Chart::default()
    }
}
