//! The description of a simulation of promises, TOML with a `[promises]` table. docs/sim.md lists the keys.

use braid_admission::{About, Access, Ask, AskError, Terms, Wish};
use braid_layout::Shape;
use braid_schedule::Direction;
use serde::{Deserialize, Serialize};

use crate::model::{DiskModel, LinkModel, Medium, named};
use crate::number::whole;
use crate::spec::{SpecError, Sweep, Swept};
use crate::units::{Bytes, Rate, Span};

/// Most drives of a simulation of promises.
const DRIVES_MAX: u32 = 20_000;
/// Most streams of a class.
const STREAMS_MAX: u32 = 10_000_000;
/// Most bytes of an operation.
const OPERATION_MAX: u64 = 64 << 20;

/// A simulation of promised rates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromisesSpec {
    /// Title of the results.
    #[serde(default)]
    pub title: String,
    /// Seed of all randomness.
    #[serde(default = "one")]
    pub seed: u64,
    /// Drives, and how streams are let in.
    pub promises: Cluster,
    /// Costs of the parts.
    pub parts: Parts,
    /// Streams that ask for a rate.
    pub stream: Vec<Class>,
    /// Load without promises.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_effort: Option<BestEffort>,
    /// The loss of a drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// Values to run with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sweep: Vec<Sweep>,
}

/// Drives, and how streams are let in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Drives, each with a disk and a rail of its own.
    pub drives: u32,
    /// Time for which streams go on.
    #[serde(default = "minute")]
    pub duration: Span,
    /// The way in which streams are let in.
    #[serde(default)]
    pub admission: Admission,
    /// Deviations above the mean that statistical admission books.
    #[serde(default = "three")]
    pub deviations: f64,
}

/// The way in which streams are let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Admission {
    /// As the manager does: each at its peak rate.
    #[default]
    Deterministic,
    /// By the mean of all streams on a drive and a number of deviations.
    Statistical,
    /// All are let in.
    None,
}

/// Costs of the parts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parts {
    /// Each drive's disk.
    #[serde(deserialize_with = "named")]
    pub disk: DiskModel,
    /// Each drive's rail.
    #[serde(deserialize_with = "named")]
    pub link: LinkModel,
}

/// Direction of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// Streams that read files.
    #[default]
    Read,
    /// Streams that write new files.
    Write,
}

/// Streams that are alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// Name in results.
    #[serde(default = "name")]
    pub name: String,
    /// Streams that ask.
    pub count: u32,
    /// Direction of all of them.
    #[serde(default)]
    pub direction: Way,
    /// Mean rate of each.
    pub rate: Rate,
    /// Peak rate of each, if the rate varies from period to period. Absent: it is constant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<Rate>,
    /// Time over which the rate holds.
    #[serde(default = "period")]
    pub period: Span,
    /// Drives that may be lost while the promise holds.
    #[serde(default = "one_loss")]
    pub survive: u8,
    /// Scheme of the files. Absent: admission chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    /// Number of columns, where the scheme does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u8>,
    /// Bytes of a unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<Bytes>,
}

/// A closed load without promises: so many operations are always asked of each drive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BestEffort {
    /// Operations that wait or are done at each drive, over those that its scheduler gives out at once: 20
    /// ms of device time, or 32.
    pub overload: f64,
    /// Share of reads.
    #[serde(default = "half")]
    pub read: f64,
    /// Bytes of an operation.
    #[serde(default = "unit")]
    pub size: Bytes,
}

/// The loss of a drive, and its rebuild on all others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loss {
    /// Time of the loss.
    pub at: Span,
    /// Number of the drive, from 0.
    #[serde(default)]
    pub drive: u32,
    /// Bytes on it that are rebuilt.
    pub stored: Bytes,
    /// Rate of each other drive for the rebuild, reads and writes together: reserved, and not exceeded.
    pub rate: Rate,
    /// Bytes of an operation of the rebuild.
    #[serde(default = "unit")]
    pub unit: Bytes,
}

fn one() -> u64 {
    1
}

fn one_loss() -> u8 {
    1
}

fn three() -> f64 {
    3.0
}

fn half() -> f64 {
    0.5
}

fn minute() -> Span {
    Span(60_000_000_000)
}

fn period() -> Span {
    Span(100_000_000)
}

fn unit() -> Bytes {
    Bytes(1 << 20)
}

fn name() -> String {
    "streams".to_owned()
}

fn error(key: impl Into<String>, what: impl Into<String>) -> SpecError {
    SpecError::new(key, what)
}

impl Swept for PromisesSpec {
    fn sweeps(&self) -> &[Sweep] {
        &self.sweep
    }

