//! Figures 3 to 6.

use super::Runner;
use super::real;
use super::result::{Figure, Line, Point, Style};
use super::search::{link_busy, sustainable};
use super::setup::{Setup, named};
use braid_sim::outcome::{Ending, PartKind, RunOutcome};

/// Numbers of disks in figures 3 and 4.
const DISKS: [u32; 4] = [4, 8, 16, 32];
/// Numbers of disks in figures 5 and 6.
const MORE_DISKS: [u32; 8] = [4, 8, 12, 16, 20, 24, 28, 32];
/// Shares of the disks' limit at which a request's time is measured. The last is above the limit.
const SHARES: [f64; 12] = [0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.1];

/// A figure of the paper.
pub(super) fn figure(number: u8, runner: &Runner<'_>) -> Option<Figure> {
    let name = format!("swift-1991-figure-{number}");
    match number {
        3 => {
            let setups =
                [4, 16, 32].iter().flat_map(|&unit| DISKS.map(|disks| Setup::new(disks, unit, 1024)));
            times(
                name,
                "client request = 1 megabyte, transfer rate = 2.5 megabytes/second",
                600.0,
                setups.collect(),
                runner,
            )
        }
        4 => {
            let slow = |disks| Setup { disk: named("swift-slow"), ..Setup::new(disks, 4, 128) };
            let about = "client request = 128 kilobytes, transfer rate = 1.5 megabytes/second";
            times(name, about, 600.0, DISKS.map(slow).to_vec(), runner)
        }
        5 => rates(name, 4, 128, runner),
        _ => rates(name, 32, 1024, runner),
    }
}

/// A figure of the mean time of a request by the number of requests a second.
fn times(name: String, about: &str, y_max: f64, setups: Vec<Setup>, runner: &Runner<'_>) -> Option<Figure> {
    let points: Vec<Setup> = setups
        .iter()
        .flat_map(|setup| SHARES.map(|share| setup.at(round(share * setup.disks_limit()))))
        .collect();
    let found = runner.map(&name, &points, |setup| point(setup, &braid_sim::run(&setup.spec(), &[])))?;
    let lines = setups.iter().zip(found.chunks(SHARES.len())).map(|(setup, points)| Line {
        name: format!("{} disks, unit {} KB", setup.drives, setup.unit.0 >> 10),
        colour: DISKS.iter().position(|&disks| disks == setup.drives).unwrap_or(0),
        style: match setup.unit.0 >> 10 {
            4 if setups.len() > DISKS.len() => Style::Dots,
            16 => Style::Dashes,
            _ => Style::Line,
        },
        points: points.to_vec(),
    });
    Some(Figure {
        name,
        title: "Average time to complete a client request".to_owned(),
        parameters: format!("average seek time = 16 ms, average rotational delay = 8.3 ms, {about}"),
        x: "requests per second".to_owned(),
        y: "time to complete a request (milliseconds)".to_owned(),
        y_max: Some(y_max),
        lines: lines.collect(),
    })
}

fn point(setup: &Setup, outcome: &RunOutcome) -> Point {
    let (y, saturated_at) = match &outcome.ending {
        Ending::Saturated(saturated) => (None, Some(saturated.per_second)),
        _ => (Some(outcome.loads[0].milliseconds.mean), None),
    };
    Point {
        x: setup.rate,
        y,
        half: y.and(outcome.loads[0].milliseconds.half),
        disks_busy: outcome.utilisation(PartKind::Disk),
        link_busy: link_busy(outcome),
        saturated_at,
    }
}

/// A figure of the data-rate at the maximum sustainable load by the number of disks.
fn rates(name: String, unit_kib: u64, request_kib: u64, runner: &Runner<'_>) -> Option<Figure> {
    let disks =
        [("fujitsu-m2372k", "2.5 megabytes/second (Fujitsu M2372K)"), ("swift-slow", "1.5 megabytes/second")];
    let setups: Vec<Setup> = disks
        .iter()
        .flat_map(|(disk, _)| {
            MORE_DISKS.map(|drives| Setup { disk: named(disk), ..Setup::new(drives, unit_kib, request_kib) })
        })
        .collect();
    let found = runner.map(&name, &setups, |setup| {
        sustainable(setup).map(|(rate, outcome)| Point {
            x: f64::from(setup.drives),
            y: Some(rate * real(setup.request.0) / 1e6),
            half: None,
            disks_busy: outcome.utilisation(PartKind::Disk),
            link_busy: link_busy(&outcome),
            saturated_at: None,
        })
    })?;
    let lines =
        disks.iter().zip(found.chunks(MORE_DISKS.len())).enumerate().map(|(colour, ((_, shown), points))| {
            let points = points.iter().flatten().copied().collect();
            Line { name: (*shown).to_owned(), colour, style: Style::Line, points }
        });
    let request =
        if request_kib == 1024 { "1 megabyte".to_owned() } else { format!("{request_kib} kilobytes") };
    Some(Figure {
        name,
        title: "Observed client data-rate at maximum sustainable load".to_owned(),
        parameters: format!("client request = {request}, disk transfer unit = {unit_kib} kilobytes"),
        x: "number of disks".to_owned(),
        y: "client data-rate (megabytes/second)".to_owned(),
        y_max: None,
        lines: lines.collect(),
    })
}

fn round(rate: f64) -> f64 {
    let digits = 10_f64.powf(2.0 - rate.log10().floor());
    (rate * digits).round() / digits
}
