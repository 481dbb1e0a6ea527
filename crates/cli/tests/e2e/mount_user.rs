//! A mount of a user who is not root.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use crate::mount::is_mounted;
use crate::support::{Cluster, run, said, signal, until};

/// User id and group id of `nobody`.
const NOBODY: u32 = 65534;

#[test]
fn a_user_mounts_by_the_helper_or_is_told_what_it_takes() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: becoming another user takes root");
    }
    let cluster = Cluster::up(5);
    cluster.line("chown 65534:65534 braid://main/").ok();
    // Copies of what that user needs, in a place that it may read.
    let place = tempfile::Builder::new().prefix("braid-test-").tempdir().expect("a directory");
    let path = |name: &str| place.path().join(name);
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).expect("set");
    fs::copy(env!("CARGO_BIN_EXE_braid"), path("braid")).expect("copied");
    fs::copy(cluster.dir().join("cluster.toml"), path("cluster.toml")).expect("copied");
    fs::create_dir(path("at")).expect("made");
    for name in ["cluster.toml", "at"] {
        chown(path(name), Some(NOBODY), Some(NOBODY)).expect("given");
    }
    let nobody = |args: &[&Path]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).args(args);
        command.env("BRAID_CLUSTER", path("cluster.toml"));
        command
    };
    let braid = path("braid");
    let at = path("at");
    let mut mounting = nobody(&[&braid, Path::new("mount"), Path::new("braid://main"), &at]);
    let Ok(device) = fs::metadata("/dev/fuse") else { return eprintln!("skipped: no /dev/fuse here") };
    let has_helper = Command::new("fusermount3").arg("--version").output().is_ok();
    if device.mode() & 0o006 != 0o006 || !has_helper {
        return run(mounting).failed(6, "fusermount3 and a /dev/fuse that all may open");
    }
    let child = mounting.spawn().expect("started");
    until("it is mounted", || is_mounted(&at));
    let file = at.join("f");
    assert!(nobody(&[Path::new("touch"), &file]).status().expect("run").success());
    let listed = cluster.line("ls -l braid://main").ok();
    assert!(listed.text().contains("65534") || listed.text().contains("nobody"), "{}", listed.text());
    assert!(fs::metadata(&file).is_err(), "others have no part in it, not even root");
    signal(child.id(), "INT");
    let ended = said(crate::support::finish(child));
    assert_eq!((ended.code, is_mounted(&at)), (0, false), "{}", ended.err);
}
