//! Random operations, crashes and faults on a disk in memory, compared with a second store whose disk has no
//! faults.
//!
//! A *life* is one store on one disk, from formatting to the last check, all from one seed. The environment
//! variable `BRAID_STORE_MODEL_SEED` sets the first seed, `BRAID_STORE_MODEL_SECONDS` the time for which new
//! lives are started. The cleaner and the checkpointer have threads of their own, so a repeated life may
//! proceed differently.

mod chains;
mod life;
mod script;
mod steps;

use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant};

use life::{Counts, Life};

/// Random numbers from a seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// True once in `bound` calls, at random.
    pub(crate) fn once_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value}: not a number")))
}

/// Reports the seed of a life that failed.
struct Name(u64);

impl Drop for Name {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("failed: BRAID_STORE_MODEL_SEED={}", self.0);
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost() {
    let seconds = setting("BRAID_STORE_MODEL_SECONDS").unwrap_or(5);
    let random = || std::collections::hash_map::RandomState::new().build_hasher().finish() >> 20;
    let first = setting("BRAID_STORE_MODEL_SEED").unwrap_or_else(random);
    println!("BRAID_STORE_MODEL_SEED={first}");
    let begin = Instant::now();
    let mut counts = Counts::default();
    for seed in first.. {
        let name = Name(seed);
        Life::new(seed).live(&mut counts);
        drop(name);
        if begin.elapsed() > Duration::from_secs(seconds) {
            break;
        }
    }
    println!("{counts:?}");
    if seconds >= 60 {
        counts.judge();
    }
}
