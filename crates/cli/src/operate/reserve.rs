//! `braid reserve`: a data rate that is kept, or a refusal with what can be had.

use std::path::Path;

use braid_client::{Client, DataDirection, Name, RateAsk};
use braid_layout::ReservationId;
use braid_layout::scheme::UNIT_BYTES_DEFAULT;
use braid_sim::units::Rate;
use braid_wire::control::{
    CounterOffer, DriveBooking, DrivePromise, Lateness, NotAdmitted, RateReserved, ReservationReply,
    ReservationRow, ShapeSpec,
};
use serde::Serialize;

use crate::args::{self, ReserveCommand, ReserveRate};
use crate::connect;
use crate::files::names::{remote, show_remote};
use crate::files::stat::{ShapeFacts, shape_facts, show_shape};
use crate::operate::volume::Asked;
use crate::output::duration;
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::report::{Report, show_name, table};
use crate::output::size;
use crate::output::waiting;

/// A reservation in `--json`.
#[derive(Debug, Serialize)]
struct Row {
    /// The reservation's number; 0 if nothing was booked, as with `--dry-run`.
    reservation: u64,
    name: String,
    direction: &'static str,
    bytes_per_second: u64,
    streams: u32,
    period_ms: u32,
    survive: u8,
    /// Time left, in milliseconds.
    left_ms: u64,
    /// Time in which something must be opened under it, in milliseconds; absent: something was.
    #[serde(skip_serializing_if = "Option::is_none")]
    claim_within_ms: Option<u64>,
    shape: Option<ShapeFacts>,
    drives: Vec<DriveRow>,
    buffer_bytes: u64,
    lateness_bound_us: u64,
    failover_us: u64,
    start_us: u64,
    /// The reason why the rate may not be kept at present; empty: it will be.
    risk: String,
    delivered: Delivered,
}

/// A reservation's promise at one drive, in `--json`.
#[derive(Debug, Serialize)]
struct DriveRow {
    name: String,
    bytes_per_second: u64,
    burst_bytes: u64,
    operation_bytes: u32,
    healthy_permille: u32,
    worst_permille: u32,
}

/// The sum of the clients' reports, in `--json`.
#[derive(Debug, Serialize)]
struct Delivered {
    bytes: u64,
    bytes_per_second: u64,
    periods: u64,
    late_periods: u64,
    worst_us: u64,
    /// Periods that were late by a drive's death, within the stated pause; not among the late ones.
    paused_periods: u64,
    /// Most lateness in these.
    paused_us: u64,
    late_beyond_rate: u64,
    late_in_queue: u64,
    late_at_disk: u64,
}

/// The answer to a request for a rate, in `--json`.
#[derive(Debug, Serialize)]
struct Reply {
    #[serde(skip_serializing_if = "Option::is_none")]
    admitted: Option<Row>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<Refused>,
    explanation: Vec<String>,
}

/// A refusal of a rate, in `--json`.
#[derive(Debug, Serialize)]
struct Refused {
    resource: String,
    needed_permille: u64,
    free_permille: u64,
    detail: String,
    offers: Vec<Offer>,
}

/// A rate that would be admitted, in `--json`.
#[derive(Debug, Serialize)]
struct Offer {
    bytes_per_second: u64,
    survive: u8,
    /// Time until it would be admitted, in milliseconds.
    in_ms: u64,
    shape: Option<ShapeFacts>,
    detail: String,
}

/// All reservations, in `--json`.
#[derive(Debug, Serialize)]
struct Listed {
    reservations: Vec<Row>,
    drives: Vec<Booked>,
    share_permille: u32,
}

/// The booking of a drive, in `--json`.
#[derive(Debug, Serialize)]
struct Booked {
    name: String,
    healthy_permille: u32,
    worst_permille: u32,
    able_permille: u32,
}

/// Runs the command.
pub(crate) async fn run(asked: args::Reserve, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    if let (Some(_), Some(_)) = (&asked.command, &asked.asked) {
        return Err(Failure::usage("reserve", "a rate is asked for without ls, rm or extend"));
    }
    match (asked.command, asked.asked) {
        (Some(ReserveCommand::Ls), _) => list(&connect::cluster(cluster).await?, report).await,
        (Some(ReserveCommand::Rm { reservations }), _) => {
            let client = connect::cluster(cluster).await?;
            for text in reservations {
                for row in find(&client, &text).await? {
                    client.end_reservation(row.reservation).await?;
                    report.say(format!("reservation {} of {} has ended", row.reservation, name_of(&row)))?;
                }
            }
            Ok(())
        }
        (Some(ReserveCommand::Extend { reservation, duration }), _) => {
            let client = connect::cluster(cluster).await?;
            let what = format!("extend reservation {reservation}");
            for row in find(&client, &reservation).await? {
                let reply = client.extend_reservation(row.reservation, duration).await?;
                answer(&client, &what, reply, false, report)?;
            }
            Ok(())
        }
        (None, Some(asked)) => reserve(asked, cluster, report).await,
        (None, None) => Err(Failure::usage("reserve", "name a file, a directory or a volume, and a rate")),
    }
}

