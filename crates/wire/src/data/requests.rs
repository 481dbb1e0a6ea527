//! Every request to a drive, one row each.
//!
//! A row has the request's number and name, the [`Rules`] for all requests of its kind, the [`Target`] of
//! one request as its fields give it, and its form: whether its fields agree with each other. The rows
//! determine what a drive checks ([`authorise`](crate::authorise)), what it may answer, the table of
//! requests in `docs/format-wire.md` and the fuzz corpus. A request without a row, or a row without one of
//! these parts, does not compile.

use super::rules::{
    Absent, Bytes, FenceRule, GenerationRule, LeaseRule, Rules, Stamp, Subject, Target, WellKnown,
};
use super::{
    Address, Calibrate, Create, Delta, Fence, GetAttributes, List, ModulePart, PartitionSet, Read, Ready,
    Remove, Retire, Run, Scrub, SetAttributes, Snapshot, StripeWrite, UnitWrite, Verdict, Versions,
    WriteTurn,
};
use crate::capability::Rights;
use crate::refusal::{Reason::*, Refusal};

/// Declares [`DriveRequest`] by its rows. A row has a number, a name (which is also that of the record of
/// its fields), and rules, target and form as expressions over the request.
macro_rules! drive_requests {
    ($($(#[$doc:meta])* $kind:literal $name:ident($request:ident) {
        rules: $rules:expr,
        target: $target:expr,
        form: $form:expr,
    })*) => {
        message_set! {
            /// Requests to a drive: 21 in all. NASD has fewer than 20 (Gibson et al., 1998, section 4.1), and
            /// no methods.
            pub enum DriveRequest { $($(#[$doc])* $name($name) = $kind),* }
        }

        impl DriveRequest {
            /// The rules of each kind, in the order of [`DriveRequest::KINDS`].
            pub const RULES: &'static [(u16, Rules)] = &[$(($kind, $rules)),*];

            /// The target of the request: the object and bytes that it is about.
            pub fn target(&self) -> Target<'_> {
                match self { $(DriveRequest::$name($request) => { let _ = $request; $target }),* }
            }

            /// Checks that the request's fields agree with each other. Ranges and payloads are checked by
            /// its [`DriveRequest::target`].
            pub(crate) fn check_form(&self) -> Result<(), Refusal> {
                match self { $(DriveRequest::$name($request) => { let _ = $request; $form })* }
            }
        }
    };
}

drive_requests! {
    /// Create an object: Done.
    0x0100 Create(r) {
        rules: Rules {
            absent: Absent::Served,
            fence: FenceRule::NotNeeded,
            lease: LeaseRule::NotForManager,
            refusals: &[StaleGeneration, Exists, Full, Quota, Damaged, ReadOnly],
            ..Rules::needing(Rights::CREATE)
        },
        target: Target { at: r.at, bytes: Bytes::Any, stamp: Stamp::None, term: None },
        form: r.check_form(),
    }

    /// Remove an object, or an empty partition: Done.
    0x0101 Remove(r) {
        rules: Rules {
            well_known: WellKnown::Managed,
            generation: GenerationRule::NotBelow,
            absent: Absent::Served,
            fence: FenceRule::NotNeeded,
            lease: LeaseRule::NotForManager,
            refusals: &[StaleGeneration, PartitionNotEmpty, Full, Damaged, ReadOnly, NotLeading],
            ..Rules::needing(Rights::REMOVE)
        },
        target: Target { at: r.at, bytes: Bytes::Any, stamp: Stamp::None, term: Some(r.term) },
        form: Ok(()),
    }

    /// Read part of a unit: Read.
    0x0102 Read(r) {
        rules: Rules {
            refusals: &[Range, StaleGeneration, NoObject, Damaged, Gone, NotCaughtUp],
            ..Rules::needing(Rights::READ)
        },
        target: Target {
            at: r.at,
            bytes: Bytes::Read { unit: r.unit, from: r.from, to: r.to },
            stamp: Stamp::None,
            term: None,
        },
        form: r.check_form(),
    }

    /// Write one column's part of a stripe: Written.
    0x0103 StripeWrite(r) {
        rules: Rules {
            refusals: &[Range, StaleGeneration, NoObject, Full, Quota, Damaged, PayloadChecksum, ReadOnly],
            ..Rules::needing(Rights::WRITE)
        },
        target: Target {
            at: r.at,
            bytes: Bytes::Written { unit: r.unit, from: r.from, to: r.to, hole: r.hole, crcs: &r.crcs },
            stamp: if r.install { Stamp::Installed(r.stamp) } else { Stamp::Own(r.stamp) },
            term: None,
        },
        form: Ok(()),
    }

    /// Write to one unit through its data drive: Written, when settled.
    0x0104 UnitWrite(r) {
        rules: Rules {
            refusals: &[Range, StaleGeneration, NoObject, Full, Quota, Damaged, PayloadChecksum, ReadOnly],
            ..Rules::needing(Rights::WRITE)
        },
        target: Target {
            at: r.at,
            bytes: Bytes::Written { unit: r.unit, from: r.from, to: r.to, hole: r.hole, crcs: &r.crcs },
            stamp: r.stamp.map_or(Stamp::None, Stamp::Own),
            term: None,
        },
        form: Ok(()),
    }

    /// Apply a change of parity, from drive to drive: Written, with the tip.
    0x0105 Delta(r) {
        rules: Rules {
            subject: Subject::Partition,
            refusals: &[
                Range, StaleGeneration, NoObject, Full, Quota, Damaged, PayloadChecksum, Gone, ReadOnly,
            ],
            ..Rules::needing(Rights::DELTA)
        },
        target: Target {
            at: r.at,
            bytes: Bytes::Written { unit: r.unit, from: r.from, to: r.to, hole: false, crcs: &r.crcs },
            stamp: Stamp::None,
            term: None,
        },
        form: Ok(()),
    }

    /// Get the versions of units, or list units: Versions.
    0x0106 Versions(r) {
        rules: Rules {
            refusals: &[Range, StaleGeneration, NoObject, Damaged],
            ..Rules::needing(Rights::READ)
        },
        target: Target { at: r.at, bytes: Bytes::Units(&r.units), stamp: Stamp::None, term: None },
        form: r.check_form(),
    }

    /// Report settled stamps: Done.
    0x0107 Retire(r) {
        rules: Rules {
            refusals: &[StaleGeneration, NoObject, Full, Damaged, ReadOnly],
            ..Rules::needing(Rights::WRITE)
        },
        target: Target { at: r.at, bytes: Bytes::Any, stamp: Stamp::None, term: None },
        form: Ok(()),
    }

    /// Set a higher generation: Fence.
    0x0108 Fence(r) {
        rules: Rules {
            generation: GenerationRule::NotBelow,
            fence: FenceRule::NotNeeded,
            lease: LeaseRule::NotForManager,
            refusals: &[StaleGeneration, NoObject, Full, Damaged, ReadOnly, NotLeading],
            ..Rules::needing(Rights::MANAGE)
        },
        target: Target { at: r.at, bytes: Bytes::Any, stamp: Stamp::None, term: Some(r.term) },
        form: Ok(()),
    }

    /// Roll stamps forward and back: Done.
    0x0109 Verdict(r) {
        rules: Rules {
            refusals: &[StaleGeneration, NoObject, Full, Damaged, ReadOnly, NotLeading],
            ..Rules::needing(Rights::MANAGE)
        },
        target: Target { at: r.at, bytes: Bytes::Any, stamp: Stamp::None, term: Some(r.term) },
        form: Ok(()),
    }

    /// Report that units of a joining column are caught up: Done.
    0x010b Ready(r) {
        rules: Rules {
            refusals: &[StaleGeneration, NoObject, Full, Damaged, ReadOnly],
            ..Rules::needing(Rights::WRITE)
        },
        target: Target {
            at: r.at,
            bytes: Bytes::Run { unit: r.unit, units: r.units },
            stamp: Stamp::None,
            term: None,
        },
        form: r.check_form(),
    }

    /// Get attributes: Attributes, PartitionAttributes or DriveAttributes.
    0x010d GetAttributes(r) {
        rules: Rules {
            well_known: WellKnown::Served,
            generation: GenerationRule::Any,
            fence: FenceRule::NotNeeded,
            refusals: &[NoObject, Damaged],
            ..Rules::needing(Rights::GET_ATTRIBUTES)
        },
        target: Target { at: r.at, bytes: Bytes::Any, stamp: Stamp::None, term: None },
        form: Ok(()),
    }

    /// Change attributes: Done.
    0x010e SetAttributes(r) {
        rules: Rules {
            generation: GenerationRule::NotBelow,
            fence: FenceRule::NotNeeded,
            refusals: &[StaleGeneration, NoObject, Full, Quota, Damaged, ReadOnly, NotLeading],
            ..Rules::needing(Rights::SET_ATTRIBUTES)
        },
        target: Target { at: r.at, bytes: Bytes::Any, stamp: Stamp::None, term: Some(r.term) },
        form: r.check_form(),
    }

    /// List a partition's objects, or the drive's partitions: List or PartitionList.
    0x010f List(r) {
        rules: Rules { well_known: WellKnown::Served, ..Rules::needing(Rights::LIST) },
        target: Target {
            at: Address::of_partition(r.partition),
            bytes: Bytes::Any,
            stamp: Stamp::None,
            term: None,
        },
        form: Ok(()),
    }

    /// Make or change a partition: Done.
    0x0110 PartitionSet(r) {
        rules: Rules {
            well_known: WellKnown::Served,
            lease: LeaseRule::NotForManager,
            refusals: &[Exists, Full, ReadOnly, NotLeading],
            ..Rules::needing(Rights::MANAGE)
        },
        target: Target { at: Address::DRIVE, bytes: Bytes::Any, stamp: Stamp::None, term: Some(r.term) },
        form: r.check_form(),
    }

    /// Take a still of an object: Done.
    0x0111 Snapshot(r) {
        rules: Rules {
            refusals: &[
                StaleGeneration, NoObject, Exists, Full, Damaged, ReadOnly, NotLeading, Unsettled,
                TooManySnapshots,
            ],
            ..Rules::needing(Rights::MANAGE)
        },
        target: Target { at: r.at, bytes: Bytes::Any, stamp: Stamp::None, term: Some(r.term) },
        form: r.check_form(),
    }

    /// Start a scrub, or get its state: Scrub.
    0x0112 Scrub(r) {
        rules: Rules {
            well_known: WellKnown::Served,
            refusals: &[NotLeading],
            ..Rules::needing(Rights::MANAGE)
        },
        target: Target { at: Address::DRIVE, bytes: Bytes::Any, stamp: Stamp::None, term: Some(r.term) },
        form: r.check_form(),
    }

    /// Measure what the drive's parts cost, or get the state of that: Calibrate.
    0x0113 Calibrate(r) {
        rules: Rules {
            well_known: WellKnown::Served,
            refusals: &[NotLeading, DriveInUse],
            ..Rules::needing(Rights::MANAGE)
        },
        target: Target { at: Address::DRIVE, bytes: Bytes::Any, stamp: Stamp::None, term: Some(r.term) },
        form: Ok(()),
    }

    /// Ask for leave to send a write's bytes: Done, when it is the client's turn.
    0x0114 WriteTurn(r) {
        rules: Rules {
            absent: Absent::Served,
            refusals: &[StaleGeneration],
            ..Rules::needing(Rights::WRITE)
        },
        target: Target { at: r.at, bytes: Bytes::Any, stamp: Stamp::None, term: None },
        form: r.check_form(),
    }

    /// Run a method on pieces of units: Run.
    0x0115 Run(r) {
        rules: Rules {
            refusals: &[Range, StaleGeneration, NoObject, Damaged, NoModule, ModuleFailed],
            ..Rules::needing(Rights::READ.and(Rights::RUN))
        },
        target: Target { at: r.at, bytes: Bytes::Units(&r.units), stamp: Stamp::None, term: None },
        form: r.check_form(),
    }

    /// Give a part of a module: Done.
    0x0116 ModulePart(r) {
        rules: Rules {
            refusals: &[Range, StaleGeneration, NoObject, Damaged, PayloadChecksum, NoModule],
            ..Rules::needing(Rights::RUN_CODE)
        },
        target: Target { at: r.at, bytes: Bytes::Any, stamp: Stamp::None, term: None },
        form: r.check_form(),
    }
}

impl DriveRequest {
    /// The rules for requests of a kind; `None`: there is no such request.
    pub fn rules_of(kind: u16) -> Option<&'static Rules> {
        DriveRequest::RULES.iter().find(|(known, _)| *known == kind).map(|(_, rules)| rules)
    }

    /// The rules for requests of this kind.
    pub fn rules(&self) -> &'static Rules {
        DriveRequest::rules_of(self.kind()).expect("every request has a row")
    }
}
