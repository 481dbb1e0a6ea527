//! The effect of each mutation, and the requests that are refused, before and after reopening.

use braid_layout::{
    ClientId, ColumnMask, EndBound, Generation, ObjectId, OperationNumber, PartitionId, Version,
};
use braid_store::*;

use crate::common::*;

const O: ObjectId = ObjectId(1);

struct Fixture {
    dir: tempfile::TempDir,
    store: Store,
}

impl Fixture {
    fn new() -> Fixture {
        let dir = tempfile::tempdir().expect("a directory");
        let store = fresh(dir.path(), options());
        store.commit(create(1)).expect("create");
        Fixture { dir, store }
    }

    /// Check now, and again after reopening.
    fn check(mut self, check: impl Fn(&Store)) -> Fixture {
        check(&self.store);
        self.store.close().expect("close");
        drop(self.store);
        let (store, recovery) = open(self.dir.path());
        assert_eq!((recovery.torn_bytes, recovery.damaged_count), (0, 0));
        check(&store);
        self.store = store;
        self
    }

    fn write(&self, unit: u64, from: u32, to: u32, version: Version) -> Result<MutationOutcome, Error> {
        self.store.commit(Mutation::Write(write(1, unit, from, to, version)))
    }
}

fn chain(store: &Store, unit: u64) -> Vec<(Version, bool)> {
    let chains = store.versions(P, O, unit..unit + 1).expect("versions");
    chains.iter().flat_map(|chain| &chain.entries).map(|entry| (entry.version, entry.settled)).collect()
}

fn bytes(store: &Store, unit: u64, from: u32, to: u32) -> Vec<u8> {
    content(store, 1, unit, from, to, Want::Newest).expect("read")
}

#[test]
fn bytes_come_back() {
    let fixture = Fixture::new();
    assert_eq!(fixture.store.commit(create(1)).expect("again"), MutationOutcome::Already);
    assert_eq!(fixture.write(5, 100, 20_000, version(3, 1)).expect("write"), MutationOutcome::Applied);
    assert_eq!(fixture.write(5, 100, 20_000, version(3, 1)).expect("again"), MutationOutcome::Already);
    let fixture = fixture.check(|store| {
        let mut expected = vec![0; usize::try_from(UNIT).expect("small")];
        expected[100..20_000].copy_from_slice(&pattern(1, 19_900));
        assert_eq!(bytes(store, 5, 0, UNIT), expected);
        assert_eq!(bytes(store, 5, 5000, 5001), expected[5000..5001]);
        let view = store.read(P, O, 5, 0..UNIT, Want::Newest).expect("view");
        assert_eq!((view.version, view.pending, view.columns), (version(3, 1), true, ColumnMask::all(3)));
        let stored = ViewExtent::Stored { from: 100, to: 20_000 };
        let holes = [ViewExtent::Hole { from: 0, to: 100 }, ViewExtent::Hole { from: 20_000, to: UNIT }];
        assert_eq!(view.extents(), [holes[0], stored, holes[1]]);
        let settled = store.read(P, O, 5, 0..UNIT, Want::Settled).expect("settled");
        assert_eq!((settled.version, settled.pending), (Version::ZERO, false));
        assert_eq!(store.unsettled(P, O).expect("list"), [5]);
        assert_eq!(store.object(P, O).expect("attributes"), attributes());
        assert_eq!(store.usage(P, O).expect("usage").end, Some((5, 20_000)));
        assert_eq!(store.verify_unit(P, O, 5).expect("verify"), 19_900);
        assert_eq!(store.units(P, O, 0, 10).expect("list"), [5]);
        assert_eq!(store.units(P, O, 6, 10).expect("list"), []);
    });
    fixture.store.close().expect("close");
    assert!(matches!(fixture.store.commit(create(2)), Err(Error::Closed)));
    assert_eq!(bytes(&fixture.store, 5, 100, 200), pattern(1, 100), "a closed store still reads");
}