async fn reserve(asked: ReserveRate, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let name = remote(&asked.name)?;
    let what = || "reserve".to_owned();
    let unit = asked.unit.unwrap_or(u64::from(UNIT_BYTES_DEFAULT));
    let scheme = asked.scheme.as_deref().map(|scheme| Asked::new(scheme, asked.width, unit));
    let scheme = scheme.transpose().doing(what)?;
    let client = connect::cluster(cluster).await?;
    let mut shape = ShapeSpec::DEFAULT;
    if let Some(scheme) = scheme {
        shape = ShapeSpec::from(scheme.shape(&client, what).await?);
        shape.unit_bytes = if asked.unit.is_some() { shape.unit_bytes } else { 0 };
    }
    let ask = ask(&asked, shape);
    let what = format!("reserve {} for {}", size::show_rate(ask.rate), show_remote(&name));
    let reply = waiting::for_rate(client.reserve_rate(&name, &ask, asked.dry_run)).await?;
    answer(&client, &what, reply, asked.explain, report)
}

/// The rate to ask for, from the command line.
fn ask(asked: &ReserveRate, shape: ShapeSpec) -> RateAsk {
    let direction = if asked.write.is_some() { DataDirection::Write } else { DataDirection::Read };
    let rate = asked.write.or(asked.read).map_or(0, bytes_per_second);
    let period_ms = u32::try_from(asked.period.0 / 1_000_000).unwrap_or(u32::MAX);
    RateAsk {
        direction,
        rate,
        streams: asked.streams,
        period_ms,
        survive: asked.survive,
        duration_ms: asked.duration,
        claim_ms: asked.claim_within.unwrap_or(0),
        rail: asked.rail.map_or(0, bytes_per_second),
        shape,
    }
}

/// A rate in whole bytes a second.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is above 0; `as` saturates"
)]
pub(crate) fn bytes_per_second(rate: Rate) -> u64 {
    rate.0.round() as u64
}

/// Prints the plan of what was admitted. What was refused is a failure with a code of its own.
fn answer(
    client: &Client,
    what: &str,
    reply: RateReserved,
    explain: bool,
    report: Report,
) -> Result<(), Failure> {
    let now_ms = client.manager_ms();
    let facts = Reply {
        admitted: reply.admitted.as_ref().map(|row| facts(row, now_ms)),
        refused: reply.refused.as_ref().map(|refused| refusal(refused, now_ms)),
        explanation: if explain { reply.explanation } else { Vec::new() },
    };
    report.facts(&facts, |facts| {
        let mut text: String = facts.explanation.iter().map(|line| format!("{line}\n")).collect();
        if let Some(row) = &facts.admitted {
            text.push_str(&show_plan(row));
        }
        for offer in facts.refused.iter().flat_map(|refused| &refused.offers) {
            text.push_str(&format!("instead: {}\n", show_offer(offer)));
        }
        text
    })?;
    match facts.refused {
        None => Ok(()),
        Some(refused) => Err(Failure::new(
            Exit::NotAdmitted,
            what,
            format!(
                "{} ({}: {} of {} free)",
                refused.detail,
                refused.resource,
                share(refused.needed_permille),
                share(refused.free_permille)
            ),
        )),
    }
}

/// Runs `braid status --reservations`: lists them, and fails if one is at risk.
pub(crate) async fn status(cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    let reply = client.reservations().await?;
    report.facts(&listed(&reply, client.manager_ms()), show_list)?;
    match reply.reservations.iter().find(|row| !row.risk.is_empty()) {
        None => Ok(()),
        Some(row) => {
            let what = format!("keep reservation {} of {}", row.reservation, name_of(row));
            Err(Failure::new(Exit::NotWell, what, row.risk.clone()))
        }
    }
}

async fn list(client: &Client, report: Report) -> Result<(), Failure> {
    let reply = client.reservations().await?;
    report.facts(&listed(&reply, client.manager_ms()), show_list)
}

