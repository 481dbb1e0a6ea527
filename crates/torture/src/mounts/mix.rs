//! What programs on mounts do, and what is demanded of them, in words: `sound` or `all`, and then words that
//! are added with `+` and taken away with `-`.

use std::fmt;
use std::str::FromStr;

/// What programs on mounts do, and what is demanded of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mix {
    /// `names`: names are removed and moved.
    pub(crate) names: bool,
    /// `live`: an open file is there until it is closed, whoever removes it.
    pub(crate) live: bool,
    /// `readers`: a descriptor that only reads syncs what others of its mount have written.
    pub(crate) readers: bool,
    /// `data`: fdatasync and O_DSYNC, of which others know at once.
    pub(crate) data: bool,
    /// `direct`: O_DIRECT, of which some writes complete while the program does something else.
    pub(crate) direct: bool,
    /// `suspends`: hosts of mounts are suspended.
    pub(crate) suspends: bool,
    /// `sizes`: a file is never longer than it may be.
    pub(crate) sizes: bool,
    /// `locks`: records of a file that all write are locked, read and written.
    pub(crate) locks: bool,
    /// `cuts`: files are truncated.
    pub(crate) cuts: bool,
    /// `at-once`: others see what has changed at once, and not a second later.
    pub(crate) at_once: bool,
}

impl Mix {
    const NOTHING: Mix = Mix {
        names: false,
        live: false,
        readers: false,
        data: false,
        direct: false,
        suspends: false,
        sizes: false,
        locks: false,
        cuts: false,
        at_once: false,
    };

    /// The words, with what each stands for.
    fn words(&mut self) -> [(&'static str, &mut bool); 10] {
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
        ]
    }

    /// Everything.
    pub fn all() -> Mix {
        let mut mix = Mix::NOTHING;
        mix.words().into_iter().for_each(|(_, is_in)| *is_in = true);
        mix
    }

    /// What is known to hold.
    pub fn sound() -> Mix {
        Mix { locks: false, ..Mix::all() }
    }

    /// How much later than at once others must see what has changed.
    pub(crate) fn slack_ms(self) -> u64 {
        if self.at_once { 0 } else { 1000 }
    }

    fn set(&mut self, word: &str, to: bool) -> Result<(), String> {
        let known = self.words().map(|(word, _)| word).join(", ");
        let found = self.words().into_iter().find(|(one, _)| *one == word);
        let (_, is_in) = found.ok_or_else(|| format!("{word:?} is none of {known}"))?;
        *is_in = to;
        Ok(())
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sound")?;
        let (mut mix, mut sound) = (*self, Mix::sound());
        for ((word, is_in), (_, is_sound)) in mix.words().into_iter().zip(sound.words()) {
            match (*is_in, *is_sound) {
                (true, false) => write!(f, "+{word}")?,
                (false, true) => write!(f, "/{word}")?,
                _ => {}
            }
        }
        Ok(())
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Mix, String> {
        let is_sign = |byte: char| byte == '+' || byte == '/';
        let end = text.find(is_sign).unwrap_or(text.len());
        let mut mix = match &text[..end] {
            "sound" => Mix::sound(),
            "all" => Mix::all(),
            other => return Err(format!("{other:?} is neither sound nor all")),
        };
        let mut rest = &text[end..];
        while let Some(sign) = rest.chars().next() {
            let to = rest[1..].find(is_sign).map_or(rest.len(), |at| at + 1);
            mix.set(&rest[1..to], sign == '+')?;
            rest = &rest[to..];
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
        check("sound", Mix::sound());
        check("all", Mix::all());
        check("sound+at-once+locks/names", Mix { at_once: true, locks: true, names: false, ..Mix::sound() });
        check("all/live/direct", Mix { live: false, direct: false, ..Mix::all() });
        for strange in ["", "some", "sound+some", "sound+", "all//live"] {
            assert!(strange.parse::<Mix>().is_err(), "{strange}");
        }
    }
}
