//! The model of the messages between client and drive.

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// Sizes of messages, beside the data they carry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProtocolModel {
    /// The way in which reads are asked for.
    pub requests: Requests,
    /// Bytes of a request, and of a write's message before its data.
    pub request: Bytes,
    /// Bytes of a read's answer before its data.
    pub reply: Bytes,
    /// Bytes of the answer to a write.
    pub acknowledgement: Bytes,
}

/// The way in which the reads of a plan set are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Requests {
    /// One message for each instruction.
    Each,
    /// One message to all drives for all that can begin (Swift, section 5.1: "a small request packet is
    /// multicast to the storage agents").
    Multicast,
}

impl Default for ProtocolModel {
    fn default() -> Self {
        ProtocolModel {
            requests: Requests::Each,
            request: Bytes(256),
            reply: Bytes(64),
            acknowledgement: Bytes(64),
        }
    }
}
