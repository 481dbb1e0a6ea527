//! The points that the paper's text fixes, beside the simulated results; and where it contradicts itself.

use serde::Serialize;

use super::Runner;
use super::real;
use super::result::Figure;
use super::search::{greatest, link_busy, sustainable};
use super::setup::Setup;
use braid_sim::model::Distribution;
use braid_sim::outcome::{PartKind, RunOutcome};
use braid_sim::spec::{Load, Spec};
use braid_sim::units::{Bytes, Span};

/// A point that the text fixes, and its simulated value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Claim {
    /// Place in the paper.
    pub(crate) place: &'static str,
    /// The paper's words.
    pub(crate) words: &'static str,
    /// The paper's number, if it gives one.
    pub(crate) paper: Option<f64>,
    pub(crate) found: f64,
    /// Unit of both numbers.
    pub(crate) unit: &'static str,
    /// The way in which the number was found, and a judgement of it.
    pub(crate) note: String,
}

/// The results of one reading of the model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Assumption {
    pub(crate) what: &'static str,
    /// Mean time of one transfer of 32 KB, in milliseconds.
    pub(crate) transfer_ms: f64,
    /// Utilisation of the disks at 22 requests a second, 0 to 1.
    pub(crate) busy_at_22: f64,
    /// Mean time of a request at 22 a second, in milliseconds; `None`: saturated.
    pub(crate) ms_at_22: Option<f64>,
    /// Maximum sustainable load by the paper's definition, in requests a second.
    pub(crate) sustainable: f64,
    /// Maximum sustainable load in megabytes a second.
    pub(crate) sustainable_mb: f64,
    /// Utilisation of the disks at this load.
    pub(crate) busy_there: f64,
    /// Requests a second at which the disks are busy all the time, by arithmetic.
    pub(crate) limit: f64,
}

/// Configuration of figure 3 with 32 disks.
fn wide() -> Setup {
    Setup::new(32, 32, 1024)
}

/// Results of the runs for the claims.
enum Found {
    LoneDisk(f64),
    At22(RunOutcome),
    Knee(f64),
    FullBusy(RunOutcome),
    SmallUnit(f64),
}

/// Compares the points of the text with simulated results. Returns `None` if it was stopped.
pub(super) fn claims(figures: &[Figure], runner: &Runner<'_>) -> Option<Vec<Claim>> {
    let kinds = [0_u8, 1, 2, 3, 4];
    let found = runner.map("what the text says", &kinds, |kind| match kind {
        0 => Found::LoneDisk(lone_disk(32)),
        1 => Found::At22(braid_sim::run(&wide().at(22.0).spec(), &[])),
        2 => Found::Knee(knee(&wide())),
        3 => Found::FullBusy(super::search::most(&wide().spec())),
        _ => Found::SmallUnit(
            sustainable(&Setup::new(32, 4, 1024)).map_or(0.0, |(rate, _)| rate * real(1 << 20) / 1e6),
        ),
    })?;
    let mut claims = Vec::new();
    from_figures(&mut claims, figures);
    found.into_iter().for_each(|found| add(&mut claims, found, figures));
    claims.sort_by_key(|claim| claim.place);
    Some(claims)
}

fn add(claims: &mut Vec<Claim>, found: Found, figures: &[Figure]) {
    let mut claim = |place, words, paper, found, unit, note: String| {
        claims.push(Claim { place, words, paper, found, unit, note });
    };
    match found {
        Found::LoneDisk(ms) => claim(
            "5.2, figure 3",
            "transferring 32 kilobytes required about 37 milliseconds on the average",
            Some(37.0),
            ms,
            "ms",
            "one disk, one request at a time, simulated; 16 + 8.3 + 12.8 = 37.1".to_owned(),
        ),
        Found::At22(outcome) => {
            let times = outcome.loads[0].milliseconds;
            claim(
                "5.2, figure 3, the knee",
                "At this point the disks were 50% utilized on the average",
                Some(50.0),
                100.0 * outcome.utilisation(PartKind::Disk),
                "%",
                format!(
                    "at 22 requests a second, whatever is simulated: 22 x 37.1 ms = 82 %. A request takes {:.0} ms \
                     there. See below",
                    times.mean
                ),
            );
        }
        Found::Knee(rate) => claim(
            "5.2, figure 3, the knee",
            "For 32 disks, the maximum sustainable load was reached at about 22 requests per second",
            Some(22.0),
            rate,
            "requests/s",
            "where a request takes three times as long as alone; the paper does not say how it reads the knee"
                .to_owned(),
        ),
        Found::FullBusy(outcome) => claim(
            "5, the network",
            "no more than 22% of the network capacity was ever used",
            Some(22.0),
            100.0 * link_busy(&outcome),
            "%",
            format!(
                "with 32 disks always busy: {:.1} requests a second, the most of all configurations",
                outcome.loads[0].per_second
            ),
        ),
        Found::SmallUnit(rate) => claim(
            "5.2, the unit",
            "The increase in effective data-rate is almost linear in the size of the transfer unit",
            None,
            figure_rate(figures, "figure-6", 32.0) / rate,
            "times",
            format!(
                "the sustainable data-rate of 1 MB requests on 32 disks with units of 32 KB over that with 4 KB, which \
                 is {rate:.2} MB/s: 8 would be linear"
            ),
        ),
    }
}

/// The rate of a figure's first curve at this number of disks.
fn figure_rate(figures: &[Figure], name: &str, disks: f64) -> f64 {
    let line = figures.iter().find(|figure| figure.name.ends_with(name)).and_then(|f| f.lines.first());
    let point = line.and_then(|line| line.points.iter().find(|point| point.x == disks));
    point.and_then(|point| point.y).unwrap_or(f64::NAN)
}

