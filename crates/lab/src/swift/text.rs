//! The study as tables for a terminal.

use braid_cli::output::report::table;

use super::{Assumption, Figure, Study, Table};

/// Formats the study of the paper.
pub(crate) fn study(study: &Study) -> String {
    let mut text = String::new();
    for found in study.figures.iter().chain(&study.today) {
        text.push_str(&figure(found));
    }
    if !study.claims.is_empty() {
        text.push_str("what the text fixes\n");
        let rows = study.claims.iter().map(|claim| {
            let paper = claim.paper.map_or(String::new(), |paper| paper.to_string());
            vec![claim.place.to_owned(), paper, format!("{:.2}", claim.found), claim.unit.to_owned()]
        });
        text.push_str(&table(&["WHERE", "PAPER", "FOUND", ""], &[1, 2], rows));
    }
    text.push_str(&assumptions(&study.assumptions));
    for found in study.undone.iter().chain(&study.today_limits) {
        text.push_str(&numbers(found));
    }
    text
}

fn figure(figure: &Figure) -> String {
    let rows = figure.lines.iter().flat_map(|line| {
        line.points.iter().map(|point| {
            vec![
                line.name.clone(),
                point.x.to_string(),
                point.y.map_or("saturated".to_owned(), |y| format!("{y:.2}")),
                point.half.map_or(String::new(), |half| format!("{half:.2}")),
                format!("{:.0} %", 100.0 * point.disks_busy),
                format!("{:.0} %", 100.0 * point.link_busy),
            ]
        })
    });
    let header = ["CURVE", figure.x.as_str(), figure.y.as_str(), "+-", "DISKS", "LINK"];
    format!(
        "{}: {}\n{}\n{}\n",
        figure.name,
        figure.title,
        figure.parameters,
        table(&header, &[1, 2, 3, 4, 5], rows)
    )
}

fn assumptions(readings: &[Assumption]) -> String {
    if readings.is_empty() {
        return String::new();
    }
    let rows = readings.iter().map(|reading| {
        vec![
            format!("{:.1} ms", reading.transfer_ms),
            format!("{:.0} %", 100.0 * reading.busy_at_22),
            format!("{:.1}/s", reading.sustainable),
            format!("{:.1} MB/s", reading.sustainable_mb),
            format!("{:.0} %", 100.0 * reading.busy_there),
            reading.what.to_owned(),
        ]
    });
    let header = ["A BLOCK", "BUSY AT 22/s", "SUSTAINABLE", "", "BUSY THERE", "READING OF THE MODEL"];
    format!("\nreadings of the model, 32 disks, 32 KB, 1 MB\n{}", table(&header, &[0, 1, 2, 3, 4], rows))
}

fn numbers(found: &Table) -> String {
    let mut header = vec![""];
    header.extend(found.columns.iter().map(String::as_str));
    let right: Vec<usize> = (1..header.len()).collect();
    let rows = found.rows.iter().map(|row| {
        let value = |value: &Option<f64>| value.map_or("saturated".to_owned(), |value| format!("{value:.2}"));
        std::iter::once(row.name.clone()).chain(row.values.iter().map(value)).collect()
    });
    format!("\n{}\n{}", found.title, table(&header, &right, rows))
}
