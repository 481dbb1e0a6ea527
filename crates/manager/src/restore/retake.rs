//! Recovery after a commit that failed: the tables beside the state are brought into agreement with it.
//!
//! The requests that waited for that commit were refused, so none of its changes is in the tables of leases
//! and drives. But they may be on record all the same: the disk failed while they were written. A lease would
//! then have no holder, and its file, if it has no name, would never be removed; the table would have a
//! drive's old record. A restart would find such rows; so this does once what a restart does.

use std::sync::Arc;
use std::time::Duration;

use braid_layout::{DriveId, FileId, TokenId};
use braid_meta::records::schema::{DriveKeyRecord, DriveRecord, InodeRecord, key, table};
use braid_meta::records::tx::Tx;
use braid_meta::tree::keys;
use braid_wire::Refusal;

use crate::core::{Core, set_record};
use crate::jobs::{Again, Job};
use crate::leading::ROUND;

/// Maximum number of files in one transaction.
const FILES_PER_ROUND: usize = 1024;

/// Has the tables follow the state after each commit that failed.
#[derive(Default)]
pub(crate) struct Retake {
    /// Number of failed commits after which the tables followed.
    known: u64,
}

impl Job for Retake {
    const NAME: &'static str = "retake";
    const ABOUT: &'static str =
        "Reads leases and drives from the state again after a change that could not be stored.";
    const PAUSE_MAX: Duration = ROUND;

    async fn round(&mut self, core: &Arc<Core>) -> Result<Again, Refusal> {
        let failures = core.db.failures();
        if failures != self.known {
            retake(core).await?;
            self.known = failures;
        }
        Ok(Again::Woken)
    }
}

/// Takes over from the state the drives' records and keys, and the leases that the tables do not have.
async fn retake(core: &Arc<Core>) -> Result<(), Refusal> {
    let drives = |_: &Core, tx: &mut Tx| {
        let all = tx.records::<DriveRecord>(&key::all(table::DRIVE), usize::MAX)?;
        // With the state of its key: a master key that was turned, beside a table in which it was not, would
        // be taken for the one before the turn, and the drive be refused for ever.
        let with_keys = |(_, record): (_, DriveRecord)| Ok((keys::of_drive(tx, record.drive)?, record));
        all.into_iter().map(with_keys).collect::<Result<Vec<_>, Refusal>>()
    };
    // The tables change in the order of the transactions, so none goes back behind a later decision.
    let followed = |core: &Core, drives: &Vec<(DriveKeyRecord, DriveRecord)>| {
        for (keys, record) in drives {
            set_record(core, record);
            core.drives().set_keys(record.drive, keys.clone());
        }
    };
    core.write_then(drives, followed).await?;
    let (mut from, to) = key::all(table::ATTENTION);
    loop {
        let range = (from.clone(), to.clone());
        let some = move |_: &Core, tx: &mut Tx| {
            let rows = tx.scan(&range.0, &range.1, FILES_PER_ROUND)?;
            let last = rows.last().map(|(row, _)| row.clone()).filter(|_| rows.len() == FILES_PER_ROUND);
            let mut files = Vec::new();
            for (row, _) in rows {
                let file = FileId(key::number(&row, 1));
                files.extend(tx.inode(file)?.map(|inode| (file, inode)));
            }
            Ok((last, files))
        };
        let taken = |core: &Core, (_, files): &(_, Vec<(FileId, InodeRecord)>)| {
            for (file, inode) in files {
                if core.leases().is_known(*file) {
                    continue;
                }
                take_over(core, *file, inode);
            }
        };
        match core.write_then(some, taken).await? {
            (Some(last), _) => from = [last.as_slice(), &[0]].concat(),
            (None, _) => return Ok(()),
        }
    }
}

/// Takes a file that needs attention over from its record; also used at a start. Its lease lasts a full term.
pub(crate) fn take_over(core: &Core, file: FileId, inode: &InodeRecord) {
    if inode.kept {
        core.watchers().keepers.lost_name(file);
    }
    if inode.is_left() || inode.held && is_over(core, inode.token) {
        core.leases().leave(file, inode.lease);
    } else if inode.held {
        core.leases().resume(file, inode, core.running_ms());
    } else if inode.unfenced {
        core.unfinished().insert(file);
    }
}

