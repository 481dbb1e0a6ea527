//! Replayed, altered and swapped messages are all noticed.

use braid_layout::{ClusterId, Generation};
use braid_wire::authorise::{Scene, authorise};
use braid_wire::capability::Capability;
use braid_wire::data::{Done, DriveReply, DriveRequest, Hello, PeerRole, Read, Written};
use braid_wire::frame::FrameHeader;
use braid_wire::seal::{Asker, ReplyError};
use braid_wire::{Reason, Refusal};

use crate::{SISTER, capability, delta, delta_capability, grant, hello, read, refused, scene, sealed, write};

#[test]
fn a_request_is_good_once_and_in_order() {
    let mut asker = Asker::new(&hello(), [6; 16]);
    let mut seal = |number| {
        let mut body = Vec::new();
        let _ = asker.seal(&grant(capability()), number, &read().into(), 0, &mut body);
        (FrameHeader::new(DriveRequest::from(read()).kind(), number, &body, 0), body)
    };
    let first = seal(1);
    let second = seal(2);
    let mut last = 0;
    assert!(authorise(&scene(), &mut last, &second.0, &second.1).is_ok());
    for again in [&second, &first] {
        let denied = authorise(&scene(), &mut last, &again.0, &again.1).expect_err("replayed");
        assert_eq!((denied.refusal.reason, denied.seal.is_proven()), (Reason::Replayed, true));
    }
    let other = Hello { challenge: [10; 16], ..hello() };
    let elsewhere = Scene { binding: other.binding(), ..scene() };
    assert_eq!(refused(authorise(&elsewhere, &mut 0, &first.0, &first.1)), Reason::Forged);
    // A request that is refused for another reason also uses up its number.
    let silent = Scene { now_ms: None, ..scene() };
    let third = seal(3);
    let mut last = 0;
    assert_eq!(refused(authorise(&silent, &mut last, &third.0, &third.1)), Reason::NotServing);
    assert_eq!(refused(authorise(&scene(), &mut last, &third.0, &third.1)), Reason::Replayed);
}

#[test]
fn any_altered_hello_makes_every_request_wrong() {
    let (header, body, _) = sealed(capability(), &read().into(), 0);
    for other in [
        Hello { version_max: 2, ..hello() },
        Hello { version_min: 0, ..hello() },
        Hello { features: 1, ..hello() },
        Hello { role: PeerRole::Manager, ..hello() },
        Hello { cluster: ClusterId(1), ..hello() },
        Hello { drive: SISTER, ..hello() },
    ] {
        let scene = Scene { binding: other.binding(), ..scene() };
        assert_eq!(refused(authorise(&scene, &mut 0, &header, &body)), Reason::Forged);
    }
}

/// Flips every bit of kind, request number, payload length, public part, sequence, nonce, MAC and
/// arguments.
#[test]
fn any_flipped_bit_of_a_request_is_forged() {
    let requests: [(Capability, DriveRequest, u32); 3] = [
        (capability(), read().into(), 0),
        (capability(), write().into(), 8),
        (delta_capability(), delta().into(), 8),
    ];
    for (capability, request, payload_bytes) in requests {
        let (header, body, _) = sealed(capability, &request, payload_bytes);
        assert!(authorise(&scene(), &mut 0, &header, &body).is_ok());
        for bit in 0..body.len() * 8 {
            let mut body = body.clone();
            body[bit / 8] ^= 1 << (bit % 8);
            let denied = authorise(&scene(), &mut 0, &header, &body).expect_err("altered");
            assert_eq!(
                (denied.refusal.reason, denied.seal.is_proven()),
                (Reason::Forged, false),
                "bit {bit}"
            );
        }
        for bit in 0..16 {
            let header = FrameHeader { kind: header.kind ^ 1 << bit, ..header };
            assert_eq!(
                refused(authorise(&scene(), &mut 0, &header, &body)),
                Reason::Forged,
                "kind, bit {bit}"
            );
        }
        for bit in 0..64 {
            let header = FrameHeader { request: header.request ^ 1 << bit, ..header };
            assert_eq!(
                refused(authorise(&scene(), &mut 0, &header, &body)),
                Reason::Forged,
                "request, bit {bit}"
            );
        }
        for bit in 0..32 {
            let header = FrameHeader { payload_bytes: header.payload_bytes ^ 1 << bit, ..header };
            assert_eq!(
                refused(authorise(&scene(), &mut 0, &header, &body)),
                Reason::Forged,
                "payload, bit {bit}"
            );
        }
    }
}

