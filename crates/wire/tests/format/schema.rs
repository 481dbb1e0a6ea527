//! A second implementation of the format. It encodes messages from the field tables ([`Record::FIELDS`])
//! alone, by the rules of `docs/format-wire.md`, without the crate's own codec. The tests of golden bytes,
//! of the document and of properties use it.

use braid_wire::capability::{Authority, Capability, DataDirection, LeaseKind, Promise, Protection};
use braid_wire::codec::Record;
use braid_wire::control::{
    self, Access, Admission, AllocateAct, ChangeKind, Clustering, ControlHead, Cut, DriveState, Ending,
    EntryKind, KeyTurning, LayoutFrom, LockHow, LockKind, LockState, Methods, QualifyAct, RenameHow,
    RequestHead, Room, TokenState, Turn, UnlinkOnly, XattrHow,
};
use braid_wire::data::{
    self, CalibrateAct, DiskCharge, Expect, Hello, Listing, PeerRole, ReplyHead, ScrubAct, ScrubPhase, Want,
};
use braid_wire::token::{Standing, TokenRole};
use braid_wire::{Reason, Refusal};

pub(crate) type Fields = &'static [(&'static str, &'static str)];

/// A source of the values in an encoding.
pub(crate) trait Source {
    /// Returns `count` bytes for a number or an array.
    fn bytes(&mut self, count: usize) -> Vec<u8>;
    /// Returns the number of entries of a list whose entries have this type.
    fn count(&mut self, entry: &str) -> usize;
    /// Returns one of these numbers, for a choice.
    fn pick(&mut self, numbers: &[u8]) -> u8;
    /// Returns true if an option is present or a bool is true.
    fn yes(&mut self) -> bool;
}

/// The bytes of one field.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) offset: usize,
    pub(crate) bytes: Vec<u8>,
    pub(crate) path: String,
    pub(crate) type_name: String,
}

macro_rules! names {
    ($($record:ty),* $(,)?) => { [$((<$record as Record>::NAME, <$record as Record>::FIELDS)),*] };
}

/// Records that are not the body of a message, or are the body of a message with another name.
pub(crate) fn nested() -> Vec<(&'static str, Fields)> {
    names![
        Capability,
        Promise,
        Authority,
        ReplyHead,
        RequestHead,
        ControlHead,
        Hello,
        Refusal,
        data::Address,
        data::ColumnMap,
        data::Extent,
        data::ListedObject,
        data::UnitState,
        data::PendingState,
        data::Receipt,
        data::RunPiece,
        data::RunArgument,
        data::RanPiece,
        data::Tip,
        data::CutOff,
        data::UnitVerdict,
        data::ScrubState,
        data::DamagedUnit,
        data::LostKeys,
        data::WrongFile,
        data::DiskWay,
        data::DiskCost,
        data::ProcessorWay,
        data::CurvePoint,
        data::DriveCost,
        data::DriveParts,
        data::Times,
        data::DriveCounts,
        control::ShapeSpec,
        control::VolumeRow,
        control::MethodsRow,
        control::VolumeKey,
        control::QuotaRow,
        control::KeyTurn,
        control::VolumeKeysRow,
        control::TokenRow,
        control::EtcdPeer,
        control::TokenUser,
        control::DriveKeyRow,
        control::ClientRow,
        control::SnapshotRow,
        control::NameBelow,
        control::ChangeRow,
        control::KeepCounts,
        control::ScheduleRow,
        control::Entry,
        control::FileAttributes,
        control::NewAttributes,
        control::AttributeChanges,
        control::Xattr,
        control::SegmentRow,
        control::ColumnRow,
        control::NamePlace,
        control::Grant,
        control::DriveRow,
        control::StateMark,
        control::ProcessMark,
        control::FileSystem,
        control::Latency,
        control::SisterRow,
        control::BalanceState,
        control::NamesState,
        control::ManagerRow,
        control::MemberRow,
        control::JobRow,
        control::RelayoutRow,
        control::HealRow,
        control::HeldLease,
        control::ByteRange,
        control::Seen,
        control::Backing,
        control::Sized,
        control::HeldLock,
        control::Ended,
        control::BatchItem,
        control::BatchAnswer,
        control::HealProgress,
        control::ReservationRow,
        control::RatePlan,
        control::DrivePromise,
        control::NotAdmitted,
        control::CounterOffer,
        control::Lateness,
        control::DriveBooking,
        control::PromiseRow,
        control::HandlePromise,
        control::WholeRate,
    ]
    .to_vec()
}

