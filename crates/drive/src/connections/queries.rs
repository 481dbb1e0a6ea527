//! Requests that only read: reads, versions, attributes, lists, counters. Each runs in a thread that may wait
//! for the disk.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use braid_layout::{Column, ColumnMask, FileId, Generation, ObjectId, PartitionId, Version};
use braid_store::{Error, Listing, Stat, View};
use braid_wire::authorise::Verified;
use braid_wire::checksum::{block_count, verify_blocks};
use braid_wire::data::{
    Address, ColumnMap, DriveAttributes, DriveReply, GetAttributes, List, ListReply, ListedObject,
    PartitionListReply, Read, ReadReply, Times, UnitState, VERSIONS_LOOKED_AT_MAX, VERSIONS_UNITS_MAX,
    Versions, VersionsReply, Want,
};
use braid_wire::frame::BODY_BYTES_MAX;
use braid_wire::{Reason, Refusal, Wire};

use crate::connections::answerer::micros;
use crate::connections::buffers::{Connection, Share};
use crate::connections::convert;
use crate::connections::facts::StoredFacts;
use crate::connections::outbox::Outbox;
use crate::connections::reply::{Answer, Payload, refusal};
use crate::core::{Core, Figures, Timed};
use crate::parity::forward;

/// The most entries of one list.
const LIST_MAX: usize = 16_384;
/// Space in a reply's body that is kept for everything but its list.
const BODY_RESERVE_BYTES: usize = 4096;

/// The memory that a read's bytes may use.
pub(crate) struct Room {
    pub(crate) buffers: Arc<Connection>,
    pub(crate) share: Share,
    /// Reads of this many bytes or more use `sendfile`, if that need not wait for the disk; `None`: none do.
    pub(crate) sendfile_min: Option<u32>,
}

/// Refusal of a read by a joining column, which answers only for units that it has caught up with in this
/// generation (PROTOCOL section 7); `None` if the read may go on. If a fence comes between this check and the
/// read itself, the read sees another generation than the capability's, and is refused for that.
pub(crate) fn not_caught_up(core: &Core, facts: Option<&StoredFacts>, read: &Read) -> Option<Refusal> {
    let facts = facts?;
    if facts.ready.contains(facts.map.column) {
        return None;
    }
    match core.store.is_ready(read.at.partition, read.at.object, read.unit) {
        Ok(true) => None,
        Ok(false) => {
            let detail = format!(
                "column {} is joining, and has not caught up with unit {}: read from the others",
                facts.map.column, read.unit
            );
            Some(Refusal::new(Reason::NotCaughtUp, detail))
        }
        Err(error) => Some(refusal(&error)),
    }
}

/// Reads part of a unit into a buffer; if it is to be sent by `sendfile`, finds only where its bytes lie. `g`
/// is the capability's generation. Also returns true if the disk had nothing to do for it.
pub(crate) fn read(core: &Core, room: Room, g: Generation, read: &Read) -> (Answer, bool) {
    let began = Instant::now();
    let view = match view(core, read) {
        Ok(view) => view,
        Err(error) => return (failed(core, g, read, &error), false),
    };
    // The object may have been fenced since the request was checked.
    if view.g != g {
        let detail = format!("the drive's generation of the object is {}: ask the manager", view.g);
        return (Answer::refused(view.g, Refusal::new(Reason::StaleGeneration, detail)), true);
    }
    let is_cached = view.stored_bytes() == 0 || view.is_resident();
    match filled(core, room, view, is_cached) {
        Ok(answer) => {
            core.note_latency(Timed::Read, began);
            (answer, is_cached)
        }
        Err(error) => (failed(core, g, read, &error), false),
    }
}

/// A piece of a unit in memory, holes as zeros.
pub(crate) struct PieceRead {
    pub(crate) version: Version,
    pub(crate) bytes: Vec<u8>,
}

