//! The same curves with today's parts: 24 flash disks on six hosts, and every host with two links of
//! 100 Gbit/s.

use super::Runner;
use super::real;
use super::result::{Figure, Line, Point, Row, Style, Table};
use super::search::{greatest, is_sustained, link_busy, most};
use super::setup::named;
use braid_sim::model::{CostModel, ProtocolModel, StoreModel};
use braid_sim::outcome::{Ending, PartKind};
use braid_sim::spec::{Cluster, Files, Load, Run, Spec};
use braid_sim::units::Bytes;

/// Numbers of drives; each host has four.
const DRIVES: [u32; 4] = [4, 8, 16, 24];
const REQUEST: Bytes = Bytes(1 << 20);

#[derive(Debug, Clone)]
struct Case {
    drives: u32,
    unit_kib: u64,
    scheme: &'static str,
    width: Option<u8>,
    rate: f64,
    read: f64,
}

impl Case {
    fn spec(&self) -> Spec {
        let unit = Bytes(self.unit_kib << 10);
        Spec {
            title: format!("{} flash disks", self.drives),
            seed: 2026,
            run: Run { precision: 0.02, requests_min: 2000, requests_max: 30_000, ..Run::default() },
            cluster: Cluster {
                clients: 8,
                drives: self.drives,
                drives_per_host: 4,
                rails: 2,
                rail_percents: Vec::new(),
                down: Vec::new(),
            },
            files: Files {
                count: 64,
                size: Bytes(1 << 30),
                scheme: self.scheme.to_owned(),
                width: self.width,
                unit,
            },
            parts: CostModel {
                disk: named("nvme-2026"),
                link: named("100GbE"),
                client: named("server-2026"),
                drive: named("server-2026"),
                store: StoreModel { log: true, ..StoreModel::default() },
                protocol: ProtocolModel::default(),
            },
            load: vec![Load { read: self.read, ..Load::open("requests", self.rate, REQUEST) }],
            sweep: Vec::new(),
        }
    }

    fn at(&self, rate: f64) -> Case {
        Case { rate, ..self.clone() }
    }
}

/// A case of raid0 over all drives, as in the paper.
fn plain(drives: u32, unit_kib: u64) -> Case {
    Case { drives, unit_kib, scheme: "raid0", width: u8::try_from(drives).ok(), rate: 1.0, read: 0.8 }
}

/// The figures, and a table of limits.
pub(super) fn all(runner: &Runner<'_>) -> Option<(Vec<Figure>, Vec<Table>)> {
    Some((vec![times(runner)?, rates(runner)?], vec![limits(runner)?]))
}

