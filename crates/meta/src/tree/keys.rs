//! Turns of keys, as the records see them. Each function is the work of one transaction.
//!
//! A volume has the epoch that its working keys are to have. Each partition's record has the epoch that its
//! drive has confirmed: capabilities are made with that one, which is in force at the drive whether or not
//! the drive has heard of a later turn. A drive's key has a number. When it is to be turned, the random
//! number of the turn is stored first, so that the key is known here whenever the drive comes back with it.

use braid_layout::{ClientId, DriveId, VolumeId};
use braid_wire::capability::{CAPABILITY_MS, Key};
use braid_wire::control::{DriveKeyRow, KeyTurn, VolumeKeysRow};
use braid_wire::{Reason, Refusal};

use crate::records::schema::{
    DriveKeyRecord, DriveRecord, PartitionRecord, ShutOutRecord, VolumeKeysRecord, key, table,
};
use crate::records::tx::Tx;
use crate::rules::drives::no_drive;
use crate::rules::grants::KEY_EPOCH_FIRST;
use crate::tree::volumes;

/// Lag of a drive's view of manager time, in milliseconds: capabilities may be in use for that much longer.
const LAG_MS: u64 = 10_000;
/// Maximum number of clients that are kept shut out; beyond it, those that have been for longest are
/// forgotten.
pub const SHUT_OUT_MAX: usize = 10_000;

/// The working keys of a volume.
pub fn of_volume(tx: &Tx, volume: VolumeId) -> Result<VolumeKeysRecord, Refusal> {
    let first = VolumeKeysRecord { epoch: KEY_EPOCH_FIRST, turned_ms: 0 };
    Ok(tx.record(&key::volume_keys(volume))?.unwrap_or(first))
}

/// The master key of a drive.
pub fn of_drive(tx: &Tx, drive: DriveId) -> Result<DriveKeyRecord, Refusal> {
    Ok(tx.record(&key::drive_key(drive))?.unwrap_or(DriveKeyRecord::FIRST))
}

/// Turns the working keys of the volume of this name. Two epochs are in force at a drive, so keys that were
/// turned while capabilities of two turns ago may be in use are turned again only if these are to end
/// (`at_once`).
pub fn rotate_volume(tx: &mut Tx, name: &str, at_once: bool, now_ms: u64) -> Result<(), Refusal> {
    let volume = volumes::find(tx, name)?.volume;
    let keys = of_volume(tx, volume)?;
    refuse_early(&format!("volume {name:?}"), keys.turned_ms, at_once, now_ms)?;
    // A step of two leaves no key of before in force.
    let epoch = keys.epoch.checked_add(if at_once { 2 } else { 1 });
    let epoch = epoch.ok_or_else(|| Refusal::new(Reason::Range, "the keys were turned too often"))?;
    tx.set(key::volume_keys(volume), &VolumeKeysRecord { epoch, turned_ms: now_ms });
    Ok(())
}

/// Refuses a turn so soon after the last one that three keys would be in use.
fn refuse_early(what: &str, turned_ms: u64, at_once: bool, now_ms: u64) -> Result<(), Refusal> {
    let free_ms = turned_ms + CAPABILITY_MS + LAG_MS;
    if at_once || turned_ms == 0 || now_ms >= free_ms {
        return Ok(());
    }
    let seconds = (free_ms - now_ms).div_ceil(1000);
    let detail = format!(
        "the keys of {what} were turned a short time ago, and capabilities under the keys before are still in use: try \
         again in {seconds} s, or end these now (braid key rotate --now)"
    );
    Err(Refusal::new(Reason::NotAllowed, detail))
}

/// A drive has keys of a later epoch than the volume's, as this state is older: the volume's follow.
pub fn follow_drive(tx: &mut Tx, volume: VolumeId, epoch: u32, now_ms: u64) -> Result<(), Refusal> {
    let keys = of_volume(tx, volume)?;
    if keys.epoch < epoch && tx.get(&key::volume(volume))?.is_some() {
        tx.set(key::volume_keys(volume), &VolumeKeysRecord { epoch, turned_ms: now_ms });
    }
    Ok(())
}

