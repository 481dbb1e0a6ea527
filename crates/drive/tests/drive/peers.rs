//! Slow, silent or misbehaving peers harm only themselves.

use std::time::Duration;

use crate::support::manager::Manager;
use crate::support::requests::*;
use crate::support::{Drive, SENDING, config, settings, within};
use braid_drive::Sending;
use braid_drive::Settings;
use braid_transport::{DriveSession, Limits, Receiver, Sender, Stream, TransportError, challenge};
use braid_wire::capability::Rights;
use braid_wire::control::Grant;
use braid_wire::data::{DriveReply, DriveRequest, Hello};
use braid_wire::frame::HEADER_BYTES;
use braid_wire::{Capability, FrameHeader, Reason, Wire, seal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A drive with limits that a test can reach.
async fn drive(dir: &std::path::Path, manager: &Manager, change: impl FnOnce(&mut Settings)) -> Drive {
    let (mut settings, clock) = settings();
    change(&mut settings);
    let drive = Drive::start_with(config(dir, manager, settings), clock, manager).await;
    drive.prepare().await;
    drive
}

fn stall(milliseconds: u64) -> Limits {
    Limits { stall: Duration::from_millis(milliseconds), ..Limits::default() }
}

/// Checks that another peer is still served.
async fn serves(session: &mut DriveSession, grant: &Grant, n: u64) {
    let payload = bytes(u8::try_from(n % 200).unwrap(), UNIT);
    let written = within(session.call(grant, &write(n, 0, &payload, n), &[&payload])).await.unwrap().0;
    assert!(matches!(written, DriveReply::Written(_)), "{written:?}");
    assert_eq!(within(session.call(grant, &read(n, 0, UNIT), &[])).await.unwrap().1, payload);
}

/// Reads of up to this many bytes are answered by the connection's reader.
const AT_ONCE: u32 = 16 << 10;

/// A client's capability: all rights but the manager's.
fn client_level() -> Capability {
    Capability { rights: Rights::READ.and(Rights::WRITE).and(Rights::CREATE), ..object_level() }
}

async fn halves(drive: &Drive) -> (Sender, Receiver, seal::Asker) {
    let stream = Stream::connect(&drive.address.to_string(), &Limits::default()).await.unwrap();
    let (sender, mut receiver) = stream.into_halves();
    let (_, body) = receiver.frame().await.unwrap().unwrap();
    (sender, receiver, seal::Asker::new(&Hello::from_bytes(&body).unwrap(), challenge()))
}

/// Reads until the drive ends the connection.
async fn until_closed(mut stream: TcpStream) {
    let mut scrap = vec![0; 4096];
    let ended = async { while stream.read(&mut scrap).await.is_ok_and(|read| read > 0) {} };
    within(ended).await;
}

#[tokio::test]
async fn a_peer_that_takes_no_replies_holds_up_nobody_and_loses_its_connection() {
    for &sending in SENDING.iter() {
        no_replies_taken(sending, UNIT).await;
    }
    // Reads that the connection's reader answers itself.
    no_replies_taken(Sending::Copy, AT_ONCE).await;
}

async fn no_replies_taken(sending: Sending, length: u32) {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let small = |settings: &mut Settings| {
        settings.sending = sending;
        settings.payload_bytes_max = 16 << 20;
        settings.requests_max = 1000;
        settings.limits = stall(1500);
    };
    let drive = drive(dir.path(), &manager, small).await;
    let grant = drive.grant(object_level());
    drive.write(0, &bytes(1, UNIT), 1).await;
    let (mut sender, mut receiver, mut asker) = halves(&drive).await;
    // Far more bytes than the sockets and the peer's share of the payload bound hold. None is taken until the
    // drive closes the connection.
    let flood = async {
        for request in 1.. {
            let mut body = Vec::new();
            asker.seal(&grant, request, &read(0, 0, length), 0, &mut body);
            if let Err(error) = sender.send(0x0102, request, &body, &[]).await {
                return error;
            }
        }
        unreachable!("it sends until it fails")
    };
    let others = async {
        let mut session = drive.session().await;
        for n in 2..40 {
            serves(&mut session, &grant, n).await;
        }
    };
    let (ended, ()) = tokio::join!(within(flood), others);
    assert!(matches!(ended, TransportError::Closed { .. }), "{ended}");
    // The bytes left in the socket arrive, then the end.
    let drained = async { while let Ok(Some(_)) = receiver.frame().await {} };
    within(drained).await;
    drive.stop().await;
}

#[tokio::test]
async fn a_read_that_is_answered_after_the_lease_lapsed_brings_no_byte() {
    for &sending in SENDING.iter() {
        answered_late(sending, UNIT).await;
    }
    answered_late(Sending::Copy, AT_ONCE).await;
}

async fn answered_late(sending: Sending, length: u32) {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let many = |settings: &mut Settings| {
        settings.sending = sending;
        settings.requests_max = 1000;
    };
    let drive = drive(dir.path(), &manager, many).await;
    drive.write(0, &bytes(1, UNIT), 1).await;
    let grant = drive.grant(object_level());
    let (mut sender, mut receiver, mut asker) = halves(&drive).await;
    for request in 1..=1000 {
        let mut body = Vec::new();
        asker.seal(&grant, request, &read(0, 0, length), 0, &mut body);
        sender.send(0x0102, request, &body, &[]).await.unwrap();
    }
    // The first answers fill the sockets; the others were requested while the lease held, and wait.
    let (header, _) = receiver.frame().await.unwrap().unwrap();
    assert_eq!(header.kind, 0x8102);
    manager.state().answers = false;
    drive.advance_ms(6000);
    let mut kinds = Vec::new();
    for _ in 2..=1000 {
        let (header, body) = receiver.frame().await.unwrap().unwrap();
        kinds.push(header.kind);
        assert!(header.kind == 0x8102 || refusal(&body) == Reason::NotServing);
    }
    let served = kinds.iter().take_while(|&&kind| kind == 0x8102).count();
    assert!(served < 900 && kinds[served..].iter().all(|&kind| kind == 0x81ff), "{served} were served");
    drive.stop().await;
}

#[tokio::test]
async fn a_peer_that_sends_half_a_payload_holds_up_nobody_and_loses_its_connection() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let small = |settings: &mut Settings| {
        settings.payload_bytes_max = 1 << 20;
        settings.limits = stall(500);
    };
    let drive = drive(dir.path(), &manager, small).await;
    let grant = drive.grant(object_level());
    let payload = bytes(1, UNIT);
    let mut stuck = Vec::new();
    for _ in 0..4 {
        let (mut stream, hello) = greeted(&drive).await;
        let mut body = Vec::new();
        seal::Asker::new(&hello, challenge()).seal(&grant, 1, &write(1, 0, &payload, 1), UNIT, &mut body);
        stream.write_all(&FrameHeader::new(0x0103, 1, &body, UNIT).emit()).await.unwrap();
        stream.write_all(&body).await.unwrap();
        stream.write_all(&payload[..payload.len() / 2]).await.unwrap();
        stuck.push(stream);
    }
    let mut session = drive.session().await;
    for n in 2..40 {
        serves(&mut session, &grant, n).await;
    }
    for stream in stuck {
        until_closed(stream).await;
    }
    // All the memory they held is free again: a write that needs one connection's whole share succeeds.
    serves(&mut session, &grant, 50).await;
    let DriveReply::Read(untouched) = session.call(&grant, &read(1, 0, UNIT), &[]).await.unwrap().0 else {
        panic!()
    };
    assert!(untouched.version.is_zero());
    drive.stop().await;
}

