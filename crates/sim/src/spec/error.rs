//! The error of a refused spec: key, line, reason, remedy.

use std::fmt;
use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// Error of a refused spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecError {
    /// Line of the text, from 1; `None`: the key is not in the text.
    pub line: Option<usize>,
    /// Key from the top, such as `cluster.drives` or `load.0.rate`; empty if the text is not TOML.
    pub key: String,
    /// The error, and what would be right.
    pub what: String,
}

impl SpecError {
    pub(crate) fn new(key: impl Into<String>, what: impl Into<String>) -> SpecError {
        SpecError { line: None, key: key.into(), what: what.into() }
    }

    /// The TOML reader's error, with its line. The message names the key.
    pub(crate) fn of_toml(text: &str, error: &toml::de::Error) -> SpecError {
        // An error about a key that is missing at the top has an empty span, which is no key's line.
        let span = error.span().filter(|span| *span != (0..0));
        let key = span.clone().map(|span| key_at(text, &span)).unwrap_or_default();
        let what = error.message().trim_end().replace('\n', "; ");
        SpecError { line: span.map(|span| line_of(text, span.start)), key, what }
    }

    /// Finds the line of the key, or of the longest part of it that is in the text.
    pub(crate) fn find_line(mut self, text: &str) -> SpecError {
        let Ok(table) = DeTable::parse(text) else { return self };
        let mut at = None;
        let mut value = DeValue::Table(table.into_inner());
        for part in self.key.split('.') {
            let found = match &value {
                DeValue::Table(table) => table
                    .iter()
                    .find(|(key, _)| key.get_ref().as_ref() == part)
                    .map(|(key, inner)| (key.span(), inner.get_ref().clone())),
                DeValue::Array(list) => part
                    .parse::<usize>()
                    .ok()
                    .and_then(|index| list.get(index))
                    .map(|inner| (inner.span(), inner.get_ref().clone())),
                _ => None,
            };
            let Some((span, inner)) = found else { break };
            at = Some(line_of(text, span.start));
            value = inner;
        }
        self.line = at;
        self
    }
}

/// Line of a byte, from 1.
fn line_of(text: &str, byte: usize) -> usize {
    text.as_bytes().iter().take(byte).filter(|&&byte| byte == b'\n').count() + 1
}

/// The key at these bytes: the text before `=` on the line, or a table's name.
fn key_at(text: &str, span: &Range<usize>) -> String {
    let start = text.get(..span.start).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
    let line = text.get(start..).unwrap_or_default().lines().next().unwrap_or_default();
    match line.split_once('=') {
        Some((key, _)) => key.trim().to_owned(),
        None => line.trim().trim_matches(|c| c == '[' || c == ']').to_owned(),
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.what)
    }
}

impl std::error::Error for SpecError {}
