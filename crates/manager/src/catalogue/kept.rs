//! The catalogue's state at the drives, as status shows it.

use braid_layout::DriveId;

/// State of the catalogue at the drives.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    /// Drives that have all that was written.
    pub(crate) drives: Vec<DriveId>,
    /// Time from which on changes are at fewer than two drives, or than there are.
    pub(crate) behind_since_ms: Option<u64>,
    /// Bytes of the stream at each drive.
    pub(crate) bytes: u64,
}

/// State of the stream that is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    /// Its picture is whole.
    pub(crate) whole: bool,
    /// It lacks changes, and gets no more.
    pub(crate) missed: bool,
    /// Number of drives that have all of it, and the least that is safe.
    pub(crate) complete: usize,
    pub(crate) enough: usize,
}

impl Kept {
    /// Notes from when on changes are at too few drives.
    pub(crate) fn note(&mut self, standing: Standing, now_ms: u64) {
        if standing.missed {
            self.behind_since_ms.get_or_insert(now_ms);
        } else if standing.whole && standing.complete >= standing.enough {
            self.behind_since_ms = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_behind_while_changes_are_missed_however_many_have_the_stream() {
        let good = Standing { whole: true, missed: false, complete: 2, enough: 2 };
        let mut kept = Kept::default();
        kept.note(Standing { missed: true, ..good }, 5);
        kept.note(Standing { missed: true, ..good }, 9);
        kept.note(Standing { whole: false, ..good }, 9);
        kept.note(Standing { complete: 1, ..good }, 9);
        assert_eq!(kept.behind_since_ms, Some(5));
        kept.note(good, 9);
        assert_eq!(kept.behind_since_ms, None);
    }
}