    fn check(&self) -> Result<(), SpecError> {
        let Cluster { drives, duration, deviations, .. } = self.promises;
        if !(2..=DRIVES_MAX).contains(&drives) {
            let what = format!("{drives} is not possible: give 2 to {DRIVES_MAX}");
            return Err(error("promises.drives", what));
        }
        if !(1_000_000..=86_400_000_000_000).contains(&duration.0) {
            let what = format!("{duration} is not possible: give 1ms to 86400s");
            return Err(error("promises.duration", what));
        }
        if !(0.0..=10.0).contains(&deviations) {
            let what = format!("{deviations} deviations are not possible: give 0 to 10");
            return Err(error("promises.deviations", what));
        }
        if i64::try_from(self.seed).is_err() {
            return Err(error("seed", format!("{} is not possible: give at most {}", self.seed, i64::MAX)));
        }
        self.parts.disk.check()?;
        self.parts.link.check()?;
        if self.parts.link.medium == Medium::Shared {
            let what = "a medium that all share is nobody's rail: set medium to switch, or link to \"free\"";
            return Err(error("parts.link.medium", what));
        }
        if self.stream.is_empty() {
            return Err(error("stream", "there is no stream: add a [[stream]]"));
        }
        for (index, class) in self.stream.iter().enumerate() {
            class.check(&format!("stream.{index}"), drives)?;
            if self.loss.is_some() && class.survive == 0 {
                let what =
                    "the promise ends with the loss of [loss]: set survive to 1 or more, or leave it out";
                return Err(error(format!("stream.{index}.survive"), what));
            }
        }
        self.best_effort.as_ref().map_or(Ok(()), BestEffort::check)?;
        self.loss.as_ref().map_or(Ok(()), |loss| loss.check(&self.promises))
    }
}

impl PromisesSpec {
    /// Returns true if a text is a spec of promises and not of requests.
    pub fn is_one(text: &str) -> bool {
        toml::from_str::<toml::Table>(text).is_ok_and(|table| table.contains_key("promises"))
    }

    /// Reads a spec and checks it.
    pub fn parse(text: &str) -> Result<PromisesSpec, SpecError> {
        let spec: PromisesSpec = toml::from_str(text).map_err(|error| SpecError::of_toml(text, &error))?;
        spec.check().map_err(|error| error.find_line(text))?;
        Ok(spec)
    }
}

impl Class {
    /// The question of one stream at this rate.
    pub(super) fn ask(&self, rate: f64, wish: Wish) -> Ask {
        let terms = Terms {
            direction: self.direction(),
            bytes_per_second: whole(rate).max(1),
            streams: 1,
            period_ns: self.period.0,
            survive: self.survive,
            access: Access::Whole,
        };
        Ask { terms, about: About::New(wish), client: None, now_ms: 0, duration_ms: None }
    }

    pub(super) fn direction(&self) -> Direction {
        match self.direction {
            Way::Read => Direction::Read,
            Way::Write => Direction::Write,
        }
    }

    /// The greatest rate of each stream.
    pub(super) fn peak(&self) -> f64 {
        self.peak.unwrap_or(self.rate).0
    }

    /// The shape that the files have by the spec.
    pub(super) fn shape(&self, key: &str) -> Result<Option<Shape>, SpecError> {
        match (&self.scheme, self.unit) {
            (None, None) if self.width.is_none() => Ok(None),
            (Some(scheme), Some(unit)) => {
                let unit = u32::try_from(unit.0).unwrap_or(u32::MAX);
                let shape = Shape::parse(scheme, self.width, unit);
                shape.map(Some).map_err(|cause| error(format!("{key}.scheme"), cause.to_string()))
            }
            _ => Err(error(key, "give scheme and unit together, or neither: then admission chooses")),
        }
    }

    fn check(&self, key: &str, drives: u32) -> Result<(), SpecError> {
        if !(1..=STREAMS_MAX).contains(&self.count) {
            let what = format!("{} is not possible: give 1 to {STREAMS_MAX}", self.count);
            return Err(error(format!("{key}.count"), what));
        }
        if self.peak() < self.rate.0 {
            let what = format!("a peak of {} below the mean of {}", Rate(self.peak()), self.rate);
            return Err(error(format!("{key}.peak"), what));
        }
        self.ask(self.peak(), Wish::Free { m: self.survive }).check().map_err(|cause| {
            let part = match cause {
                AskError::Period(_) => "period",
                AskError::Survive(_) => "survive",
                _ => "rate",
            };
            error(format!("{key}.{part}"), cause.to_string())
        })?;
        match self.shape(key)? {
            Some(shape) if u32::from(shape.width()) > drives => {
                let what = format!("{} columns need as many drives", shape.width());
                Err(error(format!("{key}.scheme"), what))
            }
            Some(shape) if shape.m() < self.survive => {
                let what = format!("{shape} survives {} losses, not {}", shape.m(), self.survive);
                Err(error(format!("{key}.survive"), what))
            }
            _ => Ok(()),
        }
    }
}

/// Refuses sizes of operations that make no sense.
fn operation(key: &str, bytes: Bytes) -> Result<(), SpecError> {
    match bytes.0 {
        1..=OPERATION_MAX => Ok(()),
        _ => Err(error(key, format!("operations of {bytes}: give 1 to 64M"))),
    }
}

impl BestEffort {
    fn check(&self) -> Result<(), SpecError> {
        if !(self.overload > 0.0 && self.overload <= 1000.0) {
            let what = format!("an overload of {} is not possible: give up to 1000", self.overload);
            return Err(error("best_effort.overload", what));
        }
        if !(0.0..=1.0).contains(&self.read) {
            let what = format!("the share of reads is from 0 to 1, not {}", self.read);
            return Err(error("best_effort.read", what));
        }
        operation("best_effort.size", self.size)
    }
}

impl Loss {
    fn check(&self, cluster: &Cluster) -> Result<(), SpecError> {
        if self.at >= cluster.duration {
            let what = format!("it is after the end, which is at {}", cluster.duration);
            return Err(error("loss.at", what));
        }
        if self.drive >= cluster.drives {
            let most = cluster.drives - 1;
            let what = format!("there is no drive {}: they have the numbers 0 to {most}", self.drive);
            return Err(error("loss.drive", what));
        }
        operation("loss.unit", self.unit)
    }
}
