//! How connections end, and that those do not which need not.

use std::collections::VecDeque;

use braid_datagram::{Config, EndReason, Endpoint, Event, Packet, Settings};

use crate::world::{ACCEPTOR, Flying, IDENTITY, MILLISECOND, OPENER, Path, SECOND, World, secret};

fn opened(config: &Config, path: Path) -> World {
    let mut world = World::new(config, path, 1);
    assert!(world.open());
    world
}

fn end_of(events: &VecDeque<Event>) -> Option<EndReason> {
    events.iter().find_map(|event| match event {
        Event::Ended(_, why) => Some(why.clone()),
        _ => None,
    })
}

#[test]
fn an_end_before_all_has_arrived_says_so_at_both_ends() {
    let mut world = opened(&Config::default(), Path::default());
    let id = world.id(OPENER);
    world.ends[OPENER].send(id, 0, vec![1; 2_000_000].into()).unwrap();
    world.ends[OPENER].abort(world.now_ns, id, 0, "enough");
    world.run_for(SECOND);
    assert_eq!(end_of(&world.events[OPENER]), Some(EndReason::Unfinished));
    let expected = EndReason::ClosedByPeer { code: 7, reason: "enough".to_owned() };
    assert_eq!(end_of(&world.events[ACCEPTOR]), Some(expected));

    // With nothing left to arrive, or with a code of its own, the end is as the owner says.
    let mut world = opened(&Config::default(), Path::default());
    let id = world.id(OPENER);
    world.ends[OPENER].abort(world.now_ns, id, 0, "done");
    world.run_for(SECOND);
    assert_eq!(end_of(&world.events[OPENER]), Some(EndReason::Closed));
    let expected = EndReason::ClosedByPeer { code: 0, reason: "done".to_owned() };
    assert_eq!(end_of(&world.events[ACCEPTOR]), Some(expected));
}

#[test]
fn a_close_whose_peer_takes_nothing_is_unfinished_after_a_minute() {
    let mut world = opened(&Config::default(), Path::default());
    world.takes[ACCEPTOR] = false;
    let id = world.id(OPENER);
    while world.ends[OPENER].send(id, 0, vec![0; 1 << 20].into()).is_ok() {
        world.run_for(10 * MILLISECOND);
    }
    world.ends[OPENER].close(world.now_ns, id, 0, "");
    world.run_for(59 * SECOND);
    assert_eq!(end_of(&world.events[OPENER]), None, "the peer is slow, not gone");
    world.run_for(2 * SECOND);
    assert_eq!(end_of(&world.events[OPENER]), Some(EndReason::Unfinished));
    assert!(matches!(end_of(&world.events[ACCEPTOR]), Some(EndReason::ClosedByPeer { code: 7, .. })));
}

/// The connection is there until its own messages have arrived, and holds no memory for what nobody takes.
#[test]
fn what_comes_is_not_kept_once_the_owner_is_gone() {
    let mut world = opened(&Config::default(), Path::default());
    world.takes = [false; 2];
    let opener = world.id(OPENER);
    let acceptor = world.id(ACCEPTOR);
    while world.ends[ACCEPTOR].send(acceptor, 0, vec![0; 1 << 20].into()).is_ok() {
        world.run_for(10 * MILLISECOND);
    }
    for is_gone in [false, true, true] {
        world.ends[OPENER].send(opener, 0, vec![1; 1000].into()).unwrap();
        world.run_for(SECOND);
        if is_gone {
            world.ends[ACCEPTOR].release(world.now_ns, acceptor);
        }
        assert!(world.ends[ACCEPTOR].has(acceptor));
        assert_eq!(world.ends[ACCEPTOR].receive(acceptor, 0).is_none(), is_gone);
    }
}

#[test]
fn a_close_that_is_lost_is_said_again() {
    let mut world = opened(&Config::default(), Path::default());
    world.run_for(SECOND);
    let id = world.id(OPENER);
    world.path.lost = 1000;
    world.ends[OPENER].close(world.now_ns, id, 3, "bye");
    world.pump();
    world.path.lost = 0;
    world.run_for(SECOND);
    let expected = EndReason::ClosedByPeer { code: 3, reason: "bye".to_owned() };
    assert_eq!(end_of(&world.events[ACCEPTOR]), Some(expected));
}

