//! What a drive checks before it does anything: one pure function, [`authorise`], and what only the store can tell,
//! [`Verified::permit`].
//!
//! Order. First the MAC, under keys that the drive derives for *any* partition and epoch: somebody without a capability
//! learns nothing, not even which partitions there are. Then, and proven to the asker: replay, scope, keys, expiry, form,
//! rights. Last, by [`Verified::permit`], what needs the object: logical version, generation, byte range.
//! A request whose MAC is right has used its sequence number, whatever follows.

use std::ops::Range;

use braid_layout::{DriveId, FileId, Generation, ObjectId, PartitionId, Scheme, Shape};

use crate::capability::{Binding, Capability, Key, Protection, Rights, mac_equal};
use crate::checksum::block_count;
use crate::codec::DecodeError;
use crate::data::{
    Address, ColumnMap, DriveRequest, Listing, OPAQUE_BYTES_MAX, ScrubAct, UnitWrite, VERSIONS_UNITS_MAX,
    Versions, Want,
};
use crate::frame::FrameHeader;
use crate::refusal::{Reason, Refusal};
use crate::seal::{ReplySeal, expected_mac, split};

/// What the drive knows when a request comes in.
pub struct Scene<'a> {
    /// The drive.
    pub drive: DriveId,
    /// Of the hello that the drive sent on this connection.
    pub binding: Binding,
    /// Manager time now, in milliseconds; `None` while the drive holds no heartbeat lease: it serves nothing then but
    /// what [precedes a lease](precedes_lease).
    pub now_ms: Option<u64>,
    /// Derives the working key of any partition and epoch, whether or not they exist or are in force.
    pub working_key: &'a dyn Fn(PartitionId, u32) -> Key,
    /// The epoch of a partition's newer working key; `None`: no such partition. Partition 0 is the drive: epoch 1.
    pub key_epoch: &'a dyn Fn(PartitionId) -> Option<u32>,
}

/// A request that may be carried out, as far as can be told without its object.
#[derive(Debug)]
pub struct Verified {
    /// What it was asked under.
    pub capability: Capability,
    /// The request itself.
    pub request: DriveRequest,
    /// For the reply.
    pub seal: ReplySeal,
}

/// A request that may not.
#[derive(Debug)]
pub struct Denied {
    /// Why.
    pub refusal: Refusal,
    /// For the refusal's reply.
    pub seal: ReplySeal,
}

/// What a request needs its capability to be for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    /// All of these.
    pub rights: Rights,
    /// The partition; 0: the drive.
    pub partition: PartitionId,
    /// The object; 0: the partition.
    pub object: ObjectId,
}

/// What the store knows of an object.
#[derive(Debug, Clone, Copy)]
pub struct ObjectFacts<'a> {
    /// Its logical version.
    pub object_version: u32,
    /// The generation that the drive was last told.
    pub g: Generation,
    /// Its column map.
    pub map: &'a ColumnMap,
}

/// Checks a request. `last_sequence` is the connection's, 0 at first; it rises with every request whose MAC is right.
pub fn authorise(
    scene: &Scene<'_>,
    last_sequence: &mut u64,
    header: &FrameHeader,
    body: &[u8],
) -> Result<Verified, Denied> {
    let unproven = |refusal| Denied { refusal, seal: ReplySeal::without_proof(header.request) };
    let forged = || {
        let detail = "the request's MAC is wrong: forged, damaged, or sealed for another drive or connection";
        unproven(Refusal::new(Reason::Forged, detail))
    };
    // A public part that is long enough and still none was never made by a manager.
    let (authority, arguments) = split(body).map_err(|error| match error {
        DecodeError::Truncated { .. } => unproven(malformed(error.to_string())),
        _ => forged(),
    })?;
    let capability = authority.capability.clone();
    let key = (scene.working_key)(capability.partition, capability.key_epoch);
    let private = key.private_part(&capability);
    let mac = expected_mac(&private, &scene.binding, header, &authority, arguments);
    if !mac_equal(&mac, &authority.mac) {
        return Err(forged());
    }
    let seal = ReplySeal::proven(header.request, private, mac);
    if authority.sequence <= *last_sequence {
        let detail = format!("sequence number {} was used on this connection before", authority.sequence);
        return Err(Denied { refusal: Refusal::new(Reason::Replayed, detail), seal });
    }
    *last_sequence = authority.sequence;
    match examine(scene, header, &capability, arguments) {
        Ok(request) => Ok(Verified { capability, request, seal }),
        Err(refusal) => Err(Denied { refusal, seal }),
    }
}

