//! What is asked of the parts of a drive or client, each second.

use std::fmt;

/// Number of kinds of parts.
pub(crate) const PARTS: usize = Part::ALL.len();
/// No demand is counted higher: sums of thousands of them still fit into 63 bits, and every part that is
/// booked is far smaller.
const DEMAND_MAX: u64 = 1 << 50;

/// A part of a drive or client that can be scarce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Device time of the disk.
    Disk,
    /// The drive as a whole, by the rate that a realistic run reached.
    Whole,
    /// The rail towards it.
    RailIn,
    /// The rail away from it.
    RailOut,
    /// Time of its processors.
    Processor,
}

/// Use of each part, per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Demand {
    /// Device time of the disk in nanoseconds.
    pub device_ns: u64,
    /// Time that the bytes take at the qualified rates of the whole drive, in nanoseconds.
    pub whole_ns: u64,
    /// Bytes that it receives.
    pub in_bytes: u64,
    /// Bytes that it sends.
    pub out_bytes: u64,
    /// Time of its processors in nanoseconds.
    pub processor_ns: u64,
}

/// A demand for each kind of part, or a difference of demands.
pub(crate) type Sum = [i64; PARTS];

impl Part {
    /// All kinds, in the order in which they are named if several are scarce.
    pub const ALL: [Part; 5] = [Part::Disk, Part::Whole, Part::RailIn, Part::RailOut, Part::Processor];
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Disk => "disk",
            Part::Whole => "qualified rate",
            Part::RailIn => "rail in",
            Part::RailOut => "rail out",
            Part::Processor => "processor",
        })
    }
}

impl Demand {
    /// Nothing is asked.
    pub const ZERO: Demand = Demand { device_ns: 0, whole_ns: 0, in_bytes: 0, out_bytes: 0, processor_ns: 0 };

    /// The demand on one kind of part.
    pub fn on(&self, part: Part) -> u64 {
        match part {
            Part::Disk => self.device_ns,
            Part::Whole => self.whole_ns,
            Part::RailIn => self.in_bytes,
            Part::RailOut => self.out_bytes,
            Part::Processor => self.processor_ns,
        }
    }

    /// The sum of two demands.
    #[must_use]
    pub fn plus(&self, other: &Demand) -> Demand {
        self.each(other, u64::saturating_add)
    }

    /// The larger demand for each part.
    #[must_use]
    pub fn max(&self, other: &Demand) -> Demand {
        self.each(other, Ord::max)
    }

    /// The smaller demand for each part.
    #[must_use]
    pub fn min(&self, other: &Demand) -> Demand {
        self.each(other, Ord::min)
    }

    fn each(&self, other: &Demand, with: impl Fn(u64, u64) -> u64) -> Demand {
        Demand {
            device_ns: with(self.device_ns, other.device_ns),
            whole_ns: with(self.whole_ns, other.whole_ns),
            in_bytes: with(self.in_bytes, other.in_bytes),
            out_bytes: with(self.out_bytes, other.out_bytes),
            processor_ns: with(self.processor_ns, other.processor_ns),
        }
    }

    pub(crate) fn sum(&self) -> Sum {
        Part::ALL.map(|part| self.on(part).min(DEMAND_MAX).cast_signed())
    }

    pub(crate) fn from_sum(sum: &Sum) -> Demand {
        let [device_ns, whole_ns, in_bytes, out_bytes, processor_ns] =
            sum.map(|value| value.max(0).cast_unsigned());
        Demand { device_ns, whole_ns, in_bytes, out_bytes, processor_ns }
    }
}

/// The sum of two sums.
pub(crate) fn add(a: &Sum, b: &Sum) -> Sum {
    std::array::from_fn(|part| a[part] + b[part])
}

/// The first sum without the second.
pub(crate) fn less(a: &Sum, b: &Sum) -> Sum {
    std::array::from_fn(|part| a[part] - b[part])
}

/// The larger of each.
pub(crate) fn larger(a: &Sum, b: &Sum) -> Sum {
    std::array::from_fn(|part| a[part].max(b[part]))
}

/// For each part, the sum of its `most` greatest differences above 0.
pub(crate) fn greatest<'a>(differences: impl Iterator<Item = &'a Sum>, most: usize) -> Sum {
    let mut top = [[0_i64; PARTS]; 4];
    for difference in differences {
        for (part, &value) in difference.iter().enumerate() {
            let mut value = value;
            for row in top.iter_mut().take(most) {
                if value > row[part] {
                    std::mem::swap(&mut row[part], &mut value);
                }
            }
        }
    }
    top.iter().fold([0; PARTS], |sum, row| add(&sum, row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_demands_and_back() {
        let one = Demand { device_ns: 1, whole_ns: 2, in_bytes: 3, out_bytes: 4, processor_ns: 5 };
        assert_eq!(one.sum(), [1, 2, 3, 4, 5]);
        assert_eq!(Demand::from_sum(&one.sum()), one);
        assert_eq!(one.plus(&one).on(Part::RailOut), 8);
        assert_eq!(Demand { in_bytes: u64::MAX, ..one }.sum()[2], 1 << 50);
        assert_eq!(less(&one.sum(), &add(&one.sum(), &one.sum())), [-1, -2, -3, -4, -5]);
    }
}
