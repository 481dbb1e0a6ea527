//! Counter-offers: what would be admitted in place of what was refused.
//!
//! Each offer is found by asking again, so each is true as long as nothing else is booked.

use crate::answer::{Answer, Offer, Refused};
use crate::ask::{About, Ask, AskError, NewFiles, Wish};
use crate::choice::{Policy, decide};
use crate::count::Prices;
use crate::ledger::{Ending, Ledger};
use crate::price::Booking;

/// The best rate is known if the next that is refused is at most this part of it above.
const NEAR: u64 = 128;
/// Most reservations whose end is waited for.
const ENDS_MAX: usize = 4096;

/// Decides, with offers in case of a refusal. The ledger is the same afterwards.
pub fn answer(
    ledger: &mut Ledger,
    prices: &mut Prices,
    policy: &Policy,
    ask: &Ask,
) -> Result<Answer, AskError> {
    match decide(ledger, prices, policy, ask)? {
        Answer::Refused(refused) => {
            let mut search = Search { ledger, prices, policy };
            let mut offers = Vec::new();
            offers.extend(search.rate(ask).map(Offer::Rate));
            offers.extend(search.time(ask).map(Offer::From));
            offers.extend(search.shape(ask));
            offers.extend(search.survive(ask).map(Offer::Survive));
            Ok(Answer::Refused(Box::new(Refused { offers, ..*refused })))
        }
        admitted @ Answer::Admitted(_) => Ok(admitted),
    }
}

struct Search<'a> {
    ledger: &'a mut Ledger,
    prices: &'a mut Prices,
    policy: &'a Policy,
}

impl Search<'_> {
    fn admits(&mut self, ask: &Ask) -> bool {
        matches!(decide(self.ledger, self.prices, self.policy, ask), Ok(Answer::Admitted(_)))
    }

    fn admits_rate(&mut self, ask: &Ask, bytes_per_second: u64) -> bool {
        let mut less = ask.clone();
        less.terms.bytes_per_second = bytes_per_second;
        self.admits(&less)
    }

    /// The greatest rate below the one that was asked for.
    fn rate(&mut self, ask: &Ask) -> Option<u64> {
        let mut low = 0;
        let mut high = ask.terms.bytes_per_second;
        loop {
            while high - low > (low / NEAR).max(1) {
                // Far from the answer its size counts, not its distance.
                let middle = if low == 0 { high / 8 } else { u64::midpoint(low, high) };
                if middle == 0 {
                    return None;
                }
                if self.admits_rate(ask, middle) { low = middle } else { high = middle }
            }
            // With other units and widths a higher rate may fit where a lower one does not.
            let above = low + low.div_ceil(50);
            if low == 0 || above >= ask.terms.bytes_per_second || !self.admits_rate(ask, above) {
                return Some(low).filter(|&low| low > 0);
            }
            low = above;
            high = ask.terms.bytes_per_second;
        }
    }

    /// The earliest end of other promises after which the rate would fit.
    fn time(&mut self, ask: &Ask) -> Option<u64> {
        let later = self.ledger.ends().filter(|ending| ending.until_ms > ask.now_ms);
        let mut ended = Ended { ends: later.take(ENDS_MAX).collect(), out: Vec::new() };
        let found = self.count_of_ends(ask, &mut ended);
        ended.set(self.ledger, 0);
        found.map(|count| ended.ends[count - 1].until_ms)
    }

    /// The fewest promises, of those that end next, after which the rate would fit.
    fn count_of_ends(&mut self, ask: &Ask, ended: &mut Ended) -> Option<usize> {
        let mut low = 0;
        let mut high = ended.ends.len().min(1);
        while !self.admits_after(ask, ended, high) {
            if high == ended.ends.len() {
                return None;
            }
            low = high;
            high = (2 * high).min(ended.ends.len());
        }
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if self.admits_after(ask, ended, middle) { high = middle } else { low = middle }
        }
        Some(high)
    }

    fn admits_after(&mut self, ask: &Ask, ended: &mut Ended, count: usize) -> bool {
        let Some(last) = count.checked_sub(1) else { return false };
        ended.set(self.ledger, count);
        self.admits(&Ask { now_ms: ended.ends[last].until_ms, ..ask.clone() })
    }

    /// Another shape for new files, as redundant as the one that was asked for.
    fn shape(&mut self, ask: &Ask) -> Option<Offer> {
        let shape = match &ask.about {
            About::New(Wish::Shape(shape)) | About::Planned(NewFiles { shape, .. }) => *shape,
            About::New(Wish::Free { .. }) | About::Segments(_) => return None,
        };
        let about = About::New(Wish::Free { m: shape.m() });
        match decide(self.ledger, self.prices, self.policy, &Ask { about, ..ask.clone() }) {
            Ok(Answer::Admitted(admitted)) => admitted.plan.map(|plan| Offer::Shape(plan.shape)),
            Ok(Answer::Refused(_)) | Err(_) => None,
        }
    }

    /// The most losses that could be survived, if they are fewer.
    fn survive(&mut self, ask: &Ask) -> Option<u8> {
        (0..ask.terms.survive).rev().find(|&survive| {
            let mut less = ask.clone();
            less.terms.survive = survive;
            self.admits(&less)
        })
    }
}

/// Promises that end next, and the bookings of the first of them, which are out of the ledger meanwhile.
struct Ended {
    ends: Vec<Ending>,
    out: Vec<Booking>,
}

impl Ended {
    /// Takes out or puts back bookings until the first `count` are out.
    fn set(&mut self, ledger: &mut Ledger, count: usize) {
        while self.out.len() < count {
            let reservation = self.ends[self.out.len()].reservation;
            self.out.push(ledger.remove(reservation).expect("it was in the ledger"));
        }
        while self.out.len() > count {
            let booking = self.out.pop().expect("there are more");
            ledger.add(self.ends[self.out.len()].reservation, booking).expect("it was there before");
        }
    }
}
