//! Two peers on loopback: frames between them, and every way in which a peer can break one off.

use std::time::Duration;

use braid_transport::{
    Bounds, Capacity, ConnectionSlots, FilePiece, GivesWay, Limits, Listener, Origin, Receiver, Sender,
    Stream, TransportError,
};
use braid_wire::frame::{HEADER_BYTES, WIRE_VERSION_OLDEST};
use braid_wire::{FrameError, FrameHeader};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Bounds short enough for a test.
fn short() -> Limits {
    let brief = Duration::from_millis(150);
    Limits { stall: brief, reply: brief, idle: brief, ..Limits::default() }
}

async fn listener(limits: Limits) -> Listener {
    Listener::bind_with("127.0.0.1:0", limits, Capacity::default()).await.unwrap()
}

async fn pair(limits: Limits) -> ((Sender, Receiver), (Sender, Receiver)) {
    let listener = listener(limits).await;
    let address = listener.local_address().to_string();
    let (asker, accepted) = tokio::join!(Stream::connect(&address, &limits), listener.accept());
    (asker.unwrap().into_halves(), admitted(accepted.unwrap()))
}

/// The halves of a connection whose peer counts as authenticated.
fn admitted(stream: Stream) -> (Sender, Receiver) {
    let places = ConnectionSlots::new(Bounds::new(1, 1), GivesWay::Idle);
    let place = places.take(stream.holder().unwrap(), Origin::Here).unwrap();
    let (sender, mut receiver) = stream.into_halves();
    receiver.admit(place);
    (sender, receiver)
}

/// A receiver, and a plain socket that sends to it.
async fn bare(limits: Limits) -> (TcpStream, Receiver, Sender) {
    let listener = listener(limits).await;
    let (bare, accepted) = tokio::join!(TcpStream::connect(listener.local_address()), listener.accept());
    let (sender, receiver) = admitted(accepted.unwrap());
    (bare.unwrap(), receiver, sender)
}

fn frame(body: &[u8], payload: &[u8]) -> Vec<u8> {
    let payload_bytes = u32::try_from(payload.len()).unwrap();
    let mut bytes = FrameHeader::new(0x0102, 7, body, payload_bytes).emit().to_vec();
    bytes.extend_from_slice(body);
    bytes.extend_from_slice(payload);
    bytes
}

/// A file of so many bytes, each its offset modulo 251.
fn file(bytes: u32) -> std::fs::File {
    let mut file = tempfile::tempfile().unwrap();
    let content: Vec<u8> = (0..bytes).map(|i| u8::try_from(i % 251).unwrap()).collect();
    std::io::Write::write_all(&mut file, &content).unwrap();
    file
}

#[tokio::test]
async fn a_frame_crosses_with_its_payload_from_files() {
    let ((mut to, _), (_, mut from)) = pair(Limits::default()).await;
    let sending = tokio::spawn(async move {
        let one = file(3_000_000);
        let other = file(1000);
        let first = FilePiece { file: &one, offset: 4097, length: 2_900_000 };
        let second = FilePiece { file: &other, offset: 999, length: 1 };
        assert_eq!(to.send_files(1, 42, b"body", &[first, second]).await.unwrap(), 0);
        to.send(2, 43, b"", &[]).await.unwrap();
    });
    let (header, body) = from.frame().await.unwrap().unwrap();
    assert_eq!((header.kind, header.request, body.as_slice()), (1, 42, &b"body"[..]));
    let mut payload = vec![0; 2_900_001];
    from.payload(&mut payload).await.unwrap();
    let expected: Vec<u8> =
        (4097..2_904_097u32).chain([999]).map(|i| u8::try_from(i % 251).unwrap()).collect();
    assert!(payload == expected);
    assert_eq!(from.frame().await.unwrap().unwrap().0.request, 43);
    sending.await.unwrap();
}