/// Rows of the reservations that a number or a name means.
async fn find(client: &Client, text: &str) -> Result<Vec<ReservationRow>, Failure> {
    let rows = client.reservations().await?.reservations;
    let found: Vec<ReservationRow> = match text.parse::<u64>() {
        Ok(number) => rows.into_iter().filter(|row| row.reservation == ReservationId(number)).collect(),
        Err(_) => {
            let name: Name = remote(text.as_ref())?;
            let shown = show_remote(&name);
            rows.into_iter()
                .filter(|row| name_of(row).trim_end_matches('/') == shown.trim_end_matches('/'))
                .collect()
        }
    };
    if found.is_empty() {
        let why = "there is no such reservation: it has ended, or never was";
        return Err(Failure::new(Exit::NotFound, format!("find reservation {text}"), why)
            .remedy("braid reserve ls lists all"));
    }
    Ok(found)
}

fn name_of(row: &ReservationRow) -> String {
    format!("braid://{}/{}", row.volume, show_name(&row.path))
}

fn listed(reply: &ReservationReply, now_ms: u64) -> Listed {
    Listed {
        reservations: reply.reservations.iter().map(|row| facts(row, now_ms)).collect(),
        drives: reply.drives.iter().map(booked).collect(),
        share_permille: reply.share_permille,
    }
}

fn facts(row: &ReservationRow, now_ms: u64) -> Row {
    let claim = row.claim_until_ms;
    Row {
        reservation: row.reservation.0,
        name: name_of(row),
        direction: match row.direction {
            DataDirection::Read => "read",
            DataDirection::Write => "write",
        },
        bytes_per_second: row.rate,
        streams: row.streams,
        period_ms: row.period_ms,
        survive: row.survive,
        left_ms: row.ends_ms.saturating_sub(now_ms),
        claim_within_ms: (claim != 0).then(|| claim.saturating_sub(now_ms)),
        shape: shape_of(&row.plan.shape),
        drives: row.plan.drives.iter().map(drive).collect(),
        buffer_bytes: row.plan.buffer_bytes,
        lateness_bound_us: row.plan.lateness_us,
        failover_us: row.plan.failover_us,
        start_us: row.plan.start_us,
        risk: row.risk.clone(),
        delivered: delivered(&row.lateness),
    }
}

fn shape_of(spec: &ShapeSpec) -> Option<ShapeFacts> {
    (spec.k > 0).then(|| shape_facts(spec))
}

fn drive(drive: &DrivePromise) -> DriveRow {
    DriveRow {
        name: drive.name.clone(),
        bytes_per_second: drive.rate,
        burst_bytes: drive.burst,
        operation_bytes: drive.operation_bytes,
        healthy_permille: drive.healthy_permille,
        worst_permille: drive.worst_permille,
    }
}

fn delivered(lateness: &Lateness) -> Delivered {
    Delivered {
        bytes: lateness.bytes,
        bytes_per_second: lateness.bytes.saturating_mul(1000).checked_div(lateness.active_ms).unwrap_or(0),
        periods: lateness.periods,
        late_periods: lateness.late_periods,
        worst_us: lateness.worst_us,
        paused_periods: lateness.paused_periods,
        paused_us: lateness.paused_us,
        late_beyond_rate: lateness.beyond_rate,
        late_in_queue: lateness.in_queue,
        late_at_disk: lateness.at_disk,
    }
}

fn booked(drive: &DriveBooking) -> Booked {
    Booked {
        name: drive.name.clone(),
        healthy_permille: drive.healthy_permille,
        worst_permille: drive.worst_permille,
        able_permille: drive.able_permille,
    }
}

fn refusal(refused: &NotAdmitted, now_ms: u64) -> Refused {
    Refused {
        resource: refused.resource.clone(),
        needed_permille: refused.needed_permille,
        free_permille: refused.free_permille,
        detail: refused.detail.clone(),
        offers: refused.offers.iter().map(|of| offer(of, now_ms)).collect(),
    }
}

fn offer(offer: &CounterOffer, now_ms: u64) -> Offer {
    Offer {
        bytes_per_second: offer.rate,
        survive: offer.survive,
        in_ms: offer.begins_ms.saturating_sub(now_ms),
        shape: shape_of(&offer.shape),
        detail: offer.detail.clone(),
    }
}

/// Thousandths as a percentage.
fn share(permille: u64) -> String {
    format!("{}.{} %", permille / 10, permille % 10)
}

pub(crate) fn milliseconds(us: u64) -> String {
    format!("{}.{} ms", us / 1000, us % 1000 / 100)
}

