//! Scripted peers: they use the same frames as real ones.

use std::sync::Arc;
use std::time::Duration;

use braid_datagram::policy::Kind;
use braid_layout::{
    ClientId, ClusterId, ColumnMask, DriveId, FileId, Generation, ObjectId, PartitionId, TokenId,
    version::Lease,
};
use braid_transport::{
    Authority, DriveSession, Limits, Listener, Receiver, SecretOf, Secured, Sender, ServerIdentity,
    TransportError, capability_secret, challenge, session_config,
};
use braid_wire::authorise::{Scene, authorise};
use braid_wire::capability::{Capability, Key, LeaseKind, Promise, Protection, Rights};
use braid_wire::control::Grant;
use braid_wire::data::{Address, Done, DriveReply, DriveRequest, GetAttributes, HELLO, Hello, PeerRole};
use braid_wire::seal::ReplySeal;
use braid_wire::token::{Token, TokenRole};
use braid_wire::{FrameHeader, Wire};

pub(crate) const CLUSTER: ClusterId = ClusterId(0xc);
pub(crate) const DRIVE: DriveId = DriveId(0xd);

pub(crate) fn limits() -> Limits {
    Limits::default()
}

/// Bounds short enough for a test.
pub(crate) fn brief() -> Limits {
    let brief = Duration::from_millis(200);
    Limits { connect: brief, stall: brief, reply: brief, ..Limits::default() }
}

pub(crate) fn hello(role: PeerRole) -> Hello {
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

pub(crate) fn token() -> Token {
    Token::lasting(TokenRole::Client, authority().pin(), TokenId(1), Key::new([1; 32]))
}

/// The CA of the tests' cluster.
pub(crate) fn authority() -> Authority {
    Authority::make(&Key::new([3; 32]))
}

pub(crate) fn now_s() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

/// The certificate of the tests' manager.
pub(crate) fn identity() -> ServerIdentity {
    ServerIdentity::of(&authority(), now_s())
}

/// A session of somebody who connects as a client does, up to the proof.
pub(crate) async fn secured(address: &str) -> (Hello, Secured) {
    let (sender, mut receiver) =
        braid_transport::Stream::connect(address, &limits()).await.unwrap().into_halves();
    let (_, body) = receiver.frame().await.unwrap().unwrap();
    let hello = Hello::from_bytes(&body).unwrap();
    (hello, Secured::connect(sender, receiver, &token().pin).await.unwrap())
}

pub(crate) fn working_key() -> Key {
    Key::new([2; 32]).drive_key(DRIVE).partition_key(PartitionId(0)).working_key(1)
}

pub(crate) fn grant() -> Grant {
    let capability = Capability {
        drive: DRIVE,
        partition: PartitionId(0),
        object: ObjectId(0),
        rights: Rights::ALL,
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
    };
    Grant { private: working_key().private_part(&capability), capability }
}

/// Accepts one connection, by TCP or by datagrams, and runs `script` on it. Returns the address.
pub(crate) async fn peer<F: Future<Output = ()> + Send + 'static>(
    script: impl FnOnce(Sender, Receiver) -> F + Send + 'static,
) -> String {
    let mut listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let secret_of: SecretOf = Arc::new(|_| Some(capability_secret(&grant().private)));
    listener.add_datagrams(&session_config(Kind::Cubic), &secret_of).unwrap();
    let address = listener.local_address().to_string();
    tokio::spawn(async move {
        let (sender, receiver) = listener.accept().await.unwrap().into_halves();
        script(sender, receiver).await;
    });
    address
}

/// A peer that sends this Hello and nothing else.
pub(crate) async fn greeter(hello: Hello) -> String {
    peer(async move |mut sender, mut receiver| {
        sender.send(HELLO, 0, &hello.to_bytes(), &[]).await.unwrap();
        while let Ok(Some(_)) = receiver.frame().await {}
    })
    .await
}

pub(crate) async fn connect(address: &str) -> Result<DriveSession, TransportError> {
    DriveSession::connect(address, DRIVE, CLUSTER, &limits()).await
}

/// A frame for an answer: kind, request, body.
pub(crate) type Frame = (u16, u64, Vec<u8>);

/// The reply seal of a request, as the drive computes it.
pub(crate) fn seal_of(hello: &Hello, sequence: &mut u64, header: &FrameHeader, body: &[u8]) -> ReplySeal {
    let scene = Scene {
        drive: DRIVE,
        binding: hello.binding(),
        now_ms: Some(1),
        working_key: &|_, _| working_key(),
        key_epoch: &|_| Some(1),
        key_number: 1,
        former: None,
    };
    match authorise(&scene, sequence, header, body) {
        Ok(verified) => verified.seal,
        Err(denied) => denied.seal,
    }
}

/// A drive that answers each request with what `reply` returns for its seal.
pub(crate) async fn drive(reply: impl Fn(&ReplySeal) -> Option<Frame> + Send + 'static) -> String {
    drive_of(move |seal| reply(&seal).into_iter().collect()).await
}

/// A drive that sends these frames after each request.
pub(crate) async fn drive_of(mut frames: impl FnMut(ReplySeal) -> Vec<Frame> + Send + 'static) -> String {
    let hello = hello(PeerRole::Drive);
    peer(async move |mut sender, mut receiver| {
        sender.send(HELLO, 0, &hello.to_bytes(), &[]).await.unwrap();
        let mut sequence = 0;
        while let Ok(Some((header, body))) = receiver.frame().await {
            for (kind, request, body) in frames(seal_of(&hello, &mut sequence, &header, &body)) {
                sender.send(kind, request, &body, &[]).await.unwrap();
            }
        }
    })
    .await
}

pub(crate) fn stat() -> DriveRequest {
    GetAttributes { at: Address::DRIVE }.into()
}

pub(crate) fn done() -> DriveReply {
    DriveReply::Done(Done {})
}

pub(crate) fn answer_to(seal: &ReplySeal) -> Frame {
    (done().kind(), seal.request(), seal.seal(Generation(7), &done(), 0))
}