/// Adds the claims about figures 3, 5 and 6.
fn from_figures(claims: &mut Vec<Claim>, figures: &[Figure]) {
    let rate = |name: &str, disks: f64| figure_rate(figures, name, disks);
    let mut claim = |place, words, paper, found, unit, note: &str| {
        claims.push(Claim { place, words, paper, found, unit, note: note.to_owned() });
    };
    claim(
        "5.2, figure 5",
        "For transfer units of 4 kilobytes, the maximum sustainable data-rate for 32 disks is approximately 2 \
         megabytes per second",
        Some(2.0),
        rate("figure-5", 32.0),
        "MB/s",
        "128 KB requests, 2.5 MB/s disk; by the paper's definition",
    );
    claim(
        "5.2, figure 6",
        "When transfer units of 32 kilobytes are used, the maximum sustainable data-rate increases to nearly 12 \
         megabytes per second for the same 32 disks",
        Some(12.0),
        rate("figure-6", 32.0),
        "MB/s",
        "1 MB requests, 2.5 MB/s disk; by the paper's definition",
    );
    claim(
        "5.2, the disks",
        "The rate of requests that are serviceable increased almost linearly in the number of disks",
        None,
        rate("figure-6", 32.0) / rate("figure-6", 4.0),
        "times",
        "the sustainable data-rate of 32 disks over that of 4, figure 6: 8 would be linear",
    );
    let first_ms = |name: &str| {
        let figure = figures.iter().find(|figure| figure.name.ends_with("figure-3"));
        let line = figure.and_then(|figure| figure.lines.iter().find(|line| line.name == name));
        let points = line.map_or(&[][..], |line| line.points.as_slice());
        let last = points.iter().filter(|point| point.y.is_some()).map(|point| point.x).fold(0.0, f64::max);
        (points.first().and_then(|point| point.y).unwrap_or(f64::NAN), last)
    };
    let (ms, last) = first_ms("4 disks, unit 32 KB");
    claim(
        "5.2, figure 3, 4 disks",
        "When 4 disks were used, the system saturated quickly",
        None,
        last,
        "requests/s",
        &format!(
            "the greatest rate of the curve for 4 disks and units of 32 KB that is not saturated; alone a request takes {ms:.0} ms"
        ),
    );
}

/// Mean time of one block on a lone disk, where processors and link take no time.
pub(super) fn lone_disk(unit_kib: u64) -> f64 {
    let setup = Setup::new(1, unit_kib, unit_kib);
    let mut spec = setup.spec();
    spec.parts.link = super::setup::named("free");
    spec.parts.client = super::setup::named("free");
    spec.parts.drive = super::setup::named("free");
    spec.cluster.clients = 1;
    spec.run.precision = 0.005;
    spec.run.requests_max = 100_000;
    spec.load = vec![Load::closed("blocks", 1, Bytes(unit_kib << 10))];
    braid_sim::run(&spec, &[]).loads[0].milliseconds.mean
}

/// The rate at which a request takes three times as long as one that runs alone.
fn knee(setup: &Setup) -> f64 {
    let alone = braid_sim::run(&setup.at(0.02 * setup.disks_limit()).spec(), &[]).loads[0].milliseconds.mean;
    let holds = |outcome: &RunOutcome, _| {
        !outcome.is_saturated() && outcome.loads[0].milliseconds.mean <= 3.0 * alone
    };
    greatest(setup.disks_limit(), |rate| setup.at(rate).spec(), holds).map_or(0.0, |(rate, _)| rate)
}

/// A reading of the model: its words, and its change of the setup.
type Reading = (&'static str, fn(&mut Setup));

const READINGS: [Reading; 4] = [
    ("as section 5.1 says: averages of 16 ms and 8.3 ms, both uniform, for every block", |_| {}),
    ("the same, but with constant times", |setup| {
        setup.disk.seek = Distribution::Constant(Span::milliseconds(16.0));
        setup.disk.rotation = Distribution::Constant(Span::milliseconds(8.3));
    }),
    ("16 ms and 8.3 ms are the greatest times, not the averages", |setup| {
        setup.disk.seek = Distribution::Uniform([Span(0), Span::milliseconds(16.0)]);
        setup.disk.rotation = Distribution::Uniform([Span(0), Span::milliseconds(8.3)]);
    }),
    ("8.3 ms is the greatest rotational delay, 16 ms the average seek", |setup| {
        setup.disk.rotation = Distribution::Uniform([Span(0), Span::milliseconds(8.3)]);
    }),
];

/// The results of each reading, for 32 disks, units of 32 KB and requests of 1 MB.
pub(super) fn assumptions(runner: &Runner<'_>) -> Option<Vec<Assumption>> {
    runner.map("readings of the model", &READINGS, |(what, change)| {
        let mut setup = wide();
        change(&mut setup);
        let spec: Spec = setup.at(22.0).spec();
        let at_22 = braid_sim::run(&spec, &[]);
        let (sustainable, outcome) = sustainable(&setup).expect("some rate is sustained");
        Assumption {
            what,
            transfer_ms: setup.disk.access_ms(false, setup.unit.0),
            busy_at_22: at_22.utilisation(PartKind::Disk),
            ms_at_22: (!at_22.is_saturated()).then(|| at_22.loads[0].milliseconds.mean),
            sustainable,
            sustainable_mb: sustainable * real(setup.request.0) / 1e6,
            busy_there: outcome.utilisation(PartKind::Disk),
            limit: setup.disks_limit(),
        }
    })
}
