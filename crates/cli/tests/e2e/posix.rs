//! Public test suites on a mount: pjdfstest (names, attributes, permissions) and fsx (bytes of one file). The
//! Makefile installs both programs; a test that lacks them or the rights to run them prints that it was not
//! run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::mount::Mounted;
use crate::support::{Cluster, not_run, said};

/// Path of a suite's program, if it is installed.
fn suite(name: &str) -> Option<PathBuf> {
    let variable = "BRAID_POSIX_SUITES";
    let Some(directory) = std::env::var_os(variable) else {
        not_run(&format!("{variable} does not say where {name} is; `make posix` installs it"));
        return None;
    };
    let path = Path::new(&directory).join("bin").join(name);
    assert!(path.exists(), "{} is not there", path.display());
    Some(path)
}

fn is_root() -> bool {
    let uid =
        String::from_utf8(Command::new("id").arg("-u").output().expect("run").stdout).expect("a number");
    if uid.trim() != "0" {
        not_run("the suite needs to be root");
    }
    uid.trim() == "0"
}

/// A case that truncates a program that has just been started. The kernel has a mount truncate the file
/// before it checks that the file is being executed (docs/posix.md), so a program that is still being loaded
/// dies of it, and the file may then be opened. The result depends on timing: the case passes when the
/// truncation comes later.
const EARLY: &str = "open::etxtbsy";
const EARLY_TRIES: usize = 10;

/// Runs pjdfstest in a directory. It must say that no case failed, and how many passed.
fn pjdfstest(program: &Path, cluster: &Cluster, at: &Path) {
    let config = cluster.file("pjdfstest.toml");
    let features = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutime_now = {}\nutimensat = {}\n";
    let users = "[dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"games\", \"games\"]]\n";
    let settings = "[settings]\nnaptime = 0.01\nallow_remount = false\n";
    fs::write(&config, [features, settings, users].concat()).expect("written");
    fs::create_dir_all(at).expect("made");
    let run = |case: &[&str]| {
        let mut command = Command::new(program);
        command.arg("-c").arg(&config).arg("-p").arg(at).args(case).current_dir(at);
        said(command.output().expect("run"))
    };
    let said = run(&[]);
    let text = said.text();
    let failed: Vec<&str> = text.lines().filter(|line| line.ends_with("FAILED")).collect();
    let is_early = failed.len() == 1 && failed[0].starts_with(EARLY);
    if !(is_early && (0..EARLY_TRIES).any(|_| run(&[EARLY]).code == 0)) {
        assert!(said.code == 0 && failed.is_empty(), "{failed:?} {}", said.err);
    }
    let passed = text.lines().find_map(|line| line.split(", ").find_map(|part| part.strip_suffix(" passed")));
    let passed: u32 = passed.and_then(|number| number.parse().ok()).unwrap_or_default();
    assert!(passed >= 380, "{passed} passed");
}

#[test]
fn pjdfstest_passes_also_without_a_drive() {
    let Some(program) = suite("pjdfstest") else { return };
    if !is_root() {
        return;
    }
    let cluster = Cluster::up(6);
    let Some(mounted) = Mounted::with(&cluster, "braid://main", "mounted", &["--allow-other"]) else {
        return;
    };
    // Other users must be able to reach the mount.
    open_to_all(&mounted.at);
    pjdfstest(&program, &cluster, &mounted.at.join("all"));
    cluster.kill_drive("drive-3");
    pjdfstest(&program, &cluster, &mounted.at.join("degraded"));
    assert_eq!(mounted.end().code, 0);
}

/// Lets every user pass the directories above.
fn open_to_all(at: &Path) {
    use std::os::unix::fs::PermissionsExt;
    for above in at.ancestors().take_while(|above| above.starts_with(std::env::temp_dir())) {
        let mode = fs::metadata(above).expect("there").permissions().mode();
        fs::set_permissions(above, fs::Permissions::from_mode(mode | 0o055)).expect("set");
    }
}

#[test]
fn fsx_finds_no_byte_wrong_also_while_a_drive_dies() {
    let Some(program) = suite("fsx") else { return };
    let cluster = Cluster::up(6);
    let Some(mounted) = Mounted::new(&cluster, "braid://main") else { return };
    let run = |file: &str, seed: &str| {
        let mut command = Command::new(&program);
        command.args(["-N", "4000", "-S", seed]).arg(mounted.at.join(file));
        command
    };
    let healthy = said(run("a", "1").output().expect("run"));
    assert_eq!(healthy.code, 0, "{} {}", healthy.text(), healthy.err);
    let mut running = run("b", "2");
    let running = running.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let running = running.spawn().expect("started");
    cluster.kill_drive("drive-2");
    let degraded = said(running.wait_with_output().expect("ended"));
    assert_eq!(degraded.code, 0, "{} {}", degraded.text(), degraded.err);
    assert_eq!(mounted.end().code, 0);
}

#[test]
fn fsx_finds_no_byte_wrong_in_an_encrypted_volume() {
    let Some(program) = suite("fsx") else { return };
    let cluster = Cluster::up(4);
    let key = cluster.file("key");
    fs::write(&key, [7; 32]).expect("written");
    let key = key.to_str().expect("text");
    cluster.line(&format!("volume create secret --unit 4K --encrypt --key-file {key}")).ok();
    let told = format!("secret={key}");
    let more = ["--volume-key", told.as_str()];
    let Some(mounted) = Mounted::with(&cluster, "braid://secret", "mounted", &more) else { return };
    let mut command = Command::new(&program);
    command.args(["-N", "3000", "-S", "3"]).arg(mounted.at.join("a"));
    let ran = said(command.output().expect("run"));
    assert_eq!(ran.code, 0, "{} {}", ran.text(), ran.err);
    assert_eq!(mounted.end().code, 0);
}