/// Everything after MAC and replay.
fn examine(
    scene: &Scene<'_>,
    header: &FrameHeader,
    capability: &Capability,
    arguments: &[u8],
) -> Result<DriveRequest, Refusal> {
    if capability.drive != scene.drive {
        return Err(Refusal::new(Reason::Scope, format!("the capability is for drive {}", capability.drive)));
    }
    if scene.now_ms.is_none() && !precedes_lease(header.kind, capability) {
        let detail = "the drive holds no lease from the manager now: wait, or read from the others";
        return Err(Refusal::new(Reason::NotServing, detail));
    }
    let Some(epoch) = (scene.key_epoch)(capability.partition) else {
        return Err(Refusal::new(Reason::NoPartition, format!("no partition {}", capability.partition)));
    };
    if capability.key_epoch != epoch && capability.key_epoch.checked_add(1) != Some(epoch) {
        let detail = format!("keys of epoch {} are not in force: ask the manager", capability.key_epoch);
        return Err(Refusal::new(Reason::StaleKey, detail));
    }
    if let Some(now_ms) = scene.now_ms.filter(|&now_ms| now_ms >= capability.expires_ms) {
        let ago = now_ms - capability.expires_ms;
        return Err(Refusal::new(Reason::Expired, format!("expired {ago} ms ago: ask the manager")));
    }
    if capability.protection != Protection::Integrity {
        let detail = format!("{} is not served yet", capability.protection.name());
        return Err(Refusal::new(Reason::Unsupported, detail));
    }
    let request = DriveRequest::from_body(header.kind, arguments).map_err(|error| match error {
        DecodeError::Kind(_) => Refusal::new(Reason::Unsupported, error.to_string()),
        error => malformed(error.to_string()),
    })?;
    check_form(&request, header.payload_bytes)?;
    check_scope(&request, capability)?;
    check_stamp(&request, capability)?;
    Ok(request)
}

/// Rights and scope that a request needs.
pub fn needs(request: &DriveRequest) -> Needs {
    use DriveRequest as R;
    let object = |at: &Address, rights| Needs { rights, partition: at.partition, object: at.object };
    let drive = |rights| Needs { rights, partition: PartitionId(0), object: ObjectId(0) };
    match request {
        R::Create(r) => object(&r.at, Rights::CREATE),
        R::Remove(r) if r.at.is_well_known() => drive(Rights::MANAGE),
        R::Remove(r) => object(&r.at, Rights::REMOVE),
        R::Read(r) => object(&r.at, Rights::READ),
        R::StripeWrite(r) => object(&r.at, Rights::WRITE),
        R::UnitWrite(r) => object(&r.at, Rights::WRITE),
        R::Delta(r) => Needs { rights: Rights::DELTA, partition: r.at.partition, object: ObjectId(0) },
        R::Versions(r) => object(&r.at, Rights::READ),
        R::Retire(r) => object(&r.at, Rights::WRITE),
        R::Fence(r) => object(&r.at, Rights::MANAGE),
        R::Verdict(r) => object(&r.at, Rights::MANAGE),
        R::Join(r) => object(&r.at, Rights::MANAGE),
        R::Ready(r) => object(&r.at, Rights::MANAGE),
        R::Flush(r) => object(&r.at, Rights::WRITE),
        R::GetAttributes(r) => object(&r.at, Rights::GET_ATTRIBUTES),
        R::SetAttributes(r) => object(&r.at, Rights::SET_ATTRIBUTES),
        R::Snapshot(r) => object(&r.at, Rights::SET_ATTRIBUTES),
        R::List(r) => Needs { rights: Rights::LIST, partition: r.partition, object: ObjectId(0) },
        R::PartitionSet(_) | R::Scrub(_) => drive(Rights::MANAGE),
    }
}

