//! TLS on sessions with the manager: wrong certificates, peers that speak none, relays, cuts, renewal.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use braid_layout::DriveId;
use braid_transport::{
    Authority, Bounds, CERTIFICATE_S, Capacity, ConnectionSlots, ControlPeer, ControlSession, GivesWay,
    Limits, Listener, Mismatch, Origin, PinText, Secured, ServerIdentity, TransportError, challenge,
};
use braid_wire::capability::Key;
use braid_wire::control::{
    Authenticate, ControlHead, ControlReply, ControlRequest, Done, Lookup, NamePlace, RequestHead, VolumeList,
};
use braid_wire::data::{HELLO, Hello, PeerRole};
use braid_wire::token::{Standing, Token};
use braid_wire::{FrameHeader, Reason, Wire};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::common::{authority, hello, identity, limits, now_s, secured, token};

/// The bound for every wait of a test.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ends of sessions, as the manager saw them.
type Ends = mpsc::UnboundedReceiver<Result<(), TransportError>>;

/// A manager with this certificate, which answers each request with Done.
async fn manager(identity: ServerIdentity, limits: Limits) -> (String, Ends) {
    let listener = Listener::bind_with("127.0.0.1:0", limits, Capacity::default()).await.unwrap();
    let address = listener.local_address().to_string();
    let (tell, ends) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok(stream) = listener.accept().await {
            let tell = tell.clone();
            let identity = identity.clone();
            tokio::spawn(async move {
                let serve = async {
                    let head = || ControlHead { term: 3, now_ms: 99, managers: 0 };
                    let hello = hello(PeerRole::Manager);
                    let places = ConnectionSlots::new(Bounds::new(8, 8), GivesWay::Idle);
                    let holder = stream.holder()?;
                    let place = |_: &_| Ok(places.take(holder, Origin::Here).unwrap());
                    let secret = |_: &Authenticate| Ok(token().secret);
                    let mut peer =
                        ControlPeer::accept(stream, &identity, &hello, Vec::new(), head, secret, place)
                            .await?;
                    while let Some(asked) = peer.next(head).await? {
                        peer.reply(asked.number, &head(), &ControlReply::Done(Done {})).await?;
                    }
                    Ok(())
                };
                let _ = tell.send(serve.await);
            });
        }
    });
    (address, ends)
}

async fn connected(address: &str) -> Result<ControlSession, TransportError> {
    timeout(PATIENCE, ControlSession::connect(address, &token(), &limits())).await.expect("it does not hang")
}

async fn end_of(ends: &mut Ends) -> TransportError {
    timeout(PATIENCE, ends.recv()).await.expect("it does not hang").unwrap().unwrap_err()
}

