//! Swift's simulation study (Cabrera and Long, "Exploiting Multiple I/O Streams to Provide High
//! Data-Rates", 1991, section 5), run again: figures 3 to 6, every point that the text fixes, the work that
//! the authors left undone, and the same questions asked of today's parts.
//!
//! | file | about |
//! |---|---|
//! | `setup` | the paper's model as a spec, with each assumption named |
//! | `search` | the greatest rate at which a condition holds: the paper's sustainable load, the knee, the
//! most |
//! | `figures` | the four figures |
//! | `claims` | the text's points beside the results; where the text contradicts itself |
//! | `undone` | parity, lost disks, preallocation, read-ahead, caching, reservations |
//! | `today` | the same curves with flash disks and 100 Gbit/s |
//! | `document`, `text` | all of it as Markdown, CSV and pictures; as tables for a terminal |

mod claims;
mod document;
mod figures;
mod result;
mod search;
mod setup;
pub(crate) mod text;
mod today;
mod undone;

use std::sync::atomic::AtomicBool;

use serde::Serialize;

use braid_sim::sweep::{self, Watch};

pub(crate) use claims::{Assumption, Claim};
pub(crate) use document::{Document, csv, documents};
pub(crate) use result::{Figure, Point, Table};

/// The results of the study.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Study {
    /// The figures, in the paper's order.
    pub(crate) figures: Vec<Figure>,
    /// Points that the text fixes; only in a whole study.
    pub(crate) claims: Vec<Claim>,
    /// Results of each reading of the model; only in a whole study.
    pub(crate) assumptions: Vec<Assumption>,
    /// Work that the authors left undone; only in a whole study.
    pub(crate) undone: Vec<Table>,
    /// Figures with today's parts; only in a whole study.
    pub(crate) today: Vec<Figure>,
    /// Limits of today's parts; only in a whole study.
    pub(crate) today_limits: Vec<Table>,
}

/// The control of a study's runs, and the listener to their progress.
pub(crate) struct Runner<'a> {
    pub(crate) threads: usize,
    /// Flag that stops the study soon, without a result.
    pub(crate) stop: &'a AtomicBool,
    /// Called with the name of the step, the number of its runs that have ended, and their total.
    pub(crate) tell: &'a (dyn Fn(&str, usize, usize) + Sync),
}

impl Runner<'_> {
    /// Runs `work` on all points. Returns `None` if it was stopped.
    fn map<P: Sync, R: Send>(
        &self,
        name: &str,
        points: &[P],
        work: impl Fn(&P) -> R + Sync,
    ) -> Option<Vec<R>> {
        (self.tell)(name, 0, points.len());
        let tell = |ended: usize| (self.tell)(name, ended, points.len());
        sweep::run(points, self.threads, &Watch { stop: self.stop, tell: &tell }, work)
    }
}

/// A whole number as a real number; above 2^53 the nearest one.
#[expect(clippy::cast_precision_loss, reason = "figures are shown with a few digits")]
pub(crate) fn real(value: u64) -> f64 {
    value as f64
}

/// The figures of the paper.
pub(crate) const FIGURES: [u8; 4] = [3, 4, 5, 6];

/// The study of one figure alone; `None` if it was stopped.
pub(crate) fn figure(number: u8, runner: &Runner<'_>) -> Option<Study> {
    let figures = vec![figures::figure(number, runner)?];
    let claims = Vec::new();
    let assumptions = Vec::new();
    let undone = Vec::new();
    Some(Study { figures, claims, assumptions, undone, today: Vec::new(), today_limits: Vec::new() })
}

/// The whole study; `None` if it was stopped.
pub(crate) fn study(runner: &Runner<'_>) -> Option<Study> {
    let mut figures = Vec::new();
    for number in FIGURES {
        figures.push(figures::figure(number, runner)?);
    }
    let claims = claims::claims(&figures, runner)?;
    let assumptions = claims::assumptions(runner)?;
    let undone = undone::tables(runner)?;
    let (today, today_limits) = today::all(runner)?;
    Some(Study { figures, claims, assumptions, undone, today, today_limits })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_gives_the_same_on_one_thread_and_on_two() {
        let of_threads = |threads| {
            let runner = Runner { threads, stop: &AtomicBool::new(false), tell: &|_, _, _| {} };
            figure(4, &runner).expect("nobody stopped it")
        };
        let study = of_threads(1);
        let other = of_threads(2);
        assert_eq!(csv(&study), csv(&other));
        assert_eq!(documents(&study, "x"), documents(&other, "x"));
        let line = study.figures[0].lines.last().expect("32 disks");
        assert!(line.points.last().expect("too much").saturated_at.is_some(), "{line:?}");
    }
}
