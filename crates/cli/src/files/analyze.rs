//! Runs a request for real, and says where its time went: `braid plan --analyze`, and part of `braid why`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

use braid_client::analysis::{Bound, DriveTime, Recorder, Span, SpanParts, Work};
use braid_client::{Client, Explained, File, Name, OpenOptions};
use braid_layout::{DriveId, Segment};
use serde::Serialize;

use crate::files::names::show_remote;
use crate::output::exit::{Exit, Failure};
use crate::output::report::table;
use crate::output::size;

/// Bytes that are read or written with one call, and held in memory.
const PIECE_BYTES: u64 = 64 << 20;
/// Bytes that are analysed at most.
const READ_BYTES_MAX: u64 = 4 << 30;
/// Bytes that are rewritten at most: they are held in memory in between.
const REWRITTEN_BYTES_MAX: u64 = PIECE_BYTES;

/// The analysis of a run, in `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct AnalysisFacts {
    /// The part that bounds it, in a sentence.
    pub(crate) bound: String,
    /// Bytes that the drives read and wrote.
    pub(crate) bytes: u64,
    pub(crate) wall_us: u64,
    /// Processor time of this process.
    processor_us: u64,
    /// The part of it for checksums, parity and reconstruction.
    checksum_us: u64,
    /// Megabits a second that all drives moved together while the wire was busy.
    wire_mbit_per_second: u64,
    drives: Vec<DriveTimeFacts>,
    /// The request that ended last, with all that it waited for; absent if there was none.
    last: Option<RequestFacts>,
    /// Requests beyond those of the plans: repeated ones, and those that make objects.
    pub(crate) requests_beyond_plan: u64,
}

/// One drive's time in a run: microseconds in which at least one request was there.
#[derive(Debug, Serialize)]
struct DriveTimeFacts {
    drive: String,
    requests: u64,
    failed: u64,
    /// Reads whose bytes were in memory or the page cache.
    cached: u64,
    bytes: u64,
    session_us: u64,
    in_flight_us: u64,
    credit_us: u64,
    queue_us: u64,
    disk_us: u64,
    commit_us: u64,
    within_us: u64,
    wire_us: u64,
    crc_us: u64,
    ended_us: u64,
}

/// One request of a run.
#[derive(Debug, Serialize)]
pub(crate) struct RequestFacts {
    /// The instruction of the plan set; absent for what no plan set has.
    #[serde(skip_serializing_if = "Option::is_none")]
    instruction: Option<usize>,
    drive: String,
    asked_us: u64,
    ended_us: u64,
    session_us: u64,
    in_flight_us: u64,
    credit_us: u64,
    queue_us: u64,
    disk_us: u64,
    commit_us: u64,
    within_us: u64,
    wire_us: u64,
    crc_us: u64,
    cached: bool,
    done: bool,
}

/// Names of drives.
pub(crate) type Names = BTreeMap<DriveId, String>;

/// Reads the ranges, drops the bytes, and returns what was recorded. Pieces are cut where stripes of the
/// plan sets begin, so that their requests are those of the plan sets.
pub(crate) async fn read(
    client: &Client,
    name: &Name,
    ranges: &[Range<u64>],
    explained: &[Explained],
) -> Result<Work, Failure> {
    let (client, recorder) = client.analysed();
    let file = client.open(name, &OpenOptions::new().read(true)).await?;
    let ranges = within(ranges, file.size())
        .map_err(|why| Failure::usage(format!("analyze {}", show_remote(name)), why))?;
    let mut buffer = Vec::new();
    recorder.begin();
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            let segments = explained.iter().map(|of| &of.segment);
            let end = piece_end(at, range.end, segments);
            buffer.resize(usize::try_from(end - at).expect("it is bounded"), 0);
            if file.read_at(&mut buffer, at).await? == 0 {
                break;
            }
            at = end;
        }
    }
    let work = recorder.take();
    file.close().await?;
    Ok(work)
}

