//! `grep`: the lines that a regular expression matches.

use regex::bytes::{Regex, RegexBuilder};

use crate::answer::{Answer, Found};
use crate::arguments::{Arguments, ArgumentsError, wrong};
use crate::codec::{Input, Output};
use crate::program::{MethodError, Program, Running};
use crate::records::{Records, lines, wide};

/// Bytes of an expression at most, as it is typed.
const PATTERN_BYTES_MAX: usize = 8 << 10;
/// Bytes of a compiled expression, and of its tables, at most.
const REGEX_BYTES_MAX: usize = 4 << 20;
/// Kinds of expressions that drives run, by their bytes when compiled: the time for a line is at worst in
/// proportion to those and to its length.
const AT_DRIVES: [Compiled; 2] = [
    Compiled { bytes_max: 16 << 10, step_bytes: 128 << 10 },
    Compiled { bytes_max: 256 << 10, step_bytes: 32 << 10 },
];
/// Bytes of all lines that are found, at most.
pub(crate) const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// The method with its arguments.
#[derive(Debug)]
pub(crate) struct Grep {
    regex: Regex,
    /// Bytes that a drive judges between two looks at the clock; `None`: the expression is too large for
    /// drives.
    step_bytes: Option<usize>,
    /// The lines that do not match are asked for.
    inverts: bool,
    /// Only their number is asked for.
    counts: bool,
}

/// A bound on compiled expressions, and what follows from it.
#[derive(Debug, Clone, Copy)]
struct Compiled {
    bytes_max: usize,
    step_bytes: usize,
}

struct Searching<'a> {
    grep: &'a Grep,
    kept: Kept,
    lines: u64,
    bytes: u64,
}

/// Records that were found, within a bound.
pub(crate) struct Kept {
    pub(crate) found: Vec<Found>,
    bytes: u64,
    bytes_max: u64,
}

impl Kept {
    /// Of this many bytes at most, and never more than an answer may have.
    pub(crate) fn within(bytes_max: u64) -> Kept {
        Kept { found: Vec::new(), bytes: 0, bytes_max: bytes_max.min(ANSWER_BYTES_MAX) }
    }

    pub(crate) fn push(&mut self, found: Found) -> Result<(), MethodError> {
        self.bytes += wide(found.bytes.len()) + 16;
        if self.bytes > self.bytes_max {
            return Err(MethodError::TooLarge { max: self.bytes_max, of: "bytes" });
        }
        self.found.push(found);
        Ok(())
    }
}

impl Grep {
    pub(crate) fn parse(arguments: &Arguments, _size: u64) -> Result<Box<dyn Program>, ArgumentsError> {
        arguments.check("grep", &["pattern", "ignore-case", "invert", "count"])?;
        let pattern = arguments.need("grep", "pattern")?;
        if pattern.len() > PATTERN_BYTES_MAX {
            let begin: String = pattern.chars().take(40).collect();
            let why =
                format!("an expression has at most {PATTERN_BYTES_MAX} bytes, and this begins one of more");
            return Err(wrong("pattern", &begin, why));
        }
        let ignores_case = arguments.flag("ignore-case")?;
        let inverts = arguments.flag("invert")?;
        let counts = arguments.flag("count")?;
        let compile = |bytes_max: usize| {
            RegexBuilder::new(pattern)
                .case_insensitive(ignores_case)
                .size_limit(bytes_max)
                .dfa_size_limit(REGEX_BYTES_MAX)
                .build()
        };
        for Compiled { bytes_max, step_bytes } in AT_DRIVES {
            if let Ok(regex) = compile(bytes_max) {
                return Ok(Box::new(Grep { regex, step_bytes: Some(step_bytes), inverts, counts }));
            }
        }
        let regex = compile(REGEX_BYTES_MAX).map_err(|error| wrong("pattern", pattern, error.to_string()))?;
        Ok(Box::new(Grep { regex, step_bytes: None, inverts, counts }))
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
        self.begin_within(ANSWER_BYTES_MAX)
    }

    fn begin_within(&self, bytes_max: u64) -> Box<dyn Running + '_> {
        Box::new(Searching { grep: self, kept: Kept::within(bytes_max), lines: 0, bytes: 0 })
    }

    fn hindrance(&self) -> Option<&'static str> {
        self.step_bytes.is_none().then_some("its expression is too large for drives when it is compiled")
    }

    fn step_bytes(&self) -> usize {
        self.step_bytes.unwrap_or(usize::MAX)
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
