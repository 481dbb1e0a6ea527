//! `--check`: the values that a start would have, each with where it comes from. The output is a
//! configuration file that says the same.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory};
use serde::Serialize;

use super::keys::{Keys, is_list, is_number, name_of};
use super::{Expanded, leaf, raw, relax};
use crate::args::Cli;
use crate::output::exit::{Doing, Failure};
use crate::output::report::Report;

/// A value and its origin.
#[derive(Debug, Serialize, PartialEq, Eq)]
struct Effective {
    /// The value as TOML writes it; `None`: not given.
    value: Option<String>,
    from: String,
}

/// Prints the values of a command line that has been found right.
pub(crate) fn print(expanded: &Expanded, report: Report) -> Result<(), Failure> {
    let values = values(expanded)?;
    report.facts(&values, shown)
}

/// The values as text, for tests.
#[cfg(test)]
pub(super) fn text(expanded: &Expanded) -> Result<String, Failure> {
    values(expanded).map(|values| shown(&values))
}

fn shown(values: &BTreeMap<String, Effective>) -> String {
    let line = |(key, Effective { value, from }): (&String, &Effective)| match value {
        Some(value) => format!("{key} = {value}  # {from}\n"),
        None => format!("# {key} is {from}\n"),
    };
    values.iter().map(line).collect()
}

fn values(expanded: &Expanded) -> Result<BTreeMap<String, Effective>, Failure> {
    let Some(serving) = expanded.serving else { return Ok(BTreeMap::new()) };
    let definition = relax(Cli::command(), serving.path);
    let parse = |words: &[OsString]| definition.clone().try_get_matches_from(words);
    let matches = parse(&expanded.words).map_err(std::io::Error::other);
    let matches = matches.doing(|| "check the configuration".into())?;
    let Some(leaf) = leaf(&matches, serving.path) else { return Ok(BTreeMap::new()) };
    let keys = Keys::of(&definition, serving);
    let one = |name: String| {
        let arg = keys.arg(&name)?;
        Some((name, effective(expanded, leaf, arg)))
    };
    Ok(keys.names().filter_map(one).collect())
}

fn effective(expanded: &Expanded, leaf: &ArgMatches, arg: &clap::Arg) -> Effective {
    let id = arg.get_id().as_str();
    let written = |text: &String| match text.parse::<u64>() {
        Ok(number) if is_number(arg) => number.to_string(),
        _ if !arg.get_action().takes_values() => text.clone(),
        _ => toml::Value::from(text.as_str()).to_string(),
    };
    let values: Vec<String> = raw(leaf, id).iter().map(written).collect();
    let value = match values.as_slice() {
        [] => None,
        values if is_list(arg) => Some(format!("[{}]", values.join(", "))),
        values => values.first().cloned(),
    };
    let from = match (expanded.origins.get(id), leaf.value_source(id)) {
        (Some(origin), _) => origin.to_string(),
        (None, Some(ValueSource::CommandLine)) => format!("--{}", name_of(arg)),
        (None, Some(_)) => "default".to_owned(),
        (None, None) => "not given".to_owned(),
    };
    Effective { value, from }
}
