//! A file's record as it is stored. Fields that nearly every file has take few bytes; rare ones take bytes
//! only in files that have them. The table is in docs/format-manager.md.
//!
//! Drives are stored as their seats: numbers of this state (`crate::records::seats`), which are given beside
//! the record. Numbers are encoded by `compact`, except for identities drawn at random, which are stored with
//! all of their bits.

use braid_layout::version::Lease;
use braid_layout::{ColumnMask, FileId, Generation, HolderId, ObjectId, TokenId, Version, VolumeId};
use braid_wire::control::{Clustering, EntryKind, ShapeSpec};
use braid_wire::{DecodeError, Wire};

use super::compact::{self, take, take_near, take_u32};
use super::inode::{Times, directory_record, usual_mode};
use super::{Freezing, InodeRecord, PartRecord, SCHEMA_VERSION, SegmentRecord};

/// Bits of a file's record: its properties, and which optional fields follow.
mod bit {
    pub(super) const DIRECTORY: u32 = 1;
    pub(super) const HELD: u32 = 1 << 1;
    pub(super) const ALONE: u32 = 1 << 2;
    pub(super) const SHARED: u32 = 1 << 3;
    pub(super) const CUT: u32 = 1 << 4;
    pub(super) const UNFENCED: u32 = 1 << 5;
    pub(super) const MODE: u32 = 1 << 6;
    pub(super) const HOLDER: u32 = 1 << 7;
    pub(super) const SHARING: u32 = 1 << 8;
    pub(super) const CUT_AT: u32 = 1 << 9;
    pub(super) const TOUCHED: u32 = 1 << 10;
    /// Bits that version 2 has too.
    pub(super) const OF_VERSION_2: u32 = (1 << 11) - 1;
    pub(super) const OWNER: u32 = 1 << 11;
    pub(super) const TIMES: u32 = 1 << 12;
    pub(super) const LINKS: u32 = 1 << 13;
    pub(super) const NODE: u32 = 1 << 14;
    pub(super) const XATTRS: u32 = 1 << 15;
    pub(super) const KEPT: u32 = 1 << 16;
    pub(super) const RESERVED: u32 = 1 << 17;
    pub(super) const WITHIN: u32 = 1 << 18;
    pub(super) const GONE: u32 = 1 << 19;
    pub(super) const LAYOUT: u32 = 1 << 20;
    pub(super) const REACH: u32 = 1 << 21;
    pub(super) const EPOCHS: u32 = 1 << 22;
    pub(super) const FROZEN: u32 = 1 << 23;
    pub(super) const FREEZING: u32 = 1 << 24;
    pub(super) const ALLOCATED: u32 = 1 << 25;
    pub(super) const CLUSTERING: u32 = 1 << 26;
    pub(super) const CLUSTER: u32 = 1 << 27;
    pub(super) const TOKEN: u32 = 1 << 28;
    pub(super) const SEALED: u32 = 1 << 29;
    pub(super) const ALL: u32 = (1 << 30) - 1;
}

/// Bits of a segment: which optional fields follow.
mod segment_bit {
    pub(super) const BOUNDS: u8 = 1;
    pub(super) const OUT: u8 = 1 << 1;
    pub(super) const JOINING: u8 = 1 << 2;
    pub(super) const FILLING: u8 = 1 << 3;
    pub(super) const ALL: u8 = (1 << 4) - 1;
}

/// Nanoseconds in a millisecond.
const NS: i64 = 1_000_000;

/// Maximum number of columns of a segment: a set of columns has 64 bits.
const COLUMNS_MAX: u16 = 64;

