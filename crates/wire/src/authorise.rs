//! The checks of a drive before it carries out a request. [`authorise`] is pure and needs no store;
//! [`Verified::permit`] checks what depends on the stored object.
//!
//! The order matters. The MAC comes first. The drive derives its key for *any* partition and epoch, so an
//! asker without a capability learns nothing, not even which partitions exist. Replay, scope, keys, expiry,
//! form and rights follow; from here on a refusal carries a MAC of its own. [`Verified::permit`] comes last
//! and checks what needs the object: logical version, generation, byte range. A request whose MAC is valid
//! uses up its sequence number, even if a later check refuses it.

use std::ops::Range;

use braid_layout::{DriveId, FileId, Generation, ObjectId, PartitionId};

use crate::capability::{
    Binding, Capability, KEY_EPOCH_MANAGER, Key, LeaseKind, MacKey, Protection, Rights, mac_equal,
};
use crate::codec::DecodeError;
use crate::data::{
    Address, Bytes, ColumnMap, DriveRequest, GenerationRule, LeaseRule, Stamp, Subject, WellKnown,
};
use crate::frame::FrameHeader;
use crate::refusal::{Reason, Refusal};
use crate::seal::{ReplySeal, expected_mac};
use crate::session::{PrivatePart, Session};

/// The drive's knowledge at the time when a request arrives.
pub struct Scene<'a> {
    /// The identity of the drive.
    pub drive: DriveId,
    /// The binding of the hello that the drive sent on this connection.
    pub binding: Binding,
    /// Manager time now, in milliseconds. `None` while the drive holds no heartbeat lease: the drive then
    /// serves only requests that need none, see [`LeaseRule`].
    pub now_ms: Option<u64>,
    /// Derives the working key of any partition and epoch, whether or not they exist or are in force.
    pub working_key: &'a dyn Fn(PartitionId, u32) -> Key,
    /// Looks up the epoch of a partition's newer working key; `None`: no such partition. Partition 0 stands
    /// for the drive and is at epoch 1.
    pub key_epoch: &'a dyn Fn(PartitionId) -> Option<u32>,
    /// Number of the drive's master key, which rises when it is turned.
    pub key_number: u32,
    /// The master key before that; `None`: the drive does not know it.
    pub former: Option<FormerKey<'a>>,
}

/// The drive's master key before its last turn.
#[derive(Clone, Copy)]
pub struct FormerKey<'a> {
    /// Derives the working key of any partition and epoch.
    pub working_key: &'a dyn Fn(PartitionId, u32) -> Key,
    /// True while capabilities that were made with it are valid. After that they are refused as stale, not
    /// as forged, so that their holders ask for new ones.
    pub is_in_force: bool,
}

/// A request that has passed every check that does not need its object.
#[derive(Debug)]
pub struct Verified {
    /// The capability that came with the request.
    pub capability: Capability,
    /// The request itself.
    pub request: DriveRequest,
    /// The seal for the reply.
    pub seal: ReplySeal,
}

/// A request that was refused before its object was looked up.
#[derive(Debug)]
pub struct Denied {
    /// The refusal to send.
    pub refusal: Refusal,
    /// The seal for the refusal.
    pub seal: ReplySeal,
}

/// The rights and the scope that a request's capability must cover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    /// The rights, all of which the capability must include.
    pub rights: Rights,
    /// The partition; 0: the drive.
    pub partition: PartitionId,
    /// The object; 0: the partition.
    pub object: ObjectId,
}

/// The store's facts about an object.
#[derive(Debug, Clone, Copy)]
pub struct ObjectFacts<'a> {
    /// The generation that the drive was last told for the object.
    pub g: Generation,
    /// The object's column map.
    pub map: &'a ColumnMap,
}

/// The private parts by which an asker may prove this capability in a handshake, before any request of the
/// session: one, or two while the former master key is in force. Refused is what a request under it would be
/// refused for, whatever it asks for. While the drive holds no lease it does not know the time: expiry is
/// left to the requests, all of which are refused then.
pub fn private_parts(scene: &Scene<'_>, capability: &Capability) -> Result<Vec<Key>, Refusal> {
    check_drive(scene, capability)?;
    check_protection(capability, false)?;
    let part = |key: &dyn Fn(PartitionId, u32) -> Key| {
        key(capability.partition, capability.key_epoch).private_part(capability)
    };
    check_in_force(scene, capability, false)?;
    let former = scene.former.filter(|former| former.is_in_force).map(|former| part(former.working_key));
    Ok(std::iter::once(part(scene.working_key)).chain(former).collect())
}

