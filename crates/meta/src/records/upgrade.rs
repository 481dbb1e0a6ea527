//! Brings a state that an older build wrote up to the format that this build expects.

use std::collections::BTreeMap;

use braid_layout::FileId;
use braid_wire::Refusal;
use braid_wire::control::EntryKind;

use crate::records::kv::KvError;
use crate::records::schema::{Account, SCHEMA_VERSION, VolumeRecord, key, table};
use crate::records::tx::Tx;
use crate::records::{inodes, quotas};

/// Number of records read at a time.
const PAGE: usize = 4096;

/// Brings a state up to this build's version. From version 3 on, each directory counts the directories in it.
/// A newer release's state is refused.
pub fn upgrade(tx: &mut Tx) -> Result<(), Refusal> {
    let format = u64::from(SCHEMA_VERSION);
    let found = tx.number("format")?;
    if found > format {
        return Err(KvError::Newer { found, known: SCHEMA_VERSION }.into());
    }
    count_nameless(tx)?;
    make_accounts(tx)?;
    if found == format {
        return Ok(());
    }
    let mut below = BTreeMap::<FileId, u32>::new();
    let mut after = None;
    loop {
        let page = tx.inodes(after, PAGE)?;
        let directories = page.iter().filter(|(_, inode)| inode.kind == EntryKind::Directory);
        for (_, inode) in directories.filter(|(_, inode)| inode.parent != FileId(0)) {
            *below.entry(inode.parent).or_default() += 1;
        }
        match page.last() {
            Some((last, _)) => after = Some(*last),
            None => break,
        }
    }
    for (directory, count) in below {
        if let Some(mut inode) = tx.inode(directory)? {
            inode.more_links = count;
            tx.set_inode(directory, &inode)?;
        }
    }
    tx.set(key::meta("format"), &format);
    Ok(())
}

/// Makes the accounts of volumes with a quota: older builds had none.
fn make_accounts(tx: &mut Tx) -> Result<(), Refusal> {
    for (_, volume) in tx.records::<VolumeRecord>(&key::all(table::VOLUME), usize::MAX)? {
        if volume.quota_bytes > 0 && !quotas::has(tx, volume.volume)? {
            quotas::set(tx, volume.volume, Account::Volume, volume.quota_bytes, 0)?;
        }
    }
    Ok(())
}

/// Adds the bytes of files without a name to their volumes' totals, once: older builds did not count them.
fn count_nameless(tx: &mut Tx) -> Result<(), Refusal> {
    if tx.number("nameless")? != 0 {
        return Ok(());
    }
    let (from, to) = key::all(table::ATTENTION);
    for (row, _) in tx.scan(&from, &to, usize::MAX)? {
        let Some(inode) = tx.inode(FileId(key::number(&row, 1)))? else { continue };
        if inode.is_named() || inode.kind != EntryKind::File {
            continue;
        }
        if let Some(mut volume) = tx.record::<VolumeRecord>(&key::volume(inode.volume))? {
            inodes::recount(tx, &mut volume, (0, 0), (0, inode.size));
        }
    }
    tx.set(key::meta("nameless"), &1u64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use braid_layout::VolumeId;
    use braid_wire::control::ShapeSpec;

    use super::*;
    use crate::records::db::Db;
    use crate::records::memory::MemoryKv;
    use crate::records::schema::InodeRecord;
    use crate::records::schema::directory_record;

    #[test]
    fn a_newer_release_s_state_is_refused() {
        let db = Db::new(Arc::new(MemoryKv::new()));
        let newer = db.write(|tx| {
            tx.set(key::meta("format"), &(u64::from(SCHEMA_VERSION) + 1));
            upgrade(tx)
        });
        let refusal = newer.expect_err("refused");
        assert!(refusal.detail.contains("run the newer release"), "{refusal}");
    }

    #[test]
    fn files_without_a_name_are_counted_once() {
        let db = Db::new(Arc::new(MemoryKv::new()));
        let shape = ShapeSpec { scheme: 0, k: 0, m: 0, unit_bytes: 0 };
        let volume = VolumeId(1);
        let name = "v".to_owned();
        let quota_bytes = 0;
        let files = 1;
        let file_bytes = 100;
        let created_ms = 0;
        let root = FileId(2);
        let record = VolumeRecord { volume, name, shape, quota_bytes, files, file_bytes, created_ms, root };
        let upgraded = db.write(|tx| {
            tx.set(key::volume(volume), &record);
            let blank = directory_record(volume, FileId(0), Vec::new(), 1);
            let nameless = InodeRecord { kind: EntryKind::File, size: 50, kept: true, ..blank };
            inodes::create(tx, FileId(3), &nameless)?;
            upgrade(tx)?;
            upgrade(tx)?;
            Ok(tx.record::<VolumeRecord>(&key::volume(volume))?.map(|volume| volume.file_bytes))
        });
        assert_eq!(upgraded.expect("upgraded"), Some(150));
    }

    #[test]
    fn directories_of_an_older_state_are_counted_once() {
        let db = Db::new(Arc::new(MemoryKv::new()));
        let links = |tx: &Tx| Ok([2, 3, 4].map(|file| tx.inode(FileId(file)).unwrap().unwrap().more_links));
        db.write(|tx| {
            for (file, parent) in [(2, 0), (3, 2), (4, 2)] {
                let name = format!("d{file}").into_bytes();
                tx.set_inode(FileId(file), &directory_record(VolumeId(1), FileId(parent), name, 1))?;
            }
            upgrade(tx)
        })
        .expect("upgraded");
        assert_eq!(db.read(links).expect("there"), [2, 0, 0]);
        db.write(|tx| {
            tx.set_inode(FileId(2), &directory_record(VolumeId(1), FileId(0), Vec::new(), 1))?;
            upgrade(tx)
        })
        .expect("nothing to do");
        assert_eq!(db.read(links).expect("there"), [0, 0, 0], "what is counted is not counted again");
    }
}
