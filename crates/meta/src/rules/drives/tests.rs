//! Tests of the table of drives.

use super::examples::{beat, process, record};
use super::*;

const D: DriveId = DriveId(1);

/// One drive, in a table of a manager that started at 0, with leases of 1000 ms (and a margin of 300).
fn table() -> DriveTable {
    table_with(Arc::new(Pauses::new(1300, 0)))
}

fn table_with(pauses: Arc<Pauses>) -> DriveTable {
    let mut table = DriveTable::new(1000, 0, pauses);
    table.insert(record(1, "one"));
    table
}

#[test]
fn nobody_is_judged_by_a_silence_in_which_we_did_not_listen() {
    let pauses = Arc::new(Pauses::new(1300, 0));
    let mut table = table_with(Arc::clone(&pauses));
    table.insert(record(2, "two"));
    for now in (0..5000).step_by(250) {
        pauses.listen(now);
    }
    table.heartbeat(D, &beat("a:1"), 4500);
    table.heartbeat(DriveId(2), &beat("b:1"), 3000);
    // The process is stopped from 4750 to 20000; then the loop that ends leases runs first.
    pauses.look(20_000);
    assert!(!table.lapsed(D, 20_000) && !table.may_judge(20_000));
    assert_eq!(table.state(D, 20_000), DriveState::Up, "it held its lease when we stopped listening");
    assert_eq!(table.state(DriveId(2), 20_000), DriveState::Away, "this one did not");
    assert_eq!((table.state(D, 20_999), table.state(D, 21_000)), (DriveState::Up, DriveState::Away));
    assert!(!table.hold_lapsed(D, 21_299) && table.hold_lapsed(D, 21_300));
    assert!(table.may_judge(21_300));
}

#[test]
fn a_drive_is_up_while_its_lease_holds_and_dead_a_margin_later() {
    let mut table = table();
    assert_eq!(table.state(D, 0), DriveState::Away);
    assert_eq!(table.heartbeat(D, &beat("a:1"), 5000).unwrap().lease_ms, 1000);
    assert_eq!((table.state(D, 5999), table.state(D, 6000)), (DriveState::Up, DriveState::Away));
    assert_eq!((table.lapsed(D, 6299), table.lapsed(D, 6300)), (false, true));
    assert!(!table.hold_lapsed(D, 6299) && table.hold_lapsed(D, 6300));
}

#[test]
fn a_paused_drive_is_not_lost_until_the_pause_ends() {
    let mut table = table();
    table.heartbeat(D, &beat("a:1"), 5000);
    assert!(!table.is_lost(D, 10_000, 14_999) && table.is_lost(D, 10_000, 15_000));
    assert!(!table.is_lost(D, 0, 1 << 40), "no time makes it lost");
    table.set_paused(D, 50_000);
    assert!(!table.is_lost(D, 10_000, 49_999) && table.is_lost(D, 10_000, 50_000));
    assert_eq!(table.drive(D).map(|known| known.paused_ms(49_000)), Some(1000));
    table.set_paused(D, 0);
    assert!(table.is_lost(D, 10_000, 15_000));
}

#[test]
fn nothing_is_judged_before_a_lease_has_passed_since_the_start() {
    let mut table = table();
    assert!(!table.lapsed(D, 1299) && table.lapsed(D, 1300));
    assert!(!table.hold_lapsed(D, 1299) && table.hold_lapsed(D, 1300));
}

#[test]
fn a_process_that_is_gone_proves_death_while_the_lease_holds() {
    let mut table = table();
    assert!(!table.hold_gone(D, &[process(1)]), "nobody said that it was the drive's");
    assert!(!table.hold_gone(D, &[]), "no process is no proof");
    table.heartbeat(D, &beat("a:1"), 5000);
    assert!(!table.hold_lapsed(D, 5001));
    assert!({
        let heard = table.processes(D);
        table.hold_gone(D, &heard)
    });
    assert_eq!(table.state(D, 5001), DriveState::Away);
    assert_eq!(table.heartbeat(D, &beat("a:1"), 5002).unwrap().lease_ms, 0, "held");
}

