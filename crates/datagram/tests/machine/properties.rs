//! Whatever the path does: each message arrives once, whole, in its stream's order, or the connection ends
//! in a bounded time.

use std::collections::BTreeMap;

use braid_datagram::policy::Kind;
use braid_datagram::{Config, EndReason, Event, Refused, SendError, Settings};
use proptest::prelude::*;

use crate::world::{ACCEPTOR, MILLISECOND, OPENER, Path, SECOND, World};

const POLICIES: [&str; 6] = ["stop-and-wait", "window-4", "go-back-n", "selective-repeat", "credit", "cubic"];

fn policy() -> impl Strategy<Value = Kind> {
    prop::sample::select(POLICIES.to_vec()).prop_map(|name| name.parse().unwrap())
}

fn path() -> impl Strategy<Value = Path> {
    let chances = (0..300u64, 0..300u64, 0..200u64);
    (chances, 0..5_000_000u64, 0..5_000_000u64, prop::option::of(50_000..20_000_000u64)).prop_map(
        |((lost, repeated, changed), delay_ns, jitter_ns, rate)| Path {
            lost,
            repeated,
            changed,
            delay_ns,
            jitter_ns,
            link: rate.map(|rate| (rate, 40_000)),
            longest: 1472,
            ..Path::default()
        },
    )
}

fn bad_path() -> impl Strategy<Value = Path> {
    let chances = (0..600u64, 0..300u64, 0..300u64);
    let link = prop::option::of((10_000..5_000_000u64, 2_000..40_000u64));
    let marks = prop::option::of(0..20_000u64);
    let longest = prop::sample::select(vec![1472, 1300, 1200]);
    (chances, 0..700u64, 0..300u64, link, marks, any::<bool>(), longest).prop_map(
        |((lost, repeated, changed), delay_ms, jitter_ms, link, marks, eats_capable, longest)| Path {
            lost,
            repeated,
            changed,
            delay_ns: delay_ms * MILLISECOND,
            jitter_ns: jitter_ms * MILLISECOND,
            link,
            longest,
            marks,
            eats_capable,
        },
    )
}

/// A message: its stream, its length, and the end that sends it.
type Planned = (u16, usize, bool);

fn config(policy: Kind, window_bytes: u32) -> Config {
    let settings = Settings { streams: 3, datagram_bytes_max: 1472, window_bytes };
    Config { settings, policy, unacked_bytes_max: 3000, ..Config::default() }
}

/// The content of a message: no two are the same.
fn message(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((number * 31 + at) % 251).expect("below 251")).collect()
}

/// Sends the messages as there is room, and takes at most `pace` at a time if the owners are slow. Returns
/// what was sent by each end on each stream.
fn exchange(world: &mut World, planned: &[Planned], pace: Option<usize>) -> [BTreeMap<u16, Vec<Vec<u8>>>; 2] {
    let mut sent: [BTreeMap<u16, Vec<Vec<u8>>>; 2] = Default::default();
    let until_ns = world.now_ns + 600 * SECOND;
    let mut left: Vec<(usize, Planned)> = planned.iter().copied().enumerate().collect();
    world.takes = [pace.is_none(); 2];
    let is_whole = |world: &World, sent: &[BTreeMap<u16, Vec<Vec<u8>>>; 2]| {
        let count = |all: &BTreeMap<u16, Vec<Vec<u8>>>| all.values().map(Vec::len).sum::<usize>();
        count(&world.received[ACCEPTOR]) == count(&sent[OPENER])
            && count(&world.received[OPENER]) == count(&sent[ACCEPTOR])
    };
    while world.now_ns < until_ns && !has_ended(world) && !(left.is_empty() && is_whole(world, &sent)) {
        let mut full = Vec::new();
        left.retain(|&(number, (stream, length, from_opener))| {
            let end = if from_opener { OPENER } else { ACCEPTOR };
            if full.contains(&(end, stream)) {
                return true;
            }
            let content = message(number, length);
            let id = world.id(end);
            match world.ends[end].send(id, stream, content.clone().into()) {
                Ok(()) => {
                    sent[end].entry(stream).or_default().push(content);
                    false
                }
                Err(SendError::Full { .. } | SendError::Ended) => {
                    full.push((end, stream));
                    true
                }
                Err(error) => panic!("{error}"),
            }
        });
        world.run_until(20 * MILLISECOND, |_| false);
        if let Some(pace) = pace {
            world.take_messages(OPENER, pace);
            world.take_messages(ACCEPTOR, pace);
        }
    }
    sent
}

fn has_ended(world: &World) -> bool {
    world.events.iter().flatten().any(|event| matches!(event, Event::Ended(..)))
}

