//! A capability that a connection's session keeps allows nothing that the same capability, never seen,
//! would not.

use std::cell::Cell;

use braid_layout::{Generation, ObjectId, PartitionId, TokenId};
use braid_wire::authorise::{Denied, Scene, Verified, authorise, authorise_in};
use braid_wire::capability::{Authority, Capability, Key};
use braid_wire::control::TokenNew;
use braid_wire::data::{DriveRequest, Hello};
use braid_wire::frame::FrameHeader;
use braid_wire::seal::Asker;
use braid_wire::session::Session;
use braid_wire::token::{Token, TokenRole};
use braid_wire::{Reason, Wire};

use crate::{capability, grant, hello, key_epoch, read, refused, scene, working_key};

/// Maximum number of capabilities that a session keeps.
const KNOWN_MAX: usize = 64;

type Sealed = (FrameHeader, Vec<u8>);

/// Seals a request under this capability, on the connection of `asker`.
fn seal(asker: &mut Asker, number: u64, capability: Capability) -> Sealed {
    let request = DriveRequest::from(braid_wire::data::Read {
        at: braid_wire::data::Address { partition: capability.partition, object: capability.object },
        ..read()
    });
    let mut body = Vec::new();
    let _ = asker.seal(&grant(capability), number, &request, 0, &mut body);
    (FrameHeader::new(request.kind(), number, &body, 0), body)
}

/// A session that keeps the tests' capability, and its asker, after one request.
fn acquainted() -> (Session, Asker) {
    let mut session = Session::default();
    let mut asker = Asker::new(&hello(), [6; 16]);
    let first = seal(&mut asker, 1, capability());
    assert!(authorise_in(&mut session, &scene(), &first.0, &first.1).is_ok());
    assert_eq!((session.known(), session.sequence()), (1, 1));
    (session, asker)
}

fn said(judged: &Result<Verified, Denied>) -> Result<(&Capability, &DriveRequest), (Reason, bool)> {
    match judged {
        Ok(verified) => Ok((&verified.capability, &verified.request)),
        Err(denied) => Err((denied.refusal.reason, denied.seal.is_proven())),
    }
}

#[test]
fn the_private_part_is_derived_once() {
    let derived = Cell::new(0);
    let counted = |partition: PartitionId, epoch: u32| {
        derived.set(derived.get() + 1);
        working_key(partition, epoch)
    };
    let scene = Scene { working_key: &counted, ..scene() };
    let mut session = Session::default();
    let mut asker = Asker::new(&hello(), [6; 16]);
    for number in 1..10 {
        let sealed = seal(&mut asker, number, capability());
        let verified = authorise_in(&mut session, &scene, &sealed.0, &sealed.1).expect("good");
        assert_eq!(verified.capability, capability());
    }
    assert_eq!(derived.get(), 1);
}

