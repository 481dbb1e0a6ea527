//! Apriori: which sets of items can be frequent, given the frequent ones that are smaller by one.

use crate::program::MethodError;

/// Items of a set at most.
pub const SET_ITEMS_MAX: usize = 16;
/// Sets that can be frequent, at most.
const CANDIDATES_MAX: usize = 1_000_000;
/// Pairs of sets that are looked at, at most.
const PAIRS_MAX: u64 = 100_000_000;

/// The sets of one item more than `frequent` has, all of whose subsets are in `frequent`. The sets of
/// `frequent` are of one size, each in order; with none there are no candidates.
pub fn candidates(frequent: &[Vec<u32>]) -> Result<Vec<Vec<u32>>, MethodError> {
    candidates_within(frequent, CANDIDATES_MAX, PAIRS_MAX)
}

fn candidates_within(
    frequent: &[Vec<u32>],
    candidates_max: usize,
    pairs_max: u64,
) -> Result<Vec<Vec<u32>>, MethodError> {
    let mut known = frequent.to_vec();
    known.sort_unstable();
    let mut found = Vec::new();
    let mut pairs = 0;
    for (at, left) in known.iter().enumerate() {
        let Some((_, begin)) = left.split_last() else { continue };
        // Those that differ in the last item alone follow each other.
        let alike = known[at + 1..].iter().take_while(|right| right.starts_with(begin));
        for right in alike {
            pairs += 1;
            let mut set = left.clone();
            set.extend(right.last());
            let is_frequent = |without: usize| {
                let mut subset = set.clone();
                subset.remove(without);
                known.binary_search(&subset).is_ok()
            };
            if (0..begin.len()).all(is_frequent) {
                found.push(set);
            }
            if found.len() > candidates_max || pairs > pairs_max {
                let max = u64::try_from(candidates_max).unwrap_or(u64::MAX);
                return Err(MethodError::TooLarge { max, of: "sets that could be frequent" });
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_a_candidate_if_all_of_its_subsets_are_frequent() {
        let single = [vec![3], vec![1], vec![2]];
        let candidates = |sets: &[Vec<u32>]| candidates(sets).expect("they are few");
        assert_eq!(candidates(&single), [[1, 2], [1, 3], [2, 3]]);
        let pairs = [vec![1, 2], vec![1, 3], vec![2, 3], vec![2, 4], vec![3, 5]];
        assert_eq!(candidates(&pairs), [[1, 2, 3]], "of 2 3 4 and 2 3 5 a pair is missing");
        assert_eq!(candidates(&[]), Vec::<Vec<u32>>::new());
    }
    #[test]
    fn candidates_and_the_pairs_that_are_looked_at_are_bounded() {
        let single: Vec<Vec<u32>> = (0..5).map(|item| vec![item]).collect();
        assert_eq!(candidates_within(&single, 10, 10).map(|sets| sets.len()), Ok(10));
        assert!(matches!(candidates_within(&single, 9, 10), Err(MethodError::TooLarge { max: 9, .. })));
        assert!(matches!(candidates_within(&single, 10, 9), Err(MethodError::TooLarge { .. })));
    }
}
