//! The name space and facts about the cluster: requests that the manager answers by itself.

use std::time::Duration;

use braid_layout::Shape;
use braid_wire::capability::Protection;
use braid_wire::control::{
    BACKUP_PART_BYTES_MAX, Backup, BackupReply, CalibrateDrive, CalibrateDriveReply, ControlReply,
    DirectoryReply, DrainDrive, DrainDriveReply, Entry, FreeUnnamed, JobRow, Jobs, Lookup, Methods,
    NamePlace, PauseDrive, ReadBackup, ReadDirectory, RemoveDrive, RenameHow, ReplaceDrive, ScrubDrive,
    ScrubDriveReply, ShapeSpec, StatRow, Status, StatusReply, UnlinkOnly, VolumeCreate, VolumeList,
    VolumeListReply, VolumeMethods, VolumeProtect, VolumeRemove, VolumeRow,
};
use braid_wire::data::{CalibrateAct, ScrubAct};
use braid_wire::{Reason, Refusal};

use crate::client::{Client, unexpected};
use crate::concurrent;
use crate::error::{Error, Result};
use crate::naming::attributes::usual_directory;
use crate::naming::name::{Name, check_volume};
use crate::sealed;

/// Directory entries requested at a time.
const PAGE: u32 = 1000;

/// Maximum number of requests under way when one call concerns many names.
const TOGETHER: usize = 256;

/// Bound for a backup: longer than the manager allows one to take.
const BACKUP_WAIT: Duration = Duration::from_secs(31 * 60);

/// Treatment of missing parent directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parents {
    /// Parents must exist, and the directory itself must not.
    MustExist,
    /// Parents are created as needed, and the directory itself may exist.
    Make,
}

/// A directory's entries in byte order of their names, fetched page by page.
#[derive(Debug)]
pub struct Lister {
    client: Client,
    directory: Name,
    page: std::vec::IntoIter<Entry>,
    after: Vec<u8>,
    more: bool,
}

impl Client {
    /// Creates a volume; without a shape it takes the manager's default. `quota_bytes` 0 means no quota.
    pub async fn volume_create(&self, name: &str, shape: Option<Shape>, quota_bytes: u64) -> Result<()> {
        self.volume_create_with(name, shape, quota_bytes, Protection::Integrity).await
    }

    /// Creates a volume, as [`Client::volume_create`] does, with this protection of its data.
    pub async fn volume_create_with(
        &self,
        name: &str,
        shape: Option<Shape>,
        quota_bytes: u64,
        protection: Protection,
    ) -> Result<()> {
        let subject = volume_subject(name)?;
        let shape = spec(shape);
        let request = VolumeCreate { name: name.to_owned(), shape, quota_bytes, protection, key: None };
        self.ask_done(&subject, request).await
    }

    /// Sets the methods that drives run on a volume's files, for those who open them from now on.
    pub async fn volume_set_methods(&self, name: &str, methods: Methods) -> Result<()> {
        let subject = format!("volume {name}");
        self.ask_done(&subject, VolumeMethods { name: name.to_owned(), methods }).await
    }

    /// Sets the protection of a volume's data from now on. What is open keeps what it has for two minutes at
    /// most.
    pub async fn volume_protect(&self, name: &str, protection: Protection) -> Result<()> {
        let subject = volume_subject(name)?;
        self.ask_done(&subject, VolumeProtect { name: name.to_owned(), protection }).await
    }

    /// Removes an empty volume.
    pub async fn volume_remove(&self, name: &str) -> Result<()> {
        let subject = volume_subject(name)?;
        self.ask_done(&subject, VolumeRemove { name: name.to_owned() }).await
    }

    /// All volumes, by name.
    pub async fn volumes(&self) -> Result<Vec<VolumeRow>> {
        Ok(self.volume_list().await?.volumes)
    }

    /// All volumes, by name, and the methods that drives run on their files.
    pub async fn volume_list(&self) -> Result<VolumeListReply> {
        match self.ask_manager("volumes", VolumeList {}).await? {
            ControlReply::Volumes(list) => Ok(list),
            other => Err(unexpected("volumes", &other)),
        }
    }

    /// Facts about the file or directory of this name. Follows symbolic links.
    pub async fn stat(&self, name: &Name) -> Result<StatRow> {
        self.look_up(name, true).await
    }

    /// Facts about the object of this name, which may be a symbolic link itself.
    pub async fn stat_itself(&self, name: &Name) -> Result<StatRow> {
        self.look_up(name, false).await
    }

    /// The place of a name, for a request to the manager. A path that is too long for a request is looked up
    /// part by part.
    pub(crate) async fn place(&self, name: &Name) -> Result<NamePlace> {
        let (mut above, mut path) = match name.place() {
            Ok(place) => return Ok(place),
            Err(cut) => cut,
        };
        loop {
            let at = above.place().expect("it was cut to what a request holds");
            let subject = name.to_string();
            let request = Lookup { at, follow: true, watch: false };
            let ControlReply::Stat(row) = self.ask_manager(&subject, request).await? else {
                return Err(Error::Answer { subject, why: "a lookup was asked for".to_owned() });
            };
            match name.beneath(&row, path).place() {
                Ok(place) => return Ok(place),
                Err(cut) => (above, path) = cut,
            }
        }
    }