/// The ranges as far as the file goes, or why they are too much.
fn within(ranges: &[Range<u64>], size: u64) -> Result<Vec<Range<u64>>, String> {
    let ranges: Vec<Range<u64>> = ranges.iter().map(|range| range.start..range.end.min(size)).collect();
    let bytes: u64 = ranges.iter().map(|range| range.end.saturating_sub(range.start)).sum();
    if bytes <= READ_BYTES_MAX {
        return Ok(ranges);
    }
    let most = size::show(READ_BYTES_MAX);
    Err(format!("the range has {} of the file; at most {most} are read", size::show(bytes)))
}

/// The end of the piece at `at` of a range that ends at `end`: where a stripe begins, if one does before the
/// piece is too long.
fn piece_end<'a>(at: u64, end: u64, mut segments: impl Iterator<Item = &'a Segment>) -> u64 {
    let most = end.min(at.saturating_add(PIECE_BYTES));
    let segment = segments.find(|segment| (segment.start..segment.end).contains(&at));
    let Some(segment) = segment.filter(|_| most < end) else { return most };
    if segment.end <= most {
        return segment.end;
    }
    let stripe = segment.stripe_range(segment.stripe_at(most)).start;
    if stripe > at { stripe } else { most }
}

/// Writes the bytes that the range has now once more, and returns what was recorded of the writing. No other
/// writer has the file meanwhile, so that nothing of another's is undone. The file's time of change moves,
/// and holes in the stripes that are written become zeros.
pub(crate) async fn rewrite(client: &Client, name: &Name, range: Range<u64>) -> Result<Work, Failure> {
    let what = || format!("rewrite {}", show_remote(name));
    let bytes = range.end - range.start;
    if bytes > REWRITTEN_BYTES_MAX {
        let why = format!(
            "the range has {}; at most {} are rewritten",
            size::show(bytes),
            size::show(REWRITTEN_BYTES_MAX)
        );
        return Err(Failure::usage(what(), why));
    }
    let (client, recorder) = client.analysed();
    let file = client.open(name, &OpenOptions::new().read(true).write(true).alone(true)).await?;
    let result = rewrite_open(&file, range, &recorder, what).await;
    let closed = file.close().await;
    // What went wrong first is the reason of what came after.
    let work = result?;
    closed?;
    Ok(work)
}

async fn rewrite_open(
    file: &File,
    range: Range<u64>,
    recorder: &Recorder,
    what: impl Fn() -> String,
) -> Result<Work, Failure> {
    let refuse = |why: String| Failure::new(Exit::Conflict, what(), why);
    if range.end > file.size() {
        let why = format!(
            "the range ends past the file's end at {}: there are no bytes to write again",
            file.size()
        );
        return Err(refuse(why).remedy("name a range within the file"));
    }
    let mut at = range.start;
    while at < range.end {
        match file.data_after(at).await? {
            Some(data) if data.start <= at && data.end > at => at = data.end,
            _ => {
                let why = format!("byte {at} lies in a hole, which writing would fill with zeros");
                return Err(refuse(why).remedy("name a range without holes"));
            }
        }
    }
    let mut buffer = vec![0; usize::try_from(range.end - range.start).expect("it is bounded")];
    let read = file.read_at(&mut buffer, range.start).await?;
    if read < buffer.len() {
        return Err(refuse("the file was cut while it was read".to_owned()));
    }
    recorder.begin();
    file.write_at(&buffer, range.start).await?;
    Ok(recorder.take())
}

