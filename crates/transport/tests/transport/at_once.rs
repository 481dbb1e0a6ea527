//! Frames that are sent and received without waiting.

use std::time::Duration;

use braid_transport::{Limits, Listener, Receiver, Sender, Stream, TransportError};
use braid_wire::FrameHeader;

const PATIENCE: Duration = Duration::from_secs(20);

async fn pair() -> (Sender, Receiver) {
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_address().to_string();
    let limits = Limits::default();
    let (asker, accepted) = tokio::join!(Stream::connect(&address, &limits), listener.accept());
    let (sender, _) = asker.unwrap().into_halves();
    let (_, receiver) = accepted.unwrap().into_halves();
    (sender, receiver)
}

/// Frames with these numbers, one after another.
fn frames(numbers: std::ops::Range<u64>, body: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut frames = Vec::new();
    for number in numbers {
        let payload_bytes = u32::try_from(payload.len()).unwrap();
        frames.extend_from_slice(&FrameHeader::new(7, number, body, payload_bytes).emit());
        frames.extend_from_slice(body);
        frames.extend_from_slice(payload);
    }
    frames
}

async fn within<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(PATIENCE, what).await.expect("it comes in time")
}

#[tokio::test]
async fn frames_that_come_together_are_at_hand_and_a_part_of_one_is_not() {
    let (mut sender, mut receiver) = pair().await;
    assert_eq!(receiver.frame_at_hand().unwrap(), None);
    let mut three = frames(1..4, b"abc", b"");
    // A fourth frame follows, without its last byte.
    three.extend_from_slice(&frames(4..5, b"abc", b"")[..34]);
    assert!(sender.send_now(&mut three).await.unwrap());
    assert!(three.is_empty());
    let (header, body) = within(receiver.frame()).await.unwrap().unwrap();
    assert_eq!((header.request, body.as_slice()), (1, &b"abc"[..]));
    receiver.recycle(body);
    for number in 2..4 {
        let (header, body) = receiver.frame_at_hand().unwrap().expect("it came along");
        assert_eq!((header.request, body.as_slice()), (number, &b"abc"[..]));
    }
    assert_eq!(receiver.frame_at_hand().unwrap(), None);
    sender.send_frames(&mut b"c".to_vec()).await.unwrap();
    assert_eq!(within(receiver.frame()).await.unwrap().unwrap().0.request, 4);
}

#[tokio::test]
async fn a_payload_is_taken_before_the_next_frame_is_at_hand() {
    let (mut sender, mut receiver) = pair().await;
    sender.send_frames(&mut frames(1..3, b"abc", b"payload")).await.unwrap();
    within(receiver.frame()).await.unwrap().unwrap();
    assert_eq!(receiver.frame_at_hand().unwrap(), None);
    let mut payload = [0; 7];
    within(receiver.payload(&mut payload)).await.unwrap();
    assert_eq!(&payload, b"payload");
    assert_eq!(receiver.frame_at_hand().unwrap().expect("it came along").0.request, 2);
    assert_eq!(receiver.payload_left(), 7);
}

#[tokio::test]
async fn a_damaged_frame_at_hand_ends_the_connection() {
    for at in [20, 33] {
        let (mut sender, mut receiver) = pair().await;
        let mut two = frames(1..3, b"abc", b"");
        let begin = two.len() / 2;
        two[begin + at] ^= 1;
        sender.send_frames(&mut two).await.unwrap();
        within(receiver.frame()).await.unwrap().unwrap();
        let error = receiver.frame_at_hand().unwrap_err();
        assert!(matches!(error, TransportError::Frame { .. }), "{error}");
        let error = within(receiver.frame()).await.unwrap_err();
        assert!(matches!(error, TransportError::Poisoned { .. }), "{error}");
    }
}

#[tokio::test]
async fn what_the_peer_does_not_take_yet_goes_before_what_is_sent_next() {
    let (mut sender, mut receiver) = pair().await;
    let payload = vec![3; 16 << 10];
    let mut sent = 0;
    // Frames are sent until the sockets are full.
    loop {
        let mut some = frames(sent..sent + 4, b"abc", &payload);
        let took_all = sender.send_now(&mut some).await.unwrap();
        assert!(some.is_empty());
        sent += 4;
        if !took_all {
            break;
        }
        assert!(sent < 100_000, "the sockets take everything");
    }
    // The connection takes nothing more, and no byte of the next frame is lost.
    let mut more = frames(sent..sent + 1, b"abc", &payload);
    let before = more.clone();
    assert!(!sender.send_now(&mut more).await.unwrap());
    assert_eq!(more, before);
    let sending = async {
        sender.send_frames(&mut more).await.unwrap();
        sender.send(7, sent + 1, b"abc", &[&payload]).await.unwrap();
        sender.shutdown().await.unwrap();
    };
    let receiving = async {
        let mut numbers = 0..;
        while let Some((header, body)) = receiver.frame().await.unwrap() {
            assert_eq!((Some(header.request), body.as_slice()), (numbers.next(), &b"abc"[..]));
            let mut got = vec![0; payload.len()];
            receiver.payload(&mut got).await.unwrap();
            assert_eq!(got, payload);
        }
        numbers.start
    };
    let ((), received) = within(async { tokio::join!(sending, receiving) }).await;
    assert_eq!(received, sent + 2);
}
