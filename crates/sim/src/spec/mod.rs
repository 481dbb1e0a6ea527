//! A spec: the description of a simulation, as TOML. `docs/sim.md` lists the keys; a test compares its
//! tables with the types here.
//!
//! A spec is checked when it is read ([`Spec::parse`]). A spec that makes no sense is refused with its key,
//! its line and what would be right.

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
pub use sweep::{Point, Sweep, Swept, points};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Title of the results.
    #[serde(default)]
    pub title: String,
    /// Seed of all randomness.
    #[serde(default = "one")]
    pub seed: u64,
    /// Conditions that end a run.
    #[serde(default)]
    pub run: Run,
    /// Hosts and drives.
    pub cluster: Cluster,
    /// Files and their layout.
    pub files: Files,
    /// Costs of the parts.
    pub parts: CostModel,
    /// Loads of requests.
    pub load: Vec<Load>,
    /// Values to run with, one after another; several sweeps give all combinations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sweep: Vec<Sweep>,
}

/// Conditions that end a run: tight intervals, saturation, or a bound. One of them always comes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Run {
    /// Confidence of the intervals, in percent: 90, 95 or 99.
    pub confidence: u8,
    /// Half an interval's width over its mean at which the interval is tight enough.
    pub precision: f64,
    /// Least requests of each load after the warm-up.
    pub requests_min: u32,
    /// Most requests of each load.
    pub requests_max: u32,
    /// Most events of a run.
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
    /// Hosts of clients, one client each.
    pub clients: u32,
    /// Drives, one disk each.
    pub drives: u32,
    /// Drives of one host, which share its processor and its ports.
    #[serde(default = "one_small")]
    pub drives_per_host: u32,
    /// Number of networks; each host is on all.
    #[serde(default = "one_small")]
    pub rails: u32,
    /// Rate of each network, as a percentage of the link's; empty: all have that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rail_percents: Vec<u32>,
    /// Drives that are out, by number from 0.
    #[serde(default)]
    pub down: Vec<u32>,
}

/// Files, all with layouts of one shape. They are placed as Braid's manager places them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Files {
    #[serde(default = "one_small")]
    pub count: u32,
    /// Bytes of each file, rounded up to whole stripes.
    #[serde(default = "size")]
    pub size: Bytes,
    /// Scheme: raid0, raid1, raid4, raid5 or rs(k,m).
    pub scheme: String,
    /// Number of columns, parity included; needed where the scheme does not say it.
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
    /// Reads a spec whose `[parts]` are in a text of their own. Returns the spec, and its text with these
    /// parts, which [`points`] needs.
    pub fn parse_with(text: &str, parts: &CostModel) -> Result<(Spec, String), SpecError> {
        let whole = parts::added(text, parts)?;
        Ok((Spec::parse(&whole)?, whole))
    }

    /// Reads a spec and checks it. Its sweeps are read too; [`points`] applies them.
    pub fn parse(text: &str) -> Result<Spec, SpecError> {
        let spec: Spec = toml::from_str(text).map_err(|error| SpecError::of_toml(text, &error))?;
        spec.check_all().map_err(|error| error.find_line(text))?;
        Ok(spec)
    }

    /// The spec as TOML, which [`Spec::parse`] reads back.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a spec has only tables, lists, texts and numbers")
    }
}