fn ask() -> ControlRequest {
    VolumeList {}.into()
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused_by_name() {
    let other = Authority::make(&Key::new([4; 32]));
    let (address, mut ends) = manager(ServerIdentity::of(&other, now_s()), limits()).await;
    let error = connected(&address).await.unwrap_err();
    let expected = PinText(authority().pin());
    let found = PinText(other.pin());
    let TransportError::WrongPeer { mismatch, .. } = &error else { panic!("{error}") };
    assert_eq!(*mismatch, Mismatch::Authority { expected, found });
    let said = error.to_string();
    for part in [&address, &expected.to_string(), &found.to_string(), "cluster.toml"] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    // The manager has seen no proof.
    assert!(matches!(end_of(&mut ends).await, TransportError::Tls { .. } | TransportError::Closed { .. }));
}

#[tokio::test]
async fn a_certificate_counts_for_its_time_and_an_hour_around_it() {
    for (made_s, is_good) in [
        (now_s() - CERTIFICATE_S - 3000, true),
        (now_s() - CERTIFICATE_S - 4200, false),
        (now_s() + 3000, true),
        (now_s() + 4200, false),
    ] {
        let (address, _ends) = manager(ServerIdentity::of(&authority(), made_s), limits()).await;
        match connected(&address).await {
            Ok(_) => assert!(is_good, "made at {made_s}"),
            Err(error) => {
                let said = error.to_string();
                assert!(matches!(error, TransportError::Tls { .. }), "{error}");
                assert!(!is_good && said.contains("compare the clocks") && said.contains(&address), "{said}");
            }
        }
    }
}

/// The authority's certificate is no secret: somebody shows it after a certificate that it did not sign.
#[tokio::test]
async fn a_certificate_that_the_authority_did_not_sign_is_refused() {
    let forger = Authority::of_record(&Key::new([4; 32]), authority().certificate()).unwrap();
    assert_eq!(forger.pin(), authority().pin());
    let (address, _ends) = manager(ServerIdentity::of(&forger, now_s()), limits()).await;
    let error = connected(&address).await.unwrap_err();
    assert!(
        matches!(error, TransportError::Tls { .. }) && error.to_string().contains("manager's place"),
        "{error}"
    );
}

#[tokio::test]
async fn a_manager_without_a_certificate_serves_nobody() {
    let (address, mut ends) = manager(ServerIdentity::default(), limits()).await;
    assert!(connected(&address).await.is_err());
    assert!(end_of(&mut ends).await.to_string().contains("no certificate"));
}

#[tokio::test]
async fn a_plain_text_peer_is_ended_with_words() {
    let (address, mut ends) = manager(identity(), limits()).await;
    let mut socket = TcpStream::connect(&address).await.unwrap();
    let hello = read_frame(&mut socket).await;
    let hello = Hello::from_bytes(&hello[braid_wire::frame::HEADER_BYTES..]).unwrap();
    // All that a peer without TLS would do is right.
    let nonce = challenge();
    let proof = Token::asker_proof(&token().secret, &hello.binding(), &nonce, Standing::Client, DriveId(0));
    let request = ControlRequest::from(Authenticate {
        standing: Standing::Client,
        drive: DriveId(0),
        key: 0,
        token: token().id,
        nonce,
        proof,
    });
    let mut body = RequestHead::NONE.to_bytes();
    request.put_body(&mut body);
    let header = FrameHeader::new(request.kind(), 1, &body, 0).emit();
    socket.write_all(&[header.to_vec(), body].concat()).await.unwrap();
    let error = end_of(&mut ends).await;
    assert!(matches!(error, TransportError::Tls { .. }) && error.is_misbehaviour(), "{error}");
    assert!(error.to_string().contains("begin with TLS"), "{error}");
    let mut rest = Vec::new();
    let _ = timeout(PATIENCE, socket.read_to_end(&mut rest)).await.expect("it is closed");
    // At most an alert, which is no frame.
    assert!(rest.len() < braid_wire::frame::HEADER_BYTES, "{rest:?}");
}

/// The first message of a peer that offers TLS 1.2 and nothing newer.
fn hello_of_tls_1_2() -> Vec<u8> {
    let groups: &[u8] = &[0, 10, 0, 4, 0, 2, 0, 29];
    let signatures: &[u8] = &[0, 13, 0, 6, 0, 4, 8, 7, 4, 3];
    let extensions = [groups, signatures].concat();
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0xc0, 0x2c, 1, 0]); // no session, one cipher suite, no compression
    body.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
    body.extend(extensions);
    let length = u16::try_from(body.len()).unwrap();
    let message = [&[1, 0][..], &length.to_be_bytes(), &body].concat();
    [&[22, 3, 1][..], &(length + 4).to_be_bytes(), &message].concat()
}

#[tokio::test]
async fn an_older_tls_is_refused() {
    const ALERT_OF_THE_VERSION: [u8; 7] = [21, 3, 3, 0, 2, 2, 70];
    let (address, mut ends) = manager(identity(), limits()).await;
    let mut socket = TcpStream::connect(&address).await.unwrap();
    read_frame(&mut socket).await;
    socket.write_all(&hello_of_tls_1_2()).await.unwrap();
    let mut said = Vec::new();
    let _ = timeout(PATIENCE, socket.read_to_end(&mut said)).await.expect("it is closed");
    assert_eq!(said, ALERT_OF_THE_VERSION);
    assert!(matches!(end_of(&mut ends).await, TransportError::Tls { .. }));
}

