//! Comparisons of columns with their successors that are under way.

use std::collections::BTreeMap;

use braid_layout::version::Lease;
use braid_layout::{DriveId, FileId, Generation};

use crate::records::schema::InodeRecord;

/// Maximum number of comparisons kept for one file's successors on one drive: the last ones that began. A
/// process that dies leaves its comparison here.
const KEPT_MAX: usize = 8;

/// The comparisons of successors under way that began while the file was not leased. In memory only: a
/// comparison that is not known here does not count, and is begun again.
///
/// Two processes of a drive may compare the same columns: one that was thought to be gone, and the one in its
/// place. Each comparison is judged by its own beginning.
#[derive(Debug, Default)]
pub struct Comparisons(BTreeMap<(DriveId, FileId), Vec<Comparison>>);

/// A comparison by one process of a drive of its successors of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Comparison {
    number: u64,
    g: Generation,
    /// The file's last lease, which was over when the comparison began.
    lease: Lease,
}

impl Comparisons {
    /// Notes that the drive begins a comparison, under this number.
    pub fn begin(&mut self, at: (DriveId, FileId), number: u64, inode: &InodeRecord) {
        let begun = Comparison { number, g: inode.g, lease: inode.lease };
        let kept = self.0.entry(at).or_default();
        // Other comparisons that began in an earlier state of the file do not count any more. One of this
        // number stays: then this is a repeat of its beginning, perhaps a late one.
        kept.retain(|known| known.number == number || (known.g, known.lease) == (begun.g, begun.lease));
        let is_new = kept.iter().all(|known| known.number != number);
        if number != 0 && !inode.held && is_new {
            if kept.len() == KEPT_MAX {
                kept.remove(0);
            }
            kept.push(begun);
        }
        if kept.is_empty() {
            self.0.remove(&at);
        }
    }

    /// Takes the result that the drive has found no difference. Returns true if nothing can have been written
    /// since the comparison began.
    pub fn end(&mut self, at: (DriveId, FileId), number: u64, inode: &InodeRecord) -> bool {
        let Some(kept) = self.0.get_mut(&at) else { return false };
        let now = Comparison { number, g: inode.g, lease: inode.lease };
        let undisturbed = kept.contains(&now) && !inode.held;
        kept.retain(|known| known.number != number);
        if kept.is_empty() {
            self.0.remove(&at);
        }
        undisturbed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: (DriveId, FileId) = (DriveId(1), FileId(2));

    fn inode(g: u32, lease: u32, held: bool) -> InodeRecord {
        let blank = crate::records::schema::directory_record(Default::default(), FileId(0), Vec::new(), 0);
        InodeRecord { g: Generation(g), lease: Lease(lease), held, ..blank }
    }

    #[test]
    fn a_comparison_counts_if_nobody_can_have_written_since_it_began() {
        // A drive begins under its number, or asks for new capabilities on the way (number 0).
        let ends = |steps: &[(u64, (u32, u32, bool))], end: (u32, u32, bool)| {
            let mut comparisons = Comparisons::default();
            for &(number, (g, lease, held)) in steps {
                comparisons.begin(AT, number, &inode(g, lease, held));
            }
            comparisons.end(AT, 7, &inode(end.0, end.1, end.2))
        };
        let free = (1, 5, false);
        assert!(ends(&[(7, free)], free));
        assert!(ends(&[(7, free), (0, free)], free), "new capabilities on the way");
        assert!(ends(&[(7, free), (7, free)], free), "a repeat");
        assert!(!ends(&[(0, free)], free), "the manager has restarted on the way");
        assert!(!ends(&[], free), "the manager has restarted");
        assert!(!ends(&[(7, free)], (1, 6, false)), "a writer has come and gone");
        assert!(!ends(&[(7, free)], (1, 6, true)), "a writer is there");
        assert!(!ends(&[(7, (1, 5, true))], free), "a writer was there");
        assert!(!ends(&[(7, (1, 5, true)), (0, free)], free), "a writer was there at first");
        assert!(!ends(&[(7, free), (0, (1, 6, false))], (1, 6, false)), "one came in between");
        assert!(!ends(&[(7, free), (7, (1, 6, false))], (1, 6, false)), "a repeat that came late");
        assert!(!ends(&[(7, free)], (2, 5, false)), "the generation has risen");
        assert!(!ends(&[(8, free)], free), "of another process");
        assert!(ends(&[(8, (1, 4, false)), (7, free)], free), "beside one that began too early");
        assert!(!ends(&[(7, (1, 4, false)), (8, free)], free), "beside one that began later");
    }

    #[test]
    fn few_comparisons_of_one_file_are_kept() {
        let mut comparisons = Comparisons::default();
        (1..=20).for_each(|number| comparisons.begin(AT, number, &inode(1, 5, false)));
        assert_eq!(comparisons.0[&AT].len(), KEPT_MAX);
        assert!(comparisons.end(AT, 20, &inode(1, 5, false)), "the last ones");
        // Comparisons that began in an earlier state make room.
        comparisons.begin(AT, 30, &inode(2, 5, false));
        assert_eq!(comparisons.0[&AT].len(), 1);
        assert!(comparisons.end(AT, 30, &inode(2, 5, false)) && comparisons.0.is_empty());
    }
}
