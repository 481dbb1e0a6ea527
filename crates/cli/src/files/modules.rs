//! `braid module`: modules of users for `braid run wasm`, stored in volumes.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use braid_client::{Arguments, Module, RunAsk, hash_of_module};
use serde::Serialize;

use crate::args::ModuleCommand;
use crate::files::names::{remote, show_remote};
use crate::output::exit::{Exit, Failure};
use crate::output::report::{Report, show_name};
use crate::{connect, engine};

/// A module in `--json`.
#[derive(Debug, Serialize)]
struct ModuleFacts {
    module: String,
    name: String,
    bytes: usize,
}

/// Runs `braid module`.
pub(crate) async fn run(asked: ModuleCommand, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let ModuleCommand::Put { file, volume } = asked;
    let name = remote(&volume)?;
    if !name.path().is_empty() {
        return Err(Failure::usage(
            format!("store a module in {}", show_remote(&name)),
            "modules are stored in a volume's directory .modules: name the volume alone",
        ));
    }
    let module = read(&file)?;
    let what = format!("store {}", show_name(file.as_os_str().as_bytes()));
    // What cannot run is not stored.
    let module = tokio::task::spawn_blocking(move || {
        module.kind(&*engine::engine()).map(|_| module).map_err(|error| error.to_string())
    });
    let module = module.await.map_err(|error| error.to_string()).and_then(|looked| looked);
    let module = module.map_err(|why| Failure::new(Exit::Usage, what, why))?;
    let client = connect::cluster(cluster).await?;
    let stored = client.put_module(name.volume(), &module).await?;
    let facts =
        ModuleFacts { module: module.name(), name: show_remote(&stored), bytes: module.bytes().len() };
    report.line(&facts, |facts| facts.module.clone())
}

/// The run for which `braid run wasm` asks: the argument `module` is a hash, or names a file here.
pub(crate) fn asked(arguments: Arguments) -> Result<RunAsk, Failure> {
    match arguments.get("module") {
        Some(file) if hash_of_module(file).is_none() => {
            let module = read(file.as_ref())?;
            Ok(RunAsk::module(Arc::new(module), arguments))
        }
        _ => Ok(RunAsk::new(braid_client::WASM, arguments)),
    }
}

fn read(file: &Path) -> Result<Module, Failure> {
    let failed = |why: String| {
        let what = format!("read the module {}", show_name(file.as_os_str().as_bytes()));
        Failure::new(Exit::Usage, what, why)
    };
    let length = std::fs::metadata(file).map_err(|error| failed(error.to_string()))?;
    let too_large = || failed(format!("a module has at most {} bytes", braid_client::MODULE_BYTES_MAX));
    // It is not read to find out that it is too large.
    if usize::try_from(length.len()).map_or(true, |bytes| bytes > braid_client::MODULE_BYTES_MAX) {
        return Err(too_large());
    }
    let bytes: io::Result<Vec<u8>> = std::fs::read(file);
    Module::new(bytes.map_err(|error| failed(error.to_string()))?).ok_or_else(too_large)
}