#[test]
fn a_newer_write_settles_what_is_below_and_an_older_one_is_ignored() {
    let fixture = Fixture::new();
    fixture.write(0, 0, 8192, version(1, 1)).expect("write");
    fixture.write(0, 5000, 6000, version(1, 3)).expect("write");
    let fixture = fixture.check(|store| {
        assert_eq!(chain(store, 0), [(version(1, 1), true), (version(1, 3), false)]);
        let mut expected = pattern(1, 8192);
        expected[5000..6000].copy_from_slice(&pattern(3, 1000));
        assert_eq!(bytes(store, 0, 0, 8192), expected, "one block of two records");
        let exactly = |n| content(store, 1, 0, 0, 8192, Want::Exactly(version(1, n)));
        assert_eq!(exactly(1).expect("the version below"), pattern(1, 8192));
        assert_eq!(exactly(3).expect("the tip"), expected);
        assert!(matches!(exactly(2), Err(Error::Gone { .. })));
        assert!(matches!(
            content(store, 1, 0, 0, 1, Want::Exactly(Version::ZERO)),
            Err(Error::Gone { asked: Version::ZERO, .. })
        ));
        assert_eq!(content(store, 1, 9, 0, 1, Want::Exactly(Version::ZERO)).expect("never written"), [0]);
    });
    let tip = version(1, 3);
    assert_eq!(fixture.write(0, 0, 1, version(1, 2)).expect("older"), MutationOutcome::Older { tip });
    fixture.check(|store| assert_eq!(chain(store, 0).len(), 2));
}

#[test]
fn retire_settles_its_own_lease_only() {
    let fixture = Fixture::new();
    for (unit, stamp) in [(0, version(1, 1)), (1, version(1, 2)), (2, version(2, 1))] {
        fixture.write(unit, 0, 10, stamp).expect("write");
    }
    let retire = settled(1, version(1, 2));
    assert_eq!(fixture.store.commit(retire.clone()).expect("retire"), MutationOutcome::Applied);
    assert_eq!(fixture.store.commit(retire).expect("again"), MutationOutcome::Already);
    let fixture = fixture.check(|store| assert_eq!(store.unsettled(P, O).expect("list"), [1, 2]));
    let mut riding = write(1, 3, 0, 10, version(1, 3));
    riding.settled_below = version(1, 3);
    fixture.store.commit(Mutation::Write(riding)).expect("write");
    fixture.check(|store| assert_eq!(store.unsettled(P, O).expect("list"), [2, 3]));
}

#[test]
fn a_verdict_settles_or_takes_back_by_name() {
    let fixture = Fixture::new();
    fixture.write(0, 0, 100, version(1, 1)).expect("write");
    fixture.write(0, 0, 50, version(1, 2)).expect("write");
    fixture.write(1, 0, 100, version(1, 3)).expect("write");
    fixture.write(2, 0, 100, version(1, 4)).expect("write");
    let verdict = |unit, forward: &[Version], back: &[Version]| UnitVerdict {
        unit,
        forward: forward.to_vec(),
        back: back.to_vec(),
        cut_offs: Vec::new(),
    };
    let units = vec![
        verdict(0, &[], &[version(1, 2), version(9, 9)]),
        verdict(1, &[version(1, 3)], &[]),
        verdict(2, &[version(1, 9)], &[version(1, 1)]),
        verdict(99, &[], &[version(1, 1)]),
    ];
    let mutation = Mutation::Verdict { partition: P, object: O, g: Generation(1), units };
    assert_eq!(fixture.store.commit(mutation.clone()).expect("verdict"), MutationOutcome::Applied);
    assert_eq!(fixture.store.commit(mutation).expect("again"), MutationOutcome::Already);
    let fixture = fixture.check(|store| {
        assert_eq!(chain(store, 0), [(version(1, 1), true)]);
        assert_eq!(chain(store, 1), [(version(1, 3), true)]);
        assert_eq!(chain(store, 2), [(version(1, 4), false)]);
        assert_eq!(bytes(store, 0, 0, 100), pattern(1, 100));
    });
    fixture.write(0, 90, 110, version(1, 7)).expect("on top of what was taken back");
    fixture.check(|store| {
        let mut expected = pattern(1, 100);
        expected.truncate(90);
        expected.extend(pattern(7, 20));
        assert_eq!(bytes(store, 0, 0, 110), expected);
        assert_eq!(chain(store, 0), [(version(1, 1), true), (version(1, 7), false)]);
    });
}

