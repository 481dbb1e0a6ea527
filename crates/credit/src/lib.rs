//! A receiver's credit: which requests may be sent now, so that their answers fit the link to this receiver
//! and the queue before it.
//!
//! The crate is pure: time is handed in, in nanoseconds. It knows no transport: a client runs a [`Receiver`]
//! above TCP, and so does a drive for the writes that come to it.
//!
//! # The problem
//!
//! Many senders that answer one receiver at the same time overflow the queue before its link (incast). What
//! is dropped at the end of an answer is sent again only after a timeout of 200 ms or more, while the link
//! idles. Neither the senders nor the network can tell beforehand; the receiver can, as it asks for all of
//! it: *a request is the credit* for its answer.
//!
//! # The algorithm
//!
//! The receiver begins *open*: it bounds nothing and costs nothing. The owner reports losses that its
//! transport has seen ([`Receiver::handle_loss`]) and answers that took long ([`Receiver::handle_late`]).
//! What the bytes that were on their way before it explain at the link's rate ([`Rate`]) is not late, nor
//! what the same peer's answers always take. If so much time is lost that it matters, the receiver is
//! *clamped*: it has a [`Window`] of bytes that may be on their way. How the window is found at run time is
//! told in `window.rs`. Requests beyond it wait ([`Turns`]): callers take turns, and of one caller's requests
//! that goes first whose drive has the least on its way. What is small never waits.
//!
//! # Bounds
//!
//! A request goes whatever its size if nothing is on its way, and at the latest when it has waited for
//! [`WAIT_MAX_NS`]. What has not arrived after [`AWAY_NS`], or four times
//! the time that the link needs for all, no longer counts: its drive or its caller is gone.
//!
//! # Use
//!
//! Report each event by its `handle_*` call, then call [`Receiver::poll_send`] until it returns `None`, and
//! again within [`POLL_NS`] while something waits.

mod rate;
mod receiver;
mod turns;
mod window;

pub use rate::Rate;
pub use receiver::{Counts, Receiver, Sent};
pub use turns::{Ticket, Turns};
pub use window::{Late, Window};

/// Requests for at most this many bytes never wait.
pub const SMALL_BYTES: u64 = 16 << 10;
/// Answers that take less are never late, and nothing is lost by them. TCP waits for at least 200 ms if all
/// of an answer was dropped; some milliseconds may as well be a busy processor's.
pub const LATE_NS: u64 = 40 * MILLISECOND;
/// While the link was busy, an answer that took so much longer than what was before it explains is late.
const BEYOND_NS: u64 = 80 * MILLISECOND;
/// For so long a loss may be the reason that answers are late, on any connection: where all of an answer was
/// dropped, its own connection shows none.
const LOSS_TELLS_NS: u64 = SECOND;
/// The longest wait for credit.
pub const WAIT_MAX_NS: u64 = 2 * SECOND;
/// After this long, an answer that has not arrived no longer counts as on its way.
pub const AWAY_NS: u64 = SECOND;
/// The longest time after which it still counts, however much is on its way.
const AWAY_MAX_NS: u64 = 30 * SECOND;
/// The longest time without [`Receiver::poll_send`] while something waits.
pub const POLL_NS: u64 = 50 * MILLISECOND;
/// Time between two measurements of the rate: [`Receiver::handle_delivered`].
pub const SAMPLE_NS: u64 = 5 * MILLISECOND;

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;
