//! The window by itself: when it is clamped, and when not.

use braid_credit::{Late, Rate, Window};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

fn late(now: u64, lost: u64) -> Late {
    Late { asked: now - lost, now, lost, flying: 1 << 20 }
}

/// A rate of a million bytes a second until `now`.
fn rate(now: u64) -> Rate {
    let mut rate = Rate::default();
    (0..=now / (20 * MS)).for_each(|step| rate.handle_delivered(step * 20 * MS, step * 20_000, 0));
    rate
}

#[test]
fn one_timeout_is_let_pass_and_two_at_once_count_as_one() {
    let mut window = Window::default();
    let mut rate = rate(20 * SECOND);
    for now in [20 * SECOND, 20 * SECOND + MS, 45 * SECOND] {
        window.handle_late(late(now, 200 * MS), &mut rate);
        assert_eq!(window.bytes(), None, "at {now}");
    }
    window.handle_late(late(46 * SECOND, 200 * MS), &mut rate);
    assert_eq!(window.bytes(), Some(1 << 19), "two within a second");
}

#[test]
fn a_large_request_long_ago_does_not_keep_the_window_large() {
    let mut window = Window::default();
    let mut rate = rate(SECOND);
    window.handle_request(64 << 20);
    (0..1000).for_each(|_| window.handle_request(64 << 10));
    for now in [2 * SECOND, 3 * SECOND] {
        window.handle_late(late(now, 200 * MS), &mut rate);
    }
    assert_eq!(window.bytes(), Some(1 << 19));
}

#[test]
fn what_was_asked_for_before_a_decision_says_nothing_about_it() {
    let mut window = Window::default();
    let mut rate = rate(SECOND);
    for now in [2 * SECOND, 3 * SECOND] {
        window.handle_late(late(now, 200 * MS), &mut rate);
    }
    for step in 1..100 {
        let asked = 3 * SECOND - 1;
        let late = Late { asked, ..late(3 * SECOND + step * 100 * MS, 200 * MS) };
        window.handle_late(late, &mut rate);
    }
    assert_eq!(window.bytes(), Some(1 << 19));
}

#[test]
fn a_window_that_holds_the_rate_down_opens_again() {
    let mut window = Window::default();
    let mut rate = rate(SECOND);
    for now in [2 * SECOND, 3 * SECOND] {
        window.handle_late(late(now, 200 * MS), &mut rate);
    }
    // Twenty windows a second arrive, whatever the window is.
    let mut bytes = 1_000_000;
    let mut now = 3 * SECOND;
    while let Some(may_fly) = window.bytes() {
        now += 50 * MS;
        bytes += may_fly;
        rate.handle_delivered(now, bytes, 0);
        window.handle_time(now, true, &mut rate);
        assert!(now < 60 * SECOND, "still {may_fly}");
    }
}

#[test]
fn a_window_that_nobody_fills_says_so_and_opens() {
    let mut window = Window::default();
    let mut rate = rate(SECOND);
    for now in [2 * SECOND, 3 * SECOND] {
        window.handle_late(late(now, 200 * MS), &mut rate);
    }
    assert!(window.is_short(4 * SECOND) && !window.is_short(5 * SECOND));
    for now in 4..13 {
        window.handle_time(now * SECOND, false, &mut rate);
        assert_eq!(window.bytes(), Some(1 << 19), "at {now}");
    }
    window.handle_time(13 * SECOND, false, &mut rate);
    assert_eq!(window.bytes(), None);
}

#[test]
fn one_pause_never_clamps_however_many_answers_it_delays() {
    let mut window = Window::default();
    let mut rate = rate(SECOND);
    for step in 0..200 {
        let now = 9 * SECOND + step * MS;
        window.handle_late(Late { asked: 4 * SECOND, ..late(now, 5 * SECOND) }, &mut rate);
        assert_eq!(window.bytes(), None);
    }
    window.handle_late(late(10 * SECOND, 200 * MS), &mut rate);
    assert!(window.bytes().is_some(), "and another does");
}