#[tokio::test]
async fn mute_peers_are_given_up_and_others_served() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let brief = |settings: &mut Settings| settings.limits.proof = Duration::from_millis(300);
    let drive = drive(dir.path(), &manager, brief).await;
    let mut mute = Vec::new();
    for _ in 0..50 {
        mute.push(TcpStream::connect(drive.address).await.unwrap());
    }
    let mut session = drive.session().await;
    serves(&mut session, &drive.grant(object_level()), 1).await;
    for stream in mute {
        until_closed(stream).await;
    }
    // A peer that has shown a capability may be idle for longer.
    serves(&mut session, &drive.grant(object_level()), 2).await;
    drive.stop().await;
}

#[tokio::test]
async fn garbage_truncated_and_oversized_frames_end_their_connection_only() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = drive(dir.path(), &manager, |settings| settings.limits = stall(300)).await;
    let mut session = drive.session().await;
    let grant = drive.grant(object_level());
    let good = FrameHeader::new(0x0102, 1, b"body", 0).emit();
    let oversized = |at: usize| {
        let mut header = good;
        header[at..at + 4].fill(0xff);
        let crc = braid_wire::checksum::crc32c(&header[..28]);
        header[28..].copy_from_slice(&crc.to_le_bytes());
        header.to_vec()
    };
    let cases: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\nHost: drive\r\n\r\n\r\n\r\n".to_vec(),
        vec![0xff; 4096],
        good[..20].to_vec(),
        good.to_vec(),
        [&good[..], b"boda"].concat(),
        oversized(16),
        oversized(20),
    ];
    for (n, bytes) in (1..).zip(cases) {
        let mut stream = TcpStream::connect(drive.address).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        until_closed(stream).await;
        serves(&mut session, &grant, n).await;
    }
    drive.stop().await;
}