#[test]
fn what_is_known_is_judged_like_what_is_not() {
    let scenes: [(&str, Scene<'_>); 6] = [
        ("as before", scene()),
        ("no lease", Scene { now_ms: None, ..scene() }),
        ("just before it expires", Scene { now_ms: Some(1_999), ..scene() }),
        ("expired", Scene { now_ms: Some(2_000), ..scene() }),
        (
            "another connection",
            Scene { binding: Hello { challenge: [1; 16], ..hello() }.binding(), ..scene() },
        ),
        ("another drive", Scene { drive: crate::SISTER, ..scene() }),
    ];
    for (what, scene) in scenes {
        let (mut session, mut asker) = acquainted();
        let next = seal(&mut asker, 2, capability());
        let known = authorise_in(&mut session, &scene, &next.0, &next.1);
        let unknown = authorise(&scene, &mut 1, &next.0, &next.1);
        assert_eq!(said(&known), said(&unknown), "{what}");
    }
}

#[test]
fn no_bit_of_a_request_under_a_known_capability_can_be_changed() {
    let (mut session, mut asker) = acquainted();
    let (header, body) = seal(&mut asker, 2, capability());
    for bit in 0..8 * body.len() {
        let mut altered = body.clone();
        altered[bit / 8] ^= 1 << (bit % 8);
        let denied = authorise_in(&mut session, &scene(), &header, &altered).expect_err("altered");
        assert!(matches!(denied.refusal.reason, Reason::Forged | Reason::Malformed), "bit {bit}");
        assert!(!denied.seal.is_proven());
    }
    for cut in [0, Capability::BYTES_MIN, Authority::BYTES_MIN - 1] {
        let denied = authorise_in(&mut session, &scene(), &header, &body[..cut]).expect_err("cut");
        assert_eq!(denied.refusal.reason, Reason::Malformed);
    }
    assert_eq!((session.known(), session.sequence()), (1, 1), "what is not proved leaves no trace");
    assert!(authorise_in(&mut session, &scene(), &header, &body).is_ok());
    // The same request again is a replay, and so is one that came before it.
    let again = authorise_in(&mut session, &scene(), &header, &body);
    assert_eq!(said(&again), Err((Reason::Replayed, true)));
}

#[test]
fn it_goes_with_its_key_and_its_time() {
    let later = |_: PartitionId| Some(7);
    let gone = |_: PartitionId| None;
    let over: [(Reason, Scene<'_>); 3] = [
        (Reason::StaleKey, Scene { key_epoch: &later, ..scene() }),
        (Reason::NoPartition, Scene { key_epoch: &gone, ..scene() }),
        (Reason::Expired, Scene { now_ms: Some(3_000), ..scene() }),
    ];
    for (reason, scene) in over {
        let (mut session, mut asker) = acquainted();
        for number in 2..4 {
            let next = seal(&mut asker, number, capability());
            assert_eq!(refused(authorise_in(&mut session, &scene, &next.0, &next.1)), reason);
            assert_eq!(session.known(), 0, "{reason:?}");
        }
    }
    // One epoch later both keys are in force.
    let rotated = |partition| key_epoch(partition).map(|epoch| epoch + 1);
    let (mut session, mut asker) = acquainted();
    let next = seal(&mut asker, 2, capability());
    let scene = Scene { key_epoch: &rotated, ..scene() };
    assert!(authorise_in(&mut session, &scene, &next.0, &next.1).is_ok());
}

#[test]
fn a_capability_of_another_generation_is_another() {
    let (mut session, mut asker) = acquainted();
    let raised = Capability { g: Generation(9), ..capability() };
    let next = seal(&mut asker, 2, raised.clone());
    let verified = authorise_in(&mut session, &scene(), &next.0, &next.1).expect("good");
    assert_eq!(verified.capability, raised);
    assert_eq!(session.known(), 2);
    let old = seal(&mut asker, 3, capability());
    let verified = authorise_in(&mut session, &scene(), &old.0, &old.1).expect("its object decides");
    assert_eq!(verified.capability, capability());
}

#[test]
fn what_is_known_is_bounded() {
    let mut session = Session::default();
    let mut asker = Asker::new(&hello(), [6; 16]);
    for number in 1..=1000 {
        let of_object = Capability { object: ObjectId(number % 300 + 1), ..capability() };
        let sealed = seal(&mut asker, number, of_object.clone());
        let verified = authorise_in(&mut session, &scene(), &sealed.0, &sealed.1).expect("good");
        assert_eq!(verified.capability, of_object);
        assert!(session.known() <= KNOWN_MAX);
    }
    assert!(session.known() > KNOWN_MAX / 2, "they are spread: {}", session.known());
}

#[test]
fn no_debug_form_shows_a_secret() {
    let secret = Key::new([0x5a; 32]);
    let token = Token::lasting(TokenRole::Client, [0; 32], TokenId(1), secret.clone());
    let made = TokenNew {
        name: "film".into(),
        id: TokenId(1),
        secret: secret.clone(),
        role: TokenRole::Client,
        volumes: None,
        below: Vec::new(),
        user: None,
        read_only: false,
        lasts_s: 0,
    };
    let said = format!("{secret:?} {token:?} {made:?} {:?}", grant(capability()));
    assert!(
        said.contains("secret") && !said.contains("90, 90") && !said.to_lowercase().contains("5a5a"),
        "{said}"
    );
}
