//! The choice of drives: spread, weights, least movement, and golden choices.

use std::collections::{BTreeMap, BTreeSet};

use braid_layout::DriveId;
use braid_layout::placement::{
    Candidate, PlacementError, PlacementVersion, choose, choose_beside, equals_beside,
};
use proptest::prelude::*;

const V1: PlacementVersion = PlacementVersion::V1;

fn candidate(drive: u128, weight: u32, domain: &[&str]) -> Candidate {
    Candidate {
        drive: DriveId(drive),
        weight,
        domain: domain.iter().map(|name| (*name).to_owned()).collect(),
    }
}

fn chosen(seed: u64, width: u8, candidates: &[Candidate]) -> Vec<DriveId> {
    choose(V1, seed, width, candidates).expect("there are enough drives")
}

fn set(drives: &[DriveId]) -> BTreeSet<DriveId> {
    drives.iter().copied().collect()
}

fn pick(candidates: &[Candidate], drives: &[DriveId]) -> Vec<Candidate> {
    candidates.iter().filter(|candidate| drives.contains(&candidate.drive)).cloned().collect()
}

fn without(candidates: &[Candidate], drive: DriveId) -> Vec<Candidate> {
    candidates.iter().filter(|candidate| candidate.drive != drive).cloned().collect()
}

/// Columns per domain, over the domains named by the first `depth` names.
fn columns(candidates: &[Candidate], drives: &[DriveId], depth: usize) -> BTreeMap<Vec<String>, usize> {
    let mut counts = BTreeMap::new();
    for candidate in candidates.iter().filter(|candidate| candidate.weight > 0) {
        *counts.entry(candidate.domain[..depth].to_vec()).or_insert(0) +=
            usize::from(drives.contains(&candidate.drive));
    }
    counts
}

/// Clusters of up to 4 racks with up to 4 hosts with up to 4 drives, some of weight 0, in any order. Some are
/// without domains, or have racks for some drives only.
fn any_cluster() -> impl Strategy<Value = Vec<Candidate>> {
    let weight = prop_oneof![1 => Just(0u32), 6 => 1u32..1000, 1 => Just(u32::MAX)];
    let host = prop::collection::vec((any::<u128>(), weight), 1..=4);
    let racks = prop::collection::vec(prop::collection::vec(host, 1..=4), 1..=4);
    (racks, 0usize..5).prop_flat_map(|(racks, form)| {
        let mut candidates = BTreeMap::new();
        for (r, hosts) in racks.iter().enumerate() {
            for (h, drives) in hosts.iter().enumerate() {
                for (drive, weight) in drives {
                    let names = [format!("rack{r}"), format!("host{h}")];
                    let domain = match form {
                        0 => &names[..0],
                        1 if r == 0 => &names[1..],
                        _ => &names[..],
                    };
                    let domain = domain.to_vec();
                    candidates.insert(*drive, Candidate { drive: DriveId(*drive), weight: *weight, domain });
                }
            }
        }
        Just(candidates.into_values().collect::<Vec<_>>()).prop_shuffle()
    })
}

fn usable(candidates: &[Candidate]) -> usize {
    candidates.iter().filter(|candidate| candidate.weight > 0).count()
}

