//! Quotas: what a volume, a directory with all below it, and a user of a volume may hold, and what they hold.
//!
//! A file counts with its size, or with its *reach* while it is open for writing and the reach is larger: the
//! bytes that its writers may make of it without asking again. So what is written never goes beyond a quota,
//! and no write needs the manager's word. A file counts for its volume, for each directory with a quota
//! above its first name, and for its owner.
//!
//! Accounts exist only for quotas, and one for the volume as soon as anything in it has a quota. They follow
//! from the files' records: each change of a record changes them in the same transaction
//! ([`changed`], called by [`Tx::set_inode`] and `inodes::delete`).

use std::collections::BTreeMap;

use braid_layout::{FileId, VolumeId};
use braid_wire::control::EntryKind;

use crate::records::kv::KvError;
use crate::records::schema::{Account, InodeRecord, QuotaRecord, key};
use crate::records::tx::Tx;

/// Number of records read at a time.
const PAGE: usize = 4096;
/// Maximum number of directories above a file that are looked through for quotas.
const DEPTH_MAX: usize = 4096;

/// An account without bounds, in which nothing counts yet.
const BLANK: QuotaRecord = QuotaRecord { limit_bytes: 0, limit_files: 0, bytes: 0, files: 0, trees: 0 };

/// An account that a change would make grow beyond its quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Excess {
    pub volume: VolumeId,
    pub account: Account,
    /// The quota, and what the account would have.
    pub limit: u64,
    pub would_be: u64,
    /// True if it is about files; else about bytes.
    pub is_files: bool,
}

/// Bytes and files that count in an account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    pub bytes: u64,
    pub files: u64,
}

/// Change of an account: bytes and files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Change {
    bytes: i128,
    files: i128,
}

/// An account's record, if there is a quota.
pub fn find(tx: &Tx, volume: VolumeId, account: Account) -> Result<Option<QuotaRecord>, KvError> {
    tx.record(&key::quota(volume, account))
}

/// Returns true if anything in the volume has a quota.
pub fn has(tx: &Tx, volume: VolumeId) -> Result<bool, KvError> {
    Ok(find(tx, volume, Account::Volume)?.is_some())
}

/// All accounts of a volume.
pub fn all(tx: &Tx, volume: VolumeId) -> Result<Vec<(Account, QuotaRecord)>, KvError> {
    let rows = tx.records(&key::quotas_of(volume), usize::MAX)?;
    Ok(rows.into_iter().filter_map(|(row, record)| Some((key::account_in(&row)?, record))).collect())
}

/// Changes the accounts for which a file counts, when its record changes from `before` to `after`. `None`: it
/// is not there.
pub fn changed(
    tx: &mut Tx,
    before: Option<&InodeRecord>,
    after: Option<&InodeRecord>,
) -> Result<(), KvError> {
    for ((volume, account), change) in changes(tx, before, after)? {
        if let Some(mut record) = find(tx, volume, account)? {
            record.bytes = sum(record.bytes, change.bytes);
            record.files = sum(record.files, change.files);
            tx.set(key::quota(volume, account), &record);
        }
    }
    Ok(())
}

/// Changes the accounts when a record is deleted. The quota of a directory ends with it.
pub fn removed(tx: &mut Tx, file: FileId, before: &InodeRecord) -> Result<(), KvError> {
    if before.kind == EntryKind::Directory {
        return remove(tx, before.volume, Account::Tree(file));
    }
    changed(tx, Some(before), None)
}

/// Ends a quota. The volume's own account ends with the last.
pub fn remove(tx: &mut Tx, volume: VolumeId, account: Account) -> Result<(), KvError> {
    if find(tx, volume, account)?.is_none() {
        return Ok(());
    }
    let Some(mut own) = find(tx, volume, Account::Volume)? else { return Ok(()) };
    match account {
        Account::Volume => own = QuotaRecord { limit_bytes: 0, limit_files: 0, ..own },
        Account::Tree(_) => own.trees = own.trees.saturating_sub(1),
        Account::User(_) => {}
    }
    if account != Account::Volume {
        tx.delete(key::quota(volume, account));
    }
    tx.set(key::quota(volume, Account::Volume), &own);
    let is_needed = (own.limit_bytes, own.limit_files) != (0, 0) || all(tx, volume)?.len() > 1;
    if !is_needed {
        tx.delete(key::quota(volume, Account::Volume));
    }
    Ok(())
}

/// Bounds a volume that is being made, and has no files.
pub fn set_first(tx: &mut Tx, volume: VolumeId, bytes: u64) {
    let record = QuotaRecord { limit_bytes: bytes, ..BLANK };
    tx.set(key::quota(volume, Account::Volume), &record);
}

