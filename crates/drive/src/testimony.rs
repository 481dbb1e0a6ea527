//! The testimony of a drive that does not run: who it is, its key, and the units of its objects. It is read
//! from the drive's directory, in which nothing is changed.
//!
//! With these a manager that lost its state is made anew: the drive knows nothing of what the units mean.

use std::path::Path;

use braid_layout::{ClusterId, DriveId, ObjectId, PartitionId};
use braid_store::{Error, Store, Want};
use braid_wire::Wire;
use braid_wire::capability::Key;
use braid_wire::control::StateMark;
use braid_wire::data::ColumnMap;

use crate::error::DriveError;
use crate::life::identity::{Directory, holds_drive};
use crate::life::join;

/// Number of objects looked up at a time.
const PAGE: usize = 4096;

/// A drive's directory, held until this is dropped.
pub struct Testimony {
    pub cluster: ClusterId,
    pub drive: DriveId,
    pub name: String,
    /// The manager's last address.
    pub manager: Option<String>,
    pub master: Key,
    /// Number of the master key.
    pub key_number: u32,
    /// The instance number that the manager gave to the drive's last process.
    pub instance: u64,
    /// Progress of the manager's state, as the drive last stored it.
    pub seen: StateMark,
    /// Damaged records that were found.
    pub damaged: u64,
    store: Store,
    directory: Directory,
}

impl Testimony {
    /// Reads a drive's directory. The drive must not run.
    pub fn open(dir: &Path) -> Result<Testimony, DriveError> {
        if !holds_drive(dir) {
            return Err(DriveError::NotADrive { dir: dir.to_owned(), holds: "no drive.toml".into() });
        }
        let directory = Directory::take(dir)?;
        let identity = directory.identity()?.ok_or_else(|| DriveError::NoToken(dir.to_owned()))?;
        let no_key = || DriveError::Identity {
            path: dir.to_owned(),
            what: "the drive never joined a cluster, so there is nothing to read".to_owned(),
        };
        let master = identity.master.clone().ok_or_else(no_key)?;
        let (store, damaged) = join::open_held(&directory, &identity)?;
        Ok(Testimony {
            cluster: identity.cluster,
            drive: identity.drive,
            name: identity.name,
            manager: identity.manager,
            master: master.key,
            key_number: master.number,
            instance: identity.instance,
            seen: identity.seen,
            damaged,
            store,
            directory,
        })
    }

    /// The objects of a partition; none if there is no such partition.
    pub fn objects(&self, partition: PartitionId) -> Result<Vec<ObjectId>, DriveError> {
        let mut objects: Vec<ObjectId> = Vec::new();
        loop {
            match self.store.objects(partition, objects.last().copied(), PAGE) {
                Ok(some) if some.is_empty() => return Ok(objects),
                Ok(some) => objects.extend(some),
                Err(Error::NoPartition(_)) => return Ok(objects),
                Err(source) => return Err(self.failed(source)),
            }
        }
    }

    /// The bytes of a unit from its start on, up to its last one; `None` if it was never written.
    pub fn unit(
        &self,
        partition: PartitionId,
        object: ObjectId,
        unit: u64,
    ) -> Result<Option<Vec<u8>>, DriveError> {
        let read = || -> Result<Option<Vec<u8>>, Error> {
            let unit_bytes = self.store.object(partition, object)?.unit_bytes;
            let view = self.store.read(partition, object, unit, 0..unit_bytes, Want::Newest)?;
            if view.version.is_zero() {
                return Ok(None);
            }
            let mut bytes = vec![0; usize::try_from(view.stored_bytes()).unwrap_or(0)];
            view.read_exact_into(&mut bytes)?;
            Ok(Some(bytes))
        };
        read().map_err(|source| self.failed(source))
    }

    /// Number of an object's units, up to the last that was ever written. Some may be missing.
    pub fn units(&self, partition: PartitionId, object: ObjectId) -> Result<u64, DriveError> {
        let usage = self.store.usage(partition, object).map_err(|source| self.failed(source))?;
        Ok(usage.end.map_or(0, |(unit, to)| unit.saturating_add(u64::from(to > 0))))
    }

    /// Calls for each object of every partition but this one, with the column map stored beside it. An object
    /// whose record is damaged is left out.
    pub fn components(
        &self,
        but: PartitionId,
        each: &mut dyn FnMut(PartitionId, ObjectId, &ColumnMap),
    ) -> Result<(), DriveError> {
        let partitions = self.store.partitions();
        for partition in partitions.iter().map(|state| state.partition).filter(|there| *there != but) {
            for object in self.objects(partition)? {
                let map = self.store.with_object(partition, object, |state| ColumnMap::from_bytes(state.map));
                if let Ok(Ok(map)) = map {
                    each(partition, object, &map);
                }
            }
        }
        Ok(())
    }

    /// The drive's directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn failed(&self, source: Error) -> DriveError {
        DriveError::Store { dir: self.directory.store(), source }
    }
}
