//! Records as clients see them: for stat, open and status.

use braid_layout::{ClientId, ColumnMask, DriveId, FileId, HolderId};
use braid_wire::Refusal;
use braid_wire::capability::{LeaseKind, METHODS_SINCE, Promise, Protection};
use braid_wire::control::{ColumnRow, DriveRow, DriveState, Grant, Methods, Opened, SegmentRow, StatRow};

use crate::records::schema::{
    DriveCount, InodeRecord, PartitionRecord, ReservationRecord, SegmentRecord, key, table,
};
use crate::records::tx::Tx;
use crate::rules::drives::{Drive, DriveTable};
use crate::rules::grants::{self, ALL_STRIPES, Standing, Use};
use crate::rules::space::has_room;
use crate::rules::{parts, slow};
use crate::tree::volumes;

/// Stat of a file or directory.
pub fn stat(drives: &DriveTable, file: FileId, inode: &InodeRecord, now_ms: u64) -> StatRow {
    StatRow {
        volume: inode.volume,
        file,
        parent: inode.parent,
        attributes: inode.attributes(),
        target: inode.target.clone(),
        g: inode.g,
        segments: inode.segments.iter().map(|segment| segment_row(drives, segment, now_ms)).collect(),
        snapshot: 0,
    }
}

/// The keys and the protection with which capabilities for a file's columns are made.
#[derive(Debug, Clone)]
pub struct ColumnKeys {
    /// Epochs of the working keys, per segment. `None` where the drive has no partition yet.
    pub epochs: Vec<Vec<Option<u32>>>,
    /// The protection of the volume's data.
    pub protection: Protection,
    /// The methods that drives run on the volume's files.
    pub methods: Methods,
}

/// The keys and the protection for a file's columns.
pub fn column_keys(tx: &Tx, inode: &InodeRecord) -> Result<ColumnKeys, Refusal> {
    let epoch = |drive: &DriveId| -> Result<Option<u32>, Refusal> {
        let record: Option<PartitionRecord> =
            tx.record(&key::partition(table::PARTITION, *drive, inode.volume))?;
        Ok(record.map(|record| record.key_epoch))
    };
    let of_segment = |segment: &SegmentRecord| segment.drives.iter().map(epoch).collect();
    let epochs = inode.segments.iter().map(of_segment).collect::<Result<_, Refusal>>()?;
    let protection = volumes::protection(tx, inode.volume)?;
    Ok(ColumnKeys { epochs, protection, methods: volumes::methods(tx, inode.volume)? })
}

/// Role in which a file is opened; decides the capabilities that are granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opener {
    /// A reader of the ready columns. If they are too few, it also reads from joining columns what has been
    /// caught up there, which their drives know.
    Reader,
    /// A holder of the lease: it reads the ready columns and writes to those of the set.
    Writer(HolderId),
    /// A drive that makes its columns of the segment that is being filled. It writes these only.
    Filler(DriveId),
    /// A drive that brings its joining columns up to date, or makes damaged units of its columns anew: it
    /// reads all columns of the set, and installs units on its own columns. (On a ready column its drive
    /// accepts only units that it has found damaged.)
    Healer(DriveId),
}

/// The client for which a file is opened.
#[derive(Debug, Clone, Copy)]
pub struct Asker {
    /// The client's number.
    pub client: ClientId,
    /// Newest wire version that it speaks.
    pub version: u16,
    /// Manager time at which its capabilities end at the latest: that of its token.
    pub until_ms: u64,
}

/// The answer to an open: the file with grants for the columns in the set. Columns on replaced drives have
/// none. The grants say whose they are, and carry the promise of the
/// reservation under which the file is opened.
pub fn opened(
    drives: &DriveTable,
    file: FileId,
    inode: &InodeRecord,
    keys: &ColumnKeys,
    opener: Opener,
    asker: Asker,
    reserved: Option<&ReservationRecord>,
    lease_ms: u32,
    now_ms: u64,
) -> Opened {
    let client = asker.client;
    let expires_ms = (now_ms + grants::CAPABILITY_MS).min(asker.until_ms);
    let part = match opener {
        Opener::Writer(holder) => inode.part_of(holder),
        _ => None,
    };
    let lease = part.map_or(inode.lease, |part| part.lease);
    let kind = if inode.shared { LeaseKind::Shared } else { LeaseKind::Exclusive };
    let of_segment = |(index, segment): (u32, &SegmentRecord)| -> Vec<Option<Grant>> {
        let row = segment_row(drives, segment, now_ms);
        let grant = |column: braid_layout::Column| {
            let drive = drives.drive(segment.drive(column))?;
            let master = &drive.record.master;
            let epoch = keys.epochs.get(usize::try_from(index).ok()?)?.get(column.index()).copied().flatten();
            let epoch = epoch.unwrap_or(grants::KEY_EPOCH_FIRST);
            let use_ = match opener {
                Opener::Reader => Use::Read,
                Opener::Writer(_) => {
                    let stripes = part.map_or(ALL_STRIPES, |part| parts::stripes_in(segment, part.range()));
                    Use::Write(lease, kind, stripes)
                }
                Opener::Healer(drive) | Opener::Filler(drive) if segment.drive(column) == drive => {
                    Use::Write(grants::ANY_LEASE, LeaseKind::Exclusive, ALL_STRIPES)
                }
                Opener::Healer(_) | Opener::Filler(_) => Use::Read,
            };
            let promise = match opener {
                Opener::Healer(_) | Opener::Filler(_) => Promise::REBUILD,
                _ => reserved.map_or(Promise::NONE, |record| record.promise(segment.drive(column))),
            };
            let runs = runs(keys.methods, opener, drive.version.min(asker.version));
            let standing = Standing { client, promise, runs };
            let keys = (epoch, keys.protection);
            Some(grants::for_client(master, keys, file, inode, segment, column, use_, standing, expires_ms))
        };
        segment.all().iter().map(|column| row.set.contains(column).then(|| grant(column)).flatten()).collect()
    };
    Opened {
        stat: stat(drives, file, inode, now_ms),
        grants: (0u32..).zip(&inode.segments).map(of_segment).collect(),
        lease: if matches!(opener, Opener::Writer(_)) { lease } else { Default::default() },
        lease_ms,
        expires_ms,
        cut: inode.cut,
        shared: match opener {
            Opener::Writer(_) => inode.shared,
            Opener::Healer(_) => inode.held,
            _ => inode.held && inode.since != Default::default(),
        },
        cut_at: inode.cut_at,
        range: part.map(|part| part.range()),
        filling: inode.filling().and_then(|segment| segment.filling),
        reach: inode.reach.filter(|_| matches!(opener, Opener::Writer(_))),
        cluster: inode.cluster,
        promise: reserved.filter(|record| is_kept(record, inode)).map(ReservationRecord::handle),
    }
}

