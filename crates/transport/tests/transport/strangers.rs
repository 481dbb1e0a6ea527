//! Unauthenticated peers: what they may send, how long they may stay, and that they keep no other peer out.

use std::time::{Duration, Instant};

use braid_layout::{
    ClientId, ClusterId, ColumnMask, DriveId, FileId, Generation, ObjectId, PartitionId, TokenId,
    version::Lease,
};
use braid_transport::{
    Authority, Bounds, Capacity, ConnectionSlots, ControlPeer, ControlSession, DriveSession, GivesWay,
    Limits, Listener, Origin, Receiver, STRANGER_BODY_BYTES_MAX, Sender, ServerIdentity, TransportError,
    challenge,
};
use braid_wire::authorise::{Scene, authorise};
use braid_wire::capability::{Capability, Key, LeaseKind, Promise, Protection, Rights};
use braid_wire::control::{ControlHead, ControlReply, ControlRequest, Grant, VolumeList};
use braid_wire::data::{Address, Done, DriveReply, DriveRequest, HELLO, Hello, Listing, PeerRole, Versions};
use braid_wire::seal::ReplySeal;
use braid_wire::token::{Token, TokenRole};
use braid_wire::{FrameHeader, Refusal, Wire};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const CLUSTER: ClusterId = ClusterId(0xc);
const DRIVE: DriveId = DriveId(0xd);
/// The bound for every wait of a test.
const PATIENCE: Duration = Duration::from_secs(60);

fn hello(role: PeerRole) -> Hello {
    let drive = if role == PeerRole::Drive { DRIVE } else { DriveId(0) };
    Hello {
        role,
        version_min: braid_wire::frame::WIRE_VERSION,
        version_max: braid_wire::frame::WIRE_VERSION,
        cluster: CLUSTER,
        drive,
        features: 0,
        challenge: challenge(),
    }
}

fn token() -> Token {
    Token::lasting(TokenRole::Client, authority().pin(), TokenId(1), Key::new([1; 32]))
}

fn authority() -> Authority {
    Authority::make(&Key::new([3; 32]))
}

/// The certificate of the tests' manager.
fn identity() -> ServerIdentity {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    ServerIdentity::of(&authority(), now.as_secs())
}

fn strangers(all: usize) -> Capacity {
    Capacity { strangers: Bounds::new(all, all), ..Capacity::default() }
}

fn frame(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = FrameHeader::new(kind, 1, body, 0).emit().to_vec();
    bytes.extend_from_slice(body);
    bytes
}

/// An unauthenticated peer's socket and the halves of its connection.
async fn accepted(limits: Limits) -> (TcpStream, Sender, Receiver) {
    let listener = Listener::bind_with("127.0.0.1:0", limits, Capacity::default()).await.unwrap();
    let (socket, stream) = tokio::join!(TcpStream::connect(listener.local_address()), listener.accept());
    let (sender, receiver) = stream.unwrap().into_halves();
    (socket.unwrap(), sender, receiver)
}

#[tokio::test]
async fn a_stranger_sends_small_bodies_only_until_it_is_admitted() {
    let body = vec![7; usize::try_from(STRANGER_BODY_BYTES_MAX).unwrap() + 1];
    let small = &body[1..];
    let (mut socket, _sender, mut receiver) = accepted(Limits::default()).await;
    socket.write_all(&frame(5, small)).await.unwrap();
    assert_eq!(receiver.frame().await.unwrap().unwrap().1, small);
    socket.write_all(&frame(5, &body)).await.unwrap();
    let error = receiver.frame().await.unwrap_err();
    assert!(matches!(error, TransportError::TooMuch { .. }) && error.is_misbehaviour(), "{error}");

    let (mut socket, _sender, mut receiver) = accepted(Limits::default()).await;
    let places = ConnectionSlots::new(Bounds::new(1, 1), GivesWay::Idle);
    receiver.admit(places.take(braid_transport::Holder::Drive(DRIVE), Origin::Here).unwrap());
    socket.write_all(&frame(5, &body)).await.unwrap();
    assert_eq!(receiver.frame().await.unwrap().unwrap().1, body);
}

