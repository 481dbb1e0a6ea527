//! What peers say to each other: framing ([`frame`]), the field codec ([`codec`]), messages with drives
//! ([`data`]) and with the manager ([`control`]), refusals ([`refusal`]), capabilities and keys
//! ([`capability`]), what makes requests and replies unforgeable ([`seal`]) and what a drive checks
//! ([`authorise`]), tokens ([`token`]).
//!
//! Pure: bytes in, values out, and back. It owns no socket, no clock and no randomness; nonces and challenges
//! are handed in. `docs/format-wire.md` is the format's document; golden bytes in `tests/golden` pin it.

#[macro_use]
pub mod codec;
pub mod authorise;
pub mod capability;
pub mod checksum;
pub mod control;
pub mod data;
pub mod frame;
pub mod refusal;
pub mod seal;
pub mod token;

pub use capability::{Capability, Key, Mac, Rights};
pub use codec::{DecodeError, Record, Wire};
pub use frame::{FrameError, FrameHeader};
pub use refusal::{Reason, Refusal};
