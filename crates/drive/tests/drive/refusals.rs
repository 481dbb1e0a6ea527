//! Capabilities that are forged, expired, replayed, stale or for something else: each is refused with its own
//! reason and moves no byte.

use crate::support::manager::Manager;
use crate::support::requests::*;
use crate::support::{Drive, reason};
use braid_layout::{DriveId, Generation, ObjectId, PartitionId, Version, version::Lease};
use braid_transport::{Limits, Receiver, Sender, Stream, challenge};
use braid_wire::capability::{Authority, Protection};
use braid_wire::control::Grant;
use braid_wire::data::{
    Address, DriveAttributes, Expect, Fence, GetAttributes, List, PartitionSet, Read, StripeWrite,
};
use braid_wire::data::{DriveReply, DriveRequest, Hello, Remove, ReplyHead};
use braid_wire::{Capability, Reason, Rights, Wire, seal};

/// A connection on which a test builds its own frames.
struct Raw {
    sender: Sender,
    receiver: Receiver,
    hello: Hello,
    asker: seal::Asker,
    request: u64,
}

impl Raw {
    async fn connect(drive: &Drive) -> Raw {
        let stream = Stream::connect(&drive.address.to_string(), &Limits::default()).await.unwrap();
        let (sender, mut receiver) = stream.into_halves();
        let (_, body) = receiver.frame().await.unwrap().unwrap();
        let hello = Hello::from_bytes(&body).unwrap();
        let asker = seal::Asker::new(&hello, challenge());
        Raw { sender, receiver, hello, asker, request: 0 }
    }

    /// A request's body, as a correct client makes it.
    fn seal(&mut self, grant: &Grant, request: &DriveRequest, payload: &[u8]) -> Vec<u8> {
        self.request += 1;
        let mut body = Vec::new();
        let payload_bytes = u32::try_from(payload.len()).unwrap();
        self.asker.seal(grant, self.request, request, payload_bytes, &mut body);
        body
    }

    /// Sends a body unchanged and receives the answer: its head, the reply, and the length of its payload.
    async fn exchange(&mut self, kind: u16, body: &[u8], payload: &[u8]) -> (ReplyHead, DriveReply, u32) {
        self.sender.send(kind, self.request, body, &[payload]).await.unwrap();
        let (header, body) = self.receiver.frame().await.unwrap().unwrap();
        assert_eq!(header.request, self.request);
        let mut arguments = body.as_slice();
        let head = ReplyHead::take(&mut arguments).unwrap();
        (head, DriveReply::from_body(header.kind, arguments).unwrap(), header.payload_bytes)
    }

    async fn refused(&mut self, kind: u16, body: &[u8], payload: &[u8]) -> Reason {
        match self.exchange(kind, body, payload).await {
            (_, DriveReply::Refused(refusal), 0) => refusal.reason,
            other => panic!("not refused: {other:?}"),
        }
    }
}

async fn figures(drive: &Drive) -> DriveAttributes {
    let mut session = drive.session().await;
    let stat = session.call(&drive.grant(drive_level()), &drive_attributes(), &[]).await.unwrap().0;
    let DriveReply::DriveAttributes(stat) = stat else { panic!("{stat:?}") };
    stat
}

/// Runs `attack` against a drive with one written unit, and checks that the unit is unchanged.
async fn unmoved(attack: impl AsyncFnOnce(&Drive)) {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let payload = bytes(9, UNIT);
    drive.write(0, &payload, 1).await;
    let before = figures(&drive).await;
    attack(&drive).await;
    let after = figures(&drive).await;
    assert!(after.refused > before.refused);
    let still = |stat: &DriveAttributes| {
        (stat.read_bytes, stat.written_bytes, stat.live_bytes, stat.objects, stat.partitions)
    };
    assert_eq!(still(&after), still(&before));
    let (reply, read) = drive.read(0, 0, UNIT).await;
    assert_eq!((reply.version, read), (stamp(1), payload));
    drive.stop().await;
}