/// Sets a quota, and counts what is there first if the account is new. `bytes` and `files`: the most of each;
/// 0: any.
pub fn set(tx: &mut Tx, volume: VolumeId, account: Account, bytes: u64, files: u64) -> Result<(), KvError> {
    if find(tx, volume, Account::Volume)?.is_none() {
        tx.set(key::quota(volume, Account::Volume), &BLANK);
        count(tx, volume, Account::Volume)?;
    }
    if find(tx, volume, account)?.is_none() {
        tx.set(key::quota(volume, account), &BLANK);
        if let Some(mut own) =
            find(tx, volume, Account::Volume)?.filter(|_| matches!(account, Account::Tree(_)))
        {
            own.trees += 1;
            tx.set(key::quota(volume, Account::Volume), &own);
        }
        count(tx, volume, account)?;
    }
    if let Some(record) = find(tx, volume, account)? {
        let record = QuotaRecord { limit_bytes: bytes, limit_files: files, ..record };
        tx.set(key::quota(volume, account), &record);
    }
    Ok(())
}

/// Counts what there is of an account, in all records of the volume, and stores it.
fn count(tx: &mut Tx, volume: VolumeId, account: Account) -> Result<(), KvError> {
    if let Some(record) = find(tx, volume, account)? {
        let held = held(tx, volume, account)?;
        let record = QuotaRecord { bytes: held.bytes, files: held.files, ..record };
        tx.set(key::quota(volume, account), &record);
    }
    Ok(())
}

/// Bytes and files that count in an account, by the files' records.
pub fn held(tx: &Tx, volume: VolumeId, account: Account) -> Result<Held, KvError> {
    let mut held = Held::default();
    let mut after = None;
    loop {
        let page = tx.inodes(after, PAGE)?;
        for (_, inode) in page.iter().filter(|(_, inode)| inode.volume == volume) {
            if accounts(tx, inode)?.contains(&account) {
                held.bytes = held.bytes.saturating_add(inode.charged());
                held.files += u64::from(inode.is_named());
            }
        }
        match page.last() {
            Some((last, _)) => after = Some(*last),
            None => return Ok(held),
        }
    }
}

/// An account that this change of a file's record would make grow beyond its quota, if there is one.
pub fn excess(
    tx: &Tx,
    before: Option<&InodeRecord>,
    after: Option<&InodeRecord>,
) -> Result<Option<Excess>, KvError> {
    for ((volume, account), change) in changes(tx, before, after)? {
        let Some(record) = find(tx, volume, account)? else { continue };
        let of = |limit: u64, held: u64, change: i128, is_files: bool| {
            let would_be = sum(held, change);
            let is_excess = change > 0 && limit > 0 && would_be > limit;
            is_excess.then_some(Excess { volume, account, limit, would_be, is_files })
        };
        let bytes = of(record.limit_bytes, record.bytes, change.bytes, false);
        let found = bytes.or_else(|| of(record.limit_files, record.files, change.files, true));
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Bytes that the file may still count more, by all quotas that it is under. `None`: it is under no quota of
/// bytes.
pub fn free_for(tx: &Tx, inode: &InodeRecord) -> Result<Option<u64>, KvError> {
    let mut free: Option<u64> = None;
    for account in accounts(tx, inode)? {
        let record = find(tx, inode.volume, account)?.filter(|record| record.limit_bytes > 0);
        if let Some(record) = record {
            let own = record.limit_bytes.saturating_sub(record.bytes);
            free = Some(free.map_or(own, |least| least.min(own)));
        }
    }
    Ok(free)
}

/// Directories with a quota from this one upwards.
pub fn trees(tx: &Tx, volume: VolumeId, directory: FileId) -> Result<Vec<FileId>, KvError> {
    let mut trees = Vec::new();
    if find(tx, volume, Account::Volume)?.is_none_or(|record| record.trees == 0) {
        return Ok(trees);
    }
    let mut at = directory;
    for _ in 0..DEPTH_MAX {
        if at == FileId(0) {
            break;
        }
        if find(tx, volume, Account::Tree(at))?.is_some() {
            trees.push(at);
        }
        at = tx.inode(at)?.map_or(FileId(0), |inode| inode.parent);
    }
    Ok(trees)
}

/// Accounts for which a file counts.
pub fn accounts(tx: &Tx, inode: &InodeRecord) -> Result<Vec<Account>, KvError> {
    if inode.kind != EntryKind::File || inode.is_frozen() || !has(tx, inode.volume)? {
        return Ok(Vec::new());
    }
    let trees = trees(tx, inode.volume, inode.parent)?;
    let trees = trees.into_iter().map(Account::Tree);
    Ok([Account::Volume, Account::User(inode.uid)].into_iter().chain(trees).collect())
}

fn changes(
    tx: &Tx,
    before: Option<&InodeRecord>,
    after: Option<&InodeRecord>,
) -> Result<BTreeMap<(VolumeId, Account), Change>, KvError> {
    let mut changes = BTreeMap::<_, Change>::new();
    for (inode, sign) in [(before, -1), (after, 1)] {
        let Some(inode) = inode else { continue };
        for account in accounts(tx, inode)? {
            let change = changes.entry((inode.volume, account)).or_default();
            change.bytes += sign * i128::from(inode.charged());
            change.files += sign * i128::from(inode.is_named());
        }
    }
    Ok(changes)
}

fn sum(value: u64, change: i128) -> u64 {
    u64::try_from((i128::from(value) + change).max(0)).unwrap_or(u64::MAX)
}
