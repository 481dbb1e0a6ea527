//! Policies: how much may be in flight, and how losses are repaired. Each is a small part, chosen by name.
//!
//! | name | window | repair | after |
//! |---|---|---|---|
//! | `stop-and-wait` | one datagram | what is lost | Swift (1991), section 3.1 |
//! | `window-N` | N datagrams | what is lost | window flow control |
//! | `go-back-n` | grows and shrinks as TCP Reno's, never beyond the receiver's window | all from the first loss on, at the first datagram out of order | Swift/RAID's adaptive control (1995) |
//! | `selective-repeat` | grows and shrinks as TCP Reno's | what is lost | RFC 5681, RFC 9002 |
//! | `credit` | what the receiver says | what is lost | receiver-driven transports |
//! | `cubic` | a cubic function of the time since the last loss | what is lost | RFC 9438, RFC 9406 |

mod cubic;
mod fixed;
mod reno;

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

use crate::rtt::Rtt;

/// Which policy a connection has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One datagram at a time.
    StopAndWait,
    /// So many datagrams at a time.
    Window(NonZeroU16),
    /// Go back N with adaptive control.
    GoBackN,
    /// Selective repeat under Reno's window.
    SelectiveRepeat,
    /// That which the receiver says.
    Credit,
    /// CUBIC, as RFC 9438 has it.
    Cubic,
}

/// A name that is no policy's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no policy is named \"{0}\": stop-and-wait, window-N (N datagrams), go-back-n, selective-repeat, credit, cubic"
)]
pub struct UnknownPolicy(pub String);

/// A datagram of data was acknowledged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acked<'a> {
    pub(crate) now_ns: u64,
    pub(crate) sent_ns: u64,
    /// The datagram's number, and the number of the next that will be sent: these tell rounds apart.
    pub(crate) number: u64,
    pub(crate) next_number: u64,
    pub(crate) bytes: u64,
    pub(crate) rtt: &'a Rtt,
    /// True if the window, not the owner, bounds what is sent.
    pub(crate) is_bound: bool,
}

/// Decides how much may be in flight.
pub(crate) trait Policy: fmt::Debug + Send {
    /// Bytes that may be in flight.
    fn window_bytes(&self) -> u64;

    /// A datagram was acknowledged.
    fn on_acked(&mut self, _acked: &Acked<'_>) {}

    /// Datagrams were lost, or marked by a queue; `sent_ns` is when the last of them was sent.
    fn on_lost(&mut self, _now_ns: u64, _sent_ns: u64) {}

    /// Returns true if a queue may mark datagrams instead of dropping them. Then [`Policy::on_lost`] is
    /// called for a mark, too.
    fn heeds_marks(&self) -> bool {
        false
    }

    /// Nothing was acknowledged for several timeouts.
    fn on_silence(&mut self) {}

    /// Datagrams have another length from now on.
    fn on_datagram_bytes(&mut self, _bytes: u64) {}

    /// The receiver takes so many bytes at a time.
    fn on_receiver_window(&mut self, _bytes: u64) {}

    /// A datagram counts as lost when so many later ones have arrived before it.
    fn reordering(&self) -> u64 {
        3
    }

    /// Returns true if all that is in flight is sent again after a loss.
    fn goes_back(&self) -> bool {
        false
    }

    /// Returns true if datagrams are spread over the round-trip time.
    fn is_paced(&self) -> bool {
        false
    }
}

impl Kind {
    pub(crate) fn build(self, datagram_bytes: u64, receiver_window: u64) -> Box<dyn Policy> {
        match self {
            Kind::StopAndWait => Box::new(fixed::Fixed::new(1, datagram_bytes)),
            Kind::Window(count) => Box::new(fixed::Fixed::new(count.get().into(), datagram_bytes)),
            Kind::Credit => Box::new(fixed::Credit::new(receiver_window)),
            Kind::GoBackN => Box::new(reno::GoBackN::new(datagram_bytes, receiver_window)),
            Kind::SelectiveRepeat => Box::new(reno::Reno::new(datagram_bytes)),
            Kind::Cubic => Box::new(cubic::Cubic::new(datagram_bytes)),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::StopAndWait => f.write_str("stop-and-wait"),
            Kind::Window(count) => write!(f, "window-{count}"),
            Kind::GoBackN => f.write_str("go-back-n"),
            Kind::SelectiveRepeat => f.write_str("selective-repeat"),
            Kind::Credit => f.write_str("credit"),
            Kind::Cubic => f.write_str("cubic"),
        }
    }
}

impl FromStr for Kind {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Kind, UnknownPolicy> {
        let unknown = || UnknownPolicy(name.to_owned());
        Ok(match name {
            "stop-and-wait" => Kind::StopAndWait,
            "go-back-n" => Kind::GoBackN,
            "selective-repeat" => Kind::SelectiveRepeat,
            "credit" => Kind::Credit,
            "cubic" => Kind::Cubic,
            _ => {
                let count = name.strip_prefix("window-").and_then(|count| count.parse().ok());
                Kind::Window(count.ok_or_else(unknown)?)
            }
        })
    }
}

/// The window that a connection begins with (RFC 9002, section 7.2).
fn initial_window(datagram_bytes: u64) -> u64 {
    (10 * datagram_bytes).min(14_720.max(2 * datagram_bytes))
}

/// The least window after losses.
fn least_window(datagram_bytes: u64) -> u64 {
    2 * datagram_bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MILLISECOND, SECOND};

