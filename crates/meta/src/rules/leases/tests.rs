use super::*;

const FILE: FileId = FileId(7);
const A: HolderId = HolderId(1);
const B: HolderId = HolderId(2);

fn leases() -> Leases {
    Leases::new(10, Arc::new(Pauses::new(5, 0)))
}

fn due(leases: &Leases, now_ms: u64) -> Vec<FileId> {
    leases.due(now_ms, FileId(0)).collect()
}

#[test]
fn each_has_its_turn_from_any_file_on() {
    let mut leases = leases();
    (1..=4).for_each(|file| leases.grant(FileId(file), Lease(1), A, if file == 3 { 90 } else { 0 }));
    assert_eq!(leases.due(50, FileId(2)).collect::<Vec<_>>(), [FileId(4), FileId(1), FileId(2)]);
    assert_eq!(leases.due(50, FileId(9)).count(), 3);
}

#[test]
fn a_lease_that_was_left_is_nobodys_also_after_a_pause() {
    let pauses = Arc::new(Pauses::new(5, 0));
    let mut leases = Leases::new(10, Arc::clone(&pauses));
    leases.leave(FILE, Lease(1));
    pauses.look(9000);
    assert_eq!(leases.state(FILE, 9000), LeaseState::Over);
    assert!(!leases.renew(FILE, Lease(1), A, 9000) && leases.begin_end(FILE, 9000));
    assert_eq!(due(&leases, 0), [FILE]);
}

#[test]
fn a_renewal_that_waited_for_us_counts() {
    let pauses = Arc::new(Pauses::new(5, 0));
    let mut leases = Leases::new(10, Arc::clone(&pauses));
    leases.grant(FILE, Lease(1), A, 100);
    leases.grant(FileId(8), Lease(1), A, 100);
    leases.give_up(FileId(8));
    pauses.listen(105);
    // The process is stopped; then the loop that ends leases runs before the session with the renewal.
    pauses.look(9000);
    assert_eq!(due(&leases, 9000), [FileId(8)]);
    assert!(!leases.begin_end(FILE, 9000));
    assert_eq!(leases.state(FILE, 9001), LeaseState::Live(9));
    assert!(leases.renew(FILE, Lease(1), A, 9005));
    assert_eq!(leases.state(FILE, 9014), LeaseState::Live(1));
    // Without another renewal the lease ends a term after that.
    assert_eq!(due(&leases, 9015), [FILE, FileId(8)]);
}

#[test]
fn a_lease_lives_from_renewal_to_renewal() {
    let mut leases = leases();
    leases.grant(FILE, Lease(1), A, 100);
    assert_eq!(leases.state(FILE, 109), LeaseState::Live(1));
    assert!(leases.renew(FILE, Lease(1), A, 109));
    assert_eq!(leases.state(FILE, 110), LeaseState::Live(9));
    assert_eq!(leases.state(FILE, 119), LeaseState::Over);
    assert_eq!(due(&leases, 119), [FILE]);
    assert!(due(&leases, 118).is_empty());
}

#[test]
fn only_its_holder_renews_it() {
    let mut leases = leases();
    leases.grant(FILE, Lease(2), A, 0);
    assert!(!leases.renew(FILE, Lease(1), A, 1));
    assert!(!leases.renew(FileId(8), Lease(2), A, 1));
}

#[test]
fn a_late_renewal_counts_until_the_end_has_begun() {
    let mut leases = leases();
    leases.grant(FILE, Lease(1), A, 0);
    assert!(leases.renew(FILE, Lease(1), A, 50));
    assert!(!leases.begin_end(FILE, 55), "it is live again");
    assert!(leases.begin_end(FILE, 60));
    assert!(!leases.renew(FILE, Lease(1), A, 60));
    assert_eq!(due(&leases, 60), [FILE], "until the end is over it is to be ended");
    leases.end(FILE);
    assert!(due(&leases, 60).is_empty());
}

#[test]
fn a_lease_given_up_ends_while_it_is_live() {
    let mut leases = leases();
    leases.grant(FILE, Lease(1), A, 0);
    leases.give_up(FILE);
    assert_eq!(leases.state(FILE, 1), LeaseState::Over);
}

fn record(lease: u32, since: u32, shared: bool, holder: HolderId) -> InodeRecord {
    let root = crate::records::schema::directory_record(Default::default(), FileId(0), Vec::new(), 0);
    InodeRecord { lease: Lease(lease), since: Lease(since), shared, holder, held: true, ..root }
}

/// A lease that A had, and shares with B.
fn shared() -> Leases {
    let mut leases = leases();
    leases.grant(FILE, Lease(1), A, 0);
    leases.changed(FILE, &record(2, 1, true, A));
    leases.join(FILE, B, 0);
    leases
}

