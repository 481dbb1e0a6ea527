//! The engine for modules of users: this same program, started anew with one word. It is locked down before
//! it reads a module (`braid_wasm`).

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use braid_client::Engine;
use braid_wasm::{Bounds, Sandbox, WorkerProgram};

use crate::output::report::complain;

/// The word that makes this program a process for modules. It is no command: people need not see it.
const WORD: &str = "run-modules";

/// The engine of this process. Its processes are started when they are needed.
pub(crate) fn engine() -> Arc<dyn Engine> {
    static ENGINE: OnceLock<Arc<Sandbox>> = OnceLock::new();
    let new = || {
        Arc::new(Sandbox::new(WorkerProgram {
            // The file may have been replaced by another release since this process started.
            program: "/proc/self/exe".into(),
            arguments: vec![WORD.into()],
            environment: Vec::new(),
        }))
    };
    Arc::<Sandbox>::clone(ENGINE.get_or_init(new))
}

/// Works for the engine of another process, if these words say so.
pub(crate) fn work(words: &[OsString]) -> Option<ExitCode> {
    let [_, word] = words else { return None };
    if word.as_os_str() != OsStr::new(WORD) {
        return None;
    }
    Some(match braid_wasm::work(Bounds::default()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("run modules for another process: {error}"));
            ExitCode::FAILURE
        }
    })
}