#[test]
fn who_has_not_heard_of_an_end_asks_and_learns_it() {
    for end in [OPENER, ACCEPTOR] {
        let mut world = opened(&Config::default(), Path::default());
        world.run_for(SECOND);
        world.path.lost = 1000;
        world.ends[end].release(world.now_ns, world.id(end));
        world.run_for(SECOND / 2);
        world.path.lost = 0;
        world.run_for(4 * SECOND);
        let why = end_of(&world.events[1 - end]);
        assert!(matches!(why, Some(EndReason::Silent(_))), "{why:?}, long before 10 s are over");
    }
}

#[test]
fn an_opener_learns_that_the_acceptor_ends_what_it_has_just_accepted() {
    let mut world = World::new(&Config::default(), Path::default(), 1);
    let peer = world.addresses[ACCEPTOR];
    world.ids[OPENER] = Some(world.ends[OPENER].open(world.now_ns, peer, IDENTITY, secret()));
    world.aborts = Some("not now");
    world.run_for(SECOND);
    let expected = EndReason::ClosedByPeer { code: 0, reason: "not now".to_owned() };
    assert_eq!(end_of(&world.events[OPENER]), Some(expected));
}

#[test]
fn a_long_reason_is_cut_where_a_letter_ends() {
    let mut world = opened(&Config::default(), Path::default());
    let id = world.id(OPENER);
    world.ends[OPENER].close(world.now_ns, id, 3, &format!("x{}", "é".repeat(150)));
    world.run_for(SECOND);
    let expected = EndReason::ClosedByPeer { code: 3, reason: format!("x{}", "é".repeat(99)) };
    assert_eq!(end_of(&world.events[ACCEPTOR]), Some(expected));
}

#[test]
fn a_connection_that_is_opening_can_be_closed() {
    let mut world = World::new(&Config::default(), Path { lost: 1000, ..Path::default() }, 1);
    let peer = world.addresses[ACCEPTOR];
    let id = world.ends[OPENER].open(world.now_ns, peer, b"", secret());
    world.ids[OPENER] = Some(id);
    world.ends[OPENER].close(world.now_ns, id, 0, "");
    world.run_for(MILLISECOND);
    assert_eq!(end_of(&world.events[OPENER]), Some(EndReason::Closed));
    assert_eq!(world.ends[OPENER].connections(), 0);
}

/// Sends a short message each 20 ms while a long one is on its way, for at most 30 s.
fn talk_beside(world: &mut World) {
    let id = world.id(OPENER);
    let until_ns = world.now_ns + 30 * SECOND;
    let is_over =
        |world: &World| world.received[ACCEPTOR].contains_key(&0) || end_of(&world.events[OPENER]).is_some();
    while world.now_ns < until_ns && !is_over(world) {
        // It is refused once the connection is at its end.
        let _ = world.ends[OPENER].send(id, 1, b"short".to_vec().into());
        world.run_for(20 * MILLISECOND);
    }
}

#[test]
fn a_path_that_swallows_what_is_long_is_noticed_though_what_is_short_arrives() {
    for policy in ["stop-and-wait", "window-4", "go-back-n", "selective-repeat", "credit", "cubic"] {
        let config = Config { policy: policy.parse().unwrap(), ..Config::default() };
        let mut world = opened(&config, Path { delay_ns: 5 * MILLISECOND, ..Path::default() });
        world.run_for(SECOND);
        let id = world.id(OPENER);
        assert_eq!(world.ends[OPENER].path(id).unwrap().1, 8972);
        world.path.longest = 1300;
        world.ends[OPENER].send(id, 0, vec![1; 100_000].into()).unwrap();
        talk_beside(&mut world);
        assert!(world.received[ACCEPTOR].contains_key(&0), "{policy}: {:?}", world.events[OPENER]);
        assert!(world.received[ACCEPTOR][&1].len() < 250, "{policy}: it took 5 s");
    }
}

#[test]
fn a_stream_whose_bytes_never_arrive_ends_the_connection_though_others_do() {
    for policy in ["window-4", "go-back-n", "credit", "cubic"] {
        let config = Config { policy: policy.parse().unwrap(), ..Config::default() };
        let mut world = opened(&config, Path { delay_ns: 5 * MILLISECOND, ..Path::default() });
        world.run_for(SECOND);
        world.path.longest = 900;
        let id = world.id(OPENER);
        world.ends[OPENER].send(id, 0, vec![1; 100_000].into()).unwrap();
        talk_beside(&mut world);
        let why = end_of(&world.events[OPENER]);
        assert!(matches!(why, Some(EndReason::Stuck(_))), "{policy}: {why:?}");
    }
}

