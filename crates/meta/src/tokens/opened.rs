//! The files that were opened with limited tokens lately: a file that loses its last name while it is open
//! stays open for those who had opened it by a name. What clients say of what they have open does not count.

use std::collections::{BTreeSet, VecDeque};

use braid_layout::{FileId, TokenId};

/// Maximum number of opens that are remembered; beyond it, the oldest are forgotten.
const OPENED_MAX: usize = 1 << 16;

/// Files with the tokens with which they were opened, since the manager's start.
#[derive(Debug, Default)]
pub struct OpenedWith {
    known: BTreeSet<(TokenId, FileId)>,
    /// The same, the oldest first.
    order: VecDeque<(TokenId, FileId)>,
}

impl OpenedWith {
    /// The file was opened with the token.
    pub fn note(&mut self, token: TokenId, file: FileId) {
        if !self.known.insert((token, file)) {
            return;
        }
        self.order.push_back((token, file));
        if self.order.len() > OPENED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Returns true if the file was opened with the token.
    pub fn has(&self, token: TokenId, file: FileId) -> bool {
        self.known.contains(&(token, file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_bounded_and_each_token_has_its_own() {
        let mut opened = OpenedWith::default();
        opened.note(TokenId(1), FileId(7));
        opened.note(TokenId(1), FileId(7));
        assert!(opened.has(TokenId(1), FileId(7)) && !opened.has(TokenId(2), FileId(7)));
        for file in 0..u64::try_from(OPENED_MAX).expect("small") {
            opened.note(TokenId(2), FileId(file));
        }
        assert!(!opened.has(TokenId(1), FileId(7)) && opened.has(TokenId(2), FileId(7)));
        assert_eq!((opened.known.len(), opened.order.len()), (OPENED_MAX, OPENED_MAX));
    }
}