/// The fields of the record with this name. Records of both directions may share a name only if they are
/// alike.
pub(crate) fn fields(name: &str) -> Option<Fields> {
    let bodies = [
        data::DriveRequest::BODIES,
        data::DriveReply::BODIES,
        control::ControlRequest::BODIES,
        control::ControlReply::BODIES,
    ];
    let bodies = bodies.iter().flat_map(|set| set.iter().map(|&(_, name, fields)| (name, fields)));
    nested().into_iter().chain(bodies).find(|(known, _)| *known == name).map(|(_, fields)| fields)
}

/// The numbers and names of a choice.
pub(crate) fn choice(name: &str) -> Option<Vec<(u8, &'static str)>> {
    macro_rules! choices {
        ($($choice:ident),*) => {
            match name {
                $(stringify!($choice) => Some($choice::ALL.iter().map(|value| (value.number(), value.name())).collect()),)*
                _ => None,
            }
        };
    }
    choices!(
        PeerRole,
        Cut,
        Ending,
        Turn,
        Room,
        Expect,
        Listing,
        ScrubAct,
        ScrubPhase,
        DiskCharge,
        CalibrateAct,
        QualifyAct,
        Want,
        LeaseKind,
        Protection,
        Methods,
        DataDirection,
        EntryKind,
        ChangeKind,
        RenameHow,
        UnlinkOnly,
        XattrHow,
        LayoutFrom,
        Clustering,
        KeyTurning,
        AllocateAct,
        LockKind,
        LockHow,
        LockState,
        DriveState,
        Admission,
        Access,
        Standing,
        TokenRole,
        TokenState,
        Reason
    )
}

/// The length in bytes of a number or array of fixed width.
pub(crate) fn width(type_name: &str) -> Option<usize> {
    Some(match type_name {
        "u8" | "Column" => 1,
        "u16" => 2,
        "u32" | "Generation" | "Lease" | "Rights" => 4,
        "EndBound" => 8,
        "u64" | "i64" | "VolumeId" | "PartitionId" | "FileId" | "ObjectId" | "ClientId" | "HolderId"
        | "LockSession" | "OperationNumber" | "ReservationId" | "TokenId" | "ColumnMask" => 8,
        "u128" | "ClusterId" | "DriveId" | "Version" | "[u8; 16]" => 16,
        "Key" | "[u8; 32]" => 32,
        _ => return None,
    })
}

/// The length in bytes of any value of a type; `None` if it varies.
pub(crate) fn size(type_name: &str) -> Option<usize> {
    if let Some(width) = width(type_name) {
        return Some(width);
    }
    if type_name == "bool" || choice(type_name).is_some() {
        return Some(1);
    }
    fields(type_name)?.iter().map(|(_, type_name)| size(type_name)).sum()
}

fn inner<'a>(type_name: &'a str, outer: &str) -> Option<&'a str> {
    type_name.strip_prefix(outer)?.strip_prefix('<')?.strip_suffix('>')
}

