//! Shell completions and man pages, generated from the command-line definition. No cluster is needed.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::output::exit::{Doing, Failure};

/// The program's name, in shells and manuals.
const NAME: &str = "braid";

/// Prints the completions for a shell.
pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), NAME, &mut script);
    match io::stdout().lock().write_all(&script) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::closed_pipe()),
        other => other.doing(|| "write to standard output".into()),
    }
}

/// Writes man pages (`braid.1`, `braid-cp.1` and so on) for all commands that are not hidden.
pub(crate) fn pages(directory: &Path) -> Result<(), Failure> {
    fs::create_dir_all(directory).doing(|| format!("make {}", directory.display()))?;
    clap_mangen::generate_to(Cli::command(), directory)
        .doing(|| format!("write pages to {}", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_shown_has_a_page() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let place = dir.path().join("share/man1");
        pages(&place).expect("written");
        let page = |name: &str| fs::read_to_string(place.join(name)).expect(name);
        assert!(page("braid.1").contains("braid\\-cp(1)"), "{}", page("braid.1"));
        assert!(page("braid-cp.1").contains("\\-\\-preserve"), "{}", page("braid-cp.1"));
        assert!(
            page("braid-drive-replace.1").contains("braid drive replace"),
            "{}",
            page("braid-drive-replace.1")
        );
        assert!(!place.join("braid-demo-peer.1").exists());
        for entry in fs::read_dir(&place).expect("listed") {
            assert!(entry.expect("an entry").metadata().expect("there").len() > 200);
        }
    }

    #[test]
    fn shells_complete_commands_and_options() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), NAME, &mut script);
            let script = String::from_utf8(script).expect("text");
            assert!(script.contains("rebuild") && script.contains("recursive"), "{shell}");
        }
    }
}
