//! The results of a spec's points as CSV.

use std::fmt::Write;

use serde::Serialize;
use toml::Value;

use crate::outcome::{Ending, PartKind, RunOutcome};

/// A point of a sweep with its results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ran<O = RunOutcome> {
    /// The swept keys and their values.
    pub values: Vec<(String, Value)>,
    pub outcome: O,
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

/// A value as a field of CSV (RFC 4180), quoted unless it is a number or a boolean.
pub(crate) fn cell(value: &Value) -> String {
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
