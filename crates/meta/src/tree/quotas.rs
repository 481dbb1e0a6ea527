//! Quotas of volumes, directories and users: set, listed, removed. Each function is the work of one
//! transaction.

use braid_wire::control::{EntryKind, NamePlace, QuotaRow, QuotaSet};
use braid_wire::{Reason, Refusal};

use crate::records::schema::{Account, QuotaRecord, VolumeRecord, key};
use crate::records::tx::Tx;
use crate::records::{inodes, quotas};
use crate::tree::directories::resolve;
use crate::tree::names::show;
use crate::tree::room::whose;
use crate::tree::volumes;

/// The account that a request names.
fn account_of(tx: &Tx, at: &NamePlace, user: Option<u32>) -> Result<(VolumeRecord, Account), Refusal> {
    let found = resolve(tx, at)?.changeable(at)?;
    let volume = volumes::by_number(tx, found.inode.volume)?;
    let is_root = found.file == volume.root;
    if found.inode.kind != EntryKind::Directory {
        let detail = format!(
            "{:?} is not a directory: a quota is for a volume, a directory or a user",
            show(&at.path)
        );
        return Err(Refusal::new(Reason::NotDirectory, detail));
    }
    match user {
        None if is_root => Ok((volume, Account::Volume)),
        None => Ok((volume, Account::Tree(found.file))),
        Some(uid) if is_root => Ok((volume, Account::User(uid))),
        Some(_) => {
            Err(Refusal::new(Reason::BadName, "a user's quota is for a whole volume: name the volume alone"))
        }
    }
}

/// Sets a quota. What is there counts, also if it is more.
pub fn set(tx: &mut Tx, set: &QuotaSet) -> Result<(), Refusal> {
    let &QuotaSet { ref at, user, bytes, files } = set;
    let (mut volume, account) = account_of(tx, at, user)?;
    if (bytes, files) == (0, 0) {
        return Err(Refusal::new(Reason::Malformed, "a quota bounds bytes, files or both: name one of them"));
    }
    quotas::set(tx, volume.volume, account, bytes, files)?;
    if account == Account::Volume {
        volume.quota_bytes = bytes;
        tx.set(key::volume(volume.volume), &volume);
    }
    Ok(())
}

/// Ends a quota.
pub fn remove(tx: &mut Tx, at: &NamePlace, user: Option<u32>) -> Result<(), Refusal> {
    let (mut volume, account) = account_of(tx, at, user)?;
    let known = quotas::find(tx, volume.volume, account)?;
    if known.is_none_or(|known| (known.limit_bytes, known.limit_files) == (0, 0)) {
        let who = whose(tx, &volume, account)?;
        return Err(Refusal::new(Reason::NotFound, format!("{who} has no quota")));
    }
    quotas::remove(tx, volume.volume, account)?;
    if account == Account::Volume {
        volume.quota_bytes = 0;
        tx.set(key::volume(volume.volume), &volume);
    }
    Ok(())
}

/// The quotas of all volumes, or of one.
pub fn rows(tx: &Tx, volume: &str) -> Result<Vec<QuotaRow>, Refusal> {
    let volumes = if volume.is_empty() { volumes::all(tx)? } else { vec![volumes::find(tx, volume)?] };
    let mut rows = Vec::new();
    for volume in volumes {
        for (account, record) in quotas::all(tx, volume.volume)? {
            if (record.limit_bytes, record.limit_files) != (0, 0) {
                rows.push(row(tx, &volume, account, &record)?);
            }
        }
    }
    Ok(rows)
}

fn row(tx: &Tx, volume: &VolumeRecord, account: Account, record: &QuotaRecord) -> Result<QuotaRow, Refusal> {
    let place = match account {
        Account::Tree(directory) => volumes::path_of(tx, &inodes::get(tx, directory)?)?,
        Account::Volume | Account::User(_) => format!("braid://{}", volume.name),
    };
    let user = match account {
        Account::User(uid) => Some(uid),
        Account::Volume | Account::Tree(_) => None,
    };
    let &QuotaRecord { limit_bytes, limit_files, bytes, files, .. } = record;
    Ok(QuotaRow { place, user, limit_bytes, limit_files, bytes, files })
}