#[test]
fn an_installed_version_goes_below_a_newer_pending_one() {
    let fixture = Fixture::new();
    fixture.write(0, 0, 100, version(1, 1)).expect("write");
    fixture.write(0, 10, 20, version(1, 5)).expect("write");
    let mut install = write(1, 0, 0, 50, version(1, 3));
    install.standing = Standing::Installed;
    assert_eq!(
        fixture.store.commit(Mutation::Write(install.clone())).expect("install"),
        MutationOutcome::Applied
    );
    assert_eq!(
        fixture.store.commit(Mutation::Write(install.clone())).expect("again"),
        MutationOutcome::Already
    );
    let fixture = fixture.check(|store| {
        let mut expected = pattern(3, 50);
        expected.resize(100, 0);
        assert_eq!(content(store, 1, 0, 0, 100, Want::Settled).expect("settled"), expected);
        expected[10..20].copy_from_slice(&pattern(5, 10));
        assert_eq!(bytes(store, 0, 0, 100), expected);
        assert_eq!(chain(store, 0), [(version(1, 3), true), (version(1, 5), false)]);
    });
    install.stamp = version(1, 2);
    let older = fixture.store.commit(Mutation::Write(install.clone())).expect("older");
    assert_eq!(older, MutationOutcome::Older { tip: version(1, 5) });
    install.stamp = version(1, 6);
    fixture.store.commit(Mutation::Write(install)).expect("newer than the pending one");
    fixture.check(|store| assert_eq!(chain(store, 0), [(version(1, 6), true)]));
}

#[test]
fn parity_keeps_its_cover_and_holes_take_no_space() {
    let fixture = Fixture::new();
    let cover = vec![version(2, 8), Version::ZERO, version(1, 4)];
    let parity = counting(write(1, 4, 0, UNIT, version(2, 8)), WriteKind::StripeParity, cover);
    fixture.store.commit(Mutation::Write(parity)).expect("parity");
    let used = fixture.store.partition(P).expect("partition").used;
    assert_eq!(used, u64::from(UNIT));
    let mut hole = write(1, 5, 0, UNIT, version(2, 9));
    hole.body = Body::Hole;
    fixture.store.commit(Mutation::Write(hole)).expect("hole");
    fixture.check(|store| {
        let view = store.read(P, O, 4, 0..UNIT, Want::Newest).expect("view");
        assert_eq!(view.cover, [version(2, 8), Version::ZERO, version(1, 4)]);
        assert_eq!(view.kind, WriteKind::StripeParity);
        assert_eq!(bytes(store, 4, 0, UNIT), pattern(8, usize::try_from(UNIT).expect("small")));
        let hole = store.read(P, O, 5, 0..UNIT, Want::Newest).expect("view");
        assert_eq!((hole.version, hole.stored_bytes()), (version(2, 9), 0));
        assert_eq!(hole.extents(), [ViewExtent::Hole { from: 0, to: UNIT }]);
        assert_eq!(store.partition(P).expect("partition").used, used);
    });
}

