//! Many runs on several threads, with their results in the order of the runs.
//!
//! Each run has its own seed and its own state, so its results do not depend on the thread that runs it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The control of a sweep, and the listener to its progress.
pub struct Watch<'a> {
    /// Flag that stops the sweep: runs that have not begun are left out.
    pub stop: &'a AtomicBool,
    /// Called each time that a run ends, with the number of runs that have ended.
    pub tell: &'a (dyn Fn(usize) + Sync),
}

/// Runs `work` on each of `points`, on at most `threads` threads. Returns `None` if the sweep was stopped.
pub fn run<P: Sync, R: Send>(
    points: &[P],
    threads: usize,
    watch: &Watch<'_>,
    work: impl Fn(&P) -> R + Sync,
) -> Option<Vec<R>> {
    let next = AtomicUsize::new(0);
    let ended = AtomicUsize::new(0);
    let found: Mutex<Vec<Option<R>>> = Mutex::new(points.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, points.len().max(1)) {
            scope.spawn(|| {
                while !watch.stop.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(point) = points.get(at) else { break };
                    let result = work(point);
                    found.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(result);
                    (watch.tell)(ended.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_points() {
        let points: Vec<u32> = (0..50).collect();
        let watch = Watch { stop: &AtomicBool::new(false), tell: &|_| {} };
        for threads in [1, 2, 7] {
            let found = run(&points, threads, &watch, |point| point * 2).expect("nobody stopped it");
            assert_eq!(found, points.iter().map(|point| point * 2).collect::<Vec<u32>>());
        }
    }

    #[test]
    fn a_sweep_can_be_stopped() {
        let watch = Watch { stop: &AtomicBool::new(true), tell: &|_| {} };
        assert_eq!(run(&[1, 2], 2, &watch, |point| *point), None);
        assert_eq!(run(&[] as &[u8], 2, &watch, |point| *point), Some(Vec::new()));
    }
}