fn show_offer(offer: &Offer) -> String {
    let when = if offer.in_ms == 0 { String::new() } else { format!(", in {}", duration::show(offer.in_ms)) };
    let shape = offer.shape.as_ref().map(|shape| format!(", {}", show_shape(shape))).unwrap_or_default();
    format!(
        "{}{when}{shape}, surviving {}: {}",
        size::show_rate(offer.bytes_per_second),
        offer.survive,
        offer.detail
    )
}

fn show_plan(row: &Row) -> String {
    let number = if row.reservation == 0 {
        "not booked".to_owned()
    } else {
        format!("reservation {}", row.reservation)
    };
    let claim = match row.claim_within_ms {
        Some(ms) => format!(", given back unless something is opened within {}", duration::show(ms)),
        None => String::new(),
    };
    let shape = row.shape.as_ref().map(show_shape).unwrap_or_default();
    let mut text = format!(
        "{number}: {} {} of {} for {}{claim}\nlayout: {shape} on {} drives; survives {}\n\
         buffer {}, never later than {} (once for each drive that dies: {} more), first data within {}\n",
        row.direction,
        size::show_rate(row.bytes_per_second),
        row.name,
        duration::show(row.left_ms),
        row.drives.len(),
        row.survive,
        size::show(row.buffer_bytes),
        milliseconds(row.lateness_bound_us),
        milliseconds(row.failover_us),
        milliseconds(row.start_us),
    );
    let rows = row.drives.iter().map(|drive| {
        vec![
            drive.name.clone(),
            size::show_rate(drive.bytes_per_second),
            size::show(drive.burst_bytes),
            size::show(u64::from(drive.operation_bytes)),
            share(u64::from(drive.healthy_permille)),
            share(u64::from(drive.worst_permille)),
        ]
    });
    text.push_str(&table(
        &["drive", "rate", "burst", "operation", "healthy", "worst"],
        &[1, 2, 3, 4, 5],
        rows,
    ));
    text
}

fn show_list(listed: &Listed) -> String {
    let rows = listed.reservations.iter().map(|row| {
        let delivered = &row.delivered;
        vec![
            row.reservation.to_string(),
            row.name.clone(),
            row.direction.to_owned(),
            size::show_rate(row.bytes_per_second),
            size::show_rate(delivered.bytes_per_second),
            format!("{}/{}", delivered.late_periods, delivered.periods),
            milliseconds(delivered.worst_us),
            milliseconds(row.lateness_bound_us),
            duration::show(row.left_ms),
        ]
    });
    let header =
        ["reservation", "name", "direction", "promised", "delivered", "late", "worst", "bound", "left"];
    let mut text = match listed.reservations.is_empty() {
        true => "nothing is reserved\n".to_owned(),
        false => table(&header, &[3, 4, 5, 6, 7, 8], rows),
    };
    for row in listed.reservations.iter().filter(|row| !row.risk.is_empty()) {
        text.push_str(&format!("at risk: reservation {} of {}: {}\n", row.reservation, row.name, row.risk));
    }
    for Row { reservation, delivered, failover_us, .. } in &listed.reservations {
        if delivered.paused_periods > 0 {
            text.push_str(&format!(
                "paused under reservation {reservation}, at a drive's death: {} periods, {} at most; stated {} beyond \
                 the bound\n",
                delivered.paused_periods,
                milliseconds(delivered.paused_us),
                milliseconds(*failover_us),
            ));
        }
    }
    // Without a word from drives it is not known where the time went.
    let has_causes = |of: &Delivered| [of.late_beyond_rate, of.late_in_queue, of.late_at_disk] != [0; 3];
    let late = listed.reservations.iter().filter(|row| has_causes(&row.delivered));
    for Row { reservation, delivered, .. } in late {
        text.push_str(&format!(
            "late under reservation {reservation}, at drives: {} requests beyond the rate, {} behind others, {} at a disk; the rest on the \
             way or at the client\n",
            delivered.late_beyond_rate, delivered.late_in_queue, delivered.late_at_disk
        ));
    }
    let drives = listed.drives.iter().map(|drive| {
        vec![
            drive.name.clone(),
            share(u64::from(drive.healthy_permille)),
            share(u64::from(drive.worst_permille)),
            share(u64::from(drive.able_permille)),
        ]
    });
    text.push_str(&format!("\n{}", table(&["drive", "booked", "at worst", "able"], &[1, 2, 3], drives)));
    text.push_str(&format!("at most {} of a drive is booked\n", share(u64::from(listed.share_permille))));
    text
}

#[cfg(test)]
mod tests;
