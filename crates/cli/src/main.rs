//! The `braid` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    braid_cli::main(std::env::args_os())
}
