//! Checks that a state is consistent, as it must be after every crash. Reads all rows; for tests, and for
//! operators who suspect damage.

use std::collections::{BTreeMap, BTreeSet};

use braid_layout::{Column, ColumnMask, DriveId, FileId, Lease, VolumeId};
use braid_wire::Refusal;
use braid_wire::control::EntryKind;

use crate::records::db::Db;
use crate::records::schema::{
    Account, ComponentPlace, DriveCount, DriveRecord, EntryRecord, InodeRecord, MoveRecord, RemovalRecord,
    RemoveRecord, StaleRecord, VolumeRecord, XattrRecord, key, table,
};
use crate::records::tx::Tx;
use crate::records::{check_past, columns, quotas, relayouts};

/// Message that describes one inconsistency.
pub type Violation = String;

/// All inconsistencies of the present state.
pub fn check(db: &Db) -> Result<Vec<Violation>, Refusal> {
    db.read(|tx| {
        let state = StateRows::load(tx)?;
        let mut found = Vec::new();
        state.names(&mut found);
        state.links(&mut found);
        state.records(&mut found);
        state.volumes(tx, &mut found)?;
        state.columns(&mut found);
        state.counts(&mut found);
        seats(tx, &mut found)?;
        relayouts(tx, &mut found)?;
        state.removals(tx, &mut found)?;
        check_past::rows(tx, &state.inodes, &mut found)?;
        Ok(found)
    })
}

struct StateRows {
    inodes: BTreeMap<FileId, InodeRecord>,
    entries: BTreeMap<(FileId, Vec<u8>), EntryRecord>,
    more_names: BTreeMap<FileId, BTreeSet<(FileId, Vec<u8>)>>,
    xattr_bytes: BTreeMap<FileId, usize>,
    volumes: BTreeMap<VolumeId, VolumeRecord>,
    attention: BTreeSet<FileId>,
    places: BTreeSet<ComponentPlace>,
    stale: BTreeMap<ComponentPlace, StaleRecord>,
    moves: BTreeSet<ComponentPlace>,
    counts: BTreeMap<DriveId, DriveCount>,
    drives: Vec<DriveRecord>,
}

impl StateRows {
    fn load(tx: &Tx) -> Result<StateRows, Refusal> {
        let rows = |of: u8| {
            let (from, to) = key::all(of);
            tx.scan(&from, &to, usize::MAX)
        };
        let file = |key: &[u8]| FileId(key::number(key, 1));
        let entry_key = |key: &[u8]| (file(key), key.get(9..).unwrap_or_default().to_vec());
        let mut more_names: BTreeMap<FileId, BTreeSet<_>> = BTreeMap::new();
        for (key, _) in rows(table::MORE_NAMES)? {
            more_names.entry(file(&key)).or_default().insert(key::more_name_in(&key));
        }
        let mut xattr_bytes: BTreeMap<FileId, usize> = BTreeMap::new();
        for (key, record) in tx.records::<XattrRecord>(&key::all(table::XATTR), usize::MAX)? {
            *xattr_bytes.entry(file(&key)).or_default() += key.len() - 9 + record.value.len();
        }
        Ok(StateRows {
            more_names,
            xattr_bytes,
            inodes: tx.inodes(None, usize::MAX)?.into_iter().collect(),
            entries: tx
                .records(&key::all(table::ENTRY), usize::MAX)?
                .into_iter()
                .map(|(key, record)| (entry_key(&key), record))
                .collect(),
            volumes: tx
                .records(&key::all(table::VOLUME), usize::MAX)?
                .into_iter()
                .map(|(key, record)| (VolumeId(key::number(&key, 1)), record))
                .collect(),
            attention: rows(table::ATTENTION)?.iter().map(|(key, _)| file(key)).collect(),
            places: columns::all(tx)?.into_iter().collect(),
            stale: tx
                .records(&key::all(table::STALE), usize::MAX)?
                .into_iter()
                .map(|(key, record)| (key::place_of(&key), record))
                .collect(),
            moves: tx
                .records::<MoveRecord>(&key::all(table::MOVE), usize::MAX)?
                .into_iter()
                .map(|(row, MoveRecord { column, drive })| {
                    let (file, segment) = key::moving_of(&row);
                    ComponentPlace { drive, file, segment, column }
                })
                .collect(),
            counts: tx
                .records(&key::all(table::DRIVE_COUNT), usize::MAX)?
                .into_iter()
                .map(|(key, record)| (key::drive_of(&key), record))
                .collect(),
            drives: tx
                .records(&key::all(table::DRIVE), usize::MAX)?
                .into_iter()
                .map(|(_, record)| record)
                .collect(),
        })
    }