/// Has a drive's master key turned at its next heartbeat. A turn that is under way stays as it is, or ends
/// what was signed before at once too.
pub fn rotate_drive(
    tx: &mut Tx,
    drive: DriveId,
    random: [u8; 32],
    at_once: bool,
    now_ms: u64,
) -> Result<DriveKeyRecord, Refusal> {
    let mut keys = of_drive(tx, drive)?;
    let is_turning = keys.turn.next.is_some();
    if !is_turning {
        refuse_early("the drive", keys.turned_ms, at_once, now_ms)?;
        keys.turn.next = Some(random);
    }
    keys.turn.at_once = at_once || is_turning && keys.turn.at_once;
    tx.set(key::drive_key(drive), &keys);
    Ok(keys)
}

/// A drive has turned its key: it is the one of the next number from now on. `None` if nothing was to be
/// turned.
pub fn handle_turned(
    tx: &mut Tx,
    drive: DriveId,
    number: u32,
    now_ms: u64,
) -> Result<Option<(DriveRecord, DriveKeyRecord)>, Refusal> {
    let record: Option<DriveRecord> = tx.record(&key::drive(drive))?;
    let record = record.ok_or_else(|| no_drive(&drive.to_string()))?;
    let keys = of_drive(tx, drive)?;
    let Some(master) = key_of(&record.master, &keys.turn, number).filter(|_| number != keys.turn.number)
    else {
        return Ok(None);
    };
    let record = DriveRecord { master, ..record };
    let turn = KeyTurn { number, next: None, at_once: keys.turn.at_once };
    let keys = DriveKeyRecord { turn, turned_ms: now_ms, ..keys };
    tx.set(key::drive(drive), &record);
    tx.set(key::drive_key(drive), &keys);
    Ok(Some((record, keys)))
}

/// The master key of this number: the one on record, or the one that it is being turned to. `None`: there is
/// no such key here.
pub fn key_of(master: &Key, turn: &KeyTurn, number: u32) -> Option<Key> {
    if number == turn.number {
        return Some(master.clone());
    }
    let next = turn.next.as_ref().filter(|_| turn.number.checked_add(1) == Some(number))?;
    Some(master.turned(number, next))
}

/// Lets a drive join anew.
pub fn allow_rejoin(tx: &mut Tx, drive: DriveId) -> Result<DriveKeyRecord, Refusal> {
    let keys = DriveKeyRecord { may_rejoin: true, ..of_drive(tx, drive)? };
    tx.set(key::drive_key(drive), &keys);
    Ok(keys)
}

/// Ends a drive's key, and all that was signed with the volumes' keys. From now on nobody has the key that is
/// on record for the drive, which is `random`; it may be let join anew ([`allow_rejoin`]).
pub fn revoke_drive(
    tx: &mut Tx,
    drive: DriveId,
    random: [u8; 32],
    now_ms: u64,
) -> Result<(DriveRecord, DriveKeyRecord), Refusal> {
    let record: Option<DriveRecord> = tx.record(&key::drive(drive))?;
    let record = record.ok_or_else(|| no_drive(&drive.to_string()))?;
    let record = DriveRecord { master: Key::new(random), confirmed: true, ..record };
    tx.set(key::drive(drive), &record);
    for volume in volumes::all(tx)? {
        rotate_volume(tx, &volume.name, true, now_ms)?;
    }
    Ok((record, rejoined(tx, drive, now_ms)?))
}

/// The key of a drive that joins anew.
pub fn rejoined(tx: &mut Tx, drive: DriveId, now_ms: u64) -> Result<DriveKeyRecord, Refusal> {
    let keys = of_drive(tx, drive)?;
    // The drive may have turned its key without having told of it: that number is used.
    let used = keys.turn.number.saturating_add(u32::from(keys.turn.next.is_some()));
    let turn = KeyTurn { number: used.saturating_add(1), next: None, at_once: true };
    let keys = DriveKeyRecord { turn, turned_ms: now_ms, may_rejoin: false };
    tx.set(key::drive_key(drive), &keys);
    Ok(keys)
}

