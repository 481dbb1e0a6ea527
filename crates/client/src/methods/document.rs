//! The answer of a method as a document: what `braid run --json` and the C library give.

use braid_methods::{Answer, Found, ItemSet};
use serde::Serialize;

use crate::methods::Ran;

/// The answer of a method, and what it took, as a JSON document. Bytes that are not UTF-8 are replaced.
#[derive(Debug, Serialize)]
pub struct RunDocument {
    method: String,
    #[serde(flatten)]
    answer: AnswerDocument,
    bytes: u64,
    /// Bytes that drives answered for; the others were read.
    bytes_at_drives: u64,
    /// Bytes of the answers of drives.
    answer_bytes: u64,
    /// Bytes of the file that were read.
    read_bytes: u64,
    /// Bytes of the arguments that went to drives.
    asked_bytes: u64,
    /// True if the file was written meanwhile.
    changed: bool,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum AnswerDocument {
    Count {
        records: u64,
        record_bytes: u64,
    },
    Records {
        records: Vec<RecordDocument>,
    },
    Histogram {
        bins: Vec<BinDocument>,
        below: u64,
        above: u64,
        without: u64,
    },
    Digest {
        algorithm: &'static str,
        digest: String,
    },
    Blocks {
        block_bytes: u64,
        digests: Vec<String>,
    },
    Sets {
        sets: Vec<SetDocument>,
        lines: u64,
        bad_lines: u64,
    },
    Difference {
        first_difference: Option<u64>,
    },
    Rows {
        rows: String,
    },
    Bytes {
        text: String,
    },
    /// The rows themselves are no text: they are beside it.
    Arrow {
        row_count: u64,
        arrow_bytes: u64,
    },
}

#[derive(Debug, Serialize)]
struct RecordDocument {
    offset: u64,
    text: String,
}

#[derive(Debug, Serialize)]
struct BinDocument {
    from: i64,
    to: i64,
    count: u64,
}

#[derive(Debug, Serialize)]
struct SetDocument {
    items: Vec<u32>,
    count: u64,
}

impl Ran {
    /// The answer of this method as a document.
    pub fn document(&self, method: &str) -> RunDocument {
        RunDocument {
            method: method.to_owned(),
            answer: document(&self.answer),
            bytes: self.bytes,
            bytes_at_drives: self.bytes_at_drives,
            answer_bytes: self.answer_bytes,
            read_bytes: self.read_bytes,
            asked_bytes: self.asked_bytes,
            changed: self.changed,
        }
    }
}

impl RunDocument {
    /// Number of rows, if the answer is a table in Arrow.
    pub fn row_count(&self) -> Option<u64> {
        match self.answer {
            AnswerDocument::Arrow { row_count, .. } => Some(row_count),
            _ => None,
        }
    }
}

fn document(answer: &Answer) -> AnswerDocument {
    let hex = |digest: &[u8; 32]| digest.iter().map(|byte| format!("{byte:02x}")).collect();
    match answer {
        &Answer::Count { records, bytes } => AnswerDocument::Count { records, record_bytes: bytes },
        Answer::Records(found) => {
            let of = |found: &Found| RecordDocument {
                offset: found.offset,
                text: String::from_utf8_lossy(&found.bytes).into_owned(),
            };
            AnswerDocument::Records { records: found.iter().map(of).collect() }
        }
        Answer::Histogram { bins, below, above, without } => {
            let bins = bins.iter().map(|bin| BinDocument { from: bin.from, to: bin.to, count: bin.count });
            AnswerDocument::Histogram {
                bins: bins.collect(),
                below: *below,
                above: *above,
                without: *without,
            }
        }
        Answer::Digest { algorithm, digest } => AnswerDocument::Digest { algorithm, digest: hex(digest) },
        Answer::Blocks { block_bytes, digests } => {
            AnswerDocument::Blocks { block_bytes: *block_bytes, digests: digests.iter().map(hex).collect() }
        }
        Answer::Sets { sets, lines, bad_lines } => {
            let of = |set: &ItemSet| SetDocument { items: set.items.clone(), count: set.count };
            AnswerDocument::Sets { sets: sets.iter().map(of).collect(), lines: *lines, bad_lines: *bad_lines }
        }
        &Answer::Difference { first } => AnswerDocument::Difference { first_difference: first },
        Answer::Rows(rows) => AnswerDocument::Rows { rows: String::from_utf8_lossy(rows).into_owned() },
        Answer::Bytes(bytes) => AnswerDocument::Bytes { text: String::from_utf8_lossy(bytes).into_owned() },
        Answer::Arrow(stream) => AnswerDocument::Arrow {
            // It was written here: it can be read.
            row_count: braid_parquet::rows_in(stream).unwrap_or(0),
            arrow_bytes: u64::try_from(stream.len()).unwrap_or(u64::MAX),
        },
    }
}