/// Reads and verifies a piece of a unit for a method; `None` if the unit was never written, or if its bytes
/// are not good. Also returns true if the disk had nothing to do for it.
pub(crate) fn piece(core: &Core, g: Generation, read: &Read) -> (Result<Option<PieceRead>, Answer>, bool) {
    let began = Instant::now();
    let doubt = |error: &Error| {
        if matches!(error, Error::Damaged { .. } | Error::Io { .. }) {
            core.damage.doubt((read.at.partition, read.at.object, read.unit));
        }
    };
    let view = match view(core, read) {
        Ok(view) => view,
        Err(error) => {
            doubt(&error);
            return (Ok(None), false);
        }
    };
    if view.g != g {
        let detail = format!("the drive's generation of the object is {}: ask the manager", view.g);
        return (Err(Answer::refused(view.g, Refusal::new(Reason::StaleGeneration, detail))), true);
    }
    // Only who compares with the other columns can tell whether such a unit is a hole.
    if view.version.is_zero() {
        return (Ok(None), true);
    }
    let is_cached = view.stored_bytes() == 0 || view.is_resident();
    let mut stored = vec![0; usize::try_from(view.stored_bytes()).expect("a unit fits memory")];
    if let Err(error) = view.read_exact_into(&mut stored) {
        doubt(&error);
        return (Ok(None), is_cached);
    }
    core.note_latency(Timed::Read, began);
    Figures::add(&core.figures.read_bytes, u64::from(view.stored_bytes()));
    match placed(&view, stored) {
        Some(bytes) => (Ok(Some(PieceRead { version: view.version, bytes })), is_cached),
        None => {
            core.damage.doubt((read.at.partition, read.at.object, read.unit));
            (Ok(None), is_cached)
        }
    }
}

/// The stored bytes of a view with its holes between them; `None` if they do not match their checksums.
fn placed(view: &View, stored: Vec<u8>) -> Option<Vec<u8>> {
    let mut crcs = view.blocks();
    let mut rest = stored.as_slice();
    let mut all = Vec::new();
    for extent in view.extents() {
        let extent = convert::extent(extent);
        let length = usize::try_from(extent.to - extent.from).expect("a unit fits memory");
        if extent.hole {
            all.resize(all.len() + length, 0);
            continue;
        }
        let (own, others) = rest.split_at_checked(length)?;
        let (sums, later) = crcs.split_at_checked(block_count(extent.from, extent.to))?;
        verify_blocks(extent.from, own, sums).ok()?;
        // As a rule there is one extent, and nothing to copy.
        if all.is_empty() && others.is_empty() && view.extents().len() == 1 {
            return Some(stored);
        }
        all.extend_from_slice(own);
        rest = others;
        crcs = later;
    }
    Some(all)
}

/// As [`read`], if all bytes are in memory, and nothing need be waited for; otherwise the room is given back.
pub(crate) fn read_from_memory(core: &Core, room: Room, g: Generation, read: &Read) -> Result<Answer, Room> {
    let began = Instant::now();
    let Some(view) = view_at_once(core, read).filter(|view| view.g == g) else { return Err(room) };
    // What the view holds itself is no place in a file.
    if !view.pieces().is_empty() && !view.is_resident() {
        return Err(room);
    }
    let answer = filled(core, room, view, true);
    core.note_latency(Timed::Read, began);
    Ok(answer.unwrap_or_else(|error| failed(core, g, read, &error)))
}

/// The refusal of a read whose bytes could not be read, which may be damaged.
fn failed(core: &Core, g: Generation, read: &Read, error: &Error) -> Answer {
    if matches!(error, Error::Damaged { .. } | Error::Io { .. }) {
        core.damage.doubt((read.at.partition, read.at.object, read.unit));
    }
    Answer::refused(g, refusal(error))
}

