//! A spec: what is simulated, as TOML. `docs/sim.md` lists the keys; a test compares its tables with the
//! types here.
//!
//! A spec is read once ([`Spec::parse`]) and is then known to make sense: what does not is refused with its
//! key, its line and what would be right.

pub(crate) mod check;
mod error;
mod load;
mod parts;
mod sweep;

use serde::{Deserialize, Serialize};

use crate::model::CostModel;
use crate::units::Bytes;

pub use error::SpecError;
pub use load::{Arrivals, Interval, Load, Pattern, Reserved, Size, Weighted};
pub use sweep::{Point, Sweep, points};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// A name for results.
    #[serde(default)]
    pub title: String,
    /// What all randomness follows from.
    #[serde(default = "one")]
    pub seed: u64,
    /// When a run ends.
    #[serde(default)]
    pub run: Run,
    /// Hosts and drives.
    pub cluster: Cluster,
    /// Files and their layout.
    pub files: Files,
    /// What the parts cost.
    pub parts: CostModel,
    /// Who asks for what.
    pub load: Vec<Load>,
    /// Values to run with, one after another; of several sweeps all combinations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sweep: Vec<Sweep>,
}

/// When a run ends. It ends in any case: when the intervals are tight, when it is saturated, or at a bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Run {
    /// Percent of confidence that an interval has: 90, 95 or 99.
    pub confidence: u8,
    /// Half an interval's width over its mean that is tight enough.
    pub precision: f64,
    /// Requests of each load at least, after the warm-up.
    pub requests_min: u32,
    /// Requests of each load at most.
    pub requests_max: u32,
    /// Events at most.
    pub events_max: u64,
}

impl Default for Run {
    fn default() -> Self {
        Run {
            confidence: 95,
            precision: 0.03,
            requests_min: 1000,
            requests_max: 200_000,
            events_max: 500_000_000,
        }
    }
}

/// Hosts and drives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Hosts that ask, one client each.
    pub clients: u32,
    /// Drives, one disk each.
    pub drives: u32,
    /// Drives that share a host, its processor and its ports.
    #[serde(default = "one_small")]
    pub drives_per_host: u32,
    /// Networks; each host is on all.
    #[serde(default = "one_small")]
    pub rails: u32,
    /// Drives that are out, by number from 0.
    #[serde(default)]
    pub down: Vec<u32>,
}

/// Files, all with layouts of one shape. Placement is Braid's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Files {
    #[serde(default = "one_small")]
    pub count: u32,
    /// Bytes of each; rounded up to whole stripes.
    #[serde(default = "size")]
    pub size: Bytes,
    /// raid0, raid1, raid4, raid5 or rs(k,m).
    pub scheme: String,
    /// Columns, parity included; needed where the scheme does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u8>,
    /// Bytes of a unit.
    pub unit: Bytes,
}

fn one() -> u64 {
    1
}

fn one_small() -> u32 {
    1
}

fn size() -> Bytes {
    Bytes(1 << 30)
}

impl Spec {
    /// Reads a spec whose `[parts]` are in a text of their own. What is handed out too is the spec's text
    /// with them, which [`points`] needs.
    pub fn parse_with(text: &str, parts: &CostModel) -> Result<(Spec, String), SpecError> {
        let whole = parts::added(text, parts)?;
        Ok((Spec::parse(&whole)?, whole))
    }

    /// Reads a spec and checks it. Sweeps are read too; [`points`] applies them.
    pub fn parse(text: &str) -> Result<Spec, SpecError> {
        let spec: Spec = toml::from_str(text).map_err(|error| SpecError::of_toml(text, &error))?;
        spec.check().map_err(|error| error.find_line(text))?;
        Ok(spec)
    }

    /// As TOML, which [`Spec::parse`] reads back.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a spec has only tables, lists, texts and numbers")
    }
}
