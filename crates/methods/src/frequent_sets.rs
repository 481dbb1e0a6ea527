//! `frequent-sets`: how many lines hold each of some sets of items: one pass of the apriori algorithm over
//! sales transactions, as NASD's mining run did (Gibson et al., 1998, section 5.2).
//!
//! A line is a transaction: items, which are whole numbers, with spaces between them. Without candidates
//! every item is counted by itself.

use std::collections::BTreeMap;

use crate::answer::{Answer, ItemSet};
use crate::apriori::SET_ITEMS_MAX;
use crate::arguments::{Arguments, ArgumentsError, wrong};
use crate::codec::{Input, Output};
use crate::program::{MethodError, Program, Running};
use crate::records::{Records, lines, wide};

/// Different items, or sets, at most.
const SETS_MAX: u64 = 1 << 20;
/// Items below this are counted in a table.
const TABLE_ITEMS: u32 = 65_536;
/// Candidates times bytes of lines that a drive judges between two looks at the clock.
const STEP_WORK: usize = 64 << 20;
/// Bytes of lines that a drive judges between two looks at the clock, at least.
const STEP_BYTES_LEAST: usize = 1024;

/// The method with its arguments.
#[derive(Debug)]
pub(crate) struct FrequentSets {
    /// The sets to count, by their first items; none: single items.
    candidates: Vec<Vec<u32>>,
    /// Where the candidates with a first item begin and end.
    by_first: BTreeMap<u32, std::ops::Range<usize>>,
    limit: u64,
}

struct Counting<'a> {
    method: &'a FrequentSets,
    /// Counts of the candidates, or of the items below the table's end.
    counts: Vec<u64>,
    /// Counts of other items.
    others: BTreeMap<u32, u64>,
    /// Number of different items that were seen.
    different: u64,
    lines: u64,
    bad_lines: u64,
}

impl FrequentSets {
    pub(crate) fn parse(arguments: &Arguments, _size: u64) -> Result<Box<dyn Program>, ArgumentsError> {
        arguments.check("frequent-sets", &["candidates", "limit"])?;
        let mut candidates = Vec::new();
        let text = arguments.get("candidates").unwrap_or_default();
        for set in text.split(';').filter(|set| !set.trim().is_empty()) {
            let items: Option<Vec<u32>> = set.split_whitespace().map(|item| item.parse().ok()).collect();
            let why = "give sets of whole numbers in rising order, as in '1 2;1 3'";
            let items =
                items.filter(|items| items.len() <= SET_ITEMS_MAX && items.is_sorted_by(|a, b| a < b));
            candidates.push(items.ok_or_else(|| wrong("candidates", set, why))?);
        }
        candidates.sort_unstable();
        candidates.dedup();
        let mut by_first: BTreeMap<u32, std::ops::Range<usize>> = BTreeMap::new();
        for (at, set) in candidates.iter().enumerate() {
            by_first.entry(set[0]).or_insert(at..at).end = at + 1;
        }
        let limit = arguments.number("limit", SETS_MAX, 1, SETS_MAX)?;
        Ok(Box::new(FrequentSets { candidates, by_first, limit }))
    }
}

