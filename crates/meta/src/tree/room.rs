//! Room under quotas: whether files may grow, and how far an open file may without asking again.
//!
//! A writer gets a *reach* with its capabilities: the bytes that it may make of the file without asking
//! again. They count from then on, whether they are written or not, and drives refuse to store what goes
//! beyond. So no number of writers goes beyond a quota. The reach ends with the lease, and a writer that
//! others wait for gives back what it does not need.

use braid_layout::FileId;
use braid_wire::{Reason, Refusal};

use crate::records::inodes;
use crate::records::quotas::{self, Excess};
use crate::records::schema::{Account, InodeRecord, VolumeRecord, key, table};
use crate::records::tx::Tx;
use crate::tree::volumes;

/// Minimum and maximum number of bytes that a reach goes beyond what was asked for, as long as there is room.
const STEP_MIN: u64 = 16 << 20;
const STEP_MAX: u64 = 1 << 30;
/// Minimum number of bytes that are worth a step: the rest of a quota goes to who needs it.
const STEP_LEAST: u64 = 1 << 20;
/// The part of what is left of a quota that one writer gets beyond what it asked for.
const STEP_PART: u64 = 8;

/// Refuses a change of a file's record that would make anything grow beyond its quota.
pub fn refuse_above(
    tx: &Tx,
    before: Option<&InodeRecord>,
    after: Option<&InodeRecord>,
) -> Result<(), Refusal> {
    match quotas::excess(tx, before, after)? {
        None => Ok(()),
        Some(excess) => Err(refusal(tx, excess)?),
    }
}

fn refusal(tx: &Tx, excess: Excess) -> Result<Refusal, Refusal> {
    let Excess { volume, account, limit, would_be, is_files } = excess;
    let who = whose(tx, &volumes::by_number(tx, volume)?, account)?;
    let what = if is_files { "files" } else { "bytes" };
    let detail = format!(
        "{who} has a quota of {limit} {what}, and this would make it {would_be}: remove files, or raise the \
         quota (braid quota set)"
    );
    Ok(Refusal::new(Reason::Quota, detail))
}

/// The holder of an account, for people.
pub(crate) fn whose(tx: &Tx, volume: &VolumeRecord, account: Account) -> Result<String, Refusal> {
    let name = &volume.name;
    Ok(match account {
        Account::Volume => format!("volume {name}"),
        Account::User(uid) => format!("user {uid} in volume {name}"),
        Account::Tree(directory) => {
            format!("directory {}", volumes::path_of(tx, &inodes::get(tx, directory)?)?)
        }
    })
}

/// Lets the file's writers make it grow to `wanted` bytes, and by a step further as far as there is room. In
/// a volume without quotas it has no bound. If a quota does not have the room, it is refused if the writer
/// `must` have it, and else it gets what there is.
pub fn extend(
    tx: &mut Tx,
    file: FileId,
    inode: InodeRecord,
    wanted: u64,
    must: bool,
) -> Result<InodeRecord, Refusal> {
    let before = inode.clone();
    let mut inode = inode;
    if !quotas::has(tx, inode.volume)? {
        if inode.reach.take().is_some() {
            inodes::save(tx, file, &inode)?;
        }
        return Ok(inode);
    }
    // A file without a name may get one under a quota.
    let free = quotas::free_for(tx, &inode)?.unwrap_or(u64::MAX);
    let charged = inode.charged();
    if inode.reach.is_some_and(|reach| wanted <= reach) {
        return Ok(inode);
    }
    let needed = wanted.saturating_sub(charged);
    let needed = if must { needed } else { needed.min(free) };
    inode.reach = Some(charged.saturating_add(needed));
    refuse_above(tx, Some(&before), Some(&inode))?;
    let step = inode.size.clamp(STEP_MIN, STEP_MAX).min(free.saturating_sub(needed) / STEP_PART);
    let step = if step < STEP_LEAST { 0 } else { step };
    inode.reach = Some(charged.saturating_add(needed).saturating_add(step));
    inodes::save(tx, file, &inode)?;
    Ok(inode)
}

/// Returns true if writers of other files have room that they may give back, in the account that has none for
/// this file to grow to `wanted` bytes.
pub fn others_have_room(tx: &Tx, file: FileId, wanted: u64) -> Result<bool, Refusal> {
    let inode = inodes::get(tx, file)?;
    let wants = InodeRecord { reach: Some(wanted), ..inode.clone() };
    let Some(excess) = quotas::excess(tx, Some(&inode), Some(&wants))? else { return Ok(true) };
    let (from, to) = key::all(table::ATTENTION);
    for (row, _) in tx.scan(&from, &to, usize::MAX)? {
        let other = FileId(key::number(&row, 1));
        let Some(open) = tx.inode(other)?.filter(|open| other != file && open.volume == inode.volume) else {
            continue;
        };
        if may_give_back(&open) && quotas::accounts(tx, &open)?.contains(&excess.account) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns true if the file's writer has more than it may need, and can give it back: the only one knows what
/// is written.
pub fn may_give_back(inode: &InodeRecord) -> bool {
    let has_more = inode.reach.is_some_and(|reach| reach > inode.size.max(inode.reserved));
    has_more && !inode.shared && !inode.is_parted()
}

/// Takes back what the file's only writer does not need: from now on it writes nothing past `needed`.
pub fn give_back(tx: &mut Tx, file: FileId, inode: InodeRecord, needed: u64) -> Result<InodeRecord, Refusal> {
    let mut inode = inode;
    if may_give_back(&inode) && inode.reach.is_some_and(|reach| needed < reach) {
        inode.reach = Some(needed.max(inode.size).max(inode.reserved));
        inodes::save(tx, file, &inode)?;
    }
    Ok(inode)
}
