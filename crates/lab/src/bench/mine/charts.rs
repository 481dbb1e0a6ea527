//! The pictures, with what the paper's text says of its own.

use braid_draw::{Chart, Curve, Style};

use super::Points;

/// NASD's figure 9, as far as its text has numbers: MB/s by pairs.
const PAPER_PAIRS: [(f64, f64); 2] = [(1.0, 6.2), (8.0, 45.0)];
/// Its NFS server at eight clients: of one file, and of a copy for each client.
const PAPER_NFS: [(&str, f64); 2] = [("paper: NFS, one file", 20.0), ("paper: NFS, a copy each", 22.5)];
/// Its Active Disks: eight drives over Ethernet of 10 Mbit/s.
const PAPER_ACTIVE: (f64, f64) = (10.0, 45.0);

/// A picture for each group that has points, by their names.
pub(super) fn all(points: &Points) -> Vec<(String, Chart)> {
    let mut charts = Vec::new();
    if !points.pairs.is_empty() {
        charts.push(("mine".to_owned(), pairs(points)));
    }
    if !points.at_drives.is_empty() {
        charts.push(("mine-at-drives".to_owned(), at_drives(points)));
    }
    charts
}

fn curve(name: &str, points: &[(f64, f64)], colour: usize, style: Style) -> Curve {
    let mut points = points.to_vec();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    Curve { name: name.to_owned(), points, colour, style }
}

fn pairs(points: &Points) -> Chart {
    let mut curves = vec![
        curve("what the links carry", &points.links, 6, Style::Dashes),
        curve("Braid", &points.pairs, 0, Style::Line),
        curve("NFS-Ganesha, a link", &points.nfs[0], 1, Style::Line),
        curve("NFS-Ganesha, a link of twice the rate", &points.nfs[1], 4, Style::Line),
        curve("paper: NASD", &PAPER_PAIRS, 2, Style::Dashes),
    ];
    let nfs = PAPER_NFS.iter().zip([3, 5]);
    curves.extend(nfs.map(|((name, rate), colour)| curve(name, &[(8.0, *rate)], colour, Style::Dots)));
    curves.retain(|curve| !curve.points.is_empty());
    Chart {
        title: "Frequent sets, single items: N clients, a file over N drives".to_owned(),
        subtitle: "as NASD's figure 9; the paper's numbers are of its own machines and links".to_owned(),
        x: "clients and drives".to_owned(),
        y: "counted together (MB/s)".to_owned(),
        curves,
        ..Chart::default()
    }
}

fn at_drives(points: &Points) -> Chart {
    let mut curves = vec![
        curve("at the drives", &points.at_drives, 0, Style::Line),
        curve("read by the client", &points.at_client, 1, Style::Dots),
        curve("paper: Active Disks, eight drives", &[PAPER_ACTIVE], 2, Style::Dots),
    ];
    curves.retain(|curve| !curve.points.is_empty());
    Chart {
        title: "Frequent sets, counted at four drives over slower and slower links".to_owned(),
        subtitle: "their modelled disks read 6 MB/s each".to_owned(),
        x: "link of each drive (Mbit/s)".to_owned(),
        y: "counted together (MB/s)".to_owned(),
        curves,
        ..Chart::default()
    }
}
