//! The passes of apriori: what is counted, and what the counts of several clients add up to.

use std::time::Instant;

use braid_client::{Answer, Arguments, ItemSet};
use braid_methods::Program;

use super::sales::{CHUNK_BYTES, Sales};
use crate::error::Error;

/// The counts of one pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// The sets, with the number of lines that hold each.
    pub sets: Vec<ItemSet>,
    /// Number of lines.
    pub lines: u64,
}

impl Counted {
    /// The sets that at least `permille` of 1,000 lines hold, in order.
    pub fn frequent(&self, permille: u64) -> Vec<Vec<u32>> {
        let is_frequent =
            |set: &&ItemSet| set.count.saturating_mul(1_000) >= self.lines.saturating_mul(permille);
        let mut frequent: Vec<Vec<u32>> =
            self.sets.iter().filter(is_frequent).map(|set| set.items.clone()).collect();
        frequent.sort_unstable();
        frequent
    }

    /// Number of lines that hold a set, if it was counted.
    pub fn count_of(&self, items: &[u32]) -> Option<u64> {
        self.sets.iter().find(|set| set.items == items).map(|set| set.count)
    }
}

/// The method's arguments for a pass that counts these sets; none: all single items.
pub fn arguments(candidates: &[Vec<u32>]) -> Arguments {
    if candidates.is_empty() {
        return Arguments::default();
    }
    let words = |set: &Vec<u32>| set.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    Arguments::default().with("candidates", candidates.iter().map(words).collect::<Vec<_>>().join(";"))
}

/// The program that counts these sets.
pub(super) fn program(candidates: &[Vec<u32>], bytes: u64) -> Result<Box<dyn Program>, Error> {
    braid_methods::parse("frequent-sets", &arguments(candidates), bytes).map_err(content)
}

/// An error of a method, as one of a measurement.
pub(super) fn content(error: impl std::fmt::Display) -> Error {
    Error::Content { what: error.to_string() }
}

/// The sum of what clients counted in a pass.
pub fn combined<'a>(
    candidates: &[Vec<u32>],
    partials: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Counted, Error> {
    let program = program(candidates, 0)?;
    let mut running = program.begin();
    for partial in partials {
        running.absorb(partial).map_err(content)?;
    }
    match running.finish().map_err(content)? {
        Answer::Sets { sets, lines, .. } => Ok(Counted { sets, lines }),
        _ => Err(Error::Content { what: "frequent-sets gave another answer than sets".into() }),
    }
}

/// Bytes a second that one processor counts in memory, from a few chunks of `sales`.
#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
pub fn counting_rate(sales: &Sales, candidates: &[Vec<u32>]) -> Result<f64, Error> {
    let program = program(candidates, sales.bytes)?;
    let chunks: Vec<Vec<u8>> = (0..sales.chunks().min(4)).map(|number| sales.chunk(number).bytes).collect();
    let mut running = program.begin();
    let began = Instant::now();
    let mut bytes = 0_u64;
    for round in 0..3_u64 {
        for (number, chunk) in (round * 4..).zip(&chunks) {
            running.feed(number * CHUNK_BYTES, chunk).map_err(content)?;
            bytes += chunk.len() as u64;
        }
    }
    Ok(bytes as f64 / began.elapsed().as_secs_f64().max(1e-9))
}

#[cfg(test)]
mod tests {
    use super::super::{PLANTED, candidates};
    use super::*;

    /// The counts of two clients, each of every other chunk.
    fn counted(sales: &Sales, candidates: &[Vec<u32>]) -> Counted {
        let partial = |client: u64| {
            let program = program(candidates, sales.bytes).expect("arguments");
            let mut running = program.begin();
            for number in (client..sales.chunks()).step_by(2) {
                running.feed(number * CHUNK_BYTES, &sales.chunk(number).bytes).expect("counted");
            }
            running.partial()
        };
        let partials = [partial(0), partial(1)];
        combined(candidates, partials.iter().map(Vec::as_slice)).expect("combined")
    }

    #[test]
    fn passes_find_the_planted_sets_with_their_counts() {
        let sales = Sales { seed: 3, bytes: 5 << 20 };
        let planted = (0..sales.chunks()).map(|number| sales.chunk(number).known.planted);
        let expected: Vec<u64> = planted.fold(vec![0; PLANTED.len()], |sum, more| {
            sum.iter().zip(more).map(|(own, more)| own + more).collect()
        });
        let mut asked = Vec::new();
        let mut found = vec![None; PLANTED.len()];
        for items in 1..=4 {
            let counted = counted(&sales, &asked);
            for (set, found) in PLANTED.iter().zip(&mut found).filter(|(set, _)| set.items.len() == items) {
                *found = counted.count_of(set.items);
            }
            asked = candidates(&counted.frequent(40)).expect("few");
        }
        assert_eq!(found, expected.into_iter().map(Some).collect::<Vec<_>>());
        assert!(counting_rate(&sales, &[]).expect("counted") > 0.0);
    }

    #[test]
    fn a_set_is_frequent_from_its_share_on() {
        let set = |item, count| ItemSet { items: vec![item], count };
        let counted = Counted { sets: vec![set(2, 30), set(1, 29), set(0, 31)], lines: 1_000 };
        assert_eq!(counted.frequent(30), [[0], [2]]);
        assert_eq!((counted.count_of(&[1]), counted.count_of(&[9])), (Some(29), None));
    }
}
