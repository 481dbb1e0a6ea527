//! Modules of users, by commands: stored, run by the drives in processes of their own, and refused.

use std::fs;

use crate::support::Cluster;

/// The module of the tests of `braid-wasm`: the lines that begin with the parameter `first`.
const SEVENS: &str = include_str!("../../../wasm/tests/modules/sevens.wat");

#[test]
fn a_module_is_stored_and_the_drives_run_it_where_the_volume_lets_them() {
    let cluster = Cluster::up(3);
    let module = cluster.file("sevens.wasm");
    fs::write(&module, wat::parse_str(SEVENS).expect("good text")).expect("written");
    let log = cluster.file("log");
    fs::write(&log, "1 one\n7 seven\n8 eight\n".repeat(50_000)).expect("written");
    cluster.put(&log, "braid://main/log");
    let file = module.display();
    let hash = cluster.line(&format!("module put {file} braid://main")).ok().text().trim().to_owned();
    cluster.line(&format!("stat braid://main/.modules/{hash}.wasm")).ok();

    let asked = format!("run wasm braid://main/log module={hash} first=7");
    let said = cluster.line(&format!("{asked} --at drive"));
    assert!(said.code != 0 && said.err.contains("--methods wasm"), "{}", said.err);
    cluster.line("volume set main --methods wasm").ok();
    let said = cluster.line("volume ls --json").ok();
    assert!(said.text().contains("\"wasm\""), "{}", said.text());
    let ran = cluster.line(&format!("{asked} --at drive --json")).ok().json();
    assert_eq!(ran["text"].as_str().expect("a text"), "7 seven\n".repeat(50_000));
    assert_eq!(ran["bytes_at_drives"], ran["bytes"], "{ran}");
    let here = cluster.line(&format!("run wasm braid://main/log module={file} first=8 --at client")).ok();
    assert_eq!(here.text(), "8 eight\n".repeat(50_000));

    let failed = cluster.line(&format!("run wasm braid://main/log module={hash} --at drive"));
    assert!(failed.code != 0 && failed.err.contains("it says: give first=BYTE"), "{}", failed.err);
    let nothing = cluster.line(&format!("module put {} braid://main", log.display()));
    assert!(nothing.code != 0 && nothing.err.contains("log"), "{}", nothing.err);
    let count = cluster.line("run count braid://main/log --at drive").ok();
    assert!(count.text().starts_with("150000 records"), "{}", count.text());
}