/// Encodes a file's record. `seats` are those of its drives, segment by segment.
pub fn encode(file: FileId, inode: &InodeRecord, seats: &[u32]) -> Vec<u8> {
    let mut out = Vec::with_capacity(96 + inode.name.len());
    let is_sharing = inode.since != Lease(0) || !inode.parts.is_empty();
    let has_epochs = (inode.epoch, inode.bytes_epoch, inode.moved) != (0, 0, 0);
    let bits = [
        (bit::DIRECTORY, inode.kind == EntryKind::Directory),
        (bit::HELD, inode.held),
        (bit::ALONE, inode.alone),
        (bit::SHARED, inode.shared),
        (bit::CUT, inode.cut),
        (bit::UNFENCED, inode.unfenced),
        (bit::MODE, inode.mode != usual_mode(inode.kind)),
        (bit::HOLDER, inode.holder != HolderId::NONE),
        (bit::SHARING, is_sharing),
        (bit::CUT_AT, inode.cut_at != Lease(0)),
        (bit::TOUCHED, inode.touched.is_some()),
        (bit::OWNER, (inode.uid, inode.gid) != (0, 0)),
        (bit::TIMES, has_times(&inode.times)),
        (bit::LINKS, inode.more_links != 0),
        (bit::NODE, is_node(inode.kind)),
        (bit::XATTRS, inode.xattr_bytes != 0),
        (bit::KEPT, inode.kept),
        (bit::RESERVED, inode.reserved != 0),
        (bit::WITHIN, !inode.within.is_zero()),
        (bit::GONE, !inode.gone.is_empty()),
        (bit::LAYOUT, inode.layout.is_some()),
        (bit::REACH, inode.reach.is_some()),
        (bit::ALLOCATED, inode.allocated != 0),
        (bit::EPOCHS, has_epochs),
        (bit::FROZEN, inode.is_frozen()),
        (bit::FREEZING, inode.freezing.is_some()),
        (bit::CLUSTERING, inode.clustering.is_some()),
        (bit::CLUSTER, inode.cluster != 0),
        (bit::TOKEN, inode.token != TokenId::NONE),
        (bit::SEALED, inode.sealed),
    ];
    let all = bits.iter().filter(|(_, set)| *set).fold(0, |all, (bit, _)| all | bit);
    compact::put(&mut out, u64::from(all));
    inode.volume.put(&mut out);
    inode.parent.put(&mut out);
    compact::put(&mut out, count(inode.name.len()));
    out.extend_from_slice(&inode.name);
    compact::put(&mut out, inode.size);
    if inode.reserved != 0 {
        compact::put(&mut out, inode.reserved);
    }
    if let Some(reach) = inode.reach {
        compact::put(&mut out, reach);
    }
    if inode.allocated != 0 {
        compact::put(&mut out, inode.allocated);
    }
    compact::put(&mut out, inode.created_ms);
    put_attributes(&mut out, inode);
    compact::put(&mut out, u64::from(inode.g.0));
    compact::put(&mut out, u64::from(inode.lease.0));
    if inode.holder != HolderId::NONE {
        inode.holder.put(&mut out);
    }
    compact::put(&mut out, inode.order);
    if is_sharing {
        compact::put(&mut out, u64::from(inode.since.0));
        compact::put(&mut out, count(inode.parts.len()));
        inode.parts.iter().for_each(|part| put_part(&mut out, part));
    }
    if inode.cut_at != Lease(0) {
        compact::put(&mut out, u64::from(inode.cut_at.0));
    }
    if let Some(touched) = inode.touched {
        compact::put(&mut out, touched.0);
    }
    if !inode.within.is_zero() {
        put_version(&mut out, inode.within);
    }
    if !inode.gone.is_empty() {
        compact::put(&mut out, count(inode.gone.len()));
        inode.gone.iter().for_each(|holder| holder.put(&mut out));
    }
    if let Some(layout) = &inode.layout {
        put_shape(&mut out, layout);
    }
    if has_epochs {
        [inode.epoch, inode.bytes_epoch, inode.moved].iter().for_each(|&n| compact::put(&mut out, n.into()));
    }
    put_frozen_and_cluster(&mut out, inode);
    compact::put(&mut out, count(inode.segments.len()));
    let mut rest = seats;
    for segment in &inode.segments {
        let (own, others) = rest.split_at(segment.drives.len());
        put_segment(&mut out, file, segment, own);
        rest = others;
    }
    assert!(rest.is_empty(), "each drive of the file has one seat");
    out
}

