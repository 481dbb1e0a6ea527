//! Unit writes through their data drive, with real sisters (PROTOCOL R2 to R5, R7).

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::manager::Manager;
use crate::support::requests::*;
use crate::support::{Drive, bare, reason, within};
use braid_layout::{
    ClientId, Code, Column, ColumnMask, DriveId, Generation, OperationNumber, Role, Scheme, Shape, Stripe,
    Version,
};
use braid_testing::eventually;
use braid_transport::{DriveSession, TransportError};
use braid_wire::checksum::block_crcs;
use braid_wire::control::Grant;
use braid_wire::data::{
    ColumnMap, Create, Delta, DriveReply, DriveRequest, Fence, StripeWrite, UnitWrite, VersionsReply, Written,
};
use braid_wire::{Capability, Reason};

/// The drives of a file, each with its column's object, and their manager.
struct Stripes {
    manager: Manager,
    dirs: Vec<tempfile::TempDir>,
    drives: Vec<Option<Drive>>,
    shape: Shape,
}

impl Stripes {
    async fn new(shape: Shape) -> Stripes {
        let manager = Manager::start().await;
        let mut dirs = Vec::new();
        let mut drives = Vec::new();
        for _ in 0..shape.width() {
            let dir = tempfile::tempdir().unwrap();
            drives.push(Some(Drive::start(dir.path(), &manager).await));
            dirs.push(dir);
        }
        let stripes = Stripes { manager, dirs, drives, shape };
        for column in 0..shape.width() {
            let drive = stripes.drive(column);
            let mut session = drive.session().await;
            session.call(&drive.grant(drive_level()), &partition_create(), &[]).await.unwrap();
            let create = stripes.create(column);
            session.call(&stripes.grant(column, G, stripes.all()), &create, &[]).await.unwrap();
        }
        stripes
    }

    async fn raid5() -> Stripes {
        Stripes::new(Shape::new(Scheme::Raid5, 2, 1, UNIT).unwrap()).await
    }

    fn all(&self) -> ColumnMask {
        ColumnMask::all(self.shape.width())
    }

    fn drive(&self, column: u8) -> &Drive {
        self.drives[usize::from(column)].as_ref().expect("it runs")
    }

    /// The column of a role in stripe 0.
    fn column(&self, role: Role) -> u8 {
        self.shape.column(Stripe(0), role).0
    }

    async fn stop(&mut self, column: u8) {
        self.drives[usize::from(column)].take().expect("it runs").stop().await;
    }

    async fn start(&mut self, column: u8) {
        let dir = self.dirs[usize::from(column)].path();
        self.drives[usize::from(column)] = Some(Drive::start(dir, &self.manager).await);
    }

    fn create(&self, column: u8) -> DriveRequest {
        let DriveRequest::Create(Create { at, mut attributes }) = create() else { panic!() };
        let drives: Vec<DriveId> = self.drives.iter().flatten().map(|drive| drive.id).collect();
        attributes.map = ColumnMap {
            scheme: self.shape.scheme() as u8,
            k: self.shape.k(),
            m: self.shape.m(),
            column: Column(column),
            objects: vec![OBJECT; drives.len()],
            drives,
            ..map()
        };
        attributes.set = self.all();
        Create { at, attributes }.into()
    }

    fn grant(&self, column: u8, g: Generation, set: ColumnMask) -> Grant {
        self.drive(column).grant(Capability { g, set, ..object_level() })
    }

    async fn session(&self, column: u8) -> DriveSession {
        self.drive(column).session().await
    }

    /// One request to a column under the first generation.
    async fn call(
        &self,
        column: u8,
        request: DriveRequest,
        payload: &[u8],
    ) -> Result<DriveReply, TransportError> {
        let mut session = self.session(column).await;
        let payload: &[&[u8]] = if payload.is_empty() { &[] } else { &[payload] };
        let (reply, _) = session.call(&self.grant(column, G, self.all()), &request, payload).await?;
        Ok(bare(reply))
    }