/// Shuts a client out.
pub fn shut_out(tx: &mut Tx, client: ClientId, now_ms: u64) -> Result<(), Refusal> {
    tx.set(key::shut_out(client), &ShutOutRecord { since_ms: now_ms });
    let mut all = all_shut_out(tx)?;
    if all.len() > SHUT_OUT_MAX {
        all.sort_by_key(|(_, record)| record.since_ms);
        let over = all.len() - SHUT_OUT_MAX;
        all.iter().take(over).for_each(|(client, _)| tx.delete(key::shut_out(*client)));
    }
    Ok(())
}

/// The clients that are shut out.
pub fn all_shut_out(tx: &Tx) -> Result<Vec<(ClientId, ShutOutRecord)>, Refusal> {
    let rows = tx.records::<ShutOutRecord>(&key::all(table::SHUT_OUT), usize::MAX)?;
    Ok(rows.into_iter().map(|(row, record)| (ClientId(key::number(&row, 1)), record)).collect())
}

/// The keys of all volumes, by name.
pub fn volume_rows(tx: &Tx) -> Result<Vec<VolumeKeysRow>, Refusal> {
    let drives = serving(tx)?;
    let mut rows = Vec::new();
    for volume in volumes::all(tx)? {
        let keys = of_volume(tx, volume.volume)?;
        let mut behind = Vec::new();
        for drive in &drives {
            let row = key::partition(table::PARTITION, drive.drive, volume.volume);
            if tx.record::<PartitionRecord>(&row)?.is_some_and(|there| there.key_epoch < keys.epoch) {
                behind.push(drive.name.clone());
            }
        }
        rows.push(VolumeKeysRow { name: volume.name, epoch: keys.epoch, turned_ms: keys.turned_ms, behind });
    }
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(rows)
}

/// The keys of all drives that were not replaced, by name.
pub fn drive_rows(tx: &Tx) -> Result<Vec<DriveKeyRow>, Refusal> {
    let mut rows = Vec::new();
    for record in serving(tx)? {
        let DriveKeyRecord { turn, turned_ms, may_rejoin } = of_drive(tx, record.drive)?;
        let name = record.name;
        let is_turning = turn.next.is_some();
        rows.push(DriveKeyRow { name, number: turn.number, turned_ms, is_turning, may_rejoin });
    }
    Ok(rows)
}