#[test]
fn a_truncation_is_holes_which_free_what_was_there_and_lower_the_size() {
    let fixture = Fixture::new();
    for unit in 0..5 {
        fixture.write(unit, 0, UNIT, version(1, 1 + unit)).expect("write");
    }
    let usage = |store: &Store| store.usage(P, O).expect("usage");
    assert_eq!((usage(&fixture.store).size, usage(&fixture.store).end), (Some((4, UNIT)), Some((4, UNIT))));
    for (n, unit, from) in [(6, 1, 1000), (7, 2, 0), (8, 3, 0), (9, 4, 0)] {
        let hole = Write { body: Body::Hole, ..write(1, unit, from, UNIT, version(1, n)) };
        assert_eq!(fixture.store.commit(Mutation::Write(hole)).expect("a hole"), MutationOutcome::Applied);
    }
    let g = Generation(1);
    let settled_below = version(1, 10);
    let retire = Mutation::Retire {
        partition: P,
        object: O,
        g,
        settled_below,
        client: ClientId::NONE,
        watermark: OperationNumber::NONE,
    };
    fixture.store.commit(retire).expect("settled");
    let fixture = fixture.check(|store| {
        assert_eq!((usage(store).size, usage(store).end), (Some((1, 1000)), Some((4, UNIT))));
        assert_eq!(usage(store).bytes, u64::from(UNIT) + 1000, "the rest was freed");
        assert_eq!(bytes(store, 1, 0, 1000), pattern(2, size(UNIT))[..1000]);
        assert_eq!(bytes(store, 1, 1000, UNIT), vec![0; size(UNIT) - 1000]);
        assert_eq!(bytes(store, 3, 0, UNIT), vec![0; size(UNIT)]);
    });
    // A late message does not bring back bytes that were cut off.
    let late = fixture.write(4, 0, UNIT, version(1, 5)).expect("answered");
    assert_eq!(late, MutationOutcome::Older { tip: version(1, 9) });
    assert_eq!(fixture.write(2, 0, 700, version(1, 11)).expect("longer again"), MutationOutcome::Applied);
    fixture.check(|store| {
        assert_eq!(usage(store).size, Some((2, 700)));
        assert_eq!(bytes(store, 4, 0, UNIT), vec![0; size(UNIT)]);
    });
}

fn size(bytes: u32) -> usize {
    usize::try_from(bytes).expect("small")
}

#[test]
fn a_fence_refuses_other_generations() {
    let fixture = Fixture::new();
    let fence = |g| Mutation::Fence {
        partition: P,
        object: O,
        g: Generation(g),
        set: ColumnMask::all(4),
        joining: ColumnMask::all(1),
    };
    assert_eq!(fixture.store.commit(fence(4)).expect("fence"), MutationOutcome::Applied);
    assert_eq!(fixture.store.commit(fence(4)).expect("again"), MutationOutcome::Already);
    let stale = fixture.write(0, 0, 1, version(1, 1));
    let have = Generation(4);
    let asked = Generation(1);
    assert!(matches!(stale, Err(Error::StaleGeneration { have: h, asked: a }) if (h, a) == (have, asked)));
    assert!(matches!(fixture.store.commit(fence(3)), Err(Error::StaleGeneration { .. })));
    fixture.check(|store| {
        let object = store.object(P, O).expect("object");
        assert_eq!(
            (object.g, object.set, object.joining),
            (Generation(4), ColumnMask::all(4), ColumnMask::all(1))
        );
        assert_eq!(store.versions(P, O, 0..10).expect("versions"), [], "nothing was changed");
    });
}

