//! Room that the columns of a drive need on others: the check that it can be emptied.

use std::collections::BTreeMap;
use std::time::Duration;

use braid_layout::DriveId;
use braid_meta::records::inodes::{self, bytes_of, component_bytes, holds, segment_of};
use braid_meta::records::schema::ComponentPlace;
use braid_meta::records::tx::Tx;
use braid_meta::records::{columns, frozen, successor_rows};
use braid_meta::rules::drives::Drive;
use braid_meta::rules::space::takes_columns;
use braid_meta::tree::volumes::path_of;
use braid_wire::{Reason, Refusal};

use crate::columns::healing::SIZED_MAX;
use crate::columns::homes::fitting;
use crate::core::Core;

/// Part of the room on other drives that may be filled, in percent: the rest is for writes meanwhile.
const ROOM_PERCENT: u64 = 90;
/// Maximum time for a look at the columns on a drive.
pub(crate) const LOOK_MAX: Duration = Duration::from_secs(60);
/// Maximum number of columns looked at one by one. The rest of a drive is counted by its bytes only.
const LOOKED_AT_MAX: usize = 100_000;
/// Maximum number of files named in a refusal.
const NAMED: usize = 3;

/// Room that the columns on a drive need elsewhere, and the room that there is.
pub(crate) struct Needs {
    drive: DriveId,
    /// Number of components on the drive.
    pub components: u64,
    /// Estimated bytes of these components.
    pub bytes: u64,
    /// Bytes of room on the drives that may take them.
    pub room_bytes: u64,
}

/// Files with columns that can move nowhere.
#[derive(Default)]
struct Stuck {
    files: u64,
    names: Vec<String>,
}

impl Stuck {
    fn add(&mut self, tx: &Tx, place: ComponentPlace) -> Result<(), Refusal> {
        self.files += 1;
        if self.names.len() < NAMED
            && let Some(inode) = inodes::find(tx, place.file)?
        {
            self.names.push(path_of(tx, &inode)?);
        }
        Ok(())
    }

    fn show(&self) -> String {
        let more = self.files - u64::try_from(self.names.len()).unwrap_or(u64::MAX).min(self.files);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{} files: {}{more}", self.files, self.names.join(", "))
    }
}

impl Needs {
    /// Adds up the needs of the columns on the drive, and the room on others.
    pub(crate) fn of(core: &Core, tx: &Tx, drive: DriveId) -> Result<Needs, Refusal> {
        let components = inodes::counts(tx, drive)?.components;
        let bytes = bytes_of(tx, &columns::on_drive(tx, drive, None, SIZED_MAX)?, components)?;
        let bytes = bytes.min(held(core, drive));
        let room = room(core, drive).values().fold(0u64, |sum, room| sum.saturating_add(*room));
        Ok(Needs { drive, components, bytes, room_bytes: room })
    }

    /// Refuses if there is too little room.
    pub(crate) fn must_fit(&self, core: &Core) -> Result<(), Refusal> {
        if self.bytes <= self.room_bytes {
            return Ok(());
        }
        let detail = format!(
            "{} has {} components of about {} bytes, and the other drives have room for {}: add drives first",
            core.drives().name(self.drive),
            self.components,
            self.bytes,
            self.room_bytes
        );
        Err(Refusal::new(Reason::Full, detail))
    }

