//! Whatever happens in whatever order: credits that go in come out, and nothing waits for ever.

use std::collections::BTreeSet;

use braid_credit::{AWAY_NS, Receiver, SAMPLE_NS, Sent, Ticket, WAIT_MAX_NS};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Event {
    Ask {
        caller: u64,
        drive: u128,
        bytes: u64,
    },
    /// One of those on their way ends, late or not.
    End {
        which: usize,
        late: bool,
    },
    /// One that waits is given up.
    GiveUp {
        which: usize,
    },
    Pass {
        nanos: u64,
    },
    Loss,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..4u64, 0..8u128, 1..200_000u64)
            .prop_map(|(caller, drive, bytes)| Event::Ask { caller, drive, bytes }),
        4 => (any::<usize>(), any::<bool>()).prop_map(|(which, late)| Event::End { which, late }),
        1 => any::<usize>().prop_map(|which| Event::GiveUp { which }),
        2 => (0..300_000_000u64).prop_map(|nanos| Event::Pass { nanos }),
        1 => Just(Event::Loss),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn credits_are_conserved_and_nothing_starves(events in prop::collection::vec(event(), 1..200)) {
        let mut receiver = Receiver::default();
        let mut now = 0;
        let mut arrived = 0;
        let mut flying: Vec<(Ticket, u64, u64)> = Vec::new();
        let mut waiting: Vec<(Ticket, u64)> = Vec::new();
        let mut seen = BTreeSet::new();
        for event in events {
            match event {
                Event::Ask { caller, drive, bytes } => {
                    let (ticket, goes) = receiver.handle_request(now, caller, drive, bytes);
                    prop_assert!(seen.insert(ticket), "a ticket was given twice");
                    if goes { flying.push((ticket, now, bytes)) } else { waiting.push((ticket, bytes)) }
                }
                Event::End { which, late } if !flying.is_empty() => {
                    let (ticket, at, bytes) = flying.swap_remove(which % flying.len());
                    arrived += bytes;
                    let sent = Sent { peer: 1, bytes, at, arrived: now, flying: bytes * 4, delivered: bytes };
                    receiver.handle_delivered(sent, arrived, bytes);
                    if late {
                        receiver.handle_late(sent, bytes);
                    }
                    receiver.handle_end(ticket);
                }
                Event::GiveUp { which } if !waiting.is_empty() => {
                    let (ticket, _) = waiting.swap_remove(which % waiting.len());
                    receiver.handle_end(ticket);
                }
                Event::Pass { nanos } => now += nanos,
                Event::Loss => receiver.handle_loss(now),
                _ => {}
            }
            while let Some(ticket) = receiver.poll_send(now) {
                let at = waiting.iter().position(|(of, _)| *of == ticket);
                let Some(at) = at else { return Err(TestCaseError::fail("it did not wait")) };
                let (_, bytes) = waiting.swap_remove(at);
                flying.push((ticket, now, bytes));
            }
            let counts = receiver.counts();
            prop_assert_eq!(usize::try_from(counts.waiting), Ok(waiting.len()));
            let young = flying.iter().filter(|(_, at, _)| now - at < AWAY_NS);
            let all: u64 = flying.iter().map(|(.., bytes)| bytes).sum();
            prop_assert!(counts.flying <= all);
            prop_assert!(counts.flying >= young.map(|(.., bytes)| bytes).sum());
        }
        // What never ends holds up nothing for ever.
        now += WAIT_MAX_NS;
        while let Some(ticket) = receiver.poll_send(now) {
            waiting.retain(|(of, _)| *of != ticket);
            flying.push((ticket, now, 0));
        }
        prop_assert!(waiting.is_empty(), "{} wait for ever", waiting.len());
        for (ticket, ..) in flying {
            receiver.handle_end(ticket);
        }
        let at = now + SAMPLE_NS;
        let sent = Sent { peer: 1, bytes: 1, at, arrived: at, flying: 0, delivered: 0 };
        receiver.handle_delivered(sent, arrived, 0);
        prop_assert_eq!(receiver.counts().flying, 0);
    }
}
