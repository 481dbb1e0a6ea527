//! The study as a document with pictures, and as tables for a terminal.

use std::fmt::Write;

use braid_cli::output::report::table;
use braid_draw::{Chart, Curve, Scale, Style};

use super::{Found, OfParts, Row, Study};
use crate::swift::{Document, real};

/// All files of the study: the pictures as SVG and PNG, and the document. `command` makes them again.
pub(crate) fn documents(study: &Study, command: &str) -> Vec<Document> {
    let mut documents = Vec::new();
    for parts in &study.parts {
        let (svg, png) = chart(parts).pictures();
        let name = format!("promises-sim-{}", parts.name);
        documents.push(Document { name: format!("{name}.svg"), content: svg.into_bytes() });
        documents.push(Document { name: format!("{name}.png"), content: png });
    }
    let content = markdown(study, command).into_bytes();
    documents.push(Document { name: "promises-sim.md".to_owned(), content });
    documents
}

/// The study as tables.
pub(crate) fn text(study: &Study) -> String {
    let mut text = String::new();
    for parts in &study.parts {
        let _ = writeln!(text, "{}\n", parts.title);
        let header: Vec<&str> = COLUMNS.to_vec();
        let right: Vec<usize> = (0..header.len()).collect();
        text.push_str(&table(&header, &right, parts.rows.iter().map(cells)));
        text.push('\n');
    }
    text
}

const COLUMNS: [&str; 11] = [
    "DRIVES",
    "ADMITTED",
    "CARRIED",
    "RATIO",
    "LATE",
    "VBR: BY PEAK",
    "CARRIED",
    "RATIO",
    "BY MEAN",
    "RATIO",
    "LATE PERIODS",
];

fn cells(row: &Row) -> Vec<String> {
    let Row { constant, variable, statistical, statistical_late, statistical_periods, .. } = row;
    let of_kind = |found: &Found| {
        [found.admitted.to_string(), found.carried.to_string(), format!("{:.2}", found.ratio())]
    };
    let by_mean = real(*statistical) / real(variable.carried.max(1));
    let late = 100.0 * real(*statistical_late) / real((*statistical_periods).max(1));
    let mut cells = vec![row.drives.to_string()];
    cells.extend(of_kind(constant));
    cells.push((constant.late + variable.late).to_string());
    cells.extend(of_kind(variable));
    cells.extend([statistical.to_string(), format!("{by_mean:.2}"), format!("{late:.3} %")]);
    cells
}

fn chart(parts: &OfParts) -> Chart {
    let curve = |name: &str, colour: usize, style: Style, of: &dyn Fn(&Row) -> u64| Curve {
        name: name.to_owned(),
        points: parts.rows.iter().map(|row| (f64::from(row.drives), real(of(row)))).collect(),
        colour,
        style,
    };
    Chart {
        title: format!("Streams carried against drives: {}", parts.title),
        subtitle:
            "raid5 4+1; ten times more best effort than fits; a drive is lost in the middle and rebuilt"
                .to_owned(),
        x: "drives".to_owned(),
        y: "streams".to_owned(),
        y_max: None,
        scale: Scale::Powers,
        curves: vec![
            curve("constant rate, carried", 0, Style::Line, &|row| row.constant.carried),
            curve("constant rate, admitted", 0, Style::Dashes, &|row| row.constant.admitted),
            curve("variable rate, carried", 1, Style::Line, &|row| row.variable.carried),
            curve("variable rate, admitted by mean", 2, Style::Dashes, &|row| row.statistical),
            curve("variable rate, admitted by peak", 1, Style::Dashes, &|row| row.variable.admitted),
        ],
    }
}

fn markdown(study: &Study, command: &str) -> String {
    let mut text = format!(
        "# Streams carried against drives\n\nMade by `{command}`, which gives the same numbers every time; nothing \
         here is typed by hand. The simulator runs the manager's admission and the drives' scheduler \
         (docs/sim.md, \"Promised rates\"): files are raid5 4+1 on drives that admission chooses; streams read whole \
         stripes, and each file survives a drive. Beside them go ten times more operations without a promise than \
         a drive's scheduler gives out at once. After {:.0} % of the run a drive is lost; plan sets go around it, \
         and the others rebuild it at a rate that is booked.\n\n\
         *Carried* is the greatest number of streams, to 2 %, of which none has a late period in such a run; they \
         are let in without asking. *Admitted* is what admission lets in for the same conditions, as it does it for \
         users: each stream at its greatest rate, through the loss of any drive, in 0.8 of each disk's time. A \
         stream of variable rate (VBR) has in every half second (flash: 50 ms) a rate of its own, from a quarter of \
         the mean to twice the mean. *By mean* is statistical admission, which only the simulator has: mean and three deviations of the \
         streams on a drive together. *Ratio* is admitted over carried: above 1.00 a promise would be broken. \
         A run has {:.0} stripes of each stream or more: at the end of so short a run, what is a little too much may \
         not be late yet, so carried is rather told too high than too low.\n",
        100.0 * super::LOST_AFTER,
        super::STRIPES_MIN,
    );
    for parts in &study.parts {
        let name = format!("promises-sim-{}", parts.name);
        let _ = write!(text, "\n## {}\n\n![{}]({name}.svg)\n\n", parts.title, parts.title);
        text.push_str(
            "| drives | admitted | carried | ratio | late periods of the admitted | VBR: by peak | carried | ratio | by mean | ratio | late periods of these |\n",
        );
        let _ = writeln!(text, "|{}", "---:|".repeat(COLUMNS.len()));
        for row in &parts.rows {
            let _ = writeln!(text, "| {} |", cells(row).join(" | "));
        }
    }
    text.push_str("\n## Use of the disks\n\nShares of the disks' time with the admitted streams.\n\n");
    text.push_str("| parts | drives | CBR: streams use | busy in all | VBR: streams use | busy in all |\n");
    text.push_str("|---|---:|---:|---:|---:|---:|\n");
    for parts in &study.parts {
        for row in &parts.rows {
            let share = |share: f64| format!("{:.1} %", 100.0 * share);
            let of_kind = |found: &Found| format!("{} | {}", share(found.used), share(found.busy));
            let constant = of_kind(&row.constant);
            let variable = of_kind(&row.variable);
            let _ = writeln!(text, "| {} | {} | {constant} | {variable} |", parts.name, row.drives);
        }
    }
    text
}
