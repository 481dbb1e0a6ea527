//! Programs of requests, each compiled once for its class.
//!
//! Requests of one length are alike if they begin at the same byte of stripes whose columns have the same
//! roles, with the same columns to use: as for [`braid_plan::Template`], but for whole requests and writes
//! too. The plan sets are [`braid_plan::read`], [`braid_plan::write_cheapest`] and, where several writers
//! share a file, [`braid_plan::unit_write`]: those that the client uses.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use braid_layout::placement::{self, Candidate, PlacementVersion};
use braid_layout::{
    Component, DriveId, Generation, Layout, Lease, ObjectId, OperationNumber, Segment, Shape, Version,
};
use braid_plan::{Body, Health, PlanError, PlanSet, Stamped, Target, Want, Write};

use crate::program::Program;
use crate::spec::Spec;

/// The way in which a request is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Read,
    /// Write under an exclusive lease, to a file that has its whole size.
    Update,
    /// Write under an exclusive lease, to a file that ends where the write begins.
    Append,
    /// Write under a shared lease.
    SharedUpdate,
}

/// The properties that requests with one program have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Class {
    kind: Kind,
    /// First byte, counted from a stripe whose number is a multiple of the width.
    from: u64,
    bytes: u64,
    /// Mask of the columns that are out.
    out: u64,
}

/// A file's layout and drives.
#[derive(Debug)]
pub(crate) struct File {
    layout: Layout,
    /// Drive of each column.
    pub(crate) drives: Vec<u32>,
    health: Health,
}

/// All files, and the programs compiled so far.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) files: Vec<File>,
    shape: Shape,
    size: u64,
    compiled: HashMap<Class, Rc<Program>>,
}

/// A request's program, and the number to add to its offsets.
pub(crate) struct Placed {
    pub(crate) program: Rc<Program>,
    pub(crate) shift: u64,
}

impl Programs {
    /// Places the files of a checked spec.
    pub(crate) fn new(spec: &Spec) -> Programs {
        let shape = spec.shape().expect("the spec was checked");
        let candidates: Vec<Candidate> = (0..spec.cluster.drives)
            .map(|drive| Candidate {
                drive: DriveId(u128::from(drive)),
                weight: 1,
                domain: vec![format!("host-{}", drive / spec.cluster.drives_per_host)],
            })
            .collect();
        let files = (0..spec.files.count).map(|file| place(spec, shape, file, &candidates)).collect();
        Programs { files, shape, size: spec.file_bytes(), compiled: HashMap::new() }
    }

    /// The program of a request for bytes of a file.
    pub(crate) fn get(&mut self, file: u32, kind: Kind, range: Range<u64>) -> Result<Placed, PlanError> {
        let file = &self.files[crate::number::index(u64::from(file))];
        let turn = u64::from(self.shape.width()) * self.shape.stripe_bytes();
        let moved = range.start / turn * turn;
        let range = range.start - moved..range.end - moved;
        let class = Class {
            kind,
            from: range.start,
            bytes: range.end - range.start,
            out: !file.health.set.0 & braid_layout::ColumnMask::all(self.shape.width()).0,
        };
        let stripes = moved / self.shape.stripe_bytes();
        let shift = stripes * u64::from(self.shape.unit_bytes());
        if let Some(program) = self.compiled.get(&class) {
            return Ok(Placed { program: Rc::clone(program), shift });
        }
        let segment = &file.layout.segments()[0];
        let size = self.size.max(range.end);
        let sets = compile(file, kind, range, size)?;
        let program = Rc::new(Program::new(&sets, segment));
        self.compiled.insert(class, Rc::clone(&program));
        Ok(Placed { program, shift })
    }
}

/// A file with its drives, chosen as the manager chooses them. Drives that are out are chosen too, as if
/// they had gone out later.
fn place(spec: &Spec, shape: Shape, file: u32, candidates: &[Candidate]) -> File {
    let chosen = placement::choose(PlacementVersion::V1, u64::from(file), shape.width(), candidates)
        .expect("there are as many drives as columns");
    let component = |&drive: &DriveId| Component { drive, object: ObjectId(u64::from(file)) };
    let components: Vec<Component> = chosen.iter().map(component).collect();
    let drives: Vec<u32> =
        chosen.iter().map(|drive| u32::try_from(drive.0).expect("drives are numbered from 0")).collect();
    let segment = Segment { start: 0, end: u64::MAX, shape, components };
    let out = segment.columns_on(|drive| spec.cluster.down.iter().any(|&down| u128::from(down) == drive.0));
    let mut health = Health::whole(&shape, Generation(1));
    health.set = health.set.minus(out);
    let layout = Layout::new(vec![segment]).expect("one segment, a drive for each column");
    File { layout, drives, health }
}

/// The plan sets of a request: several if the request is larger than a plan set may be.
fn compile(file: &File, kind: Kind, range: Range<u64>, size: u64) -> Result<Vec<PlanSet>, PlanError> {
    let first = range.start;
    let stamp = Version { g: Generation(1), lease: Lease(1), n: 1 };
    braid_plan::parts(&file.layout, range)
        .map(|part| {
            let segment = &file.layout.segments()[part.segment];
            let target = Target { segment, index: part.segment, health: file.health };
            let (size, reach) = match kind {
                Kind::Append => (first, first),
                _ => (size, u64::MAX),
            };
            let body = Body::Buffer { offset: part.skip };
            let write = |range| Write { range, body, size, reach, stamp };
            match kind {
                Kind::Read => braid_plan::read(&target, part.range, part.skip, Want::Newest),
                Kind::Update | Kind::Append => {
                    braid_plan::write_cheapest(&target, write(part.range), OperationNumber::FIRST)
                }
                Kind::SharedUpdate => {
                    let shared = braid_plan::unit_write(
                        &target,
                        write(part.range.clone()),
                        OperationNumber::FIRST,
                        Stamped::ByDrive,
                    );
                    match shared {
                        // A column that is out is written with its stripe, under an exclusive lease.
                        Err(PlanError::ColumnOut { .. }) => {
                            braid_plan::write_cheapest(&target, write(part.range), OperationNumber::FIRST)
                        }
                        other => other,
                    }
                }
            }
        })
        .collect()
}
