//! docs/sim.md lists all keys of a spec and no others, and its examples run.

use std::collections::BTreeSet;

use braid_sim::model::{DiskModel, LinkModel, ProcessorModel};
use braid_sim::model::{Distribution, Preset, names};
use braid_sim::outcome::Ending;
use braid_sim::promises::PromisesSpec;
use braid_sim::spec::{Reserved, Size};
use braid_sim::units::{Bytes, Rate, Span};
use braid_sim::{Spec, run, trace};
use toml::Value;

const DOCUMENT: &str = include_str!("../../../../docs/sim.md");
const CLUSTER: &str = include_str!("../../../../docs/sim/cluster.toml");
const PROMISES: &str = include_str!("../../../../docs/sim/promises.toml");
const TRACE: &str = include_str!("../../../../docs/sim/trace.toml");
const ENTRIES: &str = include_str!("../../../../docs/sim/trace.csv");

/// Adds all keys inside a value to `found`.
fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Table(table) => {
            for (key, inner) in table {
                found.insert(key.clone());
                keys(inner, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|inner| keys(inner, found)),
        _ => {}
    }
}

/// A spec in which every optional key is set.
fn full() -> Spec {
    let text = format!("{CLUSTER}\n[[sweep]]\nkey = \"seed\"\nvalues = [1]\n");
    let mut spec = Spec::parse(&text).expect("the example");
    spec.cluster.rail_percents = vec![100];
    spec.parts.disk.write_seek = Some(Distribution::ZERO);
    spec.parts.disk.queue = Some(1);
    spec.parts.link.queue = Some(Bytes(1 << 20));
    spec.parts.link.client_rate = Some(Rate(1.0));
    spec.parts.link.bucket = Some(Bytes(1));
    for processor in [&mut spec.parts.client, &mut spec.parts.drive] {
        processor.parity = Some(Rate(1.0));
        processor.checksum = Some(Rate(1.0));
    }
    let load = &mut spec.load[0];
    load.outstanding = Some(1);
    load.trace = Some("x".to_owned());
    load.align = Some(Bytes(1));
    load.deadline = Some(Span(1));
    load.size = toml::from_str::<std::collections::BTreeMap<String, Size>>(
        "size = [{ size = \"4K\", weight = 1.0 }]",
    )
    .expect("sizes")
    .remove("size")
    .expect("it is there");
    spec
}

/// A spec of promises in which every optional key is set.
fn promises() -> PromisesSpec {
    let mut spec = PromisesSpec::parse(PROMISES).expect("the example");
    let class = &mut spec.stream[0];
    class.peak = Some(Rate(1e9));
    class.scheme = Some("rs".to_owned());
    class.width = Some(6);
    class.unit = Some(Bytes(1 << 20));
    spec
}

#[test]
fn every_key_is_documented_and_no_other() {
    let mut known = BTreeSet::new();
    keys(&Value::try_from(full()).expect("a table"), &mut known);
    let promises = Value::try_from(promises()).expect("a table");
    keys(&promises, &mut known);
    // The document explains distributions in the rows of the keys that have one.
    for word in ["constant", "uniform", "exponential"] {
        known.remove(word);
    }
    let documented: BTreeSet<String> = DOCUMENT
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once(" |"))
        .flat_map(|(keys, _)| keys.trim_end_matches('`').split("`, `"))
        .map(str::to_owned)
        .filter(|key| !key.starts_with('['))
        .collect();
    assert_eq!(documented, known);
}

#[test]
fn every_name_of_a_part_is_documented() {
    for list in [names::<DiskModel>(), names::<LinkModel>(), names::<ProcessorModel>()] {
        assert!(DOCUMENT.contains(&format!("| {list} |")), "{list}");
    }
    assert!(DiskModel::preset("hdd-18tb").is_some());
}

#[test]
fn the_example_of_a_cluster_runs() {
    let spec = Spec::parse(CLUSTER).expect("a spec");
    assert_eq!(spec.load[0].reserved, Reserved::All);
    let outcome = run(&spec, &[]);
    assert_eq!(outcome.ending, Ending::Settled, "{:?}", outcome.loads);
    assert!(outcome.bottleneck.is_some_and(|part| part.utilisation > 0.5));
}

#[test]
fn the_example_of_a_trace_runs() {
    let spec = Spec::parse(TRACE).expect("a spec");
    let outcome = run(&spec, &trace::parse(ENTRIES, &spec).expect("a trace"));
    assert_eq!(outcome.ending, Ending::Done);
    assert_eq!((outcome.loads[0].reads, outcome.loads[0].writes), (5, 2));
}
