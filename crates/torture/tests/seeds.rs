//! A fixed set of seeds, each a cluster's bad half minute; and the seeds that once failed, by name.

use std::path::Path;

use braid_torture::{Mix, SeedOutcome, Settings, Transport, run_apart};

/// Number of seeds in one test; `make soak` runs thousands.
const EACH: u64 = 10;

fn tortured(seed: u64, settings: Settings) -> SeedOutcome {
    run_apart(Path::new(env!("CARGO_BIN_EXE_braid-torture")), seed, settings).expect("the program runs")
}

/// Runs a seed whose clients go this way to drives; `None`: as it draws.
fn survives_by(transport: Option<Transport>, seed: u64) {
    is_well(seed, Settings { transport, ..Settings::default() });
}

/// Runs a seed that failed when there was no other way than TCP.
fn survives(seed: u64) {
    survives_by(Some(Transport::Tcp), seed);
}

fn is_well(seed: u64, settings: Settings) {
    let outcome = tortured(seed, settings);
    if let Some(why) = outcome.failure {
        let last = outcome.last.join("\n");
        let how = settings.arguments().join(" ");
        panic!("{last}\nseed {seed}: {why}\nagain: cargo run -p braid-torture -- --seed {seed} {how}");
    }
    assert!(outcome.operations > 0, "nothing was done");
}

fn survive(block: u64) {
    (block * EACH..(block + 1) * EACH).for_each(|seed| survives_by(None, seed));
}

#[test]
fn the_same_seed_is_the_same_run() {
    for transport in [Transport::Tcp, Transport::UDP, Transport::AUTO] {
        let settings = Settings { transport: Some(transport), ..Settings::default() };
        for seed in [1, 2] {
            assert_eq!(tortured(seed, settings), tortured(seed, settings));
        }
        assert_ne!(tortured(1, settings).hash, tortured(2, settings).hash);
    }
}

#[test]
fn seeds_of_the_first_block() {
    survive(0);
}

#[test]
fn seeds_of_the_second_block() {
    survive(1);
}

#[test]
fn seeds_of_the_third_block() {
    survive(2);
}

#[test]
fn seeds_of_the_fourth_block() {
    survive(3);
}

/// Runs programs on mounts, with all that is known to hold of mounts.
#[test]
fn mounts_survive() {
    let settings = Settings { mounts: Some(Mix::all()), ..Settings::default() };
    for seed in 0..10 {
        is_well(seed, settings);
    }
    assert_eq!(tortured(1, settings), tortured(1, settings));
}

/// Each seed once showed one fault: a sync that nobody woke; an open file without a name that lost a dead
/// writer's bytes; a size without bytes that had landed; a unit that ended too late, as its column had
/// joined meanwhile, three times; a lock granted when it was lost, twice, and a lock whose former holder
/// was taken for a writer again, twice; a late heartbeat of a former process taken for a disk that is
/// behind; bytes of a program that had lost its lock.
#[test]
fn mounts_survive_what_they_once_did_not() {
    let named: [(&str, &[u64]); 2] =
        [("all/suspends", &[115, 549, 944]), ("all", &[16, 117, 142, 307, 358, 485, 740, 1827, 1886])];
    for (mix, seeds) in named {
        for &seed in seeds {
            let mounts = Some(mix.parse().expect("a mix"));
            is_well(seed, Settings { mounts, transport: Some(Transport::Tcp), ..Settings::default() });
        }
    }
}

/// Each seed once showed that a column became ready, or a write was acknowledged, while a column that had
/// joined during the write lacked it.
#[test]
fn columns_that_join_during_a_write_have_it() {
    [81, 113, 115, 126, 155, 164, 215].into_iter().for_each(survives);
}

/// A parity column kept a delta that another parity column lacked, as the base of the latter was older.
#[test]
fn deltas_above_a_cut_off_go_whatever_the_base_counts_in() {
    survives(64);
}

/// A parity column that had only deltas of a data column did not count for the file's size.
#[test]
fn sizes_count_deltas() {
    survives(310);
}

/// The manager was put back while a fence was under way: columns that it had not reached counted as out.
#[test]
fn a_restore_in_the_middle_of_a_fence_loses_no_file() {
    [17, 25, 39].into_iter().for_each(survives);
}

/// A cut of a file that was under way when the backup was made was done again after the restore.
#[test]
fn a_restore_does_not_repeat_a_cut() {
    survives(104);
}

/// The manager restarted in the middle of a comparison, and took the rest of it for the whole.
#[test]
fn a_successor_lacks_nothing_that_was_written_before_the_manager_restarted() {
    survives(144);
}

/// A column moved away, its disk came back with an older state, and another column of the file came to that
/// disk.
#[test]
fn an_object_that_came_back_does_not_pass_for_another_column() {
    survives(730);
}

/// The administrator read a file at the moment in which a drive was started again.
#[test]
fn the_end_waits_for_a_drive_that_starts_again() {
    survives(248);
}

/// The only write of a unit was taken back, and its record was damaged: a unit that was never written was
/// not restored.
#[test]
fn a_lost_unit_that_was_never_written_is_repaired() {
    survives(297);
}

/// The manager had places for two sessions of a drive, and its healer took both: a drive to which nothing
/// had happened sent no heartbeats, and went out.
#[test]
fn a_healer_takes_no_place_from_heartbeats() {
    survives(1030);
}

/// A column of a new layout became ready in the generation in which another drive had been told that it was
/// not: when that drive returned, it refused its fence for ever.
#[test]
fn what_is_ready_of_a_new_layout_is_told_under_a_new_generation() {
    [4909, 6828].into_iter().for_each(survives);
}

/// A drive had lost the end of its log, and the fences that it was sent before the manager had heard of that
/// made its log as long as it had been.
#[test]
fn a_log_grows_by_nothing_before_it_was_judged() {
    survives(499);
}

/// A column of what a snapshot shows could not be made anew: its stamps were above the first generation.
#[test]
fn what_snapshots_show_heals() {
    [37, 42].into_iter().for_each(survives);
}

/// The manager's disk failed while it stored that a drive had turned its key: it took the key over without
/// its number, and refused the drive for ever.
#[test]
fn a_key_that_was_turned_while_the_managers_disk_failed_is_known() {
    survives(15);
}

/// The manager was put back from a copy that has a snapshot, which was removed after, and in which a freeze
/// of a file was under way, which was written after.
#[test]
fn a_snapshot_that_a_restored_state_has_again_hinders_no_heal() {
    survives(849);
}
