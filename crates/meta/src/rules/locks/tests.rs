use super::*;

const FILE: FileId = FileId(5);

fn lock(session: LockSession, order: u64, kind: Option<LockKind>, from: u64, to: u64) -> Lock {
    let how = LockHow::Set;
    Lock { session, order, file: FILE, owner: 1, pid: 7, how, kind, from, to }
}

fn ask(locks: &mut Locks, asked: &Lock, heard: &[u64]) -> LockOutcome {
    locks.ask(asked, asked.span().expect("it has bytes"), |client| heard.contains(&client.0))
}

/// Sessions 10 and 20 of clients 1 and 2.
fn two() -> Locks {
    let mut locks = Locks::default();
    locks.enter(LockSession(10), ClientId(1));
    locks.enter(LockSession(20), ClientId(2));
    locks
}

const EXCLUSIVE: Option<LockKind> = Some(LockKind::Exclusive);
const SHARED: Option<LockKind> = Some(LockKind::Shared);

#[test]
fn exclusive_locks_keep_others_out_and_shared_ones_do_not() {
    let mut locks = two();
    assert_eq!(ask(&mut locks, &lock(LockSession(10), 1, SHARED, 0, 9), &[1, 2]), LockOutcome::Granted);
    assert_eq!(ask(&mut locks, &lock(LockSession(20), 1, SHARED, 5, 14), &[1, 2]), LockOutcome::Granted);
    let held = HeldLock { session: LockSession(20), pid: 7, kind: LockKind::Shared, from: 5, to: 14 };
    assert_eq!(ask(&mut locks, &lock(LockSession(10), 2, EXCLUSIVE, 0, 9), &[1, 2]), LockOutcome::Held(held));
    assert_eq!(ask(&mut locks, &lock(LockSession(10), 3, EXCLUSIVE, 0, 4), &[1, 2]), LockOutcome::Granted);
    let held = HeldLock { session: LockSession(10), pid: 7, kind: LockKind::Exclusive, from: 0, to: 4 };
    let test = Lock { how: LockHow::Test, ..lock(LockSession(20), 0, SHARED, 4, 5) };
    assert_eq!(ask(&mut locks, &test, &[1, 2]), LockOutcome::Held(held));
    assert_eq!(ask(&mut locks, &lock(LockSession(10), 4, None, 0, u64::MAX), &[1, 2]), LockOutcome::Granted);
    assert_eq!(
        ask(&mut locks, &lock(LockSession(20), 2, EXCLUSIVE, 0, u64::MAX), &[1, 2]),
        LockOutcome::Granted
    );
    assert_eq!(locks.count, 1);
}

#[test]
fn what_is_left_of_a_lock_names_its_process() {
    let mut locks = two();
    ask(&mut locks, &lock(LockSession(10), 1, EXCLUSIVE, 0, 99), &[1, 2]);
    let part = Lock { pid: 0, ..lock(LockSession(10), 2, None, 40, 59) };
    assert_eq!(ask(&mut locks, &part, &[1, 2]), LockOutcome::Granted);
    for (asked, from, to) in [(0, 0, 39), (70, 60, 99)] {
        let held = HeldLock { session: LockSession(10), pid: 7, kind: LockKind::Exclusive, from, to };
        let test = Lock { how: LockHow::Test, ..lock(LockSession(20), 0, EXCLUSIVE, asked, asked) };
        assert_eq!(ask(&mut locks, &test, &[1, 2]), LockOutcome::Held(held));
    }
    assert_eq!(locks.held_by(LockSession(10)), (ClientId(1), vec![FILE]));
    assert_eq!(locks.held_by(LockSession(20)), (ClientId(2), Vec::new()));
}

