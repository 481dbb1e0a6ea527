//! The keys of encrypted volumes that a client has unwrapped, and how it gets them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_layout::VolumeId;
use braid_wire::control::{VolumeKey, VolumeRow};

use crate::error::{Error, Result};
use crate::sealed::keys::{DataKey, KeyError, VolumeKeys};

/// The keys that a client has, and where it finds others.
pub(crate) struct Ring {
    sources: VolumeKeys,
    known: Mutex<Known>,
    /// One key is asked for at a time: a key command may be slow, or ask its user.
    gate: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    /// Names of the volumes whose keys are here, as of when they were asked for.
    names: BTreeSet<String>,
    keys: BTreeMap<VolumeId, Arc<DataKey>>,
}

impl Ring {
    pub(crate) fn new(sources: VolumeKeys) -> Ring {
        Ring { sources, known: Mutex::default(), gate: tokio::sync::Mutex::new(()) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if the key of the volume of this name is here.
    pub(crate) fn has(&self, volume: &str) -> bool {
        self.known().names.contains(volume)
    }

    /// The key of the volume of this number, if it is here.
    pub(crate) fn of(&self, volume: VolumeId) -> Option<Arc<DataKey>> {
        self.known().keys.get(&volume).map(Arc::clone)
    }

    /// Unwraps a volume's data key, unless it is here.
    pub(crate) async fn unwrap(&self, row: &VolumeRow, key: &VolumeKey) -> Result<Arc<DataKey>> {
        let _turn = self.gate.lock().await;
        if let Some(known) = self.of(row.volume) {
            return Ok(known);
        }
        let failed = |error| Error::Key { volume: row.name.clone(), error };
        let source = self.sources.of(&row.name);
        let source = source.ok_or_else(|| failed(KeyError::Missing { id: key.id.clone() }))?;
        let opened = Arc::new(source.unwrap(&row.name, key).await.map_err(failed)?);
        let mut known = self.known();
        known.names.insert(row.name.clone());
        known.keys.insert(row.volume, Arc::clone(&opened));
        Ok(opened)
    }
}
