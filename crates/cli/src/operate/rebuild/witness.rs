//! A drive's directory as a witness: the drive does not run.

use std::path::Path;

use braid_drive::testimony::Testimony;
use braid_layout::{ClusterId, ObjectId};
use braid_manager::catalogue::rebuild::{Age, Component, Known, PARTITION, Witness};
use braid_wire::data::ColumnMap;

use super::reading;
use crate::output::exit::{Doing, Failure};

/// A witness's knowledge of its manager.
pub(super) trait Who {
    /// The manager's last address.
    fn manager(&self) -> Option<&str>;
}

/// A drive's directory.
pub(super) struct DirectoryWitness {
    told: Testimony,
    known: Known,
}

impl DirectoryWitness {
    pub(super) fn open(dir: &Path) -> Result<DirectoryWitness, Failure> {
        let told = Testimony::open(dir).doing(reading(dir))?;
        let known = Known {
            drive: told.drive,
            name: told.name.clone(),
            master: told.master.clone(),
            key_number: told.key_number,
            instance: told.instance,
            directory: told.directory().display().to_string(),
            seen: Age { term: told.seen.term, changes: told.seen.changes },
        };
        Ok(DirectoryWitness { told, known })
    }
}

impl Who for DirectoryWitness {
    fn manager(&self) -> Option<&str> {
        self.told.manager.as_deref()
    }
}

impl Witness for DirectoryWitness {
    fn cluster(&self) -> ClusterId {
        self.told.cluster
    }

    fn known(&self) -> &Known {
        &self.known
    }

    fn streams(&self) -> Result<Vec<ObjectId>, String> {
        self.told.objects(PARTITION).map_err(|error| error.to_string())
    }

    fn frames(&self, stream: ObjectId) -> Result<u64, String> {
        self.told.units(PARTITION, stream).map_err(|error| error.to_string())
    }

    fn frame(&self, stream: ObjectId, number: u64) -> Result<Option<Vec<u8>>, String> {
        self.told.unit(PARTITION, stream, number).map_err(|error| error.to_string())
    }

    fn components(&self, each: &mut dyn FnMut(Component)) -> Result<(), String> {
        let mut tell = |_, _, map: &ColumnMap| each(Component { file: map.file });
        self.told.components(PARTITION, &mut tell).map_err(|error| error.to_string())
    }
}
