//! The study as a document, as pictures, and as CSV.

use std::fmt::Write;

use braid_draw::{Chart, Curve};

use super::result::{Figure, Line, Style, Table};
use super::{Assumption, Claim, Study};

/// A file to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Document {
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
}

/// All files of a study: each figure as SVG and PNG, and for a whole study the document.
/// `command` is the command that makes them again; the document names it.
pub(crate) fn documents(study: &Study, command: &str) -> Vec<Document> {
    let mut documents = Vec::new();
    for figure in study.figures.iter().chain(&study.today) {
        let (svg, png) = chart(figure).pictures();
        documents.push(Document { name: format!("{}.svg", figure.name), content: svg.into_bytes() });
        documents.push(Document { name: format!("{}.png", figure.name), content: png });
    }
    if !study.claims.is_empty() {
        documents.push(Document {
            name: "swift-1991.md".to_owned(),
            content: markdown(study, command).into_bytes(),
        });
    }
    documents
}

/// All points of all figures.
pub(crate) fn csv(study: &Study) -> String {
    let mut text = String::from("figure,curve,x,y,half_width_95,disks_busy,link_busy,saturated_at\n");
    for figure in study.figures.iter().chain(&study.today) {
        for line in &figure.lines {
            for point in &line.points {
                let number = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.4}"));
                let _ = writeln!(
                    text,
                    "{},\"{}\",{},{},{},{:.4},{:.4},{}",
                    figure.name,
                    line.name,
                    point.x,
                    number(point.y),
                    number(point.half),
                    point.disks_busy,
                    point.link_busy,
                    number(point.saturated_at),
                );
            }
        }
    }
    text
}

fn chart(figure: &Figure) -> Chart {
    let curve = |line: &Line| Curve {
        name: line.name.clone(),
        points: line.points.iter().filter_map(|point| Some((point.x, point.y?))).collect(),
        colour: line.colour,
        style: match line.style {
            Style::Line => braid_draw::Style::Line,
            Style::Dashes => braid_draw::Style::Dashes,
            Style::Dots => braid_draw::Style::Dots,
        },
    };
    Chart {
        title: heading(figure),
        subtitle: figure.parameters.clone(),
        x: figure.x.clone(),
        y: figure.y.clone(),
        y_max: figure.y_max,
        scale: braid_draw::Scale::Linear,
        curves: figure.lines.iter().map(curve).collect(),
    }
}

/// The title of a figure, with the paper's number if it has one.
fn heading(figure: &Figure) -> String {
    match figure.name.strip_prefix("swift-1991-figure-") {
        Some(number) => format!("Figure {number}: {}", figure.title),
        None => figure.title.clone(),
    }
}

fn markdown(study: &Study, command: &str) -> String {
    let mut text = format!(
        "# Swift's simulation, run again\n\n\
         Luis-Felipe Cabrera and Darrell D. E. Long, \"Exploiting Multiple I/O Streams to Provide High \
         Data-Rates\", 1991, section 5. Made by `{command}`, which gives the same numbers to the last digit \
         every time; nothing here is typed by hand. What is simulated are plan sets as Braid's client makes them, \
         on the paper's parts: crates/lab/src/swift/setup.rs names every assumption.\n\n\
         The model, as section 5.1 has it: hosts of 100 MIPS, 1500 instructions for a packet and one for each \
         byte; a token ring of 1 Gb/s; reads multicast a request; a disk finishes a request's blocks before it \
         begins another's; every block needs a seek and a rotation, uniform and independent, of 16 and 8.3 ms on \
         average; a block is sent when it is read; writes are acknowledged when they are on the disk; exponential \
         intervals, reads to writes 4:1. Left open by the paper and assumed: a block is one packet; eight clients; \
         an acknowledgement for each block, and messages that cost their receiver as much as their sender; \
         10 us to acquire the token; a KB has 1024 bytes and a MB/s of a disk 1000 KB/s, since only so 32 KB take \
         the 12.8 ms that make 37.1 with seek and rotation.\n\n\
         ## What the text fixes\n\n| where | the paper's words | paper | found | off | note |\n|---|---|---:|---:|---:|---|\n"
    );
    study.claims.iter().for_each(|claim| claim_row(&mut text, claim));
    contradiction(&mut text, &study.assumptions);
    text.push_str("\n## The figures\n");
    for figure in &study.figures {
        figure_section(&mut text, figure);
    }
    text.push_str(
        "\n## What the authors left undone\n\nThe same parts and the same messages, with what section 5.1 says was \
         not modelled and section 6.1 wants to be.\n",
    );
    study.undone.iter().for_each(|table| table_section(&mut text, table));
    text.push_str(
        "\n## The same curves on parts of 2026\n\nSix hosts with four flash disks each (7 GB/s read, 5 GB/s written, \
         70 us to the first byte), every host with two links of 100 Gbit/s, 16 cores, drives that append to a log. \
         The parts are named in crates/sim/src/model/preset.rs; they are data sheets' numbers, not measured ones.\n",
    );
    for figure in &study.today {
        figure_section(&mut text, figure);
    }
    study.today_limits.iter().for_each(|table| table_section(&mut text, table));
    text
}