/// Encodes a value of `type_name`, field by field.
pub(crate) fn emit(type_name: &str, path: &str, source: &mut dyn Source, out: &mut Vec<Line>) {
    let mut line = |bytes: Vec<u8>, path: String, type_name: &str| {
        let offset = out.last().map_or(0, |last| last.offset + last.bytes.len());
        out.push(Line { offset, bytes, path, type_name: type_name.to_owned() });
    };
    if type_name == "Rights" {
        let bits = source.bytes(2);
        line(vec![bits[0], bits[1] & 7, 0, 0], path.to_owned(), type_name);
    } else if let Some(width) = width(type_name) {
        line(source.bytes(width), path.to_owned(), type_name);
    } else if type_name == "bool" {
        line(vec![u8::from(source.yes())], path.to_owned(), type_name);
    } else if let Some(values) = choice(type_name) {
        let numbers: Vec<u8> = values.iter().map(|(number, _)| *number).collect();
        line(vec![source.pick(&numbers)], path.to_owned(), type_name);
    } else if matches!(type_name, "String" | "Addresses" | "Vec<u8>") {
        let count = source.count("u8");
        let mut bytes = source.bytes(count);
        if type_name != "Vec<u8>" {
            bytes.iter_mut().for_each(|byte| *byte = b'a' + *byte % 26);
        }
        line(count_bytes(count), format!("{path}: bytes"), "u32");
        line(bytes, path.to_owned(), type_name);
    } else if let Some(field) = inner(type_name, "Added") {
        emit(field, path, source, out);
    } else if let Some(entry) = inner(type_name, "Vec") {
        let count = source.count(entry);
        line(count_bytes(count), format!("{path}: entries"), "u32");
        (0..count).for_each(|i| emit(entry, &format!("{path}[{i}]"), source, out));
    } else if let Some(entry) = inner(type_name, "Option") {
        let present = source.yes();
        line(vec![u8::from(present)], format!("{path}: present"), "bool");
        if present {
            emit(entry, path, source, out);
        }
    } else {
        let fields =
            fields(type_name).unwrap_or_else(|| panic!("{type_name} ({path}) is not known to the schema"));
        for (field, type_name) in fields {
            let path = if path.is_empty() { (*field).to_owned() } else { format!("{path}.{field}") };
            emit(type_name, &path, source, out);
        }
    }
}

/// Encodes a record given by its fields.
pub(crate) fn emit_fields(fields: Fields, source: &mut dyn Source) -> Vec<Line> {
    let mut out = Vec::new();
    fields.iter().for_each(|(field, type_name)| emit(type_name, field, source, &mut out));
    out
}

pub(crate) fn concatenate(lines: &[Line]) -> Vec<u8> {
    lines.iter().flat_map(|line| line.bytes.iter().copied()).collect()
}

fn count_bytes(count: usize) -> Vec<u8> {
    u32::try_from(count).expect("counts are small").to_le_bytes().to_vec()
}

/// A source that counts 1, 2, 3, ... so that every field is distinct and none is zero. Every option is
/// present, and every list has entries.
#[derive(Debug, Default)]
pub(crate) struct Distinct {
    next: u8,
    picked: usize,
}

impl Source for Distinct {
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count)
            .map(|_| {
                self.next = self.next.checked_add(1).unwrap_or(1);
                self.next
            })
            .collect()
    }
    fn count(&mut self, entry: &str) -> usize {
        if entry == "u8" { 3 } else { 2 }
    }
    fn pick(&mut self, numbers: &[u8]) -> u8 {
        self.picked += 1;
        numbers
            .iter()
            .copied()
            .filter(|&number| number != 0)
            .cycle()
            .nth(self.picked)
            .expect("a choice has values")
    }
    fn yes(&mut self) -> bool {
        true
    }
}

/// A source that draws from a pool of random bytes, and gives zeros when the pool is used up. A property
/// test shrinks the pool.
#[derive(Debug)]
pub(crate) struct Pool<'a>(pub(crate) &'a [u8]);

impl Pool<'_> {
    fn draw(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }
}

impl Source for Pool<'_> {
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.draw()).collect()
    }
    fn count(&mut self, _: &str) -> usize {
        usize::from(self.draw() % 5)
    }
    fn pick(&mut self, numbers: &[u8]) -> u8 {
        numbers[usize::from(self.draw()) % numbers.len()]
    }
    fn yes(&mut self) -> bool {
        self.draw() % 2 == 1
    }
}
