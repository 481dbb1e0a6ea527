//! The pauses of a log after its disk failed repeatedly: longer each time, so that a dead disk is not flooded
//! with segments.

use std::time::{Duration, Instant};

use crate::error::Error;

/// The first pause. Each further one is twice as long.
const REST_MIN: Duration = Duration::from_secs(1);
/// The longest pause.
const REST_MAX: Duration = Duration::from_secs(60);

/// The pauses since the last commit that succeeded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rest {
    until: Option<Instant>,
    length: Duration,
    is_for_good: bool,
}

impl Rest {
    /// A pause that does not end.
    pub(crate) fn for_good() -> Rest {
        Rest { is_for_good: true, ..Rest::default() }
    }

    /// Begins the next pause and returns its length.
    pub(crate) fn begin(&mut self) -> Duration {
        self.length = (self.length * 2).clamp(REST_MIN, REST_MAX);
        self.until = Some(Instant::now() + self.length);
        self.length
    }

    /// Returns an error during the pause. After the pause one more segment may be tried.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.until {
            _ if self.is_for_good => Err(Error::Failed),
            Some(until) if Instant::now() < until => Err(Error::Resting),
            _ => Ok(()),
        }
    }

    /// Ends the pause now.
    #[cfg(test)]
    pub(crate) fn cut_short(&mut self) {
        self.until = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_up_to_a_bound_and_end() {
        let mut rest = Rest::default();
        assert!(rest.check().is_ok());
        let lengths: Vec<u64> = (0..8).map(|_| rest.begin().as_secs()).collect();
        assert_eq!(lengths, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert!(matches!(rest.check(), Err(Error::Resting)));
        rest.cut_short();
        assert!(rest.check().is_ok());
        assert!(matches!(Rest::for_good().check(), Err(Error::Failed)));
    }
}
