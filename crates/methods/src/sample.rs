//! `sample`: some records, each as likely as any other, drawn by a seed and by their places in the file.

use std::collections::BTreeMap;

use crate::answer::{Answer, Found};
use crate::arguments::{Arguments, ArgumentsError};
use crate::codec::{Input, Output};
use crate::count::records_of;
use crate::program::{MethodError, Program, Running};
use crate::records::{Records, lines, wide};

/// Records that may be drawn, at most.
const COUNT_MAX: u64 = 100_000;
/// Bytes of all records that are drawn, at most.
const BYTES_MAX: u64 = 64 << 20;

/// The method.
#[derive(Debug)]
pub(crate) struct Sample {
    records: Records,
    count: usize,
    seed: u64,
}

/// The records with the least lots so far.
struct Drawing<'a> {
    sample: &'a Sample,
    drawn: BTreeMap<Lot, Vec<u8>>,
    bytes: u64,
}

/// The lot of a record: the least ones are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Lot {
    lot: u64,
    offset: u64,
}

impl Sample {
    pub(crate) fn parse(arguments: &Arguments, _size: u64) -> Result<Box<dyn Program>, ArgumentsError> {
        arguments.check("sample", &["count", "seed", "records"])?;
        let count = arguments.number("count", 10, 1, COUNT_MAX)?;
        let seed = arguments.number("seed", 0, 0, u64::MAX)?;
        let count = usize::try_from(count).expect("it is small");
        Ok(Box::new(Sample { records: records_of(arguments)?, count, seed }))
    }
}

/// A number that is as good as random, of the seed and a record's place (the finaliser of SplitMix64, twice).
fn lot(seed: u64, offset: u64) -> u64 {
    let mix = |number: u64| {
        let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    mix(mix(seed) ^ offset)
}

impl Drawing<'_> {
    fn consider(&mut self, lot: Lot, record: &[u8]) -> Result<(), MethodError> {
        let last = self.drawn.last_key_value().map(|(last, _)| *last);
        if self.drawn.len() == self.sample.count {
            if last.is_some_and(|last| last < lot) {
                return Ok(());
            }
            if let Some((_, dropped)) = self.drawn.pop_last() {
                self.bytes -= wide(dropped.len());
            }
        }
        self.bytes += wide(record.len());
        if self.bytes > BYTES_MAX {
            return Err(MethodError::TooLarge { max: BYTES_MAX, of: "bytes" });
        }
        self.drawn.insert(lot, record.to_vec());
        Ok(())
    }
}

impl Program for Sample {
    fn name(&self) -> &'static str {
        "sample"
    }

    fn records(&self) -> Records {
        self.records
    }

    fn begin(&self) -> Box<dyn Running + '_> {
        Box::new(Drawing { sample: self, drawn: BTreeMap::new(), bytes: 0 })
    }
}

impl Running for Drawing<'_> {
    fn feed(&mut self, offset: u64, block: &[u8]) -> Result<(), MethodError> {
        let seed = self.sample.seed;
        let of = |at: usize| {
            let offset = offset + wide(at);
            Lot { lot: lot(seed, offset), offset }
        };
        match self.sample.records {
            Records::Lines => lines(block).try_for_each(|line| self.consider(of(line.at), line.bytes)),
            Records::Fixed(bytes) => {
                let bytes = usize::try_from(bytes).expect("a record fits memory");
                let mut records = block.chunks(bytes).enumerate();
                records.try_for_each(|(number, record)| self.consider(of(number * bytes), record))
            }
        }
    }

    fn partial(&self) -> Vec<u8> {
        let mut out = Output::default();
        for (lot, record) in &self.drawn {
            out.number(lot.offset);
            out.bytes(record);
        }
        out.0
    }

    fn absorb(&mut self, partial: &[u8]) -> Result<(), MethodError> {
        let mut input = Input(partial);
        while !input.is_empty() {
            let offset = input.number()?;
            let lot = Lot { lot: lot(self.sample.seed, offset), offset };
            self.consider(lot, input.bytes()?)?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Answer, MethodError> {
        let found = |(lot, bytes): (Lot, Vec<u8>)| Found { offset: lot.offset, bytes };
        let mut found: Vec<Found> = self.drawn.into_iter().map(found).collect();
        found.sort_unstable();
        Ok(Answer::Records(found))
    }
}
