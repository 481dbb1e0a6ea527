//! The rights of tokens: what a session may ask for, by its token's role, its volumes, and whether it may
//! change anything. Pure; the one place where this is decided.
//!
//! An admin's token may ask for all that clients may. A client's may use names, files and rates, in its
//! volumes or in all, and may look at the cluster's state; a read-only one changes nothing, and opens nothing
//! to write. What is of all volumes at once, and has rows of none to be left out, is for tokens of all
//! volumes. Drives, keys, quotas, the volumes themselves, backups and tokens are an admin's. So are the
//! removal and the schedules of snapshots: who writes a volume cannot take away what it was before.

use braid_layout::{FileId, ReservationId, VolumeId};
use braid_wire::control::{
    Access, ControlReply, ControlRequest, LockHow, LockKind, NamePlace, QualifyAct, ReservationRow,
};
use braid_wire::token::TokenRole;
use braid_wire::{Reason, Refusal};

use crate::records::schema::TokenRecord;

/// The right that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// That of any client. Rows of volumes that are not the token's are left out of the answer ([`shown`]).
    Any,
    /// To read in the volumes concerned.
    Read,
    /// To change something in the volumes concerned.
    Write,
    /// To read what is of all volumes.
    Whole,
    /// The right of admins alone.
    Admin,
    /// No client's: a drive sends it, or nobody within a session.
    NoClient,
}

/// Something that a request names, which is in a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A place in the tree of names.
    Name(NamePlace),
    /// A volume, by its name.
    Volume(String),
    /// A file, as it is in the snapshot of this number; 0: as it is now.
    File(FileId, u32),
    /// A file that the asker holds under a lease. It may be gone: then nothing is held.
    Held(FileId),
    /// A reservation; it may have ended.
    Reservation(ReservationId),
}

/// The need of a request: a right, in the volumes of these places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// The right that the asker must have.
    pub right: Right,
    /// All places that the request names.
    pub places: Vec<Place>,
}

impl Need {
    fn of(right: Right) -> Need {
        Need { right, places: Vec::new() }
    }

    fn at(right: Right, place: Place) -> Need {
        Need { right, places: vec![place] }
    }

    fn named(right: Right, at: &NamePlace) -> Need {
        Need::at(right, Place::Name(at.clone()))
    }

    fn held(right: Right, file: FileId) -> Need {
        Need::at(right, Place::Held(file))
    }

    fn and(mut self, at: &NamePlace) -> Need {
        self.places.push(Place::Name(at.clone()));
        self
    }

    /// In the volume of this name; none: of all volumes, and the rows of others are left out.
    fn listed(volume: &str) -> Need {
        match volume {
            "" => Need::of(Right::Any),
            volume => Need::at(Right::Read, Place::Volume(volume.to_owned())),
        }
    }
}