#[test]
fn a_shared_lease_is_its_holders_by_the_numbers_that_they_know() {
    let mut leases = shared();
    assert!(leases.renew(FILE, Lease(1), A, 5) && leases.renew(FILE, Lease(2), B, 5));
    assert!(!leases.renew(FILE, Lease(3), A, 5) && !leases.renew(FILE, Lease(2), HolderId(3), 5));
    assert!(!leases.renew(FILE, Lease(2), UNKNOWN, 5) && leases.has_others(FILE, A));
    leases.forget(FILE, B, 6);
    assert!(!leases.renew(FILE, Lease(2), B, 6) && !leases.has_others(FILE, A));
}

#[test]
fn who_lapses_is_named_and_renews_no_more_and_the_others_go_on() {
    let mut leases = shared();
    assert!(leases.renew(FILE, Lease(2), B, 5));
    assert_eq!((leases.step(FILE, 9), leases.step(FILE, 10)), (Step::Nothing, Step::Without(vec![A])));
    assert!(!leases.renew(FILE, Lease(2), A, 10) && leases.renew(FILE, Lease(2), B, 10));
    assert_eq!(due(&leases, 10), [FILE], "until it is forgotten");
    leases.forget(FILE, A, 11);
    assert!(due(&leases, 11).is_empty());
    assert_eq!(leases.step(FILE, 20), Step::End);
    assert!(!leases.renew(FILE, Lease(2), B, 20));
}

#[test]
fn the_last_one_of_a_shared_lease_is_alone_after_a_while() {
    let mut leases = shared();
    leases.forget(FILE, A, 5);
    assert!(leases.renew(FILE, Lease(2), B, 5 + ALONE_MS));
    assert_eq!(leases.step(FILE, 4 + ALONE_MS), Step::Nothing);
    assert_eq!(leases.step(FILE, 5 + ALONE_MS), Step::Apart);
    leases.changed(FILE, &record(3, 1, false, B));
    assert_eq!(leases.step(FILE, 5 + ALONE_MS), Step::Nothing, "it is exclusive");
}

#[test]
fn after_a_restart_holders_are_known_again_for_a_term() {
    let mut leases = leases();
    leases.resume(FILE, &record(5, 3, true, A), 100);
    assert!(!leases.renew(FILE, Lease(2), A, 101) && !leases.renew(FILE, Lease(6), A, 101));
    assert!(leases.renew(FILE, Lease(3), A, 105) && leases.has_others(FILE, A));
    assert_eq!(leases.step(FILE, 110), Step::Without(vec![UNKNOWN]), "the others did not come");
    assert!(!leases.renew(FILE, Lease(5), B, 110) && leases.renew(FILE, Lease(5), A, 110));
    let mut silent = Leases::new(10, Arc::new(Pauses::new(5, 0)));
    silent.resume(FILE, &record(5, 3, true, A), 100);
    assert!(silent.renew(FILE, Lease(5), B, 101));
    silent.is_of(FILE, B, ClientId(7));
    assert!(silent.are_silent(FILE, &BTreeSet::new()), "others may hold it yet");
    silent.give_up_silent(FILE, &BTreeSet::new());
    assert_eq!(silent.step(FILE, 102), Step::Without(vec![UNKNOWN]));
    silent.forget(FILE, UNKNOWN, 102);
    assert!(!silent.are_silent(FILE, &BTreeSet::from([ClientId(8)])), "B is known");
    assert!(
        silent.are_silent(FILE, &BTreeSet::from([ClientId(7)]))
            && !silent.are_silent(FileId(9), &BTreeSet::new())
    );
    let mut without_a = record(5, 3, true, A);
    without_a.goes_on_without(&[A]);
    let mut fenced = Leases::new(10, Arc::new(Pauses::new(5, 0)));
    fenced.resume(FILE, &without_a, 100);
    assert!(!fenced.renew(FILE, Lease(5), A, 101), "it was fenced out before");
    assert!(fenced.renew(FILE, Lease(5), B, 101));
    // A holder that was fenced out while it was not known is not accepted after yet another restart.
    let mut without_some = record(5, 3, true, A);
    without_some.goes_on_without(&[UNKNOWN]);
    let mut twice = Leases::new(10, Arc::new(Pauses::new(5, 0)));
    twice.resume(FILE, &without_some, 100);
    assert!(!twice.renew(FILE, Lease(5), B, 101) && twice.step(FILE, 101) == Step::End);
    let mut alone = Leases::new(10, Arc::new(Pauses::new(5, 0)));
    alone.resume(FILE, &InodeRecord { shared: false, ..without_some }, 100);
    assert!(!alone.renew(FILE, Lease(5), B, 101) && alone.renew(FILE, Lease(5), A, 101));
    let mut exclusive = Leases::new(10, Arc::new(Pauses::new(5, 0)));
    exclusive.resume(FILE, &record(5, 0, false, A), 100);
    assert!(!exclusive.renew(FILE, Lease(5), B, 101) && exclusive.renew(FILE, Lease(5), A, 101));
}