    /// Checks that every name has a record, and that the record has that name.
    fn names(&self, found: &mut Vec<Violation>) {
        for ((directory, name), entry) in &self.entries {
            let shown = crate::tree::names::show(name);
            match self.inodes.get(&entry.file) {
                None => {
                    found.push(format!("entry {directory}/{shown} names {}, which is not there", entry.file))
                }
                Some(inode) if inode.kind != entry.kind => {
                    found.push(format!("entry {directory}/{shown} is another kind than its record"));
                }
                Some(inode) if !self.has_name(entry.file, inode, *directory, name) => {
                    found.push(format!("the record of {directory}/{shown} has another name"));
                }
                Some(_) => {}
            }
            if self.inodes.get(directory).is_none_or(|inode| inode.kind != EntryKind::Directory) {
                found.push(format!("entry {directory}/{shown} is in no directory"));
            }
        }
    }

    fn has_name(&self, file: FileId, inode: &InodeRecord, directory: FileId, name: &[u8]) -> bool {
        let is_first = inode.parent == directory && inode.name == name;
        let more = self.more_names.get(&file);
        is_first || more.is_some_and(|names| names.contains(&(directory, name.to_vec())))
    }

    /// Checks that names beyond the first are entries, and that records count them, the directories in a
    /// directory, and the bytes of extended attributes right.
    fn links(&self, found: &mut Vec<Violation>) {
        let mut below: BTreeMap<FileId, usize> = BTreeMap::new();
        for ((directory, _), entry) in &self.entries {
            *below.entry(*directory).or_default() += usize::from(entry.kind == EntryKind::Directory);
        }
        for (file, names) in &self.more_names {
            let of = |name: &&(FileId, Vec<u8>)| self.entries.get(*name).is_none_or(|e| e.file != *file);
            found.extend(names.iter().filter(of).map(|name| format!("file {file} is not named {name:?}")));
            if !self.inodes.contains_key(file) {
                found.push(format!("file {file} has names and is not there"));
            }
        }
        for (file, inode) in &self.inodes {
            let links = match inode.kind {
                EntryKind::Directory => below.get(file).copied().unwrap_or_default(),
                _ => self.more_names.get(file).map_or(0, BTreeSet::len),
            };
            if usize::try_from(inode.more_links) != Ok(links) {
                found.push(format!("record {file} counts {} links more, and has {links}", inode.more_links));
            }
            let bytes = self.xattr_bytes.get(file).copied().unwrap_or_default();
            if usize::try_from(inode.xattr_bytes) != Ok(bytes) {
                found.push(format!("record {file} has other extended attributes than it counts"));
            }
        }
        let lost = self.xattr_bytes.keys().filter(|file| !self.inodes.contains_key(file));
        found.extend(lost.map(|file| format!("extended attributes of {file}, which is not there")));
    }