#[tokio::test]
async fn a_stranger_has_a_short_life_however_busy_it_looks() {
    let limits = Limits { proof: Duration::from_millis(300), ..Limits::default() };
    let (mut socket, _sender, mut receiver) = accepted(limits).await;
    let began = Instant::now();
    let dripping = tokio::spawn(async move {
        for byte in frame(5, &[7; 4000]) {
            if socket.write_all(&[byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let error = receiver.frame().await.unwrap_err();
    assert!(matches!(error, TransportError::Timeout { .. }), "{error}");
    // The trickle would take 80 s.
    assert!(began.elapsed() < Duration::from_secs(30));
    dripping.abort();
}

/// A manager that knows the secret of `token()`, with slots for so many strangers and clients.
async fn manager(strangers_max: usize, clients_max: usize) -> std::net::SocketAddr {
    let capacity = strangers(strangers_max);
    let listener = Listener::bind_with("127.0.0.1:0", Limits::default(), capacity).await.unwrap();
    let address = listener.local_address();
    let clients = ConnectionSlots::new(Bounds::new(clients_max, clients_max), GivesWay::Idle);
    tokio::spawn(async move {
        let mut sessions = JoinSet::new();
        while let Ok(stream) = listener.accept().await {
            let clients = clients.clone();
            let holder = stream.holder().unwrap();
            sessions.spawn(async move {
                let hello = hello(PeerRole::Manager);
                let head = || ControlHead { term: 3, now_ms: 99, managers: 0 };
                let full = || Refusal::new(braid_wire::Reason::Busy, "full");
                let place = |_: &_| clients.take(holder, Origin::Here).ok_or_else(full);
                let secret = |_: &_| Ok(token().secret);
                let mut peer =
                    ControlPeer::accept(stream, &identity(), &hello, Vec::new(), head, secret, place).await?;
                while let Some(asked) = peer.next(head).await? {
                    peer.reply(asked.number, &head(), &ControlReply::Done(braid_wire::control::Done {}))
                        .await?;
                }
                Ok::<(), TransportError>(())
            });
        }
    });
    address
}

async fn until_closed(mut socket: TcpStream) {
    let closed = async { while socket.read(&mut [0; 512]).await.is_ok_and(|read| read > 0) {} };
    tokio::time::timeout(PATIENCE, closed).await.expect("it is closed");
}

#[tokio::test]
async fn strangers_in_any_number_keep_nobody_out_and_their_oldest_are_closed() {
    let address = manager(4, 4).await;
    let mut flood = Vec::new();
    for round in 0..40 {
        let mut socket = TcpStream::connect(address).await.unwrap();
        if round % 2 == 0 {
            // A begun frame does not protect the connection.
            socket.write_all(&frame(5, &[7; 100])[..40]).await.unwrap();
        }
        flood.push(socket);
    }
    let mut session =
        ControlSession::connect(&address.to_string(), &token(), &Limits::default()).await.unwrap();
    for socket in flood.drain(..36) {
        until_closed(socket).await;
    }
    assert!(
        session.call(&ControlRequest::VolumeList(VolumeList {})).await.is_ok(),
        "it has a place of its own"
    );
}

#[tokio::test]
async fn the_oldest_idle_session_is_closed_for_a_new_one() {
    let address = manager(64, 3).await.to_string();
    let connect = async || ControlSession::connect(&address, &token(), &Limits::default()).await.unwrap();
    let ask = ControlRequest::VolumeList(VolumeList {});
    let mut first = connect().await;
    let mut second = connect().await;
    let mut third = connect().await;
    // Idle times are compared in milliseconds.
    tokio::time::sleep(Duration::from_millis(5)).await;
    first.call(&ask).await.unwrap();
    let mut fourth = connect().await;
    let closed = second.call(&ask).await.unwrap_err();
    assert!(matches!(closed, TransportError::Closed { .. }), "{closed}");
    for session in [&mut first, &mut third, &mut fourth] {
        session.call(&ask).await.unwrap();
    }
}

#[tokio::test]
async fn a_first_request_that_is_long_is_introduced_by_a_short_one() {
    let listener = Listener::bind_with("127.0.0.1:0", Limits::default(), strangers(4)).await.unwrap();
    let address = listener.local_address().to_string();
    let key = Key::new([2; 32]).drive_key(DRIVE).partition_key(PartitionId(1)).working_key(1);
    let capability = capability();
    let grant = Grant { private: key.private_part(&capability), capability };
    let drive = tokio::spawn(async move {
        let stream = listener.accept().await.unwrap();
        let places = ConnectionSlots::new(Bounds::new(1, 1), GivesWay::Idle);
        let place = places.take(stream.holder().unwrap(), Origin::Here);
        let hello = hello(PeerRole::Drive);
        let (mut sender, mut receiver) = stream.into_halves();
        let mut place = place;
        sender.send(HELLO, 0, &hello.to_bytes(), &[]).await.unwrap();
        let mut sequence = 0;
        let mut bodies = Vec::new();
        while let Some((header, body)) = receiver.frame().await? {
            bodies.push(body.len());
            let (reply, seal) = judge(&key, &hello, &mut sequence, &header, &body);
            if let Some(place) = place.take().filter(|_| sequence > 0) {
                receiver.admit(place);
            }
            let body = seal.seal(Generation(0), &reply, 0);
            sender.send(reply.kind(), seal.request(), &body, &[]).await.unwrap();
        }
        Ok::<_, TransportError>(bodies)
    });
    let mut session = DriveSession::connect(&address, DRIVE, CLUSTER, &Limits::default()).await.unwrap();
    let at = Address { partition: PartitionId(1), object: ObjectId(2) };
    let long: DriveRequest =
        Versions { at, list: Listing::Named, units: (0..4000).collect(), from: 0, limit: 0 }.into();
    for _ in 0..2 {
        let (reply, _) = session.call(&grant, &long, &[]).await.unwrap();
        assert!(matches!(reply, DriveReply::Done(_)), "its own answer, not the introduction's: {reply:?}");
    }
    drop(session);
    let bodies = drive.await.unwrap().unwrap();
    let most = usize::try_from(STRANGER_BODY_BYTES_MAX).unwrap();
    assert!(bodies.len() == 3 && bodies[0] < most && bodies[1] > most && bodies[2] > most, "{bodies:?}");
}

/// A drive's answer to a request, and its seal.
fn judge(
    key: &Key,
    hello: &Hello,
    sequence: &mut u64,
    header: &FrameHeader,
    body: &[u8],
) -> (DriveReply, ReplySeal) {
    let scene = Scene {
        drive: DRIVE,
        binding: hello.binding(),
        now_ms: Some(1),
        working_key: &|_, _| key.clone(),
        key_epoch: &|_| Some(1),
        key_number: 1,
        former: None,
    };
    match authorise(&scene, sequence, header, body) {
        Ok(verified) => (DriveReply::Done(Done {}), verified.seal),
        Err(denied) => (DriveReply::Refused(denied.refusal), denied.seal),
    }
}

fn capability() -> Capability {
    Capability {
        drive: DRIVE,
        partition: PartitionId(1),
        object: ObjectId(2),
        rights: Rights::READ,
        expires_ms: u64::MAX,
        promise: Promise::NONE,
        client: ClientId::NONE,
        key_epoch: 1,
        g: Generation(0),
        set: ColumnMask(0),
        joining: ColumnMask(0),
        lease: Lease(0),
        kind: LeaseKind::Exclusive,
        first_stripe: 0,
        end_stripe: u64::MAX,
        reach: u64::MAX,
        protection: Protection::Integrity,
        holder: DriveId(0),
        map: [0; 16],
        file: FileId(0),
    }
}
