//! Requests that the committer expects to come soon: from the writers that it has just answered. A commit costs a sync, however many
//! it is for, so that it pays to wait a little for those whose next request is on its way.

use std::time::{Duration, Instant};

/// About what it takes to go to sleep and be woken: longer the committer does not look for requests.
const WAKING: Duration = Duration::from_micros(50);
/// Who comes within so many times the patience after its end is late, and who comes later is somebody else.
const LATE: u32 = 4;
/// Two to this power is the most commits without hope between two with it.
const SKIPS_BITS_MAX: u32 = 5;
/// A wait was in vain if more than this part of those who were hoped for did not come.
const MISSING_PART: usize = 4;

/// For how many, and how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hope {
    /// How many are still to come.
    pub(crate) count: usize,
    /// So long the committer looks for them again and again, and lets others have the processor in between,
    pub(crate) looks_until: Instant,
    /// and so long it waits for them.
    pub(crate) until: Instant,
    patience: Duration,
}

impl Hope {
    /// For those who were answered at `now` and those who wait already, with less patience than a sync of its own for the late ones
    /// would take.
    pub(crate) fn new(count: usize, patience: Duration, now: Instant) -> Hope {
        Hope { count, looks_until: now + patience.min(WAKING), until: now + patience, patience }
    }

    /// For none.
    pub(crate) fn none() -> Hope {
        Hope::new(0, Duration::ZERO, Instant::now())
    }

    /// The first have come. If that took their writer longer than there was patience, but not much longer, the others are right
    /// behind: what took so long was to wake it.
    pub(crate) fn begin(&mut self, came: usize, now: Instant) {
        if came > 0 && now < self.until + LATE * self.patience {
            *self = Hope::new(self.count, self.patience, now);
        }
        self.come(came);
    }

    /// So many more have come.
    pub(crate) fn come(&mut self, came: usize) {
        self.count = self.count.saturating_sub(came);
    }
}

/// Whether there is hope at all: not everybody who was answered asks again at once. After a wait in vain the next commit is made
/// without one, after a second the next two, and so on.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    /// So many commits are made without a wait.
    skips: u32,
    /// Waits in vain since one that was not.
    disappointed: u32,
}

impl Trust {
    /// Of `hoped` requests `missing` did not come.
    pub(crate) fn learn(&mut self, hoped: usize, missing: usize) {
        if missing <= hoped / MISSING_PART {
            self.disappointed = 0;
        } else {
            self.skips = 1 << self.disappointed;
            self.disappointed = (self.disappointed + 1).min(SKIPS_BITS_MAX);
        }
    }

    /// Whether to wait before the next commit.
    pub(crate) fn may_hope(&mut self) -> bool {
        let skips = self.skips;
        self.skips = skips.saturating_sub(1);
        skips == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_late_is_followed_by_others_and_who_is_very_late_is_not() {
        let (now, patience) = (Instant::now(), Duration::from_micros(30));
        for (after, hopes_on) in [(10, true), (149, true), (150, false)] {
            let mut hope = Hope::new(5, patience, now);
            let came = now + Duration::from_micros(after);
            hope.begin(2, came);
            assert_eq!((hope.count, hope.until > came), (3, hopes_on), "after {after} us");
        }
        let mut hope = Hope::none();
        hope.begin(1, Instant::now());
        assert!(hope.count == 0 && hope.until <= Instant::now());
    }

    #[test]
    fn waits_in_vain_become_rare() {
        let mut trust = Trust::default();
        let skipped = |trust: &mut Trust| {
            std::iter::repeat_with(|| trust.may_hope()).take_while(|hopes| !hopes).count()
        };
        let mut all = Vec::new();
        for _ in 0..8 {
            all.push(skipped(&mut trust));
            trust.learn(7, 2);
        }
        assert_eq!(all, [0, 1, 2, 4, 8, 16, 32, 32]);
        assert_eq!(skipped(&mut trust), 32);
        trust.learn(7, 1);
        assert_eq!(skipped(&mut trust), 0);
        trust.learn(7, 7);
        assert_eq!(skipped(&mut trust), 1, "one that was not in vain makes up for all before");
    }
}
