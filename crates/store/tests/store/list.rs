//! Listing an object's units: up and down, in pages, with and without those that hold no bytes.

use braid_layout::ObjectId;
use braid_store::*;

use crate::common::*;

const O: ObjectId = ObjectId(1);

fn walk(
    store: &Store,
    from: u64,
    direction: Direction,
    holes: Holes,
    page: (usize, usize),
) -> Vec<(u64, u32)> {
    let (limit, looked_at) = page;
    let mut found = Vec::new();
    let mut next = Some(from);
    while let Some(from) = next {
        let listed = store.list(P, O, Listing { from, direction, holes }, limit, looked_at).expect("a list");
        assert!(listed.units.len() <= limit);
        found.extend(listed.units.iter().map(|chain| (chain.unit, chain.end)));
        next = listed.next;
    }
    found
}

#[test]
fn a_walk_finds_what_there_is_and_costs_nothing_for_what_lies_between() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    store.commit(create(1)).expect("create");
    let put = |unit, n, to, hole: bool| {
        let mut write = write(1, unit, 0, to, version(4, n));
        if hole {
            write.body = Body::Hole;
        }
        store.commit(Mutation::Write(write)).expect("write");
    };
    let retire = |n: u64| store.commit(settled(1, version(4, n + 1))).expect("retire");
    let far = 1 << 40;
    for (n, unit, to) in [(1, 0, 100), (2, 7, 4096), (3, far, 1)] {
        put(unit, n, to, false);
    }
    // A hole, and bytes under a pending hole, which may come back.
    put(3, 4, 8192, true);
    put(9, 5, 200, false);
    retire(5);
    put(9, 6, 8192, true);
    let all = [(0, 100), (3, 0), (7, 4096), (9, 200), (far, 1)];
    let bytes: Vec<(u64, u32)> = all.into_iter().filter(|(_, end)| *end > 0).collect();
    for page in [(1, 1), (2, 64), (64, 2), (64, 64)] {
        assert_eq!(walk(&store, 0, Direction::Up, Holes::Listed, page), all);
        assert_eq!(walk(&store, 0, Direction::Up, Holes::PassedOver, page), bytes);
        let mut down = walk(&store, u64::MAX, Direction::Down, Holes::PassedOver, page);
        down.reverse();
        assert_eq!(down, bytes);
    }
    assert_eq!(walk(&store, 4, Direction::Up, Holes::Listed, (64, 64)), all[2..]);
    assert_eq!(walk(&store, 7, Direction::Down, Holes::PassedOver, (64, 64)), [(7, 4096), (0, 100)]);
    // Once the hole is settled, the old bytes under it are gone for good.
    retire(6);
    assert_eq!(walk(&store, 8, Direction::Up, Holes::PassedOver, (64, 64)), [(far, 1)]);
}
