//! Detection of a disk that hangs while its process answers. Pure: time is a parameter.
//!
//! The store says which commit is under way. If that is the same commit for too long, the drive gives its
//! lease up and tells the manager, which takes the drive out like a dead one. When the disk answers again,
//! the drive gets a lease again.

use crate::life::clock::Moment;

/// Longest time of a commit, in milliseconds; beyond that its disk counts as hanging.
pub(crate) const STALL_MS: u64 = 10_000;

/// The commit that was under way at the last look, and the moment at which it was first seen.
#[derive(Debug, Default)]
pub(crate) struct Stall {
    since: Option<(u64, Moment)>,
}

impl Stall {
    /// Looks at the commit under way. Returns the milliseconds for which the disk has not answered, once that
    /// is too long; else 0.
    pub(crate) fn handle_look(&mut self, under_way: Option<u64>, now: Moment) -> u64 {
        match (under_way, self.since) {
            (Some(commit), Some((seen, since))) if commit == seen => {
                let passed = now.since(since);
                if passed > STALL_MS { passed } else { 0 }
            }
            (under_way, _) => {
                self.since = under_way.map(|commit| (commit, now));
                0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_commit_that_lasts_is_a_stall_and_many_in_a_row_are_not() {
        let mut stall = Stall::default();
        let mut looks = |commit, at| stall.handle_look(commit, Moment(at));
        for at in 0..100 {
            assert_eq!(looks(Some(2 * at + 1), at * 1000), 0, "a busy disk");
        }
        assert_eq!(looks(Some(301), 200_000), 0);
        assert_eq!(looks(Some(301), 210_000), 0);
        assert_eq!(looks(Some(301), 210_001), 10_001);
        assert_eq!(looks(Some(301), 250_000), 50_000);
        assert_eq!(looks(None, 251_000), 0, "it answers again");
        assert_eq!(looks(Some(303), 252_000), 0);
    }
}
