//! A few rounds of the kill loop; `make kill-loop` runs hundreds.

use std::process::{Command, Stdio};

use crate::support::{finish, said};

#[test]
fn five_rounds_lose_nothing() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/kill-loop.sh");
    let mut command = Command::new(script);
    command.arg("5").env("BRAID", env!("CARGO_BIN_EXE_braid")).env("KILL_LOOP_DIR", place.path());
    let child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    let ended = said(finish(child));
    assert_eq!(ended.code, 0, "{}\n{}", String::from_utf8_lossy(&ended.out), ended.err);
}
