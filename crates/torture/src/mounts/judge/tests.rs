use super::locks::TOLD_AFTER_MS;
use super::*;

const HERE: Life = Life { mount: 0, life: 1 };
const ELSEWHERE: Life = Life { mount: 1, life: 1 };

/// A file to which `HERE` has written twice: 0..10, synced, and 0..4, which is only taken.
fn written() -> (Judge, FileNo, [Vec<u8>; 2]) {
    let judge = Judge::new(0, true);
    let file = judge.new_file();
    let (first, old) = judge.begin_write(file, 0..10, HERE);
    judge.end(file, first, true);
    judge.synced(file, judge.now(), HERE, true);
    let (second, new) = judge.begin_write(file, 0..4, HERE);
    judge.end(file, second, true);
    let new = [&new[..], &old[4..]].concat();
    (judge, file, [old, new])
}

/// Returns true if these bytes may be found by a reader that opens the file now.
fn may_read(judge: &Judge, file: FileNo, by: Life, found: &[u8]) -> bool {
    let now = judge.now();
    judge.read(file, 0..10, found, Reader { life: Some(by), opened: now }, now, "one");
    judge.failure().is_none()
}

#[test]
fn a_mount_sees_what_it_took_and_others_at_least_what_was_synced() {
    let cases = [(HERE, 0, false), (HERE, 1, true), (ELSEWHERE, 0, true), (ELSEWHERE, 1, true)];
    for (by, which, may) in cases {
        let (judge, file, bytes) = written();
        assert_eq!(may_read(&judge, file, by, &bytes[which]), may, "{by:?} finds {which}");
    }
    let (judge, file, _) = written();
    assert!(!may_read(&judge, file, ELSEWHERE, &[]), "what was synced lasts");
    let (judge, file, [old, _]) = written();
    assert!(!may_read(&judge, file, ELSEWHERE, &[&old[..9], &[0]].concat()), "nobody wrote that");
}

#[test]
fn who_dies_may_lose_what_it_did_not_sync() {
    let (judge, file, [old, new]) = written();
    judge.died(HERE);
    let later = Life { life: 2, ..HERE };
    assert!(may_read(&judge, file, later, &old) && may_read(&judge, file, later, &new));
    assert!(!may_read(&judge, file, later, &old[..9]), "it is shorter than what was synced");
}

#[test]
fn sizes_are_what_was_written_or_cut() {
    let check = |size: u64, may: bool| {
        let (judge, file, _) = written();
        let cut = judge.begin_cut(file, 6, HERE);
        judge.end(file, cut, true);
        let now = judge.now();
        judge.size(file, size, Reader { life: Some(ELSEWHERE), opened: now }, now, "one");
        assert_eq!(judge.failure().is_none(), may, "{size} bytes");
    };
    [(5, false), (6, true), (10, true), (11, false)].into_iter().for_each(|(size, may)| check(size, may));
}

#[test]
fn a_name_is_what_it_was_at_some_moment_of_the_look() {
    let check = |found: Found, is_over: bool, may: bool| {
        let judge = Judge::new(0, true);
        let one = judge.new_file();
        let other = judge.new_file();
        judge.is_number(one, 7);
        judge.is_number(other, 8);
        judge.is_sure("a", Some(one), 0, judge.now());
        let id = judge.begin_names(&[("a", Some(other))]);
        if is_over {
            judge.end_names(id, Some(true));
        }
        judge.looked("a", judge.now(), found, "one");
        assert_eq!(judge.failure().is_none(), may, "{found:?}, {is_over}");
    };
    check(Found::Number(7), false, true);
    check(Found::Number(8), false, true);
    check(Found::Nothing, false, false);
    check(Found::Number(7), true, false);
    check(Found::Number(8), true, true);
}

#[test]
fn what_was_written_under_a_lost_lock_is_not_found_by_who_got_it() {
    let (judge, file, _) = written();
    let asked = judge.now();
    assert!(judge.granted(file, 0, 0..10, 1, HERE, asked).is_some());
    assert!(judge.granted(file, 0, 0..10, 2, ELSEWHERE, asked).is_none(), "it may have got it before");
    let asked = judge.now();
    let opened = judge.granted(file, 0, 0..10, 2, ELSEWHERE, asked).expect("it got it later");
    assert!(!judge.holds(0, 1) && judge.holds(0, 2));
    let (id, bytes) = judge.begin_write(file, 0..10, ELSEWHERE);
    judge.end(file, id, true);
    let reader = Reader { life: Some(ELSEWHERE), opened };
    judge.read(file, 0..10, &bytes, reader, judge.now(), "one");
    assert_eq!(judge.failure(), None);
    judge.went_on(0, 1, "the loser", 100, true);
    assert_eq!(judge.failure(), None, "it cannot know yet");
    judge.went_on(0, 1, "the loser", 100 + TOLD_AFTER_MS, true);
    assert!(judge.failure().is_some());
}
