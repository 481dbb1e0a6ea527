//! A drive leaves the cluster: drained, removed, and all files are there.

use crate::support::{Cluster, noise, until};

#[test]
fn a_drained_drive_is_removed_and_the_cluster_starts_without_it() {
    let cluster = Cluster::up(7);
    let file = cluster.make("f", 3 << 20, 1);
    for n in 0..5 {
        cluster.put(&file, &format!("braid://main/{n}"));
    }
    let leaver = cluster.columns("braid://main/0").remove(0);
    let refused = cluster.line(&format!("drive rm {leaver}"));
    assert!(refused.code != 0 && refused.err.contains("drain it first"), "{}", refused.err);
    let drained = cluster.line(&format!("drive drain {leaver} --wait --json")).ok().json();
    assert_eq!(
        (drained["components"].as_u64(), drained["drained"].as_bool()),
        (Some(0), Some(true)),
        "{drained}"
    );
    cluster.line("heal --watch").ok();
    let removed = cluster.line(&format!("drive rm {leaver} --json")).ok().json();
    assert_eq!(removed["stopped"], true, "{removed}");
    assert!(!cluster.line("drive ls").ok().text().contains(&format!("{leaver} ")));
    cluster.down().ok();
    cluster.start(&[]);
    until("all is well", || cluster.line("status").text().contains("\nall is well"));
    for n in 0..5 {
        assert!(!cluster.columns(&format!("braid://main/{n}")).contains(&leaver));
        assert!(cluster.cat(&format!("braid://main/{n}")) == noise(3 << 20, 1), "{n}");
    }
    cluster.line("check --all braid://main").ok();
}
