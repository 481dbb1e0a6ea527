//! What forgers, repeaters and floods come to.

use std::net::SocketAddr;

use braid_datagram::format::{OPEN_BYTES_MIN, VERSION};
use braid_datagram::{Config, Ecn, EndReason, Endpoint, Event, Open, Packet, Refused, Secret, Settings};

use crate::world::{ACCEPTOR, Flying, MILLISECOND, OPENER, Path, SECOND, World, secret_of};

fn acceptor() -> Endpoint {
    Endpoint::new(Config::default(), true, [2; 32])
}

fn open(from: u32, cookie: [u8; 24]) -> Vec<u8> {
    let settings = Settings::default();
    let open = Open { from, settings, nonce: [3; 32], cookie, proof: [4; 16], identity: b"client 1" };
    Packet::Open(open).emit()
}

/// The answers to one datagram, which are never longer than it.
fn answers(endpoint: &mut Endpoint, from: &str, mut bytes: Vec<u8>) -> Vec<Vec<u8>> {
    let from: SocketAddr = from.parse().unwrap();
    let asked = bytes.len();
    endpoint.handle_datagram(SECOND, from, Ecn::Unaware, &mut bytes, &mut secret_of);
    let mut all = Vec::new();
    let mut out = Vec::new();
    while let Some(transmit) = endpoint.poll_transmit(SECOND, &mut out) {
        assert_eq!(transmit.to, from);
        all.push(std::mem::take(&mut out));
    }
    assert!(all.iter().map(Vec::len).sum::<usize>() <= asked);
    all
}

#[test]
fn a_flood_of_opens_takes_no_memory_and_no_connection() {
    let mut endpoint = acceptor();
    for from in 0..5000 {
        let answers = answers(&mut endpoint, "10.9.0.1:5", open(from, [0; 24]));
        assert!(matches!(Packet::parse(&answers[0]), Some(Packet::Retry { to, .. }) if to == from));
    }
    assert_eq!((endpoint.connections(), endpoint.next_deadline()), (0, None));
}

#[test]
fn a_proved_address_without_the_secret_is_refused_and_kept_by_nobody() {
    let mut endpoint = acceptor();
    let retry = answers(&mut endpoint, "10.9.0.1:5", open(7, [0; 24])).remove(0);
    let Some(Packet::Retry { cookie, .. }) = Packet::parse(&retry) else { panic!("{retry:?}") };
    let refused = answers(&mut endpoint, "10.9.0.1:5", open(7, cookie)).remove(0);
    assert_eq!(Packet::parse(&refused), Some(Packet::Refused { to: 7, why: Refused::Unproved }));
    // The cookie is of no use at another address.
    let elsewhere = answers(&mut endpoint, "10.9.0.2:5", open(7, cookie)).remove(0);
    assert!(matches!(Packet::parse(&elsewhere), Some(Packet::Retry { .. })));
    assert_eq!(endpoint.connections(), 0);
}

#[test]
fn what_is_short_foreign_or_of_another_version_is_dropped_or_answered_shortly() {
    let mut endpoint = acceptor();
    let from = "10.9.0.1:5";
    let mut short = open(7, [0; 24]);
    short.truncate(OPEN_BYTES_MIN - 1);
    for nothing in [short, vec![], vec![0xb7; 24], vec![0; 2000], b"BRID".to_vec()] {
        assert!(answers(&mut endpoint, from, nothing).is_empty());
    }
    let mut later = open(7, [0; 24]);
    later[1] = VERSION + 1;
    let answer = answers(&mut endpoint, from, later).remove(0);
    assert_eq!(Packet::parse(&answer), Some(Packet::Versions { to: 7, min: VERSION, max: VERSION }));
    let unknown = answers(&mut endpoint, from, vec![0xb7; 25]).remove(0);
    assert!(matches!(Packet::parse(&unknown), Some(Packet::Unknown { of: 0xb7b7_b7b7 })));
}

#[test]
fn an_opener_says_why_it_was_refused() {
    let mut world = World::new(&Config::default(), Path::default(), 1);
    let peer = world.addresses[ACCEPTOR];
    world.ids[OPENER] = Some(world.ends[OPENER].open(world.now_ns, peer, b"nobody", Secret::new([0; 32])));
    world.run_for(SECOND);
    let id = world.id(OPENER);
    assert_eq!(world.events[OPENER], [Event::Ended(id, EndReason::Refused(Refused::Unproved))]);
    assert_eq!((world.ends[0].connections(), world.ends[1].connections()), (0, 0));

    let full = Config { connections: 0, ..Config::default() };
    let mut world = World::between([Config::default(), full], Path::default(), 1);
    assert!(!world.open());
    let id = world.id(OPENER);
    assert_eq!(world.events[OPENER], [Event::Ended(id, EndReason::Refused(Refused::Busy))]);
}