fn claim_row(text: &mut String, claim: &Claim) {
    let paper = claim.paper.map_or(String::new(), |paper| format!("{paper} {}", claim.unit));
    let off =
        claim.paper.map_or(String::new(), |paper| format!("{:+.0} %", 100.0 * (claim.found / paper - 1.0)));
    let _ = writeln!(
        text,
        "| {} | \"{}\" | {paper} | **{}** {} | {off} | {} |",
        claim.place,
        claim.words,
        digits(claim.found),
        claim.unit,
        claim.note
    );
}

fn contradiction(text: &mut String, assumptions: &[Assumption]) {
    text.push_str(
        "\n### Where the paper contradicts itself\n\n\
         The text of figure 3 has 32 disks carry 22 requests of 1 MB a second while they are 50 % busy. Each request \
         has one block of 32 KB on each of the 32 disks, and the text gives a block 37 ms. 22 x 37 ms are 82 %, \
         whatever else is modelled. And 22 requests of 1 MB are 22 MB/s, where the text of figure 6 has 12 MB/s be \
         the most that is sustainable with the same disks, units and requests. What readings of the model give:\n\n\
         | reading | a block (ms) | busy at 22/s | a request at 22/s | sustainable | | busy there | always busy at |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for reading in assumptions {
        let ms = reading.ms_at_22.map_or("saturated".to_owned(), |ms| format!("{ms:.0} ms"));
        let _ = writeln!(
            text,
            "| {} | {:.1} | {:.0} % | {ms} | {:.1} requests/s | {:.1} MB/s | {:.0} % | {:.1} requests/s |",
            reading.what,
            reading.transfer_ms,
            100.0 * reading.busy_at_22,
            reading.sustainable,
            reading.sustainable_mb,
            100.0 * reading.busy_there,
            reading.limit,
        );
    }
    text.push_str(
        "\nSo two different points are called the same. By the definition that the paper gives for figures 5 and 6 \
         (\"the average time to complete a request is the same as the average time between requests\") the first \
         reading sustains what figure 6 says, with disks about half busy: the 50 % belong there. 22 requests a \
         second are where figure 3's curve bends, with disks 82 % busy. If instead 16 and 8.3 ms are taken for the \
         greatest times, 22 requests a second do go with disks about half busy, but then a block takes 25 ms and not \
         37, and figure 6 would be far above 12 MB/s. The first reading is what all else here is made with.\n",
    );
}

fn figure_section(text: &mut String, figure: &Figure) {
    let _ = write!(
        text,
        "\n### {}\n\n![{}]({}.svg)\n\n{}.\n",
        heading(figure),
        heading(figure),
        figure.name,
        figure.parameters
    );
    let by_disks = figure.x == "number of disks";
    if by_disks && figure.name.starts_with("swift") {
        text.push_str(
            "\nA request has 32 blocks. On 12, 20, 24 or 28 disks some have a block more of it than others, and it \
             waits for them: hence the bends.\n",
        );
    }
    if by_disks {
        let _ = write!(text, "\n| {} |", figure.x);
        figure.lines.iter().for_each(|line| text.push_str(&format!(" {} |", line.name)));
        let _ = write!(text, "\n|---:|{}\n", "---:|".repeat(figure.lines.len()));
        let first = figure.lines.first().map_or(&[][..], |line| line.points.as_slice());
        for (row, point) in first.iter().enumerate() {
            let _ = write!(text, "| {} |", point.x);
            for line in &figure.lines {
                let point = line.points.get(row);
                let value = point.and_then(|point| point.y).map_or(String::new(), digits);
                let busy = point.map_or(0.0, |point| 100.0 * point.disks_busy);
                let _ = write!(text, " {value} ({busy:.0} % busy) |");
            }
            text.push('\n');
        }
        return;
    }
    text.push_str(
        "\nMilliseconds of a request, at a share of what the disks can do; the last column is what was done where \
         more was asked for.\n\n| | alone | half of the greatest rate that is carried | the greatest rate that is carried | saturated at |\n|---|---:|---:|---:|---:|\n",
    );
    for line in &figure.lines {
        let carried: Vec<_> = line.points.iter().filter(|point| point.y.is_some()).collect();
        let (Some(first), Some(last)) = (carried.first(), carried.last()) else { continue };
        let half =
            carried.iter().min_by(|a, b| (a.x - last.x / 2.0).abs().total_cmp(&(b.x - last.x / 2.0).abs()));
        let show = |point: &super::Point| {
            let half = point.half.map_or(String::new(), |half| format!(" ± {}", digits(half)));
            format!("{}{half} at {}/s", digits(point.y.unwrap_or(0.0)), point.x)
        };
        let saturated = line.points.iter().find_map(|point| point.saturated_at);
        let saturated = saturated.map_or(String::new(), |rate| format!("{}/s", digits(rate)));
        let half = half.map_or(String::new(), |point| show(point));
        let _ = writeln!(text, "| {} | {} | {half} | {} | {saturated} |", line.name, show(first), show(last));
    }
}

fn table_section(text: &mut String, table: &Table) {
    let _ = write!(text, "\n### {}\n\n{}\n\n| |", table.title, table.about);
    table.columns.iter().for_each(|column| text.push_str(&format!(" {column} |")));
    let _ = write!(text, "\n|---|{}\n", "---:|".repeat(table.columns.len()));
    for row in &table.rows {
        let _ = write!(text, "| {} |", row.name);
        for value in &row.values {
            let _ = write!(text, " {} |", value.map_or("saturated".to_owned(), digits));
        }
        text.push('\n');
    }
}

fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