    /// Refuses if some column can move nowhere: each column is given a place, as if they moved one by one.
    pub(crate) fn must_move(&self, core: &Core, tx: &Tx) -> Result<(), Refusal> {
        let mut room = room(core, self.drive);
        let mut alone = Stuck::default();
        let mut bare = Stuck::default();
        let mut full = Stuck::default();
        let mut sized = Vec::new();
        for place in columns::on_drive(tx, self.drive, None, LOOKED_AT_MAX)? {
            let Some(inode) = inodes::find(tx, place.file)?.filter(|inode| holds(inode, place)) else {
                continue;
            };
            let Some(segment) = segment_of(&inode, place).filter(|segment| segment.filling.is_none()) else {
                continue;
            };
            if segment.shape.m == 0 {
                // The file is copied as a whole, to as many other drives.
                if usize::from(segment.shape.k) > room.len() {
                    bare.add(tx, place)?;
                }
                continue;
            }
            if successor_rows::find(tx, place.file, place.segment)?
                .is_some_and(|at| at.column == place.column)
            {
                continue; // it is on its way
            }
            let bytes = component_bytes(tx, place.file, place.segment)?;
            sized.push((bytes, place, inode));
        }
        // Large columns come last: sparse files have fewer bytes than their sizes say, and no more than the
        // drive holds beside the others.
        sized.sort_by_key(|(bytes, ..)| *bytes);
        let mut held = held(core, self.drive);
        for (bytes, place, inode) in sized {
            let bytes = bytes.min(held);
            held -= bytes;
            // Components to be freed on a drive, and another column on its way there, make room in time.
            let mut takers = fitting(core, place, &inode)?;
            if frozen::has_past_bytes(tx, place.file)? {
                let mut free = Vec::new();
                for taker in takers {
                    if !frozen::has_stills(tx, taker.drive, place.file)? {
                        free.push(taker);
                    }
                }
                takers = free;
            }
            let best = takers.iter().map(|taker| taker.drive).max_by_key(|drive| room.get(drive).copied());
            match best.and_then(|best| room.get_mut(&best)) {
                Some(left) if *left >= bytes => *left -= bytes,
                Some(_) => full.add(tx, place)?,
                None => alone.add(tx, place)?,
            }
        }
        let name = core.drives().name(self.drive);
        let drives = room.len();
        if bare.files > 0 {
            let detail = format!(
                "{name} holds columns of files without redundancy (raid0), which need as many other drives as they have \
                 columns, and {drives} are up and have room: add drives, or lay them out anew (braid relayout), first: {}",
                bare.show()
            );
            return Err(Refusal::new(Reason::TooFewDrives, detail));
        }
        if alone.files > 0 {
            let detail = format!(
                "some columns on {name} can move nowhere, as none of the {drives} other drives that are up and have room \
                 lacks a column of their file, or is on a host with fewer: add drives first: {}",
                alone.show()
            );
            return Err(Refusal::new(Reason::TooFewDrives, detail));
        }
        if full.files > 0 {
            let detail = format!(
                "{name} has {} components of about {} bytes, and the other drives have room for {}, but not for all of \
                 them where each may go: add drives first: {}",
                self.components,
                self.bytes,
                self.room_bytes,
                full.show()
            );
            return Err(Refusal::new(Reason::Full, detail));
        }
        Ok(())
    }

    /// Refuses if some column can be made anew neither on `new`, which is to take the drive's place, nor, if
    /// `new` has another column of the segment already, on any other drive.
    pub(crate) fn must_be_taken(&self, core: &Core, tx: &Tx, new: DriveId) -> Result<(), Refusal> {
        let [old_name, new_name] = {
            let table = core.drives();
            [self.drive, new].map(|drive| table.name(drive))
        };
        let takers: Vec<DriveId> = room(core, self.drive).into_keys().collect();
        let mut alone = Stuck::default();
        let mut bytes = 0u64;
        for place in columns::on_drive(tx, self.drive, None, LOOKED_AT_MAX)? {
            let Some(inode) = inodes::find(tx, place.file)? else { continue };
            let Some(segment) = segment_of(&inode, place).filter(|segment| segment.filling.is_none()) else {
                continue;
            };
            if !segment.drives.contains(&new) {
                bytes = bytes.saturating_add(component_bytes(tx, place.file, place.segment)?);
            } else if takers.iter().all(|taker| segment.drives.contains(taker)) {
                alone.add(tx, place)?;
            }
        }
        if alone.files > 0 {
            let detail = format!(
                "{new_name} has other columns of files that have one on {old_name}, and no other drive that is up and has \
                 room can take these: name an empty drive, or add drives first: {}",
                alone.show()
            );
            return Err(Refusal::new(Reason::TooFewDrives, detail));
        }
        let free = core.drives().drive(new).map_or(0, |new| new.free_bytes);
        let bytes = bytes.min(held(core, self.drive));
        if bytes > free {
            let detail = format!(
                "{old_name} has columns of about {bytes} bytes for {new_name}, which has room for {free}: name a drive \
                 with more, or remove files first"
            );
            return Err(Refusal::new(Reason::Full, detail));
        }
        Ok(())
    }
}

/// Upper bound of the bytes that the drive holds: those in its last heartbeat. Sizes of files are no bound,
/// as they count holes. A drive that was not heard since the manager started may hold its whole capacity.
fn held(core: &Core, drive: DriveId) -> u64 {
    let now_ms = core.now_ms();
    let said = |known: &Drive| match known.silent_ms(now_ms) {
        u64::MAX => known.record.capacity_bytes,
        _ => known.live_bytes,
    };
    core.drives().drive(drive).map_or(0, said)
}

/// Bytes that each other drive may take.
fn room(core: &Core, drive: DriveId) -> BTreeMap<DriveId, u64> {
    let now_ms = core.now_ms();
    let table = core.drives();
    let others = table.up(now_ms).into_iter().filter(|other| *other != drive);
    let takers = others.filter_map(|other| table.drive(other)).filter(|other| takes_columns(other));
    takers.map(|other| (other.record.drive, other.free_bytes / 100 * ROOM_PERCENT)).collect()
}
