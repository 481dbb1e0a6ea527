//! Many readers and writers at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use braid_layout::ObjectId;
use braid_store::*;

use crate::common::*;

#[test]
fn readers_see_whole_versions_that_never_go_back() {
    const ROUNDS: u64 = 120;
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    let done = AtomicU64::new(0);
    for object in 0..3 {
        store.commit(create(object)).expect("create");
    }
    std::thread::scope(|scope| {
        for object in 0..3 {
            let store = store.clone();
            let done = &done;
            scope.spawn(move || {
                for n in 1..=ROUNDS {
                    let write = write(object, n % 4, 0, 20_000, version(1, n));
                    assert_eq!(
                        store.commit(Mutation::Write(write)).expect("write"),
                        MutationOutcome::Applied
                    );
                    let read = content(&store, object, n % 4, 0, 20_000, Want::Newest).expect("read");
                    assert_eq!(read, pattern(n, 20_000), "one's own write is seen once acknowledged");
                }
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        for object in 0..3 {
            let store = store.clone();
            let done = &done;
            scope.spawn(move || {
                let mut newest = [0; 4];
                while done.load(Ordering::SeqCst) < 3 {
                    for unit in 0..4 {
                        let view =
                            store.read(P, ObjectId(object), unit, 0..20_000, Want::Newest).expect("view");
                        let n = view.version.n;
                        let last = &mut newest[usize::try_from(unit).expect("small")];
                        assert!(n >= *last, "version {n} after {last}");
                        *last = n;
                        let bytes = read_stored(&view).expect("read");
                        assert!(n == 0 || bytes == pattern(n, 20_000), "version {n} is whole");
                    }
                }
            });
        }
    });
}

#[test]
fn answers_come_in_order_and_a_full_queue_hands_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    store.commit(create(1)).expect("create");
    let (sender, receiver) = mpsc::channel();
    let mut rejected = 0_u32;
    let total = 2 * u64::try_from(QUEUE_LEN_MAX).expect("small");
    for n in 1..=total {
        let sender = sender.clone();
        let reply: Reply = Box::new(move |answer| sender.send((n, answer)).expect("the test waits"));
        let mut request = (Mutation::Write(write(1, n, 0, 64, version(1, n))), reply);
        // Handed back unchanged while the queue is full; the blocking call then waits for space.
        if let Err(back) = store.submit_within(request.0, request.1, Some(Duration::ZERO), &|| true) {
            rejected += 1;
            request = (back.mutation, back.reply);
            store.submit(request.0, request.1);
        }
    }
    let (flushed, flush) = mpsc::channel();
    store.submit(Mutation::Flush, Box::new(move |answer| flushed.send(answer).expect("the test waits")));
    assert_eq!(flush.recv().expect("an answer").expect("flush"), MutationOutcome::Applied);
    for expected in 1..=total {
        let (n, answer) = receiver.try_recv().expect("everything before a flush is answered before it");
        assert_eq!((n, answer.expect("write")), (expected, MutationOutcome::Applied));
    }
    println!("{rejected} of {total} were handed back");
}
