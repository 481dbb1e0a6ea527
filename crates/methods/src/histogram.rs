//! `histogram`: how the lengths of lines, or the numbers in a field of theirs, are spread.

use crate::answer::{Answer, Bin};
use crate::arguments::{Arguments, ArgumentsError, wrong};
use crate::codec::{Input, Output};
use crate::program::{MethodError, Program, Running};
use crate::records::{Records, lines, wide};

/// Bins at most.
const BINS_MAX: u64 = 10_000;

/// The method with its arguments.
#[derive(Debug)]
pub(crate) struct Histogram {
    /// The field whose number counts, from 0; `None`: the line's length does.
    field: Option<usize>,
    delimiter: u8,
    from: i64,
    to: i64,
    bins: usize,
}

struct Spreading<'a> {
    histogram: &'a Histogram,
    bins: Vec<u64>,
    below: u64,
    above: u64,
    without: u64,
}

impl Histogram {
    pub(crate) fn parse(arguments: &Arguments, _size: u64) -> Result<Box<dyn Program>, ArgumentsError> {
        arguments.check("histogram", &["of", "field", "delimiter", "from", "to", "bins"])?;
        let field = match arguments.get("of") {
            None | Some("length") => None,
            Some("field") => {
                arguments.need("histogram", "field")?;
                Some(usize::try_from(arguments.number("field", 1, 1, 10_000)? - 1).expect("it is small"))
            }
            Some(value) => return Err(wrong("of", value, "give length or field")),
        };
        let delimiter = delimiter_of(arguments)?;
        let signed = |name: &'static str, default: i64| {
            let Some(value) = arguments.get(name) else { return Ok(default) };
            value.parse().map_err(|_| wrong(name, value, "give a whole number"))
        };
        let from = signed("from", 0)?;
        let to = signed("to", 1000)?;
        if to.checked_sub(from).is_none_or(|width| width <= 0) {
            return Err(wrong("to", &to.to_string(), format!("give a number above from={from}")));
        }
        let bins = arguments.number("bins", 10, 1, BINS_MAX)?;
        let bins = usize::try_from(bins.min(to.abs_diff(from))).expect("it is small");
        Ok(Box::new(Histogram { field, delimiter, from, to, bins }))
    }

    /// First value of a bin.
    fn begin_of(&self, bin: usize) -> i64 {
        let width = i128::from(self.to) - i128::from(self.from);
        let bins = i128::try_from(self.bins).expect("it is small");
        let bin = i128::try_from(bin).expect("it is small");
        // Rounded up, as a value's bin is rounded down.
        let at = i128::from(self.from) + (width * bin + bins - 1).div_euclid(bins);
        i64::try_from(at).expect("it lies between two that are")
    }

    /// The bin of a value that has one.
    fn bin_of(&self, value: i64) -> usize {
        let width = i128::from(self.to) - i128::from(self.from);
        let bins = i128::try_from(self.bins).expect("it is small");
        let bin = (i128::from(value) - i128::from(self.from)) * bins / width;
        usize::try_from(bin).expect("the value is in the range")
    }

    fn value(&self, line: &[u8]) -> Option<i64> {
        let Some(field) = self.field else { return i64::try_from(line.len()).ok() };
        let text = line.split(|&byte| byte == self.delimiter).nth(field)?;
        number(text.trim_ascii())
    }
}

/// The one character of the argument `delimiter`, or a comma.
pub(crate) fn delimiter_of(arguments: &Arguments) -> Result<u8, ArgumentsError> {
    match arguments.get("delimiter").map(str::as_bytes) {
        None => Ok(b','),
        Some(b"tab") => Ok(b'\t'),
        Some(&[one]) if one.is_ascii() && !matches!(one, b'\n' | b'"') => Ok(one),
        Some(value) => {
            let value = String::from_utf8_lossy(value).into_owned();
            Err(wrong("delimiter", &value, "give one ASCII character, or tab"))
        }
    }
}

/// A number, without what is behind its point.
fn number(text: &[u8]) -> Option<i64> {
    let text = str::from_utf8(text).ok()?;
    if let Ok(whole) = text.parse() {
        return Some(whole);
    }
    let value: f64 = text.parse().ok()?;
    let floor = value.floor();
    // Beyond this the numbers of either kind do not fit each other.
    #[expect(clippy::cast_possible_truncation, reason = "checked against the range of i64")]
    (floor.abs() < 9e18).then_some(floor as i64)
}

impl Program for Histogram {
    fn name(&self) -> &'static str {
        "histogram"
    }

    fn records(&self) -> Records {
        Records::Lines
    }

    fn begin(&self) -> Box<dyn Running + '_> {
        Box::new(Spreading { histogram: self, bins: vec![0; self.bins], below: 0, above: 0, without: 0 })
    }
}

impl Running for Spreading<'_> {
    fn feed(&mut self, _offset: u64, block: &[u8]) -> Result<(), MethodError> {
        let histogram = self.histogram;
        for line in lines(block) {
            match histogram.value(line.bytes) {
                None => self.without += 1,
                Some(value) if value < histogram.from => self.below += 1,
                Some(value) if value >= histogram.to => self.above += 1,
                Some(value) => self.bins[histogram.bin_of(value)] += 1,
            }
        }
        Ok(())
    }

    fn partial(&self) -> Vec<u8> {
        let mut out = Output::default();
        [self.below, self.above, self.without].into_iter().for_each(|number| out.number(number));
        for (bin, &count) in self.bins.iter().enumerate().filter(|(_, count)| **count > 0) {
            out.number(wide(bin));
            out.number(count);
        }
        out.0
    }

    fn absorb(&mut self, partial: &[u8]) -> Result<(), MethodError> {
        let mut input = Input(partial);
        for own in [&mut self.below, &mut self.above, &mut self.without] {
            *own = own.saturating_add(input.number()?);
        }
        while !input.is_empty() {
            let bin = usize::try_from(input.number()?).map_err(|_| MethodError::Partial)?;
            let own = self.bins.get_mut(bin).ok_or(MethodError::Partial)?;
            *own = own.saturating_add(input.number()?);
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Answer, MethodError> {
        let of = |(bin, &count): (usize, &u64)| Bin {
            from: self.histogram.begin_of(bin),
            to: self.histogram.begin_of(bin + 1),
            count,
        };
        let bins = self.bins.iter().enumerate().map(of).collect();
        Ok(Answer::Histogram { bins, below: self.below, above: self.above, without: self.without })
    }
}
