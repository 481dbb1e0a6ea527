//! Errors of several rails, drives without room for datagrams, and the pace of what is promised.

use braid_layout::version::Lease;
use braid_layout::{ClientId, ColumnMask, FileId, Generation, ObjectId, PartitionId, ReservationId};
use braid_wire::capability::{LeaseKind, Promise, Rights};
use braid_wire::data::HELLO;
use braid_wire::frame::WIRE_VERSION;
use braid_wire::{Key, Reason, Refusal};
use tokio::time::sleep;

use super::ways::{Call, Transport, Ways};
use super::*;
use crate::datagrams::{DatagramListener, DatagramSocket, session_config};
use crate::error::Mismatch;
use crate::stream::Listener;

/// A capability to read an object of drive 1.
fn capability() -> Capability {
    Capability {
        drive: DriveId(1),
        partition: PartitionId(1),
        object: ObjectId(2),
        rights: Rights::READ,
        expires_ms: u64::MAX,
        promise: Promise::NONE,
        client: ClientId::NONE,
        key_epoch: 1,
        g: Generation(1),
        set: ColumnMask::all(1),
        joining: ColumnMask::EMPTY,
        lease: Lease(0),
        kind: LeaseKind::Exclusive,
        first_stripe: 0,
        end_stripe: u64::MAX,
        reach: u64::MAX,
        protection: Protection::Integrity,
        holder: DriveId(0),
        map: [0; 16],
        file: FileId(2),
    }
}

/// The error of a call at one of several addresses, after as many milliseconds as the address says.
fn failing(address: &str) -> Connecting<'_> {
    let (after_ms, how) = address.split_once(':').expect("a time and a kind");
    Box::pin(async move {
        sleep(Duration::from_millis(after_ms.parse().expect("a number"))).await;
        let address = address.to_owned();
        Err(match how {
            "1" => TransportError::Refused { address },
            "2" => {
                let mismatch = Mismatch::Drive { expected: DriveId(1), found: DriveId(2) };
                TransportError::WrongPeer { address, mismatch }
            }
            _ => TransportError::Refusal(Refusal::new(Reason::StaleKey, "ask the manager")),
        })
    })
}

/// A refusal asks for a new capability: it is not to be taken for a drive that is away, nor for one that
/// is elsewhere.
#[tokio::test(start_paused = true)]
async fn of_the_errors_of_all_addresses_that_one_counts_which_tells_most() {
    for (addresses, kind) in [
        ("0:1,900:3", 3),
        ("900:1,0:3", 3),
        ("0:2,900:3", 3),
        ("0:3,900:2", 3),
        ("0:1,900:2", 2),
        ("0:2,900:1", 2),
        ("0:1,900:1", 1),
    ] {
        let all = Addresses::from(addresses);
        let error = DriveSession::first(&all, DriveId(1), failing).await.expect_err("none answers");
        assert_eq!(weight(&error) + 1, kind, "{addresses}: {error}");
    }
}

#[test]
fn a_promise_paces_until_it_ends() {
    let promise = Promise {
        reservation: ReservationId(1),
        direction: DataDirection::Read,
        rate: 1000,
        burst: 0,
        operation_bytes: 1,
        until_ms: 50,
    };
    let mut capability = Capability { promise, ..capability() };
    for (now_ms, rate) in [(None, Some(1250)), (Some(49), Some(1250)), (Some(50), None), (Some(51), None)] {
        assert_eq!(paced(&capability, DataDirection::Read, now_ms), rate, "{now_ms:?}");
        assert_eq!(paced(&capability, DataDirection::Write, now_ms), None);
    }
    capability.promise = Promise::NONE;
    assert_eq!(paced(&capability, DataDirection::Read, None), None);
}

/// A drive may have no room for connections by datagrams, and for others.
#[tokio::test]
async fn where_there_is_no_room_for_datagrams_auto_goes_over_tcp() {
    let listener = Listener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_address();
    let config = Config { connections: 0, ..session_config("cubic".parse().expect("a policy")) };
    let private = Key::new([1; 32]).private_part(&capability());
    let grant = Grant { private, capability: capability() };
    let secret = capability_secret(&grant.private);
    let socket = DatagramSocket::bind_shared(address, 1).expect("it is free for UDP").remove(0);
    let _full = DatagramListener::start(socket, config, Arc::new(move |_| Some(secret.clone())));
    let hello = Hello {
        role: PeerRole::Drive,
        version_min: WIRE_VERSION,
        version_max: WIRE_VERSION,
        cluster: ClusterId(3),
        drive: DriveId(1),
        features: 0,
        challenge: hello::challenge(),
    };
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut sender, receiver) = listener.accept().await.expect("a connection").into_halves();
            let _ = sender.send(HELLO, 0, &hello.to_bytes(), &[]).await;
            open.push((sender, receiver));
        }
    });
    let limits = Limits { connect: Duration::from_secs(60), ..Limits::default() };
    let call = Call { expect: DriveId(1), home: ClusterId(3).into(), limits: &limits, grant: Some(&grant) };
    let address = address.to_string();
    let session = Ways::new(Transport::AUTO).connect(&address, call).await.expect("a session");
    assert_eq!(session.way(), Way::Tcp);
    match Ways::new(Transport::UDP).connect(&address, call).await {
        Err(TransportError::Refusal(refusal)) => assert_eq!(refusal.reason, Reason::Busy),
        other => panic!("{other:?}"),
    }
}