#[test]
fn a_drive_whose_next_process_was_heard_is_not_dead_by_its_last() {
    let mut table = table();
    table.heartbeat(D, &beat("a:1"), 5000);
    let asked = table.processes(D);
    // The drive starts again while the host is asked, and gets a lease.
    let next = Heartbeat { process: process(2), ..beat("a:2") };
    assert!(table.heartbeat(D, &next, 5001).unwrap().lease_ms > 0);
    assert!(!table.hold_gone(D, &asked));
    // A heartbeat that the first process sent before it died comes late. The second one serves.
    table.heartbeat(D, &beat("a:1"), 5002);
    assert!(!table.hold_gone(D, &asked));
    assert_eq!(table.state(D, 5003), DriveState::Up);
    assert_eq!(table.processes(D), [process(2), process(1)]);
    assert!(
        {
            let heard = table.processes(D);
            table.hold_gone(D, &heard)
        },
        "both are gone"
    );
}

#[test]
fn a_process_counts_as_the_drives_for_as_long_as_its_lease_may_hold() {
    let mut table = table();
    table.heartbeat(D, &beat("a:1"), 5000);
    let next = Heartbeat { process: process(2), ..beat("a:1") };
    table.heartbeat(D, &next, 6299);
    assert_eq!(table.processes(D).len(), 2);
    table.heartbeat(D, &next, 6300);
    assert_eq!(table.processes(D), [process(2)]);
    for pid in 3..50 {
        table.heartbeat(D, &Heartbeat { process: process(pid), ..beat("a:1") }, 6301);
    }
    assert!(table.processes(D).len() <= PROCESSES_MAX + 1);
    assert!(table.processes(D).contains(&ProcessMark::default()), "then nobody can tell");
}

#[test]
fn a_drive_held_or_untold_gets_no_lease() {
    let mut table = table();
    assert!(table.hold_lapsed(D, 5000));
    let held = table.heartbeat(D, &beat("a:1"), 5001).unwrap();
    assert_eq!((held.lease_ms, held.readmit), (0, false), "somebody is about to take a column out");
    table.release_out(D);
    let untold = table.heartbeat(D, &beat("a:1"), 5002).unwrap();
    assert_eq!((untold.lease_ms, untold.readmit), (0, true));
    assert_eq!(table.to_readmit(5003), [D]);
    let known = record(1, "one");
    table.set_record(DriveRecord { instance: known.instance + 1, ..known.clone() });
    assert_eq!(table.to_readmit(5003), [], "it may not know its number yet, and takes no fence");
    table.set_record(DriveRecord {
        instance: known.instance + 1,
        stored: known.instance + 1,
        ..known.clone()
    });
    assert_eq!(table.to_readmit(5003), [D]);
    let outs = table.outs(D);
    // The drive's process is killed while it is told of the first column, so another column goes out.
    assert!(!table.hold_lapsed(D, 5004), "it is returning");
    let heard = table.processes(D);
    assert!(table.hold_gone(D, &heard));
    table.release_out(D);
    table.readmit(D, outs);
    assert_eq!(table.heartbeat(D, &beat("a:1"), 5005).unwrap().lease_ms, 0);
    let outs = table.outs(D);
    table.readmit(D, outs);
    assert_eq!(table.heartbeat(D, &beat("a:1"), 5006).unwrap().lease_ms, 1000);
    assert_eq!(table.state(D, 5007), DriveState::Up);
}

#[test]
fn no_column_of_a_drive_goes_out_while_it_is_told_what_it_missed() {
    let mut table = table();
    table.insert(record(1, "one"));
    table.set_untold(D);
    assert!(!table.returning(D, 5000), "it is not there yet");
    table.heartbeat(D, &beat("a:1"), 5000);
    assert!(table.lapsed(D, 5000) && table.returning(D, 5000) && !table.hold_lapsed(D, 5000));
    let mut now = 5000;
    let stalled = |table: &mut DriveTable, mut now: u64| {
        while table.returning(D, now) {
            now += 100;
            table.heartbeat(D, &beat("a:1"), now);
        }
        now
    };
    for _ in 0..3 {
        now += 900;
        table.heartbeat(D, &beat("a:1"), now);
        table.told_some(D, now);
    }
    // The drive sends heartbeats, but cannot be told of anything.
    let end = stalled(&mut table, now);
    assert!(end >= now + RETURN_STALLED_MS && end < now + RETURN_STALLED_MS + 200, "{end}");
    assert!(table.hold_lapsed(D, end));
    table.release_out(D);
    // After silence for a lease the drive returns anew. The time for the telling is bounded, however well it
    // goes.
    now = end + 2000;
    assert!(!table.returning(D, now));
    table.heartbeat(D, &beat("a:1"), now);
    let began = now;
    while table.returning(D, now) {
        now += 900;
        table.heartbeat(D, &beat("a:1"), now);
        table.told_some(D, now);
    }
    assert!(now >= began + RETURN_MAX_MS && now < began + RETURN_MAX_MS + 1000);
}

