//! The costs of a cluster's parts: the one description that a spec holds, that a calibration writes, and
//! that a sizing and a plan's predicted times read.
//!
//! Each part has a file. Every number has its unit in its text (`units`). A part may also be given by name:
//! the presets are the parts of the papers and of today.

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
pub(crate) use preset::named;
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
    /// The store of a drive, which uses its disk.
    #[serde(default)]
    pub store: StoreModel,
    /// Messages between client and drive.
    #[serde(default)]
    pub protocol: ProtocolModel,
}