    async fn fence(&self, column: u8, g: Generation, set: ColumnMask) -> Result<DriveReply, TransportError> {
        let fence = Fence { at: AT, term: 1, units_from: 0, drives: Vec::new(), reserve_bytes: 0 };
        let mut session = self.session(column).await;
        Ok(session.call(&self.grant(column, g, set), &fence.into(), &[]).await?.0)
    }

    /// A unit's bytes at a column, as a reader with the present generation sees them.
    async fn bytes(&self, column: u8, g: Generation, set: ColumnMask, to: u32) -> Vec<u8> {
        let mut session = self.session(column).await;
        let (reply, bytes) = session.call(&self.grant(column, g, set), &read(0, 0, to), &[]).await.unwrap();
        let DriveReply::Read(reply) = reply else { panic!("{reply:?}") };
        let mut out = Vec::new();
        let mut rest = bytes.as_slice();
        for extent in reply.extents {
            let length = usize::try_from(extent.to - extent.from).unwrap();
            if extent.hole {
                out.resize(out.len() + length, 0);
            } else {
                out.extend_from_slice(&rest[..length]);
                rest = &rest[length..];
            }
        }
        out
    }

    /// Waits until unit 0 of a column owes nothing and has a settled version.
    async fn until_settled(&self, column: u8) {
        eventually("nothing is owed", || async {
            let DriveReply::Versions(VersionsReply { units, .. }) =
                self.call(column, versions(&[0]), &[]).await.unwrap()
            else {
                panic!()
            };
            units[0].owed.is_empty() && !units[0].settled.is_zero()
        })
        .await;
    }
}

fn unit_write(from: u32, payload: &[u8], operation: u64) -> DriveRequest {
    UnitWrite {
        at: AT,
        unit: 0,
        from,
        to: from + u32::try_from(payload.len()).unwrap(),
        hole: false,
        client: ClientId(5),
        operation: OperationNumber(operation),
        stamp: None,
        settled_below: Version::ZERO,
        crcs: block_crcs(from, payload),
        watermark: OperationNumber::NONE,
        timed: false,
    }
    .into()
}

/// A unit of `bytes` from `from` on, else zeros.
fn unit(to: u32, parts: &[(u32, &[u8])]) -> Vec<u8> {
    let mut unit = vec![0; usize::try_from(to).unwrap()];
    for (from, bytes) in parts {
        let from = usize::try_from(*from).unwrap();
        unit[from..from + bytes.len()].copy_from_slice(bytes);
    }
    unit
}

#[tokio::test]
async fn a_unit_write_reaches_its_parity_before_it_is_answered() {
    let stripes = Stripes::raid5().await;
    let one = bytes(1, 5000);
    let two = bytes(9, 3000);
    let mut session = stripes.session(0).await;
    let grant = stripes.grant(0, G, stripes.all());
    let (written, _) = session.call(&grant, &unit_write(100, &one, 1), &[&one]).await.unwrap();
    let DriveReply::Written(told) = &written else { panic!("{written:?}") };
    // The answer says how far the logs of both are durable.
    let drives: BTreeSet<DriveId> = told.receipts.iter().map(|receipt| receipt.drive).collect();
    assert!(drives.len() == 2 && told.receipts.iter().all(|receipt| receipt.log > 0), "{told:?}");
    assert_eq!(bare(written), Written::new(stamp(1), false).into());
    stripes.call(1, unit_write(4000, &two, 2), &two).await.unwrap();
    // A write over a part of the existing data.
    stripes.call(0, unit_write(3000, &two, 3), &two).await.unwrap();
    let first = unit(8000, &[(100, &one), (3000, &two)]);
    let second = unit(8000, &[(4000, &two)]);
    assert_eq!(stripes.bytes(0, G, stripes.all(), 8000).await, first);
    assert_eq!(stripes.bytes(1, G, stripes.all(), 8000).await, second);
    let parity: Vec<u8> = first.iter().zip(&second).map(|(a, b)| a ^ b).collect();
    let column = stripes.column(Role::Parity(0));
    assert_eq!(stripes.bytes(column, G, stripes.all(), 8000).await, parity);
    // The same operation again is answered and not done again.
    let again = stripes.call(0, unit_write(3000, &two, 3), &two).await.unwrap();
    assert_eq!(again, Written::new(stamp(2), true).into());
}

