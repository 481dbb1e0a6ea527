//! A simulated log of counters: measures the cost of cleaning without bytes or disks.
//!
//! The simulation runs the decisions of [`braid_store::clean`] on blocks of equal size that are overwritten
//! at random. A segment is as long as its contents: cleaned blocks get segments of their own, which may be
//! short.

use std::collections::BTreeMap;

use braid_store::clean::pace::Pacer;
use braid_store::clean::reserve::Reserve;
use braid_store::clean::victim::{Candidate, choose};

/// Policy for the choice of victims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// The store's own policy.
    CostBenefit,
    /// The segment with the fewest live bytes, for the test that compares both.
    #[cfg(test)]
    Greedy,
}

/// The parameters of a simulation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    /// Capacity, in full segments.
    pub(crate) segments: u32,
    /// Blocks of a full segment.
    pub(crate) segment_blocks: u32,
    /// Blocks of a checkpoint.
    pub(crate) checkpoint_blocks: u32,
    /// Percentage of live blocks in the space that writes may use (the capacity without the reserve).
    pub(crate) live_percent: u32,
    /// Percentage of the writes that go to hot blocks, and percentage of the live blocks that are hot;
    /// `None`: uniform.
    pub(crate) hot: Option<(u32, u32)>,
    /// Policy for the choice of victims.
    pub(crate) policy: Policy,
    /// Moved blocks per 100 written ones when space begins to be scarce.
    pub(crate) share_percent: u32,
    /// Seed of the random choices.
    pub(crate) seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Figures {
    /// Blocks written by the foreground.
    pub(crate) written: u64,
    /// Blocks moved by the cleaner.
    pub(crate) moved: u64,
    pub(crate) freed: u64,
    /// Checkpoints made to free segments.
    pub(crate) checkpoints: u64,
}

/// Number of times that the capacity is overwritten before counting, and again while counting.
const ROUNDS: u64 = 6;
/// Batches of moves per full segment, as in a small store.
const BURSTS: u64 = 4;

impl Figures {
    /// Blocks written to the disk per block of the foreground.
    pub(crate) fn amplification(&self) -> f64 {
        let count = |blocks: u64| f64::from(u32::try_from(blocks).unwrap_or(u32::MAX));
        1.0 + count(self.moved) / count(self.written).max(1.0)
    }

    fn since(&self, begin: &Figures) -> Figures {
        Figures {
            written: self.written - begin.written,
            moved: self.moved - begin.moved,
            freed: self.freed - begin.freed,
            checkpoints: self.checkpoints - begin.checkpoints,
        }
    }
}

/// Fills a log, overwrites it until it is in equilibrium, then counts while it is overwritten further.
pub(crate) fn simulate(setup: &Setup) -> Figures {
    let mut log = CountedLog::new(setup);
    let live = log.reserve.free_for_writes(log.used) * u64::from(setup.live_percent) / 100;
    let mut random = Random(setup.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for block in 0..live {
        log.write(block);
    }
    let mut begin = log.figures;
    for round in 0..2 * ROUNDS {
        if round == ROUNDS {
            begin = log.figures;
        }
        for _ in 0..log.capacity {
            log.write(random.block(live, setup.hot));
        }
    }
    log.figures.since(&begin)
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let product = u128::from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)) * u128::from(bound.max(1));
        u64::try_from(product >> 64).expect("below the bound")
    }

    fn block(&mut self, live: u64, hot: Option<(u32, u32)>) -> u64 {
        let Some((writes, data)) = hot else { return self.below(live) };
        let split = live * u64::from(data) / 100;
        if self.below(100) < u64::from(writes) { self.below(split) } else { split + self.below(live - split) }
    }
}

/// The kind of blocks in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Temperature {
    #[default]
    Hot,
    /// Blocks that were moved by cleaning.
    Cold,
}

/// A round of cleaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    /// The foreground's credit pays for the moves.
    Paced,
    /// A write waits for the round, which costs no credit.
    Urgent,
}

#[derive(Debug, Default)]
struct Segment {
    /// All blocks put into the segment, dead or not; `None`: a record without payload.
    blocks: Vec<Option<u64>>,
    live: u64,
    begun: u64,
    temperature: Temperature,
}

