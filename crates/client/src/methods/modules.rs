//! Modules of users: where they are kept in a volume, how they are found, and how drives get them.

use std::sync::Arc;

use braid_layout::Column;
use braid_methods::{MODULE_BYTES_MAX, Module, WASM, module_named, name_of};
use braid_wire::data::{DriveReply, MODULE_PART_BYTES_MAX, ModulePart};

use crate::client::Client;
use crate::error::{Error, Result};
use crate::executor::ask_columns;
use crate::file::File;
use crate::methods::{RunAsk, RunFailure, failed};
use crate::naming::name::Name;
use crate::open::OpenOptions;
use crate::view::FileView;
use crate::{Kind, Parents};

/// The directory of a volume's modules.
const DIRECTORY: &str = ".modules";

/// The name of the file in which a volume keeps the module of this hash.
fn kept_at(volume: &str, hash: &[u8; 32]) -> Result<Name> {
    let path = format!("{DIRECTORY}/{}.wasm", name_of(hash));
    Name::new(volume, path.as_bytes()).map_err(|source| Error::Name { name: path, source })
}

impl Client {
    /// Stores a module in a volume, in the file `.modules/HASH.wasm`. Returns its name. A module that is
    /// there is left as it is.
    pub async fn put_module(&self, volume: &str, module: &Module) -> Result<Name> {
        let name = kept_at(volume, &module.hash())?;
        let there = self.module(volume, module.hash()).await;
        if there.is_ok_and(|there| there.is_some()) {
            return Ok(name);
        }
        let directory = Name::new(volume, DIRECTORY.as_bytes())
            .map_err(|source| Error::Name { name: DIRECTORY.to_owned(), source })?;
        match self.mkdir(&directory, Parents::Make).await {
            Err(error) if error.kind() != Kind::Exists => return Err(error),
            _ => {}
        }
        let options = OpenOptions::new().write(true).create(true).truncate(true);
        let file = self.open(&name, &options).await?;
        file.write_at(module.bytes(), 0).await?;
        file.close().await?;
        Ok(name)
    }

    /// The module of this hash in a volume; `None` if its file is not there.
    pub async fn module(&self, volume: &str, hash: [u8; 32]) -> Result<Option<Module>> {
        let name = kept_at(volume, &hash)?;
        let file = match self.open(&name, &OpenOptions::new().read(true)).await {
            Ok(file) => file,
            Err(error) if error.kind() == Kind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let bytes = usize::try_from(file.size()).unwrap_or(usize::MAX);
        if bytes > MODULE_BYTES_MAX {
            return Err(failed(file.subject(), RunFailure::Module { why: too_large() }));
        }
        let mut all = vec![0; bytes];
        let mut filled = 0;
        while filled < bytes {
            let at = u64::try_from(filled).expect("a module is small");
            match file.read_at(&mut all[filled..], at).await? {
                0 => break,
                more => filled += more,
            }
        }
        let module = Module::new(all).filter(|module| module.hash() == hash);
        let why = "its bytes are not those of the hash in its name: store the module again".to_owned();
        module.map(Some).ok_or_else(|| failed(file.subject(), RunFailure::Module { why }))
    }

    /// The same with the module, if the method is one that runs modules. It is in the same volume if it is
    /// not at hand.
    pub(super) async fn with_module(&self, name: &Name, ask: &RunAsk) -> Result<RunAsk> {
        if ask.method != WASM || ask.module.is_some() {
            return Ok(ask.clone());
        }
        let subject = name.to_string();
        let hash = module_named(&ask.arguments).map_err(|error| failed(&subject, error))?;
        let module = self.module(name.volume(), hash).await?;
        let why = || {
            let at = kept_at(name.volume(), &hash).map(|at| at.to_string()).unwrap_or_default();
            format!("there is no {at}: store the module with `braid module put`, or name its file")
        };
        let module = module.ok_or_else(|| failed(&subject, RunFailure::Module { why: why() }))?;
        Ok(RunAsk { module: Some(Arc::new(module)), ..ask.clone() })
    }
}

/// Why a module is not taken.
pub(super) fn too_large() -> String {
    format!("a module has at most {MODULE_BYTES_MAX} bytes")
}

impl RunAsk {
    /// Runs this module, which need not be stored anywhere.
    pub fn module(module: Arc<Module>, arguments: braid_methods::Arguments) -> RunAsk {
        RunAsk { module: Some(module), ..RunAsk::new(WASM, arguments) }
    }

    /// The same with the module's name as its argument.
    pub(super) fn with_name(&self) -> RunAsk {
        let Some(module) = &self.module else { return self.clone() };
        let mut arguments = self.arguments.clone();
        match arguments.0.iter_mut().find(|argument| argument.name == "module") {
            Some(argument) => argument.value = module.name(),
            None => arguments = arguments.with("module", module.name()),
        }
        RunAsk { arguments, ..self.clone() }
    }
}

/// Gives a module to the drive of a column. Returns true if the drive has it then.
pub(super) async fn give(
    file: &File,
    view: &FileView,
    segment: usize,
    column: Column,
    module: &Module,
) -> bool {
    let bytes = u32::try_from(module.bytes().len()).unwrap_or(u32::MAX);
    let mut from = 0;
    for part in module.bytes().chunks(MODULE_PART_BYTES_MAX) {
        let part = ModulePart {
            at: view.address(segment, column),
            module: module.hash(),
            bytes,
            from,
            part: part.to_vec(),
        };
        from += u32::try_from(part.part.len()).expect("a part is small");
        let asked = ask_columns(file.handle(), view, segment, vec![(column, part.into())]).await;
        if !matches!(asked.into_iter().next(), Some((_, Ok(DriveReply::Done(_))))) {
            return false;
        }
    }
    true
}