/// The need of a request. A new kind does not compile without its line.
pub fn need(request: &ControlRequest) -> Need {
    use ControlRequest as R;
    match request {
        R::VolumeList(_) | R::Status(_) | R::Reservations(_) => Need::of(Right::Any),
        R::Batch(_) => Need::of(Right::Any), // each request in it is looked at by itself
        R::Watch(_) => Need::of(Right::Any), // it tells of what was looked up before
        R::QuotaList(list) => Need::listed(&list.volume),
        R::SnapshotSchedules(list) => Need::listed(&list.volume),
        R::HealStatus(asked) if asked.rate.is_none() && asked.balance.is_none() => Need::of(Right::Any),
        R::Qualify(asked) if asked.act == QualifyAct::Look => Need::of(Right::Any),

        R::Snapshots(list) => Need::named(Right::Read, &list.at),
        R::SnapshotDiff(diff) => Need::named(Right::Read, &diff.from).and(&diff.to),
        R::Lookup(lookup) => Need::named(Right::Read, &lookup.at),
        R::ReadDirectory(read) => Need::named(Right::Read, &read.at),
        R::Xattrs(of) => Need::named(Right::Read, &of.at),
        R::LayoutOf(of) => Need::named(Right::Read, &of.at),
        R::Open(open) if open.access == Access::Read && !open.create => Need::named(Right::Read, &open.at),
        R::Refresh(asked) if asked.access == Access::Read => {
            Need::at(Right::Read, Place::File(asked.file, asked.snapshot))
        }
        R::Renew(renew) => Need {
            right: Right::Read,
            places: renew.leases.iter().map(|held| Place::Held(held.file)).collect(),
        },
        R::Lock(lock) => {
            let is_write = lock.kind == Some(LockKind::Exclusive) && lock.how != LockHow::Test;
            Need::held(if is_write { Right::Write } else { Right::Read }, lock.file)
        }
        R::LatenessReport(report) => Need::at(Right::Read, Place::Reservation(report.reservation)),
        R::ReserveRate(asked) if asked.trial => Need::named(Right::Read, &asked.at),

        R::Open(open) => Need::named(Right::Write, &open.at),
        R::Refresh(asked) if asked.snapshot == 0 => Need::held(Right::Write, asked.file),
        R::Refresh(asked) => Need::at(Right::Write, Place::File(asked.file, asked.snapshot)),
        R::MakeDirectory(make) => Need::named(Right::Write, &make.at),
        R::Rename(rename) => Need::named(Right::Write, &rename.from).and(&rename.to),
        R::Unlink(unlink) => Need::named(Right::Write, &unlink.at),
        R::SetAttributes(set) => Need::named(Right::Write, &set.at),
        R::MakeNode(make) => Need::named(Right::Write, &make.at),
        R::HardLink(link) => Need::named(Right::Write, &link.from).and(&link.to),
        R::SetXattr(set) => Need::named(Right::Write, &set.at),
        R::SetLayout(set) => Need::named(Right::Write, &set.at),
        R::SetClustering(set) => Need::named(Right::Write, &set.at),
        R::Relayout(relayout) => Need::named(Right::Write, &relayout.at),
        R::SnapshotMake(make) => Need::named(Right::Write, &make.at),
        R::CreateUnnamed(create) => {
            let need = Need::at(Right::Write, Place::Volume(create.volume.clone()));
            create.meant_for.iter().fold(need, Need::and)
        }
        R::Link(link) => Need::held(Right::Write, link.file).and(&link.at),
        R::Commit(commit) => Need::held(Right::Write, commit.file),
        R::Release(release) => Need::held(Right::Write, release.file),
        R::ReportLost(report) => Need::held(Right::Write, report.file),
        R::ReserveEnd(reserve) => Need::held(Right::Write, reserve.file),
        R::Allocate(allocate) => Need::held(Right::Write, allocate.file),
        R::ReserveRate(asked) => Need::named(Right::Write, &asked.at),
        R::ExtendReservation(extend) => Need::at(Right::Write, Place::Reservation(extend.reservation)),
        R::EndReservation(end) => Need::at(Right::Write, Place::Reservation(end.reservation)),

        R::Jobs(_) | R::StaleFiles(_) | R::Relayouts(_) => Need::of(Right::Whole),

        R::VolumeCreate(_) | R::VolumeRemove(_) => Need::of(Right::Admin),
        R::VolumeProtect(_) | R::VolumeRekey(_) | R::VolumeMethods(_) => Need::of(Right::Admin),
        R::QuotaSet(_) | R::QuotaRemove(_) => Need::of(Right::Admin),
        R::SnapshotRemove(_) | R::SnapshotKeep(_) => Need::of(Right::Admin),
        R::Backup(_) | R::ReadBackup(_) | R::FreeUnnamed(_) => Need::of(Right::Admin),
        R::ReplaceDrive(_) | R::DrainDrive(_) | R::RemoveDrive(_) => Need::of(Right::Admin),
        R::ScrubDrive(_) | R::CalibrateDrive(_) | R::PauseDrive(_) => Need::of(Right::Admin),
        R::KeyRotate(_) | R::Keys(_) | R::RevokeFile(_) | R::RevokeClient(_) => Need::of(Right::Admin),
        R::HealStatus(_) | R::Qualify(_) => Need::of(Right::Admin),
        R::TokenNew(_) | R::Tokens(_) | R::TokenRevoke(_) => Need::of(Right::Admin),
        R::RemoveManager(_) => Need::of(Right::Admin),

        R::Authenticate(_) | R::JoinDrive(_) | R::Heartbeat(_) | R::Sisters(_) => Need::of(Right::NoClient),
        R::CertifyDrive(_) => Need::of(Right::NoClient),
        R::BeginHeal(_) | R::EndHeal(_) | R::HealReport(_) => Need::of(Right::NoClient),
        R::AddManager(_) => Need::of(Right::NoClient),
    }
}

