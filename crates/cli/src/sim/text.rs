//! Results of simulations as tables.

use braid_sim::outcome::{Ending, Group, LoadOutcome, RunOutcome};
use braid_sim::report::{Ran, ending, field};

use crate::output::rate;
use crate::output::report::table;

/// Formats the points of a spec: one in full, several as one table.
pub(super) fn ran(title: &str, ran: &[Ran]) -> String {
    match ran {
        [only] if only.values.is_empty() => format!("{title}\n\n{}", one(&only.outcome)),
        several => format!("{title}\n\n{}", sweep(several)),
    }
}

fn one(outcome: &RunOutcome) -> String {
    let header = [
        "LOAD", "REQUESTS", "PER s", "RATE", "MEAN ms", "+-", "50 %", "90 %", "99 %", "99.9 %", "MAX", "LATE",
    ];
    let mut text = table(&header, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], outcome.loads.iter().map(load));
    let header = ["PART", "COUNT", "BUSY", "BUSIEST", "QUEUE", "LONGEST", "REFUSED"];
    text.push('\n');
    text.push_str(&table(&header, &[1, 2, 3, 4, 5, 6], outcome.groups().iter().map(group)));
    text.push('\n');
    if let Some(part) = &outcome.bottleneck {
        let kind = part.kind.name();
        let name = &part.name;
        let busy = 100.0 * part.utilisation;
        text.push_str(&format!("bottleneck: {kind} {name}, {busy:.1} % busy\n"));
    }
    text.push_str(&format!("{}\n", why(outcome)));
    text.push_str(&format!(
        "{:.3} simulated seconds, after {:.3} of warm-up ({} requests)\n",
        outcome.seconds, outcome.warm_up_seconds, outcome.warm_up_requests
    ));
    text
}

/// The end of a run, in a sentence.
fn why(outcome: &RunOutcome) -> String {
    match &outcome.ending {
        Ending::Settled => "settled: the means are as well known as was asked for".to_owned(),
        Ending::Saturated(saturated) => format!(
            "saturated at {:.2} requests/s of {}: the backlog grew, the times mean nothing",
            saturated.per_second, saturated.load
        ),
        Ending::Bound => {
            "at the bound on requests or events: the means are known no better than +-".to_owned()
        }
        Ending::Done => "done: all requests of the trace".to_owned(),
    }
}

fn load(load: &LoadOutcome) -> Vec<String> {
    let times = &load.milliseconds;
    let mut cells = vec![
        load.name.clone(),
        load.requests.to_string(),
        format!("{:.2}", load.per_second),
        rate::show(load.bytes_per_second),
        ms(times.mean),
        times.half.map_or("?".to_owned(), ms),
    ];
    cells.extend([times.p50, times.p90, times.p99, times.p999, times.max].map(ms));
    cells.push(load.late.map_or(String::new(), |late| late.to_string()));
    cells
}

fn group(group: &Group) -> Vec<String> {
    vec![
        group.kind.name().to_owned(),
        group.count.to_string(),
        format!("{:.1} %", 100.0 * group.utilisation),
        format!("{:.1} %", 100.0 * group.busiest),
        format!("{:.2}", group.queue_mean),
        group.queue_max.to_string(),
        group.refused.to_string(),
    ]
}

/// Formats a table with a row for each load of each point.
fn sweep(ran: &[Ran]) -> String {
    let keys: Vec<String> = ran.first().map_or(Vec::new(), |first| {
        first.values.iter().map(|(key, _)| key.rsplit('.').next().unwrap_or(key).to_uppercase()).collect()
    });
    let mut header: Vec<&str> = keys.iter().map(String::as_str).collect();
    header.extend(["LOAD", "PER s", "RATE", "MEAN ms", "+-", "99 %", "BOTTLENECK", "BUSY", ""]);
    let right: Vec<usize> =
        (0..keys.len()).chain([1, 2, 3, 4, 5, 7].map(|column| column + keys.len())).collect();
    let rows = ran.iter().flat_map(|one| {
        one.outcome.loads.iter().map(|load| {
            let times = &load.milliseconds;
            let mut cells: Vec<String> = one.values.iter().map(|(_, value)| field(value)).collect();
            cells.extend([load.name.clone(), format!("{:.2}", load.per_second)]);
            cells.push(rate::show(load.bytes_per_second));
            cells.extend([ms(times.mean), times.half.map_or("?".to_owned(), ms), ms(times.p99)]);
            let bottleneck = one.outcome.bottleneck.as_ref();
            cells.push(bottleneck.map_or(String::new(), |part| part.kind.name().to_owned()));
            cells.push(bottleneck.map_or(String::new(), |part| format!("{:.1} %", 100.0 * part.utilisation)));
            cells.push(match &one.outcome.ending {
                Ending::Saturated(saturated) => format!("saturated at {:.2}/s", saturated.per_second),
                other => ending(other).to_owned(),
            });
            cells
        })
    });
    table(&header, &right, rows)
}

/// Formats milliseconds with three digits or more, to the nanosecond.
fn ms(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.1}"),
        0.1.. => format!("{value:.3}"),
        _ => format!("{value:.6}"),
    }
}
