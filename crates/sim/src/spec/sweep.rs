//! Sweeps: one spec run again and again with other values of some keys.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::{Spec, SpecError};

/// Most points of all sweeps together.
const POINTS_MAX: usize = 10_000;

/// A key and the values to run with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// Key from the top, such as `load.0.rate`; a number is an index in a list.
    pub key: String,
    /// Values that the key is set to.
    pub values: Vec<Value>,
}

/// A kind of spec that can have sweeps.
pub trait Swept: Serialize + DeserializeOwned {
    /// Sweeps that the spec has.
    fn sweeps(&self) -> &[Sweep];

    /// Checks the whole spec.
    fn check(&self) -> Result<(), SpecError>;
}

impl Swept for Spec {
    fn sweeps(&self) -> &[Sweep] {
        &self.sweep
    }

    fn check(&self) -> Result<(), SpecError> {
        self.check_all()
    }
}

/// One combination of values, and the spec with them.
#[derive(Debug, Clone, PartialEq)]
pub struct Point<S = Spec> {
    /// Each sweep's key and value.
    pub values: Vec<(String, Value)>,
    /// The spec to run.
    pub spec: S,
}

/// The points of a spec: one for each combination of its sweeps' values, in which the last sweep's values
/// change fastest. `text` is the text that the spec was read from.
pub fn points<S: Swept>(text: &str, spec: &S) -> Result<Vec<Point<S>>, SpecError> {
    let count = spec.sweeps().iter().map(|sweep| sweep.values.len()).try_fold(1, usize::checked_mul);
    if count.is_none_or(|count| count == 0 || count > POINTS_MAX) {
        let error = SpecError::new("sweep", format!("a sweep has 1 to {POINTS_MAX} points"));
        return Err(error.find_line(text));
    }
    let mut combinations: Vec<Vec<(String, Value)>> = vec![Vec::new()];
    for sweep in spec.sweeps() {
        let with = |before: &Vec<(String, Value)>| {
            let before = before.clone();
            let each = sweep.values.iter().map(move |value| (sweep.key.clone(), value.clone()));
            each.map(move |one| before.iter().cloned().chain([one]).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        combinations = combinations.iter().flat_map(with).collect();
    }
    let table = Table::try_from(spec).expect("a spec was read from a table");
    combinations.into_iter().map(|values| point(&table, values).map_err(|e| e.find_line(text))).collect()
}

fn point<S: Swept>(table: &Table, values: Vec<(String, Value)>) -> Result<Point<S>, SpecError> {
    let mut table = table.clone();
    table.remove("sweep");
    let shown: Vec<String> = values.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    let shown = shown.join(", ");
    for (index, (key, value)) in values.iter().enumerate() {
        set(&mut table, key, value.clone())
            .ok_or_else(|| SpecError::new(format!("sweep.{index}.key"), format!("there is no key {key}")))?;
    }
    let spec = Value::Table(table).try_into::<S>().map_err(|error| {
        SpecError::new("sweep", format!("with {shown}: {}", error.message().trim_end().replace('\n', "; ")))
    })?;
    spec.check().map_err(|error| SpecError::new("sweep", format!("with {shown}: {error}")))?;
    Ok(Point { values, spec })
}

/// Sets a key. The tables and lists that it leads through must exist, the key itself need not. Returns
/// `None` if one is missing.
fn set(table: &mut Table, key: &str, value: Value) -> Option<()> {
    let Some((first, rest)) = key.split_once('.') else {
        table.insert(key.to_owned(), value);
        return Some(());
    };
    let mut inner = table.get_mut(first)?;
    let mut rest = rest;
    loop {
        match inner {
            Value::Table(table) => return set(table, rest, value),
            Value::Array(list) => {
                let (index, after) = rest.split_once('.')?;
                inner = list.get_mut(index.parse::<usize>().ok()?)?;
                rest = after;
            }
            _ => return None,
        }
    }
}
