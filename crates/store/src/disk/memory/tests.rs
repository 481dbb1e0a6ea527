//! Tests of the faulty disk itself: the changes that it keeps, and those that it loses.

use std::collections::BTreeSet;

use super::*;
use crate::disk::{WHOLE, read_full, write_full};

fn file(disk: &Memory, name: &str) -> Arc<dyn DiskFile> {
    disk.create(name).expect("made")
}

fn write(file: &dyn DiskFile, bytes: &[u8], at: u64) -> io::Result<()> {
    write_full(file, &[bytes], at)
}

/// A synced file of sixteen sectors.
fn durable(disk: &Memory, name: &str) -> Arc<dyn DiskFile> {
    let file = file(disk, name);
    write(&*file, &[1; 16 * SECTOR], 0).expect("written");
    file.sync_data().expect("synced");
    disk.sync_dir("").expect("synced");
    file
}

#[test]
fn what_was_synced_survives_and_of_the_rest_any_subset() {
    let disk = Memory::new(1);
    let file = durable(&disk, "a");
    write(&*file, &[2; 4 * SECTOR], 14 * 512).expect("written");
    let mut survivors = BTreeSet::new();
    for seed in 0..2000 {
        let after = disk.after_power_cut(seed);
        assert_eq!(after.content("a"), disk.after_power_cut(seed).content("a"), "the seed tells all");
        let bytes = after.content("a").expect("its name was synced");
        assert!(bytes.len() == 16 * SECTOR || bytes.len() == 18 * SECTOR);
        assert_eq!(bytes[..14 * SECTOR], [1; 14 * SECTOR], "what was synced is there");
        let sectors: Vec<u8> = bytes[14 * SECTOR..].chunks(SECTOR).map(|sector| sector[0]).collect();
        survivors.insert(sectors);
    }
    // Two old sectors, and up to two new ones: each as before or as written.
    let short = |n: usize| survivors.iter().filter(|sectors| sectors.len() == n).count();
    assert_eq!((short(2), short(4)), (4, 16), "{survivors:?}");
    assert_eq!(disk.after_kill(0).content("a").expect("there").len(), 18 * SECTOR, "a kill loses nothing");
}

#[test]
fn sectors_tear() {
    let disk = Memory::new(1);
    let file = durable(&disk, "a");
    write(&*file, &[2; 16 * SECTOR], 0).expect("written");
    let torn = |seed| {
        let bytes = disk.after_power_cut(seed).content("a").expect("there");
        bytes.chunks(SECTOR).any(|sector| sector.contains(&1) && sector.contains(&2))
    };
    assert!((0..100).any(torn));
}

#[test]
fn names_last_once_their_directory_was_synced() {
    let disk = Memory::new(1);
    disk.make_dir("log").expect("made");
    durable(&disk, "old");
    file(&disk, "log/a").sync_all().expect("synced");
    disk.rename("old", "new").expect("renamed");
    disk.remove("new").expect("removed");
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        seen.insert(disk.after_power_cut(seed).files());
    }
    let all = [vec![], vec!["new"], vec!["old"]].into_iter().flat_map(|names: Vec<&str>| {
        let with: Vec<&str> = ["log/a"].into_iter().chain(names.clone()).collect();
        [names, with]
    });
    let all: BTreeSet<Vec<String>> =
        all.map(|names| names.into_iter().map(str::to_owned).collect()).collect();
    assert_eq!(seen, all);
    disk.sync_dir("").expect("synced");
    disk.sync_dir("log").expect("synced");
    assert!((0..200).all(|seed| disk.after_power_cut(seed).files() == ["log/a"]));
}

#[test]
fn a_failed_sync_is_not_made_good_by_the_next() {
    let mut lost = 0;
    for seed in 0..100 {
        let disk = Memory::new(seed);
        let file = durable(&disk, "a");
        write(&*file, &[2; 4 * SECTOR], 0).expect("written");
        disk.inject(On::Sync, 2..3, Fault::Io);
        assert_eq!(file.sync_data().expect_err("told").raw_os_error(), Some(5));
        file.sync_data().expect("nothing is dirty");
        let mut bytes = [0; 4 * SECTOR];
        assert_eq!(read_full(&*file, &mut bytes, 0).expect("read"), bytes.len());
        assert_eq!(bytes, [2; 4 * SECTOR], "the cache has them");
        file.drop_cache(WHOLE);
        read_full(&*file, &mut bytes, 0).expect("read");
        assert_eq!(disk.after_power_cut(seed).content("a").expect("there")[..bytes.len()], bytes);
        lost += u32::from(bytes.contains(&1));
        write(&*file, &[3; SECTOR], 0).expect("written");
        file.sync_data().expect("what is new is synced");
        assert_eq!(disk.after_power_cut(seed).content("a").expect("there")[..SECTOR], [3; SECTOR]);
    }
    assert!((10..=90).contains(&lost), "{lost} of 100");
}

