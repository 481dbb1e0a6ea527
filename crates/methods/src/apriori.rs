//! Apriori: which sets of items can be frequent, given the frequent ones that are smaller by one.

/// The sets of one item more than `frequent` has, all of whose subsets are in `frequent`. The sets of
/// `frequent` are of one size, each in order; with none there are no candidates.
pub fn candidates(frequent: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let mut known = frequent.to_vec();
    known.sort_unstable();
    let mut found = Vec::new();
    for (at, left) in known.iter().enumerate() {
        let Some((_, begin)) = left.split_last() else { continue };
        // Those that differ in the last item alone follow each other.
        let alike = known[at + 1..].iter().take_while(|right| right.starts_with(begin));
        for right in alike {
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
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_a_candidate_if_all_of_its_subsets_are_frequent() {
        let single = [vec![3], vec![1], vec![2]];
        assert_eq!(candidates(&single), [[1, 2], [1, 3], [2, 3]]);
        let pairs = [vec![1, 2], vec![1, 3], vec![2, 3], vec![2, 4], vec![3, 5]];
        assert_eq!(candidates(&pairs), [[1, 2, 3]], "of 2 3 4 and 2 3 5 a pair is missing");
        assert_eq!(candidates(&[]), Vec::<Vec<u32>>::new());
    }
}
