//! The operations that are measured, the fewest messages that each needs, and their goals.

use serde::Serialize;

use super::exchange::{Exchange, With};
use super::report::Synced;

/// Bytes of a small file, and of a piece of the large file.
pub const FILE_BYTES: u32 = 4096;
/// Numbers of single operations in flight, with a row each.
pub const IN_FLIGHT: [u32; 3] = [1, 16, 64];
/// Number in flight to which the goals apply.
const GOAL_IN_FLIGHT: u32 = 16;
/// About the bytes of a name with its attributes in a listing.
pub const NAME_REPLY_BYTES: u32 = 64;
/// About the bytes of a request or an answer that moves no data, with its header, a capability and a MAC.
const MESSAGE_BYTES: u32 = 128;

/// A kind of operation, in the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Makes a file, writes 4 KiB and closes it; then the file is durable, and so is its name.
    Create,
    /// Removes a file.
    Unlink,
    /// Opens a file, reads its 4 KiB and closes it.
    OpenRead,
    /// Asks for the attributes of a file.
    Stat,
    /// Lists a directory.
    List,
    /// Reads 4 KiB at a random offset of the large file.
    Read,
    /// Overwrites 4 KiB at a random offset of the large file, durably.
    Overwrite,
    /// Copies a file into the cluster, by `cp -r` of a tree.
    CopyIn,
    /// Copies a file out of the cluster, by `cp -r` of a tree.
    CopyOut,
    /// Removes a file, by `rm -r` of a tree.
    RemoveTree,
}

/// The goals of a row.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Goals {
    /// Least operations a second.
    pub per_second: Option<f64>,
    /// Most processor time of all processes for one operation, in microseconds.
    pub cpu_us: Option<f64>,
    /// Least share of the rate of plain exchanges.
    pub of_plain: Option<f64>,
}

impl Operation {
    /// Operations that a client does one by one, with a number of them in flight.
    pub const SINGLE: [Operation; 7] = [
        Operation::Create,
        Operation::Unlink,
        Operation::OpenRead,
        Operation::Stat,
        Operation::List,
        Operation::Read,
        Operation::Overwrite,
    ];
    /// Operations on a whole tree, by a command.
    pub const OF_TREES: [Operation; 3] = [Operation::CopyIn, Operation::CopyOut, Operation::RemoveTree];

