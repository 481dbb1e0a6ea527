//! The messages between peers: framing ([`frame`]), the field codec ([`codec`]), messages with drives
//! ([`data`]) and with the manager ([`control`]), refusals ([`refusal`]), capabilities and keys
//! ([`capability`]), the addresses of a drive ([`addresses`]), the MACs of requests and replies ([`seal`]),
//! the checks of a drive ([`authorise`]) and the state that it keeps of a connection ([`session`]), tokens
//! ([`token`]).
//!
//! The crate is pure: it turns bytes into values and values into bytes. It owns no socket, no clock and no
//! source of randomness; callers pass nonces and challenges in. `docs/format-wire.md` documents the format,
//! and golden bytes in `tests/golden` pin it.

#![warn(missing_docs)]

#[macro_use]
pub mod codec;
pub mod addresses;
pub mod authorise;
pub mod base64;
pub mod capability;
pub mod checksum;
pub mod control;
pub mod data;
pub mod frame;
pub mod refusal;
pub mod seal;
pub mod session;
pub mod token;

pub use addresses::Addresses;
pub use capability::{Capability, Key, Mac, Rights};
pub use codec::{DecodeError, Record, Wire};
pub use frame::{FrameError, FrameHeader};
pub use refusal::{Reason, Refusal};