    async fn look_up(&self, name: &Name, follow: bool) -> Result<StatRow> {
        let subject = name.to_string();
        let request = Lookup { at: self.place(name).await?, follow, watch: self.watches() };
        match self.ask_manager(&subject, request).await? {
            ControlReply::Stat(mut row) => {
                sealed::shown(&mut row.attributes);
                Ok(row)
            }
            other => Err(unexpected(&subject, &other)),
        }
    }

    /// A directory's entries.
    pub fn list(&self, directory: &Name) -> Lister {
        self.list_after(directory, Vec::new())
    }

    /// A directory's entries whose names come after `after`.
    pub fn list_after(&self, directory: &Name, after: Vec<u8>) -> Lister {
        let page = Vec::new().into_iter();
        Lister { client: self.clone(), directory: directory.clone(), page, after, more: true }
    }

    /// Makes a directory.
    pub async fn mkdir(&self, name: &Name, parents: Parents) -> Result<()> {
        self.mkdir_with(name, parents, usual_directory()).await.map(drop)
    }

    /// Renames a file or directory within its volume, atomically. A file replaces a file, a directory an
    /// empty directory.
    pub async fn rename(&self, from: &Name, to: &Name) -> Result<()> {
        self.rename_how(from, to, RenameHow::Replace).await
    }

    /// Removes a file or an empty directory.
    pub async fn unlink(&self, name: &Name) -> Result<()> {
        self.unlink_only(name, UnlinkOnly::Any).await
    }

    /// Facts about the files and directories of these names, in the names' order, in few requests. A refused
    /// name does not keep the others from being looked up.
    pub async fn stat_all(&self, names: &[Name]) -> Vec<Result<StatRow>> {
        self.of_all(names, |name| self.stat(name)).await
    }

    /// Removes files and empty directories, in few requests; the results are in the names' order. A refused
    /// name does not keep the others from being removed.
    pub async fn unlink_all(&self, names: &[Name]) -> Vec<Result<()>> {
        self.of_all(names, |name| self.unlink(name)).await
    }

