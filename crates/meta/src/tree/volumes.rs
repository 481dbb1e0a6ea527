//! Volumes: name spaces with a quota and a default shape.

use braid_layout::{DriveId, FileId, VolumeId};
use braid_wire::capability::Protection;
use braid_wire::control::{
    KEY_ID_BYTES_MAX, LABEL_BYTES_MAX, Methods, MethodsRow, ShapeSpec, VolumeKey, VolumeRekey, VolumeRow,
    WRAPPED_BYTES_MAX,
};
use braid_wire::frame::BODY_BYTES_MAX;
use braid_wire::{Reason, Refusal};

use crate::records::schema::{DriveRecord, InodeRecord, VolumeRecord, directory_record, key, table};
use crate::records::tx::Tx;
use crate::records::{inodes, past, quotas};
use crate::tree::names::{check_label, show};
use crate::tree::seen;

/// Maximum number of volumes of a cluster: each has a partition on every drive, and a list of all fits one
/// reply.
pub const VOLUMES_MAX: usize = 1000;

/// Maximum sum of the lengths of all volumes' wrapped data keys, in bytes: a list of all volumes fits one
/// reply with them.
pub const WRAPPED_BYTES_OF_ALL_MAX: usize = 512 << 10;

/// More than a volume's row has in a list, without its wrapped data key: labels, and some numbers of 8 bytes.
const ROW_BYTES: usize = LABEL_BYTES_MAX + KEY_ID_BYTES_MAX + 16 * 8;
const _: () = assert!(VOLUMES_MAX * ROW_BYTES + WRAPPED_BYTES_OF_ALL_MAX < BODY_BYTES_MAX as usize);

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

/// The wrapped data key of an encrypted volume.
pub fn seal_of(tx: &Tx, volume: VolumeId) -> Result<Option<VolumeKey>, Refusal> {
    Ok(tx.record(&key::volume_seal(volume))?)
}

/// Makes a new volume an encrypted one.
pub fn seal(tx: &mut Tx, volume: VolumeId, wrapped: &VolumeKey) -> Result<(), Refusal> {
    check_key(tx, volume, wrapped)?;
    tx.set(key::volume_seal(volume), wrapped);
    Ok(())
}

/// Replaces the wrapped data key of an encrypted volume by the same one, wrapped anew.
pub fn rekey(tx: &mut Tx, rekey: &VolumeRekey) -> Result<(), Refusal> {
    let volume = find(tx, &rekey.name)?;
    check_key(tx, volume.volume, &rekey.key)?;
    let Some(now) = seal_of(tx, volume.volume)? else {
        let detail = format!("volume {:?} is not encrypted: it has no key", rekey.name);
        return Err(Refusal::new(Reason::NotAllowed, detail));
    };
    if now.check != rekey.key.check {
        let detail = format!("volume {:?} has another data key: nothing is changed", rekey.name);
        return Err(Refusal::new(Reason::NotAllowed, detail));
    }
    if now.wrapped != rekey.was {
        let detail = format!("the key of volume {:?} was wrapped anew meanwhile, by {}", rekey.name, now.id);
        return Err(Refusal::new(Reason::Outdated, detail));
    }
    tx.set(key::volume_seal(volume.volume), &rekey.key);
    Ok(())
}

