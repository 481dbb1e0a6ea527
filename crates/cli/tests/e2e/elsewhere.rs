//! Experiments are in a program of their own, which their words lead to.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::support::{Cluster, braid, run};

#[test]
fn the_words_of_experiments_say_where_they_are_or_run_them() {
    // A copy without another program beside it: a build of the whole workspace puts one beside the original.
    let place = Cluster::nowhere();
    let copy = place.file("braid");
    fs::copy(braid().get_program(), &copy).expect("copied");
    let line = |words: &str| {
        let mut command = Command::new(&copy);
        command.args(words.split(' ')).env("PATH", place.file("nowhere"));
        run(command)
    };
    let where_it_is = "experiments are in braid-lab: `cargo run --release -p braid-lab -- ";
    line("bench stripes --quick")
        .failed(3, &format!("{where_it_is}bench stripes --quick`, or `braid-lab bench"));
    line("sim swift-1991 --help").failed(3, &format!("{where_it_is}sim swift-1991 --help`"));
    let lab = place.file("braid-lab");
    fs::write(&lab, "#!/bin/sh\necho \"$@\"\nexit 9\n").expect("written");
    fs::set_permissions(&lab, fs::Permissions::from_mode(0o755)).expect("permitted");
    let said = line("--json bench store --only x");
    assert_eq!((said.code, said.text()), (9, "--json bench store --only x\n"), "{}", said.err);
}
