//! The longest datagram that the path carries (RFC 8899): found by probes, which are sent again as something
//! shorter if they are lost, and never delay data.

use crate::SECOND;

/// The length that every path carries: the handshake has shown it.
pub(crate) const BASE_BYTES: u16 = 1200;
/// Probes of one length that must be lost before it counts as too long.
const PROBES_MAX: u8 = 3;
/// Losses of datagrams of a length in a row, without one as long that arrives, after which the path counts as
/// too short for it.
const LOSSES_MAX: u8 = 4;
/// The search ends when fewer bytes than this are left to gain.
const STEP_BYTES: u16 = 20;
/// Lengths that many paths carry, longest first: the payloads of Ethernet with jumbo frames and without, less
/// the headers of IPv4 and UDP.
const COMMON: [u16; 2] = [8972, 1472];
/// Pause before a path that carries less than it might is searched again.
const AGAIN_NS: u64 = 60 * SECOND;

/// The search for one path.
#[derive(Debug, Clone)]
pub(crate) struct Mtu {
    /// The longest datagram that has arrived.
    current: u16,
    /// The longest that may still be found to arrive.
    upper: u16,
    /// The longest that both sides take.
    most: u16,
    /// Length of the probe on its way.
    probe: Option<u16>,
    lost: u8,
    /// The shortest of those that were lost since one as long has arrived, and how often some were.
    suspect: Option<(u16, u8)>,
    /// The end of the search; a new one begins [`AGAIN_NS`] later.
    ended_ns: Option<u64>,
}

impl Mtu {
    pub(crate) fn new(most: u16) -> Mtu {
        let most = most.max(BASE_BYTES);
        Mtu { current: BASE_BYTES, upper: most, most, probe: None, lost: 0, suspect: None, ended_ns: None }
    }

    /// Length of the datagrams to send.
    pub(crate) fn current(&self) -> u16 {
        self.current
    }

    /// The longest datagram that both sides take.
    pub(crate) fn most(&self) -> u16 {
        self.most
    }

    /// The length of the next probe, if one is due. The longest is tried first: most paths carry it, or what
    /// Ethernet carries.
    pub(crate) fn next_probe(&mut self, now_ns: u64) -> Option<u16> {
        if self.ended_ns.is_some_and(|ended| now_ns >= ended + AGAIN_NS) && self.current < self.most {
            (self.upper, self.ended_ns, self.lost) = (self.most, None, 0);
        }
        if self.probe.is_some() || self.ended_ns.is_some() {
            return None;
        }
        if self.upper - self.current < STEP_BYTES {
            self.ended_ns = Some(now_ns);
            return None;
        }
        if self.upper == self.most {
            return Some(self.most);
        }
        let common =
            COMMON.into_iter().find(|bytes| self.current < *bytes && self.upper > bytes + STEP_BYTES);
        Some(common.unwrap_or_else(|| self.current + (self.upper - self.current).div_ceil(2)))
    }

    pub(crate) fn on_probe_sent(&mut self, bytes: u16) {
        self.probe = Some(bytes);
    }

    /// Returns true if datagrams may be longer from now on.
    pub(crate) fn on_probe_acked(&mut self, bytes: u16) -> bool {
        (self.probe, self.lost) = (None, 0);
        let grows = bytes > self.current && bytes <= self.most;
        if grows {
            self.current = bytes;
            // It may have counted as lost before.
            self.upper = self.upper.max(bytes);
        }
        grows
    }

    pub(crate) fn on_probe_lost(&mut self, bytes: u16) {
        self.probe = None;
        self.lost += 1;
        if self.lost >= PROBES_MAX {
            self.upper = (bytes - 1).max(self.current);
            self.lost = 0;
        }
    }

    /// A datagram of data has arrived.
    pub(crate) fn on_arrived(&mut self, bytes: u64) {
        self.suspect.take_if(|(suspect, _)| bytes >= u64::from(*suspect));
    }

    /// Datagrams of data were lost; the shortest had this length. Returns true if the path may not carry such
    /// any more, though what is short arrives.
    pub(crate) fn on_lost(&mut self, bytes: u64) -> bool {
        let Some(bytes) = u16::try_from(bytes).ok().filter(|bytes| *bytes > BASE_BYTES) else { return false };
        let (suspect, losses) = self.suspect.get_or_insert((bytes, 0));
        *suspect = bytes.min(*suspect);
        *losses += 1;
        *losses >= LOSSES_MAX
    }

    /// Nothing arrives any more: the path may carry only shorter datagrams than before. Returns true if
    /// datagrams are shorter from now on.
    pub(crate) fn on_black_hole(&mut self, now_ns: u64) -> bool {
        let shrinks = self.current > BASE_BYTES;
        if shrinks {
            *self = Mtu { ended_ns: Some(now_ns), ..Mtu::new(self.most) };
        }
        shrinks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(most: u16, path: u16) -> Mtu {
        let mut mtu = Mtu::new(most);
        let mut probes = 0;
        while let Some(bytes) = mtu.next_probe(0) {
            mtu.on_probe_sent(bytes);
            assert_eq!(mtu.next_probe(0), None, "one probe at a time");
            if bytes <= path {
                _ = mtu.on_probe_acked(bytes)
            } else {
                mtu.on_probe_lost(bytes)
            }
            probes += 1;
            assert!(probes < 60, "the search ends");
        }
        mtu
    }

    #[test]
    fn the_search_finds_what_the_path_carries() {
        for (most, path) in
            [(1200, 1200), (1472, 1472), (8972, 8972), (8972, 1472), (8972, 4000), (65_507, 1300)]
        {
            let found = search(most, path).current();
            assert!(found <= path && found + STEP_BYTES >= path.min(most), "{found} of {path}");
        }
    }

    #[test]
    fn a_probe_that_was_only_late_counts() {
        let mut mtu = Mtu::new(8972);
        (0..PROBES_MAX).for_each(|_| mtu.on_probe_lost(8972));
        assert!(mtu.on_probe_acked(8972));
        assert_eq!((mtu.current(), mtu.next_probe(0)), (8972, None));
    }

    #[test]
    fn long_datagrams_that_are_lost_while_short_ones_arrive_show_a_black_hole() {
        let mut mtu = search(8972, 8972);
        for _ in 1..LOSSES_MAX {
            assert!(!mtu.on_lost(8972));
            mtu.on_arrived(100);
            assert!(!mtu.on_lost(1200), "short ones say nothing");
        }
        mtu.on_arrived(8972);
        for _ in 1..LOSSES_MAX {
            assert!(!mtu.on_lost(8972));
        }
        assert!(mtu.on_lost(5000));
    }

    #[test]
    fn a_path_that_swallows_long_datagrams_gets_short_ones_and_is_tried_again_later() {
        let mut mtu = search(8972, 8972);
        assert!(mtu.on_black_hole(SECOND));
        assert_eq!((mtu.current(), mtu.next_probe(2 * SECOND)), (BASE_BYTES, None));
        assert_eq!(mtu.next_probe(SECOND + AGAIN_NS), Some(8972));
    }
}
