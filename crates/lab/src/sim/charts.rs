//! Charts of a spec's points.

use braid_draw::{Chart, Curve};
use braid_sim::outcome::{LoadOutcome, RunOutcome};
use braid_sim::report::{Ran, field};
use toml::Value;

/// The charts of the points: times and data-rates by the last swept key, if its values are numbers; for a
/// single point the times by the share of requests that are faster.
pub(super) fn charts(title: &str, ran: &[Ran]) -> Vec<(&'static str, Chart)> {
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
    let curve = |(colour, load): (usize, &LoadOutcome)| {
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