/// The answer of a view, with its bytes or their places; `is_cached`: they are in the page cache.
fn filled(core: &Core, room: Room, mut view: View, is_cached: bool) -> Result<Answer, Error> {
    let bytes = view.stored_bytes();
    let payload = if bytes == 0 {
        Payload::Empty
    } else if is_cached && !view.pieces().is_empty() && room.sendfile_min.is_some_and(|min| bytes >= min) {
        Figures::add(&core.figures.sent_bytes, u64::from(bytes));
        Payload::Files { pieces: view.pieces(), _share: room.share }
    } else {
        let mut buffer = room.buffers.buffer(bytes, room.share);
        // What the view holds itself was read before, with the view.
        let is_timed = !is_cached && !view.pieces().is_empty();
        let from_disk = if is_timed { core.reads_from_disk() } else { None };
        let reading = Instant::now();
        view.read_exact_into(buffer.fill())?;
        if let Some(in_flight) = from_disk {
            core.note_disk_read(reading, in_flight);
        }
        Payload::Memory(buffer)
    };
    Figures::add(&core.figures.read_bytes, u64::from(bytes));
    Ok(Answer { g: view.g, reply: reply_of(&mut view).into(), payload, turns: None })
}

/// Answers a read into `outbox` if that needs no wait, neither for the disk nor for a lock that is held for
/// long. Returns false otherwise, or if anything is not as it should be: then [`read`] answers, and says why.
/// `came`: the time at which the request came, if its times are asked for.
pub(crate) fn read_at_once(
    core: &Core,
    verified: &Verified,
    read: &Read,
    came: Option<Instant>,
    outbox: &mut Outbox,
) -> bool {
    let began = Instant::now();
    let g = verified.capability.g;
    let Some(mut view) = view_at_once(core, read).filter(|view| view.g == g) else { return false };
    let bytes = view.stored_bytes();
    let mut reply = reply_of(&mut view);
    reply.times =
        came.map(|came| Times { total_us: micros(came.elapsed()), cached: true, ..Times::default() });
    let answer = DriveReply::from(reply);
    let is_put = outbox.put_read(&verified.seal, g, &answer, bytes, |to| view.read_at_once_into(to).is_ok());
    if is_put {
        Figures::add(&core.figures.at_once, 1);
        core.note_latency(Timed::Read, began);
        Figures::add(&core.figures.read_bytes, u64::from(bytes));
    }
    is_put
}

/// The view of a read, if it needs no wait and no choice between versions.
fn view_at_once(core: &Core, read: &Read) -> Option<View> {
    let want = match read.want {
        Want::Newest => braid_store::Want::Newest,
        Want::Settled => braid_store::Want::Settled,
        Want::Exactly => return None,
    };
    let partition = read.at.partition;
    let object = read.at.object;
    // Looked up first, as in `view`.
    let shown = forward::shown(core, (partition, object, read.unit));
    let range = read.from..read.to;
    let mut view = core.store.read_at_once(partition, object, read.unit, range, want).ok()?;
    if shown.is_some_and(|shown| shown > view.version) {
        return None;
    }
    view.pending |= shown.is_some();
    Some(view)
}

/// The reply that describes the bytes of a view.
fn reply_of(view: &mut View) -> ReadReply {
    ReadReply {
        version: view.version,
        pending: view.pending,
        columns: view.columns,
        extents: view.extents().iter().map(convert::extent).collect(),
        crcs: view.blocks().to_vec(),
        cover: std::mem::take(&mut view.cover),
        ends: std::mem::take(&mut view.ends),
        times: None,
    }
}

fn view(core: &Core, read: &Read) -> Result<View, Error> {
    let partition = read.at.partition;
    let object = read.at.object;
    let range = read.from..read.to;
    let want = match (read.want, read.exactly.as_slice()) {
        (Want::Newest, _) => braid_store::Want::Newest,
        (Want::Settled, _) => braid_store::Want::Settled,
        (Want::Exactly, [version]) if !covers(core, read)? => braid_store::Want::Exactly(*version),
        (Want::Exactly, cover) => return core.store.read_cover(partition, object, read.unit, range, cover),
    };
    // Looked up first: a version that is noted after this is in the view.
    let shown = forward::shown(core, (partition, object, read.unit));
    let mut view = core.store.read(partition, object, read.unit, range.clone(), want)?;
    if let Some(shown) = shown.filter(|shown| *shown > view.version && read.want != Want::Exactly) {
        let want_shown = braid_store::Want::Exactly(shown);
        view = match core.store.read(partition, object, read.unit, range.clone(), want_shown) {
            // A later version was noted meanwhile.
            Err(Error::Gone { .. }) => core.store.read(partition, object, read.unit, range, want)?,
            found => found?,
        };
    }
    // Owed versions may be counted in elsewhere already: that does not make this unit one of an older state.
    view.pending |= shown.is_some();
    Ok(view)
}

