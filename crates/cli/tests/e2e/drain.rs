//! A drive leaves the cluster: it is drained and removed, and all files are still there.

use crate::support::{Cluster, noise, runs, until};

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
    let again = cluster.line(&format!("drive drain {leaver} --wait --json")).ok().json();
    assert_eq!((again["components"].as_u64(), again["was_drained"].as_bool()), (Some(0), Some(true)));
    let status = cluster.line("status").ok();
    let hint = format!("drained: {leaver} holds no column: `braid drive rm {leaver}`\n");
    assert!(status.text().contains("\nall is well") && status.text().contains(&hint), "{}", status.text());
    let rows = cluster.line("drive ls").ok();
    assert!(rows.text().lines().any(|row| row.starts_with(&leaver) && row.contains(" drained ")));
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
    // The name of the removed drive is not used again: its directory is still there.
    let added = cluster.line("drive add --json").ok().json();
    let name = added["drive"].as_str().expect("a name");
    assert!(name != leaver && runs(cluster.drive_pid(name)), "{added}");
    cluster.start(&["--drives", "8"]);
    assert!(runs(cluster.drive_pid("drive-9")));
}

#[test]
fn a_drain_can_be_undone_and_balancing_switched_off_and_on() {
    let cluster = Cluster::up(6);
    let file = cluster.make("f", 1 << 20, 1);
    cluster.put(&file, "braid://main/f");
    let wide = cluster.line("drive drain drive-1");
    let drained = wide.code == 0;
    let undone = cluster.line("drive drain drive-1 --undo --json").ok().json();
    assert_eq!(
        (undone["drained"].as_bool(), undone["was_drained"].as_bool()),
        (Some(false), Some(drained)),
        "{undone}"
    );
    let nothing = cluster.line("drive drain drive-1 --undo").ok();
    assert!(nothing.text().starts_with("drive-1 was not being drained: "), "{}", nothing.text());
    let off = cluster.line("rebalance --off --json").ok().json();
    assert_eq!((off["on"].as_bool(), off["active"].as_bool()), (Some(false), Some(false)), "{off}");
    let text = cluster.line("rebalance").ok().text().to_owned();
    assert!(text.starts_with("off: columns stay where they are"), "{text}");
    let on = cluster.line("rebalance --on --watch --json").ok().json();
    assert_eq!(on["on"], true, "{on}");
    assert_eq!(cluster.line("heal --json").ok().json()["balance"]["on"], true);
    let both = cluster.line("rebalance --on --off");
    assert!(both.code != 0 && both.err.contains("--off"), "{}", both.err);
    assert!(cluster.cat("braid://main/f") == noise(1 << 20, 1));
}

#[test]
fn a_paused_drive_is_told_of_also_after_a_restart_of_the_manager() {
    let cluster = Cluster::up(2);
    cluster.line("drive pause drive-2 --for 2h").ok();
    let paused = |cluster: &Cluster| {
        let status = cluster.status();
        let rows = status["drives"].as_array().expect("a list").clone();
        rows.iter().map(|row| row["paused_ms"].as_u64().expect("a number")).collect::<Vec<_>>()
    };
    let rows = paused(&cluster);
    assert!(rows[0] == 0 && (1..=7_200_000).contains(&rows[1]), "{rows:?}");
    assert!(cluster.line("status").ok().text().contains("paused: drive-2 is not taken to be lost"));
    cluster.restart_manager();
    assert!(paused(&cluster)[1] > 0, "it is stored");
    cluster.line("drive resume drive-2").ok();
    assert_eq!(paused(&cluster), [0, 0]);
    cluster.line("drive pause drive-2 --for 25h").failed(1, "at most 24 h");
    cluster.line("drive pause nobody").failed(3, "nobody");
}