#[test]
fn any_flipped_bit_of_a_reply_is_noticed() {
    let (header, body, asked) = sealed(capability(), &write().into(), 8);
    let verified = authorise(&scene(), &mut 0, &header, &body).expect("good");
    let reply: DriveReply = Written::new(write().stamp, false).into();
    let body = verified.seal.seal(Generation(8), &reply, 0);
    let header = FrameHeader::new(reply.kind(), 1, &body, 0);
    let (head, opened) = asked.open(&header, &body).expect("the drive's own");
    assert_eq!((head.g, opened), (Generation(8), reply));
    for bit in 0..body.len() * 8 {
        let mut body = body.clone();
        body[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(asked.open(&header, &body), Err(ReplyError::Forged), "bit {bit}");
    }
    for bit in 0..16 {
        let header = FrameHeader { kind: header.kind ^ 1 << bit, ..header };
        assert_eq!(asked.open(&header, &body), Err(ReplyError::Forged), "kind, bit {bit}");
    }
    let longer = FrameHeader { payload_bytes: 1, ..header };
    assert_eq!(asked.open(&longer, &body), Err(ReplyError::Forged));
    let other = FrameHeader { request: 2, ..header };
    assert_eq!(asked.open(&other, &body), Err(ReplyError::Request { found: 2, expected: 1 }));
}

/// Replays a recorded connection to the same client with the same capability. The nonce is new, so every
/// reply is refused.
#[test]
fn a_recorded_reply_is_no_reply_to_another_request() {
    let (header, body, _) = sealed(capability(), &read().into(), 0);
    let verified = authorise(&scene(), &mut 0, &header, &body).expect("good");
    let reply: DriveReply = Done {}.into();
    let recorded = verified.seal.seal(Generation(8), &reply, 0);
    let header = FrameHeader::new(reply.kind(), 1, &recorded, 0);
    let mut again = Asker::new(&hello(), [7; 16]);
    let asked = again.seal(&grant(capability()), 1, &read().into(), 0, &mut Vec::new());
    assert_eq!(asked.open(&header, &recorded), Err(ReplyError::Forged));
    let mut same_nonce = Asker::new(&hello(), [6; 16]);
    let other = Read { unit: 3, ..read() };
    let asked = same_nonce.seal(&grant(capability()), 1, &other.into(), 0, &mut Vec::new());
    assert_eq!(asked.open(&header, &recorded), Err(ReplyError::Forged));
}

/// "No such object" reads as zeros, so it must carry the drive's MAC.
#[test]
fn only_harmless_refusals_go_without_proof() {
    let (mut header, body, asked) = sealed(capability(), &read().into(), 0);
    header.kind ^= 1;
    let denied = authorise(&scene(), &mut 0, &header, &body).expect_err("forged");
    for &reason in Reason::ALL {
        let reply: DriveReply = Refusal::new(reason, "no").into();
        let body = denied.seal.seal(Generation(8), &reply, 0);
        let header = FrameHeader::new(reply.kind(), 1, &body, 0);
        let harmless = [Reason::Malformed, Reason::Forged, Reason::Busy, Reason::Closing].contains(&reason);
        assert_eq!(asked.open(&header, &body).is_ok(), harmless, "{reason:?}");
    }
    let done: DriveReply = Done {}.into();
    let body = denied.seal.seal(Generation(8), &done, 0);
    assert_eq!(asked.open(&FrameHeader::new(done.kind(), 1, &body, 0), &body), Err(ReplyError::Forged));
}
