//! `grep`: the lines that a regular expression matches.

use regex::bytes::{Regex, RegexBuilder};

use crate::answer::{Answer, Found};
use crate::arguments::{Arguments, ArgumentsError, wrong};
use crate::codec::{Input, Output};
use crate::program::{MethodError, Program, Running};
use crate::records::{Records, lines, wide};

/// Bytes of a compiled expression, and of its tables, at most.
const REGEX_BYTES_MAX: usize = 4 << 20;
/// Bytes of all lines that are found, at most.
pub(crate) const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// The method.
#[derive(Debug)]
pub(crate) struct Grep {
    regex: Regex,
    /// The lines that do not match are asked for.
    inverts: bool,
    /// Only their number is asked for.
    counts: bool,
}

struct Searching<'a> {
    grep: &'a Grep,
    kept: Kept,
    lines: u64,
    bytes: u64,
}

/// Records that were found, within a bound.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) found: Vec<Found>,
    bytes: u64,
}

impl Kept {
    pub(crate) fn push(&mut self, found: Found) -> Result<(), MethodError> {
        self.bytes += wide(found.bytes.len()) + 16;
        if self.bytes > ANSWER_BYTES_MAX {
            return Err(MethodError::TooLarge { max: ANSWER_BYTES_MAX, of: "bytes" });
        }
        self.found.push(found);
        Ok(())
    }
}

impl Grep {
    pub(crate) fn parse(arguments: &Arguments, _size: u64) -> Result<Box<dyn Program>, ArgumentsError> {
        arguments.check("grep", &["pattern", "ignore-case", "invert", "count"])?;
        let pattern = arguments.need("grep", "pattern")?;
        let regex = RegexBuilder::new(pattern)
            .case_insensitive(arguments.flag("ignore-case")?)
            .size_limit(REGEX_BYTES_MAX)
            .dfa_size_limit(REGEX_BYTES_MAX)
            .build()
            .map_err(|error| wrong("pattern", pattern, error.to_string()))?;
        let inverts = arguments.flag("invert")?;
        Ok(Box::new(Grep { regex, inverts, counts: arguments.flag("count")? }))
    }
}

impl Program for Grep {
    fn name(&self) -> &'static str {
        "grep"
    }

    fn records(&self) -> Records {
        Records::Lines
    }

    fn begin(&self) -> Box<dyn Running + '_> {
        Box::new(Searching { grep: self, kept: Kept::default(), lines: 0, bytes: 0 })
    }
}

impl Running for Searching<'_> {
    fn feed(&mut self, offset: u64, block: &[u8]) -> Result<(), MethodError> {
        for line in lines(block) {
            if self.grep.regex.is_match(line.bytes) == self.grep.inverts {
                continue;
            }
            self.lines += 1;
            self.bytes += wide(line.bytes.len()) + 1;
            if !self.grep.counts {
                self.kept.push(Found { offset: offset + wide(line.at), bytes: line.bytes.to_vec() })?;
            }
        }
        Ok(())
    }

    fn partial(&self) -> Vec<u8> {
        let mut out = Output::default();
        out.number(self.lines);
        out.number(self.bytes);
        for found in &self.kept.found {
            out.number(found.offset);
            out.bytes(&found.bytes);
        }
        out.0
    }

    fn absorb(&mut self, partial: &[u8]) -> Result<(), MethodError> {
        let mut input = Input(partial);
        self.lines = self.lines.saturating_add(input.number()?);
        self.bytes = self.bytes.saturating_add(input.number()?);
        while !input.is_empty() {
            let offset = input.number()?;
            self.kept.push(Found { offset, bytes: input.bytes()?.to_vec() })?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Answer, MethodError> {
        if self.grep.counts {
            return Ok(Answer::Count { records: self.lines, bytes: self.bytes });
        }
        let mut found = self.kept.found;
        found.sort_unstable();
        Ok(Answer::Records(found))
    }
}
