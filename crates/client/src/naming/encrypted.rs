//! Encrypted volumes: they are made and given other keys here, and their files are opened with the key.

use braid_layout::{FileId, Shape, VolumeId};
use braid_wire::capability::Protection;
use braid_wire::control::{ControlReply, ControlRequest, VolumeCreate, VolumeRekey, VolumeRow};
use braid_wire::{Reason, Refusal};

use crate::client::Client;
use crate::error::{Error, Result};
use crate::naming::names::{spec, volume_subject};
use crate::sealed::block::FileSeals;
use crate::sealed::keys::{DataKey, KeySource};

impl Client {
    /// Makes an encrypted volume: its data key is drawn here, and wrapped by the key at `source`. Its data
    /// may be private on its way as well.
    pub async fn volume_create_encrypted(
        &self,
        name: &str,
        shape: Option<Shape>,
        quota_bytes: u64,
        protection: Protection,
        source: &KeySource,
    ) -> Result<()> {
        let subject = volume_subject(name)?;
        let failed = |error| Error::Key { volume: name.to_owned(), error };
        let data_key = DataKey::draw().map_err(failed)?;
        let key = Some(source.wrap(name, &data_key).await.map_err(failed)?);
        let shape = spec(shape);
        let request = VolumeCreate { name: name.to_owned(), shape, quota_bytes, protection, key };
        self.ask_done(&subject, request).await
    }

    /// Wraps an encrypted volume's data key by another key. Returns the names of the key before and of the
    /// new one. No file is written, and who has the former key and a copy of what it wrapped can still open
    /// the volume.
    pub async fn volume_rekey(
        &self,
        name: &str,
        source: &KeySource,
        new: &KeySource,
    ) -> Result<(String, String)> {
        let subject = volume_subject(name)?;
        let failed = |error| Error::Key { volume: name.to_owned(), error };
        let row = self.volume_row(&subject, |row| row.name == name).await?;
        let Some(was) = row.key else {
            let detail = "is not encrypted: it has no key".to_owned();
            return Err(Error::Refused { subject, refusal: Refusal::new(Reason::NotAllowed, detail) });
        };
        let data_key = source.unwrap(name, &was).await.map_err(failed)?;
        let key = new.wrap(name, &data_key).await.map_err(failed)?;
        let ids = (was.id.clone(), key.id.clone());
        self.ask_done(&subject, VolumeRekey { name: name.to_owned(), was: was.wrapped, key }).await?;
        Ok(ids)
    }

    /// Asks the manager for a file of this volume, once its key is here if there is one. `request` is given
    /// whether this client can deal with sealed bytes.
    pub(crate) async fn ask_for_file<R: Into<ControlRequest>>(
        &self,
        subject: &str,
        volume: &str,
        request: impl Fn(bool) -> R,
    ) -> Result<ControlReply> {
        let ring = &self.shared.ring;
        let has_key = ring.has(volume) || ring.is_given(volume);
        if has_key && !ring.has(volume) {
            let row = self.volume_row(subject, |row| row.name == volume).await?;
            let Some(key) = &row.key else {
                return Err(Error::NotEncrypted { file: subject.to_owned(), volume: volume.to_owned() });
            };
            ring.unwrap(&row, key).await?;
        }
        match self.ask_manager(subject, request(has_key)).await {
            Err(error) if error.reason() == Some(Reason::NoKey) && !has_key => {
                let row = self.volume_row(subject, |row| row.name == volume).await?;
                match &row.key {
                    Some(key) => Err(ring.unwrap(&row, key).await.err().unwrap_or(error)),
                    None => Err(error),
                }
            }
            answer => answer,
        }
    }

    /// Seals and opens a file's blocks, by the key of its volume.
    pub(crate) async fn seals(&self, volume: VolumeId, file: FileId) -> Result<FileSeals> {
        let key = match self.shared.ring.of(volume) {
            Some(key) => key,
            // The volume that had the name before had another key.
            None => {
                let row = self.volume_row("volume", |row| row.volume == volume).await?;
                let none = || Error::Answer {
                    subject: format!("volume {}", row.name),
                    why: "it has sealed files and no key".to_owned(),
                };
                self.shared.ring.unwrap(&row, row.key.as_ref().ok_or_else(none)?).await?
            }
        };
        Ok(FileSeals::new(&key, volume, file))
    }

    async fn volume_row(&self, subject: &str, is_it: impl Fn(&VolumeRow) -> bool) -> Result<VolumeRow> {
        self.volumes().await?.into_iter().find(is_it).ok_or_else(|| Error::Refused {
            subject: subject.to_owned(),
            refusal: Refusal::new(Reason::NoVolume, "there is no such volume"),
        })
    }
}
