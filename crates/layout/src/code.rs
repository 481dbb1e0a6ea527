//! Parity and erasure codes: parity from data, lost units from any `k` others, parity from a change of data.
//!
//! A code is linear and works on each byte position of a stripe by itself: parity unit `i` is the sum over
//! the data units `j` of `coefficient(i, j) * data[j]` in GF(2^8), polynomial 0x11d, where sum means XOR.
//! Hence
//! - a unit may be passed short: missing bytes count as zeros (the tail of a file, or a hole);
//! - a change of data changes parity by `coefficient * (old xor new)`, in any order, at any sub-range of the
//!   unit.
//!
//! | scheme | coefficients |
//! |---|---|
//! | raid0 | there is no parity |
//! | raid1, raid4, raid5 | all ones: a copy, or XOR |
//! | rs | a Cauchy matrix whose first row and column are scaled to ones (numbers: tests/golden/code.txt) |
//!
//! The bytes are the same on every processor; [`Kernel`] only affects the speed. The code knows no unit
//! sizes, columns or versions: callers pass roles and slices.

mod combine;
mod field;
mod kernel;
#[cfg(target_arch = "x86_64")]
mod kernel_x86;
mod matrix;

pub use kernel::Kernel;

use crate::scheme::Redundancy;
use crate::{Role, Shape};
use combine::{Input, combine};
use field::mul;
use kernel::Start;
use matrix::{COEFFICIENTS, Coefficients, Small, invert};

/// The code of one shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    shape: Shape,
    kernel: Kernel,
}

/// Reason that lost units were not reconstructed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// Fewer than `k` units are available. Nothing was written to the lost ones.
    #[error(
        "{there} units of {shape} are there, {missing} fewer than the {needed} that are needed to reconstruct another"
    )]
    TooFew {
        /// Shape of the stripe.
        shape: Shape,
        /// Number of units that are available.
        there: usize,
        /// Number of units that are needed: `k`.
        needed: u8,
        /// Number of units that are lacking: `needed - there`.
        missing: usize,
    },
    /// A role that no column of this shape has.
    #[error("{role:?} is not a role of {shape}")]
    NoSuchRole {
        /// Role that the shape does not have.
        role: Role,
        /// Shape of the stripe.
        shape: Shape,
    },
    /// A role given twice, or both as available and as lost.
    #[error("{role:?} was given twice")]
    Twice {
        /// Role that was given twice.
        role: Role,
    },
}

impl Code {
    /// The code of `shape`, using this processor's best instructions.
    pub fn new(shape: Shape) -> Code {
        Code::with_kernel(shape, Kernel::best())
    }

    /// The code of `shape`, using a kernel of the caller's choice: for tests and benchmarks.
    pub fn with_kernel(shape: Shape, kernel: Kernel) -> Code {
        Code { shape, kernel }
    }

    /// The shape that the code was made for.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The factor of data unit `data` in parity unit `parity`. Never zero.
    pub fn coefficient(&self, parity: u8, data: u8) -> u8 {
        assert!(parity < self.shape.m(), "parity {parity} is not a parity unit of {}", self.shape);
        assert!(data < self.shape.k(), "data {data} is not a data unit of {}", self.shape);
        match self.shape.scheme().redundancy() {
            Redundancy::ReedSolomon => COEFFICIENTS[usize::from(parity)][usize::from(data)],
            Redundancy::None | Redundancy::Copies | Redundancy::Xor => 1,
        }
    }

