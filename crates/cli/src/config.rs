//! The configuration of a serving process: one TOML file per process, whose keys are its command's flags.
//!
//! What: `manager serve`, `drive serve` and `mount` take their flags from the command line, then from a file
//! (`--config`, or the default one if it is there), then from what an earlier start in the same directory
//! remembered ([`told`]), and last from their defaults. The first that has a flag wins.
//!
//! How: the command's own definition (clap) says which keys there are and what each may hold ([`keys`]). What
//! the files have is put into the command line as flags before it is parsed, so a new flag is in the file
//! without more work, and no value escapes the parser of its flag.

pub(crate) mod effective;
mod keys;
pub(crate) mod told;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory};

use crate::args::Cli;
use crate::output::exit::{Doing, Failure};
use told::Told;

/// A command that serves until it is stopped.
#[derive(Debug)]
pub(crate) struct Serving {
    /// The words that name it.
    path: &'static [&'static str],
    /// The file that it reads if no other is named.
    file: &'static str,
    /// Flags that a directory remembers.
    remembers: &'static [&'static str],
    /// Those of them that never change.
    fixed: &'static [&'static str],
    /// Flags of the whole program that concern it.
    global: &'static [&'static str],
}

const SERVING: &[Serving] = &[
    Serving {
        path: &["manager", "serve"],
        file: "/etc/braid/manager.toml",
        remembers: &["listen", "advertise", "lost-after", "state", "etcd-ca", "etcd-certificate", "etcd-key"],
        fixed: &[],
        global: &[],
    },
    Serving {
        path: &["drive", "serve"],
        file: "/etc/braid/drive.toml",
        remembers: &["listen", "advertise", "host", "rack", "capacity"],
        fixed: &["rack"],
        global: &[],
    },
    Serving {
        path: &["mount"],
        file: "/etc/braid/mount.toml",
        remembers: &[],
        fixed: &[],
        global: &["cluster", "volume-key", "transport"],
    },
];

/// The memory of a manager's start that no file and no flag of `manager serve` describes.
pub(crate) fn told_of_manager(dir: &Path, listen: &str, advertise: Option<&str>) -> Result<Told, Failure> {
    let remembers = SERVING.first().map_or(&[] as &[&str], |serving| serving.remembers);
    let mut told = Told::read(dir, remembers)?;
    told.set("listen", vec![listen.to_owned()]);
    match advertise {
        Some(advertise) => told.set("advertise", vec![advertise.to_owned()]),
        None => told.forget("advertise"),
    }
    Ok(told)
}

/// The place that a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A line of a configuration file.
    File { path: PathBuf, line: usize },
    /// An earlier start in the same directory.
    Told,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Told => f.write_str("remembered"),
        }
    }
}

/// A command line with what its files say.
#[derive(Debug, Default)]
pub(crate) struct Expanded {
    pub(crate) words: Vec<OsString>,
    /// The command, if it is one that serves.
    pub(crate) serving: Option<&'static Serving>,
    /// The origin of each flag that is not from the command line, by clap's identity of it.
    pub(crate) origins: BTreeMap<String, Origin>,
    /// The directory's memory of this start and of earlier ones.
    pub(crate) told: Told,
}

impl Expanded {
    /// The configuration file that has a part of the words, if there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.origins.values().find_map(|origin| match origin {
            Origin::File { path, .. } => Some(path.as_path()),
            Origin::Told => None,
        })
    }
}

/// Adds to the words of a command what its configuration says. The words of other commands, and those that
/// clap refuses, stay as they are.
pub(crate) fn expand(words: Vec<OsString>) -> Result<Expanded, Failure> {
    expand_with(words, |serving| PathBuf::from(serving.file))
}

fn expand_with(
    words: Vec<OsString>,
    default_file: impl Fn(&Serving) -> PathBuf,
) -> Result<Expanded, Failure> {
    let unchanged = |words| Expanded { words, ..Expanded::default() };
    let Some(found) = find(&words) else { return Ok(unchanged(words)) };
    let serving = found.serving;
    let definition = relax(Cli::command(), serving.path);
    // Help, and words that are wrong: the program's own parser says so.
    let Ok(matches) = definition.clone().try_get_matches_from(&words) else { return Ok(unchanged(words)) };
    let Some(leaf) = leaf(&matches, serving.path) else { return Ok(unchanged(words)) };
    let mut layers = Layers {
        keys: keys::Keys::of(&definition, serving),
        leaf,
        options: Vec::new(),
        names: BTreeMap::new(),
        origins: BTreeMap::new(),
        values: BTreeMap::new(),
    };
    let mut told = Told::default();
    if !leaf.get_flag("no_config") {
        let named = leaf.get_one::<PathBuf>("config");
        let path = named.cloned().unwrap_or_else(|| default_file(serving));
        match std::fs::read_to_string(&path) {
            Ok(text) => layers.file(&path, &text)?,
            Err(error) if named.is_none() && error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).doing(|| format!("read the configuration {}", path.display())),
        }
        if let Some(dir) = layers.value("dir") {
            told = Told::read(Path::new(&dir), serving.remembers)?;
            layers.remembered(&mut told, serving)?;
        }
    }
    let Layers { options, names, origins, .. } = layers;
    let mut words = words;
    words.splice(found.after..found.after, options);
    words.extend(names.into_values().flatten());
    Ok(Expanded { words, serving: Some(serving), origins, told })
}

/// The command that the words name, and the place after its name.
struct Found {
    serving: &'static Serving,
    after: usize,
}

