//! The keys of encrypted volumes that a client has unwrapped, and how it gets them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_layout::VolumeId;
use braid_wire::control::{VolumeKey, VolumeRow};
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::sealed::keys::{DataKey, KeyError, VolumeKeys};

/// The time for which a failure counts: who asks meanwhile gets the same answer, and nothing is asked for it.
const FAILURE_COUNTS: Duration = Duration::from_secs(5);

/// The keys that a client has, and where it finds others.
pub(crate) struct Ring {
    sources: VolumeKeys,
    known: Mutex<Known>,
    /// One for each volume that has a source, by name. Only who needs the same key waits for a slow source.
    gates: BTreeMap<String, Gate>,
}

/// Lets one at a time ask for a volume's key, and has the last failure for the others.
type Gate = tokio::sync::Mutex<Option<Failed>>;

struct Failed {
    at: Instant,
    /// The wrapped key that was to be unwrapped. After a rekey there is another, which is worth a try.
    wrapped: Vec<u8>,
    error: KeyError,
}

#[derive(Default)]
struct Known {
    /// Names of the volumes whose keys are here, as of when they were asked for.
    names: BTreeSet<String>,
    keys: BTreeMap<VolumeId, Arc<DataKey>>,
}

impl Ring {
    pub(crate) fn new(sources: VolumeKeys) -> Ring {
        let gates = sources.volumes().map(|volume| (volume.to_owned(), Gate::default())).collect();
        Ring { sources, known: Mutex::default(), gates }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if the key of the volume of this name is here.
    pub(crate) fn has(&self, volume: &str) -> bool {
        self.known().names.contains(volume)
    }

    /// Returns true if the settings say where the key of the volume of this name is.
    pub(crate) fn is_given(&self, volume: &str) -> bool {
        self.sources.of(volume).is_some()
    }

    /// Forgets that the volume of this name has a key here: there is another volume, without a key.
    pub(crate) fn forget(&self, volume: &str) {
        self.known().names.remove(volume);
    }

    /// The key of the volume of this number, if it is here.
    pub(crate) fn of(&self, volume: VolumeId) -> Option<Arc<DataKey>> {
        self.known().keys.get(&volume).map(Arc::clone)
    }

    /// Unwraps a volume's data key, unless it is here.
    pub(crate) async fn unwrap(&self, row: &VolumeRow, key: &VolumeKey) -> Result<Arc<DataKey>> {
        let failed = |error| Error::Key { volume: row.name.clone(), error };
        let source = self.sources.of(&row.name).zip(self.gates.get(&row.name));
        let missing = || failed(KeyError::Missing { id: key.id.clone() });
        let (source, gate) = source.ok_or_else(missing)?;
        let mut last = gate.lock().await;
        if let Some(known) = self.of(row.volume) {
            return Ok(known);
        }
        if let Some(last) = &*last
            && last.wrapped == key.wrapped
            && last.at.elapsed() < FAILURE_COUNTS
        {
            return Err(failed(last.error.clone()));
        }
        let opened = match Box::pin(source.unwrap(&row.name, key)).await {
            Ok(opened) => Arc::new(opened),
            Err(error) => {
                let wrapped = key.wrapped.clone();
                *last = Some(Failed { at: Instant::now(), wrapped, error: error.clone() });
                return Err(failed(error));
            }
        };
        *last = None;
        let mut known = self.known();
        known.names.insert(row.name.clone());
        known.keys.insert(row.volume, Arc::clone(&opened));
        Ok(opened)
    }
}

#[cfg(test)]
mod tests {
    use braid_testing::wait_for;
    use braid_wire::capability::Protection;
    use braid_wire::control::ShapeSpec;

    use super::*;
    use crate::sealed::keys::KeySource;

    fn row(name: &str, number: u64) -> VolumeRow {
        VolumeRow {
            volume: VolumeId(number),
            name: name.to_owned(),
            shape: ShapeSpec { scheme: 5, k: 2, m: 1, unit_bytes: 4096 },
            quota_bytes: 0,
            files: 0,
            file_bytes: 0,
            created_ms: 0,
            past_files: 0,
            past_bytes: 0,
            protection: Protection::Integrity,
            key: None,
        }
    }

    #[tokio::test]
    async fn a_slow_source_holds_up_its_own_volume_only_and_is_asked_once_for_all_who_wait() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("key"), [7; 32]).expect("written");
        let quick = KeySource::File(path("key"));
        let key = quick.wrap("quick", &DataKey::draw().expect("drawn")).await.expect("wrapped");
        // It goes on when somebody writes to the fifo, and then fails.
        let fifo = path("fifo");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).expect("a fifo");
        let asked = path("asked");
        let command = format!(
            "echo x >> {}; cat {} > {}; exit 3;",
            asked.display(),
            fifo.display(),
            path("got").display()
        );
        let mut sources = VolumeKeys::default();
        sources.insert("quick", quick);
        sources.insert("slow", KeySource::Command(command));
        let ring = Arc::new(Ring::new(sources));
        let slow: Vec<_> = (0..3)
            .map(|_| {
                let ring = Arc::clone(&ring);
                let key = key.clone();
                tokio::spawn(async move { ring.unwrap(&row("slow", 2), &key).await.map(drop) })
            })
            .collect();
        wait_for(|| async { asked.exists() }).await;
        ring.unwrap(&row("quick", 1), &key).await.expect("it waits for nobody");
        assert!(ring.has("quick") && !ring.has("slow"));
        std::fs::write(&fifo, b"go on").expect("written");
        for one in slow {
            let error = one.await.expect("it ends").expect_err("it fails").to_string();
            assert!(error.contains("exit status: 3"), "{error}");
        }
        assert_eq!(std::fs::read(&asked).expect("read"), b"x\n", "it was asked once");
        // What was wrapped anew is tried at once.
        let anew = VolumeKey { wrapped: vec![9], ..key };
        let go_on = tokio::task::spawn_blocking(move || std::fs::write(&fifo, b"go on"));
        assert!(ring.unwrap(&row("slow", 2), &anew).await.is_err());
        go_on.await.expect("it ends").expect("written");
        assert_eq!(std::fs::read(&asked).expect("read"), b"x\nx\n");
        ring.forget("quick");
        assert!(!ring.has("quick") && ring.is_given("quick"));
    }
}