#[test]
fn a_cut_file_keeps_no_old_bytes() {
    let disk = Memory::new(1);
    let file = durable(&disk, "a");
    file.set_length(100).expect("cut");
    file.set_length(1000).expect("longer");
    let mut expected = vec![1; 100];
    expected.resize(1000, 0);
    assert_eq!(disk.content("a").expect("there"), expected);
    file.sync_data().expect("synced");
    assert_eq!(disk.after_power_cut(9).content("a").expect("there"), expected);
}

#[test]
fn space_ends_where_it_was_set() {
    let disk = Memory::new(1);
    disk.set_budget(Some(20 * 512));
    let a = durable(&disk, "a");
    assert_eq!(disk.space(), Some(Space { free: 4 * 512, size: 20 * 512, device: 0 }));
    assert_eq!(a.write_at(&[IoSlice::new(&[1; 5 * SECTOR])], 16 * 512).expect("a part"), 4 * SECTOR);
    let full = a.write_at(&[IoSlice::new(&[1])], 20 * 512).expect_err("full");
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    assert_eq!(disk.create("b").expect_err("full").kind(), io::ErrorKind::StorageFull);
    a.write_at(&[IoSlice::new(&[2])], 0).expect("over what is there");
    a.set_length(0).expect("cut");
    file(&disk, "b");
}

#[test]
fn each_fault_comes_when_told_and_once() {
    let disk = Memory::new(3);
    let file = durable(&disk, "a");
    let writes = disk.operations(On::Write);
    let whole = [7; 4 * SECTOR];
    let at_once = |file: &dyn DiskFile| file.write_at(&[IoSlice::new(&whole)], 0);
    disk.inject(On::Write, writes..writes + 1, Fault::Io);
    disk.inject(On::Write, writes + 1..writes + 2, Fault::NoSpace);
    disk.inject(On::Write, writes + 2..writes + 3, Fault::Short);
    disk.inject(On::Write, writes + 3..writes + 4, Fault::Flip);
    disk.inject(On::Write, writes + 4..writes + 5, Fault::Misdirect);
    assert_eq!(at_once(&*file).expect_err("EIO").raw_os_error(), Some(5));
    assert_eq!(at_once(&*file).expect_err("ENOSPC").kind(), io::ErrorKind::StorageFull);
    assert!((1..whole.len()).contains(&at_once(&*file).expect("a part")));
    assert_eq!(at_once(&*file).expect("silent"), whole.len());
    let flipped = disk.content("a").expect("there");
    let bits: u32 = flipped[..whole.len()].iter().map(|byte| (byte ^ 7).count_ones()).sum();
    assert_eq!(bits, 1);
    file.write_at(&[IoSlice::new(&[9; SECTOR])], 0).expect("silent");
    let strays = disk.content("a").expect("there");
    assert_eq!(strays.iter().filter(|&&byte| byte == 9).count(), SECTOR);
    at_once(&*file).expect("well again");

    let reads = disk.operations(On::Read);
    disk.inject(On::Read, reads..reads + 1, Fault::Io);
    disk.inject(On::Read, reads + 1..reads + 2, Fault::Short);
    let mut bytes = [0; 4 * SECTOR];
    assert!(file.read_at(&mut bytes, 0).is_err());
    assert!((1..bytes.len()).contains(&file.read_at(&mut bytes, 0).expect("a part")));
    assert_eq!(read_full(&*file, &mut bytes, 0).expect("all"), bytes.len());
    assert!(disk.flip("a", 8 * 5) && disk.content("a").expect("there")[5] == 6);
    assert!(!disk.flip("a", 1 << 40) && !disk.flip("b", 0));
}

#[test]
fn a_sync_that_lies_is_found_out_by_a_power_cut() {
    let disk = Memory::new(1);
    let file = durable(&disk, "a");
    let before = disk.content("a").expect("there");
    disk.lie();
    assert!(!disk.has_lied());
    write(&*file, &[7; SECTOR], 0).expect("written");
    file.sync_all().expect("it says so");
    durable(&disk, "b");
    assert!(disk.has_lied() && disk.after_kill(1).has_lied());
    for seed in 0..20 {
        let after = disk.after_power_cut(seed);
        assert_eq!((after.files(), after.content("a")), (vec!["a".to_owned()], Some(before.clone())));
        assert!(!after.has_lied());
    }
    disk.own_up();
    let after = disk.after_power_cut(1);
    assert_eq!((after.files(), after.content("a")), (disk.files(), disk.content("a")));
}

#[test]
fn without_power_nothing_happens() {
    let disk = Memory::new(1);
    let file = durable(&disk, "a");
    disk.cut_after(disk.operations(On::Change) + 1);
    file.sync_data().expect("the last");
    let before = disk.content("a");
    assert!(disk.is_cut());
    assert!(write(&*file, &[5], 0).is_err() && file.sync_all().is_err() && file.length().is_err());
    assert!(disk.remove("a").is_err() && disk.list("").is_err());
    assert_eq!(disk.content("a"), before);
    let after = disk.after_power_cut(2);
    assert!(!after.is_cut() && after.open("a").is_ok());
}