    /// The operation's name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Create => "create + write 4 KiB + close",
            Operation::Read => "random read 4 KiB",
            Operation::Overwrite => "random overwrite 4 KiB",
            Operation::OpenRead => "open + read 4 KiB + close",
            Operation::Stat => "stat",
            Operation::List => "list a directory",
            Operation::Unlink => "unlink",
            Operation::CopyIn => "cp -r in, a file",
            Operation::CopyOut => "cp -r out, a file",
            Operation::RemoveTree => "rm -r, a file",
        }
    }

    /// The title of the operation's row.
    pub fn title(self, in_flight: Option<u32>) -> String {
        match in_flight {
            Some(number) => format!("{}, {number} in flight", self.name()),
            None => self.name().to_owned(),
        }
    }

    /// The operation's goals (issue 22). All but one are for drives in memory.
    pub fn goals(self, in_flight: Option<u32>, memory: bool) -> Goals {
        let rate = |per_second| Goals { per_second: Some(per_second), ..Goals::default() };
        match (self, memory) {
            (Operation::CopyIn, false) => rate(2000.0),
            (_, false) => Goals::default(),
            (Operation::CopyIn, true) => rate(4000.0),
            (Operation::CopyOut, true) => rate(8000.0),
            (Operation::RemoveTree, true) => rate(12_000.0),
            _ if in_flight != Some(GOAL_IN_FLIGHT) => Goals::default(),
            (Operation::Create, true) => Goals { cpu_us: Some(230.0), ..rate(8000.0) },
            (Operation::Read, true) => {
                Goals { per_second: Some(55_000.0), cpu_us: Some(33.0), of_plain: Some(0.7) }
            }
            (Operation::Overwrite, true) => Goals { cpu_us: Some(150.0), ..rate(12_000.0) },
            (Operation::OpenRead, true) => rate(25_000.0),
            (Operation::Stat, true) => rate(60_000.0),
            (Operation::Unlink, true) => rate(15_000.0),
            (Operation::List, true) => Goals::default(),
        }
    }

    /// The fewest messages that carry the operation, one after another: the plain side does these. `names`
    /// is the number of names in a listing.
    pub fn exchanges(self, names: u64) -> Vec<Exchange> {
        let with = |with, request_bytes, reply_bytes| Exchange { with, request_bytes, reply_bytes };
        let asked = with(With::Manager, MESSAGE_BYTES, 2 * MESSAGE_BYTES);
        let read = with(With::Drives, MESSAGE_BYTES, FILE_BYTES + MESSAGE_BYTES);
        let written = with(With::Drives, FILE_BYTES + MESSAGE_BYTES, MESSAGE_BYTES);
        match self {
            Operation::Create | Operation::CopyIn => vec![asked, written, asked],
            Operation::OpenRead | Operation::CopyOut => vec![asked, read],
            Operation::Read => vec![read],
            Operation::Overwrite => vec![written],
            Operation::Stat | Operation::Unlink | Operation::RemoveTree => vec![asked],
            Operation::List => {
                let names = u32::try_from(names).unwrap_or(u32::MAX).saturating_mul(NAME_REPLY_BYTES);
                vec![with(With::Manager, MESSAGE_BYTES, names)]
            }
        }
    }

    /// The disk that must be synced before the operation is durable; `None`: it changes nothing.
    pub fn synced(self) -> Option<Synced> {
        match self {
            Operation::Create | Operation::CopyIn | Operation::Unlink | Operation::RemoveTree => {
                Some(Synced::Manager)
            }
            Operation::Overwrite => Some(Synced::Drive),
            Operation::Read
            | Operation::OpenRead
            | Operation::Stat
            | Operation::List
            | Operation::CopyOut => None,
        }
    }
}

impl Goals {
    /// Returns true if a row with these figures meets all goals; `None` if there are none.
    pub(super) fn are_met(&self, per_second: f64, cpu_us: f64, of_plain: Option<f64>) -> Option<bool> {
        let met = [
            self.per_second.map(|least| per_second >= least),
            self.cpu_us.map(|most| cpu_us <= most),
            self.of_plain.map(|least| of_plain.is_some_and(|share| share >= least)),
        ];
        met.iter().any(Option::is_some).then(|| met.into_iter().flatten().all(|met| met))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_those_of_the_issue() {
        let rate = |operation: Operation, in_flight, memory| operation.goals(in_flight, memory).per_second;
        assert_eq!(rate(Operation::Create, Some(16), true), Some(8000.0));
        assert_eq!(rate(Operation::Create, Some(1), true), None);
        assert_eq!(rate(Operation::Create, Some(16), false), None);
        assert_eq!(rate(Operation::CopyIn, None, true), Some(4000.0));
        assert_eq!(rate(Operation::CopyIn, None, false), Some(2000.0));
        let with_goal = Operation::SINGLE.iter().filter(|one| rate(**one, Some(16), true).is_some());
        assert_eq!(with_goal.count(), 6, "all but the listing");
    }

    #[test]
    fn all_goals_must_be_met() {
        let goals = Goals { per_second: Some(100.0), cpu_us: Some(30.0), of_plain: Some(0.7) };
        assert_eq!(goals.are_met(100.0, 30.0, Some(0.7)), Some(true));
        assert_eq!(goals.are_met(99.0, 30.0, Some(0.7)), Some(false));
        assert_eq!(goals.are_met(100.0, 31.0, Some(0.7)), Some(false));
        assert_eq!(goals.are_met(100.0, 30.0, Some(0.6)), Some(false));
        assert_eq!(goals.are_met(100.0, 30.0, None), Some(false), "it was not measured");
        assert_eq!(Goals::default().are_met(1.0, 1.0, None), None);
    }
}
