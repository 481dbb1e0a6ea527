//! Files of results that a command writes into a directory.

use std::fs;
use std::path::Path;

use crate::output::exit::{Doing, Failure};

/// Makes the directory for the results, so that an error shows before minutes of work and not after.
pub fn prepare_out(out: Option<&Path>) -> Result<(), Failure> {
    out.map_or(Ok(()), |out| fs::create_dir_all(out).doing(|| format!("make {}", out.display())))
}

/// Writes the documents, each whole or not at all.
pub fn write<N: AsRef<str>, C: AsRef<[u8]>>(out: &Path, documents: &[(N, C)]) -> Result<(), Failure> {
    for (name, content) in documents {
        let name = name.as_ref();
        let path = out.join(name);
        let part = out.join(format!(".{name}.part"));
        fs::write(&part, content)
            .and_then(|()| fs::rename(&part, &path))
            .doing(|| format!("write {}", path.display()))?;
    }
    Ok(())
}