/// A log with the place of each live block, and the contents of each segment.
#[derive(Debug)]
struct CountedLog {
    capacity: u64,
    segment_blocks: u64,
    checkpoint: u64,
    policy: Policy,
    reserve: Reserve,
    pacer: Pacer,
    places: BTreeMap<u64, u32>,
    segments: BTreeMap<u32, Segment>,
    head: u32,
    /// Blocks appended so far, which serve as the clock.
    now: u64,
    used: u64,
    figures: Figures,
}

impl CountedLog {
    fn new(setup: &Setup) -> CountedLog {
        let segment_blocks = u64::from(setup.segment_blocks);
        let capacity = u64::from(setup.segments) * segment_blocks;
        let checkpoint = u64::from(setup.checkpoint_blocks);
        CountedLog {
            capacity,
            segment_blocks,
            checkpoint,
            policy: setup.policy,
            reserve: Reserve::new(capacity, segment_blocks, checkpoint),
            pacer: Pacer::new(setup.share_percent, capacity, segment_blocks, segment_blocks / BURSTS),
            places: BTreeMap::new(),
            segments: BTreeMap::from([(1, Segment::default())]),
            head: 1,
            now: 0,
            used: checkpoint,
            figures: Figures::default(),
        }
    }

    /// Overwrites a block. Returns false if there was no space.
    fn write(&mut self, block: u64) -> bool {
        while self.reserve.free_for_writes(self.used) == 0 {
            if !self.clean(Round::Urgent) {
                return false;
            }
        }
        self.append(Some(block), Temperature::Hot);
        self.figures.written += 1;
        self.pacer.on_foreground(1, self.reserve.free_for_writes(self.used));
        while self.pacer.may_move() {
            if !self.clean(Round::Paced) {
                self.pacer.rest();
            }
        }
        true
    }

    fn append(&mut self, block: Option<u64>, temperature: Temperature) {
        let head = &self.segments[&self.head];
        let full = head.blocks.len() >= usize::try_from(self.segment_blocks).expect("small");
        if full || (head.temperature != temperature && !head.blocks.is_empty()) {
            self.seal(temperature);
        }
        assert!(self.used < self.capacity, "the disk is full");
        let head = self.segments.get_mut(&self.head).expect("the head");
        head.temperature = temperature;
        head.blocks.push(block);
        (self.now, self.used) = (self.now + 1, self.used + 1);
        if let Some(block) = block {
            head.live += 1;
            if let Some(old) = self.places.insert(block, self.head) {
                self.segments.get_mut(&old).expect("a live block's segment").live -= 1;
            }
        }
    }

    fn seal(&mut self, temperature: Temperature) {
        self.head += 1;
        self.segments.insert(self.head, Segment { begun: self.now, temperature, ..Segment::default() });
    }

    fn victim(&self) -> Option<Candidate> {
        let sealed = self.segments.iter().filter(|(number, _)| **number != self.head);
        let candidates = sealed.map(|(&number, segment)| Candidate {
            number,
            bytes: u64::try_from(segment.blocks.len()).expect("a count"),
            live: segment.live,
            age: self.now - segment.begun,
        });
        match self.policy {
            Policy::CostBenefit => choose(candidates),
            #[cfg(test)]
            // Among equals the lowest number, so that the choice does not depend on the order.
            Policy::Greedy => candidates.filter(Candidate::is_worth_it).max_by_key(|it| {
                (((it.bytes - it.live) << 16) / it.bytes.max(1), std::cmp::Reverse(it.number))
            }),
        }
    }