impl Counting<'_> {
    fn count(&mut self, items: &[u32]) -> Result<(), MethodError> {
        if self.method.candidates.is_empty() {
            return items.iter().try_for_each(|&item| self.add(item, 1));
        }
        for (at, first) in items.iter().enumerate() {
            let Some(sets) = self.method.by_first.get(first) else { continue };
            for number in sets.clone() {
                if holds(&items[at..], &self.method.candidates[number]) {
                    self.counts[number] += 1;
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, item: u32, count: u64) -> Result<(), MethodError> {
        let slot = match usize::try_from(item).ok().and_then(|item| self.counts.get_mut(item)) {
            Some(slot) => slot,
            None => self.others.entry(item).or_default(),
        };
        if *slot == 0 && count > 0 && self.method.candidates.is_empty() {
            self.different += 1;
            if self.different > self.method.limit {
                return Err(MethodError::TooLarge { max: self.method.limit, of: "different items" });
            }
        }
        *slot = slot.saturating_add(count);
        Ok(())
    }

    /// The sets that were seen, by number: a candidate's, or the item itself.
    fn seen(&self) -> impl Iterator<Item = Seen> + '_ {
        let own = self.counts.iter().enumerate().map(|(number, &count)| Seen { number: wide(number), count });
        let others = self.others.iter().map(|(&item, &count)| Seen { number: u64::from(item), count });
        own.chain(others).filter(|seen| seen.count > 0)
    }
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    number: u64,
    count: u64,
}

/// Returns true if all of `set` is in `items`; both are in order.
fn holds(items: &[u32], set: &[u32]) -> bool {
    let mut items = items.iter();
    set.iter().all(|wanted| items.any(|item| item == wanted))
}

/// The items of a line, in order, each once, into `items`. Returns false if a part of it is no item.
fn items_of(line: &[u8], items: &mut Vec<u32>) -> bool {
    items.clear();
    let mut is_good = true;
    for text in line.split(u8::is_ascii_whitespace).filter(|text| !text.is_empty()) {
        let item = text.iter().try_fold(0_u32, |item, &digit| {
            let digit = digit.is_ascii_digit().then(|| u32::from(digit - b'0'))?;
            item.checked_mul(10)?.checked_add(digit)
        });
        match item {
            Some(item) => items.push(item),
            None => is_good = false,
        }
    }
    items.sort_unstable();
    items.dedup();
    is_good
}

impl Program for FrequentSets {
    fn name(&self) -> &'static str {
        "frequent-sets"
    }

    fn records(&self) -> Records {
        Records::Lines
    }

    fn begin(&self) -> Box<dyn Running + '_> {
        let sets = match self.candidates.len() {
            0 => usize::try_from(TABLE_ITEMS).expect("it is small"),
            sets => sets,
        };
        let counts = vec![0; sets];
        let others = BTreeMap::new();
        Box::new(Counting { method: self, counts, others, different: 0, lines: 0, bad_lines: 0 })
    }

    fn step_bytes(&self) -> usize {
        (STEP_WORK / self.candidates.len().max(1)).max(STEP_BYTES_LEAST)
    }
}

impl Running for Counting<'_> {
    fn feed(&mut self, _offset: u64, block: &[u8]) -> Result<(), MethodError> {
        let mut items = Vec::new();
        for line in lines(block) {
            self.lines += 1;
            if !items_of(line.bytes, &mut items) {
                self.bad_lines += 1;
            }
            self.count(&items)?;
        }
        Ok(())
    }

    fn partial(&self) -> Vec<u8> {
        let mut out = Output::default();
        out.number(self.lines);
        out.number(self.bad_lines);
        for seen in self.seen() {
            out.number(seen.number);
            out.number(seen.count);
        }
        out.0
    }

    fn absorb(&mut self, partial: &[u8]) -> Result<(), MethodError> {
        let mut input = Input(partial);
        self.lines = self.lines.saturating_add(input.number()?);
        self.bad_lines = self.bad_lines.saturating_add(input.number()?);
        while !input.is_empty() {
            let number = u32::try_from(input.number()?).map_err(|_| MethodError::Partial)?;
            let count = input.number()?;
            let is_candidate = usize::try_from(number).is_ok_and(|number| number < self.counts.len());
            if !self.method.candidates.is_empty() && !is_candidate {
                return Err(MethodError::Partial);
            }
            self.add(number, count)?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Answer, MethodError> {
        let of = |seen: Seen| {
            let number = u32::try_from(seen.number).expect("an item, or the number of a set");
            let set = usize::try_from(number).ok().and_then(|number| self.method.candidates.get(number));
            ItemSet { items: set.cloned().unwrap_or_else(|| vec![number]), count: seen.count }
        };
        let sets = self.seen().map(of).collect();
        Ok(Answer::Sets { sets, lines: self.lines, bad_lines: self.bad_lines })
    }
}