    /// Checks that every record has a name, is a root, or is a file without a name that is leased or kept,
    /// and that no directory is detached from its root.
    fn records(&self, found: &mut Vec<Violation>) {
        let roots: BTreeSet<FileId> = self.volumes.values().map(|volume| volume.root).collect();
        for (&file, inode) in &self.inodes {
            let named =
                self.entries.get(&(inode.parent, inode.name.clone())).is_some_and(|entry| entry.file == file);
            let unnamed =
                inode.kind == EntryKind::File && inode.parent == FileId(0) && (inode.held || inode.kept);
            let unnamed = unnamed || inode.kind == EntryKind::File && inode.is_past() && !inode.is_named();
            if !named && !unnamed && !roots.contains(&file) {
                found.push(format!("record {file} has no name and no lease"));
            }
            let has_one_before = inode.since != Lease(0) && inode.since < inode.lease;
            let is_over = !inode.held && inode.since == inode.lease;
            let is_first_part = inode.is_parted() && inode.since == inode.lease;
            let alone = inode.since == Lease(0) && !inode.shared && !inode.is_parted();
            if !(has_one_before || is_over || is_first_part || alone) {
                found.push(format!("file {file} shares a lease that none precedes"));
            }
            let may_have_layout = inode.kind == EntryKind::Directory && !roots.contains(&file);
            if inode.layout.as_ref().is_some_and(|layout| !may_have_layout || layout.shape().is_err()) {
                found.push(format!("record {file} has a layout for new files that it cannot have"));
            }
            if !parts_fit(inode) {
                found
                    .push(format!("file {file} has parts that meet, or leases on them that are not its own"));
            }
            let mut at = file;
            let mut steps = 0;
            while let Some(above) = self.inodes.get(&at).map(|inode| inode.parent).filter(|&p| p != FileId(0))
            {
                (at, steps) = (above, steps + 1);
                if steps > self.inodes.len() {
                    found.push(format!("record {file} is in a ring of directories"));
                    break;
                }
            }
            if inode.is_named() && steps <= self.inodes.len() && !roots.contains(&at) {
                found.push(format!("record {file} is cut off from its root"));
            }
            if self.attention.contains(&file) != (inode.kind == EntryKind::File && inode.needs_attention()) {
                found.push(format!("file {file} is wrongly on or off the attention list"));
            }
        }
        let lost = self.attention.iter().filter(|file| !self.inodes.contains_key(file));
        found.extend(lost.map(|file| format!("file {file} is on the attention list and not there")));
    }

    fn volumes(&self, tx: &Tx, found: &mut Vec<Violation>) -> Result<(), Refusal> {
        for (&number, volume) in &self.volumes {
            let index: Option<VolumeId> = tx.record(&key::volume_name(&volume.name))?;
            if index != Some(number) || volume.volume != number {
                found.push(format!("volume {number} is not found by its name"));
            }
            if !self.inodes.contains_key(&volume.root) {
                found.push(format!("volume {number} has no root"));
            }
            let of_it = |inode: &&InodeRecord| {
                inode.volume == number && inode.kind == EntryKind::File && !inode.is_frozen()
            };
            let all = || self.inodes.values().filter(of_it);
            let bytes: u64 = all().map(|inode| inode.size).sum();
            let named = all().filter(|inode| inode.parent != FileId(0)).count();
            let files = u64::try_from(named).unwrap_or(u64::MAX);
            if (volume.files, volume.file_bytes) != (files, bytes) {
                found.push(format!(
                    "volume {number} counts {} files of {} bytes, and has {files} of {bytes}",
                    volume.files, volume.file_bytes
                ));
            }
        }
        for (&number, volume) in &self.volumes {
            quotas_of(tx, number, volume, found)?;
        }
        let lost = self.inodes.iter().filter(|(_, inode)| !self.volumes.contains_key(&inode.volume));
        found.extend(lost.map(|(file, _)| format!("record {file} is in no volume")));
        Ok(())
    }