#[test]
fn who_is_not_heard_keeps_its_locks_until_others_want_one() {
    let mut locks = two();
    ask(&mut locks, &lock(LockSession(10), 1, EXCLUSIVE, 0, 9), &[1]);
    ask(&mut locks, &lock(LockSession(10), 2, EXCLUSIVE, 50, 59), &[1]);
    let claim = |order| Lock { how: LockHow::Claim, ..lock(LockSession(10), order, EXCLUSIVE, 0, 9) };
    assert_eq!(ask(&mut locks, &lock(LockSession(20), 1, EXCLUSIVE, 20, 29), &[2]), LockOutcome::Granted);
    assert_eq!(ask(&mut locks, &claim(3), &[1, 2]), LockOutcome::Granted, "nobody wanted it");
    let test = Lock { how: LockHow::Test, ..lock(LockSession(20), 0, SHARED, 0, 0) };
    assert_eq!(ask(&mut locks, &test, &[2]), LockOutcome::Granted);
    assert_eq!(ask(&mut locks, &claim(3), &[1, 2]), LockOutcome::Granted, "to ask takes nothing");
    assert_eq!(
        ask(&mut locks, &lock(LockSession(20), 2, SHARED, 0, 0), &[2]),
        LockOutcome::Broke(LockSession(10))
    );
    assert_eq!(ask(&mut locks, &claim(4), &[1, 2]), LockOutcome::Lost, "from then on");
    assert_eq!(
        ask(&mut locks, &lock(LockSession(20), 3, SHARED, 0, 0), &[1, 2]),
        LockOutcome::Broke(LockSession(10))
    );
    locks.drop_session(LockSession(10));
    assert_eq!(ask(&mut locks, &lock(LockSession(20), 4, SHARED, 0, 0), &[2]), LockOutcome::Granted);
    assert_eq!(ask(&mut locks, &lock(LockSession(10), 5, EXCLUSIVE, 90, 99), &[1, 2]), LockOutcome::Lost);
    locks.enter(LockSession(11), ClientId(1));
    assert_eq!(ask(&mut locks, &lock(LockSession(11), 1, EXCLUSIVE, 50, 59), &[1, 2]), LockOutcome::Granted);
}

#[test]
fn one_session_takes_a_part_of_all_locks() {
    let mut locks = two();
    let taken = |locks: &mut Locks, session| {
        let order = locks.count as u64;
        let one = |n: u64| Lock { file: FileId(n), ..lock(session, order + n, SHARED, 0, 9) };
        (1..).take_while(|n| ask(locks, &one(*n), &[1, 2]) == LockOutcome::Granted).count()
    };
    assert_eq!(taken(&mut locks, LockSession(10)), LOCKS_EACH);
    assert_eq!(taken(&mut locks, LockSession(20)), LOCKS_EACH, "another has its own");
    let one = Lock { file: FileId(1), ..lock(LockSession(10), u64::MAX, None, 0, 9) };
    assert_eq!(ask(&mut locks, &one, &[1, 2]), LockOutcome::Granted, "to release is no lock");
    let again = Lock { file: FileId(1), ..lock(LockSession(10), u64::MAX, SHARED, 0, 9) };
    assert_eq!(ask(&mut locks, &again, &[1, 2]), LockOutcome::Granted);
    locks.drop_session(LockSession(10));
    assert_eq!(locks.count, LOCKS_EACH);
}

#[test]
fn a_session_without_locks_ends_with_its_client_and_comes_late_for_all() {
    let mut locks = two();
    ask(&mut locks, &lock(LockSession(10), 1, EXCLUSIVE, 0, 9), &[1, 2]);
    ask(&mut locks, &lock(LockSession(20), 1, EXCLUSIVE, 50, 59), &[1, 2]);
    ask(&mut locks, &lock(LockSession(20), 2, None, 50, 59), &[1, 2]);
    assert_eq!(locks.end_idle(|_| true), []);
    assert_eq!(locks.end_idle(|_| false), [LockSession(20)], "the other holds a lock");
    assert!(locks.knows(LockSession(20)), "until that is stored");
    locks.drop_session(LockSession(20));
    assert!(locks.is_broken(LockSession(20)) && !locks.knows(LockSession(20)));
    assert_eq!(ask(&mut locks, &lock(LockSession(20), 1, EXCLUSIVE, 50, 59), &[1, 2]), LockOutcome::Lost);
    // The number of sessions remembered as over is bounded.
    (100..100 + BROKEN_MAX as u64).map(LockSession).for_each(|session| locks.end(session));
    assert_eq!((locks.broken.len(), locks.broken_since.len()), (BROKEN_MAX, BROKEN_MAX));
    assert!(!locks.is_broken(LockSession(20)) && locks.is_broken(LockSession(100)));
}

