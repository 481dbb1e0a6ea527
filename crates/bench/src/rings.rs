//! Reaching the disk by io_uring (`Method::Uring`), or by ordinary calls: both are Braid, through the page cache. What the
//! default rests on.

use braid_store::Options;
use braid_store::disk::Method;

use crate::crew::Work;
use crate::error::Error;
use crate::machine::Place;
use crate::measure::{Limit, Question};
use crate::report::Cache;
use crate::store::{Bench, STREAM_DEPTH, before, payloads};
use crate::subject::Subject;
use crate::ways::{UNIT, question, writes};

const AGAINST: &str = "ordinary calls";
/// Bytes of a random read.
const READ_BYTES: u32 = 4096;
/// Random reads: how many at a time, and where they find the bytes.
const READS: [(u32, Cache); 3] = [(1, Cache::Miss), (32, Cache::Miss), (32, Cache::Hit)];

/// How many rows there are for a place: none where there is no ring, or nothing to wait for.
pub(crate) fn rows(place: &Place) -> u64 {
    if compares(place) { 4 } else { 0 }
}
const _: () = assert!(READS.len() + 1 == 4, "the rows");

fn compares(place: &Place) -> bool {
    place.uring && !place.memory
}

/// All of them.
pub(crate) fn measure(bench: &mut Bench<'_, '_>) -> Result<(), Error> {
    if compares(bench.place) {
        writing(bench)?;
        reading(bench)?;
    }
    Ok(())
}

fn by(method: Method) -> Options {
    Options { method, ..Options::default() }
}

fn writing(bench: &mut Bench<'_, '_>) -> Result<(), Error> {
    writes(bench, ("io_uring, write whole units", AGAINST), (by(Method::Uring), by(Method::Plain)))
}

/// Random parts of whole units.
fn reading(bench: &mut Bench<'_, '_>) -> Result<(), Error> {
    let stop = bench.pairs.watch.stop;
    let units = bench.scale.hit_bytes / u64::from(UNIT);
    let filled = |name, method| {
        let mut subject = Subject::with(&bench.place.directory, name, by(method))?;
        let object = subject.filled(&payloads(UNIT).0, units, STREAM_DEPTH, stop)?;
        Ok::<_, Error>((subject, object))
    };
    let (ring, plain) = (filled("ring", Method::Uring)?, filled("plain", Method::Plain)?);
    for (depth, cache) in READS {
        let asked = question("io_uring, random read", AGAINST, READ_BYTES, depth);
        let asked = Question { cache: Some(cache), ..asked };
        if bench.pairs.leaves_out(&asked) {
            continue;
        }
        let limit = Limit { time: bench.scale.time, operations: bench.operations(READ_BYTES) };
        let plan = Work { depth, limit, turn: 1, request_bytes: READ_BYTES };
        if cache == Cache::Hit {
            let all = Work { depth: 1, limit: Limit::operations(units), turn: 1, request_bytes: UNIT };
            for (subject, object) in [&ring, &plain] {
                subject.sequential_reads(*object, 0, all, stop)?;
            }
        }
        let read = |(subject, object): &(Subject, _), round| {
            before(cache, || subject.forget())?;
            subject.random_reads(*object, units, plan, round, stop)
        };
        let label = &bench.place.label;
        let row = bench.pairs.row(label, asked, |round| read(&ring, round), |round| read(&plain, round))?;
        bench.rows.push(row);
    }
    Ok(())
}