/// A cluster, a seed, and a width for which it has enough drives.
fn any_request() -> impl Strategy<Value = (Vec<Candidate>, u64, u8)> {
    (any_cluster(), any::<u64>(), any::<prop::sample::Index>()).prop_map(|(candidates, seed, width)| {
        let width = width.index(usable(&candidates).min(64) + 1);
        (candidates, seed, u8::try_from(width).expect("at most 64"))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn as_many_different_drives_as_asked_for((candidates, seed, width) in any_request()) {
        let drives = chosen(seed, width, &candidates);
        prop_assert_eq!(drives.len(), usize::from(width));
        prop_assert_eq!(set(&drives).len(), usize::from(width));
        for drive in drives {
            prop_assert!(candidates.iter().any(|candidate| candidate.drive == drive && candidate.weight > 0));
        }
    }

    #[test]
    fn the_order_of_the_candidates_does_not_matter((mut candidates, seed, width) in any_request()) {
        let drives = chosen(seed, width, &candidates);
        candidates.reverse();
        prop_assert_eq!(&chosen(seed, width, &candidates), &drives);
        candidates.sort_by_key(|candidate| candidate.drive);
        prop_assert_eq!(&chosen(seed, width, &candidates), &drives);
    }

    #[test]
    fn taking_away_a_drive_that_was_not_chosen_changes_nothing((candidates, seed, width) in any_request()) {
        let drives = chosen(seed, width, &candidates);
        for other in candidates.iter().filter(|candidate| !drives.contains(&candidate.drive)) {
            prop_assert_eq!(&chosen(seed, width, &without(&candidates, other.drive)), &drives);
        }
    }

    /// The drive that replaces a lost one is the drive that a rebuild would choose.
    #[test]
    fn taking_away_a_chosen_drive_changes_one_place((candidates, seed, width) in any_request()) {
        let drives = chosen(seed, width, &candidates);
        for &lost in &drives {
            let rest = without(&candidates, lost);
            let kept = pick(&rest, &drives);
            let replacement = choose_beside(V1, seed, &kept, 1, &rest);
            if usable(&rest) < usize::from(width) {
                prop_assert_eq!(replacement, Err(PlacementError::TooFew { width: 1, drives: 0, hosts: 0 }));
                continue;
            }
            let equals = equals_beside(V1, seed, &kept, &rest).expect("there is one more");
            prop_assert_eq!(Some(equals[0].drive), replacement.as_ref().ok().map(|chosen| chosen[0]));
            for other in &equals {
                // If the other equals were not there, this one would have been chosen.
                let without_others: Vec<_> = rest
                    .iter()
                    .filter(|one| one.drive == other.drive || equals.iter().all(|equal| equal.drive != one.drive))
                    .cloned()
                    .collect();
                let alone = choose_beside(V1, seed, &kept, 1, &without_others);
                prop_assert_eq!(alone, Ok(vec![other.drive]));
            }
            let mut expected = set(&drives);
            expected.remove(&lost);
            prop_assert!(expected.insert(replacement.expect("there is one more")[0]), "a kept drive was chosen again");
            prop_assert_eq!(set(&chosen(seed, width, &rest)), expected);
        }
    }

    #[test]
    fn kept_columns_and_new_ones_make_the_whole((candidates, seed, width) in any_request(), new in any::<prop::sample::Index>()) {
        // `choose` is nested: the drives that it gives for a narrow file are among those for a wider one. So
        // columns kept from a narrower choice and new ones beside them must give the choice of the full
        // width.
        let new = u8::try_from(new.index(usize::from(width) + 1)).expect("below the width");
        let kept = chosen(seed, width - new, &candidates);
        let more = choose_beside(V1, seed, &pick(&candidates, &kept), new, &candidates).expect("enough");
        prop_assert_eq!(set(&[kept, more].concat()), set(&chosen(seed, width, &candidates)));
    }

    /// Hosts have equally many columns, except those whose drives are all taken. Within that so do racks.
    #[test]
    fn columns_are_spread_over_hosts_and_then_racks((candidates, seed, width) in any_request()) {
        prop_assume!(candidates.iter().all(|candidate| candidate.domain.len() == 2));
        let drives = chosen(seed, width, &candidates);
        let hosts = columns(&candidates, &drives, 2);
        let racks = columns(&candidates, &drives, 1);
        let free = |host: &Vec<String>| candidates.iter().any(|c| &c.domain == host && c.weight > 0 && !drives.contains(&c.drive));
        for (fuller, more) in &hosts {
            for emptier in hosts.keys().filter(|host| free(host)) {
                let fewer = hosts[emptier];
                prop_assert!(*more <= fewer + 1, "{:?} has {}, {:?} has {} and a free drive", fuller, more, emptier, fewer);
                // A column could move to a host that would then be as full as its own is now: no rack would
                // gain by it.
                if *more == fewer + 1 && fuller[0] != emptier[0] {
                    prop_assert!(racks[&fuller[..1]] <= racks[&emptier[..1]] + 1, "{:?} to {:?}", fuller, emptier);
                }
            }
        }
        if hosts.len() >= usize::from(width) {
            prop_assert!(hosts.values().all(|columns| *columns <= 1));
        }
        if racks.len() >= usize::from(width) {
            prop_assert!(racks.values().all(|columns| *columns <= 1));
        }
    }

    #[test]
    fn too_few_drives_are_counted_in_the_error(candidates in any_cluster(), seed in any::<u64>(), more in 1u8..10) {
        let width = u8::try_from(usable(&candidates)).expect("at most 64") + more;
        let hosts: BTreeSet<&Vec<String>> = candidates.iter().filter(|c| c.weight > 0).map(|c| &c.domain).collect();
        let expected = PlacementError::TooFew { width, drives: usable(&candidates), hosts: hosts.len() };
        prop_assert_eq!(choose(V1, seed, width, &candidates), Err(expected));
    }
}

#[test]
fn refusals() {
    let two = [candidate(1, 5, &["h1"]), candidate(2, 5, &["h1"]), candidate(3, 0, &["h2"])];
    let error = choose(V1, 0, 3, &two).expect_err("one takes no files");
    assert_eq!(error.to_string(), "3 columns need as many drives, but only 2 on 1 hosts take new files");
    let twice = [candidate(1, 5, &["h1"]), candidate(2, 5, &[]), candidate(1, 7, &["h2"])];
    assert_eq!(choose(V1, 0, 1, &twice), Err(PlacementError::Twice { drive: DriveId(1) }));
    assert_eq!(choose_beside(V1, 0, &twice, 1, &two), Err(PlacementError::Twice { drive: DriveId(1) }));
    assert_eq!(PlacementVersion::from_number(1), Ok(V1));
    assert_eq!(PlacementVersion::from_number(2), Err(PlacementError::UnknownVersion(2)));
    assert_eq!(choose(V1, 0, 0, &[]), Ok(Vec::new()));
}

/// Number of times that each drive was counted over many files, in the order of the drives.
fn counts(files: u64, candidates: &[Candidate], count: impl Fn(u64) -> Vec<DriveId>) -> Vec<f64> {
    let mut counts = vec![0.0; candidates.len()];
    for drive in (0..files).flat_map(count) {
        counts[candidates.iter().position(|candidate| candidate.drive == drive).expect("a candidate")] += 1.0;
    }
    counts
}

/// Checks a count within five standard deviations: the seeds are fixed, so the check passes always or never.
fn check_share(what: &str, found: f64, files: f64, share: f64) {
    let deviation = (files * share * (1.0 - share)).sqrt();
    assert!(
        (found - files * share).abs() <= 5.0 * deviation,
        "{what}: {found} of {files}, not a share of {share:.4}"
    );
}

#[test]
fn drives_are_chosen_in_proportion_to_their_weights() {
    let weights = [1u32, 10, 100, 200, 400, 289];
    let candidates: Vec<Candidate> =
        (1..).zip(weights).map(|(drive, weight)| candidate(drive, weight, &[])).collect();
    let found = counts(40_000, &candidates, |seed| chosen(seed, 1, &candidates));
    for (weight, found) in weights.iter().zip(found) {
        check_share(&format!("weight {weight}"), found, 40_000.0, f64::from(*weight) / 1000.0);
    }
}

/// A host of heavier drives takes more, and so does one of more drives, as long as its share is below one
/// column per file.
#[test]
fn wide_files_stay_near_proportion_when_there_is_choice() {
    let candidates: Vec<Candidate> = (0..100u8)
        .map(|d| {
            candidate(u128::from(d) + 1, if d % 2 == 0 { 100 } else { 200 }, &[&format!("host{}", d / 2)])
        })
        .collect();
    let found = counts(5_000, &candidates, |seed| chosen(seed, 5, &candidates));
    let (even, odd) = found.chunks(2).fold((0.0, 0.0), |(even, odd), pair| (even + pair[0], odd + pair[1]));
    check_share("the heavier of each host", odd, even + odd, 2.0 / 3.0);
    let drives = found.iter().enumerate();
    for (d, found) in drives {
        check_share(&format!("drive {d}"), *found, 25_000.0, if d % 2 == 0 { 1.0 } else { 2.0 } / 150.0);
    }
}

/// Small files fill the first column only, and raid4's parity is on the last: no column may prefer a drive.
#[test]
fn chosen_drives_come_in_an_order_without_preference() {
    let candidates: Vec<Candidate> =
        (1..=4u8).map(|d| candidate(u128::from(d), u32::from(d) * 1000, &[])).collect();
    for column in 0..4 {
        let found = counts(10_000, &candidates, |seed| vec![chosen(seed, 4, &candidates)[column]]);
        for (drive, found) in found.iter().enumerate() {
            check_share(&format!("drive {drive} in column {column}"), *found, 10_000.0, 0.25);
        }
    }
}

/// A new drive takes its share from all others, and nothing moves between those.
#[test]
fn a_new_drive_takes_its_share_and_no_more() {
    let all: Vec<Candidate> =
        (1..=10u8).map(|d| candidate(u128::from(d), 100, &[&format!("host{d}")])).collect();
    let mut moved = 0.0;
    for seed in 0..5_000 {
        let before = set(&chosen(seed, 3, &all[..9]));
        let after = set(&chosen(seed, 3, &all));
        if before != after {
            assert!(after.contains(&DriveId(10)) && before.difference(&after).count() == 1, "file {seed}");
            moved += 1.0;
        }
    }
    check_share("files with the new drive", moved, 5_000.0, 0.3);
}

/// Choices as the first release made them. Other choices would place the same file elsewhere: a new function
/// is a new version.
#[test]
fn golden() {
    let wide = 0x0123_4567_89ab_cdef_0011_2233_4455_6677u128;
    let numbers: Vec<String> = (0..24).map(|n| n.to_string()).collect();
    let name = |prefix: &str, n: usize| format!("{prefix}{}", numbers[n]);
    let flat: Vec<Candidate> = (0..6u8).map(|d| candidate(u128::from(d) + 1, 100, &[])).collect();
    let weighted: Vec<Candidate> = (0..12u8)
        .map(|d| {
            candidate(wide.wrapping_mul(u128::from(d) + 1), 1 << d, &[&name("host", usize::from(d) / 2)])
        })
        .collect();
    let racked: Vec<Candidate> = (0..24u8)
        .map(|d| {
            let n = usize::from(d);
            candidate(
                wide.rotate_left(u32::from(d) * 5),
                500 + 37 * u32::from(d),
                &[&name("rack", n / 8), &name("host", n / 2)],
            )
        })
        .collect();
    let mut text = String::from(
        "# placement version 1: cluster, seed, width: places of the chosen drives in the cluster, column by column\n",
    );
    for (cluster, candidates, widths) in
        [("flat", &flat, [2, 5]), ("weighted", &weighted, [5, 8]), ("racked", &racked, [6, 14])]
    {
        for seed in [0, 1, 2, 3, 1000, 0xdead_beef, 1 << 40, u64::MAX] {
            for width in widths {
                let places = chosen(seed, width, candidates).into_iter().map(|drive| {
                    candidates
                        .iter()
                        .position(|candidate| candidate.drive == drive)
                        .expect("a candidate")
                        .to_string()
                });
                text += &format!("{cluster} {seed:#x} {width}: {}\n", places.collect::<Vec<_>>().join(" "));
            }
        }
    }
    assert!(text == include_str!("../golden/placement.txt"), "choices changed; they are now\n{text}");
}
