//! A disk that hangs while its process answers. Pure: time is a parameter.
//!
//! The store says which commit is under way. If it is the same for too long, the drive gives its lease up and
//! says so, and the manager takes it out like a dead one. When the disk answers again, it gets a lease again.

use crate::life::clock::Moment;

/// A commit that takes longer than this is of a disk that hangs.
pub(crate) const STALL_MS: u64 = 10_000;

/// The commit that was under way when last looked.
#[derive(Debug, Default)]
pub(crate) struct Stall {
    since: Option<(u64, Moment)>,
}

impl Stall {
    /// Looks at the commit under way. Returns for how long the disk has not answered, once that is too long;
    /// else 0.
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