/// Ok if the token allows the request, which needs `need`. `volume_of` gives the volume of a place; `None`:
/// nothing is there any more. It is not asked for tokens of all volumes.
pub fn allowed(
    token: &TokenRecord,
    request: &str,
    need: &Need,
    volume_of: impl Fn(&Place) -> Result<Option<VolumeId>, Refusal>,
) -> Result<(), Refusal> {
    allowed_at_all(token, request, need.right)?;
    let Some(volumes) = seen(token) else { return Ok(()) };
    for place in &need.places {
        if volume_of(place)?.is_some_and(|volume| !volumes.contains(&volume)) {
            let why = format!("is not for this volume ({request})");
            let remedy = "a token for it: braid token new NAME --volumes VOLUME";
            return Err(refused(token, &why, remedy));
        }
    }
    Ok(())
}

/// Ok if the token allows requests of this right, in some volume at least.
pub fn allowed_at_all(token: &TokenRecord, request: &str, right: Right) -> Result<(), Refusal> {
    match (token.role, right) {
        (_, Right::NoClient) => {
            let detail = format!(
                "token {:?} does not allow {request}: only drives and new managers send that",
                token.name
            );
            Err(Refusal::new(Reason::NotAllowed, detail))
        }
        (TokenRole::Drive | TokenRole::Manager, _) => {
            let role = token.role.word();
            let why = format!("lets a {role} join, and does not allow {request}");
            Err(refused(token, &why, "a client's token: braid token new NAME"))
        }
        (TokenRole::Admin, _) => Ok(()),
        (TokenRole::Client, Right::Admin) => {
            let why = format!("is a client's, and this is for admins ({request})");
            let remedy =
                "it, or use an admin's cluster.toml: the manager's directory has one (--cluster FILE)";
            Err(refused(token, &why, remedy))
        }
        (TokenRole::Client, Right::Whole) if token.volumes.is_some() => {
            let why = format!("is for some volumes, and this is about all ({request})");
            Err(refused(token, &why, "a token without --volumes: braid token new NAME"))
        }
        (TokenRole::Client, Right::Whole) if token.user.as_ref().is_some_and(|user| user.uid != 0) => {
            let why = format!("is bound to a user, and this is about all files ({request})");
            Err(refused(token, &why, "a token without --uid: braid token new NAME"))
        }
        (TokenRole::Client, Right::Write) if token.read_only => {
            let why = format!("is read-only, and allows no change ({request})");
            Err(refused(token, &why, "one that may change things: braid token new NAME, without --read-only"))
        }
        (TokenRole::Client, _) => Ok(()),
    }
}

fn refused(token: &TokenRecord, why: &str, remedy: &str) -> Refusal {
    Refusal::new(Reason::NotAllowed, format!("token {:?} {why}: ask an admin for {remedy}", token.name))
}

/// The volumes of which a token shows rows; `None`: all.
pub fn seen(token: &TokenRecord) -> Option<&[VolumeId]> {
    token.volumes.as_deref().filter(|_| token.role == TokenRole::Client)
}

/// Returns true if the answer has rows of volumes, some of which may have to be left out.
pub fn has_rows_of_volumes(reply: &ControlReply) -> bool {
    use ControlReply as R;
    matches!(reply, R::Volumes(_) | R::Quotas(_) | R::SnapshotSchedules(_) | R::Reservations(_))
}

