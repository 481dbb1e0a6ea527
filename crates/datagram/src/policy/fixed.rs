//! Windows that others decide on: a number of datagrams, or the receiver.

use crate::policy::Policy;

/// A fixed number of datagrams in flight.
#[derive(Debug)]
pub(crate) struct Fixed {
    datagrams: u64,
    datagram_bytes: u64,
}

/// As much in flight as the receiver says. Whoever shares out a receiver's link among those who send to it
/// tells each its part: nothing is to be found out by losses.
#[derive(Debug)]
pub(crate) struct Credit {
    window: u64,
}

impl Fixed {
    pub(crate) fn new(datagrams: u64, datagram_bytes: u64) -> Fixed {
        Fixed { datagrams, datagram_bytes }
    }
}

impl Policy for Fixed {
    fn window_bytes(&self) -> u64 {
        self.datagrams * self.datagram_bytes
    }

    fn on_datagram_bytes(&mut self, bytes: u64) {
        self.datagram_bytes = bytes;
    }
}

impl Credit {
    pub(crate) fn new(receiver_window: u64) -> Credit {
        Credit { window: receiver_window }
    }
}

impl Policy for Credit {
    fn window_bytes(&self) -> u64 {
        self.window
    }

    fn on_receiver_window(&mut self, bytes: u64) {
        self.window = bytes;
    }
}