    /// Computes the parity units of a stripe from its data units.
    ///
    /// `data` holds the `k` data units in order, each possibly short (even empty): missing bytes count as
    /// zeros. `parity` holds the `m` parity units in order, all of one length, at least the longest data
    /// unit's. Their old content does not matter.
    ///
    /// Panics if the counts or lengths are wrong.
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        assert_eq!(data.len(), usize::from(self.shape.k()), "data units of {}", self.shape);
        assert_eq!(parity.len(), usize::from(self.shape.m()), "parity units of {}", self.shape);
        let Some(length) = parity.first().map(|unit| unit.len()) else { return };
        assert!(parity.iter().all(|unit| unit.len() == length), "parity units have one length");
        assert!(
            data.iter().all(|unit| unit.len() <= length),
            "a data unit is longer than the {length} bytes of parity"
        );
        let inputs: Vec<Input<'_>> = (0..self.shape.k())
            .zip(data)
            .map(|(index, bytes)| Input { bytes, coefficients: self.coefficients(index) })
            .collect();
        combine(self.kernel, &inputs, parity, Start::Fresh);
    }

    /// Adds `coefficient * bytes` to the beginning of a parity unit, or of the part of it that the caller
    /// passes.
    ///
    /// With the new bytes of each data unit this builds parity from zeros, one unit at a time. With a delta,
    /// old bytes xor new bytes, it updates parity: pass the parity's bytes at the delta's position in its
    /// unit. Deltas commute. Adding the same bytes a second time removes them.
    ///
    /// Panics if a role is out of range or `bytes` is longer than `parity`.
    pub fn add(&self, data_index: u8, bytes: &[u8], parity_index: u8, parity: &mut [u8]) {
        assert!(
            bytes.len() <= parity.len(),
            "{} bytes do not fit in {} of parity",
            bytes.len(),
            parity.len()
        );
        let coefficient = self.coefficient(parity_index, data_index);
        let mut output: [&mut [u8]; 1] = [&mut parity[..bytes.len()]];
        self.kernel.sum(&[[coefficient]], &[bytes], &mut output, Start::Onto);
    }

    /// Reconstructs lost units of a stripe from any `k` or more others.
    ///
    /// `have` and `lost` name units by role, in any order, no role twice. If a unit in `have` is shorter than
    /// a lost one, its missing bytes count as zeros; if it is longer, the rest is ignored. Roles in neither
    /// list count as missing and are not reconstructed. The old content of `lost` does not matter; after an
    /// error it is unchanged.
    pub fn reconstruct(
        &self,
        have: &[(Role, &[u8])],
        lost: &mut [(Role, &mut [u8])],
    ) -> Result<(), CodeError> {
        let units = self.sort(have, lost)?;
        let inputs = self.recipe(&units, lost);
        let mut outputs: Vec<&mut [u8]> = lost.iter_mut().map(|(_, bytes)| &mut **bytes).collect();
        combine(self.kernel, &inputs, &mut outputs, Start::Fresh);
        Ok(())
    }

    /// Checks the roles, and sorts the available units by role.
    fn sort<'a>(
        &self,
        have: &[(Role, &'a [u8])],
        lost: &[(Role, &mut [u8])],
    ) -> Result<Units<'a>, CodeError> {
        let k = usize::from(self.shape.k());
        let m = usize::from(self.shape.m());
        let mut units = Units { data: vec![None; k], parity: vec![None; m] };
        let mut seen = (vec![false; k], vec![false; m]);
        for (role, bytes) in have
            .iter()
            .map(|(role, bytes)| (*role, Some(*bytes)))
            .chain(lost.iter().map(|(role, _)| (*role, None)))
        {
            let (seen, units, index) = match role {
                Role::Data(index) => (&mut seen.0, &mut units.data, usize::from(index)),
                Role::Parity(index) => (&mut seen.1, &mut units.parity, usize::from(index)),
            };
            match seen.get_mut(index) {
                None => return Err(CodeError::NoSuchRole { role, shape: self.shape }),
                Some(true) => return Err(CodeError::Twice { role }),
                Some(seen) => *seen = true,
            }
            units[index] = bytes;
        }
        if have.len() < k && !lost.is_empty() {
            let there = have.len();
            let needed = self.shape.k();
            return Err(CodeError::TooFew { shape: self.shape, there, needed, missing: k - there });
        }
        Ok(units)
    }

    /// The units to read, and the factor of each in each lost unit: all available data, and for each missing
    /// data unit one parity unit, the lowest first (for rs the first is XOR).
    ///
    /// With `A` the used parity rows' coefficients of the missing data, and `B` those of the available data:
    /// parity = A missing + B available, so missing = A^-1 parity + A^-1 B available. A lost parity unit is
    /// its own row over both.
    fn recipe<'a>(&self, units: &Units<'a>, lost: &[(Role, &mut [u8])]) -> Vec<Input<'a>> {
        let missing: Vec<u8> =
            (0..).zip(&units.data).filter(|(_, unit)| unit.is_none()).map(|(j, _)| j).collect();
        let rows: Vec<(u8, &'a [u8])> = (0..)
            .zip(&units.parity)
            .filter_map(|(i, unit)| Some((i, (*unit)?)))
            .take(missing.len())
            .collect();
        let inverted = self.solve(&rows, &missing);

        // The share of a parity row (by its index in `rows`), or of available data, in a missing data unit.
        let from_row = |index: usize, row: usize| inverted[index][row];
        let from_data = |index: usize, data: u8| {
            rows.iter()
                .enumerate()
                .fold(0, |sum, (row, (i, _))| sum ^ mul(from_row(index, row), self.coefficient(*i, data)))
        };
        // The same for a lost unit of either kind. `own` is the direct share in a lost parity unit.
        let to_lost = |role: Role, own: &dyn Fn(u8) -> u8, to_missing: &dyn Fn(usize) -> u8| match role {
            Role::Data(lost) => {
                to_missing(missing.iter().position(|j| *j == lost).expect("lost data is missing"))
            }
            Role::Parity(lost) => missing
                .iter()
                .enumerate()
                .fold(own(lost), |sum, (index, j)| sum ^ mul(self.coefficient(lost, *j), to_missing(index))),
        };

        let mut inputs = Vec::with_capacity(units.data.len());
        for (data, bytes) in (0..).zip(&units.data) {
            let Some(bytes) = bytes else { continue };
            let mut coefficients = Coefficients::default();
            for (coefficient, (role, _)) in coefficients.iter_mut().zip(lost) {
                *coefficient =
                    to_lost(*role, &|i| self.coefficient(i, data), &|index| from_data(index, data));
            }
            inputs.push(Input { bytes, coefficients });
        }
        for (row, (_, bytes)) in rows.iter().enumerate() {
            let mut coefficients = Coefficients::default();
            for (coefficient, (role, _)) in coefficients.iter_mut().zip(lost) {
                *coefficient = to_lost(*role, &|_| 0, &|index| from_row(index, row));
            }
            inputs.push(Input { bytes, coefficients });
        }
        inputs
    }

    /// The inverse of the rows' coefficients of the missing data units.
    fn solve(&self, rows: &[(u8, &[u8])], missing: &[u8]) -> Small {
        let mut matrix = Small::default();
        for (line, (i, _)) in matrix.iter_mut().zip(rows) {
            for (cell, j) in line.iter_mut().zip(missing) {
                *cell = self.coefficient(*i, *j);
            }
        }
        invert(matrix, rows.len())
    }

    /// The coefficients of a data unit, one per parity unit.
    fn coefficients(&self, data: u8) -> Coefficients {
        let mut coefficients = Coefficients::default();
        for (parity, coefficient) in (0..self.shape.m()).zip(&mut coefficients) {
            *coefficient = self.coefficient(parity, data);
        }
        coefficients
    }
}

/// The available units, by role.
struct Units<'a> {
    data: Vec<Option<&'a [u8]>>,
    parity: Vec<Option<&'a [u8]>>,
}

/// `a ^= b`, for the first `b.len()` bytes of `a`: makes a delta of old and new bytes, or applies one to XOR
/// parity.
///
/// Panics if `b` is longer than `a`.
pub fn xor_into(a: &mut [u8], b: &[u8]) {
    assert!(b.len() <= a.len(), "{} bytes do not fit in {}", b.len(), a.len());
    Kernel::best().xor(&[b], &mut a[..b.len()], Start::Onto);
}
