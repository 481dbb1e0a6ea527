//! The window of TCP Reno (RFC 5681, as RFC 9002 has it), and Swift/RAID's use of it.

use crate::policy::{Acked, Policy, initial_window, least_window};

/// Doubles each round until the first loss, then grows by a datagram each round; halves at a loss.
#[derive(Debug)]
pub(crate) struct Reno {
    window: u64,
    /// The window at which doubling ends.
    threshold: u64,
    /// Bytes acknowledged since the window last grew by a datagram.
    acked: u64,
    datagram_bytes: u64,
    /// The last time the window was halved: losses of what was sent before are of the same event.
    halved_ns: Option<u64>,
}

impl Reno {
    pub(crate) fn new(datagram_bytes: u64) -> Reno {
        let window = initial_window(datagram_bytes);
        Reno { window, threshold: u64::MAX, acked: 0, datagram_bytes, halved_ns: None }
    }
}

impl Policy for Reno {
    fn window_bytes(&self) -> u64 {
        self.window
    }

    fn on_acked(&mut self, acked: &Acked<'_>) {
        if !acked.is_bound || self.halved_ns.is_some_and(|halved| acked.sent_ns <= halved) {
            return;
        }
        if self.window < self.threshold {
            self.window += acked.bytes;
            return;
        }
        self.acked += acked.bytes;
        if self.acked >= self.window {
            self.acked -= self.window;
            self.window += self.datagram_bytes;
        }
    }

    fn on_lost(&mut self, now_ns: u64, sent_ns: u64) {
        if self.halved_ns.is_some_and(|halved| sent_ns <= halved) {
            return;
        }
        self.halved_ns = Some(now_ns);
        self.window = (self.window / 2).max(least_window(self.datagram_bytes));
        (self.threshold, self.acked) = (self.window, 0);
    }

    fn heeds_marks(&self) -> bool {
        true
    }

    fn on_silence(&mut self) {
        self.threshold = (self.window / 2).max(least_window(self.datagram_bytes));
        self.window = least_window(self.datagram_bytes);
    }

    fn on_datagram_bytes(&mut self, bytes: u64) {
        self.window = self.window.max(least_window(bytes));
        self.datagram_bytes = bytes;
    }
}

/// Reno's window bounded by the receiver's, as probing past it only loses datagrams; and all from the first
/// loss on is sent again as soon as the receiver tells of a datagram out of order.
#[derive(Debug)]
pub(crate) struct GoBackN {
    reno: Reno,
    receiver_window: u64,
}

impl GoBackN {
    pub(crate) fn new(datagram_bytes: u64, receiver_window: u64) -> GoBackN {
        GoBackN { reno: Reno::new(datagram_bytes), receiver_window }
    }
}

impl Policy for GoBackN {
    fn window_bytes(&self) -> u64 {
        self.reno.window_bytes().min(self.receiver_window)
    }

    fn on_acked(&mut self, acked: &Acked<'_>) {
        if self.reno.window < self.receiver_window {
            self.reno.on_acked(acked);
        }
    }

    fn on_lost(&mut self, now_ns: u64, sent_ns: u64) {
        self.reno.on_lost(now_ns, sent_ns);
    }

    fn on_silence(&mut self) {
        self.reno.on_silence();
    }

    fn on_datagram_bytes(&mut self, bytes: u64) {
        self.reno.on_datagram_bytes(bytes);
    }

    fn on_receiver_window(&mut self, bytes: u64) {
        self.receiver_window = bytes;
    }

    fn reordering(&self) -> u64 {
        1
    }

    fn goes_back(&self) -> bool {
        true
    }
}