/// An answer to a token of these volumes, without the rows of others. `urls`: those of the volumes, or of the
/// directories to which the token is confined.
pub fn shown(volumes: &[VolumeId], urls: &[String], reply: ControlReply) -> ControlReply {
    let is_in = |place: &str| {
        let rest = |url: &String| place.strip_prefix(url.as_str()).map(str::to_owned);
        urls.iter().filter_map(rest).any(|rest| rest.is_empty() || rest.starts_with(['/', '@']))
    };
    match reply {
        ControlReply::Volumes(mut list) => {
            list.volumes.retain(|row| volumes.contains(&row.volume));
            list.methods.0.retain(|row| volumes.contains(&row.volume));
            list.into()
        }
        ControlReply::Quotas(mut list) => {
            list.quotas.retain(|row| is_in(&row.place));
            list.into()
        }
        ControlReply::SnapshotSchedules(mut list) => {
            list.schedules.retain(|row| is_in(&row.place));
            list.into()
        }
        ControlReply::Reservations(mut list) => {
            let url = |row: &ReservationRow| {
                format!("braid://{}/{}", row.volume, String::from_utf8_lossy(&row.path))
            };
            list.reservations.retain(|row| volumes.contains(&row.volume_id) && is_in(&url(row)));
            list.into()
        }
        reply => reply,
    }
}

#[cfg(test)]
mod tests {
    use braid_layout::{DriveId, HolderId, Lease};
    use braid_wire::DecodeError;
    use braid_wire::capability::{Key, Protection};
    use braid_wire::control::{
        CreateUnnamed, HeldLease, Lock, Methods, MethodsRow, Open, Qualify, QuotaListReply, QuotaRow,
        Refresh, Rename, Renew, ShapeSpec, VolumeListReply, VolumeRow,
    };

    use super::*;

    /// For every request, in the form of [`sample`]: what a client's token of all volumes, a read-only one,
    /// and one of a volume that the request is not about may ask. An admin may ask all but what is `drive`.
    const TABLE: &str = "
        Authenticate        drive
        VolumeCreate        admin
        VolumeRemove        admin
        VolumeProtect       admin
        VolumeRekey         admin
        VolumeMethods       admin
        VolumeList          any
        QuotaSet            admin
        QuotaRemove         admin
        QuotaList           any
        SnapshotMake        write
        SnapshotRemove      admin
        Snapshots           read
        Lookup              read
        ReadDirectory       read
        MakeDirectory       write
        Rename              write
        Unlink              write
        SetAttributes       write
        MakeNode            write
        HardLink            write
        SetXattr            write
        Xattrs              read
        SetLayout           write
        LayoutOf            read
        CreateUnnamed       write
        Link                write
        Open                read
        Refresh             read
        Renew               any
        Commit              write
        Release             write
        ReportLost          write
        ReserveEnd          write
        Allocate            write
        Status              any
        Backup              admin
        FreeUnnamed         admin
        Jobs                whole
        JoinDrive           drive
        Heartbeat           drive
        ReplaceDrive        admin
        ScrubDrive          admin
        Sisters             drive
        CertifyDrive        drive
        DrainDrive          admin
        RemoveDrive         admin
        CalibrateDrive      admin
        PauseDrive          admin
        ReadBackup          admin
        KeyRotate           admin
        Keys                admin
        RevokeFile          admin
        RevokeClient        admin
        SetClustering       write
        StaleFiles          whole
        BeginHeal           drive
        EndHeal             drive
        HealReport          drive
        HealStatus          any
        SnapshotDiff        read
        SnapshotKeep        admin
        SnapshotSchedules   any
        Relayout            write
        Relayouts           whole
        ReserveRate         write
        Reservations        any
        ExtendReservation   write
        EndReservation      write
        LatenessReport      read
        Qualify             any
        Watch               any
        Lock                read
        Batch               any
        TokenNew            admin
        Tokens              admin
        TokenRevoke         admin
        AddManager          drive
        RemoveManager       admin
    ";

