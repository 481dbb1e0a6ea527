//! A link: frames on a medium that all share, or through a switch.

use serde::{Deserialize, Serialize};

use crate::number::whole;
use crate::units::{Bytes, Rate, Span};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkModel {
    /// Hosts that share the link.
    pub medium: Medium,
    /// Rate of the link, frames' overhead included; of a switch each port, each way.
    pub rate: Rate,
    /// Rate of a port of a client's host, if it differs; only for a switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_rate: Option<Rate>,
    /// Bytes that an idle port of a switch lets through at once: the token bucket of a rate limit (RFC
    /// 2697, section 3, has one as the committed burst size). Absent: a wire, which has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<Bytes>,
    /// Time from the last bit sent to the first bit received: token or switch, wire, interrupts.
    #[serde(default)]
    pub latency: Span,
    /// Most bytes of messages in a frame.
    #[serde(default = "payload")]
    pub payload: Bytes,
    /// Bytes on the wire that each frame adds.
    #[serde(default)]
    pub overhead: Bytes,
    /// Bytes of a burst: a longer message goes in several, and other messages may come between them.
    #[serde(default = "burst")]
    pub burst: Bytes,
    /// Most bytes that wait at a switch's port; a burst that does not fit is lost, and sent again after
    /// `resend`. Absent: no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Bytes>,
    /// Time after which a lost burst is sent again.
    #[serde(default = "resend")]
    pub resend: Span,
}

/// The sharing of a link among hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Medium {
    /// All hosts share one link: a token ring, a bus. A multicast is sent once.
    Shared,
    /// Each host has a port of its own, with both directions.
    Switch,
}

fn payload() -> Bytes {
    Bytes(1448)
}

fn burst() -> Bytes {
    Bytes(64 << 10)
}

fn resend() -> Span {
    Span(10_000_000)
}

impl LinkModel {
    /// Bytes on the wire for this many bytes of a message.
    pub fn on_the_wire(&self, bytes: u64) -> u64 {
        bytes + bytes.div_ceil(self.payload.0).max(1) * self.overhead.0
    }

    /// Share of the rate that carries bytes of long messages.
    pub fn efficiency(&self) -> f64 {
        crate::number::real(self.payload.0) / crate::number::real(self.payload.0 + self.overhead.0)
    }

    /// Time that bytes of a message take at a port of a client or of a drive's host, in nanoseconds.
    pub(crate) fn time(&self, bytes: u64, of_client: bool) -> u64 {
        self.time_on_wire(self.on_the_wire(bytes), of_client)
    }

    /// Time that bytes take which include their frames' overhead, in nanoseconds.
    pub(crate) fn time_on_wire(&self, bytes: u64, of_client: bool) -> u64 {
        let rate = self.client_rate.filter(|_| of_client).unwrap_or(self.rate);
        whole(rate.time(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_costs_its_overhead() {
        let link = LinkModel {
            medium: Medium::Switch,
            rate: Rate(1e9),
            client_rate: Some(Rate(2e9)),
            bucket: None,
            latency: Span(0),
            payload: Bytes(1000),
            overhead: Bytes(50),
            burst: burst(),
            queue: None,
            resend: resend(),
        };
        assert_eq!([0, 1, 1000, 1001].map(|bytes| link.on_the_wire(bytes)), [50, 51, 1050, 1101]);
        assert_eq!((link.time(1000, false), link.time(1000, true)), (1050, 525));
    }
}