fn find(words: &[OsString]) -> Option<Found> {
    let takes_value: Vec<String> = Cli::command()
        .get_arguments()
        .filter(|arg| arg.get_action().takes_values())
        .filter_map(|arg| arg.get_long().map(|long| format!("--{long}")))
        .collect();
    let mut named: Vec<&str> = Vec::new();
    let mut at = 1;
    while let Some(word) = words.get(at) {
        let word = word.to_str()?;
        at += 1;
        if takes_value.iter().any(|flag| flag == word) {
            at += 1;
        } else if !word.starts_with('-') {
            named.push(word);
            if let Some(serving) = SERVING.iter().find(|serving| serving.path == named) {
                return Some(Found { serving, after: at });
            }
            if !SERVING.iter().any(|serving| serving.path.starts_with(&named)) {
                return None;
            }
        }
    }
    None
}

/// The definition with nothing required of the command at `path`: what it lacks may come from a file.
fn relax(command: Command, path: &[&'static str]) -> Command {
    match path.split_first() {
        Some((first, rest)) => command.mut_subcommand(*first, |below| relax(below, rest)),
        None => command.mut_args(|arg| arg.required(false)),
    }
}

/// The part of the matches that is the command's own.
pub(crate) fn leaf<'a>(matches: &'a ArgMatches, path: &[&str]) -> Option<&'a ArgMatches> {
    path.iter().try_fold(matches, |above, name| {
        above.subcommand().filter(|(found, _)| found == name).map(|(_, below)| below)
    })
}

/// The values of one flag as they were written, if it was given at `source`.
pub(crate) fn raw(leaf: &ArgMatches, id: &str) -> Vec<String> {
    // `try_`: not every command has every flag.
    let values = leaf.try_get_raw(id).ok().flatten();
    values.into_iter().flatten().map(|value| value.to_string_lossy().into_owned()).collect()
}

/// All that is known so far, from the strongest layer to the weakest.
struct Layers<'a> {
    keys: keys::Keys,
    leaf: &'a ArgMatches,
    /// Words for flags.
    options: Vec<OsString>,
    /// Words for what is given by its place, by that place.
    names: BTreeMap<usize, Vec<OsString>>,
    origins: BTreeMap<String, Origin>,
    /// Values from files, by clap's identity of the flag.
    values: BTreeMap<String, Vec<String>>,
}

impl Layers<'_> {
    /// Takes from the text of a file what the command line does not say.
    fn file(&mut self, path: &Path, text: &str) -> Result<(), Failure> {
        for entry in self.keys.parse(path, text)? {
            if self.is_given(&entry.arg) || self.contradicts(&entry.arg) {
                continue;
            }
            self.add(&entry.arg, entry.value, Origin::File { path: path.to_owned(), line: entry.line });
        }
        Ok(())
    }

    /// Takes what an earlier start was told, and this one was not. Tells `told` what this start was told.
    fn remembered(&mut self, told: &mut Told, serving: &Serving) -> Result<(), Failure> {
        let args: Vec<Arg> = serving.remembers.iter().filter_map(|key| self.keys.arg(key)).cloned().collect();
        let moved = args.iter().any(|arg| arg.get_long() == Some("listen") && self.is_known(arg));
        for arg in args {
            let Some(key) = arg.get_long() else { continue };
            if self.is_known(&arg) {
                let now = self.given(&arg);
                if serving.fixed.contains(&key) {
                    told.must_be_same(key, &now)?;
                }
                told.set(key, now);
            } else if key == "advertise" && moved {
                // It belongs to the addresses that were told with it.
                told.forget(key);
            } else if let Some(before) = told.before(key) {
                let value = keys::Value::Texts(before.to_vec());
                self.keys.check(&arg, &value).map_err(|why| told.damaged(&why))?;
                self.add(&arg, value, Origin::Told);
            }
        }
        Ok(())
    }

    fn add(&mut self, arg: &Arg, value: keys::Value, origin: Origin) {
        let id = arg.get_id().to_string();
        let words = value.words(arg);
        if arg.is_positional() {
            self.names.insert(self.keys.place_of(arg), words);
        } else {
            self.options.extend(words);
        }
        self.origins.insert(id.clone(), origin);
        self.values.insert(id, value.texts());
    }

    /// Returns true if the command line has the flag.
    fn is_given(&self, arg: &Arg) -> bool {
        matches!(self.leaf.value_source(arg.get_id().as_str()), Some(ValueSource::CommandLine))
    }

    fn is_known(&self, arg: &Arg) -> bool {
        self.is_given(arg) || self.values.contains_key(arg.get_id().as_str())
    }

    fn given(&self, arg: &Arg) -> Vec<String> {
        let id = arg.get_id().as_str();
        match self.values.get(id) {
            Some(values) => values.clone(),
            None => raw(self.leaf, id),
        }
    }

    /// The value of a flag from the command line or a file.
    fn value(&self, key: &str) -> Option<String> {
        let arg = self.keys.arg(key)?;
        if self.is_known(arg) { self.given(arg).into_iter().next() } else { None }
    }

    /// Returns true if a flag of the command line excludes this one.
    fn contradicts(&self, arg: &Arg) -> bool {
        self.keys
            .excluded_by(arg)
            .iter()
            .any(|other| matches!(self.leaf.value_source(other.as_str()), Some(ValueSource::CommandLine)))
    }
}

#[cfg(test)]
mod tests;
