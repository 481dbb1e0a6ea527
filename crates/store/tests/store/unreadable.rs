//! Each page of a store's disk is unreadable in turn: the store opens, and everything outside the page is
//! there.

use std::sync::Arc;

use braid_store::disk::memory::Memory;
use braid_store::*;

use crate::common::*;

const PAGE: u64 = 4096;
const UNITS: u64 = 60;
const BYTES: u32 = 5000;

fn open_disk(disk: &Memory) -> Result<(Store, Recovery), Error> {
    let options = Options { segment_bytes: 64 << 10, ..Options::default() };
    Store::open_on(Arc::new(disk.clone()), None, options)
}

/// A killed store of objects with a unit each, two checkpoints, and a tail with `tail` of the objects.
fn killed(tail: u64) -> Memory {
    let disk = Memory::new(1);
    Store::format_on(&disk, identity(), &Options::default()).expect("format");
    let (store, _) = open_disk(&disk).expect("open");
    let make = Mutation::PartitionCreate { partition: P, quota_bytes: None, key_epoch: 1 };
    store.commit(make).expect("make the partition");
    for n in 1..=UNITS {
        if n <= UNITS - tail {
            store.commit(create(n)).expect("create");
        } else if n == UNITS - tail + 1 {
            // So many small records that several pages hold nothing else.
            for n in n..=UNITS {
                store.commit(create(n)).expect("create");
            }
        }
        store.commit(Mutation::Write(write(n, 0, 0, BYTES, version(1, n)))).expect("write");
        if n == UNITS / 2 || n == UNITS - tail {
            store.checkpoint().expect("a checkpoint");
        }
    }
    disk.after_kill(1)
}

/// Open the store and read everything: returns opening's report and the unreadable units.
fn outcome(disk: &Memory) -> (Recovery, Vec<u64>) {
    let (store, recovery) = open_disk(disk).expect("it opens");
    let mut gone = Vec::new();
    for n in 1..=UNITS {
        match content(&store, n, 0, 0, BYTES, Want::Newest) {
            Ok(bytes) if bytes == pattern(n, size(BYTES)) => {}
            Err(Error::Damaged { .. } | Error::Io { .. }) => gone.push(n),
            // The last unit was cut off, and opening reported that.
            Ok(_) | Err(_) if n == UNITS && recovery.damaged_count > 0 => gone.push(n),
            other => panic!("object {n}: {:?}", other.map(|_| "other bytes")),
        }
    }
    (recovery, gone)
}

fn size(bytes: u32) -> usize {
    usize::try_from(bytes).expect("small")
}

#[test]
fn a_page_that_cannot_be_read_costs_what_is_on_it() {
    const TAIL: u64 = 20;
    let whole = killed(TAIL);
    let (recovery, gone) = outcome(&whole.after_kill(1));
    let replayed = usize::try_from(recovery.segments).expect("small");
    assert_eq!((recovery.damaged_count, gone.len()), (0, 0));
    let files: Vec<String> = whole.files().into_iter().filter(|name| name != "superblock").collect();
    let log: Vec<&String> = files.iter().filter(|name| name.starts_with("log/")).collect();
    let tail = log[log.len() - replayed].clone();
    assert_eq!(files.iter().filter(|name| name.starts_with("checkpoint/")).count(), 2);
    let mut hit = 0;
    let mut pages = 0;
    let mut together = 0;
    for name in files {
        let length = u64::try_from(whole.content(&name).expect("there").len()).expect("small");
        for page in (0..length).step_by(usize::try_from(PAGE).expect("small")) {
            let disk = whole.after_kill(1);
            disk.spoil(&name, page..page + 1);
            let (recovery, gone) = outcome(&disk);
            let told = format!("{name} at {page}: {gone:?}, {:?}", recovery.damaged);
            pages += 1;
            hit += usize::from(!gone.is_empty());
            if name.starts_with("checkpoint/") {
                assert!(gone.is_empty(), "another checkpoint and the log have it all: {told}");
            } else if name < tail {
                // A record here has a header and one or two pages: at most three units touch a page.
                assert!(gone.len() <= 3, "{told}");
            } else {
                // If several records are lost together, the next one names their subjects.
                let any =
                    recovery.damaged.iter().any(|damage| damage.what.contains("any object may be affected"));
                assert!(!any && gone.iter().all(|&n| n > UNITS - TAIL - 12), "{told}");
                together += usize::from(gone.len() > 4);
            }
        }
    }
    assert!(together > 1, "only {together} pages of the tail hold several records");
    assert!(hit > 50 && pages > 90, "{hit} of {pages} pages mattered");
}

#[test]
fn a_disk_that_fails_everywhere_is_refused_and_nothing_is_cut() {
    let disk = killed(20);
    let names = disk.files();
    let before: Vec<_> = disk.files().iter().map(|name| disk.content(name)).collect();
    for name in disk.files().iter().filter(|name| name.starts_with("log/")) {
        disk.spoil(name, 0..u64::try_from(disk.content(name).expect("there").len()).expect("small"));
    }
    let refused = open_disk(&disk).expect_err("refused").to_string();
    assert!(refused.contains("segment") && refused.contains("from byte"), "{refused}");
    assert_eq!(disk.files(), names);
    for (name, before) in names.iter().zip(before) {
        assert!(disk.content(name) == before, "{name} has changed");
    }
}