#[test]
fn a_request_that_comes_late_counts_for_nothing() {
    let mut locks = two();
    ask(&mut locks, &lock(LockSession(10), 2, EXCLUSIVE, 0, 9), &[1, 2]);
    ask(&mut locks, &lock(LockSession(10), 3, None, 0, 9), &[1, 2]);
    assert_eq!(ask(&mut locks, &lock(LockSession(10), 2, EXCLUSIVE, 0, 9), &[1, 2]), LockOutcome::Overtaken);
    assert_eq!(ask(&mut locks, &lock(LockSession(20), 1, EXCLUSIVE, 0, 9), &[1, 2]), LockOutcome::Granted);
    assert_eq!(
        ask(&mut locks, &lock(LockSession(20), 1, EXCLUSIVE, 0, 9), &[1, 2]),
        LockOutcome::Granted,
        "a repeat"
    );
    let mut locks = two();
    for file in 0..=ORDERS_MAX as u64 {
        let other = Lock { file: FileId(100 + file), ..lock(LockSession(10), 10 + file, None, 0, 9) };
        ask(&mut locks, &other, &[1, 2]);
    }
    let late = Lock { file: FileId(100), ..lock(LockSession(10), 9, EXCLUSIVE, 0, 9) };
    assert_eq!(ask(&mut locks, &late, &[1, 2]), LockOutcome::Overtaken, "also when files were forgotten");
}

#[test]
fn after_a_start_those_may_claim_who_are_on_record() {
    let mut locks = Locks::default();
    locks.begin([(LockSession(10), ClientId(1))]);
    locks.enter(LockSession(10), ClientId(1));
    locks.enter(LockSession(20), ClientId(2));
    let claim = |session| Lock { how: LockHow::Claim, ..lock(session, 1, EXCLUSIVE, 0, 9) };
    assert_eq!(ask(&mut locks, &claim(LockSession(10)), &[1, 2]), LockOutcome::Granted);
    assert_eq!(ask(&mut locks, &claim(LockSession(20)), &[1, 2]), LockOutcome::Lost);
    locks.drop_session(LockSession(20));
    assert_eq!(locks.unheard(), [LockSession(10)], "it may have more to claim");
    // A session that says that it has claimed all keeps what it has claimed, and what it was given since.
    let is_all = |session| Lock { kind: None, ..claim(session) };
    assert_eq!(ask(&mut locks, &is_all(LockSession(10)), &[1, 2]), LockOutcome::Granted);
    assert_eq!((locks.unheard(), locks.has_before()), (vec![], false));
    locks.enter(LockSession(30), ClientId(3));
    assert_eq!(ask(&mut locks, &is_all(LockSession(30)), &[1, 2]), LockOutcome::Granted);
    assert_eq!((locks.count, locks.is_broken(LockSession(30))), (1, false));
    let mut locks = Locks::default();
    locks.begin([(LockSession(10), ClientId(1))]);
    assert_eq!(
        (locks.unheard(), locks.may_claim(LockSession(10)), locks.may_claim(LockSession(20))),
        (vec![LockSession(10)], true, false)
    );
    locks.refuse_claims();
    locks.end_of_claims();
    assert_eq!(
        locks.late_writers(FILE, ClientId(2)),
        BTreeSet::from([ClientId(1)]),
        "what it had locked is not known"
    );
    assert!(locks.late_writers(FILE, ClientId(1)).is_empty(), "its own writes do no harm to it");
    locks.enter(LockSession(10), ClientId(1));
    assert_eq!(ask(&mut locks, &claim(LockSession(10)), &[1, 2]), LockOutcome::Lost, "too late");
}