/// The analysis in `--json`. `planned`: the number of requests that the plan sets have.
pub(crate) fn facts(work: &Work, bound: &Bound, names: &Names, planned: usize) -> AnalysisFacts {
    let last = work.spans.iter().max_by_key(|span| span.landed_us);
    let requests = u64::try_from(work.spans.len()).unwrap_or(u64::MAX).saturating_add(work.left_out);
    AnalysisFacts {
        bound: bound.sentence(|drive| name_of(names, drive)),
        bytes: bound.drives.iter().map(|drive| drive.bytes).sum(),
        wall_us: bound.wall_us,
        processor_us: bound.processor_us,
        checksum_us: bound.checksum_us,
        wire_mbit_per_second: bound.wire_mbit,
        drives: bound.drives.iter().map(|time| drive_facts(time, names)).collect(),
        last: last.map(|span| request(None, span, names)),
        requests_beyond_plan: requests.saturating_sub(u64::try_from(planned).unwrap_or(u64::MAX)),
    }
}

fn drive_facts(time: &DriveTime, names: &Names) -> DriveTimeFacts {
    DriveTimeFacts {
        drive: name_of(names, time.drive),
        requests: time.requests,
        failed: time.failed,
        cached: time.cached,
        bytes: time.bytes,
        session_us: time.session_us,
        in_flight_us: time.in_flight_us,
        credit_us: time.credit_us,
        queue_us: time.queue_us,
        disk_us: time.disk_us,
        commit_us: time.commit_us,
        within_us: time.within_us,
        wire_us: time.wire_us,
        crc_us: time.crc_us,
        ended_us: time.ended_us,
    }
}

/// The requests of a plan set, each with what was recorded of it last.
pub(crate) fn requests(of: &Explained, work: &Work, names: &Names) -> Vec<RequestFacts> {
    of.measured(work).into_iter().map(|(id, span)| request(Some(id), span, names)).collect()
}

fn request(instruction: Option<usize>, span: &Span, names: &Names) -> RequestFacts {
    let SpanParts {
        session_us,
        in_flight_us,
        credit_us,
        queue_us,
        disk_us,
        commit_us,
        within_us,
        wire_us,
        crc_us,
    } = span.parts();
    RequestFacts {
        instruction,
        drive: name_of(names, span.drive),
        asked_us: span.asked_us,
        ended_us: span.landed_us,
        session_us,
        in_flight_us,
        credit_us,
        queue_us,
        disk_us,
        commit_us,
        within_us,
        wire_us,
        crc_us,
        cached: span.times.is_some_and(|times| times.cached),
        done: span.is_done,
    }
}

fn name_of(names: &Names, drive: DriveId) -> String {
    names.get(&drive).cloned().unwrap_or_else(|| drive.short())
}

/// Maximum width in characters of the lines behind which times are aligned.
const TIMES_AT: usize = 80;

/// A plan set's text with what was measured behind each instruction.
pub(crate) fn beside(text: &str, requests: &[RequestFacts]) -> String {
    let id = |line: &str| line.strip_prefix("  ")?.split(' ').next()?.parse::<usize>().ok();
    let width = text.lines().filter(|line| id(line).is_some()).map(str::len).max().unwrap_or(0).min(TIMES_AT);
    let mut timed = String::new();
    for line in text.lines() {
        let found = id(line).and_then(|id| requests.iter().find(|request| request.instruction == Some(id)));
        match found {
            Some(request) => {
                let _ = writeln!(timed, "{line:width$}  | {}", shown(request));
            }
            None => timed = timed + line + "\n",
        }
    }
    timed
}

/// A request's times in milliseconds: first when it was handed over and done, then its parts.
fn shown(request: &RequestFacts) -> String {
    let parts = [
        ("session", request.session_us),
        ("in flight", request.in_flight_us),
        ("credit", request.credit_us),
        ("queue", request.queue_us),
        ("disk", request.disk_us),
        ("commit", request.commit_us),
        ("within", request.within_us),
        ("wire", request.wire_us),
        ("crc", request.crc_us),
    ];
    let mut text = format!("{} to {} ms:", ms(request.asked_us), ms(request.ended_us));
    for (name, us) in parts.into_iter().filter(|(_, us)| *us > 0) {
        let _ = write!(text, " {name} {}", ms(us));
    }
    if request.cached {
        text += " (cached)";
    }
    if !request.done {
        text += " FAILED";
    }
    text
}

