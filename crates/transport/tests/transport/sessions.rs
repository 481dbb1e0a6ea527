//! Sessions with peers that are wrong, silent, forged or replayed.

mod common;
mod managers;
mod promises;
mod shared;
mod tls;
mod ways;

use braid_layout::{ClusterId, DriveId, Generation};
use braid_transport::{
    Bounds, Capacity, ConnectionSlots, ControlPeer, ControlSession, Credentials, DriveSession, GivesWay,
    Limits, Listener, Mismatch, Origin, Secured, TransportError, challenge,
};
use braid_wire::capability::Key;
use braid_wire::control::{ControlHead, ControlReply, ControlRequest, RequestHead, VolumeList};
use braid_wire::data::{DriveReply, HELLO, Hello, PeerRole};
use braid_wire::frame::{WIRE_VERSION, WIRE_VERSION_OLDEST};
use braid_wire::seal::ReplySeal;
use braid_wire::token::{Standing, Token};
use braid_wire::{FrameHeader, Reason, Refusal, Wire};
use common::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A version that this build does not speak.
const OTHER_VERSION: u16 = WIRE_VERSION_OLDEST - 1;
/// A version of a later release.
const LATER_VERSION: u16 = WIRE_VERSION + 1;

#[tokio::test]
async fn a_mute_peer_is_given_up() {
    let address = peer(async |_sender, mut receiver| while let Ok(Some(_)) = receiver.frame().await {}).await;
    let error = DriveSession::connect(&address, DRIVE, CLUSTER, &brief()).await.unwrap_err();
    assert!(matches!(error, TransportError::Timeout { what: "for its Hello", .. }), "{error}");
}

#[tokio::test]
async fn the_wrong_peer_is_told() {
    let cases = [
        (hello(PeerRole::Manager), Mismatch::Role { expected: PeerRole::Drive, found: PeerRole::Manager }),
        (
            Hello { cluster: ClusterId(9), ..hello(PeerRole::Drive) },
            Mismatch::Cluster { expected: CLUSTER, found: ClusterId(9) },
        ),
        (
            Hello { drive: DriveId(9), ..hello(PeerRole::Drive) },
            Mismatch::Drive { expected: DRIVE, found: DriveId(9) },
        ),
        (
            Hello { version_min: OTHER_VERSION - 1, version_max: OTHER_VERSION, ..hello(PeerRole::Drive) },
            Mismatch::Version { min: OTHER_VERSION - 1, max: OTHER_VERSION },
        ),
        (
            Hello { version_min: LATER_VERSION, version_max: LATER_VERSION, ..hello(PeerRole::Drive) },
            Mismatch::Version { min: LATER_VERSION, max: LATER_VERSION },
        ),
    ];
    for (hello, expected) in cases {
        let address = greeter(hello).await;
        match connect(&address).await {
            Err(TransportError::WrongPeer { mismatch, .. }) => assert_eq!(mismatch, expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
}

/// A peer of an older version may use another form from its first message on, so nothing but the header is
/// looked at.
#[tokio::test]
async fn a_peer_of_another_version_is_told_by_its_first_header() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let body = b"a hello of that version";
        let mut frame = FrameHeader::new(HELLO, 0, body, 0).emit();
        frame[4..6].copy_from_slice(&OTHER_VERSION.to_le_bytes());
        let crc = braid_wire::checksum::crc32c(&frame[..28]);
        frame[28..].copy_from_slice(&crc.to_le_bytes());
        stream.write_all(&[&frame[..], body].concat()).await.unwrap();
        let asked = stream.read(&mut [0; 1]).await;
        assert!(matches!(asked, Ok(0) | Err(_)), "something was sent to it");
    });
    let error = connect(&address).await.unwrap_err();
    let TransportError::WrongPeer { mismatch, .. } = &error else { panic!("{error}") };
    assert_eq!(*mismatch, Mismatch::Version { min: OTHER_VERSION, max: OTHER_VERSION });
    let ours = format!("versions {WIRE_VERSION_OLDEST} to {WIRE_VERSION}");
    let both = format!("it speaks wire version {OTHER_VERSION}, this build {ours}: upgrade the older end");
    assert!(error.to_string().contains(&both), "{error}");
}

