//! Completions and man pages: generated without a cluster, and not empty.

use std::fs;

use crate::support::{Cluster, braid, run};

#[test]
fn completions_and_man_pages_are_made() {
    for shell in ["bash", "zsh", "fish"] {
        let mut command = braid();
        command.args(["completions", shell]);
        let script = run(command).ok();
        assert!(script.text().contains("braid") && script.text().lines().count() > 50, "{shell}");
    }
    let place = Cluster::nowhere();
    let mut command = braid();
    command.arg("man").arg(place.file("man1"));
    run(command).ok();
    for page in ["braid.1", "braid-cp.1", "braid-volume-create.1"] {
        assert!(fs::read_to_string(place.file("man1").join(page)).expect(page).starts_with(".ie"), "{page}");
    }
}
