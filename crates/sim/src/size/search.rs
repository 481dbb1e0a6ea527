//! The search for the fewest drives: over schemes, widths and units, by arithmetic.

use braid_admission::Prices;
use braid_layout::{Scheme, Shape};

use super::admitted::admitted;
use super::state::{StripeCost, disk_share, state};
use super::{Answer, Ask, BUSY_MAX, FULL_MAX, Part};
use crate::number::{SECOND, real, whole};
use crate::units::{Bytes, Span};

/// Numbers of data columns that are tried.
const DATA_COLUMNS: std::ops::RangeInclusive<u8> = 1..=60;
/// Unit sizes that are tried, as powers of two.
const UNIT_POWERS: std::ops::RangeInclusive<u32> = 16..=23;
/// Most seconds of a stream in one stripe: a client has a stripe in memory, and waits for it first.
const STRIPE_SECONDS: f64 = 2.0;
/// Most shapes, of those on which some streams can have promises, for which drives are added until all can.
const PROMISED_MAX: usize = 4;
/// Most drives of an answer.
const DRIVES_MAX: u32 = 100_000;

/// Reason for which there is no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SizeError {
    /// A demand makes no sense.
    #[error("{what}")]
    Ask {
        /// The demand, and what would make sense.
        what: String,
    },
    /// A client's part limits, so more drives would not help.
    #[error(
        "the {part} would be {percent:.0} % busy however many drives there are, and {limit:.0} % is the limit: \
         use a faster one, or more clients"
    )]
    Client { part: Part, percent: f64, limit: f64 },
    /// No scheme and unit meets the demands.
    #[error("no scheme does it with {DRIVES_MAX} drives or fewer")]
    None,
}

/// Finds the fewest drives that meet the demands, and the best way to use them.
pub fn size(ask: &Ask) -> Result<Answer, SizeError> {
    check(ask)?;
    let mut found: Vec<(Order, Shape, Answer)> = Vec::new();
    let mut blocked = None;
    let mut prices = Prices::default();
    for shape in shapes(ask) {
        match answer(&mut prices, ask, shape, 0) {
            Ok(answer) => found.push((order(&answer), shape, answer)),
            Err(error) => blocked = Some(error),
        }
    }
    found.sort_by_key(|(order, ..)| *order);
    let mut best: Option<Answer> = None;
    let most = |best: &Option<Answer>| best.as_ref().map_or(DRIVES_MAX, |best| best.drives - 1);
    let mut tried = 0;
    for (_, shape, answer) in &found {
        if answer.drives > most(&best) || tried == PROMISED_MAX {
            break;
        }
        let admitted_streams = admitted(&mut prices, ask, *shape, answer.drives);
        // What not even one stream fits on is no better with more of it.
        if admitted_streams > 0 {
            tried += 1;
            let answer = Answer { admitted_streams, ..answer.clone() };
            best = promised(&mut prices, ask, *shape, answer, most(&best)).or(best);
        }
    }
    // If not all can be promised, the answer says how many.
    let first = || {
        let (_, shape, answer) = found.first()?;
        let admitted_streams = admitted(&mut prices, ask, *shape, answer.drives);
        Some(Answer { admitted_streams, ..answer.clone() })
    };
    best.or_else(first).ok_or(blocked.unwrap_or(SizeError::None))
}

/// Adds drives, up to `most`, until admission lets in all streams. It counts them file by file, so it may
/// need a few more than their mean over all drives does.
fn promised(prices: &mut Prices, ask: &Ask, shape: Shape, mut found: Answer, most: u32) -> Option<Answer> {
    while found.admitted_streams < ask.streams {
        let short = f64::from(ask.streams) / f64::from(found.admitted_streams.max(1));
        let more = ceil(f64::from(found.drives) * short.min(2.0)).max(found.drives + 1);
        found = answer(prices, ask, shape, Some(more).filter(|&more| more <= most)?).ok()?;
        found.admitted_streams = admitted(prices, ask, shape, found.drives);
    }
    Some(found)
}

fn check(ask: &Ask) -> Result<(), SizeError> {
    let wrong = |what: &str| Err(SizeError::Ask { what: what.to_owned() });
    if ask.streams == 0 || ask.clients == 0 || ask.drives_per_host == 0 {
        return wrong("streams, clients and drives of a host are at least 1");
    }
    if ask.survive > 4 {
        return wrong("Braid's schemes survive the loss of at most 4 drives at the same time");
    }
    if !(0.0..=1.0).contains(&ask.read) {
        return wrong("the share of streams that read is from 0 to 1");
    }
    if ask.disk_capacity.0 == 0 {
        return wrong("a drive holds at least a byte");
    }
    Ok(())
}

/// Order of answers, the best first: fewer drives, a shorter rebuild (in minutes), fewer columns, smaller
/// units.
type Order = (u32, u64, u8, u64);

fn order(answer: &Answer) -> Order {
    let minutes = answer.rebuild.map_or(u64::MAX, |span| span.0 / 60_000_000_000);
    (answer.drives, minutes, answer.width, answer.unit.0)
}

