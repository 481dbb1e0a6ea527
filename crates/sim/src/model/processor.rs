//! The model of a host's processor: instructions for packets and bytes, and rates of parity and checksums.

use serde::{Deserialize, Serialize};

use crate::number::{SECOND, real, whole};
use crate::units::{Bytes, Rate};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessorModel {
    /// Million instructions a second of one core.
    pub mips: f64,
    #[serde(default = "one")]
    pub cores: u32,
    /// Instructions for a message, sent or received, in addition to its packets.
    #[serde(default)]
    pub per_message: f64,
    /// Instructions for a packet, sent or received (Swift, section 5.1: 1500).
    #[serde(default)]
    pub per_packet: f64,
    /// Instructions for a byte, sent or received (Swift, section 5.1: 1, for the copy).
    #[serde(default)]
    pub per_byte: f64,
    /// Most bytes of a packet, for which `per_packet` is paid once; more than a frame with segmentation
    /// offload.
    #[serde(default = "packet")]
    pub packet: Bytes,
    /// Rate at which one core makes parity: bytes of data a second for each parity unit. Absent: at no
    /// cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parity: Option<Rate>,
    /// Rate at which one core makes or verifies checksums, in bytes a second. A client checks data that it
    /// sends or receives, a drive data that it stores. Absent: at no cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Rate>,
}

fn one() -> u32 {
    1
}

fn packet() -> Bytes {
    Bytes(64 << 10)
}

impl ProcessorModel {
    /// Time for a part of a message, in nanoseconds. The `first` part includes the message's own cost.
    pub fn time(&self, bytes: u64, first: bool) -> f64 {
        let packets = real(bytes.div_ceil(self.packet.0).max(1));
        let message = if first { self.per_message } else { 0.0 };
        (message + packets * self.per_packet + real(bytes) * self.per_byte) / self.mips * (SECOND / 1e6)
    }

    /// Time of arithmetic on this many bytes of operands, in nanoseconds.
    pub fn parity_time(&self, bytes: u64) -> f64 {
        self.parity.map_or(0.0, |rate| rate.time(bytes))
    }

    /// Time of checksums of this many bytes, in nanoseconds.
    pub fn checksum_time(&self, bytes: u64) -> f64 {
        self.checksum.map_or(0.0, |rate| rate.time(bytes))
    }

    /// Time for a part of a message and the checksums of `summed` bytes, in whole nanoseconds.
    pub(crate) fn time_ns(&self, bytes: u64, first: bool, summed: u64) -> u64 {
        whole(self.time(bytes, first) + self.checksum_time(summed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Preset;

    #[test]
    fn a_packet_of_swifts_hosts() {
        // 1500 instructions and one for each byte, at 100 million a second.
        let host = ProcessorModel::preset("swift-1991").expect("it is listed");
        assert_eq!(host.time_ns(32 << 10, true, 0), 342_680);
        assert_eq!(host.time_ns(64, true, 0), 15_640);
    }
}