/// Decodes a row of this version: a file's record, and the seats of its drives, segment by segment. The
/// record's `drives` are left empty.
pub fn decode(
    file: FileId,
    version: u8,
    mut input: &[u8],
) -> Result<(InodeRecord, Vec<Vec<u32>>), DecodeError> {
    let input = &mut input;
    let (bits, known) = match version {
        SCHEMA_VERSION => (take_u32(input, "bits of a file")?, bit::ALL),
        _ => (u32::from(u16::take(input)?), bit::OF_VERSION_2),
    };
    if bits & !known != 0 {
        return Err(DecodeError::Value { field: "bits of a file", value: u64::from(bits) });
    }
    let has = |bit: u32| bits & bit != 0;
    let volume = VolumeId::take(input)?;
    let parent = FileId::take(input)?;
    let name = take_bytes(input)?;
    let size = take(input, "size")?;
    let reserved = if has(bit::RESERVED) { not_zero(take(input, "reserved")?, "reserved")? } else { 0 };
    let reach = has(bit::REACH).then(|| take(input, "reach")).transpose()?;
    let allocated = if has(bit::ALLOCATED) { not_zero(take(input, "allocated")?, "allocated")? } else { 0 };
    let created_ms = take(input, "created_ms")?;
    let mut inode = directory_record(volume, parent, name, created_ms);
    inode.size = size;
    inode.reserved = reserved;
    inode.reach = reach;
    inode.allocated = allocated;
    take_attributes(input, bits, &mut inode)?;
    // In version 2 the mode was there if a client had set it, usual or not.
    if has(bit::MODE) && version >= SCHEMA_VERSION && inode.mode == usual_mode(inode.kind) {
        return Err(DecodeError::Value { field: "mode", value: u64::from(inode.mode) });
    }
    let g = Generation(take_u32(input, "g")?);
    let lease = Lease(take_u32(input, "lease")?);
    let holder = if has(bit::HOLDER) { not_zero(u64::take(input)?, "holder")? } else { 0 };
    let order = take(input, "order")?;
    let mut since = Lease(0);
    let mut parts = Vec::new();
    if has(bit::SHARING) {
        since = Lease(take_u32(input, "since")?);
        for _ in 0..take_count(input)? {
            parts.push(take_part(input)?);
        }
        if since == Lease(0) && parts.is_empty() {
            return Err(DecodeError::Value { field: "since", value: 0 });
        }
    }
    let cut_at = if has(bit::CUT_AT) { not_zero(take(input, "cut_at")?, "cut_at")? } else { 0 };
    let cut_at = u32::try_from(cut_at).map_err(|_| DecodeError::Value { field: "cut_at", value: cut_at })?;
    let touched = has(bit::TOUCHED).then(|| take(input, "touched").map(ColumnMask)).transpose()?;
    let within = if has(bit::WITHIN) { take_version(input)? } else { Version::ZERO };
    if has(bit::WITHIN) && within.is_zero() {
        return Err(DecodeError::Value { field: "within", value: 0 });
    }
    let gone = if has(bit::GONE) { take_gone(input)? } else { Vec::new() };
    let layout = if has(bit::LAYOUT) { Some(take_layout(input)?) } else { None };
    let [epoch, bytes_epoch, moved] = if has(bit::EPOCHS) { take_epochs(input)? } else { [0; 3] };
    let frozen = if has(bit::FROZEN) { not_zero(u64::take(input)?, "frozen")? } else { 0 };
    let freezing = if has(bit::FREEZING) { Some(take_freezing(input)?) } else { None };
    let clustering = has(bit::CLUSTERING).then(|| Clustering::take(input)).transpose()?;
    let cluster = if has(bit::CLUSTER) { not_zero(u64::take(input)?, "cluster")? } else { 0 };
    let token = if has(bit::TOKEN) { not_zero(u64::take(input)?, "token")? } else { 0 };
    let (segments, seats) = take_segments(file, input)?;
    if !input.is_empty() {
        return Err(DecodeError::Trailing(input.len()));
    }
    let inode = InodeRecord {
        g,
        lease,
        held: has(bit::HELD),
        holder: HolderId(holder),
        alone: has(bit::ALONE),
        shared: has(bit::SHARED),
        since,
        parts,
        cut_at: Lease(cut_at),
        cut: has(bit::CUT),
        within,
        gone,
        order,
        touched,
        kept: has(bit::KEPT),
        unfenced: has(bit::UNFENCED),
        layout,
        epoch,
        bytes_epoch,
        moved,
        frozen: FileId(frozen),
        freezing,
        clustering,
        cluster,
        token: TokenId(token),
        sealed: has(bit::SEALED),
        segments,
        ..inode
    };
    Ok((inode, seats))
}

