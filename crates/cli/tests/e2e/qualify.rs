//! What all drives do together: measured, kept, shown, and bounding what is admitted.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::reserve::calibrated;
use crate::support::{Cluster, finish, said, until};

fn rows(cluster: &Cluster) -> Vec<Value> {
    cluster.line("drive ls --cost --json").ok().json().as_array().expect("a list").clone()
}

/// Names of what is in the volume, and the number of files that the cluster has.
fn files(cluster: &Cluster) -> (String, Value) {
    (cluster.line("ls braid://main").ok().text().to_owned(), cluster.status()["files"].clone())
}

#[test]
fn the_whole_is_measured_kept_and_bounds_what_is_admitted() {
    let cluster = calibrated(3);
    assert!(cluster.line("drive ls --cost").ok().text().contains("all together: not measured"));
    let before = files(&cluster);

    // The rates are those of a busy machine: --force takes them, whatever they are.
    let facts = cluster.line("bench qualify --seconds 1 --files 4 --force --json").ok().json();
    assert_eq!(
        (&facts["kept"], &facts["refused"], &facts["files"]),
        (&true.into(), &"".into(), &4.into()),
        "{facts}"
    );
    assert_eq!(facts["drives"], serde_json::json!(["drive-1", "drive-2", "drive-3"]), "{facts}");
    for way in ["read", "write"] {
        let of = |field: &str| facts[way][field].as_u64().unwrap_or_else(|| panic!("{way} {field}: {facts}"));
        assert!(of("file_bytes_per_second") > 0 && of("parts_bytes_per_second") > 0);
        assert!(of("bytes_per_second") >= of("file_bytes_per_second"), "{facts}");
    }
    assert_eq!(files(&cluster), before, "nothing is left of its files");
    let row = rows(&cluster)[0].clone();
    assert_eq!(row["qualified"]["drives"], 3, "{row}");
    let share = |row: &Value, way: &str| row["qualified"][way].as_u64().expect("a rate");
    assert_eq!(share(&row, "read_bytes_per_second"), facts["read"]["bytes_per_second"].as_u64().unwrap() / 3);
    let shown = cluster.line("drive ls --cost").ok();
    assert!(
        shown.text().contains("with 3 drives") && !shown.text().contains("measure again"),
        "{}",
        shown.text()
    );

    // Told rates are kept likewise, bound what is admitted, and outlive the manager.
    cluster.line("bench qualify --read 3MB/s --write 3MB/s --force").ok();
    cluster.restart_manager();
    until("the manager has heard from all drives", || {
        cluster.status()["drives"].as_array().expect("a list").iter().all(|drive| drive["state"] == "up")
    });
    assert_eq!(share(&rows(&cluster)[0], "write_bytes_per_second"), 1_000_000);
    let said = cluster.line("reserve --json braid://main/x --write 2MB/s --for 1m");
    said.failed_with_output(15);
    assert!(
        said.json()["refused"]["resource"].as_str().expect("text").contains("qualified rate"),
        "{}",
        said.text()
    );
    cluster.line("bench qualify --read 9GB/s --write 3MB/s").failed(1, "by their own parts");
    cluster.line("bench qualify --read 100kB/s --write 3MB/s").failed(1, "10 times");
    assert_eq!(share(&rows(&cluster)[0], "write_bytes_per_second"), 1_000_000, "the last good one stays");

    // Not beside reservations, nor without a drive; and not without a volume.
    cluster.line("reserve braid://main/x --write 200kB/s --for 1h").ok();
    cluster.line("bench qualify --seconds 1").failed(7, "1 reservation in force");
    cluster.line("reserve rm braid://main/x").ok();
    cluster.line("bench qualify --seconds 1 --volume none").failed(3, "none");
    for wrong in ["--seconds 0", "--files 0", "--read 1MB/s", "--forget --force", "extra"] {
        assert_eq!(cluster.line(&format!("bench qualify {wrong}")).code, 2, "{wrong}");
    }

    interrupted(&cluster);
    assert_eq!(files(&cluster), before, "nothing is left of its files");

    cluster.line("bench qualify --forget").ok();
    assert!(rows(&cluster)[0]["qualified"].is_null());
    cluster.kill_drive("drive-2");
    until("the manager knows", || cluster.line("bench qualify --seconds 1 --dry-run").code == 8);
}

/// Ctrl-C while files are written.
fn interrupted(cluster: &Cluster) {
    let mut command = cluster.command(["bench", "qualify", "--seconds", "600"]);
    let child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    until("its files are there", || {
        cluster.status()["drives"]
            .as_array()
            .expect("a list")
            .iter()
            .any(|drive| drive["components"].as_u64() > Some(0))
    });
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("sent");
    assert!(sent.success());
    said(finish(child)).failed(130, "interrupted");
    until("they are gone", || {
        cluster.status()["drives"].as_array().expect("a list").iter().all(|drive| drive["components"] == 0)
    });
}
