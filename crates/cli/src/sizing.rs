//! `braid size`: the fewest drives for so many streams and bytes.

use braid_sim::model::{DiskModel, Preset, names};
use braid_sim::size::{Answer, Ask, Utilisation, size};
use braid_sim::units::Bytes;

use crate::args;
use crate::output::exit::Failure;
use crate::output::report::{Report, table};

/// Capacities of the disks that are known by name.
const CAPACITIES: [(&str, Bytes); 2] =
    [("hdd-18tb", Bytes(18_000_000_000_000)), ("nvme-2026", Bytes(15_360_000_000_000))];

/// Runs the command.
pub(crate) fn run(asked: &args::Size, report: Report) -> Result<(), Failure> {
    let known = CAPACITIES.iter().find(|(name, _)| *name == asked.drive).map(|(_, capacity)| *capacity);
    let disk_capacity = asked.drive_capacity.or(known).ok_or_else(|| {
        let why = match DiskModel::preset(&asked.drive) {
            Some(_) => "how much it holds is not known: give --drive-capacity".to_owned(),
            None => format!("no disk has this name: use {}", names::<DiskModel>()),
        };
        Failure::usage(format!("size with drive {:?}", asked.drive), why)
    })?;
    let ask = Ask {
        streams: asked.streams,
        rate: asked.rate,
        read: asked.read,
        capacity: asked.capacity,
        survive: asked.survive,
        disk: part(&asked.drive)?,
        disk_capacity,
        link: part(&asked.link)?,
        processor: part(&asked.processor)?,
        drives_per_host: asked.drives_per_host,
        clients: asked.clients.unwrap_or(asked.streams),
    };
    let answer = size(&ask).map_err(|error| Failure::usage("size the cluster", error.to_string()))?;
    report.facts(&answer, text)
}

/// Looks up a preset part by its name.
fn part<T: Preset>(name: &str) -> Result<T, Failure> {
    T::preset(name).ok_or_else(|| {
        let why = format!("no {} has this name: use {}", T::WHAT, names::<T>());
        Failure::usage(format!("size with {} {name:?}", T::WHAT), why)
    })
}

fn text(answer: &Answer) -> String {
    let rebuild = match answer.rebuild {
        Some(span) => {
            format!("{:.1} hours beside the streams, if nothing holds it up", span.seconds() / 3600.0)
        }
        None if answer.scheme.starts_with("raid0") => "not possible: nothing is redundant".to_owned(),
        None if answer.full == 0.0 => "nothing is stored".to_owned(),
        None => "nothing is left for it".to_owned(),
    };
    let when = if answer.with_losses { "with the losses" } else { "with all drives there" };
    let lines = [
        (
            "drives",
            format!(
                "{} on {} {}",
                answer.drives,
                answer.hosts,
                if answer.hosts == 1 { "host" } else { "hosts" }
            ),
        ),
        ("scheme", format!("{}, width {}, unit {}", answer.scheme, answer.width, answer.unit)),
        (
            "needed",
            format!(
                "{} drives for the capacity, {} for the streams",
                answer.drives_for_capacity, answer.drives_for_streams
            ),
        ),
        ("admitted", format!("{} streams may have a promise of their rate", answer.admitted_streams)),
        (
            "a host's loss",
            if answer.survives_a_host {
                "is survived".to_owned()
            } else {
                "is not survived: it holds more columns of a file than may be lost".to_owned()
            },
        ),
        ("full", format!("{:.0} %", 100.0 * answer.full)),
        ("rebuild of a drive", rebuild),
        ("limits", format!("{}, {when}", answer.bottleneck)),
        (
            "breaks first",
            format!("{}, at {:.0} streams, {when}", answer.bottleneck, answer.breaks_at_streams.floor()),
        ),
    ];
    let mut text = String::new();
    for (name, value) in lines {
        text.push_str(&format!("{:20}{value}\n", format!("{name}:")));
    }
    let all = shares(&answer.healthy);
    let lost = shares(&answer.degraded);
    let rows = all.iter().zip(lost).map(|((name, all), (_, lost))| {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        vec![(*name).to_owned(), percent(*all), percent(lost)]
    });
    text.push('\n');
    text.push_str(&table(&["BUSY", "ALL THERE", "WITH LOSSES"], &[1, 2], rows));
    text
}

/// Share of its time that each kind of part is busy, 0 to 1.
fn shares(state: &Utilisation) -> [(&'static str, f64); 5] {
    [
        ("disks", state.disk),
        ("links of the drives' hosts", state.drive_link),
        ("links of the clients' hosts", state.client_link),
        ("processors of the drives' hosts", state.drive_processor),
        ("processors of the clients' hosts", state.client_processor),
    ]
}