/// The segments, and the seats of each one's drives.
fn take_segments(
    file: FileId,
    input: &mut &[u8],
) -> Result<(Vec<SegmentRecord>, Vec<Vec<u32>>), DecodeError> {
    let mut segments = Vec::new();
    let mut seats = Vec::new();
    for _ in 0..take_count(input)? {
        let (segment, own) = take_segment(file, input)?;
        segments.push(segment);
        seats.push(own);
    }
    Ok((segments, seats))
}

fn put_frozen_and_cluster(out: &mut Vec<u8>, inode: &InodeRecord) {
    if inode.is_frozen() {
        inode.frozen.put(out);
    }
    if let Some(freezing) = &inode.freezing {
        put_freezing(out, freezing);
    }
    if let Some(clustering) = inode.clustering {
        clustering.put(out);
    }
    if inode.cluster != 0 {
        inode.cluster.put(out);
    }
    if inode.token != TokenId::NONE {
        inode.token.put(out);
    }
}

fn put_attributes(out: &mut Vec<u8>, inode: &InodeRecord) {
    let Times { accessed_ns, modified_ns, changed_ns } = inode.times;
    let modified_ms = modified_ns.div_euclid(NS).cast_unsigned();
    compact::put_near(out, modified_ms, inode.created_ms);
    if has_times(&inode.times) {
        compact::put(out, modified_ns.rem_euclid(NS).cast_unsigned());
        compact::put_near(out, accessed_ns.cast_unsigned(), modified_ns.cast_unsigned());
        compact::put_near(out, changed_ns.cast_unsigned(), modified_ns.cast_unsigned());
    }
    if is_node(inode.kind) {
        inode.kind.put(out);
        compact::put(out, u64::from(inode.device));
        compact::put(out, count(inode.target.len()));
        out.extend_from_slice(&inode.target);
    }
    if inode.mode != usual_mode(inode.kind) {
        compact::put(out, u64::from(inode.mode));
    }
    if (inode.uid, inode.gid) != (0, 0) {
        compact::put(out, u64::from(inode.uid));
        compact::put(out, u64::from(inode.gid));
    }
    if inode.more_links != 0 {
        compact::put(out, u64::from(inode.more_links));
    }
    if inode.xattr_bytes != 0 {
        compact::put(out, u64::from(inode.xattr_bytes));
    }
}

fn take_attributes(input: &mut &[u8], bits: u32, inode: &mut InodeRecord) -> Result<(), DecodeError> {
    let has = |bit: u32| bits & bit != 0;
    let modified_ms = take_near(input, inode.created_ms, "modified_ms")?;
    let bad = |value| DecodeError::Value { field: "modified_ms", value };
    let rest = if has(bit::TIMES) { take(input, "rest")? } else { 0 };
    let rest_ns = i64::try_from(rest).ok().filter(|rest| *rest < NS).ok_or_else(|| bad(rest))?;
    // In 128 bits, as the first millisecond that reaches into the range of `i64` nanoseconds begins before
    // it.
    let modified_ns = i128::from(modified_ms.cast_signed()) * i128::from(NS) + i128::from(rest_ns);
    let modified_ns = i64::try_from(modified_ns).map_err(|_| bad(modified_ms))?;
    inode.times = all_at(modified_ns);
    if has(bit::TIMES) {
        inode.times.accessed_ns = take_near(input, modified_ns.cast_unsigned(), "accessed_ns")?.cast_signed();
        inode.times.changed_ns = take_near(input, modified_ns.cast_unsigned(), "changed_ns")?.cast_signed();
        if !has_times(&inode.times) {
            return Err(DecodeError::Value { field: "rest", value: 0 });
        }
    }
    inode.kind = if has(bit::DIRECTORY) { EntryKind::Directory } else { EntryKind::File };
    if has(bit::NODE) {
        let kind = EntryKind::take(input)?;
        if has(bit::DIRECTORY) || !is_node(kind) {
            return Err(DecodeError::Value { field: "kind", value: u64::from(kind.number()) });
        }
        (inode.kind, inode.device, inode.target) = (kind, take_u32(input, "device")?, take_bytes(input)?);
    }
    inode.mode = if has(bit::MODE) { take_u32(input, "mode")? } else { usual_mode(inode.kind) };
    if has(bit::OWNER) {
        (inode.uid, inode.gid) = (take_u32(input, "uid")?, take_u32(input, "gid")?);
        not_zero(u64::from(inode.uid | inode.gid), "owner")?;
    }
    if has(bit::LINKS) {
        inode.more_links = take_u32(input, "more_links")?;
        not_zero(u64::from(inode.more_links), "more_links")?;
    }
    if has(bit::XATTRS) {
        inode.xattr_bytes = take_u32(input, "xattr_bytes")?;
        not_zero(u64::from(inode.xattr_bytes), "xattr_bytes")?;
    }
    Ok(())
}

