//! The results of a spec's points as CSV and as charts.

use std::fmt::Write;

use braid_draw::{Chart, Curve};
use serde::Serialize;
use toml::Value;

use crate::outcome::{Ending, PartKind, RunOutcome};

/// A point of a sweep with its results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ran {
    /// The swept keys and their values.
    pub values: Vec<(String, Value)>,
    pub outcome: RunOutcome,
}

/// The word for the reason of a run's end.
pub fn ending(ending: &Ending) -> &'static str {
    match ending {
        Ending::Settled => "settled",
        Ending::Saturated(_) => "saturated",
        Ending::Bound => "at a bound",
        Ending::Done => "done",
    }
}

/// All points as CSV: a line for each load of each point.
pub fn csv(ran: &[Ran]) -> String {
    let mut text = String::new();
    let keys = ran.first().map_or(&[][..], |first| first.values.as_slice());
    keys.iter().for_each(|(key, _)| text.push_str(&format!("{key},")));
    text.push_str(
        "load,ending,requests,per_second,bytes_per_second,mean_ms,half_width_ms,p50_ms,p90_ms,p99_ms,p999_ms,max_ms,\
         late",
    );
    PartKind::ALL.iter().for_each(|kind| text.push_str(&format!(",{}_busy", snake(*kind))));
    text.push_str(",bottleneck,events\n");
    for one in ran {
        for load in &one.outcome.loads {
            one.values.iter().for_each(|(_, value)| text.push_str(&format!("{},", cell(value))));
            let times = &load.milliseconds;
            let half = times.half.map_or(String::new(), |half| format!("{half:.6}"));
            let late = load.late.map_or(String::new(), |late| late.to_string());
            let _ = write!(
                text,
                "\"{}\",{},{},{:.6},{:.3},{:.6},{half},{:.6},{:.6},{:.6},{:.6},{:.6},{late}",
                load.name.replace('"', "\"\""),
                ending(&one.outcome.ending),
                load.requests,
                load.per_second,
                load.bytes_per_second,
                times.mean,
                times.p50,
                times.p90,
                times.p99,
                times.p999,
                times.max,
            );
            for kind in PartKind::ALL {
                let _ = write!(text, ",{:.6}", one.outcome.utilisation(kind));
            }
            let bottleneck = one.outcome.bottleneck.as_ref().map_or("", |part| part.kind.name());
            let _ = writeln!(text, ",\"{bottleneck}\",{}", one.outcome.events);
        }
    }
    text
}

/// The charts of the points: times and data-rates by the last swept key, if its values are numbers; for a
/// single point the times by the share of requests that are faster.
pub fn charts(title: &str, ran: &[Ran]) -> Vec<(&'static str, Chart)> {
    let swept = ran.first().and_then(|first| first.values.last()).map(|(key, _)| key.clone());
    match swept {
        Some(key) if ran.iter().all(|one| last(one).is_some()) => vec![
            (
                "times",
                by_key(title, &key, ran, "mean time of a request (milliseconds)", |outcome, load| {
                    (!outcome.is_saturated()).then(|| outcome.loads[load].milliseconds.mean)
                }),
            ),
            (
                "rates",
                by_key(title, &key, ran, "data-rate (megabytes/second)", |outcome, load| {
                    Some(outcome.loads[load].bytes_per_second / 1e6)
                }),
            ),
        ],
        Some(_) => Vec::new(),
        None => ran.first().map(|one| ("times", shares(title, &one.outcome))).into_iter().collect(),
    }
}

/// The value of the last swept key, if it is a number.
fn last(one: &Ran) -> Option<f64> {
    match one.values.last() {
        Some((_, Value::Integer(value))) => value.to_string().parse().ok(),
        Some((_, Value::Float(value))) => Some(*value),
        _ => None,
    }
}

/// A chart with a curve for each load and each combination of the other keys.
fn by_key(
    title: &str,
    key: &str,
    ran: &[Ran],
    y: &str,
    value: impl Fn(&RunOutcome, usize) -> Option<f64>,
) -> Chart {
    let mut curves: Vec<Curve> = Vec::new();
    for one in ran {
        let others: Vec<String> = one.values[..one.values.len() - 1]
            .iter()
            .map(|(key, value)| format!("{} {}", key.rsplit('.').next().unwrap_or(key), field(value)))
            .collect();
        for (index, load) in one.outcome.loads.iter().enumerate() {
            let mut words = others.clone();
            if one.outcome.loads.len() > 1 || words.is_empty() {
                words.insert(0, load.name.clone());
            }
            let name = words.join(", ");
            let count = curves.len();
            let known = curves.iter().position(|curve| curve.name == name);
            let at = known.unwrap_or_else(|| {
                curves.push(Curve { name, colour: count, ..Curve::default() });
                count
            });
            if let (Some(x), Some(y)) = (last(one), value(&one.outcome, index)) {
                curves[at].points.push((x, y));
            }
        }
    }
    for curve in &mut curves {
        curve.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    Chart { title: title.to_owned(), x: key.to_owned(), y: y.to_owned(), curves, ..Chart::default() }
}

fn shares(title: &str, outcome: &RunOutcome) -> Chart {
    let curve = |(colour, load): (usize, &crate::outcome::LoadOutcome)| {
        let times = load.milliseconds;
        let points = vec![(50.0, times.p50), (90.0, times.p90), (99.0, times.p99), (99.9, times.p999)];
        Curve { name: load.name.clone(), points, colour, ..Curve::default() }
    };
    Chart {
        title: title.to_owned(),
        x: "requests that are faster (percent)".to_owned(),
        y: "time of a request (milliseconds)".to_owned(),
        curves: outcome.loads.iter().enumerate().map(curve).collect(),
        ..Chart::default()
    }
}

/// A value as a field of CSV (RFC 4180), quoted unless it is a number or a boolean.
fn cell(value: &Value) -> String {
    match value {
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => value.to_string(),
        other => format!("\"{}\"", field(other).replace('"', "\"\"")),
    }
}

/// A value as people write it: a text has no quotes.
pub fn field(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn snake(kind: PartKind) -> String {
    kind.name().replace("'s ", "_").replace(", ", "_").replace(' ', "_")
}
