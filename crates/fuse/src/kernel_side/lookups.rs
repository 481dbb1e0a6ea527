//! Number of times that the kernel was told of each file. The kernel reports how many of these it has
//! forgotten, and knows the file until that is all of them. It may be told once more while it is about to
//! forget the others.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use fuser::INodeNo;

/// The files that the kernel knows.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    files: Mutex<HashMap<u64, u64>>,
    forgotten: AtomicUsize,
}

impl Lookups {
    /// Counts that the kernel is about to be told of a file. `remember` records what is to be known of the
    /// file as long as the kernel knows it: nothing is forgotten meanwhile.
    pub(crate) fn told(&self, number: INodeNo, remember: impl FnOnce()) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        *files.entry(number.0).or_default() += 1;
        remember();
    }

    /// Counts that the kernel has forgotten `times` of its lookups of a file. If it no longer knows the file,
    /// `drop` drops the records of the file.
    pub(crate) fn forget(&self, number: INodeNo, times: u64, drop: impl FnOnce()) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = files.get_mut(&number.0) {
            *known = known.saturating_sub(times);
            if *known > 0 {
                return;
            }
            files.remove(&number.0);
            self.forgotten.fetch_add(1, Ordering::Relaxed);
        }
        drop();
    }

    /// Number of files that the kernel has ever forgotten.
    pub(crate) fn forgotten(&self) -> usize {
        self.forgotten.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_file_is_known_until_all_lookups_are_forgotten() {
        let lookups = Lookups::default();
        let file = INodeNo(7);
        let forgets = |file, times| {
            let mut is_forgotten = false;
            lookups.forget(file, times, || is_forgotten = true);
            is_forgotten
        };
        (0..3).for_each(|_| lookups.told(file, || ()));
        lookups.told(INodeNo(8), || ());
        assert!(!forgets(file, 2), "one was told meanwhile");
        assert!(forgets(file, 1) && forgets(INodeNo(8), 1));
        assert_eq!(lookups.forgotten(), 2);
        lookups.told(file, || ());
        assert!(forgets(file, 1), "it was found again");
    }

    /// The kernel forgets a file, and another of its threads looks the file up before all its records are
    /// dropped: the record of that lookup is of a file that the kernel knows, and must stay.
    #[test]
    fn what_is_put_down_for_a_lookup_is_not_dropped_by_a_forget_before_it() {
        let lookups = Lookups::default();
        let file = INodeNo(7);
        let records = Mutex::new(HashMap::from([(file.0, "old")]));
        let put = |what| records.lock().expect("no holder panics").insert(file.0, what);
        lookups.told(file, || ());
        std::thread::scope(|scope| {
            lookups.forget(file, 1, || {
                let (told, is_told) = std::sync::mpsc::channel();
                let lookups = &lookups;
                let put = &put;
                scope.spawn(move || {
                    lookups.told(file, || {
                        put("new");
                    });
                    let _ = told.send(());
                });
                // The lookup comes in between, if it can.
                let _ = is_told.recv_timeout(Duration::from_millis(100));
                records.lock().expect("no holder panics").remove(&file.0);
            });
        });
        assert_eq!(records.lock().expect("no holder panics").get(&file.0), Some(&"new"));
    }
}
