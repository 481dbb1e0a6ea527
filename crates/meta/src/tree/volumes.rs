//! Volumes: name spaces with a quota and a default shape.

use braid_layout::{DriveId, FileId, VolumeId};
use braid_wire::capability::Protection;
use braid_wire::control::{ShapeSpec, VolumeRow};
use braid_wire::{Reason, Refusal};

use crate::records::schema::{DriveRecord, InodeRecord, VolumeRecord, directory_record, key, table};
use crate::records::tx::Tx;
use crate::records::{inodes, past, quotas};
use crate::tree::names::{check_label, show};
use crate::tree::seen;

/// Maximum number of volumes of a cluster: each has a partition on every drive, and a list of all fits one
/// reply.
pub const VOLUMES_MAX: usize = 1000;

/// The volume of this name.
pub fn find(tx: &Tx, name: &str) -> Result<VolumeRecord, Refusal> {
    let unknown = || Refusal::new(Reason::NoVolume, format!("no volume {name:?}"));
    let volume: VolumeId = tx.record(&key::volume_name(name))?.ok_or_else(unknown)?;
    tx.record(&key::volume(volume))?.ok_or_else(unknown)
}

/// The volume of this number.
pub fn by_number(tx: &Tx, volume: VolumeId) -> Result<VolumeRecord, Refusal> {
    tx.record(&key::volume(volume))?
        .ok_or_else(|| Refusal::new(Reason::NoVolume, format!("no volume number {volume}")))
}

/// Makes a volume with an empty root. `shape` must be complete and valid.
pub fn create(
    tx: &mut Tx,
    name: &str,
    shape: ShapeSpec,
    quota_bytes: u64,
    now_ms: u64,
) -> Result<VolumeId, Refusal> {
    check_label("volume", name)?;
    if tx.get(&key::volume_name(name))?.is_some() {
        return Err(Refusal::new(Reason::Exists, "exists already"));
    }
    if all(tx)?.len() >= VOLUMES_MAX {
        return Err(Refusal::new(Reason::Quota, format!("a cluster has at most {VOLUMES_MAX} volumes")));
    }
    let volume = VolumeId(tx.next_number()?);
    let root = FileId(tx.next_number()?);
    let record = VolumeRecord {
        volume,
        name: name.to_owned(),
        shape,
        quota_bytes,
        files: 0,
        file_bytes: 0,
        created_ms: now_ms,
        root,
    };
    tx.set(key::volume(volume), &record);
    tx.set(key::volume_name(name), &volume);
    if quota_bytes > 0 {
        quotas::set_first(tx, volume, quota_bytes);
    }
    tx.set_inode(root, &directory_record(volume, FileId(0), Vec::new(), now_ms))?;
    Ok(volume)
}

/// Removes an empty volume; its partitions go to the list of partitions to remove.
pub fn remove(tx: &mut Tx, name: &str) -> Result<(), Refusal> {
    let volume = find(tx, name)?;
    seen::refuse_any(tx, &volume)?;
    let (from, to) = key::under(key::entry(volume.root, b""));
    if !tx.scan(&from, &to, 1)?.is_empty() {
        return Err(Refusal::new(Reason::NotEmpty, format!("volume {name:?} is not empty")));
    }
    let (from, to) = key::all(table::ATTENTION);
    for (attention, _) in tx.scan(&from, &to, usize::MAX)? {
        let file = FileId(key::number(&attention, 1));
        if tx.inode(file)?.is_some_and(|inode| inode.volume == volume.volume) {
            let detail = format!("volume {name:?} has open files without a name: wait until they are closed");
            return Err(Refusal::new(Reason::NotEmpty, detail));
        }
    }
    for (_, drive) in tx.records::<DriveRecord>(&key::all(table::DRIVE), usize::MAX)? {
        tx.delete(key::partition(table::PARTITION, drive.drive, volume.volume));
        tx.delete(key::partition(table::PARTITION_QUOTA, drive.drive, volume.volume));
        if drive.replaced_by == DriveId(0) {
            tx.mark(key::partition(table::PARTITION_REMOVAL, drive.drive, volume.volume));
        }
    }
    inodes::delete(tx, volume.root)?;
    for (account, _) in quotas::all(tx, volume.volume)? {
        tx.delete(key::quota(volume.volume, account));
    }
    tx.delete(key::volume_keys(volume.volume));
    tx.delete(key::meta(&private_word(volume.volume)));
    tx.delete(key::history(volume.volume));
    tx.delete(key::volume_name(name));
    tx.delete(key::volume(volume.volume));
    Ok(())
}

/// The protection of a volume's data between clients and drives.
pub fn protection(tx: &Tx, volume: VolumeId) -> Result<Protection, Refusal> {
    let is_private = tx.number(&private_word(volume))? != 0;
    Ok(if is_private { Protection::Privacy } else { Protection::Integrity })
}

/// Sets the protection of a volume's data. Capabilities that were given before end by themselves, or when the
/// volume's keys are turned.
pub fn protect(tx: &mut Tx, volume: VolumeId, protection: Protection) -> Result<(), Refusal> {
    let word = key::meta(&private_word(volume));
    match protection {
        Protection::Privacy => tx.set(word, &1u64),
        Protection::Integrity => tx.delete(word),
        Protection::IntegrityData => {
            let detail = "a volume's data has integrity or privacy: privacy protects it from changes too";
            return Err(Refusal::new(Reason::Unsupported, detail));
        }
    }
    Ok(())
}

/// The word under which it is stored that a volume's data is private.
fn private_word(volume: VolumeId) -> String {
    format!("private {volume}")
}

/// All volumes, by number.
pub fn all(tx: &Tx) -> Result<Vec<VolumeRecord>, Refusal> {
    let rows = tx.records(&key::all(table::VOLUME), usize::MAX)?;
    Ok(rows.into_iter().map(|(_, record)| record).collect())
}

/// All volumes, by name.
pub fn rows(tx: &Tx) -> Result<Vec<VolumeRow>, Refusal> {
    let mut rows = all(tx)?.into_iter().map(|volume| row(tx, volume)).collect::<Result<Vec<_>, _>>()?;
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(rows)
}

fn row(tx: &Tx, volume: VolumeRecord) -> Result<VolumeRow, Refusal> {
    let past = past::history(tx, volume.volume)?;
    Ok(VolumeRow {
        past_files: past.as_ref().map_or(0, |past| past.past_files),
        past_bytes: past.map_or(0, |past| past.past_bytes),
        volume: volume.volume,
        name: volume.name,
        shape: volume.shape,
        quota_bytes: volume.quota_bytes,
        files: volume.files,
        file_bytes: volume.file_bytes,
        created_ms: volume.created_ms,
        protection: protection(tx, volume.volume)?,
    })
}

/// URL of a file's volume and path, for people.
pub fn path_of(tx: &Tx, inode: &InodeRecord) -> Result<String, Refusal> {
    let volume = by_number(tx, inode.volume)?.name;
    if inode.is_frozen() {
        return Ok(format!("braid://{volume} (file {} as a snapshot shows it)", inode.frozen));
    }
    let mut path = show(&inode.name);
    let mut parent = inode.parent;
    while let Some(directory) = inodes::find(tx, parent)?.filter(|directory| directory.parent != FileId(0)) {
        path = format!("{}/{path}", show(&directory.name));
        parent = directory.parent;
    }
    Ok(format!("braid://{volume}/{path}"))
}
