//! Long paths, and those whose length changes.

use braid_datagram::{Config, EndReason, Event, Packet, Refused};

use crate::world::{ACCEPTOR, Flying, IDENTITY, MILLISECOND, OPENER, Path, SECOND, World, secret};

const POLICIES: [&str; 6] = ["stop-and-wait", "window-4", "go-back-n", "selective-repeat", "credit", "cubic"];

fn config(policy: &str) -> Config {
    Config { policy: policy.parse().unwrap(), ..Config::default() }
}

fn long(rtt_ms: u64) -> Path {
    Path { delay_ns: rtt_ms * MILLISECOND / 2, ..Path::default() }
}

fn is_there(world: &World) -> bool {
    world.received.iter().all(|received| received.contains_key(&0))
}

#[test]
fn a_connection_opens_and_delivers_whatever_the_round_trip_is() {
    for policy in POLICIES {
        for rtt_ms in [0, 20, 99, 101, 150, 300, 700, 1000, 2000] {
            let mut world = World::new(&config(policy), long(rtt_ms), 1);
            assert!(world.open(), "{policy}, {rtt_ms} ms: {:?}", world.events);
            for end in [OPENER, ACCEPTOR] {
                world.ends[end].send(world.id(end), 0, vec![1; 20_000].into()).unwrap();
            }
            assert!(world.run_until(60 * SECOND, is_there), "{policy}, {rtt_ms} ms: {:?}", world.events);
            // Opens and probes of the length are a part of it.
            let sent: u64 = world.sent_to.values().sum();
            assert!(sent < 120_000, "{policy}, {rtt_ms} ms: {sent} bytes for 40000");
        }
    }
}

#[test]
fn a_long_path_that_loses_is_opened_too() {
    for rtt_ms in [10, 150, 400, 1000] {
        for seed in 0..40 {
            let mut world = World::new(&config("cubic"), Path { lost: 100, ..long(rtt_ms) }, seed);
            assert!(world.open(), "{rtt_ms} ms, seed {seed}: {:?}", world.events);
        }
    }
}

#[test]
fn a_path_that_becomes_long_is_followed() {
    for policy in POLICIES {
        let mut world = World::new(&config(policy), long(1), 1);
        assert!(world.open());
        world.run_for(SECOND);
        world.path.delay_ns = 400 * MILLISECOND;
        for end in [OPENER, ACCEPTOR] {
            world.ends[end].send(world.id(end), 0, vec![1; 100_000].into()).unwrap();
        }
        assert!(world.run_until(60 * SECOND, is_there), "{policy}: {:?}", world.events);
    }
}

/// A datagram that counts as lost and arrives all the same is not sent again.
#[test]
fn go_back_n_spares_what_has_arrived() {
    let rate = 12_500_000;
    let path = Path { lost: 10, link: Some((rate, 1 << 20)), longest: 1472, ..long(10) };
    let mut world = World::new(&config("go-back-n"), path, 1);
    assert!(world.open());
    let id = world.id(OPENER);
    let begun = world.sent_to[&world.addresses[ACCEPTOR]];
    for _ in 0..20 {
        world.ends[OPENER].send(id, 0, vec![1; 100_000].into()).unwrap();
    }
    assert!(world.run_until(60 * SECOND, |world| {
        world.received[ACCEPTOR].get(&0).is_some_and(|all| all.len() == 20)
    }));
    let sent = world.sent_to[&world.addresses[ACCEPTOR]] - begun;
    assert!(sent < 2_400_000, "{sent} bytes for 2000000");
}

#[test]
fn what_others_say_of_the_acceptor_does_not_stop_the_opener() {
    for lie in 0..4 {
        let mut world = World::new(&config("cubic"), long(40), 1);
        world.recorded = Some(Vec::new());
        let peer = world.addresses[ACCEPTOR];
        world.ids[OPENER] = Some(world.ends[OPENER].open(world.now_ns, peer, IDENTITY, secret()));
        world.run_for(if lie == 3 { 45 * MILLISECOND } else { MILLISECOND });
        let opens = world.recorded.take().unwrap();
        let Some(Packet::Open(open)) = Packet::parse(&opens[0].bytes) else { panic!("an Open comes first") };
        let to = open.from;
        let lies = match lie {
            0 => (0..9).map(|number| Packet::Retry { to, cookie: [number; 24] }).collect(),
            1 => vec![Packet::Versions { to, min: 7, max: 9 }],
            2 => vec![Packet::Refused { to, why: Refused::Unproved }],
            _ => vec![Packet::Refused { to, why: Refused::Busy }],
        };
        for packet in lies {
            let to = world.addresses[OPENER];
            let ecn = braid_datagram::Ecn::Unaware;
            world.deliver(Flying { from: peer, to, ecn, bytes: packet.emit() });
        }
        assert!(
            world.run_until(SECOND, |world| world.events[OPENER]
                .iter()
                .any(|event| matches!(event, Event::Opened(_)))),
            "lie {lie}: {:?}",
            world.events[OPENER]
        );
    }
}

/// An opener that only looks whether somebody answers learns it in two round trips: no time is added.
#[test]
fn a_refusal_is_believed_at_once_by_who_asks_for_that() {
    let asks = Config { believes_refusals: true, ..Config::default() };
    for rtt_ms in [2, 40, 400] {
        let mut world = World::between([asks.clone(), Config::default()], long(rtt_ms), 1);
        let peer = world.addresses[ACCEPTOR];
        let begun_ns = world.now_ns;
        world.ends[OPENER].open(begun_ns, peer, b"nobody", secret());
        assert!(world.run_until(10 * SECOND, |world| !world.events[OPENER].is_empty()));
        let took_ns = world.now_ns - begun_ns;
        let round_trips_ns = 2 * rtt_ms * MILLISECOND;
        assert!((round_trips_ns..=round_trips_ns + MILLISECOND).contains(&took_ns), "{rtt_ms}: {took_ns} ns");
    }
}

#[test]
fn a_refusal_is_believed_soon_if_nothing_speaks_against_it() {
    let full = Config { connections: 0, ..Config::default() };
    for rtt_ms in [0, 40, 400] {
        let mut world = World::between([Config::default(), full.clone()], long(rtt_ms), 1);
        let peer = world.addresses[ACCEPTOR];
        let id = world.ends[OPENER].open(world.now_ns, peer, IDENTITY, secret());
        world.run_for(2 * SECOND);
        assert_eq!(
            world.events[OPENER],
            [Event::Ended(id, EndReason::Refused(Refused::Busy))],
            "{rtt_ms} ms"
        );
    }
}
