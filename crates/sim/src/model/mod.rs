//! What the parts of a cluster cost: the one description that a spec holds, that a calibration writes, and
//! that a sizing and a plan's predicted times read.
//!
//! One file for each part. Every number has its unit in its text (`units`). A part may also be named: the
//! presets below are the parts of the papers and of today.

mod disk;
mod distribution;
mod link;
mod preset;
mod processor;
mod protocol;
mod store;

use serde::{Deserialize, Serialize};

pub use disk::DiskModel;
pub use distribution::Distribution;
pub use link::{LinkModel, Medium};
pub use preset::{Preset, names};
pub use processor::ProcessorModel;
pub use protocol::{ProtocolModel, Requests};
pub use store::{Placement, StoreModel};

/// The costs of all parts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostModel {
    /// Each drive's disk.
    #[serde(deserialize_with = "preset::named")]
    pub disk: DiskModel,
    #[serde(deserialize_with = "preset::named")]
    pub link: LinkModel,
    /// The processor of a client's host.
    #[serde(deserialize_with = "preset::named")]
    pub client: ProcessorModel,
    /// The processor of a host of drives.
    #[serde(deserialize_with = "preset::named")]
    pub drive: ProcessorModel,
    /// What a drive's store does with its disk.
    #[serde(default)]
    pub store: StoreModel,
    /// The messages between client and drive.
    #[serde(default)]
    pub protocol: ProtocolModel,
}