#[tokio::test]
async fn every_parity_unit_gets_its_own_multiple() {
    let shape = Shape::new(Scheme::Rs, 2, 3, UNIT).unwrap();
    let stripes = Stripes::new(shape).await;
    let one = bytes(1, 5000);
    let two = bytes(7, 6000);
    stripes.call(stripes.column(Role::Data(0)), unit_write(0, &one, 1), &one).await.unwrap();
    stripes.call(stripes.column(Role::Data(1)), unit_write(1000, &two, 2), &two).await.unwrap();
    let data = [unit(7000, &[(0, &one)]), unit(7000, &[(1000, &two)])];
    let mut parity = vec![vec![0; 7000]; 3];
    Code::new(shape).encode(
        &data.iter().map(Vec::as_slice).collect::<Vec<_>>(),
        &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>(),
    );
    for (number, expected) in (0..).zip(&parity) {
        let column = stripes.column(Role::Parity(number));
        assert_eq!(&stripes.bytes(column, G, stripes.all(), 7000).await, expected, "parity {number}");
    }
}

#[tokio::test]
async fn a_write_that_waits_for_its_parity_holds_up_no_read() {
    let mut stripes = Stripes::raid5().await;
    let payload = bytes(1, 4096);
    stripes.call(0, unit_write(0, &payload, 1), &payload).await.unwrap();
    let parity = stripes.column(Role::Parity(0));
    let id = stripes.drive(parity).id;
    stripes.stop(parity).await;
    // A listener in the sister's place accepts connections and says nothing.
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    stripes.manager.state().addresses.insert(id, mute.local_addr().unwrap().to_string().into());
    let grant = stripes.grant(0, G, stripes.all());
    let mut session = stripes.session(0).await;
    let (asker, answers) = session.halves();
    let newer = bytes(2, 4096);
    asker.ask(1, &grant, &unit_write(0, &newer, 2), &[&newer]).await.unwrap();
    for tag in 2..10 {
        asker.ask(tag, &grant, &read(0, 0, 4096), &[]).await.unwrap();
        let answer = within(answers.next()).await.unwrap();
        assert_eq!(answer.tag, tag, "the read does not wait for the write");
        let mut content = Vec::new();
        answers.payload_into(&mut content, answer.payload_bytes).await.unwrap();
        assert_eq!(content, payload, "what is owed is not shown");
    }
}

#[tokio::test]
async fn a_writer_is_told_that_parity_is_away_and_its_repeat_ends_when_parity_is_back() {
    let mut stripes = Stripes::raid5().await;
    let parity = stripes.column(Role::Parity(0));
    let payload = bytes(2, 4096);
    stripes.stop(parity).await;
    let first = within(stripes.call(0, unit_write(0, &payload, 2), &payload)).await.unwrap();
    assert_eq!(first, owed_to(parity));
    stripes.start(parity).await;
    let written = within(async {
        loop {
            match stripes.call(0, unit_write(0, &payload, 2), &payload).await.unwrap() {
                owed if owed == owed_to(parity) => {}
                written => return written,
            }
        }
    })
    .await;
    assert!(written == settled(false) || written == settled(true), "it is done once: {written:?}");
    assert_eq!(stripes.bytes(parity, G, stripes.all(), 4096).await, payload);
}

