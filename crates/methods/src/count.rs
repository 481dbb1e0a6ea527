//! `count`: records and bytes.

use memchr::memchr_iter;

use crate::answer::Answer;
use crate::arguments::{Arguments, ArgumentsError, wrong};
use crate::codec::{Input, Output};
use crate::program::{MethodError, Program, Running};
use crate::records::{Records, wide};

/// The method with its arguments.
#[derive(Debug)]
pub(crate) struct Count {
    records: Records,
}

struct Counting {
    of: Records,
    records: u64,
    bytes: u64,
}

impl Count {
    pub(crate) fn parse(arguments: &Arguments, _size: u64) -> Result<Box<dyn Program>, ArgumentsError> {
        arguments.check("count", &["records"])?;
        Ok(Box::new(Count { records: records_of(arguments)? }))
    }
}

/// The kind of records that the argument `records` names.
pub(crate) fn records_of(arguments: &Arguments) -> Result<Records, ArgumentsError> {
    match arguments.get("records") {
        None | Some("lines") => Ok(Records::Lines),
        Some(value) => {
            let bytes = value.parse().ok().filter(|&bytes: &u32| bytes > 0);
            let why = "give lines, or the bytes of one record";
            bytes.map(Records::Fixed).ok_or_else(|| wrong("records", value, why))
        }
    }
}

/// Number of records in a block of whole ones.
fn number_in(records: Records, block: &[u8]) -> u64 {
    match records {
        Records::Lines => {
            let ends = wide(memchr_iter(b'\n', block).count());
            ends + u64::from(block.last().is_some_and(|&last| last != b'\n'))
        }
        Records::Fixed(bytes) => wide(block.len()).div_ceil(u64::from(bytes)),
    }
}

impl Program for Count {
    fn name(&self) -> &'static str {
        "count"
    }

    fn records(&self) -> Records {
        self.records
    }

    fn begin(&self) -> Box<dyn Running + '_> {
        Box::new(Counting { of: self.records, records: 0, bytes: 0 })
    }
}

impl Running for Counting {
    fn feed(&mut self, _offset: u64, block: &[u8]) -> Result<(), MethodError> {
        self.records += number_in(self.of, block);
        self.bytes += wide(block.len());
        Ok(())
    }

    fn partial(&self) -> Vec<u8> {
        let mut out = Output::default();
        out.number(self.records);
        out.number(self.bytes);
        out.0
    }

    fn absorb(&mut self, partial: &[u8]) -> Result<(), MethodError> {
        let mut input = Input(partial);
        self.records = self.records.saturating_add(input.number()?);
        self.bytes = self.bytes.saturating_add(input.number()?);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Answer, MethodError> {
        Ok(Answer::Count { records: self.records, bytes: self.bytes })
    }
}