/// A figure of the mean time of a request by the number of requests a second.
fn times(runner: &Runner<'_>) -> Option<Figure> {
    const SHARES: [f64; 10] = [0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
    let cases: Vec<Case> =
        [32, 128, 512].iter().flat_map(|&unit| [4, 24].map(|drives| plain(drives, unit))).collect();
    let most = runner.map("2026: the most", &cases, |case| most(&case.spec()).loads[0].per_second)?;
    let points: Vec<Case> = cases
        .iter()
        .zip(&most)
        .flat_map(|(case, most)| SHARES.map(|share| case.at((share * most).round().max(1.0))))
        .collect();
    let found = runner.map("2026: times", &points, |case| {
        let outcome = braid_sim::run(&case.spec(), &[]);
        let (y, saturated_at) = match &outcome.ending {
            Ending::Saturated(saturated) => (None, Some(saturated.per_second)),
            _ => (Some(outcome.loads[0].milliseconds.mean), None),
        };
        Point {
            x: case.rate,
            y,
            half: y.and(outcome.loads[0].milliseconds.half),
            disks_busy: outcome.utilisation(PartKind::Disk),
            link_busy: link_busy(&outcome),
            saturated_at,
        }
    })?;
    let lines = cases.iter().zip(found.chunks(SHARES.len())).map(|(case, points)| Line {
        name: format!("{} disks, unit {} KiB", case.drives, case.unit_kib),
        colour: [32, 128, 512].iter().position(|&unit| unit == case.unit_kib).unwrap_or(0),
        style: if case.drives == 4 { Style::Dashes } else { Style::Line },
        points: points.to_vec(),
    });
    Some(Figure {
        name: "today-2026-times".to_owned(),
        title: "Average time to complete a client request, parts of 2026".to_owned(),
        parameters: "flash disks, 4 on a host, 2 x 100 Gbit/s a host, client request = 1 MiB, 8 clients, reads to writes 4:1"
            .to_owned(),
        x: "requests per second".to_owned(),
        y: "time to complete a request (milliseconds)".to_owned(),
        y_max: Some(1.0),
        lines: lines.collect(),
    })
}

/// A figure of the data-rate at the paper's maximum sustainable load, and of the most.
fn rates(runner: &Runner<'_>) -> Option<Figure> {
    let cases: Vec<Case> =
        [32, 128, 512].iter().flat_map(|&unit| DRIVES.map(|drives| plain(drives, unit))).collect();
    let megabytes = real(REQUEST.0) / 1e9;
    let found = runner.map("2026: sustainable", &cases, |case| {
        let full = most(&case.spec());
        let limit = full.loads[0].per_second;
        let sustained = greatest(limit.min(20_000.0), |rate| case.at(rate).spec(), is_sustained);
        let point = |rate: f64, outcome: &braid_sim::RunOutcome| Point {
            x: f64::from(case.drives),
            y: Some(rate * megabytes),
            half: None,
            disks_busy: outcome.utilisation(PartKind::Disk),
            link_busy: link_busy(outcome),
            saturated_at: None,
        };
        let sustained = sustained.map(|(rate, outcome)| point(rate, &outcome));
        (sustained, point(limit, &full))
    })?;
    let mut lines = Vec::new();
    for (colour, (unit, points)) in [32, 128, 512].iter().zip(found.chunks(DRIVES.len())).enumerate() {
        let sustained = points.iter().filter_map(|(sustained, _)| *sustained).collect();
        let name = format!("unit {unit} KiB, sustainable");
        lines.push(Line { name, colour, style: Style::Dashes, points: sustained });
        let most = points.iter().map(|(_, most)| *most).collect();
        lines.push(Line {
            name: format!("unit {unit} KiB, the most"),
            colour,
            style: Style::Line,
            points: most,
        });
    }
    Some(Figure {
        name: "today-2026-rates".to_owned(),
        title: "Client data-rate, parts of 2026".to_owned(),
        parameters: "as above; sustainable as the paper defines it (one request's time = the time between requests), and the most with 64 in flight"
            .to_owned(),
        x: "number of disks".to_owned(),
        y: "client data-rate (gigabytes/second)".to_owned(),
        y_max: None,
        lines,
    })
}

/// A table of the parts' utilisation with 24 disks, by scheme and direction.
fn limits(runner: &Runner<'_>) -> Option<Table> {
    let case = |scheme, width, read| Case { scheme, width, read, ..plain(24, 128) };
    let cases = [
        ("raid0 over 24, reads", case("raid0", Some(24), 1.0), Vec::new()),
        ("raid0 over 24, writes", case("raid0", Some(24), 0.0), Vec::new()),
        ("raid5 8+1, reads", case("raid5", Some(9), 1.0), Vec::new()),
        ("raid5 8+1, writes of full stripes", case("raid5", Some(9), 0.0), Vec::new()),
        ("rs(8,2), reads", case("rs(8,2)", None, 1.0), Vec::new()),
        ("rs(8,2), writes of full stripes", case("rs(8,2)", None, 0.0), Vec::new()),
        ("rs(8,2), reads, two drives lost", case("rs(8,2)", None, 1.0), vec![0, 1]),
        ("rs(8,2), writes, two drives lost", case("rs(8,2)", None, 0.0), vec![0, 1]),
    ];
    let rows = runner.map("2026: limits", &cases, |(name, case, down)| {
        let mut spec = case.spec();
        spec.cluster.down.clone_from(down);
        let outcome = most(&spec);
        Row {
            name: (*name).to_owned(),
            values: vec![
                Some(outcome.loads[0].bytes_per_second / 1e9),
                Some(outcome.loads[0].milliseconds.mean),
                Some(100.0 * outcome.utilisation(PartKind::Disk)),
                Some(100.0 * outcome.utilisation(PartKind::ClientSend)),
                Some(100.0 * outcome.utilisation(PartKind::ClientReceive)),
                Some(100.0 * outcome.utilisation(PartKind::DriveSend)),
                Some(100.0 * outcome.utilisation(PartKind::DriveReceive)),
                Some(100.0 * outcome.utilisation(PartKind::ClientProcessor)),
            ],
        }
    })?;
    let columns = [
        "GB/s",
        "a request (ms)",
        "disks (%)",
        "clients' links out (%)",
        "in (%)",
        "drives' links out (%)",
        "in (%)",
        "clients' processors (%)",
    ];
    Some(Table {
        title: "What limits 24 disks".to_owned(),
        about: "64 requests of 1 MiB in flight from 8 clients, units of 128 KiB, 64 files. The numbers are means of \
                all parts of a kind: the greatest says what limits."
            .to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows,
    })
}
