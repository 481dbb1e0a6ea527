//! What a server's directory remembers of its last start, in `told.toml`: a later start need not be told
//! again.
//!
//! Only where and what a server is, is remembered; how it works (rates, ways of sending) each start is told
//! anew. The file is written once the server serves, and only if something has changed.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::machine::cluster_dir::replace_file;
use crate::output::exit::{Doing, Exit, Failure};

/// The file's name in a server's directory.
const FILE: &str = "told.toml";
/// The first line of the file.
const HEADER: &str =
    "# What this server was told at its last start. Flags and its configuration file win over it.\n";

/// The memory of earlier starts, and what this start says.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    /// The file; `None`: nothing is remembered.
    path: Option<PathBuf>,
    before: BTreeMap<String, Vec<String>>,
    now: BTreeMap<String, Vec<String>>,
}

impl Told {
    /// Reads what the directory remembers of these flags.
    pub(super) fn read(dir: &Path, remembers: &[&str]) -> Result<Told, Failure> {
        if remembers.is_empty() {
            return Ok(Told::default());
        }
        let path = dir.join(FILE);
        let mut told = Told { path: Some(path.clone()), ..Told::default() };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(told);
            }
            Err(error) => return Err(error).doing(|| format!("read {}", path.display())),
        };
        let before: BTreeMap<String, Vec<String>> =
            toml::from_str(&text).map_err(|error| told.damaged(error.message()))?;
        // A later release may remember more.
        told.before = before.into_iter().filter(|(key, _)| remembers.contains(&key.as_str())).collect();
        told.now.clone_from(&told.before);
        Ok(told)
    }

    /// The failure of a file that nobody has written so.
    pub(super) fn damaged(&self, why: &str) -> Failure {
        let path = self.path.as_deref().unwrap_or(Path::new(FILE));
        Failure::new(Exit::Failed, format!("read {}", path.display()), why)
            .remedy("remove it, and give its flags once more")
    }

    /// The values that were told before under this key.
    pub(super) fn before(&self, key: &str) -> Option<&[String]> {
        self.before.get(key).map(Vec::as_slice)
    }

    /// Refuses another value of what a server is told once.
    pub(super) fn must_be_same(&self, key: &str, now: &[String]) -> Result<(), Failure> {
        if self.before.is_empty() {
            return Ok(()); // the first start that is remembered
        }
        let shown = |values: &[String]| format!("{:?}", values.join(", "));
        let before = self.before(key).unwrap_or_default();
        if shown(before) == shown(now) {
            return Ok(());
        }
        let path = self.path.as_deref().unwrap_or(Path::new(FILE));
        let why = format!(
            "{key} was {} when it joined, and never changes; this start says {}",
            shown(before),
            shown(now)
        );
        Err(Failure::new(Exit::Usage, format!("serve what remembers its start in {}", path.display()), why)
            .remedy(format!(
                "leave --{key} out; for another {key}, serve a new drive in a directory of its own and have it take the \
                 place of this one (braid drive replace OLD NEW)"
            )))
    }

    /// Notes what this start says.
    pub(super) fn set(&mut self, key: &str, values: Vec<String>) {
        self.now.insert(key.to_owned(), values);
    }

    /// Notes that what was told before is over.
    pub(super) fn forget(&mut self, key: &str) {
        self.now.remove(key);
    }

    /// All that this start says otherwise than the last: a line for each.
    pub(crate) fn changes(&self) -> Vec<String> {
        let shown = |values: Option<&Vec<String>>| values.map_or("not told".into(), |all| all.join(", "));
        let keys = self.before.keys().filter(|key| self.now.get(*key) != self.before.get(*key));
        keys.map(|key| {
            let was = shown(self.before.get(key));
            format!("{key} was {was} at the last start, and is {} now", shown(self.now.get(key)))
        })
        .collect()
    }

    /// Logs what has changed since the last start.
    pub(crate) fn log(&self) {
        for change in self.changes() {
            tracing::info!("{change}");
        }
    }

    /// Remembers what this start was told. The server serves whether or not that works.
    pub(crate) fn remember(&self) {
        let Some(path) = self.path.as_deref().filter(|_| self.now != self.before) else { return };
        let text = toml::to_string(&self.now).map_err(std::io::Error::other);
        let written = text.and_then(|text| replace_file(path, format!("{HEADER}{text}").as_bytes()));
        if let Err(error) = written {
            tracing::warn!(path = %path.display(), %error, "what was told at this start is not remembered");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &[&str] = &["host", "listen"];

    #[test]
    fn what_was_told_comes_back_and_changes_are_said() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = Told::read(dir.path(), KEYS).unwrap();
        assert_eq!(first.before("listen"), None);
        first.set("listen", vec!["a:1".into(), "b:1".into()]);
        first.set("host", vec!["a \"1\"".into()]);
        assert!(first.changes().is_empty(), "nothing was told before");
        first.remember();
        let mut second = Told::read(dir.path(), KEYS).unwrap();
        assert_eq!(second.before("listen"), Some(["a:1".to_owned(), "b:1".to_owned()].as_slice()));
        assert_eq!(second.before("host"), Some(["a \"1\"".to_owned()].as_slice()));
        assert!(second.changes().is_empty());
        second.set("listen", vec!["c:1".into()]);
        assert_eq!(second.changes(), ["listen was a:1, b:1 at the last start, and is c:1 now"]);
        second.forget("host");
        second.remember();
        assert_eq!(Told::read(dir.path(), KEYS).unwrap().before("host"), None);
    }

    #[test]
    fn a_damaged_file_is_named_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "host = 3\n").unwrap();
        let said = Told::read(dir.path(), KEYS).unwrap_err().to_string();
        assert!(said.contains(FILE) && said.contains("remove it"), "{said}");
    }
}