#[tokio::test]
async fn a_capability_with_one_flipped_bit_is_refused_whichever_bit_it_is() {
    unmoved(async |drive| {
        let mut raw = Raw::connect(drive).await;
        let grant = drive.grant(object_level());
        let payload = bytes(1, 4096);
        let requests = [read(0, 0, 4096), write(0, 0, &payload, 2), Remove { at: AT, term: 1 }.into()];
        for bit in 0..8 * Authority::BYTES_MIN {
            if bit % 64 == 0 {
                // A peer that has proved nothing may send some hundreds of frames.
                raw = Raw::connect(drive).await;
            }
            for request in &requests {
                let payload = if request.name() == "StripeWrite" { payload.as_slice() } else { &[] };
                let mut body = raw.seal(&grant, request, payload);
                body[bit / 8] ^= 1 << (bit % 8);
                let reason = raw.refused(request.kind(), &body, payload).await;
                assert!(matches!(reason, Reason::Forged | Reason::Malformed), "bit {bit}: {reason:?}");
            }
        }
        // The connection is still open, and good requests work. Unit 1 was never written: no byte moves.
        let body = raw.seal(&grant, &read(1, 0, 10), &[]);
        assert!(matches!(raw.exchange(0x0102, &body, &[]).await, (_, DriveReply::Read(_), 0)));
    })
    .await;
}

