//! The model of a disk: positioning, then transfer.

use serde::{Deserialize, Serialize};

use super::Distribution;
use crate::number::whole;
use crate::random::Stream;
use crate::units::{Rate, Span};

/// Times of one disk. A transfer costs seek, rotation and the bytes at the direction's rate (Swift, section
/// 5.1). The store decides which transfers need positioning ([`super::StoreModel`]).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskModel {
    /// Time to move the head; on a disk without one the time from command to first byte.
    pub seek: Distribution,
    /// Time to wait for the sector.
    #[serde(default = "zero")]
    pub rotation: Distribution,
    /// Positioning time of writes, seek and rotation in one. Absent: as for reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_seek: Option<Distribution>,
    /// Rate of transfers from the medium.
    pub read_rate: Rate,
    /// Rate of transfers to the medium.
    pub write_rate: Rate,
    /// Number of commands that position at the same time; their transfers share the rate. 1: a disk with
    /// one head.
    #[serde(default = "one")]
    pub lanes: u32,
    /// Most commands that wait; one more is refused, and handed in again after `retry`. Absent: no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u32>,
    /// Time after which a refused command is tried again.
    #[serde(default = "retry")]
    pub retry: Span,
}

fn zero() -> Distribution {
    Distribution::ZERO
}

fn one() -> u32 {
    1
}

fn retry() -> Span {
    Span(1_000_000)
}

impl DiskModel {
    /// Mean time to position, in nanoseconds.
    pub fn positioning(&self, write: bool) -> f64 {
        match (&self.write_seek, write) {
            (Some(seek), true) => seek.mean(),
            _ => self.seek.mean() + self.rotation.mean(),
        }
    }

    /// Returns true if times to position vary.
    pub(crate) fn is_random(&self) -> bool {
        let differ = |time: &Distribution| time.variance() > 0.0;
        differ(&self.seek) || differ(&self.rotation) || self.write_seek.as_ref().is_some_and(differ)
    }

    /// Time to transfer, in nanoseconds.
    pub fn transfer(&self, write: bool, bytes: u64) -> f64 {
        if write { self.write_rate.time(bytes) } else { self.read_rate.time(bytes) }
    }

    /// Mean time of one transfer that positions first, in milliseconds.
    pub fn access_ms(&self, write: bool, bytes: u64) -> f64 {
        (self.positioning(write) + self.transfer(write, bytes)) / 1e6
    }

    /// Draws a time to position.
    pub(crate) fn draw_positioning(&self, write: bool, stream: &mut Stream) -> u64 {
        match (&self.write_seek, write) {
            (Some(seek), true) => seek.draw(stream),
            _ => self.seek.draw(stream) + self.rotation.draw(stream),
        }
    }

    /// Time to transfer, in whole nanoseconds.
    pub(crate) fn transfer_ns(&self, write: bool, bytes: u64) -> u64 {
        whole(self.transfer(write, bytes))
    }
}