/// The object that a request is about, if it is about one; it may be a well-known one.
pub fn address(request: &DriveRequest) -> Option<&Address> {
    use DriveRequest as R;
    match request {
        R::Create(r) => Some(&r.at),
        R::Remove(r) => Some(&r.at),
        R::Read(r) => Some(&r.at),
        R::StripeWrite(r) => Some(&r.at),
        R::UnitWrite(r) => Some(&r.at),
        R::Delta(r) => Some(&r.at),
        R::Versions(r) => Some(&r.at),
        R::Retire(r) => Some(&r.at),
        R::Fence(r) => Some(&r.at),
        R::Verdict(r) => Some(&r.at),
        R::Join(r) => Some(&r.at),
        R::Ready(r) => Some(&r.at),
        R::Flush(r) => Some(&r.at),
        R::GetAttributes(r) => Some(&r.at),
        R::SetAttributes(r) => Some(&r.at),
        R::Snapshot(r) => Some(&r.at),
        R::List(_) | R::PartitionSet(_) | R::Scrub(_) => None,
    }
}

/// The bytes of the object that a request is about, with units of `unit_bytes`; `None`: no bytes, or all of them by right.
/// A range past 2^64 is [`Reason::Range`].
pub fn byte_range(request: &DriveRequest, unit_bytes: u32) -> Result<Option<Range<u64>>, Refusal> {
    use DriveRequest as R;
    match request {
        R::Read(r) => piece(r.unit, r.from, r.to, unit_bytes).map(Some),
        R::StripeWrite(r) => piece(r.unit, r.from, r.to, unit_bytes).map(Some),
        R::UnitWrite(r) => piece(r.unit, r.from, r.to, unit_bytes).map(Some),
        R::Delta(r) => piece(r.unit, r.from, r.to, unit_bytes).map(Some),
        R::Versions(r) => match (r.units.iter().min(), r.units.iter().max()) {
            (Some(&first), Some(&last)) => {
                let start = piece(first, 0, unit_bytes, unit_bytes)?.start;
                Ok(Some(start..piece(last, 0, unit_bytes, unit_bytes)?.end))
            }
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}

/// Whether a drive does this without a heartbeat lease: the manager fences a drive that returned, for what went out while
/// it was away, before it gives it a lease. Such a capability never leaves the manager, so its expiry guards nothing.
pub fn precedes_lease(kind: u16, capability: &Capability) -> bool {
    /// Create, Fence, PartitionSet.
    const KINDS: [u16; 3] = [0x0100, 0x0108, 0x0110];
    capability.rights.include(Rights::MANAGE) && KINDS.contains(&kind)
}

/// The manager's term in a request that only the manager makes.
pub fn term(request: &DriveRequest) -> Option<u64> {
    use DriveRequest as R;
    match request {
        R::Remove(r) => Some(r.term),
        R::Fence(r) => Some(r.term),
        R::Verdict(r) => Some(r.term),
        R::Join(r) => Some(r.term),
        R::Ready(r) => Some(r.term),
        R::SetAttributes(r) => Some(r.term),
        R::Snapshot(r) => Some(r.term),
        R::PartitionSet(r) => Some(r.term),
        R::Scrub(r) => Some(r.term),
        _ => None,
    }
}

impl Verified {
    /// Whether the drive does it without a heartbeat lease; see [`precedes_lease`].
    pub fn precedes_lease(&self) -> bool {
        precedes_lease(self.request.kind(), &self.capability)
    }

    /// What needs the object: its logical version, its generation, the byte range. Not for a creation of an object that is
    /// not there, nor for requests about no object. The store checks the generation again, in the commit.
    pub fn permit(&self, object: &ObjectFacts<'_>) -> Result<(), Refusal> {
        let capability = &self.capability;
        if let DriveRequest::Delta(delta) = &self.request {
            if object.map.drives.get(delta.column.index()) != Some(&capability.holder) {
                let detail = format!("column {} is not of drive {}", delta.column, capability.holder);
                return Err(Refusal::new(Reason::Scope, detail));
            }
        } else if capability.object_version != object.object_version {
            let detail =
                format!("the object is at logical version {}: ask the manager", object.object_version);
            return Err(Refusal::new(Reason::Scope, detail));
        }
        if capability.file != FileId(0) && capability.file != object.map.file {
            let (asked, found) = (capability.file, object.map.file);
            let detail =
                format!("the object is of file {found}, the capability for file {asked}: ask the manager");
            return Err(Refusal::new(Reason::Scope, detail));
        }
        let fits = match &self.request {
            DriveRequest::GetAttributes(_) => true,
            DriveRequest::Fence(_) | DriveRequest::Remove(_) | DriveRequest::SetAttributes(_) => {
                capability.g >= object.g
            }
            DriveRequest::Delta(delta) => delta.g == object.g,
            _ => capability.g == object.g,
        };
        if !fits {
            let detail = format!("the drive's generation of the object is {}: ask the manager", object.g);
            return Err(Refusal::new(Reason::StaleGeneration, detail));
        }
        match byte_range(&self.request, object.map.unit_bytes)? {
            Some(bytes) if bytes.start < capability.from || bytes.end > capability.to => {
                let (from, to) = (capability.from, capability.to);
                let detail = format!("bytes {}..{} are outside {from}..{to}", bytes.start, bytes.end);
                Err(Refusal::new(Reason::Range, detail))
            }
            _ => Ok(()),
        }
    }
}

fn piece(unit: u64, from: u32, to: u32, unit_bytes: u32) -> Result<Range<u64>, Refusal> {
    let start = unit.checked_mul(u64::from(unit_bytes)).filter(|_| to <= unit_bytes);
    start
        .and_then(|start| Some(start + u64::from(from)..start.checked_add(u64::from(to))?))
        .ok_or_else(|| Refusal::new(Reason::Range, format!("bytes {from}..{to} are not in unit {unit}")))
}

fn malformed(detail: impl Into<String>) -> Refusal {
    Refusal::new(Reason::Malformed, detail)
}

fn check_scope(request: &DriveRequest, capability: &Capability) -> Result<(), Refusal> {
    let needs = needs(request);
    if !capability.rights.include(needs.rights) {
        let detail = format!("the capability carries no right to {}", request.name());
        return Err(Refusal::new(Reason::Rights, detail));
    }
    if (capability.partition, capability.object) != (needs.partition, needs.object) {
        let detail = format!("the capability is for {}/{}", capability.partition, capability.object);
        return Err(Refusal::new(Reason::Scope, detail));
    }
    // Deltas come from drives, and drives send nothing else.
    if (capability.holder != DriveId(0)) != matches!(request, DriveRequest::Delta(_)) {
        return Err(Refusal::new(Reason::Scope, "deltas are for drives, and drives for deltas"));
    }
    match request {
        DriveRequest::Create(create)
            if capability.map != [0; 16] && !mac_equal(&capability.map, &create.attributes.map.digest()) =>
        {
            Err(Refusal::new(Reason::Scope, "the column map is not the one that the capability is for"))
        }
        _ => Ok(()),
    }
}

/// A stamp must be of the capability's lease and no later generation, or a writer could take names that are others' to
/// give. A rebuild installs versions as they are elsewhere: older leases' too, and only while columns join.
fn check_stamp(request: &DriveRequest, capability: &Capability) -> Result<(), Refusal> {
    let (stamp, install) = match request {
        DriveRequest::StripeWrite(r) => (r.stamp, r.install),
        DriveRequest::UnitWrite(UnitWrite { stamp: Some(stamp), .. }) => (*stamp, false),
        _ => return Ok(()),
    };
    if install && capability.joining.is_empty() {
        return Err(Refusal::new(Reason::Scope, "no column joins: versions cannot be installed"));
    }
    let lease_fits = if install { stamp.lease <= capability.lease } else { stamp.lease == capability.lease };
    if stamp.g > capability.g || !lease_fits {
        let detail = format!("stamp {stamp} is not of lease {} and {}", capability.lease, capability.g);
        return Err(Refusal::new(Reason::Scope, detail));
    }
    Ok(())
}

/// Fields that contradict each other or the payload.
fn check_form(request: &DriveRequest, payload_bytes: u32) -> Result<(), Refusal> {
    use DriveRequest as R;
    if let Some(at) = address(request).filter(|at| at.is_well_known()) {
        match request {
            R::GetAttributes(_) => {}
            R::Remove(_) if *at != Address::DRIVE => {}
            _ => {
                return Err(malformed(format!(
                    "object 0 stands for its partition: no {} there",
                    request.name()
                )));
            }
        }
    }
    let expected = match request {
        R::Read(r) => {
            ordered(r.from, r.to)?;
            if r.exactly.is_empty() == (r.want == Want::Exactly) {
                return Err(malformed("versions are given to read exactly those, and only then"));
            }
            if r.snapshot != 0 && r.want != Want::Newest {
                return Err(malformed("a snapshot has one state of each unit: the newest is asked for"));
            }
            0
        }
        R::StripeWrite(r) => payload(r.from, r.to, r.hole, &r.crcs)?,
        R::UnitWrite(r) => payload(r.from, r.to, r.hole, &r.crcs)?,
        R::Delta(r) => payload(r.from, r.to, false, &r.crcs)?,
        R::Versions(r) if r.units.len() > VERSIONS_UNITS_MAX => {
            return Err(malformed(format!(
                "{} units asked for; at most {VERSIONS_UNITS_MAX}",
                r.units.len()
            )));
        }
        R::Versions(r) if is_odd_listing(r) => {
            return Err(malformed("a listing has a limit of at least 1, and only a listing has one"));
        }
        R::Versions(r) if r.list != Listing::Named && !r.units.is_empty() => {
            return Err(malformed("units are named or listed, not both"));
        }
        R::Create(r) => {
            check_map(&r.attributes.map)?;
            opaque(&r.attributes.opaque)?;
            0
        }
        R::SetAttributes(r) => {
            opaque(&r.opaque)?;
            0
        }
        R::PartitionSet(r) if r.partition == PartitionId(0) || r.key_epoch == 0 => {
            return Err(malformed("partitions and epochs are numbered from 1"));
        }
        R::Snapshot(r) if r.number == 0 => return Err(malformed("snapshots are numbered from 1")),
        R::Scrub(r) if (r.rate == 0) != (r.act == ScrubAct::Look) => {
            return Err(malformed(
                "a rate of at least 1 byte a second is given to start a scrub, and only then",
            ));
        }
        _ => 0,
    };
    if payload_bytes != expected {
        return Err(malformed(format!("payload of {payload_bytes} bytes; {expected} expected")));
    }
    Ok(())
}

/// Whether a listing lacks its limit, or what is none has one.
fn is_odd_listing(r: &Versions) -> bool {
    if r.list == Listing::Named { (r.from, r.limit) != (0, 0) } else { r.limit == 0 }
}

fn ordered(from: u32, to: u32) -> Result<(), Refusal> {
    if from < to { Ok(()) } else { Err(malformed(format!("bytes {from}..{to} are none"))) }
}

fn payload(from: u32, to: u32, hole: bool, crcs: &[u32]) -> Result<u32, Refusal> {
    ordered(from, to)?;
    let blocks = if hole { 0 } else { block_count(from, to) };
    if crcs.len() != blocks {
        return Err(malformed(format!("{} checksums for {blocks} blocks", crcs.len())));
    }
    Ok(if hole { 0 } else { to - from })
}

fn opaque(bytes: &[u8]) -> Result<(), Refusal> {
    if bytes.len() <= OPAQUE_BYTES_MAX {
        return Ok(());
    }
    Err(malformed(format!("{} opaque bytes; at most {OPAQUE_BYTES_MAX}", bytes.len())))
}

fn check_map(map: &ColumnMap) -> Result<(), Refusal> {
    let shape = Scheme::from_number(map.scheme)
        .and_then(|scheme| Shape::new(scheme, map.k, map.m, map.unit_bytes))
        .map_err(|error| malformed(error.to_string()))?;
    let width = usize::from(shape.width());
    if map.drives.len() != width || map.objects.len() != width || map.column.index() >= width {
        return Err(malformed(format!("column map does not have {width} columns")));
    }
    Ok(())
}