/// Checks a request on a connection of which only the last sequence number is kept. The number is 0 at
/// first, and rises with every request whose MAC is valid.
pub fn authorise(
    scene: &Scene<'_>,
    last_sequence: &mut u64,
    header: &FrameHeader,
    body: &[u8],
) -> Result<Verified, Denied> {
    let mut session = Session::after(*last_sequence);
    let judged = authorise_in(&mut session, scene, header, body);
    *last_sequence = session.sequence();
    judged
}

/// Checks a request of a connection, and updates the connection's session.
pub fn authorise_in(
    session: &mut Session,
    scene: &Scene<'_>,
    header: &FrameHeader,
    body: &[u8],
) -> Result<Verified, Denied> {
    let unproven = |refusal| Denied { refusal, seal: ReplySeal::without_proof(header.request) };
    let forged = || {
        let detail = "the request's MAC is wrong: forged, damaged, or sealed for another drive or connection";
        unproven(Refusal::new(Reason::Forged, detail))
    };
    // A public part that is long enough but cannot be decoded was not made by a manager.
    session.handle_keys(scene.key_number);
    let (shown, arguments) = session.split(body).map_err(|error| match error {
        DecodeError::Truncated { .. } => unproven(Refusal::malformed(error.to_string())),
        _ => forged(),
    })?;
    let capability = &shown.authority.capability;
    let mac_under = |private: &MacKey| {
        let mac = expected_mac(private, &scene.binding, header, &shown.authority, arguments);
        mac_equal(&mac, &shown.authority.mac).then_some(mac)
    };
    // The part that is known is tried first. The same public part may have been signed anew since.
    let proved = {
        let mut parts = shown.private.iter().cloned().chain(derived(scene, capability));
        parts.find_map(|private| mac_under(&private.key).map(|mac| (private, mac)))
    };
    let Some((private, mac)) = proved else { return Err(forged()) };
    let PrivatePart { key: private, is_former } = private;
    let seal = ReplySeal::proven(header.request, private.clone(), mac);
    let last = session.sequence();
    let sequence = shown.authority.sequence;
    if sequence <= last {
        let detail = format!("sequence number {sequence} was used on this connection before");
        return Err(Denied { refusal: Refusal::new(Reason::Replayed, detail), seal });
    }
    let judged = check_protection(capability, session.is_private())
        .and_then(|()| examine(scene, header, capability, is_former, arguments));
    let private = PrivatePart { key: private, is_former };
    session.handle_proven(sequence, body, &shown.authority.capability, private, judged.as_ref().err());
    match judged {
        Ok(request) => Ok(Verified { capability: shown.authority.capability, request, seal }),
        Err(refusal) => Err(Denied { refusal, seal }),
    }
}

/// The private parts that a capability has under the drive's keys: under the present master key, then under
/// the one before.
fn derived<'a>(scene: &'a Scene<'_>, capability: &'a Capability) -> impl Iterator<Item = PrivatePart> + 'a {
    let part = |working_key: &dyn Fn(PartitionId, u32) -> Key, is_former| {
        let key = working_key(capability.partition, capability.key_epoch);
        PrivatePart { key: key.private_part(capability).ready(), is_former }
    };
    let former = scene.former.iter().map(move |former| part(former.working_key, true));
    std::iter::once_with(move || part(scene.working_key, false)).chain(former)
}

/// Ok if requests of this connection have the protection that the capability asks for.
fn check_protection(capability: &Capability, is_private: bool) -> Result<(), Refusal> {
    let detail = match capability.protection {
        Protection::Integrity => return Ok(()),
        Protection::Privacy if is_private => return Ok(()),
        Protection::Privacy => "the volume's data is private: connect anew, and begin with TLS".to_owned(),
        other @ Protection::IntegrityData => format!("{} is not served", other.name()),
    };
    Err(Refusal::new(Reason::Unsupported, detail))
}

/// Performs the checks that follow those of protection, MAC and replay.
fn examine(
    scene: &Scene<'_>,
    header: &FrameHeader,
    capability: &Capability,
    is_former: bool,
    arguments: &[u8],
) -> Result<DriveRequest, Refusal> {
    check_drive(scene, capability)?;
    if scene.now_ms.is_none() && !precedes_lease(header.kind, capability) {
        let detail = "the drive holds no lease from the manager now: wait, or read from the others";
        return Err(Refusal::new(Reason::NotServing, detail));
    }
    check_in_force(scene, capability, is_former)?;
    let request = DriveRequest::from_body(header.kind, arguments).map_err(|error| match error {
        DecodeError::Kind(_) => Refusal::new(Reason::Unsupported, error.to_string()),
        error => Refusal::malformed(error.to_string()),
    })?;
    check_form(&request, header.payload_bytes)?;
    check_scope(&request, capability)?;
    check_stamp(&request, capability)?;
    check_lease(&request, capability)?;
    Ok(request)
}