/// Returns true if the times are not all equal and in whole milliseconds.
fn has_times(times: &Times) -> bool {
    times.modified_ns.rem_euclid(NS) != 0 || *times != all_at(times.modified_ns)
}

fn all_at(ns: i64) -> Times {
    Times { accessed_ns: ns, modified_ns: ns, changed_ns: ns }
}

/// Returns true if the kind is neither file nor directory.
fn is_node(kind: EntryKind) -> bool {
    !matches!(kind, EntryKind::File | EntryKind::Directory)
}

fn put_part(out: &mut Vec<u8>, part: &PartRecord) {
    part.holder.put(out);
    compact::put(out, u64::from(part.lease.0));
    compact::put(out, part.from);
    // Most parts reach from `from` to the end.
    compact::put_near(out, part.to, u64::MAX);
}

fn take_part(input: &mut &[u8]) -> Result<PartRecord, DecodeError> {
    Ok(PartRecord {
        holder: HolderId::take(input)?,
        lease: Lease(take_u32(input, "lease")?),
        from: take(input, "from")?,
        to: take_near(input, u64::MAX, "to")?,
    })
}

fn put_segment(out: &mut Vec<u8>, file: FileId, segment: &SegmentRecord, seats: &[u32]) {
    let has_bounds = (segment.start, segment.end) != (0, u64::MAX);
    let is_out = segment.set != segment.all();
    let bits = [
        (segment_bit::BOUNDS, has_bounds),
        (segment_bit::OUT, is_out),
        (segment_bit::JOINING, segment.joining != ColumnMask::EMPTY),
        (segment_bit::FILLING, segment.filling.is_some()),
    ];
    out.push(bits.iter().filter(|(_, set)| *set).fold(0, |all, (bit, _)| all | bit));
    compact::put(out, u64::from(segment.number));
    if has_bounds {
        compact::put(out, segment.start);
        compact::put_near(out, segment.end, u64::MAX);
    }
    put_shape(out, &segment.shape);
    compact::put_near(out, segment.object.0, file.0);
    compact::put(out, count(seats.len()));
    seats.iter().for_each(|&seat| compact::put(out, u64::from(seat)));
    if is_out {
        compact::put(out, segment.set.0);
    }
    if segment.joining != ColumnMask::EMPTY {
        compact::put(out, segment.joining.0);
    }
    if let Some(version) = segment.filling {
        put_version(out, version);
    }
}

fn take_segment(file: FileId, input: &mut &[u8]) -> Result<(SegmentRecord, Vec<u32>), DecodeError> {
    let bits = u8::take(input)?;
    if bits & !segment_bit::ALL != 0 {
        return Err(DecodeError::Value { field: "bits of a segment", value: u64::from(bits) });
    }
    let has = |bit: u8| bits & bit != 0;
    let number = take_u32(input, "number")?;
    let mut start = 0;
    let mut end = u64::MAX;
    if has(segment_bit::BOUNDS) {
        (start, end) = (take(input, "start")?, take_near(input, u64::MAX, "end")?);
        if (start, end) == (0, u64::MAX) {
            return Err(DecodeError::Value { field: "end", value: end });
        }
    }
    let shape = take_shape(input)?;
    let object = ObjectId(take_near(input, file.0, "object")?);
    let seats = (0..take_count(input)?).map(|_| take_u32(input, "seat")).collect::<Result<Vec<_>, _>>()?;
    let mut segment = SegmentRecord {
        number,
        start,
        end,
        shape,
        object,
        drives: Vec::new(),
        set: ColumnMask::EMPTY,
        joining: ColumnMask::EMPTY,
        filling: None,
    };
    segment.set = segment.all();
    if has(segment_bit::OUT) {
        segment.set = ColumnMask(take(input, "set")?);
        if segment.set == segment.all() {
            return Err(DecodeError::Value { field: "set", value: segment.set.0 });
        }
    }
    if has(segment_bit::JOINING) {
        segment.joining = ColumnMask(not_zero(take(input, "joining")?, "joining")?);
    }
    if has(segment_bit::FILLING) {
        segment.filling = Some(take_version(input)?);
    }
    Ok((segment, seats))
}