#[test]
fn who_has_not_claimed_all_in_time_loses_all() {
    let mut locks = Locks::default();
    locks.begin([(LockSession(10), ClientId(1)), (LockSession(20), ClientId(2))]);
    let claim = |session, at| Lock { how: LockHow::Claim, ..lock(session, 1, EXCLUSIVE, at, at + 9) };
    let is_all = |session| Lock { kind: None, ..claim(session, 0) };
    for (session, client) in [(LockSession(10), ClientId(1)), (LockSession(20), ClientId(2))] {
        locks.enter(session, client);
        assert_eq!(ask(&mut locks, &claim(session, 10 * session.0), &[1, 2]), LockOutcome::Granted);
    }
    assert_eq!(ask(&mut locks, &is_all(LockSession(20)), &[1, 2]), LockOutcome::Granted);
    assert_eq!(
        (locks.unheard(), locks.unheard_clients()),
        (vec![LockSession(10)], BTreeSet::from([ClientId(1)]))
    );
    locks.refuse_claims();
    assert_eq!(
        ask(&mut locks, &is_all(LockSession(10)), &[1, 2]),
        LockOutcome::Lost,
        "while that is being stored"
    );
    assert_eq!(
        locks.held_by(LockSession(10)),
        (ClientId(1), vec![FILE]),
        "nobody has its locks until that is stored"
    );
    locks.end_of_claims();
    assert_eq!((locks.late_writers(FILE, ClientId(0)), locks.count), (BTreeSet::from([ClientId(1)]), 1));
    assert_eq!(ask(&mut locks, &claim(LockSession(10), 100), &[1, 2]), LockOutcome::Lost);
    assert_eq!(ask(&mut locks, &claim(LockSession(20), 200), &[1, 2]), LockOutcome::Granted);
}

#[test]
fn who_did_not_hear_of_another_kind_may_claim_what_it_had() {
    let mut locks = two();
    let ask_all = |locks: &mut Locks, asked: &Lock| ask(locks, asked, &[1, 2]);
    let claim = |order, kind| Lock { how: LockHow::Claim, ..lock(LockSession(10), order, kind, 0, 9) };
    ask_all(&mut locks, &lock(LockSession(10), 1, SHARED, 0, 9));
    ask_all(&mut locks, &lock(LockSession(10), 2, EXCLUSIVE, 5, 9));
    assert_eq!(ask_all(&mut locks, &claim(3, SHARED)), LockOutcome::Granted);
    ask_all(&mut locks, &lock(LockSession(10), 4, SHARED, 0, 9));
    assert_eq!(ask_all(&mut locks, &claim(5, EXCLUSIVE)), LockOutcome::Granted, "nobody else has it");
    assert_eq!(ask_all(&mut locks, &lock(LockSession(20), 1, SHARED, 0, 9)), {
        let held = HeldLock { session: LockSession(10), pid: 7, kind: LockKind::Exclusive, from: 0, to: 9 };
        LockOutcome::Held(held)
    });
    ask_all(&mut locks, &lock(LockSession(10), 6, SHARED, 0, 9));
    ask_all(&mut locks, &lock(LockSession(20), 2, SHARED, 0, 9));
    assert!(matches!(ask_all(&mut locks, &claim(7, EXCLUSIVE)), LockOutcome::Held(_)));
    ask_all(&mut locks, &lock(LockSession(10), 8, None, 9, 9));
    assert_eq!(ask_all(&mut locks, &claim(7, SHARED)), LockOutcome::Overtaken, "it was delayed");
    assert_eq!(ask_all(&mut locks, &claim(9, SHARED)), LockOutcome::Lost, "a byte of it was released");
    assert_eq!(
        locks.held_by(LockSession(10)),
        (ClientId(1), vec![FILE]),
        "until its leases have ended, and that is stored"
    );
    assert_eq!(
        ask_all(&mut locks, &lock(LockSession(20), 3, EXCLUSIVE, 0, 9)),
        LockOutcome::Broke(LockSession(10))
    );
}

