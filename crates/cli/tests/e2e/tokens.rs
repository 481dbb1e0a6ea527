//! `braid token`, and what holders of tokens may do.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Child;

use crate::support::{Cluster, Said, braid, run, until};

/// Runs a command with the cluster file of a token.
fn with(file: &Path, args: &[&str]) -> Said {
    let mut command = braid();
    command.args(args).arg("--cluster").arg(file);
    run(command)
}

/// A process that ends with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn tokens_are_made_listed_used_and_revoked() {
    let cluster = Cluster::up(3);
    cluster.braid(["volume", "create", "media"]).ok();
    let local = cluster.make("local", 100_000, 1);
    let local = local.to_str().expect("text");
    cluster.braid(["cp", local, "braid://main/a"]).ok();
    let file = cluster.file("laptop.toml");
    let out = file.to_str().expect("text");
    let new =
        ["token", "new", "laptop", "--volumes", "main", "--read-only", "--expires", "30d", "--out", out];
    cluster.braid(new).ok();
    assert_eq!(fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
    cluster.braid(new).failed(4, "name a new file");

    // What it may, and what it may not.
    assert!(with(&file, &["ls", "braid://main"]).ok().text().contains('a'));
    let said = with(&file, &["volume", "ls"]).ok();
    assert!(said.text().contains("main") && !said.text().contains("media"), "{}", said.text());
    with(&file, &["cp", local, "braid://main/b"]).failed(6, "is read-only");
    with(&file, &["rm", "braid://main/a"]).failed(6, "without --read-only");
    with(&file, &["ls", "braid://media"]).failed(6, "not for this volume");
    with(&file, &["volume", "create", "more"]).failed(6, "is for admins");
    with(&file, &["token", "ls"]).failed(6, "is for admins");

    let listed = cluster.braid(["token", "ls", "--json"]).ok();
    let rows = listed.json();
    let row = rows.as_array().expect("rows").iter().find(|row| row["name"] == "laptop").expect("listed");
    assert_eq!(row["role"], "client");
    assert_eq!(row["state"], "valid");
    assert_eq!(row["volumes"], serde_json::json!(["main"]));
    assert_eq!(row["read_only"], true);
    let text = fs::read_to_string(&file).expect("read");
    let token = text.split("braid1.").nth(1).expect("a token");
    let secret = token.split('.').nth(3).expect("a secret");
    assert!(secret.len() == 64 && !listed.text().contains(secret), "no list shows a secret");

    cluster.braid(["token", "revoke", "laptop"]).ok();
    with(&file, &["ls", "braid://main"]).failed(6, "was revoked");
    assert!(cluster.braid(["token", "ls"]).ok().text().contains("revoked"));
}

#[test]
fn what_is_wrong_with_a_token_is_said_with_what_mends_it() {
    let cluster = Cluster::up(3);
    let said = cluster.braid(["token", "new", "alice"]).ok();
    let said = said.text();
    assert!(said.starts_with("braid1.client.") && said.lines().count() == 1, "{said}");
    cluster.braid(["token", "new", "alice"]).failed(4, "braid token revoke alice");
    cluster.braid(["token", "new", "b", "--volumes", "none"]).failed(3, "braid volume ls");
    cluster.braid(["token", "new", "b", "--expires", "soon"]).failed_with_output(2);
    cluster.braid(["token", "new", "b", "--role", "admin", "--read-only"]).failed(2, "clients' tokens");
    cluster.braid(["token", "revoke", "nobody"]).failed(3, "braid token ls");
    cluster.braid(["token", "revoke", "admin"]).failed(6, "braid token new NAME --role admin");

    // A token of another cluster, and one for drives.
    let mine = fs::read_to_string(cluster.dir().join("cluster.toml")).expect("read");
    let line = mine.lines().find(|line| line.starts_with("token")).expect("a token");
    let with_token = |name: &str, token: &str| {
        let path = cluster.file(name);
        fs::write(&path, mine.replace(line, &format!("token = \"{token}\""))).expect("written");
        path
    };
    let parts: Vec<&str> = said.trim().split('.').collect();
    let foreign = [parts[0], parts[1], &"0".repeat(64), parts[3], parts[4], parts[5]].join(".");
    with(&with_token("foreign.toml", &foreign), &["ls", "braid://main"]).failed(6, "another cluster");
    let drive = cluster.braid(["token", "new", "disk", "--role", "drive"]).ok();
    with(&with_token("drive.toml", drive.text().trim()), &["ls", "braid://main"])
        .failed(6, "braid token new NAME");

    // The drive's token is for one drive.
    let address = cluster.status()["manager"]["address"].as_str().expect("text").to_owned();
    let token = cluster.file("disk.token");
    fs::write(&token, drive.text()).expect("written");
    let token = token.to_str().expect("text");
    let serve = |dir: &str| {
        let mut command = braid();
        command.args([
            "drive",
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--no-calibration",
            "--token-file",
            token,
        ]);
        command.args(["--manager", &address]).env("BRAID_LOG", "off");
        command.arg("--dir").arg(cluster.file(dir));
        command
    };
    let mut first = Ends(serve("disk-1").spawn().expect("started"));
    until("the drive has joined", || cluster.braid(["token", "ls"]).ok().text().contains("used by disk-1"));
    run(serve("disk-2")).failed(6, "--role drive");
    first.0.kill().expect("stopped");
}
