//! The keys of a configuration file: the flags of one command, and what each may hold.
//!
//! What: a text becomes a list of flags with their values, or an error that names the file, the line and, for
//! a key that does not exist, the nearest one that does.
//!
//! How: clap's definition of a flag says whether it is a switch, one value or a list, and whether that is a
//! number. A value is then tried on the flag's own parser.

use std::any::TypeId;
use std::ffi::OsString;
use std::path::Path;

use clap::{Arg, ArgAction, Command};
use toml::de::{DeTable, DeValue};

use super::Serving;
use crate::output::exit::{Exit, Failure};

/// Flags that make no sense in a file.
const NEVER: &[&str] = &["config", "no_config", "check"];

/// The keys of one command's file.
pub(super) struct Keys {
    definition: Command,
    path: &'static [&'static str],
    args: Vec<Arg>,
    command: Command,
}

/// One key of a file.
pub(super) struct Entry {
    pub(super) arg: Arg,
    pub(super) value: Value,
    pub(super) line: usize,
}

/// A value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Switch(bool),
    /// One text for most flags, several for those that may be repeated.
    Texts(Vec<String>),
}

impl Value {
    /// The value as words of a command line.
    pub(super) fn words(&self, arg: &Arg) -> Vec<OsString> {
        let word = |text: &String| match arg.get_long() {
            Some(long) => format!("--{long}={text}").into(),
            None => text.into(),
        };
        match (self, arg.get_long()) {
            (Value::Switch(true), Some(long)) => vec![format!("--{long}").into()],
            (Value::Switch(_), _) => Vec::new(),
            (Value::Texts(texts), _) => texts.iter().map(word).collect(),
        }
    }

    pub(super) fn texts(self) -> Vec<String> {
        match self {
            Value::Switch(on) => vec![on.to_string()],
            Value::Texts(texts) => texts,
        }
    }
}

impl Keys {
    /// The keys of a command, by the program's definition with nothing required.
    pub(super) fn of(definition: &Command, serving: &Serving) -> Keys {
        let below = |above: &'_ Command, name: &str| above.find_subcommand(name).cloned().unwrap_or_default();
        let command = serving.path.iter().fold(definition.clone(), |above, name| below(&above, name));
        let is_key = |arg: &&Arg| !arg.is_hide_set() && !NEVER.contains(&arg.get_id().as_str());
        let global = definition
            .get_arguments()
            .filter(|arg| arg.get_long().is_some_and(|long| serving.global.contains(&long)));
        let args = command.get_arguments().filter(is_key).chain(global).cloned().collect();
        Keys { definition: definition.clone(), path: serving.path, args, command }
    }

    /// The flag of this key.
    pub(super) fn arg(&self, key: &str) -> Option<&Arg> {
        self.args.iter().find(|arg| {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            name_of(arg) == key || aliases.contains(&key)
        })
    }

    /// The place of a key among all.
    pub(super) fn place_of(&self, arg: &Arg) -> usize {
        self.args.iter().take_while(|other| other.get_id() != arg.get_id()).count()
    }

