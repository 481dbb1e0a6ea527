//! A load: the requests of clients, and their times.

use serde::{Deserialize, Serialize};

use super::SpecError;
use crate::units::{Bytes, Span};

/// Requests of one kind. Exactly one of `rate`, `outstanding` and `trace` determines when they come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Name of the load in results.
    #[serde(default = "name")]
    pub name: String,
    /// Open load: requests a second of all clients together, whether earlier ones are done or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Open load: distribution of the times between requests.
    #[serde(default)]
    pub interval: Interval,
    /// Closed load: requests that each client has in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outstanding: Option<u32>,
    /// Closed load: mean of the exponential time from an answer to the next request.
    #[serde(default)]
    pub think: Span,
    /// Trace: name of a CSV file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// Share of reads, 0 to 1.
    #[serde(default = "all")]
    pub read: f64,
    /// Bytes of each request, or several sizes with weights.
    #[serde(default = "one_mib")]
    pub size: Size,
    #[serde(default)]
    pub pattern: Pattern,
    /// Random offsets are multiples of this size; absent: of the request's size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub align: Option<Bytes>,
    /// True if writes go to files that end where the write begins, so that nothing is read for parity.
    #[serde(default)]
    pub fresh: bool,
    /// Parts that serve this load before loads that have nothing reserved.
    #[serde(default)]
    pub reserved: Reserved,
    /// Time after which a request counts as late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Span>,
}

/// Distribution of the times between requests of an open load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interval {
    #[default]
    Exponential,
    /// Constant times: a stream.
    Constant,
}

/// Choice of a request's file and offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Any file, any offset.
    #[default]
    Random,
    /// Each client has its own file, and goes from its beginning to its end again and again.
    Sequential,
    /// All clients share one file, and take its records in turn. Several writers share its lease, so they
    /// write units through the data drives.
    #[serde(rename = "n-to-1")]
    NTo1,
}

/// Parts that are reserved for a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reserved {
    #[default]
    Nothing,
    Disks,
    /// Disks, processors and links.
    All,
}

/// Sizes of requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a size such as \"1M\", or a list such as [{ size = \"4K\", weight = 3 }]")]
pub enum Size {
    One(Bytes),
    Some(Vec<Weighted>),
}

/// One of several sizes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weighted {
    pub size: Bytes,
    /// Weight of the size compared with the others; above 0.
    pub weight: f64,
}

/// Arrivals of a load's requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// Requests a second.
    Open(f64),
    /// Requests in flight for each client.
    Closed(u32),
    /// The times of the trace.
    Trace,
}

fn name() -> String {
    "load".to_owned()
}

fn all() -> f64 {
    1.0
}

fn one_mib() -> Size {
    Size::One(Bytes(1 << 20))
}

impl Load {
    /// A load of reads that come at this rate.
    pub fn open(name: &str, rate: f64, size: Bytes) -> Load {
        Load { rate: Some(rate), ..Load::base(name, size) }
    }

    /// A load of reads with `outstanding` requests in flight for each client.
    pub fn closed(name: &str, outstanding: u32, size: Bytes) -> Load {
        Load { outstanding: Some(outstanding), ..Load::base(name, size) }
    }

    fn base(name: &str, size: Bytes) -> Load {
        Load {
            name: name.to_owned(),
            rate: None,
            interval: Interval::Exponential,
            outstanding: None,
            think: Span(0),
            trace: None,
            read: 1.0,
            size: Size::One(size),
            pattern: Pattern::Random,
            align: None,
            fresh: false,
            reserved: Reserved::Nothing,
            deadline: None,
        }
    }

    /// The arrivals of a checked load.
    pub(crate) fn arrivals(&self) -> Arrivals {
        match (self.rate, self.outstanding) {
            (Some(rate), _) => Arrivals::Open(rate),
            (None, Some(outstanding)) => Arrivals::Closed(outstanding),
            (None, None) => Arrivals::Trace,
        }
    }

    /// Greatest size of a request, in bytes.
    pub(super) fn size_max(&self) -> u64 {
        match &self.size {
            Size::One(size) => size.0,
            Size::Some(sizes) => sizes.iter().map(|one| one.size.0).max().unwrap_or(0),
        }
    }

    /// Checks the load by itself; `key` is its own key in the spec.
    pub(super) fn check(&self, key: &str) -> Result<(), SpecError> {
        let wrong = |part: &str, what: String| Err(SpecError::new(format!("{key}.{part}"), what));
        let ways = [self.rate.is_some(), self.outstanding.is_some(), self.trace.is_some()];
        if ways.iter().filter(|&&way| way).count() != 1 {
            let what = "give exactly one of rate (open), outstanding (closed) and trace";
            return Err(SpecError::new(key, what));
        }
        if let Some(rate) = self.rate.filter(|rate| !rate.is_finite() || *rate <= 0.0) {
            return wrong(
                "rate",
                format!("a rate of {rate} requests a second is not possible; give one above 0"),
            );
        }
        if self.outstanding == Some(0) {
            return wrong("outstanding", "with 0 requests in flight nothing happens; give 1 or more".into());
        }
        if self.think != Span(0) && self.outstanding.is_none() {
            return wrong(
                "think",
                "only clients of a closed load (outstanding) think between requests".into(),
            );
        }
        if self.pattern == Pattern::NTo1 && matches!(self.size, Size::Some(_)) {
            return wrong("size", "the records of n-to-1 have one size".into());
        }
        if !(0.0..=1.0).contains(&self.read) {
            return wrong("read", format!("the share of reads is from 0 to 1, not {}", self.read));
        }
        if self.align == Some(Bytes(0)) {
            return wrong("align", "offsets cannot be multiples of 0; leave it out or give a size".into());
        }
        match &self.size {
            Size::One(Bytes(0)) => wrong("size", "a request of 0 bytes asks for nothing".into()),
            Size::Some(sizes) if sizes.is_empty() => wrong("size", "the list of sizes is empty".into()),
            Size::Some(sizes) => {
                let bad = |one: &&Weighted| one.size.0 == 0 || !one.weight.is_finite() || one.weight <= 0.0;
                match sizes.iter().find(bad) {
                    Some(one) => wrong(
                        "size",
                        format!("size {} with weight {}: both are above 0", one.size, one.weight),
                    ),
                    None => Ok(()),
                }
            }
            Size::One(_) => Ok(()),
        }
    }
}
