//! Results on standard output: text for users or JSON for programs.
//!
//! With `--json` a command prints one JSON document, or one object per line if it reports as it goes. If the
//! reader closes the pipe (`braid ls | head`), the program ends quietly.

use std::io::{self, Write};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::output::exit::{Doing, Exit, Failure};
use crate::output::json_log;

/// Printer of results on standard output.
#[derive(Debug, Clone, Copy)]
pub struct Report {
    /// True to print JSON instead of text.
    pub json: bool,
}

impl Report {
    /// Prints `facts` as JSON, or else the text that `text` makes of them.
    pub fn facts<T: Serialize>(&self, facts: &T, text: impl FnOnce(&T) -> String) -> Result<(), Failure> {
        if self.json {
            let document =
                serde_json::to_string_pretty(facts).map_err(io::Error::from).doing(|| "write JSON".into())?;
            print(&format!("{document}\n"))
        } else {
            print(&text(facts))
        }
    }

    /// Prints one object, or a line of text, on a line of its own; for commands that report as they go.
    pub(crate) fn line<T: Serialize>(
        &self,
        facts: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        if self.json {
            let line = serde_json::to_string(facts).map_err(io::Error::from).doing(|| "write JSON".into())?;
            print(&format!("{line}\n"))
        } else {
            print(&format!("{}\n", text(facts)))
        }
    }

    /// Like [`Report::line`], for work that goes on even if the output is no longer read.
    pub(crate) fn note<T: Serialize>(
        &self,
        facts: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        unread(self.line(facts, text))
    }

    /// Prints a line for users; nothing with `--json`.
    pub fn say(&self, text: impl AsRef<str>) -> Result<(), Failure> {
        if self.json { Ok(()) } else { print(&format!("{}\n", text.as_ref())) }
    }
}

/// Writes to standard output at once; a closed pipe ends the program quietly.
pub fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// As [`print`], of bytes that need not be UTF-8.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::closed_pipe()),
        other => other.doing(|| "write to standard output".into()),
    }
}

/// Ignores a closed standard output: ending early would give exit code 0, as if everything were done.
pub(crate) fn unread(said: Result<(), Failure>) -> Result<(), Failure> {
    match said {
        Err(failure) if failure.exit == Exit::Ok => Ok(()),
        other => other,
    }
}

/// Prints a line on standard error. A failure to write it is ignored.
pub(crate) fn complain(text: &str) {
    let _ = match json_log::complaint(text) {
        Some(line) => writeln!(io::stderr(), "{line}"),
        None => writeln!(io::stderr(), "braid: {text}"),
    };
}

/// Formats a plain table: a header, rows, the `right` columns aligned to the right. Ends with a newline.
pub fn table(header: &[&str], right: &[usize], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.to_vec());
    for row in rows {
        table.add_row(row);
    }
    for &index in right {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text: String = table
        .lines()
        .map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(&line).trim_end()))
        .collect();
    if text.is_empty() {
        text.push('\n');
    }
    text
}

/// A count in words: `1 file`, `2 files`.
pub(crate) fn count(number: u64, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

/// A byte name as shown to users: UTF-8 as it is; other bytes, control characters and backslashes escaped, so
/// that no two names look the same.
pub(crate) fn show_name(name: &[u8]) -> String {
    let mut shown = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() || character == '\\' {
                shown.extend(character.escape_default())
            } else {
                shown.push(character)
            }
        }
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_plain_and_aligned() {
        let text =
            table(&["name", "size"], &[1], [vec!["a".into(), "1".into()], vec!["bb".into(), "100".into()]]);
        assert_eq!(text, "name  size\na        1\nbb     100\n");
    }

    #[test]
    fn a_reader_that_goes_away_ends_no_work() {
        assert_eq!(unread(Err(Failure::closed_pipe())), Ok(()));
        let failure = Failure::new(Exit::NoSpace, "write to standard output", "full");
        assert_eq!(unread(Err(failure.clone())), Err(failure));
    }

    #[test]
    fn names_are_shown_whatever_their_bytes() {
        assert_eq!(show_name("naïve".as_bytes()), "naïve");
        assert_eq!(show_name(b"a\xff\nb"), "a\\xff\\nb");
        assert_eq!(show_name(b"a\\nb"), "a\\\\nb");
    }
}
