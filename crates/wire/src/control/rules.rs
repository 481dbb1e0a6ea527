//! The rules for requests to the manager: who may send a kind, and how it is carried out. One row per kind; a
//! new kind does not compile without its row.

use super::{Access, ControlRequest};
use crate::token::Standing;

/// The rules for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The kinds of session in which the request is allowed.
    pub by: &'static [Standing],
    /// True for an operation: a request that must not be carried out twice, and so needs a number. The others
    /// may be repeated freely: they read, renew, or carry a number of their own, as
    /// [`Commit::order`](super::Commit::order) is.
    pub is_operation: bool,
    /// True if the request may be in a batch: its answer is short, and as a rule comes at once. A request
    /// that takes long goes on while its sender asks again. So it must change nothing, or have a number by
    /// which the manager recognises a late arrival. A Refresh may change the lease's kind and has no such
    /// number, so it is excluded.
    pub in_batch: bool,
    /// True if the answer may wait for other peers, as for a fence. In a batch, even in a batch of one, such
    /// a request holds up no other for long.
    pub may_wait: bool,
    /// True if the request is refused while the manager does not know that its state is the current one.
    /// The others let an operator see what is wrong, or are how a drive makes itself heard.
    pub needs_leading: bool,
}

impl Rules {
    /// A request of these sessions that may be repeated freely, comes by itself, is answered at once, and
    /// only by a manager that leads.
    const fn of(by: &'static [Standing]) -> Rules {
        Rules { by, is_operation: false, in_batch: false, may_wait: false, needs_leading: true }
    }

    const fn once(self) -> Rules {
        Rules { is_operation: true, ..self }
    }

    const fn in_batch(self) -> Rules {
        Rules { in_batch: true, ..self }
    }

    const fn waits(self) -> Rules {
        Rules { may_wait: true, ..self }
    }

    const fn always(self) -> Rules {
        Rules { needs_leading: false, ..self }
    }
}

impl ControlRequest {
    /// The rules for this request.
    pub fn rules(&self) -> Rules {
        use ControlRequest as R;
        const NOBODY: Rules = Rules::of(&[]);
        const CLIENT: Rules = Rules::of(&[Standing::Client]);
        const DRIVE: Rules = Rules::of(&[Standing::Drive]);
        const JOIN: Rules = Rules::of(&[Standing::Join]);
        const MANAGER: Rules = Rules::of(&[Standing::Manager]);
        const BOTH: Rules = Rules::of(&[Standing::Client, Standing::Drive]);
        match self {
            R::Authenticate(_) => NOBODY.always(), // the session's first message, and never again

            R::VolumeCreate(_) => CLIENT.once(),
            R::VolumeRemove(_) => CLIENT.once(),
            R::VolumeProtect(_) => CLIENT.once(),
            R::VolumeRekey(_) | R::VolumeMethods(_) => CLIENT.once(),
            R::VolumeList(_) => CLIENT,
            R::QuotaSet(_) => CLIENT.once(),
            R::QuotaRemove(_) => CLIENT.once(),
            R::QuotaList(_) => CLIENT,
            R::SnapshotMake(_) => CLIENT.once(),
            R::SnapshotRemove(_) => CLIENT.once(),
            R::Snapshots(_) => CLIENT,
            R::SnapshotDiff(_) => CLIENT,
            R::SnapshotKeep(_) => CLIENT.once(),
            R::SnapshotSchedules(_) => CLIENT,

            R::Lookup(_) => CLIENT.in_batch(),
            R::ReadDirectory(_) => CLIENT,
            R::MakeDirectory(_) => CLIENT.once().in_batch(),
            R::Rename(_) => CLIENT.once().in_batch(),
            R::Unlink(_) => CLIENT.once().in_batch(),
            R::SetAttributes(_) => CLIENT.once().in_batch(),
            R::MakeNode(_) => CLIENT.once().in_batch(),
            R::HardLink(_) => CLIENT.once().in_batch(),
            R::SetXattr(_) => CLIENT.once(),
            R::Xattrs(_) => CLIENT,
            R::SetLayout(_) | R::SetClustering(_) => CLIENT.once(),
            R::LayoutOf(_) => CLIENT,

            R::CreateUnnamed(_) => CLIENT.once().in_batch().waits(),
            R::Link(link) if link.ends.is_some() => CLIENT.once().in_batch().waits(),
            R::Link(_) => CLIENT.once().in_batch(),
            R::Open(open) if open.access == Access::Write => CLIENT.once().in_batch().waits(),
            R::Open(_) => CLIENT.in_batch().waits(),
            R::Refresh(_) => BOTH,
            R::Renew(_) => CLIENT,
            R::Commit(_) => CLIENT.in_batch(),
            R::Release(_) => CLIENT.once().in_batch().waits(),
            R::ReportLost(_) => CLIENT,
            R::ReserveEnd(_) => CLIENT.once().in_batch(),
            R::Allocate(_) => CLIENT.in_batch().waits(),

            R::Status(_) => CLIENT.always(),
            R::Backup(_) | R::ReadBackup(_) => CLIENT.always(),
            R::FreeUnnamed(_) => CLIENT,
            R::Jobs(_) => CLIENT.always(),

            R::JoinDrive(_) => JOIN.always(),
            R::Heartbeat(_) => DRIVE.always(),
            R::ReplaceDrive(_) => CLIENT.once(),
            R::ScrubDrive(_) => CLIENT,
            R::Sisters(_) => DRIVE.always(),
            R::CertifyDrive(_) => DRIVE.always(),
            R::DrainDrive(_) => CLIENT,
            R::RemoveDrive(_) => CLIENT,
            R::PauseDrive(_) => CLIENT,
            R::CalibrateDrive(_) => CLIENT,

            R::KeyRotate(_) => CLIENT.once(),
            R::Keys(_) => CLIENT,
            R::RevokeFile(_) => CLIENT.once(),
            R::RevokeClient(_) => CLIENT.once(),

            R::StaleFiles(_) => BOTH,
            R::BeginHeal(_) => DRIVE,
            R::EndHeal(_) => DRIVE,
            R::HealReport(_) => DRIVE,
            R::HealStatus(_) => CLIENT,
            R::Relayout(_) => CLIENT,
            R::Relayouts(_) => CLIENT,

            R::ReserveRate(_) => CLIENT.once(),
            R::Reservations(_) => CLIENT,
            R::ExtendReservation(_) => CLIENT,
            R::EndReservation(_) => CLIENT.once(),
            R::LatenessReport(_) => CLIENT.in_batch(),
            R::Qualify(_) => CLIENT,

            R::TokenNew(_) => CLIENT.once(),
            R::Tokens(_) => CLIENT,
            R::TokenRevoke(_) => CLIENT.once(),

            R::AddManager(_) => MANAGER,
            R::RemoveManager(_) => CLIENT,

            R::Watch(_) => CLIENT,
            R::Lock(_) => CLIENT.in_batch().waits(),
            R::Batch(_) => CLIENT.always(), // each request in it has its own rules
        }
    }
}