/// The totals of a run, as text.
pub(crate) fn show(facts: &AnalysisFacts) -> String {
    let rows = facts.drives.iter().map(|of| {
        let times = [
            of.session_us,
            of.in_flight_us,
            of.credit_us,
            of.queue_us,
            of.disk_us,
            of.commit_us,
            of.within_us,
            of.wire_us,
            of.crc_us,
        ];
        let begin = [of.drive.clone(), of.requests.to_string(), of.cached.to_string(), size::show(of.bytes)];
        begin.into_iter().chain(times.map(ms)).chain([ms(of.ended_us)]).collect()
    });
    let header = [
        "drive",
        "requests",
        "cached",
        "bytes",
        "session",
        "in flight",
        "credit",
        "queue",
        "disk",
        "commit",
        "within",
        "wire",
        "crc",
        "ended",
    ];
    let right: Vec<usize> = (1..header.len()).collect();
    let mut text = format!(
        "measured: {} in {} ms; processor {} ms, of which checksums and parity {} ms\n{}",
        size::show(facts.bytes),
        ms(facts.wall_us),
        ms(facts.processor_us),
        ms(facts.checksum_us),
        table(&header, &right, rows)
    );
    if let Some(last) = &facts.last {
        let _ = writeln!(text, "last to end: a request to {}, {}", last.drive, shown(last));
    }
    if facts.requests_beyond_plan > 0 {
        let _ = writeln!(text, "beyond the plan: {} requests", facts.requests_beyond_plan);
    }
    text + &facts.bound + "\n"
}

/// Microseconds as milliseconds.
fn ms(us: u64) -> String {
    format!("{}.{:02}", us / 1000, us % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use braid_layout::{Scheme, Shape};

    use super::*;

    #[test]
    fn what_is_past_the_end_does_not_count() {
        assert_eq!(within(std::slice::from_ref(&(0..1 << 40)), 100).map(|ranges| ranges[0].end), Ok(100));
        let why = within(std::slice::from_ref(&(0..1 << 40)), 5 << 30).expect_err("too much");
        assert!(why.contains("5.00 GiB") && why.contains("4.00 GiB"), "{why}");
    }

    #[test]
    fn pieces_end_where_stripes_begin() {
        let shape = Shape::new(Scheme::Raid5, 4, 1, 512 << 10).expect("a shape");
        let of = |start, end| Segment { start, end, shape, components: Vec::new() };
        let segments = [of(0, 100 << 20), of(100 << 20, u64::MAX)];
        let end = |at, end| piece_end(at, end, segments.iter());
        let long = 200 << 20;
        assert_eq!((end(0, 10), end(0, long), end(5, long)), (10, PIECE_BYTES, PIECE_BYTES));
        assert_eq!(end(300 << 10, long), 64 << 20, "not 300 KiB into a unit");
        assert_eq!(end(64 << 20, long), 100 << 20, "the segment's end");
        assert_eq!((end(100 << 20, long), end(164 << 20, long)), (164 << 20, long));
        assert_eq!(piece_end(7, long, [].iter()), PIECE_BYTES + 7);
    }

    #[test]
    fn times_stand_behind_their_instructions() {
        let request = RequestFacts {
            instruction: Some(1),
            drive: "d1".to_owned(),
            asked_us: 120,
            ended_us: 12_340,
            session_us: 0,
            in_flight_us: 0,
            credit_us: 0,
            queue_us: 2000,
            disk_us: 10_000,
            commit_us: 0,
            within_us: 0,
            wire_us: 220,
            crc_us: 0,
            cached: false,
            done: true,
        };
        let text = "column 0, drive x\n  0 read\n  1 read all of it\ntotals\n";
        let expected = "column 0, drive x\n  0 read\n  1 read all of it  | 0.12 to 12.34 ms: queue 2.00 disk 10.00 \
                        wire 0.22\ntotals\n";
        assert_eq!(beside(text, &[request]), expected);
    }
}