/// Returns true if the unit is parity, where a single requested version is the cover of one data column.
fn covers(core: &Core, read: &Read) -> Result<bool, Error> {
    let chains = core.store.versions(read.at.partition, read.at.object, read.unit..read.unit + 1)?;
    let covered = chains.iter().flat_map(|chain| &chain.entries).any(|entry| !entry.cover.is_empty());
    Ok(covered || chains.iter().any(|chain| !chain.tips.is_empty()))
}

/// The state of the units named, or of those listed: as many as fit a reply.
pub(crate) fn versions(core: &Core, g: Generation, asked: &Versions) -> Answer {
    match convert::listing(asked) {
        Some(list) => listed(core, g, asked, list),
        None => named(core, g, asked),
    }
}

/// The most bytes that a reply may list.
fn list_bytes_max() -> usize {
    usize::try_from(BODY_BYTES_MAX).expect("it is 1 MiB") - BODY_RESERVE_BYTES
}

fn listed(core: &Core, g: Generation, asked: &Versions, list: Listing) -> Answer {
    let limit = usize::try_from(asked.limit).unwrap_or(VERSIONS_UNITS_MAX).min(VERSIONS_UNITS_MAX);
    let listed = core.store.list(asked.at.partition, asked.at.object, list, limit, VERSIONS_LOOKED_AT_MAX);
    let listed = match listed {
        Ok(listed) => listed,
        Err(error) => return Answer::refused(g, refusal(&error)),
    };
    let mut left = list_bytes_max();
    let mut units: Vec<UnitState> = Vec::with_capacity(listed.units.len());
    for chain in &listed.units {
        let state = convert::unit_state(chain);
        let bytes = state.to_bytes().len();
        if bytes > left {
            return Answer::new(g, VersionsReply { units, next: Some(chain.unit) });
        }
        left -= bytes;
        units.push(state);
    }
    Answer::new(g, VersionsReply { units, next: listed.next })
}

fn named(core: &Core, g: Generation, asked: &Versions) -> Answer {
    let partition = asked.at.partition;
    let object = asked.at.object;
    if asked.list == braid_wire::data::Listing::Doubted {
        asked.units.iter().for_each(|&unit| core.damage.doubt((partition, object, unit)));
    }
    let mut units: Vec<UnitState> = Vec::with_capacity(asked.units.len());
    let mut left = list_bytes_max();
    let bound = g;
    for run in convert::runs(&asked.units) {
        let chains = match core.store.versions(partition, object, run.clone()) {
            Ok(chains) => chains,
            Err(error) => return Answer::refused(bound, refusal(&error)),
        };
        let mut chains = chains.iter().peekable();
        for unit in run {
            let state = match chains.next_if(|chain| chain.unit == unit) {
                Some(chain) => convert::unit_state(chain),
                None => UnitState::unwritten(unit),
            };
            let bytes = state.to_bytes().len();
            if bytes > left {
                return Answer::new(g, VersionsReply { units, next: None });
            }
            left -= bytes;
            units.push(state);
        }
    }
    Answer::new(g, VersionsReply { units, next: None })
}