    /// Runs a request for each name, many at a time: such requests share messages.
    async fn of_all<'a, T, F>(&self, names: &'a [Name], ask: impl Fn(&'a Name) -> F) -> Vec<Result<T>>
    where
        T: Send + Unpin,
        F: Future<Output = Result<T>> + Send,
    {
        let mut results = Vec::with_capacity(names.len());
        for some in names.chunks(TOGETHER) {
            results.extend(concurrent::all(some.iter().map(&ask)).await);
        }
        results
    }

    /// The cluster's drives and figures.
    pub async fn status(&self) -> Result<StatusReply> {
        match self.ask_manager("cluster", Status {}).await? {
            ControlReply::Status(status) => Ok(status),
            other => Err(unexpected("cluster", &other)),
        }
    }

    /// The manager's background jobs.
    pub async fn jobs(&self) -> Result<Vec<JobRow>> {
        match self.ask_manager("manager", Jobs {}).await? {
            ControlReply::Jobs(reply) => Ok(reply.jobs),
            other => Err(unexpected("manager", &other)),
        }
    }

    /// Has the manager write a backup of its state into its directory, on its machine.
    /// [`Client::backup_part`] then reads it.
    pub async fn backup(&self) -> Result<BackupReply> {
        match self.shared.control.call_once("manager", &Backup {}.into(), BACKUP_WAIT).await? {
            ControlReply::Backup(made) => Ok(made),
            other => Err(unexpected("manager", &other)),
        }
    }

    /// The bytes of this backup from `offset` on, at most [`BACKUP_PART_BYTES_MAX`] of them; none at its end.
    /// It is an error if the manager has made another backup since, or another manager leads.
    pub async fn backup_part(&self, made: &BackupReply, offset: u64) -> Result<Vec<u8>> {
        let bytes = u64::from(BACKUP_PART_BYTES_MAX).min(made.bytes.saturating_sub(offset));
        let Some(bytes) = u32::try_from(bytes).ok().filter(|&bytes| bytes > 0) else { return Ok(Vec::new()) };
        let subject = "the manager's backup";
        match self.ask_manager(subject, ReadBackup { crc: made.crc, offset, bytes }).await? {
            ControlReply::BackupPart(part) if part.content.len() == bytes as usize => Ok(part.content),
            other => Err(unexpected(subject, &other)),
        }
    }

    /// Frees the objects that a comparison after a restore found without a name.
    pub async fn free_unnamed(&self) -> Result<()> {
        self.ask_done("manager", FreeUnnamed {}).await
    }

    /// Has a drive, by name or id, measure what its parts cost, or asks for the state of that.
    pub async fn calibrate(&self, drive: &str, act: CalibrateAct) -> Result<CalibrateDriveReply> {
        let request = CalibrateDrive { drive: drive.to_owned(), act };
        let subject = format!("calibration of {drive}");
        match self.ask_manager(&subject, request).await? {
            ControlReply::Calibration(said) => Ok(said),
            other => Err(unexpected(&subject, &other)),
        }
    }

    /// Asks a drive, by name or id, for a scrub of at most `rate` bytes per second, or, with `None`, for the
    /// state of its scrub.
    pub async fn scrub(&self, drive: &str, rate: Option<u64>) -> Result<ScrubDriveReply> {
        let act = if rate.is_some() { ScrubAct::Start } else { ScrubAct::Look };
        let request = ScrubDrive { drive: drive.to_owned(), act, rate: rate.unwrap_or(0) };
        let subject = format!("scrub of {drive}");
        match self.ask_manager(&subject, request).await? {
            ControlReply::Scrub(said) => Ok(said),
            other => Err(unexpected(&subject, &other)),
        }
    }

    /// Replaces drive `old` by `new` in every layout. Its columns join empty, and the new
    /// drive fills them. Returns the number of components concerned. Drives are given by name or id.
    pub async fn replace_drive(&self, old: &str, new: &str) -> Result<u64> {
        let subject = format!("drive {old}");
        match self.ask_manager(&subject, ReplaceDrive { old: old.to_owned(), new: new.to_owned() }).await? {
            ControlReply::Replaced(replaced) => Ok(replaced.components),
            other => Err(unexpected(&subject, &other)),
        }
    }

    /// Begins to move all columns on a drive to other drives, or stops that. The drive is given by name or
    /// id.
    pub async fn drain_drive(&self, drive: &str, drain: bool) -> Result<DrainDriveReply> {
        let subject = format!("drive {drive}");
        match self.ask_manager(&subject, DrainDrive { drive: drive.to_owned(), drain }).await? {
            ControlReply::Drained(reply) => Ok(reply),
            other => Err(unexpected(&subject, &other)),
        }
    }

    /// Pauses a drive for so many milliseconds, at most a day: its silence does not make it a lost one. 0
    /// ends the pause.
    pub async fn pause_drive(&self, drive: &str, for_ms: u64) -> Result<()> {
        self.ask_done(&format!("drive {drive}"), PauseDrive { drive: drive.to_owned(), for_ms }).await
    }

    /// Takes a drive without components out of the cluster for good.
    pub async fn remove_drive(&self, drive: &str) -> Result<()> {
        self.ask_done(&format!("drive {drive}"), RemoveDrive { drive: drive.to_owned() }).await
    }
}

impl Lister {
    /// The next entry; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Entry>> {
        loop {
            if let Some(entry) = self.page.next() {
                return Ok(Some(entry));
            }
            if !self.more {
                return Ok(None);
            }
            let DirectoryReply { entries, more } = self.page_after().await?;
            // Trusting "more" on an empty page would loop for ever.
            self.more = more && !entries.is_empty();
            if let Some(last) = entries.last() {
                self.after.clone_from(&last.name);
            }
            self.page = entries.into_iter();
        }
    }

    /// All remaining entries.
    pub async fn all(mut self) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        while let Some(entry) = self.next().await? {
            entries.push(entry);
        }
        Ok(entries)
    }

    async fn page_after(&self) -> Result<DirectoryReply> {
        let subject = self.directory.to_string();
        let request = ReadDirectory {
            at: self.client.place(&self.directory).await?,
            after: self.after.clone(),
            limit: PAGE,
            watch: self.client.watches(),
        };
        match self.client.ask_manager(&subject, request).await? {
            ControlReply::Directory(mut page) => {
                page.entries.iter_mut().for_each(|entry| sealed::shown(&mut entry.attributes));
                Ok(page)
            }
            other => Err(unexpected(&subject, &other)),
        }
    }
}

/// A shape in its wire form; zeros stand for the default.
pub(crate) fn spec(shape: Option<Shape>) -> ShapeSpec {
    shape.map_or(ShapeSpec::DEFAULT, ShapeSpec::from)
}

/// Refuses two names of which one is in another volume.
pub(crate) fn refuse_other_volume(from: &Name, to: &Name) -> Result<()> {
    if from.volume() == to.volume() {
        return Ok(());
    }
    let detail = format!("cannot become {to}, which is in another volume; copy it instead");
    Err(Error::Refused { subject: from.to_string(), refusal: Refusal::new(Reason::BadName, detail) })
}

pub(crate) fn volume_subject(name: &str) -> Result<String> {
    check_volume(name).map_err(|source| Error::Name { name: name.to_owned(), source })?;
    Ok(format!("volume {name}"))
}