#[test]
fn datagrams_that_were_recorded_change_nothing_when_they_are_sent_again() {
    let mut world = World::new(&Config::default(), Path::default(), 1);
    world.recorded = Some(Vec::new());
    assert!(world.open());
    for number in 0..20u8 {
        let id = world.id(OPENER);
        world.ends[OPENER].send(id, 0, vec![number; 500].into()).unwrap();
        world.run_for(MILLISECOND);
    }
    let recorded = world.recorded.take().unwrap();
    let replay = |world: &mut World| {
        for datagram in recorded.clone() {
            world.deliver(datagram);
        }
        world.run_for(SECOND);
    };
    replay(&mut world);
    assert_eq!(world.received[ACCEPTOR][&0].len(), 20);
    assert_eq!(world.ends[ACCEPTOR].connections(), 1);
    // Nor after the connection's end, when its cookie is still good.
    for end in [OPENER, ACCEPTOR] {
        world.ends[end].release(world.now_ns, world.id(end));
    }
    world.run_for(SECOND);
    assert_eq!(world.ends[ACCEPTOR].connections(), 0);
    replay(&mut world);
    world.run_for(10 * SECOND);
    replay(&mut world);
    assert_eq!(world.ends[ACCEPTOR].connections(), 0);
    assert_eq!(world.received[ACCEPTOR][&0].len(), 20);
}

#[test]
fn an_opener_that_moves_is_followed_once_it_has_answered_from_there() {
    let mut world = World::new(&Config::default(), Path::default(), 1);
    assert!(world.open());
    world.run_for(SECOND);
    let moved: SocketAddr = "10.0.7.7:99".parse().unwrap();
    // Somebody repeats the opener's next datagram from elsewhere before it arrives itself, and more of them.
    let thief: SocketAddr = "10.6.6.6:6".parse().unwrap();
    world.recorded = Some(Vec::new());
    let id = world.id(OPENER);
    world.path.lost = 1000;
    world.ends[OPENER].send(id, 0, b"one".to_vec().into()).unwrap();
    world.run_for(MILLISECOND);
    let stolen = world.recorded.take().unwrap().remove(0);
    world.deliver(Flying { from: thief, ..stolen.clone() });
    world.path.lost = 0;
    world.run_for(SECOND);
    let acceptor = world.id(ACCEPTOR);
    assert_eq!(world.ends[ACCEPTOR].peer(acceptor), Some(world.addresses[OPENER]));
    assert!(world.sent_to[&thief] <= u64::try_from(stolen.bytes.len()).unwrap());

    world.addresses[OPENER] = moved;
    world.ends[OPENER].send(id, 0, b"two".to_vec().into()).unwrap();
    world.run_for(SECOND);
    assert_eq!(world.ends[ACCEPTOR].peer(acceptor), Some(moved));
    world.ends[ACCEPTOR].send(acceptor, 0, b"three".to_vec().into()).unwrap();
    world.run_for(SECOND);
    assert_eq!(world.received[ACCEPTOR][&0], [b"one".to_vec(), b"two".to_vec()]);
    assert_eq!(world.received[OPENER][&0], [b"three".to_vec()]);
}

#[test]
fn a_peer_that_was_restarted_is_noticed_soon_and_a_liar_does_no_harm() {
    let mut world = World::new(&Config::default(), Path::default(), 1);
    assert!(world.open());
    world.run_for(SECOND);
    let id = world.id(OPENER);
    world.ends[OPENER].handle_unreachable(world.now_ns, id);
    world.run_for(5 * SECOND);
    assert!(!world.events[OPENER].iter().any(|event| matches!(event, Event::Ended(..))));
    world.ends[ACCEPTOR] = Endpoint::new(Config::default(), true, [5; 32]);
    world.ids[ACCEPTOR] = None;
    world.ends[OPENER].send(id, 0, b"hello?".to_vec().into()).unwrap();
    world.run_for(SECOND);
    let ended = world.events[OPENER].back();
    assert!(matches!(ended, Some(Event::Ended(_, EndReason::Silent(_)))), "{ended:?}");
}