#[tokio::test]
async fn a_manager_that_answers_in_plain_text_is_refused() {
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_address().to_string();
    tokio::spawn(async move {
        let (mut sender, _receiver) = listener.accept().await.unwrap().into_halves();
        sender.send(HELLO, 0, &hello(PeerRole::Manager).to_bytes(), &[]).await.unwrap();
        sender.send(0x8101, 1, &[0; 64], &[]).await.unwrap();
        std::future::pending::<()>().await;
    });
    let error = connected(&address).await.unwrap_err();
    assert!(matches!(error, TransportError::Damaged { .. } | TransportError::Unexpected { .. }), "{error}");
}

#[tokio::test]
async fn a_peer_that_says_nothing_is_ended_in_time() {
    let brief = Limits { proof: Duration::from_millis(200), ..Limits::default() };
    let (address, mut ends) = manager(identity(), brief).await;
    let _silent = TcpStream::connect(&address).await.unwrap();
    let error = end_of(&mut ends).await;
    assert!(matches!(error, TransportError::Timeout { what: "for its TLS handshake", .. }), "{error}");
}

/// The direction in which a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Cut {
    ToManager,
    ToAsker,
}

/// Connects through a proxy that ends the connection after this many bytes in one direction. Returns false if
/// the session began.
async fn is_cut(real: &str, cut: Cut, bytes: usize) -> bool {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let real = real.to_owned();
    let proxy = tokio::spawn(async move {
        let (near, _) = listener.accept().await.unwrap();
        let far = TcpStream::connect(&real).await.unwrap();
        let (near_read, mut near_write) = near.into_split();
        let (far_read, mut far_write) = far.into_split();
        let bound = |of| if cut == of { u64::try_from(bytes).unwrap() } else { u64::MAX };
        let mut up = near_read.take(bound(Cut::ToManager));
        let mut down = far_read.take(bound(Cut::ToAsker));
        tokio::select! {
            _ = tokio::io::copy(&mut up, &mut far_write) => {}
            _ = tokio::io::copy(&mut down, &mut near_write) => {}
        }
    });
    let result = connected(&address).await;
    proxy.abort();
    result.is_err()
}

#[tokio::test]
async fn a_handshake_may_be_cut_at_any_byte() {
    let (address, mut ends) = manager(identity(), limits()).await;
    for cut in [Cut::ToManager, Cut::ToAsker] {
        let mut bytes = 0;
        while is_cut(&address, cut, bytes).await {
            let end = timeout(PATIENCE, ends.recv()).await.expect("the manager does not hang").unwrap();
            // The last cuts come after the proof: for the manager the session has just ended.
            let words = end.as_ref().err().map(ToString::to_string);
            assert!(!matches!(end, Err(TransportError::Timeout { .. })), "{cut:?} {bytes}: {words:?}");
            bytes += 1;
            assert!(bytes < 8192, "{cut:?}: it never begins");
        }
        assert!(bytes > 200, "{cut:?}: it began with {bytes} bytes");
        // The end of the session that began.
        let _ = timeout(PATIENCE, ends.recv()).await.expect("the manager does not hang");
    }
}