#[tokio::test]
async fn arguments_with_one_flipped_bit_are_refused() {
    unmoved(async |drive| {
        let mut raw = Raw::connect(drive).await;
        let grant = drive.grant(object_level());
        let payload = bytes(1, 100);
        let request = write(0, 0, &payload, 2);
        let length = raw.seal(&grant, &request, &payload).len();
        for bit in 8 * Authority::BYTES_MIN..8 * length {
            if bit % 256 == 0 {
                raw = Raw::connect(drive).await;
            }
            let mut body = raw.seal(&grant, &request, &payload);
            body[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(raw.refused(request.kind(), &body, &payload).await, Reason::Forged, "bit {bit}");
        }
        // Another kind, another request number, another payload length: the MAC covers these too.
        let body = raw.seal(&grant, &request, &payload);
        assert_eq!(raw.refused(0x0104, &body, &payload).await, Reason::Forged);
        assert_eq!(raw.refused(request.kind(), &body, &payload[1..]).await, Reason::Forged);
        raw.request += 1;
        assert_eq!(raw.refused(request.kind(), &body, &payload).await, Reason::Forged);
        // Truncated, and with extra bytes at the end.
        for cut in [0, 1, Authority::BYTES_MIN - 1, Authority::BYTES_MIN, length - 1] {
            let reason = raw.refused(request.kind(), &body[..cut], &payload).await;
            assert!(matches!(reason, Reason::Forged | Reason::Malformed), "{cut}: {reason:?}");
        }
        assert_eq!(raw.refused(request.kind(), &[body, vec![0]].concat(), &payload).await, Reason::Forged);
    })
    .await;
}

#[tokio::test]
async fn a_peer_that_proves_nothing_is_dropped_after_so_many_frames() {
    unmoved(async |drive| {
        let mut raw = Raw::connect(drive).await;
        let grant = drive.grant(object_level());
        let request = read(0, 0, 10);
        let mut answered = 0;
        let dropped = loop {
            let mut body = raw.seal(&grant, &request, &[]);
            *body.last_mut().unwrap() ^= 1;
            if raw.sender.send(request.kind(), raw.request, &body, &[]).await.is_err() {
                break true;
            }
            match raw.receiver.frame().await {
                Ok(Some(_)) => answered += 1,
                _ => break true,
            }
            if answered > 2000 {
                break false;
            }
        };
        assert!(dropped && answered > 300, "{answered} were answered");
        // One that has proved a capability may send more.
        let mut raw = Raw::connect(drive).await;
        let body = raw.seal(&grant, &read(1, 0, 10), &[]);
        raw.exchange(0x0102, &body, &[]).await;
        for _ in 0..1000 {
            let mut body = raw.seal(&grant, &request, &[]);
            *body.last_mut().unwrap() ^= 1;
            assert_eq!(raw.refused(request.kind(), &body, &[]).await, Reason::Forged);
        }
    })
    .await;
}

#[tokio::test]
async fn a_replayed_request_is_refused_on_its_connection_and_on_another() {
    unmoved(async |drive| {
        let mut raw = Raw::connect(drive).await;
        let grant = drive.grant(object_level());
        let payload = bytes(1, 100);
        // Stamp 1 is already stored: the first request is accepted, and writes nothing.
        let request = write(0, 0, &payload, 1);
        let body = raw.seal(&grant, &request, &payload);
        let first = raw.exchange(request.kind(), &body, &payload).await.1;
        assert!(matches!(first, DriveReply::Written(ref written) if written.already), "{first:?}");
        assert_eq!(raw.refused(request.kind(), &body, &payload).await, Reason::Replayed);
        assert_eq!(raw.refused(request.kind(), &body, &payload).await, Reason::Replayed);
        let mut other = Raw::connect(drive).await;
        other.request = raw.request;
        assert_eq!(other.refused(request.kind(), &body, &payload).await, Reason::Forged);
        assert_ne!(other.hello.challenge, raw.hello.challenge);
        // A lower number that was never used is refused too.
        let skipped = raw.seal(&grant, &request, &payload);
        let number = raw.request;
        let later = raw.seal(&grant, &request, &payload);
        assert!(matches!(raw.exchange(request.kind(), &later, &payload).await.1, DriveReply::Written(_)));
        raw.request = number;
        assert_eq!(raw.refused(request.kind(), &skipped, &payload).await, Reason::Replayed);
    })
    .await;
}

#[tokio::test]
async fn each_misuse_has_its_refusal() {
    unmoved(async |drive| {
        let mut session = drive.session().await;
        let all = object_level();
        let of = |change: &dyn Fn(&mut Capability)| {
            let mut capability = object_level();
            change(&mut capability);
            drive.grant(capability)
        };
        let elsewhere = Address { partition: PARTITION, object: ObjectId(78) };
        let other_drive = drive.grant_as_is(Capability { drive: DriveId(5), ..all.clone() });
        let at_other: DriveRequest = Read { at: elsewhere, ..read_fields() }.into();
        let partition_of =
            |partition| PartitionSet { partition, ..partition_set(Expect::Absent, 1) }.into();
        #[rustfmt::skip]
        let table: Vec<(&str, Grant, DriveRequest, Reason)> = vec![
            ("another drive's", other_drive, read(0, 0, 10), Reason::Forged),
            ("another object's", drive.grant(all.clone()), at_other, Reason::Scope),
            ("no such partition", of(&|c| c.partition = PartitionId(8)), read(0, 0, 10), Reason::NoPartition),
            ("no right to read", of(&|c| c.rights = Rights::WRITE), read(0, 0, 10), Reason::Rights),
            ("past the unit", drive.grant(all.clone()), read(0, 0, UNIT + 1), Reason::Range),
            ("past 2^64", drive.grant(all.clone()), read(u64::MAX, 0, UNIT), Reason::Range),
            ("an empty range", drive.grant(all.clone()), read(0, 10, 10), Reason::Malformed),
            ("expired", of(&|c| c.expires_ms = 5_000_000), read(0, 0, 10), Reason::Expired),
            ("a key to come", of(&|c| c.key_epoch = 2), read(0, 0, 10), Reason::StaleKey),
            ("an old generation", of(&|c| c.g = Generation(1)), read(0, 0, 10), Reason::StaleGeneration),
            ("a generation to come", of(&|c| c.g = Generation(3)), read(0, 0, 10), Reason::StaleGeneration),
            ("a tag", of(&|c| c.protection = Protection::IntegrityData), read(0, 0, 10), Reason::Unsupported),
            ("a drive's", of(&|c| c.holder = DriveId(7)), read(0, 0, 10), Reason::Scope),
            ("an object's for a list", drive.grant(all.clone()), list(), Reason::Scope),
            ("an object's for figures", drive.grant(all.clone()), drive_attributes(), Reason::Scope),
            ("a partition's for figures", drive.grant(partition_level()), partitions(), Reason::Scope),
            ("partition 0", drive.grant(drive_level()), partition_of(PartitionId(0)), Reason::Malformed),
            ("an old fence", of(&|c| c.g = Generation(1)), fence(), Reason::StaleGeneration),
            ("a client's fence", of(&|c| c.rights = Rights(0x7f)), fence(), Reason::Rights),
            ("an absent object", of(&|c| c.object = ObjectId(78)), attributes_of(elsewhere), Reason::NoObject),
        ];
        for (what, grant, request, expected) in table {
            let got = reason(session.call(&grant, &request, &[]).await);
            assert_eq!(got, expected, "{what}");
        }
    })
    .await;
}

#[tokio::test]
async fn writes_have_refusals_of_their_own() {
    unmoved(async |drive| {
        let mut session = drive.session().await;
        let payload = bytes(1, 100);
        let grant = drive.grant(object_level());
        let of = |change: &dyn Fn(&mut StripeWrite)| -> DriveRequest {
            let mut write = write_of(0, 0, &payload, 2);
            change(&mut write);
            write.into()
        };
        let foreign = Version { lease: Lease(5), ..stamp(2) };
        let future = Version { g: Generation(3), ..stamp(2) };
        let reader = drive.grant(Capability { rights: Rights::READ, ..object_level() });
        let table: Vec<(&str, &Grant, DriveRequest, Reason)> = vec![
            ("a foreign lease's stamp", &grant, of(&|w| w.stamp = foreign), Reason::Scope),
            ("a stamp to come", &grant, of(&|w| w.stamp = future), Reason::Scope),
            ("stamp 0", &grant, of(&|w| w.stamp.n = 0), Reason::Malformed),
            ("a reader", &reader, of(&|_| ()), Reason::Rights),
            ("a wrong checksum", &grant, of(&|w| w.crcs[0] ^= 1), Reason::PayloadChecksum),
            ("checksums missing", &grant, of(&|w| w.crcs.clear()), Reason::Malformed),
            ("another length", &grant, of(&|w| w.to = 99), Reason::Malformed),
            ("a hole with bytes", &grant, of(&|w| w.hole = true), Reason::Malformed),
            ("install where nothing joins", &grant, of(&|w| w.install = true), Reason::Scope),
        ];
        for (what, grant, request, expected) in table {
            assert_eq!(reason(session.call(grant, &request, &[&payload]).await), expected, "{what}");
        }
        let mut damaged = payload.clone();
        damaged[57] ^= 1;
        assert_eq!(reason(session.call(&grant, &of(&|_| ()), &[&damaged]).await), Reason::PayloadChecksum);
        assert!(session.call(&grant, &read(1, 0, 10), &[]).await.is_ok());
    })
    .await;
}

#[tokio::test]
async fn a_capability_expires_by_the_managers_time() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    manager.state().lease_ms = 100_000_000;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let mut session = drive.session().await;
    let grant = drive.grant(object_level());
    // The manager's clock stands still; the drive continues from the last time it heard.
    manager.state().answers = false;
    drive.advance_ms(EXPIRES_MS - 5_000_000 - 1);
    assert!(session.call(&grant, &read(0, 0, 10), &[]).await.is_ok());
    drive.advance_ms(1);
    assert_eq!(reason(session.call(&grant, &read(0, 0, 10), &[]).await), Reason::Expired);
    let later = drive.grant(Capability { expires_ms: EXPIRES_MS + 1, ..object_level() });
    assert!(session.call(&later, &read(0, 0, 10), &[]).await.is_ok());
    drive.stop().await;
}

