use super::*;
use crate::error::Violation;
use crate::frame::{Ack, Frame};

const NOW: u64 = crate::SECOND;
const PEERS: [&str; 2] = ["10.0.0.1:1", "10.0.0.2:2"];

/// Carries all datagrams from one to the other until neither has any.
fn exchange(now_ns: u64, ends: &mut [Endpoint; 2]) {
    let mut is_quiet = false;
    while !std::mem::replace(&mut is_quiet, true) {
        for from in 0..2 {
            let mut bytes = Vec::new();
            while ends[from].poll_transmit(now_ns, &mut bytes).is_some() {
                is_quiet = false;
                let mut datagram = std::mem::take(&mut bytes);
                deliver(now_ns, ends, from, &mut datagram);
            }
        }
    }
}

fn deliver(now_ns: u64, ends: &mut [Endpoint; 2], from: usize, datagram: &mut [u8]) {
    let mut secret_of = |_: &[u8]| Some(Secret::new([1; 32]));
    ends[1 - from].handle_datagram(
        now_ns,
        PEERS[from].parse().unwrap(),
        Ecn::Unaware,
        datagram,
        &mut secret_of,
    );
}

fn opened() -> ([Endpoint; 2], ConnectionId) {
    let mut ends = [false, true].map(|accepts| Endpoint::new(Config::default(), accepts, [3; 32]));
    let id = ends[0].open(NOW, PEERS[1].parse().unwrap(), b"", Secret::new([1; 32]));
    exchange(NOW, &mut ends);
    (ends, id)
}

/// The acceptor's end of a connection whose opener sends this content.
fn end_after(content: &[u8]) -> Option<EndReason> {
    let (mut ends, id) = opened();
    let mut forged = ends[0].forge(NOW, id, content).unwrap();
    deliver(NOW, &mut ends, 0, &mut forged);
    exchange(NOW, &mut ends);
    let ends_of = |end: &mut Endpoint| {
        let events: Vec<Event> = std::iter::from_fn(|| end.poll_event()).collect();
        events.into_iter().find_map(|event| match event {
            Event::Ended(_, why) => Some(why),
            _ => None,
        })
    };
    let [at_opener, at_acceptor] = ends.each_mut().map(ends_of);
    // The peer is told why.
    if let Some(EndReason::Violated(violation)) = &at_acceptor {
        let expected = EndReason::ClosedByPeer { code: violation.code(), reason: violation.to_string() };
        assert_eq!(at_opener, Some(expected));
    }
    at_acceptor
}

#[test]
fn a_proved_peer_that_breaks_the_rules_is_told_so_and_ended() {
    let put = |frame: Frame<'_>| {
        let mut content = Vec::new();
        frame.put(&mut content);
        content
    };
    let ack = |number| {
        let ranges = std::iter::once(number..number + 1).collect();
        put(Frame::Ack(Ack { delay_us: 0, ranges }))
    };
    let bytes = [0xff; 8].as_slice();
    for (content, violation) in [
        (vec![99], Violation::Malformed),
        (put(Frame::Ping)[..1].iter().copied().chain([2]).collect(), Violation::Malformed),
        (ack(1 << 20), Violation::NotSent),
        (put(Frame::Stream { stream: 4, offset: 0, bytes }), Violation::NoStream),
        (put(Frame::Credit { stream: 4, limit: 9 }), Violation::NoStream),
        (put(Frame::Stream { stream: 0, offset: 4 << 20, bytes }), Violation::BeyondWindow),
        (put(Frame::Stream { stream: 0, offset: 0, bytes: &[0, 0, 0x20, 0] }), Violation::MessageTooLong),
        (put(Frame::Stream { stream: 0, offset: 0, bytes }), Violation::AfterEnd),
    ] {
        assert_eq!(end_after(&content), Some(EndReason::Violated(violation)));
    }
    for content in [vec![], vec![0; 50], ack(0), put(Frame::Credit { stream: 0, limit: 0 })] {
        assert_eq!(end_after(&content), None, "{content:?}");
    }
}

#[test]
fn news_are_kept_once_however_late_they_are_polled() {
    let (mut ends, id) = opened();
    let mut now_ns = NOW;
    let mut say = |ends: &mut [Endpoint; 2], stream| {
        now_ns += crate::MILLISECOND;
        ends.iter_mut().for_each(|end| end.handle_timeout(now_ns));
        ends[0].send(id, stream, Bytes::from_static(b"news")).unwrap();
        exchange(now_ns, ends);
    };
    (0..200).for_each(|_| say(&mut ends, 1));
    assert_eq!((ends[1].events.len(), ends[1].newsy.len()), (1, 1));
    let Some(Event::Accepted(accepted, _)) = ends[1].poll_event() else { panic!("it was accepted") };
    assert_eq!(ends[1].poll_event(), Some(Event::Readable(accepted, 1)));
    assert_eq!(ends[1].poll_event(), None);
    say(&mut ends, 2);
    assert_eq!(ends[1].poll_event(), Some(Event::Readable(accepted, 2)));
}

#[test]
fn a_peer_that_shrinks_its_window_to_nothing_gets_a_datagram_at_a_time() {
    let (mut ends, id) = opened();
    let mut content = Vec::new();
    Frame::Window { bytes: 0 }.put(&mut content);
    let mut forged = ends[0].forge(NOW, id, &content).unwrap();
    deliver(NOW, &mut ends, 0, &mut forged);
    let accepted = std::iter::from_fn(|| ends[1].poll_event()).next().unwrap().connection();
    ends[1].send(accepted, 0, vec![5; 20_000].into()).unwrap();
    for step in 0..100 {
        let now_ns = NOW + step * crate::MILLISECOND;
        ends.iter_mut().for_each(|end| end.handle_timeout(now_ns));
        exchange(now_ns, &mut ends);
    }
    assert!(ends[0].receive(id, 0) == Some(Incoming::Message(vec![5; 20_000])));
}

#[test]
fn who_opens_where_nothing_listens_gives_up_soon_unless_somebody_answers() {
    const OPENER: usize = 0;
    for is_answered in [false, true] {
        let mut ends = [false, true].map(|accepts| Endpoint::new(Config::default(), accepts, [3; 32]));
        let id = ends[OPENER].open(NOW, PEERS[1].parse().unwrap(), b"", Secret::new([1; 32]));
        assert!(ends[OPENER].poll_transmit(NOW, &mut Vec::new()).is_some());
        ends[OPENER].handle_unreachable(NOW, id);
        for step in 1..20 {
            let now_ns = NOW + step * 50 * crate::MILLISECOND;
            ends[OPENER].handle_timeout(now_ns);
            if is_answered {
                exchange(now_ns, &mut ends);
            } else {
                while ends[OPENER].poll_transmit(now_ns, &mut Vec::new()).is_some() {}
            }
        }
        let event = ends[OPENER].poll_event().unwrap();
        if is_answered {
            assert_eq!(event, Event::Opened(id));
        } else {
            assert_eq!(event, Event::Ended(id, EndReason::NotOpened));
        }
    }
}