#[test]
fn a_session_may_claim_as_many_locks_as_it_had() {
    let mut locks = Locks::default();
    locks.begin([(LockSession(10), ClientId(1))]);
    locks.enter(LockSession(10), ClientId(1));
    let one = |n: u64, how| Lock { file: FileId(n), how, ..lock(LockSession(10), n, SHARED, 0, 9) };
    // Releases leave a session more locks than it may ask for: each may split one.
    let had = LOCKS_EACH as u64 + 2;
    for n in 1..=had {
        assert_eq!(ask(&mut locks, &one(n, LockHow::Claim), &[1]), LockOutcome::Granted);
    }
    assert_eq!(ask(&mut locks, &one(had + 1, LockHow::Set), &[1]), LockOutcome::Full);
}

#[test]
fn who_was_silent_before_a_second_start_is_told_so_once() {
    let mut locks = Locks::default();
    locks.begin([(silence(ClientId(1)), ClientId(1)), (LockSession(20), ClientId(2))]);
    assert!(!locks.tell_silent(LockSession(20), ClientId(2)));
    assert!(
        locks.tell_silent(LockSession(10), ClientId(1)) && locks.is_broken(LockSession(10)),
        "it may take its locks for its own"
    );
    assert!(
        !locks.tell_silent(LockSession(11), ClientId(1)) && !locks.is_broken(LockSession(11)),
        "it knows now"
    );
    locks.enter(LockSession(11), ClientId(1));
    locks.enter(LockSession(20), ClientId(2));
    let all = Lock { how: LockHow::Claim, ..lock(LockSession(20), 1, None, 0, 9) };
    assert_eq!(ask(&mut locks, &all, &[1, 2]), LockOutcome::Granted);
    assert_eq!(
        locks.unheard_clients(),
        BTreeSet::from([ClientId(1)]),
        "it may still write under its locks of before"
    );
    let mut locks = Locks::default();
    locks.begin([(silence(ClientId(1)), ClientId(1)), (LockSession(11), ClientId(1))]);
    assert!(
        !locks.tell_silent(LockSession(11), ClientId(1)),
        "it began this session knowing that it had lost the former"
    );
}

#[test]
fn who_has_lost_locks_without_a_fence_is_fenced_before_the_next_has_them() {
    let mut locks = two();
    ask(&mut locks, &lock(LockSession(10), 1, EXCLUSIVE, 0, 9), &[1, 2]);
    locks.enter(LockSession(11), ClientId(1));
    assert_eq!(
        locks.late_writers(FILE, ClientId(2)),
        BTreeSet::from([ClientId(1)]),
        "the former session had it locked"
    );
    assert!(locks.late_writers(FileId(6), ClientId(2)).is_empty() && locks.late_and_back().is_empty());
    locks.fenced(FILE, &BTreeSet::from([ClientId(1)]));
    assert!(locks.late_writers(FILE, ClientId(2)).is_empty());
    assert_eq!(locks.forget_late(|_| BTreeSet::from([FILE])), [ClientId(1)]);
    // Of a client that did not claim it is not known what it had locked.
    let mut locks = Locks::default();
    locks.begin([(LockSession(10), ClientId(1))]);
    locks.refuse_claims();
    locks.end_of_claims();
    locks.fenced(FILE, &BTreeSet::from([ClientId(1)]));
    assert_eq!(
        locks.late_writers(FILE, ClientId(2)),
        BTreeSet::from([ClientId(1)]),
        "it may get another lease there"
    );
    assert!(locks.late_and_back().is_empty() && locks.forget_late(|_| BTreeSet::from([FILE])).is_empty());
    locks.enter(LockSession(11), ClientId(1));
    assert_eq!(locks.late_and_back(), [ClientId(1)]);
    locks.narrow(ClientId(1), BTreeSet::from([FILE]));
    locks.narrow(ClientId(1), BTreeSet::from([FileId(6)]));
    assert!(locks.late_writers(FileId(6), ClientId(2)).is_empty(), "that lease is of its new session");
    assert_eq!(locks.late_writers(FILE, ClientId(2)), BTreeSet::from([ClientId(1)]));
    assert_eq!(
        (locks.forget_late(|_| BTreeSet::new()), locks.is_late(ClientId(1))),
        (vec![ClientId(1)], false),
        "it has no lease left"
    );
}