#[tokio::test]
async fn what_was_owed_at_a_restart_is_sent_again() {
    let mut stripes = Stripes::raid5().await;
    let payload = bytes(1, 4096);
    let parity = stripes.column(Role::Parity(0));
    stripes.stop(parity).await;
    let owed = stripes.call(0, unit_write(0, &payload, 1), &payload).await.unwrap();
    assert_eq!(owed, owed_to(parity));
    stripes.stop(0).await;
    stripes.start(0).await;
    // The write may have been acknowledged, so nobody is shown the unit before that is known (R4).
    assert_eq!(reason_of(stripes.call(0, read(0, 0, 4096), &[]).await), Reason::Busy);
    stripes.start(parity).await;
    stripes.until_settled(0).await;
    assert_eq!(stripes.bytes(0, G, stripes.all(), 4096).await, payload);
    assert_eq!(stripes.bytes(parity, G, stripes.all(), 4096).await, payload);
}

#[tokio::test]
async fn a_fence_waits_for_what_is_owed_to_those_that_stay_and_for_nobody_else() {
    let mut stripes = Stripes::raid5().await;
    let payload = bytes(1, 4096);
    let parity = stripes.column(Role::Parity(0));
    stripes.stop(parity).await;
    let owed = stripes.call(0, unit_write(0, &payload, 1), &payload).await.unwrap();
    assert_eq!(owed, owed_to(parity));
    // The parity column stays in the set: the fence is stored, and is not drained.
    let stays = within(stripes.fence(0, Generation(3), stripes.all())).await;
    let DriveReply::Fence(stays) = stays.unwrap() else { panic!() };
    assert_eq!(stays.owed_to, ColumnMask::EMPTY.with(Column(parity)));
    // The parity column is out: nothing is owed to it any more, and the writer gets its answer.
    let set = stripes.all().without(Column(parity));
    let DriveReply::Fence(fence) = within(stripes.fence(0, Generation(4), set)).await.unwrap() else {
        panic!()
    };
    assert!(fence.unsettled.is_empty() && !fence.more && fence.owed_to.is_empty(), "{fence:?}");
    let mut session = stripes.session(0).await;
    let grant = stripes.grant(0, Generation(4), set);
    let (again, _) = session.call(&grant, &unit_write(0, &payload, 1), &[&payload]).await.unwrap();
    assert_eq!(bare(again), Written::new(stamp(1), true).into());
    assert_eq!(stripes.bytes(0, Generation(4), set, 4096).await, payload);
}

#[tokio::test]
async fn a_drive_that_is_no_sister_and_an_old_generation_are_refused() {
    let stripes = Stripes::raid5().await;
    let parity = stripes.column(Role::Parity(0));
    let payload = bytes(1, 100);
    let delta = |g, to: u64| -> DriveRequest {
        Delta {
            at: AT,
            unit: 0,
            from: 0,
            to: 100,
            column: Column(0),
            from_version: Version::ZERO,
            to_version: stamp(to),
            end: 100,
            client: ClientId(5),
            operation: OperationNumber(1),
            settled_to: Version::ZERO,
            crcs: block_crcs(0, &payload),
            g,
            watermark: OperationNumber::NONE,
        }
        .into()
    };
    let mut session = stripes.session(parity).await;
    let mut send = async |holder, request: DriveRequest| {
        let rights = braid_wire::capability::Rights::DELTA;
        let grant = stripes.drive(parity).grant(Capability { rights, holder, ..partition_level() });
        session.call(&grant, &request, &[&payload]).await
    };
    let own = stripes.drive(0).id;
    let other = stripes.drive(1).id;
    assert_eq!(reason(send(other, delta(G, 1)).await), Reason::Scope);
    assert_eq!(reason(send(DriveId(4711), delta(G, 1)).await), Reason::Scope);
    assert_eq!(reason(send(own, delta(Generation(1), 1)).await), Reason::StaleGeneration);
    // A client's capability allows no deltas, whatever its rights.
    let grant = stripes.grant(parity, G, stripes.all());
    assert_eq!(
        reason(stripes.session(parity).await.call(&grant, &delta(G, 1), &[&payload]).await),
        Reason::Scope
    );
    assert!(send(own, delta(G, 1)).await.is_ok());
    // Deltas of a column that is out now are refused too.
    let next = Generation(3);
    let set = stripes.all().without(Column(0));
    stripes.fence(parity, next, set).await.unwrap();
    assert_eq!(reason(send(own, delta(next, 1)).await), Reason::StaleGeneration);
    let g = Generation(4);
    let set = stripes.all();
    stripes.fence(parity, g, set).await.unwrap();
    assert!(send(own, delta(g, 1)).await.is_ok(), "it has it already");
    // A delta that does not start where the chain ends is not added (R5).
    assert_eq!(reason(send(own, delta(g, 2)).await), Reason::Gone);
    // Each kind of column has its requests: a data column takes no deltas, and a parity column no unit
    // writes.
    let mut session = stripes.session(parity).await;
    let grant = stripes.grant(parity, g, set);
    assert_eq!(
        reason(session.call(&grant, &unit_write(0, &payload, 9), &[&payload]).await),
        Reason::Malformed
    );
}