/// A request may be validated before a fence and committed after it.
#[test]
fn what_was_asked_before_a_fence_is_refused_after_it() {
    let fixture = Fixture::new();
    let fence = |g| Mutation::Fence {
        partition: P,
        object: O,
        g: Generation(g),
        set: ColumnMask::all(4),
        joining: ColumnMask::EMPTY,
    };
    let set = |g, cluster| Mutation::SetAttributes {
        partition: P,
        object: O,
        g: Generation(g),
        change: Change { cluster: Some(cluster), ..Change::default() },
    };
    let take = |g, still| Mutation::Take {
        partition: P,
        object: O,
        g: Generation(g),
        still: ObjectId(still),
        attributes: attributes(),
    };
    let stills = |store: &Store| -> Vec<u64> {
        let objects = store.objects(P, None, 100).expect("list");
        objects.iter().map(|object| object.0).filter(|&object| object > 50).collect()
    };
    let remove = |g| Mutation::Remove { partition: P, object: O, g: Generation(g) };
    let retire = |g| Mutation::Retire {
        partition: P,
        object: O,
        g: Generation(g),
        settled_below: version(1, 2),
        client: ClientId::NONE,
        watermark: OperationNumber::NONE,
    };
    let verdict = |g| {
        let forward = vec![version(1, 1)];
        let back = Vec::new();
        let units = vec![UnitVerdict { unit: 0, forward, back, cut_offs: Vec::new() }];
        Mutation::Verdict { partition: P, object: O, g: Generation(g), units }
    };
    fixture.store.commit(take(1, 51)).expect("all is settled");
    fixture.write(0, 0, 10, version(1, 1)).expect("write");
    fixture.store.commit(fence(3)).expect("fence");
    let check = |store: &Store| {
        let older = [take(1, 57), take(2, 57), retire(1), verdict(2), remove(1), remove(2)];
        for stale in [set(1, 6), set(2, 6)].into_iter().chain(older) {
            let refused = store.commit(stale.clone());
            let have = Generation(3);
            assert!(matches!(refused, Err(Error::StaleGeneration { have: h, .. }) if h == have), "{stale:?}");
        }
        assert_eq!(store.object(P, O).expect("attributes").cluster, attributes().cluster);
        assert_eq!(stills(store), [51]);
        assert_eq!(store.unsettled(P, O).expect("list"), [0], "nothing was changed");
    };
    // Refused mutations are not there after a replay either.
    let fixture = fixture.check(check);
    for early in [retire(4), verdict(4), take(4, 57)] {
        let refused = fixture.store.commit(early);
        assert!(matches!(refused, Err(Error::StaleGeneration { .. })), "not told yet: {refused:?}");
    }
    for (current, expected) in [
        (set(4, 6), MutationOutcome::Applied),
        (verdict(3), MutationOutcome::Applied),
        (retire(3), MutationOutcome::Already),
        (take(3, 57), MutationOutcome::Applied),
        (take(1, 51), MutationOutcome::Already),
    ] {
        assert_eq!(fixture.store.commit(current).expect("of this generation"), expected);
    }
    let fixture = fixture.check(|store| assert_eq!(stills(store), [51, 57]));
    assert_eq!(fixture.store.commit(remove(4)).expect("its manager is ahead"), MutationOutcome::Applied);
    assert_eq!(fixture.store.commit(remove(1)).expect("it is gone"), MutationOutcome::Already);
}

#[test]
fn attributes_change_and_objects_go() {
    let fixture = Fixture::new();
    let change = Change { cluster: Some(2), opaque: Some(vec![9; OPAQUE_BYTES_MAX]), ..Change::default() };
    let set = Mutation::SetAttributes { partition: P, object: O, g: Generation(1), change };
    assert_eq!(fixture.store.commit(set.clone()).expect("set"), MutationOutcome::Applied);
    assert_eq!(fixture.store.commit(set).expect("again"), MutationOutcome::Already);
    fixture.write(0, 0, 100, version(1, 1)).expect("write");
    let fixture = fixture.check(|store| {
        let object = store.object(P, O).expect("object");
        assert_eq!((object.cluster, object.opaque.len()), (2, OPAQUE_BYTES_MAX));
        assert_eq!((object.map, object.modified_ms), (b"map".to_vec(), 1000));
    });
    let remove_partition = Mutation::PartitionRemove { partition: P };
    assert!(matches!(fixture.store.commit(remove_partition.clone()), Err(Error::PartitionNotEmpty(P, 1))));
    assert_eq!(fixture.store.commit(remove(1)).expect("remove"), MutationOutcome::Applied);
    assert_eq!(fixture.store.commit(remove(1)).expect("again"), MutationOutcome::Already);
    let fixture = fixture.check(|store| {
        assert!(matches!(store.object(P, O), Err(Error::NoObject(P, O))));
        assert_eq!(store.stat().expect("stat").live, 0);
    });
    fixture.store.commit(create(1)).expect("the number can be used again");
    let fixture = fixture.check(|store| assert_eq!(chain(store, 0), [], "without the old bytes"));
    fixture.store.commit(remove(1)).expect("remove");
    assert_eq!(fixture.store.commit(remove_partition.clone()).expect("remove"), MutationOutcome::Applied);
    assert_eq!(fixture.store.commit(remove_partition).expect("again"), MutationOutcome::Already);
    fixture.check(|store| assert_eq!(store.partitions(), []));
}