    /// Checks that the tables of columns and stale columns agree with the layouts.
    fn columns(&self, found: &mut Vec<Violation>) {
        let mut places = BTreeSet::new();
        for (&file, inode) in &self.inodes {
            places.extend(inode.places(file));
            let moves: Vec<_> = self.moves.iter().filter(|at| at.file == file).copied().collect();
            for at in &moves {
                let segment = inode.segment(at.segment);
                if segment.is_none_or(|segment| segment.drives.contains(&at.drive)) {
                    found.push(format!("a successor of a column of file {file} is where it has one: {at:?}"));
                }
                if self.stale.get(at) != Some(&StaleRecord { joining: false, told: true }) {
                    found.push(format!("a successor is not listed as stale: {at:?}"));
                }
            }
            places.extend(moves);
            if !layouts_fit(inode) {
                found.push(format!("file {file} has segments that do not fit: {:?}", inode.segments));
            }
            for segment in &inode.segments {
                let index = segment.number;
                let odd = !segment.set.minus(segment.all()).is_empty()
                    || !segment.joining.minus(segment.set).is_empty()
                    || segment.filling.is_none() && segment.ready().count() < u32::from(segment.shape.k);
                if odd {
                    found
                        .push(format!("file {file} has set {} and joining {}", segment.set, segment.joining));
                }
                for column in ColumnMask::all(segment.shape.k + segment.shape.m).iter() {
                    self.stale_column(
                        ComponentPlace { drive: segment.drive(column), file, segment: index, column },
                        segment,
                        found,
                    );
                }
            }
        }
        found.extend(
            places.symmetric_difference(&self.places).map(|place| format!("wrong column row {place:?}")),
        );
        let lost = self.moves.iter().filter(|at| !self.inodes.contains_key(&at.file));
        found.extend(lost.map(|at| format!("a successor of no file {at:?}")));
        let lost = self.stale.keys().filter(|place| !places.contains(place));
        found.extend(lost.map(|place| format!("stale row of no column {place:?}")));
    }

    fn stale_column(
        &self,
        place: ComponentPlace,
        segment: &crate::records::schema::SegmentRecord,
        found: &mut Vec<Violation>,
    ) {
        let has = |mask: ColumnMask, column: Column| mask.contains(column);
        let expected = (!has(segment.ready(), place.column)).then(|| has(segment.joining, place.column));
        if self.stale.get(&place).map(|stale| stale.joining) != expected {
            found.push(format!("stale row of {place:?} does not fit the layout"));
        }
    }

    fn counts(&self, found: &mut Vec<Violation>) {
        let mut drives: BTreeSet<DriveId> = self.counts.keys().copied().collect();
        drives.extend(self.places.iter().map(|place| place.drive));
        for drive in drives {
            let of = |place: &&ComponentPlace| place.drive == drive;
            let components = u64::try_from(self.places.iter().filter(of).count()).unwrap_or(u64::MAX);
            let stale = u64::try_from(self.stale.keys().filter(of).count()).unwrap_or(u64::MAX);
            let counted = self.counts.get(&drive).cloned().unwrap_or(DriveCount { components: 0, stale: 0 });
            if counted != (DriveCount { components, stale }) {
                found.push(format!("drive {drive} counts {counted:?}, and has {components} and {stale}"));
            }
        }
        for drive in &self.drives {
            if self.drives.iter().filter(|other| other.name == drive.name).count() > 1 {
                found.push(format!("two drives have the name {}", drive.name));
            }
        }
    }

    /// Checks that the components to be freed are counted, and belong to files that are gone.
    fn removals(&self, tx: &Tx, found: &mut Vec<Violation>) -> Result<(), Refusal> {
        let mut left: BTreeMap<FileId, u32> = BTreeMap::new();
        for (key, _) in tx.records::<RemoveRecord>(&key::all(table::REMOVE), usize::MAX)? {
            *left.entry(FileId(key::number(&key, 17))).or_default() += 1;
        }
        let rows = tx.records::<RemovalRecord>(&key::all(table::REMOVAL), usize::MAX)?;
        let listed: BTreeMap<FileId, u32> =
            rows.into_iter().map(|(key, record)| (FileId(key::number(&key, 1)), record.left)).collect();
        if left != listed {
            found.push(format!("components to remove {left:?} are not as listed {listed:?}"));
        }
        if tx.number("removing")? != u64::try_from(listed.len()).unwrap_or(u64::MAX) {
            found.push("the number of removed files is wrong".to_owned());
        }
        for (key, _) in tx.scan(&key::all(table::LEFT).0, &key::all(table::LEFT).1, usize::MAX)? {
            if self.places.contains(&key::place_of(&key)) {
                found.push(format!("{:?} is to be freed, and placed there", key::place_of(&key)));
            }
        }
        let alive = listed.keys().filter(|file| self.inodes.contains_key(file));
        found.extend(alive.map(|file| format!("file {file} is there and on the removal list")));
        Ok(())
    }
}