/// A column that goes out with a debt, and comes back as a joining one, owes nothing: whether its write
/// counts was decided without it (PROTOCOL section 7).
#[tokio::test]
async fn a_column_that_is_out_or_joining_owes_nothing() {
    let mut stripes = Stripes::raid5().await;
    let payload = bytes(1, 4096);
    let parity = stripes.column(Role::Parity(0));
    stripes.stop(parity).await;
    let owed = stripes.call(0, unit_write(0, &payload, 1), &payload).await.unwrap();
    assert_eq!(owed, owed_to(parity));
    for (g, restart) in [(3, false), (4, true)] {
        if restart {
            stripes.stop(0).await;
            stripes.start(0).await;
        }
        let out = stripes.all().without(Column(0));
        let began = std::time::Instant::now();
        let DriveReply::Fence(fence) = stripes.fence(0, Generation(g), out).await.unwrap() else { panic!() };
        assert!(fence.owed_to.is_empty() && began.elapsed() < Duration::from_secs(1), "{fence:?}");
        assert_eq!(fence.unsettled, [0], "a verdict is to take it back");
    }
}

/// The parity column moved to another drive: the fence says so, and owed versions go there.
#[tokio::test]
async fn what_is_owed_goes_to_where_the_column_is_now() {
    let mut stripes = Stripes::raid5().await;
    let payload = bytes(1, 4096);
    let parity = stripes.column(Role::Parity(0));
    let mut drives: Vec<DriveId> = stripes.drives.iter().flatten().map(|drive| drive.id).collect();
    stripes.stop(parity).await;
    let owed = stripes.call(0, unit_write(0, &payload, 1), &payload).await.unwrap();
    assert_eq!(owed, owed_to(parity));
    // An empty drive in its place.
    stripes.dirs[usize::from(parity)] = tempfile::tempdir().unwrap();
    stripes.start(parity).await;
    drives[usize::from(parity)] = stripes.drive(parity).id;
    let g = Generation(3);
    let all = stripes.all();
    let mut session = stripes.session(parity).await;
    let drive = stripes.drive(parity);
    session.call(&drive.grant(drive_level()), &partition_create(), &[]).await.unwrap();
    session.call(&stripes.grant(parity, g, all), &stripes.create(parity), &[]).await.unwrap();
    let fence = Fence { at: AT, term: 1, units_from: 0, drives, reserve_bytes: 0 };
    let mut session = stripes.session(0).await;
    let fenced = within(session.call(&stripes.grant(0, g, all), &fence.into(), &[])).await.unwrap();
    let (DriveReply::Fence(fence), _) = fenced else { panic!("{fenced:?}") };
    assert!(fence.owed_to.is_empty() && fence.unsettled.is_empty(), "{fence:?}");
    assert_eq!(stripes.bytes(parity, g, all, 4096).await, payload);
}