#[test]
fn partitions_have_a_soft_quota() {
    let fixture = Fixture::new();
    let set = |quota| Mutation::PartitionSet { partition: P, quota_bytes: Some(quota), key_epoch: 2 };
    fixture.store.commit(set(1000)).expect("set");
    fixture.write(0, 0, 900, version(1, 1)).expect("within");
    let refused = fixture.write(1, 0, 200, version(1, 2));
    assert!(matches!(refused, Err(Error::Quota { used: 900, quota: 1000, asked: 200, .. })), "{refused:?}");
    fixture.write(0, 0, 900, version(1, 3)).expect("overwriting adds nothing");
    fixture.store.commit(set(5000)).expect("resize");
    fixture.write(1, 0, 200, version(1, 4)).expect("within");
    let fixture = fixture.check(|store| {
        let partition = store.partition(P).expect("partition");
        assert_eq!((partition.quota_bytes, partition.key_epoch, partition.objects), (Some(5000), 2, 1));
        assert_eq!(partition.used, 900 + 900 + 200, "the version below the pending one is retained");
    });
    let create = |key_epoch| Mutation::PartitionCreate { partition: P, quota_bytes: Some(5000), key_epoch };
    assert_eq!(fixture.store.commit(create(2)).expect("same"), MutationOutcome::Already);
    assert!(matches!(fixture.store.commit(create(3)), Err(Error::PartitionExists(P))));
    let back = Mutation::PartitionSet { partition: P, quota_bytes: Some(5000), key_epoch: 1 };
    assert!(matches!(fixture.store.commit(back), Err(Error::KeyEpoch(P, 2))), "the key epoch never falls");
    fixture.check(|store| assert_eq!(store.partition(P).expect("partition").key_epoch, 2));
}