    /// Runs one round: moves about one batch, makes a checkpoint, frees segments. Returns true if any was
    /// freed.
    fn clean(&mut self, round: Round) -> bool {
        let mut victims = Vec::new();
        let mut moved = 0;
        let mut given = 0;
        while moved < self.segment_blocks / BURSTS {
            let Some(victim) = self.victim() else { break };
            let fits = self.used + victim.live + self.checkpoint <= self.capacity;
            assert!(fits || !victims.is_empty(), "no room for the first victim's moves");
            if !fits {
                break;
            }
            let segment = self.segments.get_mut(&victim.number).expect("it was chosen");
            for block in std::mem::take(&mut segment.blocks).into_iter().flatten() {
                if self.places.get(&block) == Some(&victim.number) {
                    self.append(Some(block), Temperature::Cold);
                    moved += 1;
                }
            }
            given += victim.bytes;
            victims.push(victim.number);
        }
        if victims.is_empty() {
            // All dead blocks may be in the head.
            let head = &self.segments[&self.head];
            let bytes = u64::try_from(head.blocks.len()).expect("a count");
            let head = Candidate { number: self.head, bytes, live: head.live, age: 0 };
            return head.is_worth_it() && {
                self.seal(Temperature::Hot);
                self.clean(round)
            };
        }
        assert!(self.used + self.checkpoint <= self.capacity, "no room for the checkpoint");
        for victim in &victims {
            let gone = self.segments.remove(victim).expect("it was chosen");
            assert_eq!(gone.live, 0);
        }
        self.used -= given;
        if round == Round::Paced {
            self.pacer.on_moved(moved);
        }
        self.figures.moved += moved;
        self.figures.freed += u64::try_from(victims.len()).expect("a count");
        self.figures.checkpoints += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SMALL: Setup = Setup {
        segments: 64,
        segment_blocks: 64,
        checkpoint_blocks: 0,
        live_percent: 80,
        hot: None,
        policy: Policy::CostBenefit,
        share_percent: 25,
        seed: 1,
    };

    /// The counts are the same on every machine, so the bounds do not depend on speed.
    #[test]
    fn amplification_is_bounded_and_cost_benefit_pays_where_data_is_hot_and_cold() {
        for live_percent in [50, 60, 70, 80, 90, 95] {
            let run = |policy, hot| simulate(&Setup { live_percent, policy, hot, ..SMALL }).amplification();
            let uniform = run(Policy::CostBenefit, None);
            let skewed = run(Policy::CostBenefit, Some((90, 10)));
            let greedy = run(Policy::Greedy, Some((90, 10)));
            println!(
                "{live_percent} %: uniform {uniform:.2}, hot/cold {skewed:.2}, hot/cold greedy {greedy:.2}"
            );
            // A victim of average utilisation would cost 1 / (1 - u). A choice does better than the
            // average.
            assert!(uniform < 100.0 / f64::from(100 - live_percent), "{live_percent} %: {uniform}");
            assert!(skewed < uniform && skewed < greedy, "{live_percent} %: {skewed}, {uniform}, {greedy}");
        }
    }

    impl CountedLog {
        /// Removes a block, which takes a record. Returns false if there was no space.
        fn remove(&mut self, block: u64) -> bool {
            while self.reserve.free_for_removes(self.used) == 0 {
                if !self.clean(Round::Urgent) {
                    return false;
                }
            }
            self.append(None, Temperature::Hot);
            self.release(block);
            true
        }

        fn release(&mut self, block: u64) {
            if let Some(place) = self.places.remove(&block) {
                self.segments.get_mut(&place).expect("a live block's segment").live -= 1;
            }
        }
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Write(u64),
        Remove(u64),
    }

    fn steps(blocks: u64) -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            5 => (0..blocks).prop_map(Step::Write),
            1 => (0..blocks).prop_map(Step::Remove),
        ];
        prop::collection::vec(step, 0..3000)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        /// Tests that the limits of `reserve` hold in every sequence: no assertion in the log fails,
        /// refusals are justified, and all space comes back.
        #[test]
        fn a_nearly_full_log_is_never_stuck(
            segments in 6..24_u32,
            segment_blocks in 4..24_u32,
            checkpoint_blocks in 0..12_u32,
            steps in steps(500),
        ) {
            // With less space than a segment and two checkpoints nothing can be written at all.
            prop_assume!(segments * segment_blocks > segment_blocks + 2 * checkpoint_blocks);
            let mut log = CountedLog::new(&Setup { segments, segment_blocks, checkpoint_blocks, ..SMALL });
            let mut model = std::collections::BTreeSet::new();
            for step in steps {
                match step {
                    Step::Write(block) => {
                        if log.write(block) {
                            model.insert(block);
                        } else {
                            let live = u64::try_from(model.len()).expect("small");
                            let dead = log.used - log.checkpoint - live;
                            // A segment has at most a 32nd dead, or none if it has fewer than 32 blocks.
                            prop_assert!(dead <= log.capacity / 32, "{dead} of {} dead", log.capacity);
                        }
                    }
                    Step::Remove(block) => {
                        prop_assert!(log.remove(block));
                        model.remove(&block);
                    }
                }
                let held = log.places.keys().copied().collect::<std::collections::BTreeSet<_>>();
                prop_assert!(held == model, "a block was lost");
            }
            for block in model {
                prop_assert!(log.remove(block), "a remove is stuck");
            }
            while log.clean(Round::Urgent) {}
            prop_assert_eq!(log.used, log.checkpoint, "all comes back");
        }
    }
}
