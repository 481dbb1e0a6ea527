//! Experiments, which are in a program of their own, `braid-lab`: it takes this one's place if it is there,
//! and else the message says where it is.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::output::exit::{Doing, Exit, Failure};

const NAME: &str = "braid-lab";

/// Becomes `braid-lab` with the arguments of this program: the one beside it, or else that in PATH. Returns
/// only if it cannot.
pub(crate) fn run() -> Failure {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let beside = std::env::current_exe().map(|this| this.with_file_name(NAME)).ok();
    let found = beside.filter(|path| path.is_file()).map_or_else(|| NAME.into(), OsString::from);
    let failed: io::Result<()> = Err(Command::new(found).args(&words).exec());
    match failed.doing(|| format!("run {NAME}")) {
        Err(failure) if failure.exit != Exit::NotFound => failure,
        _ => told(&words),
    }
}

/// The failure that says where the experiments are.
fn told(words: &[OsString]) -> Failure {
    let line = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let why = format!("`cargo run --release -p {NAME} -- {line}`, or `{NAME} {line}`");
    Failure::new(Exit::NotFound, format!("experiments are in {NAME}"), why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_has_the_command() {
        let said = told(&["bench".into(), "stripes".into()]).to_string();
        let command = "`cargo run --release -p braid-lab -- bench stripes`, or `braid-lab bench stripes`";
        assert_eq!(said, format!("experiments are in braid-lab: {command}"));
    }
}