    /// All names that a file may use.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.args.iter().map(name_of)
    }

    /// Identities of the flags that cannot be given together with this one.
    pub(super) fn excluded_by(&self, arg: &Arg) -> Vec<String> {
        let own = self.command.get_arguments().any(|other| other.get_id() == arg.get_id());
        if !own {
            return Vec::new();
        }
        let conflicts = |of: &Arg| -> Vec<String> {
            self.command.get_arg_conflicts_with(of).iter().map(|other| other.get_id().to_string()).collect()
        };
        let mut excluded = conflicts(arg);
        let back = |other: &&Arg| conflicts(other).iter().any(|id| id == arg.get_id().as_str());
        excluded.extend(self.command.get_arguments().filter(back).map(|other| other.get_id().to_string()));
        excluded
    }

    /// Reads a file's text.
    pub(super) fn parse(&self, path: &Path, text: &str) -> Result<Vec<Entry>, Failure> {
        let wrong = |line: usize, why: &str| {
            let what = format!("read the configuration {}, line {line}", path.display());
            Failure::new(Exit::Usage, what, why)
        };
        let line_at = |at: usize| 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
        let table = DeTable::parse(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_at(span.start));
            wrong(line, error.message())
        })?;
        let mut entries: Vec<Entry> = Vec::new();
        for (key, value) in table.into_inner() {
            let line = line_at(key.span().start);
            let key = key.into_inner();
            let Some(arg) = self.arg(&key) else { return Err(wrong(line, &self.unknown(&key))) };
            let value = value_of(arg, value.get_ref())
                .ok_or_else(|| wrong(line, &format!("{key} must be {}", expected(arg))))?;
            if entries.iter().any(|other| other.arg.get_id() == arg.get_id()) {
                return Err(wrong(
                    line,
                    &format!("{key} is there twice: it is also called {}", name_of(arg)),
                ));
            }
            self.check(arg, &value).map_err(|why| wrong(line, &why))?;
            entries.push(Entry { arg: arg.clone(), value, line });
        }
        entries.sort_by_key(|entry| entry.line);
        Ok(entries)
    }

    /// Tries a value on the parser of its flag.
    pub(super) fn check(&self, arg: &Arg, value: &Value) -> Result<(), String> {
        let words = std::iter::once("braid").chain(self.path.iter().copied()).map(OsString::from);
        let words = words.chain(value.words(arg));
        match self.definition.clone().try_get_matches_from(words) {
            Ok(_) => Ok(()),
            Err(error) => {
                let said = error.to_string();
                let first = said.lines().next().unwrap_or_default();
                Err(first.strip_prefix("error: ").unwrap_or(first).to_owned())
            }
        }
    }

    fn unknown(&self, key: &str) -> String {
        let nearest = self.names().min_by_key(|name| distance(name, &key.replace('_', "-")));
        let nearest = nearest.map(|name| format!("; the nearest key is {name}")).unwrap_or_default();
        format!("{key:?} is no key of `braid {}`{nearest}", self.path.join(" "))
    }
}

/// The name of a flag's key.
pub(super) fn name_of(arg: &Arg) -> String {
    match arg.get_long() {
        Some(long) => long.to_owned(),
        None => arg.get_id().as_str().replace('_', "-"),
    }
}

/// Returns true if the flag may be repeated.
pub(super) fn is_list(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

fn is_switch(arg: &Arg) -> bool {
    !arg.get_action().takes_values()
}

/// Returns true if the flag holds a number, also one that may be written with a unit.
pub(super) fn is_number(arg: &Arg) -> bool {
    let id = arg.get_value_parser().type_id();
    [TypeId::of::<u64>(), TypeId::of::<u32>(), TypeId::of::<u16>()].into_iter().any(|number| id == number)
}

fn value_of(arg: &Arg, value: &DeValue<'_>) -> Option<Value> {
    let one = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if is_number(arg) => {
            u64::from_str_radix(number.as_str(), number.radix()).ok().map(|number| number.to_string())
        }
        _ => None,
    };
    match value {
        DeValue::Boolean(on) if is_switch(arg) => Some(Value::Switch(*on)),
        _ if is_switch(arg) => None,
        DeValue::Array(values) if is_list(arg) => {
            values.iter().map(|value| one(value.get_ref())).collect::<Option<_>>().map(Value::Texts)
        }
        value => one(value).map(|text| Value::Texts(vec![text])),
    }
}

fn expected(arg: &Arg) -> &'static str {
    if is_switch(arg) {
        "true or false"
    } else if is_list(arg) {
        "a text in quotes, or a list of such texts"
    } else if is_number(arg) {
        "a number from 0 on, or a text in quotes"
    } else {
        "a text in quotes"
    }
}

/// The number of letters to insert, remove or change to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = (0..=b.len()).collect();
    for (row, letter) in a.chars().enumerate() {
        let mut now = vec![row + 1];
        for (column, other) in b.iter().enumerate() {
            let change = before[column] + usize::from(letter != *other);
            now.push(change.min(before[column + 1] + 1).min(now[column] + 1));
        }
        before = now;
    }
    before.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_counts_letters() {
        for (a, b, expected) in
            [("", "", 0), ("listen", "listen", 0), ("listen", "lisen", 1), ("rack", "", 4)]
        {
            assert_eq!(distance(a, b), expected, "{a} {b}");
            assert_eq!(distance(b, a), expected, "{b} {a}");
        }
        assert_eq!(distance("rack", "host"), 4);
    }
}