#[tokio::test]
async fn a_hello_that_is_none_is_refused() {
    for (kind, body) in [(HELLO, b"nonsense".to_vec()), (7, hello(PeerRole::Drive).to_bytes())] {
        let address = peer(async move |mut sender, mut receiver| {
            sender.send(kind, 0, &body, &[]).await.unwrap();
            let _ = receiver.frame().await;
        })
        .await;
        let error = connect(&address).await.unwrap_err();
        assert!(error.is_misbehaviour(), "{error}");
    }
}

#[tokio::test]
async fn a_busy_peer_says_so() {
    let capacity = Capacity { connections: 1, full: "full: ask me".to_owned(), ..Capacity::default() };
    let listener = Listener::bind_with("127.0.0.1:0", limits(), capacity).await.unwrap();
    let address = listener.local_address().to_string();
    tokio::spawn(async move {
        let _held = listener.accept().await;
        let _never = listener.accept().await;
    });
    let _first = tokio::net::TcpStream::connect(&address).await.unwrap();
    match connect(&address).await {
        Err(TransportError::Refusal(refusal)) => {
            assert_eq!((refusal.reason, refusal.detail.as_str()), (Reason::Busy, "full: ask me"));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn requests_are_pipelined_and_answered_in_any_order() {
    const COUNT: u64 = 50;
    let mut seals: Vec<ReplySeal> = Vec::new();
    let address = drive_of(move |seal| {
        let number = seal.request();
        seals.push(seal);
        // The request that came last is answered first.
        if number < COUNT {
            return Vec::new();
        }
        seals.drain(..).rev().map(|seal| answer_to(&seal)).collect()
    })
    .await;
    let mut session = connect(&address).await.unwrap();
    let (asker, answers) = session.halves();
    let asking = async {
        for tag in 0..COUNT {
            asker.ask(tag, &grant(), &stat(), &[]).await.unwrap();
        }
    };
    let answering = async {
        for expected in (0..COUNT).rev() {
            let answer = answers.next().await.unwrap();
            assert_eq!((answer.tag, answer.head.g, answer.reply), (expected, Generation(7), done()));
        }
    };
    tokio::join!(asking, answering);
    assert_eq!(asker.in_flight(), 0);
    assert_eq!(session.call(&grant(), &stat(), &[]).await.unwrap(), (done(), vec![]));
}

#[tokio::test]
async fn an_answer_that_comes_twice_is_told() {
    let address = drive_of(|seal| vec![answer_to(&seal), answer_to(&seal)]).await;
    let mut session = connect(&address).await.unwrap();
    session.call(&grant(), &stat(), &[]).await.unwrap();
    let error = session.call(&grant(), &stat(), &[]).await.unwrap_err();
    assert!(matches!(error, TransportError::Unexpected { .. }), "{error}");
}

#[tokio::test]
async fn a_drive_that_does_not_answer_is_given_up() {
    let address = drive(|_| None).await;
    let mut session =
        DriveSession::connect(&address, DRIVE, CLUSTER, &Limits { reply: brief().reply, ..limits() })
            .await
            .unwrap();
    let error = session.call(&grant(), &stat(), &[]).await.unwrap_err();
    assert!(matches!(error, TransportError::Timeout { what: "for an answer", .. }), "{error}");
}

#[tokio::test]
async fn a_forged_answer_is_told() {
    // A reply with a wrong MAC, one with another generation than was sealed, and a refusal that must carry a
    // proof but does not.
    for forgery in 0..3 {
        let address = drive(move |seal| {
            let refused = DriveReply::Refused(Refusal::new(Reason::NoObject, "reads as zeros"));
            let reply = if forgery == 2 { refused } else { done() };
            let mut body = seal.seal(Generation(7), &reply, 0);
            match forgery {
                0 => body[6] ^= 1,
                1 => body[0] ^= 1,
                _ => body[..20].fill(0),
            }
            Some((reply.kind(), seal.request(), body))
        })
        .await;
        let mut session = connect(&address).await.unwrap();
        let error = session.call(&grant(), &stat(), &[]).await.unwrap_err();
        assert!(matches!(error, TransportError::Forged { .. }), "{forgery}: {error}");
    }
}

#[tokio::test]
async fn an_answer_to_another_request_is_told() {
    let address =
        drive(|seal| Some((done().kind(), seal.request() + 1, seal.seal(Generation(0), &done(), 0)))).await;
    let mut session = connect(&address).await.unwrap();
    let error = session.call(&grant(), &stat(), &[]).await.unwrap_err();
    assert!(matches!(error, TransportError::Unexpected { .. }), "{error}");
}

#[tokio::test]
async fn a_replayed_hello_and_answer_are_forged() {
    // An attacker has recorded a whole exchange, including Hello, and replays it to another client.
    let recorded = hello(PeerRole::Drive);
    let mut old = braid_wire::seal::Asker::new(&recorded, [5; 16]);
    let mut body = Vec::new();
    old.seal(&grant(), 1, &stat(), 0, &mut body);
    let header = FrameHeader::new(stat().kind(), 1, &body, 0);
    let reply = seal_of(&recorded, &mut 0, &header, &body).seal(Generation(0), &done(), 0);
    let address = peer(async move |mut sender, mut receiver| {
        sender.send(HELLO, 0, &recorded.to_bytes(), &[]).await.unwrap();
        let _ = receiver.frame().await;
        sender.send(done().kind(), 1, &reply, &[]).await.unwrap();
        let _ = receiver.frame().await;
    })
    .await;
    let mut session = connect(&address).await.unwrap();
    let error = session.call(&grant(), &stat(), &[]).await.unwrap_err();
    assert!(matches!(error, TransportError::Forged { .. }), "{error}");
}

/// A manager that knows the secret of `token()` and answers each request with Done.
async fn manager() -> String {
    let listener = Listener::bind_with("127.0.0.1:0", limits(), Capacity::default()).await.unwrap();
    let address = listener.local_address().to_string();
    tokio::spawn(async move {
        while let Ok(stream) = listener.accept().await {
            tokio::spawn(async move {
                let head = || ControlHead { term: 3, now_ms: 99, managers: 0 };
                let hello = hello(PeerRole::Manager);
                let places = ConnectionSlots::new(Bounds::new(8, 8), GivesWay::Idle);
                let holder = stream.holder().unwrap();
                let place = |_: &_| Ok(places.take(holder, Origin::Here).unwrap());
                let accepted = ControlPeer::accept(
                    stream,
                    &identity(),
                    &hello,
                    Vec::new(),
                    head,
                    |_| Ok(token().secret),
                    place,
                )
                .await;
                let Ok(mut peer) = accepted else { return };
                while let Ok(Some(asked)) = peer.next(head).await {
                    let reply = match asked.request {
                        Ok(_) => ControlReply::Done(braid_wire::control::Done {}),
                        Err(refusal) => ControlReply::Refused(refusal),
                    };
                    peer.reply(asked.number, &head(), &reply).await.unwrap();
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn each_side_proves_the_secret() {
    let address = manager().await;
    let mut session = ControlSession::connect(&address, &token(), &limits()).await.unwrap();
    let reply = session.call(&ControlRequest::VolumeList(VolumeList {})).await.unwrap();
    assert_eq!(reply, ControlReply::Done(braid_wire::control::Done {}));
    assert_eq!((session.head().term, session.head().now_ms), (3, 99));
}

/// The session waits for an answer all the time, as a mount that waits for news does.
#[tokio::test]
async fn a_session_that_rests_gives_its_place_to_another() {
    let listener = Listener::bind_with("127.0.0.1:0", limits(), Capacity::default()).await.unwrap();
    let address = listener.local_address().to_string();
    let asking = tokio::spawn(async move {
        let mut session = ControlSession::connect(&address, &token(), &limits()).await.unwrap();
        session.call(&ControlRequest::VolumeList(VolumeList {})).await
    });
    let stream = listener.accept().await.unwrap();
    let places = ConnectionSlots::new(Bounds::new(1, 1), GivesWay::Idle);
    let holder = stream.holder().unwrap();
    let head = || ControlHead { term: 3, now_ms: 99, managers: 0 };
    let place = |_: &_| Ok(places.take(holder, Origin::Here).unwrap());
    let hello = hello(PeerRole::Manager);
    let mut peer =
        ControlPeer::accept(stream, &identity(), &hello, Vec::new(), head, |_| Ok(token().secret), place)
            .await
            .unwrap();
    peer.next(head).await.unwrap().unwrap();
    assert!(places.take(holder, Origin::Here).is_none(), "it is being answered");
    peer.rest();
    assert!(places.take(holder, Origin::Here).is_some());
    asking.abort();
}

#[tokio::test]
async fn a_wrong_token_is_refused() {
    let address = manager().await;
    let wrong = Token { secret: Key::new([9; 32]), ..token() };
    match ControlSession::connect(&address, &wrong, &limits()).await {
        Err(TransportError::Refusal(refusal)) => assert_eq!(refusal.reason, Reason::BadToken),
        other => panic!("{other:?}"),
    }
    // The proof covers the standing and the drive too.
    let other = Credentials { standing: Standing::Drive, ..Credentials::from(&token()) };
    assert!(
        ControlSession::connect(&address, other, &limits()).await.is_ok(),
        "this manager looks at no standing"
    );
    let elsewhere = Token { pin: [9; 32], ..token() };
    let error = ControlSession::connect(&address, &elsewhere, &limits()).await.unwrap_err();
    assert!(
        matches!(error, TransportError::WrongPeer { mismatch: Mismatch::Authority { .. }, .. }),
        "{error}"
    );
    // One session tells the cluster to all copies of the credentials.
    let credentials = Credentials::from(&token());
    let copy = credentials.clone();
    ControlSession::connect(&address, credentials, &limits()).await.unwrap();
    assert_eq!(copy.cluster.get(), CLUSTER);
    assert_eq!(ControlSession::cluster_at(&address, token().pin, &limits()).await.unwrap(), CLUSTER);
    let other = ControlSession::cluster_at(&address, [0; 32], &limits()).await;
    assert!(matches!(other, Err(TransportError::WrongPeer { .. })), "{other:?}");
}

#[tokio::test]
async fn a_manager_that_does_not_know_the_secret_is_forged() {
    let head = ControlHead { term: 1, now_ms: 1, managers: 0 };
    let address = peer(async move |mut sender, receiver| {
        sender.send(HELLO, 0, &hello(PeerRole::Manager).to_bytes(), &[]).await.unwrap();
        let Secured { mut sender, mut receiver, .. } =
            Secured::accept(sender, receiver, &identity()).await.unwrap();
        let (header, _) = receiver.frame().await.unwrap().unwrap();
        let welcome = ControlReply::Welcome(braid_wire::control::Welcome {
            cluster: CLUSTER,
            proof: [0; 32],
            managers: Vec::new(),
        });
        let mut body = head.to_bytes();
        welcome.put_body(&mut body);
        sender.send(welcome.kind(), header.request, &body, &[]).await.unwrap();
        let _ = receiver.frame().await;
    })
    .await;
    let error = ControlSession::connect(&address, &token(), &limits()).await.unwrap_err();
    assert!(matches!(error, TransportError::Forged { what: "welcome", .. }), "{error}");
}

#[tokio::test]
async fn a_replayed_proof_is_refused() {
    // A proof from one connection is invalid on another: the challenge differs.
    let address = manager().await;
    let elsewhere = hello(PeerRole::Manager);
    let nonce = challenge();
    let proof =
        Token::asker_proof(&token().secret, &elsewhere.binding(), &nonce, Standing::Client, DriveId(0));
    let request: ControlRequest = braid_wire::control::Authenticate {
        standing: Standing::Client,
        drive: DriveId(0),
        key: 0,
        token: token().id,
        nonce,
        proof,
    }
    .into();
    let (_, Secured { mut sender, mut receiver, .. }) = secured(&address).await;
    let mut body = RequestHead::NONE.to_bytes();
    request.put_body(&mut body);
    sender.send(request.kind(), 1, &body, &[]).await.unwrap();
    let (header, body) = receiver.frame().await.unwrap().unwrap();
    let mut arguments = body.as_slice();
    ControlHead::take(&mut arguments).unwrap();
    match ControlReply::from_body(header.kind, arguments).unwrap() {
        ControlReply::Refused(refusal) => assert_eq!(refusal.reason, Reason::BadToken),
        other => panic!("{other:?}"),
    }
    assert!(!matches!(receiver.frame().await, Ok(Some(_))));
}

#[tokio::test]
async fn an_unknown_request_is_refused_and_the_session_goes_on() {
    let address = manager().await;
    let (hello, session) = secured(&address).await;
    let binding = session.binding(&hello);
    let Secured { mut sender, mut receiver, .. } = session;
    let nonce = challenge();
    let proof = Token::asker_proof(&token().secret, &binding, &nonce, Standing::Client, DriveId(0));
    let prove: ControlRequest = braid_wire::control::Authenticate {
        standing: Standing::Client,
        drive: DriveId(0),
        key: 0,
        token: token().id,
        nonce,
        proof,
    }
    .into();
    let mut body = RequestHead::NONE.to_bytes();
    prove.put_body(&mut body);
    sender.send(prove.kind(), 1, &body, &[]).await.unwrap();
    receiver.frame().await.unwrap().unwrap();
    let head = RequestHead::NONE.to_bytes();
    for (number, kind, body, reason) in [
        (2, 0x0fff, head.clone(), Reason::Unsupported),
        (3, 0x0201, [head.clone(), b"cut".to_vec()].concat(), Reason::Malformed),
        (4, 0x0202, b"no head".to_vec(), Reason::Malformed),
    ] {
        sender.send(kind, number, &body, &[]).await.unwrap();
        let (header, body) = receiver.frame().await.unwrap().unwrap();
        let mut arguments = body.as_slice();
        ControlHead::take(&mut arguments).unwrap();
        match ControlReply::from_body(header.kind, arguments).unwrap() {
            ControlReply::Refused(refusal) => assert_eq!((header.request, refusal.reason), (number, reason)),
            other => panic!("{other:?}"),
        }
    }
    let later = [head, b"a later version's field".to_vec()].concat();
    sender.send(0x0202, 5, &later, &[]).await.unwrap();
    let (header, body) = receiver.frame().await.unwrap().unwrap();
    let mut arguments = body.as_slice();
    ControlHead::take(&mut arguments).unwrap();
    let reply = ControlReply::from_body(header.kind, arguments).unwrap();
    assert_eq!(reply, ControlReply::Done(braid_wire::control::Done {}), "it is passed over");
}

/// The error of a session whose manager sends these bytes after the welcome, whatever the request.
async fn answered_with(answer: Vec<u8>) -> TransportError {
    let address = peer(async move |mut sender, receiver| {
        let hello = hello(PeerRole::Manager);
        sender.send(HELLO, 0, &hello.to_bytes(), &[]).await.unwrap();
        let session = Secured::accept(sender, receiver, &identity()).await.unwrap();
        let binding = session.binding(&hello);
        let Secured { mut sender, mut receiver, .. } = session;
        let (header, body) = receiver.frame().await.unwrap().unwrap();
        let mut arguments = body.as_slice();
        RequestHead::take(&mut arguments).unwrap();
        let Ok(ControlRequest::Authenticate(asked)) = ControlRequest::from_body(header.kind, arguments)
        else {
            panic!("the first request is the proof");
        };
        let proof = Token::manager_proof(&token().secret, &binding, &asked.nonce);
        let welcome = ControlReply::Welcome(braid_wire::control::Welcome {
            cluster: CLUSTER,
            proof,
            managers: Vec::new(),
        });
        let mut body = ControlHead { term: 3, now_ms: 99, managers: 0 }.to_bytes();
        welcome.put_body(&mut body);
        sender.send(welcome.kind(), header.request, &body, &[]).await.unwrap();
        receiver.frame().await.unwrap().unwrap();
        sender.send_frames(&mut answer.clone()).await.unwrap();
        let _ = receiver.frame().await;
    })
    .await;
    let mut session = ControlSession::connect(&address, &token(), &limits()).await.unwrap();
    session.call(&ControlRequest::VolumeList(VolumeList {})).await.unwrap_err()
}

#[tokio::test]
async fn what_is_damaged_in_the_middle_of_a_session_is_said_to_be() {
    let reply = ControlReply::Done(braid_wire::control::Done {});
    let mut body = ControlHead { term: 3, now_ms: 99, managers: 0 }.to_bytes();
    reply.put_body(&mut body);
    let frame = |number| {
        let header = FrameHeader::new(reply.kind(), number, &body, 0).emit();
        [header.to_vec(), body.clone()].concat()
    };
    let flipped = |at: usize| {
        let mut bytes = frame(2);
        bytes[at] ^= 0x20;
        bytes
    };
    for (what, bytes) in [
        ("the magic", flipped(1)),
        ("the version", flipped(5)),
        ("a length", flipped(17)),
        ("the body", flipped(40)),
        ("bytes are lost", frame(2)[7..].to_vec()),
        ("the answer before comes once more", frame(1)),
    ] {
        let error = answered_with(bytes).await;
        assert!(matches!(error, TransportError::Damaged { .. }), "{what}: {error}");
    }
}