fn put_shape(out: &mut Vec<u8>, shape: &ShapeSpec) {
    let &ShapeSpec { scheme, k, m, unit_bytes } = shape;
    out.extend_from_slice(&[scheme, k, m]);
    compact::put(out, u64::from(unit_bytes));
}

fn take_shape(input: &mut &[u8]) -> Result<ShapeSpec, DecodeError> {
    let [scheme, k, m] = <[u8; 3]>::take(input)?;
    if u16::from(k) + u16::from(m) > COLUMNS_MAX {
        return Err(DecodeError::Value { field: "columns", value: u64::from(k) + u64::from(m) });
    }
    Ok(ShapeSpec { scheme, k, m, unit_bytes: take_u32(input, "unit_bytes")? })
}

/// Takes a directory's layout, which leaves no field open.
fn take_layout(input: &mut &[u8]) -> Result<ShapeSpec, DecodeError> {
    let shape = take_shape(input)?;
    not_zero(u64::from(shape.k), "layout")?;
    Ok(shape)
}

/// Takes a file's three numbers of snapshots, which are not all 0.
fn take_epochs(input: &mut &[u8]) -> Result<[u32; 3], DecodeError> {
    let mut epochs = [0; 3];
    for epoch in &mut epochs {
        *epoch = take_u32(input, "epoch")?;
    }
    not_zero(epochs.iter().map(|&epoch| u64::from(epoch)).sum(), "epoch")?;
    Ok(epochs)
}

fn put_freezing(out: &mut Vec<u8>, Freezing { data, g, objects }: &Freezing) {
    data.put(out);
    compact::put(out, u64::from(g.0));
    compact::put(out, count(objects.len()));
    objects.iter().for_each(|object| object.put(out));
}

fn take_freezing(input: &mut &[u8]) -> Result<Freezing, DecodeError> {
    let data = FileId(not_zero(u64::take(input)?, "freezing")?);
    let g = Generation(take_u32(input, "g")?);
    let objects = (0..take_count(input)?).map(|_| ObjectId::take(input)).collect::<Result<_, _>>()?;
    Ok(Freezing { data, g, objects })
}

fn put_version(out: &mut Vec<u8>, Version { g, lease, n }: Version) {
    compact::put(out, u64::from(g.0));
    compact::put(out, u64::from(lease.0));
    compact::put(out, n);
}

fn take_version(input: &mut &[u8]) -> Result<Version, DecodeError> {
    let g = Generation(take_u32(input, "g")?);
    let lease = Lease(take_u32(input, "lease")?);
    Ok(Version { g, lease, n: take(input, "n")? })
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Takes the holders that are gone: their count, which is not 0, and each as a number of 8 bytes.
fn take_gone(input: &mut &[u8]) -> Result<Vec<HolderId>, DecodeError> {
    let count = not_zero(take(input, "gone")?, "gone")?;
    (0..count).map(|_| HolderId::take(input)).collect()
}

/// Takes the number of entries that follow, each of one byte at least.
fn take_count(input: &mut &[u8]) -> Result<usize, DecodeError> {
    let value = take(input, "count")?;
    let bad = DecodeError::Value { field: "count", value };
    usize::try_from(value).ok().filter(|count| *count <= input.len()).ok_or(bad)
}

fn take_bytes(input: &mut &[u8]) -> Result<Vec<u8>, DecodeError> {
    let length = take_count(input)?;
    let (bytes, rest) = input.split_at(length);
    *input = rest;
    Ok(bytes.to_vec())
}

fn not_zero(value: u64, field: &'static str) -> Result<u64, DecodeError> {
    if value == 0 { Err(DecodeError::Value { field, value }) } else { Ok(value) }
}