fn serving(tx: &Tx) -> Result<Vec<DriveRecord>, Refusal> {
    let all = tx.records::<DriveRecord>(&key::all(table::DRIVE), usize::MAX)?;
    let mut serving: Vec<DriveRecord> = all.into_iter().map(|(_, record)| record).collect();
    serving.retain(|record| record.replaced_by == DriveId(0));
    serving.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(serving)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use braid_wire::control::ShapeSpec;

    use super::*;
    use crate::records::db::Db;
    use crate::records::memory::MemoryKv;
    use crate::rules::drives::examples::record;

    const DRIVE: DriveId = DriveId(1);

    fn state() -> Db {
        let db = Db::new(Arc::new(MemoryKv::new()));
        db.write(|tx| {
            tx.set(key::drive(DRIVE), &record(1, "one"));
            let shape = ShapeSpec { scheme: 5, k: 2, m: 1, unit_bytes: 4096 };
            let volume = volumes::create(tx, "v", shape, 0, 0)?;
            tx.set(key::partition(table::PARTITION, DRIVE, volume), &PartitionRecord { key_epoch: 1 });
            Ok(())
        })
        .expect("made");
        db
    }

    #[test]
    fn a_volume_has_two_epochs_in_force_and_no_third_is_begun_before_the_first_is_unused() {
        let db = state();
        let epoch = || db.read(|tx| Ok(volume_rows(tx)?.remove(0))).map(|row| (row.epoch, row.behind));
        db.write(|tx| rotate_volume(tx, "v", false, 1000)).expect("turned");
        assert_eq!(epoch().expect("read"), (2, vec!["one".to_owned()]));
        let early = 1000 + CAPABILITY_MS + LAG_MS - 1;
        let refused = db.write(|tx| rotate_volume(tx, "v", false, early)).expect_err("early");
        assert_eq!(refused.reason, Reason::NotAllowed);
        db.write(|tx| rotate_volume(tx, "v", false, early + 1)).expect("turned");
        // To end all that was signed before takes a step over the epoch that would stay in force.
        db.write(|tx| rotate_volume(tx, "v", true, early + 1)).expect("turned");
        assert_eq!(epoch().expect("read").0, 5);
        assert_eq!(
            db.write(|tx| rotate_volume(tx, "w", true, 0)).expect_err("none").reason,
            Reason::NoVolume
        );
    }

    #[test]
    fn a_turn_of_a_drives_key_is_known_before_the_drive_hears_of_it() {
        let db = state();
        let keys = db.write(|tx| rotate_drive(tx, DRIVE, [7; 32], false, 1_000_000)).expect("asked");
        let again = db.write(|tx| rotate_drive(tx, DRIVE, [8; 32], true, 1_000_000)).expect("asked again");
        assert_eq!((again.turn.next, again.turn.at_once), (Some([7; 32]), true), "one turn at a time");
        let master = record(1, "one").master;
        assert_eq!(key_of(&master, &keys.turn, 1), Some(master.clone()));
        assert_eq!(key_of(&master, &keys.turn, 2), Some(master.turned(2, &[7; 32])));
        assert_eq!(key_of(&master, &keys.turn, 3), None);
        assert!(db.write(|tx| handle_turned(tx, DRIVE, 1, 9)).expect("not turned").is_none());
        let (after, keys) = db.write(|tx| handle_turned(tx, DRIVE, 2, 9)).expect("turned").expect("turned");
        assert_eq!(after.master, master.turned(2, &[7; 32]));
        assert_eq!((keys.turn.number, keys.turn.next, keys.turned_ms), (2, None, 9));
        assert!(db.write(|tx| handle_turned(tx, DRIVE, 2, 9)).expect("once").is_none());
    }

    #[test]
    fn a_drive_joins_anew_once_and_gets_a_number_that_no_key_had() {
        let db = state();
        assert!(db.write(|tx| allow_rejoin(tx, DRIVE)).expect("allowed").may_rejoin);
        let keys = db.write(|tx| rejoined(tx, DRIVE, 9)).expect("joined");
        assert_eq!((keys.turn.number, keys.may_rejoin), (2, false));
        db.write(|tx| rotate_drive(tx, DRIVE, [7; 32], false, 1_000_000)).expect("asked");
        assert_eq!(db.write(|tx| rejoined(tx, DRIVE, 9)).expect("joined").turn.number, 4);
    }

    #[test]
    fn a_revoked_drive_has_no_key_and_what_volumes_keys_signed_is_over() {
        let db = state();
        let (record, keys) = db.write(|tx| revoke_drive(tx, DRIVE, [7; 32], 9)).expect("revoked");
        assert!(record.master == Key::new([7; 32]) && record.confirmed);
        assert_eq!((keys.turn.number, keys.turn.at_once, keys.may_rejoin), (2, true, false));
        assert_eq!(key_of(&record.master, &keys.turn, 1), None, "its own key is none");
        assert_eq!(db.read(|tx| Ok(volume_rows(tx)?.remove(0).epoch)).expect("read"), 3);
        let none = db.write(|tx| revoke_drive(tx, DriveId(9), [7; 32], 9)).map(drop).expect_err("no drive");
        assert_eq!(none.reason, Reason::NoDrive);
    }

    #[test]
    fn those_that_were_shut_out_for_longest_are_forgotten() {
        let db = state();
        db.write(|tx| {
            for client in 0..SHUT_OUT_MAX as u64 {
                tx.set(key::shut_out(ClientId(client + 1)), &ShutOutRecord { since_ms: client });
            }
            shut_out(tx, ClientId(u64::MAX), u64::MAX)
        })
        .expect("shut out");
        let all = db.read(all_shut_out).expect("read");
        assert_eq!(all.len(), SHUT_OUT_MAX);
        assert!(all.iter().all(|(client, _)| *client != ClientId(1)));
    }
}
