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

/// The method with its arguments.
#[derive(Debug)]
pub(crate) struct Sample {
    records: Records,
    count: usize,
    seed: u64,
    /// Bytes of all records that are drawn, at most.
    bytes_max: u64,
}

/// The records with the least lots so far.
struct Drawing<'a> {
    sample: &'a Sample,
    drawn: BTreeMap<Lot, Vec<u8>>,
    bytes: u64,
    /// The least lot that was given up as all up to it have too many bytes. Those above it do not count.
    given_up: Option<Lot>,
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
        Ok(Box::new(Sample { records: records_of(arguments)?, count, seed, bytes_max: BYTES_MAX }))
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
    fn consider(&mut self, lot: Lot, record: &[u8]) {
        let last = self.drawn.last_key_value().map(|(last, _)| *last);
        let is_full = self.drawn.len() == self.sample.count && last.is_some_and(|last| last < lot);
        if is_full || self.given_up.is_some_and(|least| least <= lot) {
            return;
        }
        self.bytes += wide(record.len());
        if let Some(replaced) = self.drawn.insert(lot, record.to_vec()) {
            self.bytes -= wide(replaced.len());
        }
        while self.drawn.len() > self.sample.count || self.bytes > self.sample.bytes_max {
            let is_too_long = self.drawn.len() <= self.sample.count;
            let Some((last, dropped)) = self.drawn.pop_last() else { break };
            self.bytes -= wide(dropped.len());
            if is_too_long {
                self.given_up = Some(last);
            }
        }
    }

    /// Gives up this lot, and those above it.
    fn give_up(&mut self, lot: Lot) {
        self.given_up = Some(self.given_up.map_or(lot, |least| least.min(lot)));
        while let Some(last) = self.drawn.last_entry().filter(|last| *last.key() >= lot) {
            self.bytes -= wide(last.remove().len());
        }
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
        Box::new(Drawing { sample: self, drawn: BTreeMap::new(), bytes: 0, given_up: None })
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
            Records::Lines => lines(block).for_each(|line| self.consider(of(line.at), line.bytes)),
            Records::Fixed(bytes) => {
                let bytes = usize::try_from(bytes).expect("a record fits memory");
                let records = block.chunks(bytes).enumerate();
                records.for_each(|(number, record)| self.consider(of(number * bytes), record));
            }
        }
        Ok(())
    }

    fn partial(&self) -> Vec<u8> {
        let mut out = Output::default();
        out.number(self.given_up.map_or(0, |lot| lot.offset.saturating_add(1)));
        for (lot, record) in &self.drawn {
            out.number(lot.offset);
            out.bytes(record);
        }
        out.0
    }

    fn absorb(&mut self, partial: &[u8]) -> Result<(), MethodError> {
        let mut input = Input(partial);
        let seed = self.sample.seed;
        let of = |offset: u64| Lot { lot: lot(seed, offset), offset };
        if let Some(offset) = input.number()?.checked_sub(1) {
            self.give_up(of(offset));
        }
        while !input.is_empty() {
            let offset = input.number()?;
            self.consider(of(offset), input.bytes()?);
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Answer, MethodError> {
        // With as many as were asked for, what was given up is not among them.
        if self.given_up.is_some() && self.drawn.len() < self.sample.count {
            return Err(MethodError::TooLarge { max: self.sample.bytes_max, of: "bytes" });
        }
        let found = |(lot, bytes): (Lot, Vec<u8>)| Found { offset: lot.offset, bytes };
        let mut found: Vec<Found> = self.drawn.into_iter().map(found).collect();
        found.sort_unstable();
        Ok(Answer::Records(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws from records of 10 bytes, fed one by one in this order, or in two parts that are merged.
    fn drawn(count: usize, bytes_max: u64, order: &[u64], parts: usize) -> Result<Answer, MethodError> {
        let sample = Sample { records: Records::Fixed(10), count, seed: 1, bytes_max };
        let mut whole = sample.begin();
        for part in order.chunks(order.len().div_ceil(parts)) {
            let mut running = sample.begin();
            part.iter().try_for_each(|&record| running.feed(record * 10, &[7; 10]))?;
            whole.absorb(&running.partial())?;
        }
        whole.finish()
    }

    #[test]
    fn the_bound_is_on_what_is_drawn_in_the_end_in_whatever_order_it_comes() {
        let rising: Vec<u64> = (0..100).collect();
        let falling: Vec<u64> = (0..100).rev().collect();
        let all = drawn(5, 1000, &rising, 1).expect("it fits");
        for order in [&rising, &falling] {
            for parts in [1, 2, 7] {
                assert_eq!(drawn(5, 50, order, parts), Ok(all.clone()), "{parts} parts");
                let refused = Err(MethodError::TooLarge { max: 49, of: "bytes" });
                assert_eq!(drawn(5, 49, order, parts), refused, "{parts} parts");
            }
        }
    }
}