#[tokio::test]
async fn a_manager_of_an_older_term_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    manager.state().term = 7;
    let drive = Drive::start(dir.path(), &manager).await;
    let mut session = drive.session().await;
    let of_term = |term| PartitionSet { term, ..partition_set(Expect::Absent, 1) }.into();
    let all = drive.grant(drive_level());
    assert_eq!(reason(session.call(&all, &of_term(6), &[]).await), Reason::NotLeading);
    assert!(session.call(&all, &of_term(7), &[]).await.is_ok());
    assert!(session.call(&all, &of_term(9), &[]).await.is_ok());
    assert_eq!(reason(session.call(&all, &of_term(8), &[]).await), Reason::NotLeading);
    drive.stop().await;
}

fn read_fields() -> Read {
    let DriveRequest::Read(read) = read(0, 0, 10) else { panic!() };
    read
}

fn list() -> DriveRequest {
    List { partition: PARTITION, after: 0, limit: 1 }.into()
}

fn partitions() -> DriveRequest {
    List { partition: PartitionId(0), after: 0, limit: 1 }.into()
}

fn drive_attributes() -> DriveRequest {
    GetAttributes { at: Address::DRIVE }.into()
}

fn fence() -> DriveRequest {
    Fence { at: AT, term: 1, units_from: 0, drives: Vec::new(), reserve_bytes: 0 }.into()
}

fn attributes_of(at: Address) -> DriveRequest {
    GetAttributes { at }.into()
}
