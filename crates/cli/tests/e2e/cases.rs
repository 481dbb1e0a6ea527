//! Small inputs that failed once (`tests/cases`): the short cases. `make cases` runs all.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{finish, said};

/// Cases that take a second or two each.
const CASES: &[&str] = &[
    "cp-a-through-symlink",
    "deep-tree",
    "df-overstates",
    "docs-scrub",
    "drive-add-after-rm",
    "fstab-options",
    "getcwd-after-remote-rename",
    "getlk-pid-after-part-unlocked",
    "holes-invisible",
    "negative-times",
    "removed-dir-fd",
    "removed-directory-stale",
    "suid-kept-by-otrunc",
    "times-before-1970",
    "up-with-one-lost-drive",
];

#[test]
fn small_inputs_that_failed_once_are_right() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        return eprintln!("skipped: mounts take root and /dev/fuse");
    }
    let place = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases"));
    let mut wrong = String::new();
    for case in CASES {
        let mut command = Command::new(place.join(case).with_extension("sh"));
        command.arg(env!("CARGO_BIN_EXE_braid")).env_remove("BRAID_CLUSTER").stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
        let ended = said(finish(child));
        if ended.code != 0 {
            wrong.push_str(&format!("{case}: exit {}\n{}{}", ended.code, ended.text(), ended.err));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
