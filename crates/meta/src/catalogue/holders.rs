//! The drives that hold the catalogue. Pure.

use std::collections::BTreeSet;

use braid_layout::DriveId;

/// Number of drives that hold a stream, if there are as many.
pub const COPIES: usize = 3;

/// A drive that may hold a stream: it is up, has room, and stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub drive: DriveId,
    pub host: String,
    pub free_bytes: u64,
}

/// The drives for a new stream with a picture of about so many bytes: as many as possible of those that hold
/// one now, then drives on other hosts. Each has room for it twice, as changes follow.
pub fn choose(candidates: &[Candidate], now: &[DriveId], picture_bytes: u64) -> Vec<DriveId> {
    let mut hosts: BTreeSet<&str> = BTreeSet::new();
    let mut chosen: Vec<DriveId> = Vec::new();
    let has_room = |candidate: &&Candidate| candidate.free_bytes / 2 >= picture_bytes;
    let (held, others): (Vec<&Candidate>, Vec<&Candidate>) =
        candidates.iter().filter(has_room).partition(|candidate| now.contains(&candidate.drive));
    for wants_host in [true, false] {
        for candidate in held.iter().chain(&others) {
            if chosen.len() >= COPIES || chosen.contains(&candidate.drive) {
                continue;
            }
            if hosts.insert(&candidate.host) || !wants_host {
                chosen.push(candidate.drive);
            }
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(hosts: &[(u128, &str)]) -> Vec<Candidate> {
        let one = |&(drive, host): &(u128, &str)| Candidate {
            drive: DriveId(drive),
            host: host.to_owned(),
            free_bytes: 1000,
        };
        hosts.iter().map(one).collect()
    }

    #[track_caller]
    fn check(hosts: &[(u128, &str)], now: &[u128], expected: &[u128]) {
        let now: Vec<DriveId> = now.iter().copied().map(DriveId).collect();
        let expected: Vec<DriveId> = expected.iter().copied().map(DriveId).collect();
        assert_eq!(choose(&candidates(hosts), &now, 500), expected);
    }

    #[test]
    fn a_drive_without_room_for_the_picture_twice_over_gets_none() {
        let mut candidates = candidates(&[(1, "a"), (2, "b"), (3, "c")]);
        candidates[1].free_bytes = 999;
        assert_eq!(choose(&candidates, &[DriveId(2)], 500), [DriveId(1), DriveId(3)]);
        assert_eq!(choose(&candidates, &[], 501), []);
    }

    #[test]
    fn hosts_come_before_drives_and_holders_stay() {
        check(&[(1, "a"), (2, "a"), (3, "b"), (4, "c")], &[], &[1, 3, 4]);
        check(&[(1, "a"), (2, "a"), (3, "b"), (4, "c")], &[2], &[2, 3, 4]);
        check(&[(1, "a"), (2, "a"), (3, "a"), (4, "a")], &[4], &[4, 1, 2]);
        check(&[(1, "a"), (2, "a"), (3, "b")], &[], &[1, 3, 2]);
        check(&[(7, "a")], &[9], &[7]);
    }
}
