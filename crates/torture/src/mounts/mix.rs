//! The work of programs on mounts, and the demands on the mounts, in words: `all`, and then words that are
//! taken away with `/`.

use std::fmt;
use std::str::FromStr;

/// The work of programs on mounts, and the demands on the mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mix {
    /// `names`: names are removed and moved.
    pub(crate) names: bool,
    /// `live`: an open file exists until it is closed, whoever removes it.
    pub(crate) live: bool,
    /// `readers`: a descriptor that only reads syncs the writes of others on its mount.
    pub(crate) readers: bool,
    /// `data`: fdatasync and O_DSYNC, whose effect others see at once.
    pub(crate) data: bool,
    /// `direct`: O_DIRECT, where some writes complete while the program does something else.
    pub(crate) direct: bool,
    /// `suspends`: hosts of mounts are suspended.
    pub(crate) suspends: bool,
    /// `sizes`: a file is never longer than it may be.
    pub(crate) sizes: bool,
    /// `locks`: records of a file that all programs write are locked, read and written.
    pub(crate) locks: bool,
    /// `cuts`: files are truncated.
    pub(crate) cuts: bool,
    /// `at-once`: others see changes at once, not a second later.
    pub(crate) at_once: bool,
    /// `quota`: some volumes have a quota that is too small.
    pub(crate) quota: bool,
    /// `restores`: at the end some managers are put back to a backup, while a drive is away.
    pub(crate) restores: bool,
}

impl Mix {
    /// The words, each with its flag.
    fn words(&mut self) -> [(&'static str, &mut bool); 12] {
        [
            ("names", &mut self.names),
            ("live", &mut self.live),
            ("readers", &mut self.readers),
            ("data", &mut self.data),
            ("direct", &mut self.direct),
            ("suspends", &mut self.suspends),
            ("sizes", &mut self.sizes),
            ("locks", &mut self.locks),
            ("cuts", &mut self.cuts),
            ("at-once", &mut self.at_once),
            ("quota", &mut self.quota),
            ("restores", &mut self.restores),
        ]
    }

    pub fn all() -> Mix {
        Mix {
            names: true,
            live: true,
            readers: true,
            data: true,
            direct: true,
            suspends: true,
            sizes: true,
            locks: true,
            cuts: true,
            at_once: true,
            quota: true,
            restores: true,
        }
    }

    /// Delay after which others must see a change; 0: at once.
    pub(crate) fn slack_ms(self) -> u64 {
        if self.at_once { 0 } else { 1000 }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("all")?;
        let mut mix = *self;
        let missing = mix.words().into_iter().filter(|(_, is_in)| !**is_in);
        missing.map(|(word, _)| word).try_for_each(|word| write!(f, "/{word}"))
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Mix, String> {
        let mut mix = Mix::all();
        let mut parts = text.split('/');
        if parts.next() != Some("all") {
            return Err(format!("{text:?} does not begin with all"));
        }
        for part in parts {
            let known = mix.words().map(|(word, _)| word).join(", ");
            let found = mix.words().into_iter().find(|(word, _)| *word == part);
            *found.ok_or_else(|| format!("{part:?} is none of {known}"))?.1 = false;
        }
        Ok(mix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_what_its_words_say() {
        let check = |text: &str, expected: Mix| {
            assert_eq!(text.parse(), Ok(expected), "{text}");
            assert_eq!(expected.to_string().parse(), Ok(expected), "{expected}");
        };
        check("all", Mix::all());
        check("all/live/direct", Mix { live: false, direct: false, ..Mix::all() });
        for strange in ["", "some", "all/some", "all+live", "all//live"] {
            assert!(strange.parse::<Mix>().is_err(), "{strange}");
        }
    }
}