fn check_drive(scene: &Scene<'_>, capability: &Capability) -> Result<(), Refusal> {
    if capability.drive == scene.drive {
        return Ok(());
    }
    Err(Refusal::new(Reason::Scope, format!("the capability is for drive {}", capability.drive)))
}

/// Ok if the capability's partition exists, its key is in force, and it has not expired.
fn check_in_force(scene: &Scene<'_>, capability: &Capability, is_former: bool) -> Result<(), Refusal> {
    let Some(epoch) = (scene.key_epoch)(capability.partition) else {
        return Err(Refusal::new(Reason::NoPartition, format!("no partition {}", capability.partition)));
    };
    if is_former && !scene.former.is_some_and(|former| former.is_in_force) {
        let detail = "the drive's key was turned: ask the manager";
        return Err(Refusal::new(Reason::StaleKey, detail));
    }
    let by_manager = capability.key_epoch == KEY_EPOCH_MANAGER;
    if !by_manager && capability.key_epoch != epoch && capability.key_epoch.checked_add(1) != Some(epoch) {
        let detail = format!("keys of epoch {} are not in force: ask the manager", capability.key_epoch);
        return Err(Refusal::new(Reason::StaleKey, detail));
    }
    if let Some(now_ms) = scene.now_ms.filter(|&now_ms| now_ms >= capability.expires_ms) {
        let ago = now_ms - capability.expires_ms;
        return Err(Refusal::new(Reason::Expired, format!("expired {ago} ms ago: ask the manager")));
    }
    Ok(())
}

/// The rights and the scope that a request's capability must cover, by the request's row.
pub fn needs(request: &DriveRequest) -> Needs {
    let rules = request.rules();
    let at = request.target().at;
    let (rights, at) = match (rules.subject, rules.well_known) {
        (_, WellKnown::Managed) if at.is_well_known() => (Rights::MANAGE, Address::DRIVE),
        (Subject::Partition, _) => (rules.rights, Address::of_partition(at.partition)),
        (Subject::Object, _) => (rules.rights, at),
    };
    Needs { rights, partition: at.partition, object: at.object }
}

/// Refuses pieces that are not within units of `unit_bytes`, or are past 2^64, with [`Reason::Range`].
pub fn check_pieces(request: &DriveRequest, unit_bytes: u32) -> Result<(), Refusal> {
    let check = |unit, from, to| piece(unit, from, to, unit_bytes).map(drop);
    match request.target().bytes {
        Bytes::Any => Ok(()),
        Bytes::Read { unit, from, to } | Bytes::Written { unit, from, to, .. } => check(unit, from, to),
        Bytes::Units(units) => units.iter().max().map_or(Ok(()), |&last| check(last, 0, unit_bytes)),
        Bytes::Run { unit, units } => {
            let last = unit.saturating_add(u64::from(units.saturating_sub(1)));
            check(last, 0, unit_bytes)
        }
    }
}

/// Returns true if a drive carries out such a request without a heartbeat lease; see [`LeaseRule`].
fn precedes_lease(kind: u16, capability: &Capability) -> bool {
    DriveRequest::rules_of(kind).is_some_and(|rules| rules.lease == LeaseRule::NotForManager)
        && capability.rights.include(Rights::MANAGE)
}

impl Verified {
    /// Returns true if the drive carries out the request without a heartbeat lease; see [`LeaseRule`].
    pub fn precedes_lease(&self) -> bool {
        precedes_lease(self.request.kind(), &self.capability)
    }

    /// Checks what depends on the object: its generation, and that pieces lie within units. Not to be
    /// called for the creation of an object that does not exist, nor for requests about no object. The
    /// store checks the generation again when it commits.
    pub fn permit(&self, object: &ObjectFacts<'_>) -> Result<(), Refusal> {
        let capability = &self.capability;
        if let DriveRequest::Delta(delta) = &self.request
            && object.map.drives.get(delta.column.index()) != Some(&capability.holder)
        {
            let detail = format!("column {} does not belong to drive {}", delta.column, capability.holder);
            return Err(Refusal::new(Reason::Scope, detail));
        }
        if capability.file != FileId(0) && capability.file != object.map.file {
            let asked = capability.file;
            let found = object.map.file;
            let detail =
                format!("the object is of file {found}, the capability for file {asked}: ask the manager");
            return Err(Refusal::new(Reason::Scope, detail));
        }
        let fits = match (&self.request, self.request.rules().generation) {
            // A drive's capability has no generation: the delta carries the one that its sender was told.
            (DriveRequest::Delta(delta), _) => delta.g == object.g,
            (_, GenerationRule::Same) => capability.g == object.g,
            (_, GenerationRule::NotBelow) => capability.g >= object.g,
            (_, GenerationRule::Any) => true,
        };
        if !fits {
            let detail = format!("the drive's generation of the object is {}: ask the manager", object.g);
            return Err(Refusal::new(Reason::StaleGeneration, detail));
        }
        check_pieces(&self.request, object.map.unit_bytes)
    }
}