/// Checks that the files that are to be laid out anew are counted.
fn relayouts(tx: &Tx, found: &mut Vec<Violation>) -> Result<(), Refusal> {
    let (from, to) = key::all(table::RELAYOUT);
    let rows = tx.scan(&from, &to, usize::MAX)?.len();
    let counted = tx.number(relayouts::COUNT)?;
    if u64::try_from(rows).ok() != Some(counted) {
        found.push(format!("{rows} files are to be laid out anew, and {counted} are counted"));
    }
    Ok(())
}

/// Checks that each drive has at most one seat, each seat one drive, and that no seat is above the last that
/// was given.
fn seats(tx: &Tx, found: &mut Vec<Violation>) -> Result<(), Refusal> {
    let of_drives = tx.records::<u32>(&key::all(table::SEAT_OF), usize::MAX)?;
    let of_drives: BTreeMap<u32, DriveId> =
        of_drives.into_iter().map(|(row, seat)| (seat, key::drive_of(&row))).collect();
    let seats = tx.records::<DriveId>(&key::all(table::SEAT), usize::MAX)?;
    let seats: BTreeMap<u32, DriveId> =
        seats.into_iter().map(|(row, drive)| (key::seat_in(&row), drive)).collect();
    let last: u32 = tx.record(&key::meta("seats"))?.unwrap_or_default();
    if seats != of_drives || seats.last_key_value().is_some_and(|(seat, _)| *seat > last) {
        found.push(format!("seats {seats:?} are not those of drives {of_drives:?}, or above {last}"));
    }
    Ok(())
}

/// Returns true if the segments' numbers differ, at most one segment is being filled, and none is while the
/// file is leased.
fn layouts_fit(inode: &InodeRecord) -> bool {
    let numbers: BTreeSet<u32> = inode.segments.iter().map(|segment| segment.number).collect();
    let mut filling = inode.segments.iter().filter_map(|segment| segment.filling);
    let first = filling.next();
    numbers.len() == inode.segments.len()
        && filling.next().is_none()
        && first.is_none_or(|version| !inode.held && version.lease == inode.lease)
}

/// Returns true if the leases on the file's parts are among those from `since` to the last, all different,
/// and their ranges do not overlap.
fn parts_fit(inode: &InodeRecord) -> bool {
    let mut granted: Vec<_> = inode.parts.iter().filter(|part| part.lease != Lease(0)).collect();
    let leases: BTreeSet<Lease> = granted.iter().map(|part| part.lease).collect();
    granted.sort_by_key(|part| part.from);
    let are_own = leases.iter().all(|lease| (inode.since..=inode.lease).contains(lease));
    let kind_fits = granted.is_empty() || !inode.shared;
    kind_fits
        && are_own
        && leases.len() == granted.len()
        && granted.windows(2).all(|two| two[0].to <= two[1].from)
}

/// Checks that a volume's accounts agree with its files' records.
fn quotas_of(
    tx: &Tx,
    number: VolumeId,
    volume: &VolumeRecord,
    found: &mut Vec<Violation>,
) -> Result<(), Refusal> {
    let all = quotas::all(tx, number)?;
    let trees = all.iter().filter(|(account, _)| matches!(account, Account::Tree(_))).count();
    let own = all.iter().find(|(account, _)| *account == Account::Volume);
    let counted = own.map_or(0, |(_, own)| usize::try_from(own.trees).unwrap_or(usize::MAX));
    let limit = own.map_or(0, |(_, own)| own.limit_bytes);
    if counted != trees || limit != volume.quota_bytes || own.is_none() && !all.is_empty() {
        found.push(format!("the accounts of volume {number} do not agree with each other: {all:?}"));
    }
    for (account, record) in all {
        let held = quotas::held(tx, number, account)?;
        if (record.bytes, record.files) != (held.bytes, held.files) {
            found.push(format!("account {account:?} of volume {number} says {record:?}, and has {held:?}"));
        }
    }
    Ok(())
}
