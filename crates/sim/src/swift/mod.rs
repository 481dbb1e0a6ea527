//! Swift's simulation study (Cabrera and Long, "Exploiting Multiple I/O Streams to Provide High Data-Rates",
//! 1991, section 5), run again: figures 3 to 6, every point that the text fixes, what the authors left
//! undone, and the same questions asked of today's parts.
//!
//! | file | about |
//! |---|---|
//! | `setup` | the paper's model as a spec, with each assumption named |
//! | `search` | the rate at which something holds: the paper's sustainable load, the knee, the most |
//! | `figures` | the four figures |
//! | `claims` | what the text says, beside what comes out; where it contradicts itself |
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

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Study {
    /// The figures, in the paper's order.
    pub figures: Vec<Figure>,
    /// What the text fixes; of a whole study only.
    pub claims: Vec<Claim>,
    /// Which assumption gives which numbers; of a whole study only.
    pub assumptions: Vec<Assumption>,
    /// What the authors left undone; of a whole study only.
    pub undone: Vec<Table>,
    /// Today's parts; of a whole study only.
    pub today: Vec<Figure>,
    /// And their limits.
    pub today_limits: Vec<Table>,
}

/// How runs are made, and who is told.
pub struct Runner<'a> {
    pub threads: usize,
    /// When set, it ends soon without a result.
    pub stop: &'a AtomicBool,
    /// What goes on, how many of its runs have ended, and of how many.
    pub tell: &'a (dyn Fn(&str, usize, usize) + Sync),
}

impl Runner<'_> {
    /// Runs `work` on all points. `None`: it was stopped.
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

/// One figure alone. `None`: it was stopped.
pub fn figure(number: u8, runner: &Runner<'_>) -> Option<Study> {
    let figures = vec![figures::figure(number, runner)?];
    let claims = Vec::new();
    let assumptions = Vec::new();
    let undone = Vec::new();
    Some(Study { figures, claims, assumptions, undone, today: Vec::new(), today_limits: Vec::new() })
}

/// All of it. `None`: it was stopped.
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