fn piece(unit: u64, from: u32, to: u32, unit_bytes: u32) -> Result<Range<u64>, Refusal> {
    let start = unit.checked_mul(u64::from(unit_bytes)).filter(|_| to <= unit_bytes);
    start
        .and_then(|start| Some(start + u64::from(from)..start.checked_add(u64::from(to))?))
        .ok_or_else(|| Refusal::new(Reason::Range, format!("bytes {from}..{to} are not in unit {unit}")))
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
        return Err(Refusal::new(
            Reason::Scope,
            "only a drive may send a delta, and a drive may send nothing else",
        ));
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

/// Checks the stamp, which must have the capability's lease and no later generation: otherwise a writer
/// could use stamps that belong to another writer. A rebuild copies versions from other columns, so it may
/// install stamps of older leases too; the drive accepts those for a joining column and for a damaged unit
/// only.
fn check_stamp(request: &DriveRequest, capability: &Capability) -> Result<(), Refusal> {
    let (stamp, lease_fits) = match request.target().stamp {
        Stamp::None => return Ok(()),
        Stamp::Own(stamp) => (stamp, stamp.lease == capability.lease),
        Stamp::Installed(stamp) => (stamp, stamp.lease <= capability.lease),
    };
    if stamp.g > capability.g || !lease_fits {
        let detail = format!(
            "stamp {stamp} does not belong to lease {} and generation {}",
            capability.lease, capability.g
        );
        return Err(Refusal::new(Reason::Scope, detail));
    }
    Ok(())
}

/// Checks the writes that the lease allows. A lease allows writes to its own stripes only. A shared lease
/// allows no stripe writes, since its holder does not control what other holders write. Installed whole
/// units do not count as writes of the holder; the drive accepts them for a joining column and for a
/// damaged unit only. Only a holder that has the whole file for itself may tell drives the end of its
/// lease, as that ends all lower leases too.
fn check_lease(request: &DriveRequest, capability: &Capability) -> Result<(), Refusal> {
    let first = capability.first_stripe;
    let end = capability.end_stripe;
    if let Bytes::Written { unit, .. } = request.target().bytes
        && !capability.covers_all_stripes()
        && !(first..end).contains(&unit)
    {
        let detail = format!("stripe {unit} is outside the lease's stripes {first}..{end}");
        return Err(Refusal::new(Reason::Range, detail));
    }
    if let Bytes::Written { unit, hole: false, .. } = request.target().bytes
        && unit >= capability.reach
    {
        let detail = format!(
            "stripe {unit} is past what the writer was given of its quota, stripe {}: ask the manager for more",
            capability.reach
        );
        return Err(Refusal::new(Reason::Quota, detail));
    }
    let is_shared = capability.kind == LeaseKind::Shared;
    let why = match request {
        DriveRequest::StripeWrite(write) if is_shared && !write.install => {
            "is shared: it allows no stripe writes"
        }
        DriveRequest::UnitWrite(write) if is_shared && write.stamp.is_some() => {
            "is shared: the drive makes the stamps, not the writer"
        }
        DriveRequest::Retire(retire) if retire.ends_lease && is_shared => {
            "is shared: one holder cannot end it"
        }
        DriveRequest::Retire(retire) if retire.ends_lease && !capability.covers_all_stripes() => {
            "is for a range: only the manager tells drives that it has ended"
        }
        _ => return Ok(()),
    };
    Err(Refusal::new(Reason::Scope, format!("lease {} {why}", capability.lease)))
}

/// Refuses fields that contradict each other or the payload.
fn check_form(request: &DriveRequest, payload_bytes: u32) -> Result<(), Refusal> {
    let target = request.target();
    let is_possible = match request.rules().well_known {
        WellKnown::Refused => !target.at.is_well_known(),
        WellKnown::Managed => target.at != Address::DRIVE,
        WellKnown::Served => true,
    };
    if !is_possible {
        let detail =
            format!("object 0 stands for the partition itself, which {} cannot be used on", request.name());
        return Err(Refusal::malformed(detail));
    }
    let expected = target.bytes.check_payload()?;
    request.check_form()?;
    if payload_bytes != expected {
        let detail = format!("the payload has {payload_bytes} bytes; {expected} were expected");
        return Err(Refusal::malformed(detail));
    }
    Ok(())
}