    fn token(role: TokenRole, volumes: Option<Vec<VolumeId>>, read_only: bool) -> TokenRecord {
        TokenRecord {
            name: "t".into(),
            role,
            secret: Key::new([1; 32]),
            volumes,
            below: Vec::new(),
            user: None,
            read_only,
            single_use: false,
            used_by: DriveId(0),
            made_ms: 1,
            expires_s: 0,
            revoked_ms: 0,
        }
    }

    /// A request of this kind: with zeros and empty lists, and the first value of each choice.
    fn sample(kind: u16) -> ControlRequest {
        let mut body = Vec::new();
        loop {
            match ControlRequest::from_body(kind, &body) {
                Ok(request) => return request,
                Err(DecodeError::Truncated { needed, .. }) => body.resize(body.len() + needed.max(1), 0),
                // Fields are read in order: the bad one came last.
                Err(_) => *body.last_mut().expect("not empty") += 1,
            }
            assert!(body.len() < 4096, "kind {kind:#06x}");
        }
    }

    /// Volume 7 is at every place.
    fn in_seven(_: &Place) -> Result<Option<VolumeId>, Refusal> {
        Ok(Some(VolumeId(7)))
    }

    fn may(token: &TokenRecord, request: &ControlRequest) -> bool {
        let allowed = allowed(token, request.name(), &need(request), in_seven);
        if let Err(refusal) = &allowed {
            assert!(
                refusal.reason == Reason::NotAllowed && refusal.detail.contains("token \"t\""),
                "{refusal}"
            );
        }
        allowed.is_ok()
    }

