//! What the policies make of links, on the virtual clock.

use braid_datagram::{Config, Event, SendError, Settings};

use crate::world::{ACCEPTOR, MILLISECOND, OPENER, Path, SECOND, World};

/// 100 Mbit/s, in bytes per second.
const RATE: u64 = 12_500_000;

fn config(policy: &str) -> Config {
    let settings = Settings { streams: 1, datagram_bytes_max: 1472, window_bytes: 1 << 20 };
    Config { settings, policy: policy.parse().unwrap(), ..Config::default() }
}

/// The share of the link's bytes that are messages' bytes, over some seconds.
fn share(config: &Config, path: Path, receiver_window: Option<u64>) -> f64 {
    let rate = path.link.expect("a link has a rate").0;
    let mut world = World::new(config, path, 1);
    assert!(world.open());
    if let Some(bytes) = receiver_window {
        world.ends[ACCEPTOR].set_window(world.id(ACCEPTOR), bytes);
    }
    let seconds = 4;
    let bytes = fill(&mut world, seconds * SECOND);
    bytes as f64 / (seconds * rate) as f64
}

/// Sends as much as there is room for; returns the bytes of messages that have arrived.
fn fill(world: &mut World, ns: u64) -> usize {
    let until_ns = world.now_ns + ns;
    let mut bytes = 0;
    while world.now_ns < until_ns {
        let id = world.id(OPENER);
        loop {
            match world.ends[OPENER].send(id, 0, vec![7; 64 << 10].into()) {
                Ok(()) => {}
                Err(SendError::Full { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        world.run_for(MILLISECOND);
        let received = world.received[ACCEPTOR].remove(&0);
        bytes += received.into_iter().flatten().map(|message| message.len()).sum::<usize>();
    }
    bytes
}

fn clean() -> Path {
    Path { delay_ns: MILLISECOND / 10, link: Some((RATE, 64 << 10)), longest: 1472, ..Path::default() }
}

#[test]
fn a_clean_link_is_full_with_every_policy_but_stop_and_wait() {
    for policy in ["window-3", "window-8", "go-back-n", "selective-repeat", "cubic", "credit"] {
        // A receiver that knows its link and the queue before it says how much fits.
        let receiver_window = matches!(policy, "credit" | "go-back-n").then_some(32 << 10);
        let share = share(&config(policy), clean(), receiver_window);
        assert!(share >= 0.96, "{policy}: {share:.3}");
    }
    let share = share(&config("stop-and-wait"), clean(), None);
    // Two delays and one datagram in turn: an acknowledgement does not wait for a second one.
    assert!((0.3..0.6).contains(&share), "{share:.3}");
}

#[test]
fn a_loss_of_one_in_a_hundred_costs_little_where_the_receiver_says_what_fits() {
    let path = Path { lost: 10, ..clean() };
    let share = share(&config("credit"), path, Some(32 << 10));
    assert!(share >= 0.9, "{share:.3}");
}

#[test]
fn an_admitted_rate_is_kept() {
    for policy in ["credit", "cubic"] {
        let config = Config { rate: Some(RATE / 5), ..config(policy) };
        let share = share(&config, clean(), None);
        assert!((0.18..=0.205).contains(&share), "{policy}: {share:.3}");
    }
}

/// A scheduler before the sender decides as late as it can, and what is in flight is no matter of its.
#[test]
fn little_is_taken_before_it_can_be_sent_and_a_long_path_is_full() {
    let config = Config { unsent_bytes_max: 32 << 10, ..config("cubic") };
    let path = Path { delay_ns: 5 * MILLISECOND, link: Some((RATE, 256 << 10)), ..clean() };
    let mut world = World::new(&config, path.clone(), 1);
    assert!(world.open());
    let id = world.id(OPENER);
    world.ends[OPENER].send(id, 0, vec![7; 64 << 10].into()).unwrap();
    let refused = world.ends[OPENER].send(id, 0, vec![7; 1].into());
    assert!(matches!(refused, Err(SendError::Full { .. })), "{refused:?}");
    world.run_for(SECOND);
    assert!(world.events[OPENER].contains(&Event::Writable(id, 0)));
    let share = share(&config, path, None);
    assert!(share >= 0.9, "{share:.3}");
}

#[test]
fn the_path_s_longest_datagram_is_found_while_data_flows() {
    for longest in [1300, 1472, 8972] {
        let settings = Settings { datagram_bytes_max: 8972, ..Settings::default() };
        let config = Config { settings, ..Config::default() };
        let mut world = World::new(&config, Path { longest, ..Path::default() }, 3);
        assert!(world.open());
        for _ in 0..200 {
            let id = world.id(OPENER);
            world.ends[OPENER].send(id, 0, vec![1; 3000].into()).unwrap();
            world.run_for(10 * MILLISECOND);
        }
        let found = world.ends[OPENER].path(world.id(OPENER)).expect("it is open").1;
        let found = usize::from(found);
        assert!(found <= longest && found + 20 >= longest, "{found} of {longest}");
        assert_eq!(world.received[ACCEPTOR][&0].len(), 200);
    }
}

#[test]
fn a_path_that_carries_less_than_before_is_used_again() {
    let mut world = World::new(&Config::default(), Path::default(), 3);
    assert!(world.open());
    world.run_for(SECOND);
    let id = world.id(OPENER);
    assert_eq!(world.ends[OPENER].path(id).unwrap().1, 8972);
    world.path.longest = 1300;
    world.ends[OPENER].send(id, 0, vec![1; 100_000].into()).unwrap();
    assert!(world.run_until(5 * SECOND, |world| world.received[ACCEPTOR].contains_key(&0)));
}

#[test]
fn a_stream_whose_messages_nobody_takes_delays_no_other() {
    let mut world = World::new(&Config::default(), Path::default(), 3);
    assert!(world.open());
    world.takes[ACCEPTOR] = false;
    let id = world.id(OPENER);
    while world.ends[OPENER].send(id, 0, vec![0; 1 << 20].into()).is_ok() {
        world.run_for(MILLISECOND);
    }
    world.run_for(30 * SECOND);
    world.ends[OPENER].send(id, 1, b"urgent".to_vec().into()).unwrap();
    world.run_for(10 * MILLISECOND);
    let acceptor = world.id(ACCEPTOR);
    assert!(world.ends[ACCEPTOR].receive(acceptor, 1).is_some());
    // It goes on when they are taken.
    world.takes[ACCEPTOR] = true;
    assert!(world.run_until(SECOND, |world| world.received[ACCEPTOR][&0].len() >= 7));
}

/// A link whose queue marks beyond a quarter of it, and drops when it is full.
fn marking() -> Path {
    Path { marks: Some(16 << 10), ..clean() }
}

#[test]
fn marks_are_heeded_before_anything_is_dropped() {
    for policy in ["selective-repeat", "cubic"] {
        let mut by_marks = World::new(&config(policy), marking(), 1);
        let mut by_losses = World::new(&config(policy), clean(), 1);
        let bytes = [&mut by_marks, &mut by_losses].map(|world| {
            assert!(world.open());
            fill(world, 4 * SECOND)
        });
        assert!(by_marks.marked > 10, "{policy}: {} marks", by_marks.marked);
        assert!(by_losses.dropped > 10, "{policy}: {} were dropped", by_losses.dropped);
        let dropped = by_marks.dropped;
        assert!(dropped * 4 < by_losses.dropped, "{policy}: {dropped} of {}", by_losses.dropped);
        // Slow start overshoots by a round trip; from then on the queue is short and the link is full.
        assert!(bytes[0] * 100 > bytes[1] * 97, "{policy}: {bytes:?} bytes");
    }
    // What does not heed marks does not let itself be marked.
    for policy in ["credit", "window-8", "stop-and-wait", "go-back-n"] {
        let mut world = World::new(&config(policy), marking(), 1);
        assert!(world.open());
        fill(&mut world, SECOND);
        assert_eq!(world.marked, 0, "{policy}");
    }
}

#[test]
fn a_path_that_drops_what_may_be_marked_is_noticed() {
    let mut world = World::new(&config("cubic"), Path { eats_capable: true, ..clean() }, 1);
    assert!(world.open());
    for end in [OPENER, ACCEPTOR] {
        world.ends[end].send(world.id(end), 0, vec![1; 100_000].into()).unwrap();
    }
    let is_done = |world: &World| world.received.iter().all(|received| received.contains_key(&0));
    assert!(world.run_until(SECOND, is_done));
}

#[test]
fn rate_and_window_of_an_open_connection_are_changed() {
    let mut world = World::new(&config("credit"), clean(), 1);
    assert!(world.open());
    let id = world.id(OPENER);
    world.ends[OPENER].set_rate(id, Some(RATE / 10));
    let share = fill(&mut world, 2 * SECOND) as f64 / (2 * RATE) as f64;
    assert!((0.08..=0.105).contains(&share), "{share:.3} by rate");
    world.ends[OPENER].set_rate(id, None);
    let acceptor = world.id(ACCEPTOR);
    // Two datagrams of 1472 bytes in a round trip of 0.2 ms, and the time that the link takes for them.
    world.ends[ACCEPTOR].set_window(acceptor, 2 * 1472);
    world.run_for(SECOND);
    let two = fill(&mut world, 2 * SECOND) as f64 / (2 * RATE) as f64;
    world.ends[ACCEPTOR].set_window(acceptor, 32 << 10);
    world.run_for(SECOND);
    let many = fill(&mut world, 2 * SECOND) as f64 / (2 * RATE) as f64;
    assert!(two < 0.9 && many > 0.96, "{two:.3} and {many:.3} by window");
}