/// Somebody in the middle has a certificate of the authority (say, stolen), reads both sessions and passes
/// the proof on.
#[tokio::test]
async fn a_proof_that_is_relayed_proves_nothing() {
    let (real, _ends) = manager(identity(), limits()).await;
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_address().to_string();
    let (tell, mut told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let (mut sender, receiver) = listener.accept().await.unwrap().into_halves();
        let (hello, far) = secured(&real).await;
        sender.send(HELLO, 0, &hello.to_bytes(), &[]).await.unwrap();
        let near = Secured::accept(sender, receiver, &identity()).await.unwrap();
        assert_ne!(near.binding(&hello), far.binding(&hello));
        let Secured { sender: mut to_asker, receiver: mut from_asker, .. } = near;
        let Secured { sender: mut to_manager, receiver: mut from_manager, .. } = far;
        let (header, body) = from_asker.frame().await.unwrap().unwrap();
        to_manager.send(header.kind, header.request, &body, &[]).await.unwrap();
        let (header, body) = from_manager.frame().await.unwrap().unwrap();
        tell.send(header.kind).unwrap();
        to_asker.send(header.kind, header.request, &body, &[]).await.unwrap();
        let _ = from_asker.frame().await;
    });
    let error = connected(&address).await.unwrap_err();
    assert!(matches!(&error, TransportError::Refusal(no) if no.reason == Reason::BadToken), "{error}");
    assert!(told.recv().await.is_some(), "the manager had the proof, and refused it");
}

#[tokio::test]
async fn a_certificate_is_renewed_under_open_sessions() {
    let identity = ServerIdentity::of(&authority(), now_s() - CERTIFICATE_S - 3000);
    let (address, _ends) = manager(identity.clone(), limits()).await;
    let mut open = connected(&address).await.unwrap();
    assert!(identity.renew_if_due(&authority(), now_s()));
    assert!(!identity.renew_if_due(&authority(), now_s()), "it is new");
    assert!(open.call(&ask()).await.is_ok());
    assert!(connected(&address).await.unwrap().call(&ask()).await.is_ok());
    // With another authority's certificate: what is open stays, and what comes is refused.
    let other = Authority::make(&Key::new([4; 32]));
    assert!(identity.renew_if_due(&other, now_s() + CERTIFICATE_S));
    assert!(open.call(&ask()).await.is_ok());
    assert!(connected(&address).await.is_err());
}

/// Passes connections on, and keeps all bytes of both directions.
async fn recorder(real: String) -> (String, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(&real).await.unwrap();
            let (near_read, near_write) = near.into_split();
            let (far_read, far_write) = far.into_split();
            tokio::spawn(pass(near_read, far_write, Arc::clone(&record)));
            tokio::spawn(pass(far_read, near_write, Arc::clone(&record)));
        }
    });
    (address, seen)
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    record: Arc<Mutex<Vec<u8>>>,
) {
    let mut buffer = vec![0; 65536];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        record.lock().unwrap().extend_from_slice(&buffer[..read]);
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn what_is_asked_is_not_seen_on_the_way() {
    const NAME: &str = "a-name-that-nobody-else-has";
    let (real, _ends) = manager(identity(), limits()).await;
    let (address, seen) = recorder(real).await;
    let mut session = connected(&address).await.unwrap();
    let lookup =
        ControlRequest::from(Lookup { at: NamePlace::of("main", NAME), follow: false, watch: false });
    let mut plain = Vec::new();
    lookup.put_body(&mut plain);
    let has = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    assert!(has(&plain, NAME.as_bytes()), "a name stands in a request as it is");
    session.call(&lookup).await.unwrap();
    let seen = seen.lock().unwrap();
    let hello = hello(PeerRole::Manager).to_bytes();
    assert!(has(&seen, &hello[..hello.len() - 16]), "the hello is seen, but for its challenge");
    assert!(!has(&seen, NAME.as_bytes()));
    assert!(!has(&seen, token().secret.secret()));
}

async fn read_frame(from: &mut TcpStream) -> Vec<u8> {
    let mut header = [0; braid_wire::frame::HEADER_BYTES];
    from.read_exact(&mut header).await.unwrap();
    let parsed = FrameHeader::parse(&header).unwrap();
    let mut body = vec![0; usize::try_from(parsed.body_bytes).unwrap()];
    from.read_exact(&mut body).await.unwrap();
    [header.to_vec(), body].concat()
}