/// An object's attributes; for a well-known object, those of the partition or the drive.
pub(crate) fn attributes(core: &Core, asked: &GetAttributes) -> Answer {
    if asked.at.is_well_known() {
        return well_known(core, &asked.at);
    }
    let partition = asked.at.partition;
    let object = asked.at.object;
    let looked = core.store.object(partition, object).and_then(|stored| {
        let usage = core.store.usage(partition, object)?;
        Ok((stored, usage))
    });
    match looked {
        Ok((stored, usage)) => match ColumnMap::from_bytes(&stored.map) {
            Ok(map) => Answer::new(stored.g, convert::attributes(&stored, map, &usage)),
            Err(error) => Answer::refused(stored.g, Refusal::new(Reason::Damaged, error.to_string())),
        },
        Err(error) => Answer::refused(Generation(0), refusal(&error)),
    }
}

/// The attributes of a partition's or the drive's well-known object.
fn well_known(core: &Core, at: &Address) -> Answer {
    let g = Generation(0);
    if *at == Address::DRIVE {
        return Answer::from_store(g, core.store.stat(), |stat| drive(core, &stat).into());
    }
    Answer::from_store(g, core.store.partition(at.partition), |state| convert::partition(&state).into())
}

fn drive(core: &Core, stat: &Stat) -> DriveAttributes {
    let figures = &core.figures;
    DriveAttributes {
        drive: core.drive,
        capacity_bytes: stat.capacity,
        used_bytes: stat.used,
        live_bytes: stat.live,
        segments: stat.segments,
        objects: stat.objects,
        partitions: stat.partitions,
        read_bytes: figures.read_bytes.load(Ordering::Relaxed),
        written_bytes: figures.written_bytes.load(Ordering::Relaxed),
        refused: figures.refused.load(Ordering::Relaxed),
        uptime_ms: core.uptime_ms(),
    }
}

/// A partition's objects, or the drive's partitions.
pub(crate) fn list(core: &Core, asked: &List) -> Answer {
    let limit = usize::try_from(asked.limit).unwrap_or(LIST_MAX).clamp(1, LIST_MAX);
    if asked.partition == Address::DRIVE.partition {
        let partitions = core.store.partitions();
        let above = partitions.iter().filter(|state| state.partition.0 > asked.after).take(limit);
        let partitions = above.map(convert::partition).collect();
        return Answer::new(Generation(0), PartitionListReply { partitions });
    }
    Answer::from_store(Generation(0), listed_objects(core, asked, limit), |objects| {
        ListReply { objects }.into()
    })
}

/// A page of a partition's objects; it is empty only at the end.
fn listed_objects(core: &Core, asked: &List, limit: usize) -> Result<Vec<ListedObject>, Error> {
    let mut after = (asked.after != 0).then_some(ObjectId(asked.after));
    loop {
        let objects = core.store.objects(asked.partition, after, limit)?;
        let Some(&last) = objects.last() else { return Ok(Vec::new()) };
        let known = |object| listed_object(core, asked.partition, object).transpose();
        let listed: Vec<ListedObject> = objects.into_iter().filter_map(known).collect::<Result<_, _>>()?;
        // All of them may have been removed meanwhile.
        if !listed.is_empty() {
            return Ok(listed);
        }
        after = Some(last);
    }
}

/// An object from its own record; `None`: it was removed meanwhile.
fn listed_object(
    core: &Core,
    partition: PartitionId,
    object: ObjectId,
) -> Result<Option<ListedObject>, Error> {
    let unknown = ListedObject {
        object,
        file: FileId(0),
        segment: 0,
        column: Column(0),
        g: Generation(0),
        set: ColumnMask::EMPTY,
        joining: ColumnMask::EMPTY,
    };
    let stored = match core.store.object(partition, object) {
        Ok(stored) => stored,
        Err(Error::NoObject(..)) => return Ok(None),
        Err(Error::Damaged { .. }) => return Ok(Some(unknown)),
        Err(error) => return Err(error),
    };
    let Ok(map) = ColumnMap::from_bytes(&stored.map) else { return Ok(Some(unknown)) };
    let file = map.file;
    let segment = map.segment;
    let column = map.column;
    let g = stored.g;
    let set = stored.set;
    let joining = stored.joining;
    Ok(Some(ListedObject { object, file, segment, column, g, set, joining }))
}