#[tokio::test]
async fn a_payload_crosses_in_parts_from_memory_and_files() {
    let ((mut to, _), (_, mut from)) = pair(Limits::default()).await;
    let sending = tokio::spawn(async move {
        let file = file(10_000);
        let piece = FilePiece { file: &file, offset: 9_000, length: 1_500 };
        to.begin(1, 42, b"body", 2_003).await.unwrap();
        to.part(&[7; 500]).await.unwrap();
        assert_eq!(to.file_part(&piece).await.unwrap(), 500);
        to.part(&[8; 3]).await.unwrap();
        to.begin(2, 43, b"", 0).await.unwrap();
        to.send(3, 44, b"", &[]).await.unwrap();
    });
    let (header, body) = from.frame().await.unwrap().unwrap();
    assert_eq!((header.request, header.payload_bytes, body.as_slice()), (42, 2_003, &b"body"[..]));
    let mut payload = vec![1; 2_003];
    from.payload(&mut payload).await.unwrap();
    let of_file = (9_000..10_000u32).map(|i| u8::try_from(i % 251).unwrap());
    let expected = [7; 500].into_iter().chain(of_file).chain([0; 500]).chain([8; 3]);
    assert!(payload.iter().copied().eq(expected));
    for request in [43, 44] {
        assert_eq!(from.frame().await.unwrap().unwrap().0.request, request);
    }
    sending.await.unwrap();
}

#[tokio::test]
async fn nothing_else_is_sent_before_a_frame_that_was_begun_is_whole() {
    let ((mut to, _), (_, _mute)) = pair(Limits::default()).await;
    let poisoned = |done: Result<(), TransportError>| {
        assert!(matches!(done, Err(TransportError::Poisoned { .. })), "{done:?}");
    };
    poisoned(to.part(b"no frame was begun").await);
    to.begin(1, 1, b"", 4).await.unwrap();
    poisoned(to.send(2, 2, b"", &[]).await);
    to.part(b"ab").await.unwrap();
    poisoned(to.begin(2, 2, b"", 0).await);
    poisoned(to.part(b"more than is left").await);
    poisoned(to.part(b"cd").await);
}