#[test]
fn malformed_requests_are_refused() {
    let fixture = Fixture::new();
    type Spoil = fn(&mut Write);
    let cases: [(&str, Spoil); 13] = [
        ("empty range", |w| w.to = w.from),
        ("backward range", |w| (w.from, w.to) = (9, 3)),
        ("past the unit", |w| w.body = Body::Hole),
        ("version zero", |w| w.stamp = Version::ZERO),
        ("cover on data", |w| w.cover = vec![Version::ZERO]),
        ("cover too long", |w| (w.kind, w.cover) = (WriteKind::ParityBase, vec![Version::ZERO; 65])),
        ("a version without an end", |w| (w.kind, w.cover) = (WriteKind::ParityBase, vec![Version::ZERO])),
        ("a base that does not know an end", |w| {
            let base = Write { standing: Standing::Installed, ..w.clone() };
            *w = counting(base, WriteKind::ParityBase, vec![w.stamp]);
            w.ends = vec![EndBound::at_least(1)];
        }),
        ("an end past the unit", |w| {
            *w = counting(w.clone(), WriteKind::StripeParity, vec![w.stamp]);
            w.ends = vec![EndBound::at_least(UNIT + 1)];
        }),
        ("parity as a whole content", |w| {
            let whole = Write { standing: Standing::Whole, ..w.clone() };
            *w = counting(whole, WriteKind::StripeParity, vec![w.stamp]);
        }),
        ("payload too short", |w| w.to += 1),
        ("checksums missing", |w| {
            if let Body::Bytes { crcs, .. } = &mut w.body {
                crcs.pop();
            }
        }),
        ("checksum wrong", |w| {
            if let Body::Bytes { crcs, .. } = &mut w.body {
                crcs[1] ^= 1;
            }
        }),
    ];
    for (name, spoil) in cases {
        let mut bad = write(1, 0, 10, 10_000, version(1, 1));
        spoil(&mut bad);
        if name == "past the unit" {
            bad.to = UNIT + 1;
        }
        let answer = fixture.store.commit(Mutation::Write(bad));
        match name {
            "checksum wrong" => {
                assert!(matches!(answer, Err(Error::Checksum { at: 4096 })), "{name}: {answer:?}")
            }
            _ => assert!(matches!(answer, Err(Error::Malformed(_))), "{name}: {answer:?}"),
        }
    }
    let mut odd = attributes();
    odd.unit_bytes = 5000;
    let odd = Mutation::Create { partition: P, object: ObjectId(2), attributes: odd };
    assert!(matches!(fixture.store.commit(odd), Err(Error::Malformed(_))));
    let mut other = attributes();
    other.map = b"another".to_vec();
    let other = Mutation::Create { partition: P, object: O, attributes: other };
    assert!(matches!(fixture.store.commit(other), Err(Error::Exists(P, O))));
    let elsewhere = PartitionId(99);
    let orphan = Mutation::Create { partition: elsewhere, object: O, attributes: attributes() };
    assert!(matches!(fixture.store.commit(orphan), Err(Error::NoPartition(p)) if p == elsewhere));
    // A lease settles only its own stamps, and none newer than the write's.
    for (settled_below, standing) in [
        (version(2, 1), Standing::Pending),
        (version(1, 10), Standing::Pending),
        (version(1, 1), Standing::Installed),
    ] {
        let odd = Write { settled_below, standing, ..write(1, 0, 0, 100, version(1, 9)) };
        assert!(matches!(fixture.store.commit(Mutation::Write(odd)), Err(Error::Malformed(_))));
    }
    assert!(matches!(fixture.store.read(P, O, 0, 5..5, Want::Newest), Err(Error::Malformed(_))));
    assert!(matches!(fixture.store.read(P, O, 0, 0..UNIT + 1, Want::Newest), Err(Error::Malformed(_))));
    fixture.check(|store| assert_eq!(chain(store, 0), []));
}

#[test]
fn objects_are_listed_in_pages() {
    let fixture = Fixture::new();
    for object in [5, 3, 9] {
        fixture.store.commit(create(object)).expect("create");
    }
    fixture.check(|store| {
        let page = |after, limit| store.objects(P, after, limit).expect("list");
        assert_eq!(page(None, 3), [ObjectId(1), ObjectId(3), ObjectId(5)]);
        assert_eq!(page(Some(ObjectId(5)), 3), [ObjectId(9)]);
        assert_eq!(page(Some(ObjectId(9)), 3), []);
        let stat = store.stat().expect("stat");
        assert_eq!((stat.objects, stat.partitions), (4, 1));
    });
}

#[test]
fn directories_are_guarded() {
    let dir = tempfile::tempdir().expect("a directory");
    assert!(matches!(Store::open(dir.path(), None, options()), Err(Error::NotAStore(_))));
    let store = fresh(dir.path(), options());
    assert!(matches!(Store::open(dir.path(), None, options()), Err(Error::InUse(_))));
    store.close().expect("close");
    drop(store);
    assert!(matches!(Store::format(dir.path(), identity(), &options()), Err(Error::NotEmpty(_))));
    let other = Identity { cluster: braid_layout::ClusterId(1), ..identity() };
    assert!(matches!(Store::open(dir.path(), Some(other), options()), Err(Error::Foreign { .. })));
    std::fs::write(dir.path().join("superblock"), b"hello").expect("spoil");
    assert!(matches!(Store::open(dir.path(), None, options()), Err(Error::UnknownFormat(..))));
}
