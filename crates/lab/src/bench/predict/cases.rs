//! The cases that are predicted and measured: clusters with limited links, and the work done on each.

use braid_bench::predict::Counts;
use braid_sim::Spec;
use braid_sim::model::{CostModel, LinkModel, Medium};
use braid_sim::spec::{Cluster, Files, Load, Pattern, Run, Size};
use braid_sim::units::{Bytes, Rate};

use super::{PIECES_BYTES, STRIPES, STRIPES_AT_ONCE};
use crate::bench::cluster::UNIT_BYTES;
use crate::bench::hosts::{BURST_BYTES, Links};

/// Bytes of a small operation.
pub(super) const SMALL_BYTES: u64 = braid_sim::calibrate::SMALL_BYTES;
/// Bytes of a frame that TCP carries, and the rest (`tc tbf` counts both).
const FRAME: (u64, u64) = (1448, 66);
/// Rate of a link that is not limited, in bytes a second.
const UNLIMITED: f64 = 1e12;

/// Kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// A file is read from its beginning, healthy or with a drive away.
    Read { degraded: bool },
    /// A file is written from its beginning, healthy or with a drive away.
    Write { degraded: bool },
    /// Small pieces are read, with this many in flight.
    SmallRead(u32),
    /// Small pieces are overwritten, with this many in flight.
    SmallWrite(u32),
}

impl Act {
    pub(super) fn is_degraded(self) -> bool {
        matches!(self, Act::Read { degraded: true } | Act::Write { degraded: true })
    }

    pub(super) fn counts(self) -> Counts {
        match self {
            Act::Read { .. } | Act::Write { .. } => Counts::Bytes,
            Act::SmallRead(_) | Act::SmallWrite(_) => Counts::Operations,
        }
    }

    fn name(self) -> String {
        match self {
            Act::Read { degraded: false } => "read".into(),
            Act::Read { degraded: true } => "read, a drive away".into(),
            Act::Write { degraded: false } => "write".into(),
            Act::Write { degraded: true } => "write, a drive away".into(),
            Act::SmallRead(in_flight) => format!("read 4 KiB, {in_flight} in flight"),
            Act::SmallWrite(in_flight) => format!("overwrite 4 KiB, {in_flight} in flight"),
        }
    }
}

/// A cluster, and the work done on it.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) experiment: &'static str,
    pub(super) name: String,
    pub(super) drives: u16,
    pub(super) shape: (&'static str, u8),
    /// Data units of a stripe.
    pub(super) k: u64,
    /// Links that are limited.
    pub(super) links: Links,
    /// Limit of these links in bits a second.
    pub(super) bits: u64,
    pub(super) acts: Vec<Act>,
}

/// All groups, in the order in which they run.
pub(super) fn groups() -> Vec<Group> {
    let read = Act::Read { degraded: false };
    let write = Act::Write { degraded: false };
    let read_less = Act::Read { degraded: true };
    let write_less = Act::Write { degraded: true };
    let small = [Act::SmallRead(1), Act::SmallRead(16), Act::SmallWrite(1), Act::SmallWrite(16)];
    let group = |experiment, (scheme, width, k): (&'static str, u8, u64), links, megabits: u64, acts| Group {
        experiment,
        name: format!("{scheme} over {width}, {} {megabits} Mbit/s", of(links)),
        drives: u16::from(width),
        shape: (scheme, width),
        k,
        links,
        bits: megabits * 1_000_000,
        acts,
    };
    let mut groups = vec![group("E1", ("raid0", 3, 3), Links::Clients, 200, vec![read, write])];
    let mut acts = vec![read, write];
    acts.extend(small);
    acts.extend([read_less, write_less]);
    groups.push(group("E4", ("raid5", 5, 4), Links::Clients, 200, acts));
    for width in [3, 4, 5] {
        let mut acts = vec![read, write];
        if width == 5 {
            acts.extend(small);
            acts.extend([read_less, write_less]);
        }
        groups.push(group("E5", ("raid5", width, u64::from(width) - 1), Links::Drives, 50, acts));
    }
    groups
}

fn of(links: Links) -> &'static str {
    match links {
        Links::Clients => "the client's link",
        Links::Drives => "drives' links",
    }
}

impl Group {
    /// Name of the row of an act.
    pub(super) fn row(&self, act: Act) -> String {
        format!("{}: {}", self.name, act.name())
    }

    /// Full title of the row, which `--only` is matched with.
    pub(super) fn title(&self, act: Act) -> String {
        format!("{} {}", self.experiment, self.row(act))
    }

    /// Spec of the simulation for an act.
    pub(super) fn spec(&self, act: Act, model: &CostModel) -> Spec {
        let mut parts = model.clone();
        let limited = Rate(f64::from(u32::try_from(self.bits / 8).unwrap_or(u32::MAX)));
        let (rate, client_rate) = match self.links {
            Links::Drives => (limited, Rate(UNLIMITED)),
            Links::Clients => (Rate(UNLIMITED), limited),
        };
        parts.link = LinkModel {
            medium: Medium::Switch,
            rate,
            client_rate: Some(client_rate),
            bucket: Some(Bytes(BURST_BYTES)),
            payload: Bytes(FRAME.0),
            overhead: Bytes(FRAME.1),
            ..model.link.clone()
        };
        let stripe = self.k * u64::from(UNIT_BYTES);
        let (size, bytes, in_flight, pattern) = match act {
            Act::Read { .. } | Act::Write { .. } => {
                (stripe, STRIPES * stripe, STRIPES_AT_ONCE, Pattern::Sequential)
            }
            Act::SmallRead(in_flight) | Act::SmallWrite(in_flight) => {
                (SMALL_BYTES, PIECES_BYTES, in_flight, Pattern::Random)
            }
        };
        let mut load = Load::closed("predicted", in_flight, Bytes(size));
        load.read = if matches!(act, Act::Read { .. } | Act::SmallRead(_)) { 1.0 } else { 0.0 };
        (load.pattern, load.size) = (pattern, Size::One(Bytes(size)));
        Spec {
            title: self.title(act),
            seed: 1,
            run: Run::default(),
            cluster: Cluster {
                clients: 1,
                drives: u32::from(self.drives),
                drives_per_host: 1,
                rails: 1,
                rail_percents: Vec::new(),
                down: if act.is_degraded() { vec![0] } else { Vec::new() },
            },
            files: Files {
                count: 1,
                size: Bytes(bytes),
                scheme: self.shape.0.to_owned(),
                width: Some(self.shape.1),
                unit: Bytes(u64::from(UNIT_BYTES)),
            },
            parts,
            load: vec![load],
            sweep: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_can_be_simulated() {
        let text = include_str!("../../../../../docs/sim/cluster.toml");
        let model = Spec::parse(text).expect("the example").parts;
        for group in groups() {
            for &act in &group.acts {
                let spec = group.spec(act, &model);
                let read_back = Spec::parse(&spec.to_toml());
                assert_eq!(read_back.as_ref().map_err(ToString::to_string), Ok(&spec), "{}", spec.title);
            }
        }
    }
}