/// Returns true if a token is over with which a lease was taken: nobody can renew that.
fn is_over(core: &Core, token: TokenId) -> bool {
    token != TokenId::NONE && core.tokens().check(token, DriveId(0), core.now_ms()).is_err()
}

#[cfg(test)]
mod tests {
    use braid_layout::version::Lease;
    use braid_layout::{HolderId, ObjectId};
    use tokio::task::JoinHandle;

    use super::*;
    use crate::jobs::run;
    use crate::sessions::session_slots::SessionSlots;
    use crate::start::{Config, start};
    use braid_meta::records::inodes;
    use braid_meta::records::memory::{Disk, MemoryKv};
    use braid_meta::records::schema::directory_record;
    use braid_meta::rules::drives::examples;
    use braid_meta::rules::leases::LeaseState;

    const FILE: FileId = FileId(5);

    /// Creates a leased file without a name; its lease enters the table once that is durable.
    fn lease(core: &Arc<Core>) -> JoinHandle<Result<(), Refusal>> {
        let core = Arc::clone(core);
        let work = |_: &Core, tx: &mut Tx| {
            let root = directory_record(Default::default(), FileId(0), Vec::new(), 1);
            let kind = braid_wire::control::EntryKind::File;
            let record = InodeRecord { kind, lease: Lease(7), held: true, holder: HolderId(3), ..root };
            inodes::save(tx, FILE, &record)?;
            tx.set(key::remove(Default::default(), FILE, ObjectId(1)), &1u64);
            Ok(record)
        };
        let then = |core: &Core, record: &InodeRecord| take_over(core, FILE, record);
        tokio::spawn(async move { core.write_then(work, then).await.map(drop) })
    }

    #[tokio::test]
    async fn a_drives_key_and_its_number_are_taken_over_together() {
        let kv = MemoryKv::new();
        let core =
            start(Arc::new(kv.clone()), &Config::new("memory", ""), SessionSlots::of(4, 4)).await.unwrap();
        let record = examples::record(1, "one");
        let drive = record.drive;
        core.drives().insert(record.clone());
        let store = core.write(move |_, tx| {
            tx.set(key::drive(drive), &record);
            keys::rotate_drive(tx, drive, [7; 32], true, 1).map(drop)
        });
        store.await.unwrap();
        retake(&core).await.unwrap();
        // The drive has turned its key, and the manager's disk fails while that is stored.
        kv.set_disk(Disk::Unsure);
        let turned = core.write(move |_, tx| keys::handle_turned(tx, drive, 2, 2).map(drop)).await;
        assert!(turned.unwrap_err().reason.leaves_unknown());
        kv.set_disk(Disk::Sound);
        retake(&core).await.unwrap();
        let table = core.drives();
        let known = table.drive(drive).unwrap();
        assert_eq!((known.keys.turn.number, &known.keys.turn.next), (2, &None));
    }

    #[tokio::test]
    async fn a_lease_that_was_refused_and_is_on_record_lasts_a_term_and_one_that_is_not_is_none() {
        for (disk, is_there) in [(Disk::Full, false), (Disk::Unsure, true)] {
            let kv = MemoryKv::new();
            let config = Config::new("memory", "");
            let core = start(Arc::new(kv.clone()), &config, SessionSlots::of(4, 4)).await.unwrap();
            let retaking = tokio::spawn(run::<Retake>(Arc::clone(&core)));
            kv.set_disk(disk);
            assert!(lease(&core).await.unwrap().unwrap_err().reason.leaves_unknown());
            kv.set_disk(Disk::Sound);
            let live = || matches!(core.leases().state(FILE, core.now_ms()), LeaseState::Live(_));
            let until = tokio::time::Instant::now() + Duration::from_secs(60);
            while is_there && !live() {
                assert!(tokio::time::Instant::now() < until, "it is never taken over");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            retake(&core).await.unwrap();
            assert_eq!(live(), is_there, "{disk:?}");
            assert!(!is_there || core.leases().holds(FILE, Lease(7), HolderId(3)), "whose it is");
            retaking.abort();
        }
    }
}
