//! A rebuild that could not be done is no success, and the status shows what is at risk.

use crate::support::{Cluster, noise, until};

#[test]
fn a_drive_that_is_away_is_at_risk_and_its_rebuild_is_refused() {
    let cluster = Cluster::up(4);
    let file = cluster.make("f", 3 << 20, 1);
    cluster.put(&file, "braid://main/before");
    let well = cluster.line("status").ok();
    assert!(well.text().contains("\nall is well"), "{}", well.text());

    cluster.kill_drive("drive-2");
    // The drive's lease has not lapsed yet, so it still counts as up.
    cluster.line("rebuild drive-2").failed(8, "rebuild drive-2: it ");
    until("it counts as away", || cluster.line("drive ls").ok().text().contains(" away "));
    let refused = cluster.line("rebuild drive-2");
    refused.failed(8, "it is away");
    assert!(refused.err.contains("drive replace drive-2 NEW"), "{}", refused.err);
    let status = cluster.line("status");
    status.failed(13, "1 of 4 drives at risk");
    assert!(status.text().contains("at risk: drive-2 is away"), "{}", status.text());
    let facts = cluster.status();
    assert_eq!((facts["well"].as_bool(), facts["risks"][0]["kind"].as_str()), (Some(false), Some("away")));
    assert_eq!(facts["risks"][0]["count"], 1, "{facts}");
    let managers = &facts["managers"];
    assert!(managers[0]["leads"] == true && managers[0]["address"] == facts["manager"]["address"], "{facts}");
    assert!(
        managers.as_array().is_some_and(|all| all.len() == 1) && facts["members"] == serde_json::json!([])
    );

    // A file written meanwhile is not on the drive, which comes back stale.
    cluster.put(&file, "braid://main/meanwhile");
    // No command is needed: the drive catches up by itself.
    cluster.start(&[]);
    until("it has caught up", || cluster.line("status").text().contains("\nall is well"));
    until("the drive has said so", || {
        let healed = cluster.line("heal --json").ok().json();
        healed["drives"][0]["drive"] == "drive-2" && healed["drives"][0]["files"] == 1
    });
    let rebuilt = cluster.line("rebuild --json drive-2").ok().json();
    assert_eq!(rebuilt["files_left"].as_u64(), Some(0));
    assert!(cluster.line("status").ok().text().contains("\nall is well"));
    assert!(cluster.cat("braid://main/meanwhile") == noise(3 << 20, 1));
}