/// The methods that a drive runs for the opener of a file, if the older of the two speaks this wire version.
/// An older peer cannot read capabilities that have a right to run methods.
fn runs(of_volume: Methods, opener: Opener, version: u16) -> Methods {
    match opener {
        Opener::Reader | Opener::Writer(_) if version >= METHODS_SINCE => of_volume,
        _ => Methods::None,
    }
}

/// Returns true if all columns in use are on drives at which the rate is booked. A file that is elsewhere, as
/// it was made before the reservation or its columns moved, has no promise as a whole.
fn is_kept(record: &ReservationRecord, inode: &InodeRecord) -> bool {
    let is_booked = |segment: &SegmentRecord| {
        segment.set.iter().all(|column| record.share(segment.drive(column)).is_some())
    };
    inode.segments.iter().all(is_booked)
}

/// A drive as a row of status. The caller fills in `lost`.
pub fn drive_row(counts: &DriveCount, drives: &DriveTable, drive: &Drive, now_ms: u64) -> DriveRow {
    let record = &drive.record;
    let state = drives.state(record.drive, now_ms);
    DriveRow {
        drive: record.drive,
        name: record.name.clone(),
        state,
        addresses: record.addresses.clone(),
        host: record.host.clone(),
        rack: record.rack.clone(),
        directory: record.directory.clone(),
        pid: drive.pid,
        capacity_bytes: drive.capacity_bytes,
        used_bytes: drive.used_bytes,
        live_bytes: drive.live_bytes,
        free_bytes: drive.free_bytes,
        spare_bytes: drive.spare_bytes,
        file_system: drive.file_system,
        room: has_room(drive),
        silent_ms: drive.silent_ms(now_ms),
        components: counts.components,
        scrub: drive.scrub.clone(),
        io: drive.io.clone(),
        stalled_ms: drive.stalled_ms,
        reads: drive.reads,
        commits: drive.commits,
        counts: drive.counts,
        slow: slow::of(drives, drive, now_ms),
        draining: drive.draining,
        paused_ms: drive.paused_ms(now_ms),
        parts: drive.parts.clone(),
        lost: 0,
        stale: if state == DriveState::Replaced { counts.components } else { counts.stale },
    }
}

/// A segment with the states of its drives. Columns on replaced drives are left out of the set, whatever the
/// record says: those drives serve nothing any more.
fn segment_row(drives: &DriveTable, segment: &SegmentRecord, now_ms: u64) -> SegmentRow {
    let column = |drive: &DriveId| ColumnRow {
        drive: *drive,
        drive_name: drives.name(*drive),
        object: segment.object,
        addresses: drives.drive(*drive).map(|known| known.record.addresses.clone()).unwrap_or_default(),
        state: drives.state(*drive, now_ms),
    };
    let replaced: ColumnMask = segment.columns(|drive| drives.state(drive, now_ms) == DriveState::Replaced);
    SegmentRow {
        number: segment.number,
        start: segment.start,
        end: segment.end,
        shape: segment.shape.clone(),
        set: segment.set.minus(replaced),
        joining: segment.joining.minus(replaced),
        columns: segment.drives.iter().map(column).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_of_older_releases_get_no_right_to_run_methods() {
        let of = |opener, version| runs(Methods::Builtin, opener, version);
        assert_eq!(of(Opener::Reader, METHODS_SINCE), Methods::Builtin);
        assert_eq!(of(Opener::Writer(HolderId(1)), METHODS_SINCE + 1), Methods::Builtin);
        assert_eq!(of(Opener::Reader, METHODS_SINCE - 1), Methods::None);
        assert_eq!(of(Opener::Healer(DriveId(1)), METHODS_SINCE), Methods::None);
        assert_eq!(runs(Methods::None, Opener::Reader, METHODS_SINCE), Methods::None);
    }
}
