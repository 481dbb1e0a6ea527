//! State of a handle that writes: its lease, and its writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use braid_layout::DriveId;
use tokio::sync::RwLock;

use crate::data::joined::Joins;
use crate::data::recent::{AllRecent, Recent};
use crate::data::stamps::Stamps;
use crate::data::stripes::Stripes;
use crate::error::{Error, Result};

/// The state of a handle that writes.
#[derive(Debug)]
pub(crate) struct WriteSide {
    pub(crate) stamps: Stamps,
    pub(crate) stripes: Stripes,
    /// Small writes that wait for stripes.
    pub(crate) joins: Joins,
    /// Content of the stripes that are being written part by part.
    pub(crate) recent: Recent,
    /// Reason for which the lease was lost; unset while it is not.
    pub(crate) lost: std::sync::OnceLock<String>,
    /// True if the end of the lease was requested: the answer to that tells what became of the lease.
    ending: AtomicBool,
    /// The drive that refused a write because it is full, if any.
    pub(crate) full: std::sync::OnceLock<DriveId>,
    /// Held by writes (shared) until they are acknowledged, and by changes of the size (exclusive). If a
    /// write ended during a cut, its bytes beyond the new size would be removed; and a place at the end that
    /// was reserved before the cut is given to others after it.
    pub(crate) cuts: RwLock<()>,
}

impl WriteSide {
    pub(crate) fn new(stamps: Stamps, all: &Arc<AllRecent>) -> WriteSide {
        WriteSide {
            stamps,
            stripes: Stripes::default(),
            joins: Joins::default(),
            recent: all.of_handle(),
            lost: std::sync::OnceLock::new(),
            ending: AtomicBool::new(false),
            full: std::sync::OnceLock::new(),
            cuts: RwLock::default(),
        }
    }

    /// Records that the end of the lease is requested.
    pub(crate) fn ends(&self) {
        self.ending.store(true, Ordering::Release);
    }

    /// Records that the manager says that the lease is over. Returns true if the lease is lost. A lease whose
    /// end was requested is not: then this answer only came before the answer to that request. Only the first
    /// loss is recorded.
    pub(crate) fn is_over(&self, why: String) -> bool {
        let is_lost = !self.ending.load(Ordering::Acquire);
        if is_lost {
            let _ = self.lost.set(why);
        }
        is_lost
    }

    /// Fails if the handle may not write.
    pub(crate) fn check(&self, subject: &str) -> Result<()> {
        if let Some(why) = self.lost.get() {
            return Err(Error::LeaseLost { file: subject.to_owned(), why: why.clone() });
        }
        match self.stamps.broken() {
            Some(why) => Err(Error::Unfinished { file: subject.to_owned(), why }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use braid_layout::{Generation, Lease};

    use super::*;
    use crate::data::stamps::EarlierWrites;

    #[test]
    fn a_lease_that_is_given_up_is_not_lost() {
        let side =
            || WriteSide::new(Stamps::new(Lease(1), Generation(1), 0, EarlierWrites::None), &Arc::default());
        let lost = side();
        let ended = side();
        assert!(lost.is_over("not renewed".to_owned()) && lost.check("f").is_err());
        ended.ends();
        assert!(!ended.is_over("not renewed".to_owned()) && ended.check("f").is_ok());
    }
}