#[tokio::test]
async fn what_a_file_lacks_is_sent_as_zeros_and_told() {
    let ((mut to, _), (_, mut from)) = pair(Limits::default()).await;
    let sending = tokio::spawn(async move {
        let short = file(10_000);
        let empty = file(0);
        let cut = FilePiece { file: &short, offset: 4000, length: 20_000 };
        let gone = FilePiece { file: &empty, offset: 1 << 40, length: 5000 };
        let last = FilePiece { file: &short, offset: 0, length: 10 };
        assert_eq!(to.send_files(1, 1, b"", &[cut, gone, last]).await.unwrap(), 14_000 + 5000);
        to.send(2, 2, b"", &[]).await.unwrap();
    });
    let (header, _) = from.frame().await.unwrap().unwrap();
    assert_eq!(header.payload_bytes, 25_010);
    let mut payload = vec![1; 25_010];
    from.payload(&mut payload).await.unwrap();
    assert!(payload[6000..25_000].iter().all(|&byte| byte == 0));
    assert_eq!(payload[5999], u8::try_from(9999 % 251).unwrap());
    assert_eq!(payload[25_000..], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(from.frame().await.unwrap().unwrap().0.request, 2);
    sending.await.unwrap();
}

#[tokio::test]
async fn files_are_not_sent_to_a_peer_that_takes_nothing_and_not_beyond_the_bound() {
    let ((mut to, _), (_, _mute)) = pair(short()).await;
    let file = file(8 << 20);
    let piece = FilePiece { file: &file, offset: 0, length: 8 << 20 };
    let pieces = [piece; 9];
    assert!(matches!(to.send_files(1, 1, b"", &pieces).await, Err(TransportError::TooLong { .. })));
    let stuck = to.send_files(1, 1, b"", &pieces[..8]).await;
    assert!(matches!(stuck, Err(TransportError::Timeout { .. })), "{stuck:?}");
    assert!(matches!(to.send_files(1, 1, b"", &[]).await, Err(TransportError::Poisoned { .. })));
}

#[tokio::test]
async fn a_frame_crosses_with_its_payload_in_pieces() {
    let ((mut to, _), (_, mut from)) = pair(Limits::default()).await;
    let payload: Vec<u8> = (0..3_000_000u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
    let (first, rest) = payload.split_at(1_234_567);
    let sending = tokio::spawn({
        let first = first.to_vec();
        let rest = rest.to_vec();
        async move {
            to.send(1, 42, b"body", &[&first, &[], &rest]).await.unwrap();
            to.send(2, 43, b"", &[]).await.unwrap();
            to.shutdown().await.unwrap();
        }
    });
    let (header, body) = from.frame().await.unwrap().unwrap();
    assert_eq!((header.kind, header.request, body.as_slice()), (1, 42, &b"body"[..]));
    assert_eq!(header.payload_bytes, 3_000_000);
    let mut head = vec![0; 1_000_000];
    let mut tail = Vec::with_capacity(2_000_000);
    from.payload(&mut head).await.unwrap();
    from.payload_into(&mut tail, 2_000_000).await.unwrap();
    head.extend_from_slice(&tail);
    assert_eq!(head, payload);
    let (header, body) = from.frame().await.unwrap().unwrap();
    assert_eq!((header.kind, header.request, body.len(), header.payload_bytes), (2, 43, 0, 0));
    assert!(from.frame().await.unwrap().is_none());
    sending.await.unwrap();
}

#[tokio::test]
async fn a_payload_that_nobody_takes_is_passed_over() {
    let ((mut to, _), (_, mut from)) = pair(Limits::default()).await;
    let sending = tokio::spawn(async move {
        to.send(1, 1, b"", &[&vec![1; 500_000]]).await.unwrap();
        to.send(2, 2, b"next", &[]).await.unwrap();
        to
    });
    from.frame().await.unwrap().unwrap();
    let mut some = [0; 10];
    from.payload(&mut some).await.unwrap();
    assert_eq!(from.payload_left(), 499_990);
    let (header, body) = from.frame().await.unwrap().unwrap();
    assert_eq!((header.request, body.as_slice()), (2, &b"next"[..]));
    sending.await.unwrap();
}

#[tokio::test]
async fn more_payload_than_there_is_is_an_error() {
    let ((mut to, _), (_, mut from)) = pair(Limits::default()).await;
    to.send(1, 1, b"", &[&[1, 2, 3]]).await.unwrap();
    from.frame().await.unwrap().unwrap();
    let error = from.payload(&mut [0; 4]).await.unwrap_err();
    assert!(matches!(error, TransportError::Unexpected { .. }), "{error}");
}

#[tokio::test]
async fn many_small_frames_cross_in_one_burst() {
    let (mut bare, mut receiver, _sender) = bare(Limits::default()).await;
    let burst: Vec<u8> =
        (0..1000).flat_map(|i| frame(&[u8::try_from(i % 256).unwrap(); 33], &[9; 5])).collect();
    let sending = tokio::spawn(async move { bare.write_all(&burst).await.map(|()| bare) });
    for i in 0..1000 {
        let (_, body) = receiver.frame().await.unwrap().unwrap();
        assert_eq!(body, [u8::try_from(i % 256).unwrap(); 33]);
        let mut payload = [0; 5];
        receiver.payload(&mut payload).await.unwrap();
        assert_eq!(payload, [9; 5]);
        receiver.recycle(body);
    }
    sending.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_mute_peer_is_given_up() {
    let (_bare, mut receiver, _sender) = bare(short()).await;
    let error = receiver.frame().await.unwrap_err();
    assert!(matches!(error, TransportError::Timeout { what: "for the next request", .. }), "{error}");
}

#[tokio::test]
async fn a_peer_that_stops_in_mid_frame_is_given_up() {
    let whole = frame(b"some body", &[5; 100]);
    for cut in [1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 4] {
        let (mut bare, mut receiver, _sender) = bare(short()).await;
        bare.write_all(&whole[..cut]).await.unwrap();
        let error = receiver.frame().await.unwrap_err();
        assert!(
            matches!(error, TransportError::Timeout { what: "in the middle of a frame", .. }),
            "{cut}: {error}"
        );
        assert!(matches!(receiver.frame().await, Err(TransportError::Poisoned { .. })), "{cut}");
    }
    let (mut bare, mut receiver, _sender) = bare(short()).await;
    bare.write_all(&whole[..whole.len() - 1]).await.unwrap();
    receiver.frame().await.unwrap().unwrap();
    let error = receiver.payload(&mut [0; 100]).await.unwrap_err();
    assert!(matches!(error, TransportError::Timeout { .. }), "{error}");
    assert!(matches!(receiver.payload(&mut [0]).await, Err(TransportError::Poisoned { .. })));
}

#[tokio::test]
async fn a_peer_that_drips_is_given_up() {
    let limits = Limits { stall: Duration::from_millis(100), rate_min: 1 << 20, ..short() };
    let (mut bare, mut receiver, _sender) = bare(limits).await;
    let dripping = tokio::spawn(async move {
        for byte in frame(b"body", &[1; 400]) {
            if bare.write_all(&[byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    // Every byte arrives well within `stall`, the whole frame not within `stall + bytes / rate_min`.
    let taken = async {
        receiver.frame().await?;
        receiver.payload(&mut [0; 400]).await
    };
    assert!(matches!(taken.await, Err(TransportError::Timeout { .. })));
    drop(receiver);
    dripping.abort();
}

#[tokio::test]
async fn a_peer_that_ends_in_mid_frame_has_closed() {
    let whole = frame(b"some body", &[]);
    for cut in [1, HEADER_BYTES, whole.len() - 1] {
        let (mut bare, mut receiver, _sender) = bare(Limits::default()).await;
        bare.write_all(&whole[..cut]).await.unwrap();
        drop(bare);
        let error = receiver.frame().await.unwrap_err();
        assert!(matches!(error, TransportError::Closed { .. }), "{cut}: {error}");
    }
}

#[tokio::test]
async fn a_reset_has_closed() {
    let (bare, mut receiver, _sender) = bare(Limits::default()).await;
    socket2::SockRef::from(&bare).set_linger(Some(Duration::ZERO)).unwrap();
    drop(bare);
    let error = receiver.frame().await.unwrap_err();
    assert!(matches!(error, TransportError::Closed { .. }), "{error}");
}

#[tokio::test]
async fn garbage_is_told_apart() {
    let good = frame(b"some body", &[]);
    let damaged = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    let with_header = |change: &dyn Fn(&mut [u8])| {
        let mut bytes = good.clone();
        change(&mut bytes);
        let crc = braid_wire::checksum::crc32c(&bytes[..28]);
        bytes[28..32].copy_from_slice(&crc.to_le_bytes());
        bytes
    };
    let other = WIRE_VERSION_OLDEST - 1;
    type Case = (&'static str, Vec<u8>, fn(&FrameError) -> bool);
    let cases: Vec<Case> = vec![
        ("text", b"GET / HTTP/1.1\r\nHost: here\r\n\r\n\r\n".to_vec(), |e| matches!(e, FrameError::Magic(_))),
        ("zeros", vec![0; 64], |e| matches!(e, FrameError::Magic(_))),
        ("version", with_header(&|bytes| bytes[4..6].copy_from_slice(&other.to_le_bytes())), |e| {
            matches!(e, FrameError::Version(_))
        }),
        ("header", damaged(9), |e| matches!(e, FrameError::HeaderChecksum { .. })),
        ("body", damaged(HEADER_BYTES + 3), |e| matches!(e, FrameError::BodyChecksum)),
        ("long body", with_header(&|bytes| bytes[16..20].fill(0xff)), |e| {
            matches!(e, FrameError::Oversized { .. })
        }),
        ("long payload", with_header(&|bytes| bytes[20..24].fill(0xff)), |e| {
            matches!(e, FrameError::Oversized { .. })
        }),
    ];
    for (name, bytes, expected) in cases {
        let (mut bare, mut receiver, _sender) = bare(Limits::default()).await;
        bare.write_all(&bytes).await.unwrap();
        match receiver.frame().await.unwrap_err() {
            TransportError::Frame { source, .. } => assert!(expected(&source), "{name}: {source}"),
            other => panic!("{name}: {other}"),
        }
        assert!(matches!(receiver.frame().await, Err(TransportError::Poisoned { .. })), "{name}");
    }
}

#[tokio::test]
async fn a_peer_that_takes_nothing_is_given_up() {
    let ((mut to, _from), (_to, _held)) = pair(short()).await;
    let payload = vec![0; 32 << 20];
    let error = to.send(1, 1, b"", &[&payload]).await.unwrap_err();
    assert!(matches!(error, TransportError::Timeout { what: "to take a frame", .. }), "{error}");
    assert!(matches!(to.send(1, 2, b"", &[]).await, Err(TransportError::Poisoned { .. })));
}

#[tokio::test]
async fn a_send_that_was_dropped_midway_poisons() {
    let ((mut to, _from), (_to, _held)) = pair(Limits::default()).await;
    let payload = vec![0; 32 << 20];
    let cut_off = tokio::time::timeout(Duration::from_millis(50), to.send(1, 1, b"", &[&payload])).await;
    assert!(cut_off.is_err());
    assert!(matches!(to.send(1, 2, b"", &[]).await, Err(TransportError::Poisoned { .. })));
}

#[tokio::test]
async fn what_is_too_long_is_not_sent() {
    let ((mut to, _from), (_to, mut held)) = pair(Limits::default()).await;
    let long = vec![0; (1 << 20) + 1];
    assert!(matches!(to.send(1, 1, &long, &[]).await, Err(TransportError::TooLong { .. })));
    to.send(1, 2, b"short", &[]).await.unwrap();
    assert_eq!(held.frame().await.unwrap().unwrap().0.request, 2);
}

#[tokio::test]
async fn nobody_listening_is_refused_and_a_taken_port_is_told() {
    let address = {
        let listener = listener(Limits::default()).await;
        let address = listener.local_address().to_string();
        let taken = Listener::bind(&address).await.unwrap_err();
        assert!(
            matches!(&taken, TransportError::InUse { .. }) && taken.to_string().contains(&address),
            "{taken}"
        );
        address
    };
    let error = Stream::connect(&address, &Limits::default()).await.unwrap_err();
    assert!(matches!(error, TransportError::Refused { .. }), "{error}");
    let nonsense = Listener::bind("nonsense").await.unwrap_err();
    assert!(matches!(&nonsense, TransportError::Bind { address, .. } if address == "nonsense"), "{nonsense}");
}

#[tokio::test]
async fn connections_beyond_the_bound_are_told_and_closed_and_free_again() {
    let capacity = Capacity { connections: 1, ..Capacity::default() };
    let listener = Listener::bind_with("127.0.0.1:0", Limits::default(), capacity).await.unwrap();
    let address = listener.local_address().to_string();
    let limits = Limits::default();
    let (_first, held) = tokio::join!(Stream::connect(&address, &limits), listener.accept());
    let held = held.unwrap();
    let accepting = tokio::spawn(async move { (listener.accept().await, listener).0 });
    let (_second_to, mut second) = Stream::connect(&address, &Limits::default()).await.unwrap().into_halves();
    let (header, _) = second.frame().await.unwrap().unwrap();
    assert_eq!(header.kind, braid_wire::data::HELLO_REFUSED);
    assert!(!matches!(second.frame().await, Ok(Some(_))));
    // The slot is freed only when both halves are dropped.
    let (sender, receiver) = held.into_halves();
    drop(sender);
    drop(receiver);
    let _third = Stream::connect(&address, &Limits::default()).await.unwrap();
    assert!(accepting.await.unwrap().is_ok());
}