fn check_key(tx: &Tx, volume: VolumeId, wrapped: &VolumeKey) -> Result<(), Refusal> {
    let bad = |detail: String| Err(Refusal::new(Reason::Malformed, detail));
    if wrapped.id.is_empty() || wrapped.id.len() > KEY_ID_BYTES_MAX {
        return bad(format!("the name of a key has 1 to {KEY_ID_BYTES_MAX} bytes"));
    }
    if wrapped.wrapped.is_empty() || wrapped.wrapped.len() > WRAPPED_BYTES_MAX {
        return bad(format!("a wrapped data key has 1 to {WRAPPED_BYTES_MAX} bytes"));
    }
    let mut bytes = wrapped.wrapped.len();
    for (key, other) in tx.records::<VolumeKey>(&key::all(table::VOLUME_SEAL), usize::MAX)? {
        if key != key::volume_seal(volume) {
            bytes += other.wrapped.len();
        }
    }
    if bytes > WRAPPED_BYTES_OF_ALL_MAX {
        let detail = format!(
            "the wrapped data keys of all volumes would have {bytes} bytes, and {WRAPPED_BYTES_OF_ALL_MAX} are the \
             most: wrap them to fewer, or remove volumes"
        );
        return Err(Refusal::new(Reason::Quota, detail));
    }
    Ok(())
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
    tx.delete(key::meta(&methods_word(volume.volume)));
    tx.delete(key::volume_seal(volume.volume));
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

/// The number that stands for no methods; a release that does not know a number takes it for this one.
const METHODS_NONE: u64 = 1;
/// The number that stands for modules of users, and what drives have.
const METHODS_WASM: u64 = 2;

/// The methods that drives run on a volume's files.
pub fn methods(tx: &Tx, volume: VolumeId) -> Result<Methods, Refusal> {
    Ok(match tx.number(&methods_word(volume))? {
        0 => Methods::Builtin,
        METHODS_WASM => Methods::Wasm,
        _ => Methods::None,
    })
}

/// Sets the methods that drives run on a volume's files, for those who open them from now on.
pub fn set_methods(tx: &mut Tx, volume: VolumeId, methods: Methods) {
    let word = key::meta(&methods_word(volume));
    match methods {
        Methods::None => tx.set(word, &METHODS_NONE),
        Methods::Builtin => tx.delete(word),
        Methods::Wasm => tx.set(word, &METHODS_WASM),
    }
}

/// The word under which it is stored that drives run other methods on a volume's files than they have.
fn methods_word(volume: VolumeId) -> String {
    format!("methods {volume}")
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

/// The methods that drives run on the files of volumes; those without any are left out.
pub fn methods_rows(tx: &Tx) -> Result<Vec<MethodsRow>, Refusal> {
    let row = |record: VolumeRecord| -> Result<MethodsRow, Refusal> {
        Ok(MethodsRow { volume: record.volume, methods: methods(tx, record.volume)? })
    };
    let mut rows = all(tx)?.into_iter().map(row).collect::<Result<Vec<_>, _>>()?;
    rows.retain(|row| row.methods != Methods::None);
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
        key: seal_of(tx, volume.volume)?,
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::records::db::Db;
    use crate::records::memory::MemoryKv;

    fn wrapped(id: &str, bytes: &[u8], check: u8) -> VolumeKey {
        VolumeKey { id: id.to_owned(), wrapped: bytes.to_vec(), check: [check; 16] }
    }

    #[test]
    fn a_data_key_is_wrapped_anew_and_never_exchanged() {
        let db = Db::new(Arc::new(MemoryKv::new()));
        let shape = ShapeSpec { scheme: 5, k: 2, m: 1, unit_bytes: 4096 };
        let first = wrapped("one", b"first", 7);
        db.write(|tx| {
            create(tx, "plain", shape.clone(), 0, 1)?;
            let volume = create(tx, "v", shape, 0, 1)?;
            seal(tx, volume, &first)
        })
        .expect("made");
        let try_to = |name: &str, was: &[u8], key: VolumeKey| {
            let asked = VolumeRekey { name: name.to_owned(), was: was.to_vec(), key };
            db.write(|tx| rekey(tx, &asked)).map_err(|refusal| refusal.reason)
        };
        let second = wrapped("two", b"second", 7);
        assert_eq!(try_to("v", b"first", wrapped("two", b"second", 8)), Err(Reason::NotAllowed));
        assert_eq!(try_to("v", b"other", second.clone()), Err(Reason::Outdated));
        assert_eq!(try_to("plain", b"", second.clone()), Err(Reason::NotAllowed));
        for key in [wrapped("", b"x", 7), wrapped(&"n".repeat(129), b"x", 7), wrapped("n", b"", 7)] {
            assert_eq!(try_to("v", b"first", key), Err(Reason::Malformed));
        }
        let key =
            || db.read(rows).expect("rows").into_iter().find(|row| row.name == "v").and_then(|row| row.key);
        assert_eq!(key(), Some(first.clone()));
        assert_eq!(try_to("v", b"first", second.clone()), Ok(()));
        assert_eq!(key(), Some(second));
    }

    #[test]
    fn all_wrapped_keys_fit_one_list() {
        let db = Db::new(Arc::new(MemoryKv::new()));
        let make = |name: String, bytes: usize| {
            let key = wrapped("k", &vec![7; bytes], 1);
            db.write(|tx| {
                let shape = ShapeSpec { scheme: 5, k: 2, m: 1, unit_bytes: 4096 };
                let volume = create(tx, &name, shape, 0, 1)?;
                seal(tx, volume, &key)
            })
        };
        let most = WRAPPED_BYTES_OF_ALL_MAX / WRAPPED_BYTES_MAX;
        for number in 0..most - 1 {
            make(format!("v{number}"), WRAPPED_BYTES_MAX).expect("made");
        }
        assert_eq!(
            make("long".to_owned(), WRAPPED_BYTES_MAX + 1).expect_err("long").reason,
            Reason::Malformed
        );
        make("half".to_owned(), WRAPPED_BYTES_MAX / 2).expect("made");
        let refused = make("more".to_owned(), WRAPPED_BYTES_MAX / 2 + 1).expect_err("too many");
        assert_eq!(refused.reason, Reason::Quota);
        assert!(refused.detail.contains("524289 bytes"), "{refused}");
        // One that is wrapped anew does not count twice.
        let key = wrapped("k", &vec![8; WRAPPED_BYTES_MAX], 1);
        let asked = VolumeRekey { name: "v0".to_owned(), was: vec![7; WRAPPED_BYTES_MAX], key };
        db.write(|tx| rekey(tx, &asked)).expect("wrapped anew");
    }
}