#[tokio::test]
async fn a_request_that_is_none_is_refused_and_its_payload_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = drive(dir.path(), &manager, |_| ()).await;
    let (mut sender, mut receiver, mut asker) = halves(&drive).await;
    let grant = drive.grant(object_level());
    sender.send(0x0103, 1, b"nonsense", &[&vec![7; 1 << 20]]).await.unwrap();
    let (_, body) = receiver.frame().await.unwrap().unwrap();
    assert!(matches!(refusal(&body), Reason::Malformed));
    // An unknown kind, with a good seal made for another request.
    let mut body = Vec::new();
    asker.seal(&grant, 2, &read(0, 0, 10), 0, &mut body);
    sender.send(0x7777, 2, &body, &[]).await.unwrap();
    let (_, reply) = receiver.frame().await.unwrap().unwrap();
    assert!(matches!(refusal(&reply), Reason::Forged));
    sender.send(0x0102, 2, &body, &[]).await.unwrap();
    let (header, _) = receiver.frame().await.unwrap().unwrap();
    assert_eq!(header.kind, 0x8102);
    drive.stop().await;
}

fn refusal(body: &[u8]) -> Reason {
    let mut arguments = body;
    braid_wire::data::ReplyHead::take(&mut arguments).unwrap();
    match DriveReply::from_body(0x81ff, arguments).unwrap() {
        DriveReply::Refused(refusal) => refusal.reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn idle_connections_give_way_and_strangers_have_no_place_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = drive(dir.path(), &manager, |settings| settings.connections_max = 2).await;
    let grant = drive.grant(client_level());
    let mut strangers = Vec::new();
    for _ in 0..400 {
        strangers.push(TcpStream::connect(drive.address).await.unwrap());
    }
    let mut first = drive.session().await;
    let mut second = drive.session().await;
    serves(&mut first, &grant, 1).await;
    serves(&mut second, &grant, 2).await;
    // Idle times must differ by at least a millisecond.
    tokio::time::sleep(Duration::from_millis(5)).await;
    serves(&mut first, &grant, 3).await;
    let mut third = drive.session().await;
    serves(&mut third, &grant, 4).await;
    let request: DriveRequest = read(0, 0, 10);
    let closed = second.call(&grant, &request, &[]).await.unwrap_err();
    assert!(matches!(closed, TransportError::Closed { .. }), "{closed}");
    serves(&mut first, &grant, 5).await;
    for stranger in strangers.drain(..200) {
        until_closed(stranger).await;
    }
    drive.stop().await;
}

#[tokio::test]
async fn a_connection_with_requests_under_way_gives_way_to_none() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let one = |settings: &mut Settings| {
        settings.connections_max = 1;
        settings.requests_max = 1000;
    };
    let drive = drive(dir.path(), &manager, one).await;
    let grant = drive.grant(client_level());
    drive.write(0, &bytes(1, UNIT), 1).await;
    // Answers that are not taken fill the sockets, so the connection counts as busy.
    let (mut sender, mut receiver, mut asker) = halves(&drive).await;
    for request in 1..=1000 {
        let mut body = Vec::new();
        asker.seal(&grant, request, &read(0, 0, UNIT), 0, &mut body);
        sender.send(0x0102, request, &body, &[]).await.unwrap();
    }
    // The first answer shows that the connection has its slot.
    let (header, _) = within(receiver.frame()).await.unwrap().unwrap();
    assert_eq!(header.kind, 0x8102);
    let mut other = drive.session().await;
    let request: DriveRequest = read(0, 0, 10);
    let refusal = match other.call(&grant, &request, &[]).await {
        Err(TransportError::Refusal(refusal)) => refusal,
        answered => panic!("{answered:?}"),
    };
    assert_eq!(refusal.reason, Reason::Busy);
    assert!(refusal.detail.contains("operator"), "it says whom to ask: {refusal}");
    // The manager still gets a connection.
    serves(&mut drive.session().await, &drive.grant(object_level()), 1).await;
    drop((sender, receiver));
    drive.stop().await;
}

