//! Admission: what a promise costs on each drive, rail and client, and whether it fits.
//!
//! A promise is priced by its plan sets: they are compiled for one whole rotation of stripes, with all
//! columns there and with every set of columns lost that the promise survives, and their operations are
//! priced on the drives' qualified parts. The ledger is the sum of all prices, in every one of these states.
//! A promise is admitted if no sum rises above a share of what the part can do; otherwise the answer names
//! the part, what is free, and what would be admitted.
//!
//! The crate is pure and deterministic. The manager decides by it, `braid size` and the simulator ask it the
//! same questions. All demands are whole numbers, so that a ledger from which all is removed is as before.
//!
//! | file | idea |
//! |---|---|
//! | [`parts`] | what a drive and a client can do |
//! | [`demand`] | what is asked of a drive's parts each second |
//! | [`count`] | operations of plan sets, for each column |
//! | [`price`] | counts to demands, promises and bookings |
//! | [`ledger`] | sums of bookings in every state, and the check of one more |
//! | [`ask`], [`mod@answer`] | the question, and what is said to it |
//! | [`choice`] | drives, width and unit of new files |
//! | [`offer`] | what would be admitted instead |
//! | [`statistical`] | admission by mean and deviation, for the simulator |

#![warn(missing_docs)]

pub mod answer;
pub mod ask;
pub mod choice;
pub mod count;
pub mod demand;
pub mod ledger;
pub mod offer;
pub mod parts;
pub mod price;
pub mod statistical;

pub use answer::{Admitted, Answer, Candidate, Explanation, Offer, Refused, Resource, Verdict};
pub use ask::{About, Access, Ask, AskError, NewFiles, Terms, Wish};
pub use choice::{Policy, decide, quote};
pub use count::Prices;
pub use demand::{Demand, Part};
pub use ledger::{Background, BackgroundRates, Ending, Ledger, LedgerError, Shortage};
pub use offer::answer;
pub use parts::{ClientParts, DriveParts, ProcessorCost, Qualified, Rail, Whole};
pub use price::{Booking, ClientBooking, DriveBooking, DrivePromise, Loss, Promise};