/// All shapes that survive enough losses and whose stripes are short enough.
fn shapes(ask: &Ask) -> impl Iterator<Item = Shape> + '_ {
    let scheme = match ask.survive {
        0 => Scheme::Raid0,
        1 => Scheme::Raid5,
        _ => Scheme::Rs,
    };
    let most = ask.rate.0 * STRIPE_SECONDS;
    DATA_COLUMNS
        .flat_map(|k| UNIT_POWERS.map(move |power| (k, 1_u32 << power)))
        .filter_map(move |(k, unit)| Shape::new(scheme, k, ask.survive, unit).ok())
        .filter(move |shape| shape.unit_bytes() == 1 << 16 || real(shape.stripe_bytes()) <= most)
}

/// The fewest drives with this shape, and so many at least for the streams.
fn answer(prices: &mut Prices, ask: &Ask, shape: Shape, at_least: u32) -> Result<Answer, SizeError> {
    let healthy = StripeCost::of(prices, shape, 0).ok_or(SizeError::None)?;
    let degraded = StripeCost::of(prices, shape, shape.m()).ok_or(SizeError::None)?;
    let lost = u32::from(shape.m());
    let stored = real(ask.capacity.0) * f64::from(shape.width()) / f64::from(shape.k());
    let for_capacity = ceil(stored / (real(ask.disk_capacity.0) * FULL_MAX));
    let healthy_state = |drives: u32| state(ask, shape, &healthy, drives, 0);
    let degraded_state = |drives: u32| state(ask, shape, &degraded, drives, lost);
    // With columns lost less is written, so either state may be the busier one.
    let worst = |drives: u32| {
        let all = healthy_state(drives).busiest();
        let less = degraded_state(drives).busiest();
        if all.1 >= less.1 { (all.0, all.1, false) } else { (less.0, less.1, true) }
    };
    let (part, busy, _) = worst(DRIVES_MAX);
    if busy > BUSY_MAX && matches!(part, Part::ClientLink | Part::ClientProcessor) {
        return Err(SizeError::Client { part, percent: 100.0 * busy, limit: 100.0 * BUSY_MAX });
    }
    let mut low = u32::from(shape.width());
    let mut high = DRIVES_MAX;
    let enough = |drives: u32| worst(drives).1 <= BUSY_MAX;
    if !enough(high) {
        return Err(SizeError::None);
    }
    while low < high {
        let middle = u32::midpoint(low, high);
        if enough(middle) { high = middle } else { low = middle + 1 }
    }
    // The number of hosts grows in steps: drives that are added for the capacity may make the fullest host
    // busier.
    let for_streams = low.max(at_least);
    let drives = (for_streams.max(for_capacity)..=DRIVES_MAX).find(|&d| enough(d)).ok_or(SizeError::None)?;
    let hosts = drives.div_ceil(ask.drives_per_host);
    let state_degraded = degraded_state(drives);
    let (bottleneck, busy, with_losses) = worst(drives);
    let full = stored / (real(ask.disk_capacity.0) * f64::from(drives));
    Ok(Answer {
        drives,
        hosts,
        scheme: shape.to_string(),
        width: shape.width(),
        unit: Bytes(u64::from(shape.unit_bytes())),
        survives_a_host: u32::from(shape.width()).div_ceil(hosts) <= lost,
        drives_for_capacity: for_capacity,
        drives_for_streams: for_streams,
        admitted_streams: 0,
        full,
        healthy: healthy_state(drives),
        degraded: state_degraded,
        bottleneck,
        with_losses,
        breaks_at_streams: f64::from(ask.streams) / busy,
        rebuild: rebuild(ask, shape, drives, full, state_degraded.disk, state_degraded.drive_link),
    })
}

/// Time to rebuild the columns of one lost drive on all others at once, with the capacity of disks and
/// links that the streams leave.
fn rebuild(ask: &Ask, shape: Shape, drives: u32, full: f64, disk: f64, link: f64) -> Option<Span> {
    let left = f64::from(drives.checked_sub(1).filter(|&left| left > 0 && shape.m() > 0)?);
    let unit = u64::from(shape.unit_bytes());
    let units = real(ask.disk_capacity.0) * full / real(unit);
    let reads = f64::from(shape.k()) * disk_share(&ask.disk, false, unit);
    let disk_seconds = units * (reads + disk_share(&ask.disk, true, unit)) / left / (1.0 - disk);
    // Each host receives k units for each unit that it rebuilds, and sends as many.
    let hosts = f64::from(drives.div_ceil(ask.drives_per_host));
    let wire = real(ask.link.on_the_wire(unit)) / ask.link.rate.0;
    let link_seconds = units * f64::from(shape.k()) * wire / hosts / (1.0 - link);
    let seconds = disk_seconds.max(link_seconds);
    (seconds.is_finite() && seconds > 0.0 && disk < 1.0 && link < 1.0).then(|| Span(whole(seconds * SECOND)))
}

fn ceil(value: f64) -> u32 {
    u32::try_from(whole(value.ceil())).unwrap_or(u32::MAX)
}