#[test]
fn a_start_makes_the_partitions_due_until_they_were_made_since() {
    let mut table = table();
    let due = |table: &mut DriveTable, restarted| {
        table.heartbeat(D, &Heartbeat { restarted, ..beat("a:1") }, 1);
        table.partitions_due(D)
    };
    assert_eq!(due(&mut table, false), None);
    let first = due(&mut table, true).expect("due");
    assert_eq!(due(&mut table, false), Some(first));
    let second = due(&mut table, true).expect("due");
    table.partitions_made(D, first);
    assert_eq!(due(&mut table, false), Some(second), "made before the second start");
    table.partitions_made(D, second);
    assert_eq!(due(&mut table, false), None);
}

#[test]
fn a_hold_that_came_to_nothing_costs_nothing() {
    let mut table = table();
    assert!(table.hold_lapsed(D, 5000));
    table.release(D);
    assert_eq!(table.heartbeat(D, &beat("a:1"), 5001).unwrap().lease_ms, 1000);
}

#[test]
fn a_replaced_drive_serves_no_more() {
    let mut table = table();
    table.insert(record(2, "two"));
    table.set_record(DriveRecord { replaced_by: DriveId(2), ..record(1, "one") });
    let answer = table.heartbeat(D, &beat("a:1"), 1).unwrap();
    assert_eq!((answer.lease_ms, answer.replaced), (0, true));
    assert_eq!(table.state(D, 2), DriveState::Replaced);
    assert_eq!((table.successor(D), table.successor(DriveId(2))), (DriveId(2), DriveId(2)));
}

#[test]
fn a_changed_record_is_stored_once() {
    let mut table = table();
    let changed = table.heartbeat(D, &beat("b:2"), 1).unwrap().changed.expect("it is to be stored");
    assert!(changed.confirmed && changed.addresses == "b:2".into());
    // Until the record is stored, every heartbeat reports the change.
    assert_eq!(table.heartbeat(D, &beat("b:2"), 1).unwrap().changed, Some(changed.clone()));
    table.set_record(changed);
    assert_eq!(table.heartbeat(D, &beat("b:2"), 2).unwrap().changed, None);
    assert_eq!(table.heartbeat(DriveId(9), &beat("b:2"), 2), None);
}

#[test]
fn what_moves_with_every_heartbeat_is_not_stored() {
    let mut table = table();
    let changed = |table: &mut DriveTable, capacity_bytes, free_bytes| {
        let beat = Heartbeat { capacity_bytes, free_bytes, ..beat("b:2") };
        let changed = table.heartbeat(D, &beat, 1).unwrap().changed;
        changed.iter().for_each(|record| table.set_record(record.clone()));
        (changed.is_some(), table.drive(D).unwrap().capacity_bytes)
    };
    assert_eq!(changed(&mut table, 1600, 900), (true, 1600));
    for (capacity_bytes, free_bytes) in [(1600, 100), (1500, 100), (1700, 0), (1601, 7)] {
        assert_eq!(changed(&mut table, capacity_bytes, free_bytes), (false, capacity_bytes));
    }
    assert_eq!(changed(&mut table, 1499, 0), (true, 1499));
    assert_eq!(changed(&mut table, 1600, 0), (true, 1600), "from what is stored");
}

#[test]
fn a_drive_is_found_by_name_or_identity() {
    let mut table = table();
    table.insert(DriveRecord { replaced_by: D, ..record(2, "one") });
    assert_eq!(table.find("one").unwrap().record.drive, D);
    assert_eq!(table.find(&DriveId(2).to_string()).unwrap().record.drive, DriveId(2));
    assert!(table.find("none").is_none());
}
