//! What the policies make of links, on the virtual clock.

use braid_datagram::{Config, SendError, Settings};

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
    let begin_ns = world.now_ns;
    let seconds = 4;
    let mut bytes = 0;
    while world.now_ns < begin_ns + seconds * SECOND {
        let id = world.id(OPENER);
        loop {
            match world.ends[OPENER].send(id, 0, vec![7; 64 << 10].into()) {
                Ok(()) => {}
                Err(SendError::Full { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        world.run_for(MILLISECOND);
        bytes += world.received[ACCEPTOR]
            .remove(&0)
            .into_iter()
            .flatten()
            .map(|message| message.len())
            .sum::<usize>();
    }
    bytes as f64 / (seconds * rate) as f64
}

fn clean() -> Path {
    Path { delay_ns: MILLISECOND / 10, link: Some((RATE, 64 << 10)), longest: 1472, ..Path::default() }
}

#[test]
fn a_clean_link_is_full_with_every_policy_but_stop_and_wait() {
    for policy in ["window-8", "go-back-n", "selective-repeat", "cubic", "credit"] {
        // A receiver that knows its link and the queue before it says how much fits.
        let receiver_window = matches!(policy, "credit" | "go-back-n").then_some(32 << 10);
        let share = share(&config(policy), clean(), receiver_window);
        assert!(share >= 0.96, "{policy}: {share:.3}");
    }
    let share = share(&config("stop-and-wait"), clean(), None);
    assert!(share < 0.6, "{share:.3}: two delays and one datagram in turn");
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
