//! Traces: recorded requests, one on each line of a CSV text.
//!
//! ```text
//! seconds,client,operation,file,offset,bytes
//! 0.000,0,read,0,0,1048576
//! 0.013,1,write,2,4096,65536
//! ```
//!
//! The first line is the header. `seconds` count from the trace's beginning and never decrease; `client`
//! and `file` are numbers from 0, below the spec's counts; `operation` is `read` or `write`; `offset` and
//! `bytes` are in bytes and lie within the file. Lines that are empty or begin with `#` are skipped.

use crate::number::{SECOND, whole};
use crate::spec::Spec;
use crate::spec::check::REQUEST_BYTES_MAX;

/// Header of a trace.
pub const HEADER: &str = "seconds,client,operation,file,offset,bytes";
/// Most requests of a trace.
const REQUESTS_MAX: usize = 10_000_000;

/// A request of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Time of the request, in nanoseconds from the beginning.
    pub at: u64,
    pub client: u32,
    /// True for a write, false for a read.
    pub write: bool,
    /// Number of the file.
    pub file: u32,
    /// Offset of the first byte.
    pub offset: u64,
    pub bytes: u64,
}

/// Error of a trace, with its line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct TraceError {
    /// Number of the line, from 1.
    pub line: usize,
    /// The error, and what would be right.
    pub what: String,
}

/// Reads a trace for a spec.
pub fn parse(text: &str, spec: &Spec) -> Result<Vec<Entry>, TraceError> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut header = false;
    // Spreadsheets put a byte order mark first.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fail = |what: String| Err(TraceError { line: number + 1, what });
        if !header {
            if line != HEADER {
                return fail(format!("\"{line}\" is not the header \"{HEADER}\""));
            }
            header = true;
            continue;
        }
        let entry = match entry(line, spec) {
            Ok(entry) => entry,
            Err(what) => return fail(what),
        };
        if entries.last().is_some_and(|last| last.at > entry.at) {
            return fail("it is before the request above it: sort the trace by time".to_owned());
        }
        if entries.len() == REQUESTS_MAX {
            return fail(format!("a trace has at most {REQUESTS_MAX} requests"));
        }
        entries.push(entry);
    }
    if entries.is_empty() {
        return Err(TraceError { line: text.lines().count().max(1), what: "there is no request".to_owned() });
    }
    Ok(entries)
}

fn entry(line: &str, spec: &Spec) -> Result<Entry, String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let &[seconds, client, operation, file, offset, bytes] = fields.as_slice() else {
        return Err(format!("{} fields, but there are 6: {HEADER}", fields.len()));
    };
    let at = match seconds.parse::<f64>() {
        Ok(seconds) if (0.0..1e9).contains(&seconds) => whole(seconds * SECOND),
        _ => return Err(format!("\"{seconds}\" is not a time in seconds from 0 to 1e9")),
    };
    let number = |name: &str, text: &str| -> Result<u64, String> {
        text.parse().map_err(|_| format!("{name} \"{text}\" is not a number from 0 on"))
    };
    let below = |name: &str, text: &str, bound: u32| -> Result<u32, String> {
        let value = number(name, text)?;
        u32::try_from(value)
            .ok()
            .filter(|&value| value < bound)
            .ok_or_else(|| format!("there is no {name} {value}: the spec has {bound}, with numbers from 0"))
    };
    let write = match operation {
        "read" => false,
        "write" => true,
        other => return Err(format!("operation \"{other}\" is neither read nor write")),
    };
    let client = below("client", client, spec.cluster.clients)?;
    let file = below("file", file, spec.files.count)?;
    let offset = number("offset", offset)?;
    let bytes = number("bytes", bytes)?;
    let end = offset.checked_add(bytes).filter(|&end| end <= spec.file_bytes() && bytes > 0);
    if end.is_none() {
        return Err(format!(
            "bytes {offset}+{bytes} are an empty range, or not in a file of {} bytes",
            spec.file_bytes()
        ));
    }
    if bytes > REQUEST_BYTES_MAX {
        return Err(format!("a request of {bytes} bytes: at most 1 GiB"));
    }
    Ok(Entry { at, client, write, file, offset, bytes })
}
