//! A log in JSON: one object per line, with `time`, `level`, `target`, `message` and `fields`.
//!
//! The fields of an event are under `fields`, so that none can take the name of another key. Once a process
//! logs in JSON, so are its complaints (`report::complain`), for programs that read standard error.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// True once this process logs in JSON.
static IN_JSON: AtomicBool = AtomicBool::new(false);

/// Formats events as lines of JSON.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JsonLines;

/// One line of the log.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    level: &'a str,
    target: &'a str,
    message: &'a str,
    fields: BTreeMap<&'static str, Value>,
}

#[derive(Default)]
struct Fields {
    message: String,
    others: BTreeMap<&'static str, Value>,
}

impl Fields {
    fn set(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => drop(self.others.insert(name, value)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, Value::String(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, Value::from(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, Value::from(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, Value::from(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, Value::from(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // What is no number in JSON becomes null.
        self.set(field, Value::from(value));
    }
}

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let line = Line {
            time: now()?,
            level: metadata.level().as_str(),
            target: metadata.target(),
            message: &fields.message,
            fields: fields.others,
        };
        writeln!(writer, "{}", serde_json::to_string(&line).map_err(|_| fmt::Error)?)
    }
}

/// Has complaints written as lines of the log from now on.
pub(crate) fn begin() {
    IN_JSON.store(true, Ordering::Relaxed);
}

/// A complaint as a line of the log, without its end; `None` if this process does not log in JSON.
pub(crate) fn complaint(text: &str) -> Option<String> {
    IN_JSON.load(Ordering::Relaxed).then(|| error_line(text)).flatten()
}

fn error_line(text: &str) -> Option<String> {
    let time = now().ok()?;
    let line = Line { time, level: "ERROR", target: "braid", message: text, fields: BTreeMap::new() };
    serde_json::to_string(&line).ok()
}

fn now() -> Result<String, fmt::Error> {
    let mut time = String::new();
    SystemTime.format_time(&mut Writer::new(&mut time))?;
    Ok(time)
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_line_is_an_object_whatever_is_in_it() {
        let kept = Kept::default();
        let writer = kept.clone();
        let log =
            tracing_subscriber::fmt().event_format(JsonLines).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(log, || {
            tracing::info!(count = 7_u64, rate = f64::NAN, good = true, level = "mine", name = %"a\n\"b\"", "two\nlines {}", 1);
            tracing::warn!(why = ?Some("x"), "plain");
            tracing::error!(below = -1_i64);
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        assert_eq!(lines.len(), 3, "{text}");
        for line in &lines {
            for key in ["time", "level", "target", "message", "fields"] {
                assert!(!line[key].is_null(), "{key} of {line}");
            }
            assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
        }
        let first = &lines[0];
        assert_eq!(
            (first["level"].as_str(), first["message"].as_str()),
            (Some("INFO"), Some("two\nlines 1"))
        );
        assert_eq!(first["fields"]["count"], 7);
        assert_eq!(first["fields"]["good"], true);
        assert_eq!(first["fields"]["level"], "mine");
        assert_eq!(first["fields"]["name"], "a\n\"b\"");
        assert!(first["fields"]["rate"].is_null());
        assert_eq!(lines[1]["fields"]["why"], "Some(\"x\")");
        assert_eq!(
            (&lines[2]["message"], &lines[2]["fields"]["below"]),
            (&Value::from(""), &Value::from(-1))
        );
    }

    #[test]
    fn a_complaint_is_a_line_too() {
        let line: Value = serde_json::from_str(&error_line("it \"fails\"").unwrap()).unwrap();
        assert_eq!((line["message"].as_str(), line["level"].as_str()), (Some("it \"fails\""), Some("ERROR")));
    }
}