    #[test]
    fn every_request_is_in_the_table_and_each_role_may_what_it_says() {
        let rows: Vec<Vec<&str>> = TABLE.lines().map(|line| line.split_whitespace().collect()).collect();
        let rows: Vec<&Vec<&str>> = rows.iter().filter(|row| !row.is_empty()).collect();
        assert_eq!(rows.len(), ControlRequest::KINDS.len());
        let only = |volume| Some(vec![VolumeId(volume)]);
        let admin = token(TokenRole::Admin, None, false);
        let all = token(TokenRole::Client, None, false);
        let reads = token(TokenRole::Client, None, true);
        let here = token(TokenRole::Client, only(7), false);
        let elsewhere = token(TokenRole::Client, only(8), false);
        let drive = token(TokenRole::Drive, None, false);
        for &(kind, name) in ControlRequest::KINDS {
            let row = rows.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("no row for {name}"));
            let request = sample(kind);
            let found = [&admin, &all, &reads, &here, &elsewhere, &drive].map(|token| may(token, &request));
            let expected = match row[1] {
                "any" => [true, true, true, true, true, false],
                "read" => [true, true, true, true, false, false],
                "write" => [true, true, false, true, false, false],
                "whole" => [true, true, true, false, false, false],
                "admin" => [true, false, false, false, false, false],
                "drive" => [false; 6],
                other => panic!("{other}"),
            };
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn what_a_request_asks_decides_where_its_kind_does_not() {
        let reads = token(TokenRole::Client, None, true);
        let open = |access, create| -> ControlRequest {
            let ControlRequest::Open(open) = sample(0x0222) else { panic!("an open") };
            Open { access, create, ..open }.into()
        };
        assert!(may(&reads, &open(Access::Read, false)));
        assert!(!may(&reads, &open(Access::Write, false)) && !may(&reads, &open(Access::Read, true)));
        let refresh = |access| -> ControlRequest {
            let ControlRequest::Refresh(refresh) = sample(0x0223) else { panic!("a refresh") };
            Refresh { access, ..refresh }.into()
        };
        assert!(may(&reads, &refresh(Access::Read)) && !may(&reads, &refresh(Access::Write)));
        let lock = |how, kind| -> ControlRequest {
            let ControlRequest::Lock(lock) = sample(0x0269) else { panic!("a lock") };
            Lock { how, kind, ..lock }.into()
        };
        assert!(
            may(&reads, &lock(LockHow::Set, Some(LockKind::Shared)))
                && may(&reads, &lock(LockHow::Set, None))
        );
        assert!(may(&reads, &lock(LockHow::Test, Some(LockKind::Exclusive))));
        assert!(!may(&reads, &lock(LockHow::Set, Some(LockKind::Exclusive))));
        let client = token(TokenRole::Client, None, false);
        assert!(!may(&client, &Qualify { act: QualifyAct::Forget, whole: None }.into()));
    }

    #[test]
    fn all_places_of_a_request_are_looked_at() {
        let here = token(TokenRole::Client, Some(vec![VolumeId(7)]), false);
        let volume_of = |place: &Place| match place {
            Place::Name(at) => Ok(Some(VolumeId(if at.volume == "seven" { 7 } else { 8 }))),
            Place::Held(FileId(1)) | Place::Volume(_) => Ok(Some(VolumeId(7))),
            Place::Held(_) => Ok(None),
            other => panic!("{other:?}"),
        };
        let may = |request: &ControlRequest| allowed(&here, "r", &need(request), volume_of).is_ok();
        let rename = |from: &str, to: &str| -> ControlRequest {
            let ControlRequest::Rename(rename) = sample(0x0213) else { panic!("a rename") };
            Rename { from: NamePlace::of(from, "a"), to: NamePlace::of(to, "b"), ..rename }.into()
        };
        assert!(may(&rename("seven", "seven")));
        assert!(!may(&rename("seven", "eight")) && !may(&rename("eight", "seven")));
        let ControlRequest::CreateUnnamed(create) = sample(0x0220) else { panic!("a create") };
        let create = |meant_for| -> ControlRequest { CreateUnnamed { meant_for, ..create.clone() }.into() };
        assert!(may(&create(None)) && !may(&create(Some(NamePlace::of("eight", "f")))));
        // Of what is gone nothing is held.
        let held = |file| HeldLease { file: FileId(file), lease: Lease(1), holder: HolderId(1) };
        assert!(may(&Renew { leases: vec![held(1), held(2)] }.into()));
    }

    #[test]
    fn rows_of_other_volumes_are_left_out() {
        let row = |volume, name: &str| VolumeRow {
            volume: VolumeId(volume),
            name: name.to_owned(),
            shape: ShapeSpec { scheme: 0, k: 0, m: 0, unit_bytes: 0 },
            quota_bytes: 0,
            files: 0,
            file_bytes: 0,
            created_ms: 0,
            past_files: 0,
            past_bytes: 0,
            protection: Protection::Integrity,
            key: None,
        };
        let methods = [7, 8].map(|volume| MethodsRow { volume: VolumeId(volume), methods: Methods::Builtin });
        let list = VolumeListReply {
            volumes: vec![row(7, "a"), row(8, "ab")],
            methods: braid_wire::codec::Added(methods.to_vec()),
        };
        let urls = ["braid://a".to_owned()];
        let ControlReply::Volumes(left) = shown(&[VolumeId(7)], &urls, list.into()) else { panic!("a list") };
        assert_eq!(left.volumes.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["a"]);
        assert_eq!((left.methods.0.len(), left.methods_of(VolumeId(7))), (1, Methods::Builtin));
        let quota = |place: &str| QuotaRow {
            place: place.to_owned(),
            user: None,
            limit_bytes: 1,
            limit_files: 0,
            bytes: 0,
            files: 0,
        };
        let quotas = ["braid://a", "braid://a/d", "braid://ab", "braid://ab/a"].map(quota).to_vec();
        let quotas = QuotaListReply { quotas };
        let ControlReply::Quotas(left) = shown(&[VolumeId(7)], &urls, quotas.clone().into()) else {
            panic!("a list")
        };
        assert_eq!(
            left.quotas.iter().map(|row| row.place.as_str()).collect::<Vec<_>>(),
            ["braid://a", "braid://a/d"]
        );
        let urls = ["braid://a/d".to_owned()];
        let ControlReply::Quotas(left) = shown(&[VolumeId(7)], &urls, quotas.into()) else {
            panic!("a list")
        };
        assert_eq!(left.quotas.iter().map(|row| row.place.as_str()).collect::<Vec<_>>(), ["braid://a/d"]);
    }
}