#[tokio::test]
async fn who_waits_for_memory_too_long_loses_the_connection_and_its_slot_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let brief = |settings: &mut Settings| {
        settings.payload_bytes_max = 1;
        settings.store_wait = Duration::from_millis(200);
        settings.limits = stall(60_000);
    };
    let drive = drive(dir.path(), &manager, brief).await;
    let grant = drive.grant(client_level());
    let payload = bytes(1, UNIT);
    // The peer announces a payload and sends half of it, which occupies all the memory for a minute.
    let (mut stuck, hello) = greeted(&drive).await;
    let mut body = Vec::new();
    seal::Asker::new(&hello, challenge()).seal(&grant, 1, &write(1, 0, &payload, 1), UNIT, &mut body);
    stuck.write_all(&FrameHeader::new(0x0103, 1, &body, UNIT).emit()).await.unwrap();
    stuck.write_all(&body).await.unwrap();
    stuck.write_all(&payload[..payload.len() / 2]).await.unwrap();
    let refused = async {
        loop {
            let mut session = drive.session().await;
            match session.call(&grant, &write(2, 0, &payload, 2), &[&payload]).await {
                // The stuck request had not arrived yet.
                Ok(_) => {}
                Err(error) => return error,
            }
        }
    };
    let error = within(refused).await;
    // The drive refuses and closes; the end of the connection may overtake the refusal.
    match error {
        TransportError::Closed { .. } | TransportError::Io { .. } => {}
        TransportError::Refusal(refusal) if refusal.reason == Reason::Busy => {}
        other => panic!("{other}"),
    }
    drop(stuck);
    let served = async {
        loop {
            let mut session = drive.session().await;
            if session.call(&grant, &write(2, 0, &payload, 3), &[&payload]).await.is_ok() {
                return;
            }
        }
    };
    within(served).await;
    drive.stop().await;
}

/// A bare connection and the drive's hello.
async fn greeted(drive: &Drive) -> (TcpStream, Hello) {
    let mut stream = TcpStream::connect(drive.address).await.unwrap();
    let mut hello = vec![0; HEADER_BYTES + Hello::BYTES_MIN];
    stream.read_exact(&mut hello).await.unwrap();
    (stream, Hello::from_bytes(&hello[HEADER_BYTES..]).unwrap())
}

#[tokio::test]
async fn many_clients_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = std::sync::Arc::new(drive(dir.path(), &manager, |_| ()).await);
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..32u64 {
        let drive = std::sync::Arc::clone(&drive);
        clients.spawn(async move {
            let mut session = drive.session().await;
            let grant = drive.grant(object_level());
            for round in 0..10 {
                serves(&mut session, &grant, 1 + client * 10 + round).await;
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    std::sync::Arc::into_inner(drive).unwrap().stop().await;
}

#[tokio::test]
async fn a_shutdown_ends_idle_and_stuck_connections() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let brief = |settings: &mut Settings| settings.shutdown_wait = Duration::from_millis(300);
    let drive = drive(dir.path(), &manager, brief).await;
    drive.write(0, &bytes(1, UNIT), 1).await;
    let grant = drive.grant(object_level());
    let mut idle = drive.session().await;
    let (mut sender, _receiver, mut asker) = halves(&drive).await;
    for request in 1..=200 {
        let mut body = Vec::new();
        asker.seal(&grant, request, &read(0, 0, UNIT), 0, &mut body);
        sender.send(0x0102, request, &body, &[]).await.unwrap();
    }
    drive.stop().await;
    let request: DriveRequest = read(0, 0, 10);
    assert!(idle.call(&grant, &request, &[]).await.is_err());
}