    #[test]
    fn names_are_read_and_written() {
        for name in ["stop-and-wait", "window-7", "go-back-n", "selective-repeat", "credit", "cubic"] {
            assert_eq!(name.parse::<Kind>().unwrap().to_string(), name);
        }
        for name in ["", "window-0", "window-", "window-x", "bbr"] {
            assert_eq!(name.parse::<Kind>(), Err(UnknownPolicy(name.to_owned())));
        }
    }

    /// Acknowledges whole windows of datagrams, a round-trip time of `rtt_ns` each; returns the windows.
    fn rounds(policy: &mut dyn Policy, begin_ns: u64, rtt_ns: u64, count: u64) -> Vec<u64> {
        let mut rtt = Rtt::default();
        let mut number = 0;
        let mut windows = Vec::new();
        for round in 0..count {
            let now_ns = begin_ns + round * rtt_ns;
            let datagrams = policy.window_bytes() / 1000;
            let next_number = number + datagrams;
            for number in number..next_number {
                rtt.on_sample(rtt_ns, 0);
                let sent_ns = now_ns - rtt_ns;
                let next_number = next_number + number;
                policy.on_acked(&Acked {
                    now_ns,
                    sent_ns,
                    number,
                    next_number,
                    bytes: 1000,
                    rtt: &rtt,
                    is_bound: true,
                });
            }
            number = next_number;
            windows.push(policy.window_bytes());
        }
        windows
    }

    #[test]
    fn a_fixed_window_stays_and_a_credit_is_the_receivers() {
        let mut fixed = Kind::Window(NonZeroU16::new(5).unwrap()).build(1000, 1 << 20);
        fixed.on_lost(9, 8);
        assert_eq!(rounds(&mut *fixed, SECOND, MILLISECOND, 9).last(), Some(&5000));
        let mut credit = Kind::Credit.build(1000, 1 << 20);
        assert_eq!(credit.window_bytes(), 1 << 20);
        credit.on_receiver_window(3000);
        credit.on_lost(9, 8);
        assert_eq!(credit.window_bytes(), 3000);
    }

    #[test]
    fn reno_doubles_then_adds_a_datagram_each_round_and_halves_once_for_each_round_of_losses() {
        let mut reno = Kind::SelectiveRepeat.build(1000, 1 << 20);
        assert_eq!(rounds(&mut *reno, SECOND, MILLISECOND, 3), [20_000, 40_000, 80_000]);
        reno.on_lost(2 * SECOND, 2 * SECOND - 10);
        assert_eq!(reno.window_bytes(), 40_000);
        reno.on_lost(2 * SECOND + 1, 2 * SECOND - 5);
        assert_eq!(reno.window_bytes(), 40_000, "they were sent before the window was halved");
        let grown = rounds(&mut *reno, 3 * SECOND, MILLISECOND, 4);
        assert!(grown.windows(2).all(|pair| (900..=1100).contains(&(pair[1] - pair[0]))), "{grown:?}");
        reno.on_silence();
        assert_eq!(reno.window_bytes(), 2000);
    }

    #[test]
    fn go_back_n_never_probes_past_the_receivers_window() {
        let mut policy = Kind::GoBackN.build(1000, 25_000);
        assert_eq!(rounds(&mut *policy, SECOND, MILLISECOND, 4), [20_000, 25_000, 25_000, 25_000]);
        assert!(policy.goes_back());
        assert_eq!(policy.reordering(), 1);
        policy.on_receiver_window(3000);
        assert_eq!(policy.window_bytes(), 3000);
    }

    #[test]
    fn cubic_comes_back_to_its_window_at_the_time_of_rfc_9438_and_goes_beyond() {
        let mut cubic = Kind::Cubic.build(1000, 1 << 20);
        let rtt_ns = 50 * MILLISECOND;
        rounds(&mut *cubic, SECOND, rtt_ns, 4);
        let before = cubic.window_bytes();
        cubic.on_lost(2 * SECOND, 2 * SECOND - 10);
        assert_eq!(cubic.window_bytes(), before * 7 / 10);
        // K = cbrt(W (1 - 0.7) / 0.4), W in datagrams.
        let datagrams = f64::from(u32::try_from(before / 1000).unwrap());
        let k = (datagrams * 0.3 / 0.4).cbrt();
        let rounds_to_k = crate::codec::whole((k / 0.05).ceil());
        let windows = rounds(&mut *cubic, 2 * SECOND + rtt_ns, rtt_ns, 2 * rounds_to_k);
        let at_k = windows[usize::try_from(rounds_to_k).unwrap()];
        assert!(at_k >= before * 95 / 100 && at_k <= before * 110 / 100, "{at_k} of {before}");
        assert!(*windows.last().unwrap() > before * 12 / 10, "{windows:?} of {before}");
    }

    #[test]
    fn cubic_leaves_slow_start_when_the_round_trip_grows() {
        let mut cubic = Kind::Cubic.build(1000, 1 << 20);
        let mut rtt_ns = 2 * MILLISECOND;
        for round in 0..20 {
            rounds(&mut *cubic, SECOND * (round + 1), rtt_ns, 1);
            rtt_ns += rtt_ns / 2 * u64::from(round > 3);
        }
        assert!(cubic.window_bytes() < 10_000 << 12, "it would have doubled 20 times");
    }
}