#[test]
fn a_window_that_comes_late_is_out_of_date() {
    let config = Config { policy: "credit".parse().unwrap(), ..Config::default() };
    let mut world = opened(&config, Path { delay_ns: 10 * MILLISECOND, ..Path::default() });
    world.run_for(SECOND);
    let acceptor = world.id(ACCEPTOR);
    world.recorded = Some(Vec::new());
    world.path.lost = 1000;
    world.ends[ACCEPTOR].set_window(acceptor, 1);
    world.pump();
    let late = world.recorded.take().unwrap();
    world.path.lost = 0;
    world.ends[ACCEPTOR].set_window(acceptor, 1 << 20);
    world.run_for(SECOND);
    late.into_iter().for_each(|datagram| world.deliver(datagram));
    let id = world.id(OPENER);
    world.ends[OPENER].send(id, 0, vec![1; 800_000].into()).unwrap();
    let is_there = |world: &World| world.received[ACCEPTOR].contains_key(&0);
    assert!(world.run_until(200 * MILLISECOND, is_there), "at a datagram in 20 ms it takes 2 s");
}

#[test]
fn a_doubt_on_a_long_path_ends_nothing() {
    let mut world = opened(&Config::default(), Path::default());
    world.path.delay_ns = 400 * MILLISECOND;
    // Both learn of the round trip while they are idle.
    world.run_for(9 * SECOND);
    let id = world.id(OPENER);
    world.ends[OPENER].handle_unreachable(world.now_ns, id);
    world.run_for(5 * SECOND);
    assert_eq!(end_of(&world.events[OPENER]), None);
}

/// Datagrams that an end sends in answer to an Unknown.
fn answers_to_unknown(end: &mut Endpoint, now_ns: u64, from: &str, of: u32) -> usize {
    let mut unknown = Packet::Unknown { of }.emit();
    let none = &mut |_: &[u8]| None;
    end.handle_datagram(now_ns, from.parse().unwrap(), braid_datagram::Ecn::Unaware, &mut unknown, none);
    let mut out = Vec::new();
    std::iter::from_fn(|| end.poll_transmit(now_ns, &mut out)).count()
}

#[test]
fn an_unknown_is_believed_of_the_peers_address_and_number_alone_wherever_the_peer_is() {
    let mut world = opened(&Config::default(), Path::default());
    world.run_for(SECOND);
    world.recorded = Some(Vec::new());
    world.ends[ACCEPTOR].set_window(world.id(ACCEPTOR), 1 << 20);
    world.run_for(SECOND);
    let recorded = world.recorded.take().unwrap();
    let to = recorded.iter().find_map(|Flying { to, bytes, .. }| match Packet::parse(bytes) {
        Some(Packet::Data { to: of, .. }) if *to == world.addresses[OPENER] => Some(of),
        _ => None,
    });
    let of = to.expect("the acceptor has sent a Data");
    let now_ns = world.now_ns;
    let acceptor = &mut world.ends[ACCEPTOR];
    assert_eq!(answers_to_unknown(acceptor, now_ns, "10.0.0.1:1000", of ^ 1), 0);
    assert_eq!(answers_to_unknown(acceptor, now_ns, "10.0.0.1:1001", of), 0);
    assert_eq!(answers_to_unknown(acceptor, now_ns, "10.0.0.1:1000", of), 1);
    world.addresses[OPENER] = "10.0.9.9:5".parse().unwrap();
    world.ends[OPENER].send(world.id(OPENER), 0, b"moved".to_vec().into()).unwrap();
    world.run_for(SECOND);
    let now_ns = world.now_ns;
    let acceptor = &mut world.ends[ACCEPTOR];
    assert_eq!(answers_to_unknown(acceptor, now_ns, "10.0.0.1:1000", of), 0);
    assert_eq!(answers_to_unknown(acceptor, now_ns, "10.0.9.9:5", of), 1);
}

#[test]
#[should_panic(expected = "peers refuse such settings")]
fn settings_that_no_peer_takes_are_refused() {
    let settings = Settings { window_bytes: 4, ..Settings::default() };
    Endpoint::new(Config { settings, ..Config::default() }, false, [0; 32]);
}