fn ends(world: &World) -> Vec<EndReason> {
    let reason = |event: &Event| match event {
        Event::Ended(_, why) => Some(why.clone()),
        _ => None,
    };
    world.events.iter().flatten().filter_map(reason).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn each_message_arrives_once_in_order_and_unchanged(
        policy in policy(),
        path in path(),
        planned in prop::collection::vec((0..3u16, 0..6000usize, any::<bool>()), 0..60),
        seed in any::<u64>(),
    ) {
        let mut world = World::new(&config(policy, 16_384), path.clone(), seed);
        if !world.open() {
            // With so many losses a handshake may fail, but it says so.
            world.run_for(5 * SECOND);
            // An Open that was changed on its way proves nothing.
            let is_changed = |why: &EndReason| path.changed > 0 && *why == EndReason::Refused(Refused::Unproved);
            let why = ends(&world);
            prop_assert!(why.iter().any(|why| *why == EndReason::NotOpened || is_changed(why)), "{why:?}");
            return Ok(());
        }
        let sent = exchange(&mut world, &planned, None);
        prop_assert_eq!(&world.received[ACCEPTOR], &sent[OPENER]);
        prop_assert_eq!(&world.received[OPENER], &sent[ACCEPTOR]);
        prop_assert_eq!(ends(&world), vec![]);
        prop_assert_eq!(sent.iter().flat_map(|sent| sent.values()).flatten().count(), planned.len());
        // Both ends learn the connection's end, and nothing is left of it.
        for stream in 0..3 {
            world.ends[OPENER].finish(world.ids[OPENER].unwrap(), stream).unwrap();
        }
        world.ends[OPENER].close(world.now_ns, world.ids[OPENER].unwrap(), 0, "done");
        prop_assert!(world.run_until(120 * SECOND, |world| ends(world).len() == 2), "{:?}", world.events);
        world.finished[ACCEPTOR].sort_unstable();
        prop_assert_eq!(&world.finished[ACCEPTOR], &[0, 1, 2]);
        for end in [OPENER, ACCEPTOR] {
            world.ends[end].release(world.now_ns, world.ids[end].unwrap());
        }
        world.run_for(20 * SECOND);
        prop_assert_eq!([world.ends[0].connections(), world.ends[1].connections()], [0, 0]);
        prop_assert_eq!([world.ends[0].next_deadline(), world.ends[1].next_deadline()], [None, None]);
    }

    /// Owners that take little at a time, windows of a few datagrams, messages as long as the window lets
    /// them be: credit always comes.
    #[test]
    fn no_credit_is_waited_for_in_vain(
        policy in policy(),
        lost in 0..200u64,
        pace in 1..3usize,
        planned in prop::collection::vec((0..3u16, 0..=2044usize, any::<bool>()), 0..40),
        seed in any::<u64>(),
    ) {
        let path = Path { lost, jitter_ns: MILLISECOND, ..Path::default() };
        let mut world = World::new(&config(policy, 4096), path, seed);
        prop_assume!(world.open());
        let sent = exchange(&mut world, &planned, Some(pace));
        prop_assert_eq!(&world.received[ACCEPTOR], &sent[OPENER]);
        prop_assert_eq!(&world.received[OPENER], &sent[ACCEPTOR]);
        prop_assert_eq!(sent.iter().flat_map(|sent| sent.values()).flatten().count(), planned.len());
    }

    /// Whatever else the path does, the messages that come are those that were sent, in their order, and all
    /// of them, or both ends learn that they will not be, in a bounded time.
    #[test]
    fn on_bad_paths_all_arrives_or_both_ends_learn_in_time_that_it_does_not(
        policy in policy(),
        path in bad_path(),
        moves in prop::collection::vec(0..4_000u64, 0..4),
        planned in prop::collection::vec((0..3u16, 0..6000usize, any::<bool>()), 1..40),
        pace in prop::option::of(1..4usize),
        seed in any::<u64>(),
    ) {
        let mut world = World::new(&config(policy, 16_384), path, seed);
        if world.open() {
            let mut moves: Vec<u64> = moves.iter().map(|at| world.now_ns + at * MILLISECOND).collect();
            moves.sort_unstable();
            world.moves = moves.into();
            let sent = exchange(&mut world, &planned, pace);
            for end in [OPENER, ACCEPTOR] {
                for (stream, received) in &world.received[end] {
                    let sent = sent[1 - end].get(stream).map_or(&[][..], |sent| sent);
                    prop_assert!(sent.starts_with(received), "stream {stream} of {end}");
                }
            }
            let is_all = sent.iter().flat_map(|sent| sent.values()).flatten().count() == planned.len()
                && world.received[ACCEPTOR] == sent[OPENER] && world.received[OPENER] == sent[ACCEPTOR];
            if is_all {
                return Ok(());
            }
            prop_assert!(has_ended(&world), "something waits for ever");
        }
        // Silence and the handshake have 10 s each.
        world.run_for(21 * SECOND);
        for end in [OPENER, ACCEPTOR] {
            let has_ended = world.events[end].iter().any(|event| matches!(event, Event::Ended(..)));
            prop_assert!(has_ended || world.ids[end].is_none(), "{end}: {:?}", world.events);
        }
    }

    /// The path breaks at any moment: both ends say so in a bounded time.
    #[test]
    fn a_peer_that_vanishes_is_noticed(policy in policy(), after_ns in 0..20_000_000u64, seed in any::<u64>()) {
        let mut world = World::new(&config(policy, 16_384), Path::default(), seed);
        prop_assert!(world.open());
        for end in [OPENER, ACCEPTOR] {
            world.ends[end].send(world.ids[end].unwrap(), 0, vec![1; 8000].into()).unwrap();
        }
        world.run_for(after_ns);
        world.path.lost = 1000;
        // A handshake that has not ended has 10 s, and so has silence.
        world.run_for(21 * SECOND);
        let ends = ends(&world);
        prop_assert!(ends.len() == 2, "{ends:?}");
        for why in ends {
            prop_assert!(matches!(why, EndReason::Silent(_) | EndReason::Stuck(_) | EndReason::NotOpened), "{why}");
        }
    }
}
