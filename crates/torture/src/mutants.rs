//! The mutants: changes of the source, each of which switches off one mechanism. The list is `mutants.txt`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// One change of the source, in one or more places.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mutant {
    pub name: String,
    /// Invariants that the mutant breaks, and rule that it switches off.
    pub breaks: String,
    /// Mix of programs on mounts that should find the mutant; `None`: clients should.
    pub mounts: Option<String>,
    places: Vec<MutantPlace>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct MutantPlace {
    file: String,
    old: String,
    new: String,
}

/// All mutants of the workspace at `root`.
pub fn mutants(root: &Path) -> io::Result<Vec<Mutant>> {
    let text = fs::read_to_string(root.join("crates/torture/mutants.txt"))?;
    parse(&text).map_err(|why| io::Error::other(format!("mutants.txt: {why}")))
}

impl Mutant {
    /// The changed files, by path, with their new text. Returns an error if the old text of a place does
    /// not occur exactly once.
    pub fn applied(&self, root: &Path) -> io::Result<BTreeMap<String, String>> {
        let mut changed: BTreeMap<String, String> = BTreeMap::new();
        for place in &self.places {
            let text = match changed.get(&place.file) {
                Some(text) => text.clone(),
                None => fs::read_to_string(root.join(&place.file))?,
            };
            let count = text.matches(&place.old).count();
            if count != 1 {
                let what = format!("{}: {} has this {count} times:\n{}", self.name, place.file, place.old);
                return Err(io::Error::other(what));
            }
            changed.insert(place.file.clone(), text.replacen(&place.old, &place.new, 1));
        }
        Ok(changed)
    }
}

fn parse(text: &str) -> Result<Vec<Mutant>, String> {
    let mut all: Vec<Mutant> = Vec::new();
    let mut file = String::new();
    let mut before = ' ';
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
        if key == "mutant" {
            let (name, breaks) = rest.split_once(" : ").ok_or_else(|| format!("no reason: {line}"))?;
            let name = name.to_owned();
            let breaks = breaks.to_owned();
            all.push(Mutant { name, breaks, ..Mutant::default() });
        } else if key == "file" {
            file = rest.to_owned();
        } else if key == "mounts" {
            let mutant = all.last_mut().ok_or_else(|| format!("before the first mutant: {line}"))?;
            mutant.mounts = Some(rest.to_owned());
        } else {
            let mutant = all.last_mut().ok_or_else(|| format!("before the first mutant: {line}"))?;
            let begins = key == "-" && before != '-';
            if begins {
                mutant.places.push(MutantPlace { file: file.clone(), ..MutantPlace::default() });
            }
            let place = mutant.places.last_mut().ok_or_else(|| format!("nothing goes before: {line}"))?;
            match key {
                "-" => place.old += &format!("{rest}\n"),
                "+" => place.new += &format!("{rest}\n"),
                _ => return Err(format!("neither mutant, file, mounts, - nor +: {line}")),
            }
        }
        before = key.chars().next().unwrap_or(' ');
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::Mix;

    #[test]
    fn each_mutant_still_applies() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let all = mutants(&root).unwrap();
        assert!(all.len() > 10);
        for mutant in all {
            let changed = mutant.applied(&root).unwrap();
            assert!(!changed.is_empty(), "{}", mutant.name);
            let mix = mutant.mounts.as_deref().map(str::parse::<Mix>);
            assert!(!matches!(mix, Some(Err(_))), "{}: {mix:?}", mutant.name);
        }
    }
}
