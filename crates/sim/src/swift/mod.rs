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
//! | `document` | all of it as Markdown, CSV and pictures |

mod claims;
mod document;
mod figures;
mod result;
mod search;
mod setup;
mod today;
mod undone;

use std::sync::atomic::AtomicBool;

use serde::Serialize;

use crate::sweep::{self, Watch};

pub use claims::{Assumption, Claim};
pub use document::{Document, csv, documents};
pub use result::{Figure, Line, Point, Row, Style, Table};
pub use setup::Setup;

/// The results of the study.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Study {
    /// The figures, in the paper's order.
    pub figures: Vec<Figure>,
    /// Points that the text fixes; only in a whole study.
    pub claims: Vec<Claim>,
    /// Results of each reading of the model; only in a whole study.
    pub assumptions: Vec<Assumption>,
    /// Work that the authors left undone; only in a whole study.
    pub undone: Vec<Table>,
    /// Figures with today's parts; only in a whole study.
    pub today: Vec<Figure>,
    /// Limits of today's parts; only in a whole study.
    pub today_limits: Vec<Table>,
}

/// The control of a study's runs, and the listener to their progress.
pub struct Runner<'a> {
    pub threads: usize,
    /// Flag that stops the study soon, without a result.
    pub stop: &'a AtomicBool,
    /// Called with the name of the step, the number of its runs that have ended, and their total.
    pub tell: &'a (dyn Fn(&str, usize, usize) + Sync),
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

/// The figures of the paper.
pub const FIGURES: [u8; 4] = [3, 4, 5, 6];

/// The study of one figure alone; `None` if it was stopped.
pub fn figure(number: u8, runner: &Runner<'_>) -> Option<Study> {
    let figures = vec![figures::figure(number, runner)?];
    let claims = Vec::new();
    let assumptions = Vec::new();
    let undone = Vec::new();
    Some(Study { figures, claims, assumptions, undone, today: Vec::new(), today_limits: Vec::new() })
}

/// The whole study; `None` if it was stopped.
pub fn study(runner: &Runner<'_>) -> Option<Study> {
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