/// The disk came back with an object of another column, which does not pass for the column that is here now.
#[tokio::test]
async fn an_object_of_another_column_is_not_fenced_as_this_one() {
    let stripes = Stripes::raid5().await;
    let here: Vec<DriveId> = stripes.drives.iter().flatten().map(|drive| drive.id).collect();
    let mut moved = here.clone();
    moved.swap(0, 1);
    let mut session = stripes.session(0).await;
    let grant = stripes.grant(0, Generation(3), stripes.all());
    for (drives, expected) in [(moved, Some(Reason::Damaged)), (here, None)] {
        let fence = Fence { at: AT, term: 1, units_from: 0, drives, reserve_bytes: 0 };
        let fenced = within(session.call(&grant, &fence.into(), &[])).await.map(|(reply, _)| reply);
        match expected {
            Some(reason) => {
                assert_eq!(reason_of(fenced), reason);
                // The object stays in its generation, so that a removal of the former column reaches it.
                assert!(stripes.call(0, unit_write(0, &[0; 4096], 1), &[0; 4096]).await.is_ok());
            }
            None => assert!(fenced.is_ok(), "{fenced:?}"),
        }
    }
}

/// A capability for a range of stripes: a write outside the range changes nothing, whether its stripe was
/// written before or not, and a write inside is carried out.
#[tokio::test]
async fn a_capability_s_range_is_all_that_it_writes() {
    let stripes = Stripes::raid5().await;
    let payload = bytes(4, 4096);
    let mut session = stripes.session(0).await;
    for (own, other) in [(0, 1), (1, 0)] {
        let first_stripe = own;
        let end_stripe = own + 1;
        let grant = stripes.drive(0).grant(Capability { first_stripe, end_stripe, ..object_level() });
        let requests = |unit| -> [(DriveRequest, &[u8]); 3] {
            let DriveRequest::UnitWrite(by_unit) = unit_write(0, &payload, 10 * own + 1) else { panic!() };
            let whole = write_of(unit, 0, &payload, 10 * own + 2);
            let hole = write_of(unit, 0, &payload, 10 * own + 3);
            let hole = StripeWrite { hole: true, crcs: vec![], settled_below: hole.stamp, ..hole };
            [(UnitWrite { unit, ..by_unit }.into(), &payload), (whole.into(), &payload), (hole.into(), &[])]
        };
        let before = stripes.call(0, versions(&[0, 1]), &[]).await.unwrap();
        for (request, payload) in requests(other) {
            let refused = session.call(&grant, &request, &[payload]).await;
            assert_eq!(reason(refused), Reason::Range, "{request:?}");
            assert_eq!(stripes.call(0, versions(&[0, 1]), &[]).await.unwrap(), before, "{request:?}");
        }
        for (request, payload) in requests(own) {
            let before = stripes.call(0, versions(&[0, 1]), &[]).await.unwrap();
            assert!(session.call(&grant, &request, &[payload]).await.is_ok(), "{request:?}");
            assert_ne!(stripes.call(0, versions(&[0, 1]), &[]).await.unwrap(), before, "{request:?}");
        }
    }
}

/// The first unit write's answer while `column` lacks it.
fn owed_to(column: u8) -> DriveReply {
    Written { owed_to: ColumnMask::EMPTY.with(Column(column)), ..Written::new(stamp(1), false) }.into()
}

/// The first unit write's answer when the write is settled.
fn settled(already: bool) -> DriveReply {
    Written::new(stamp(1), already).into()
}

fn reason_of(result: Result<DriveReply, TransportError>) -> Reason {
    match result {
        Err(TransportError::Refusal(refusal)) => refusal.reason,
        other => panic!("not refused: {other:?}"),
    }
}
