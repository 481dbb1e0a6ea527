//! A user who reserves data rates for the clients' files during the trouble: the clients then work under
//! promises. At the end of a run what was acknowledged must be there, and nothing booked beyond its share
//! without a word.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use braid_client::{Client, DataDirection, RateAsk};
use braid_layout::ReservationId;
use braid_wire::control::{RESERVATIONS_MAX, ReservationReply, ShapeSpec};
use tokio::time::sleep;

use crate::cluster::Contact;
use crate::random::Random;
use crate::trace::Trace;
use crate::workload::{self, Target};

/// Longest pause between two actions.
const PAUSE_MS: u64 = 3_000;
/// Rates are reserved from this many bytes a second on: clients wait for their turns.
const RATE_MIN: u64 = 2 << 20;
/// Length of a reservation that outlives the run, in milliseconds.
const LONG_MS: u64 = 24 * 3_600_000;

/// The reservations that were acknowledged, are long, and were not ended.
pub(crate) type Kept = Arc<Mutex<Vec<ReservationId>>>;

/// A user of reservations.
pub(crate) struct Reserver {
    pub(crate) contact: Contact,
    pub(crate) targets: Vec<Target>,
    pub(crate) random: Random,
    pub(crate) trace: Trace,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) kept: Kept,
}

impl Reserver {
    /// Reserves rates, extends and ends reservations, until told to stop.
    pub(crate) async fn operate(mut self) {
        let client = loop {
            match Client::connect(workload::config(&self.contact)).await {
                Ok(client) => break client,
                Err(_) => sleep(Duration::from_millis(500)).await,
            }
        };
        loop {
            sleep(Duration::from_millis(100 + self.random.below(PAUSE_MS))).await;
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            match self.random.below(10) {
                0..6 => self.reserve(&client).await,
                6..8 => self.end(&client).await,
                _ => self.extend(&client).await,
            }
        }
    }

    async fn reserve(&mut self, client: &Client) {
        let index = self.random.below(u64::try_from(self.targets.len()).unwrap_or(1));
        let target = &self.targets[usize::try_from(index).unwrap_or(0)];
        let reads = self.random.percent(40);
        let is_long = self.random.percent(60);
        let ask = RateAsk {
            direction: if reads { DataDirection::Read } else { DataDirection::Write },
            rate: RATE_MIN + self.random.below(60 << 20),
            streams: 1 + u32::try_from(self.random.below(3)).unwrap_or(0),
            period_ms: 100,
            survive: u8::try_from(self.random.below(2)).unwrap_or(0),
            duration_ms: if is_long { LONG_MS } else { 500 + self.random.below(8_000) },
            claim_ms: if is_long { LONG_MS } else { 0 },
            rail: 0,
            shape: ShapeSpec::DEFAULT,
        };
        let trial = self.random.percent(10);
        match client.reserve_rate(&target.name, &ask, trial).await {
            Ok(reply) => match (reply.admitted, reply.refused) {
                (Some(row), None) => {
                    self.trace.event(format!(
                        "{} B/s of {} are reserved: {}",
                        ask.rate, target.name, row.reservation
                    ));
                    self.trace.count("rates reserved");
                    if is_long && !trial {
                        self.kept().push(row.reservation);
                    }
                }
                (None, Some(refused)) => {
                    self.trace.event(format!(
                        "{} B/s of {} are refused: {}",
                        ask.rate, target.name, refused.detail
                    ));
                    self.trace.count("rates refused");
                }
                other => self.trace.event(format!("an answer that is neither yes nor no: {other:?}")),
            },
            Err(error) => self.trace.event(format!("a rate of {} is not reserved: {error}", target.name)),
        }
    }

    async fn end(&mut self, client: &Client) {
        let Some(id) = self.one() else { return };
        // Whether or not the answer arrives, it may have ended.
        self.kept().retain(|kept| *kept != id);
        let ended = client.end_reservation(id).await;
        self.trace.event(format!("reservation {id} ends: {}", told(ended)));
    }

    async fn extend(&mut self, client: &Client) {
        let Some(id) = self.one() else { return };
        let extended = client.extend_reservation(id, LONG_MS).await.map(drop);
        self.trace.event(format!("reservation {id} is extended: {}", told(extended)));
    }

    fn one(&mut self) -> Option<ReservationId> {
        let kept = self.kept().clone();
        let index = self.random.below(u64::try_from(kept.len()).unwrap_or(0).max(1));
        kept.get(usize::try_from(index).unwrap_or(0)).copied()
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<ReservationId>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn told(result: braid_client::Result<()>) -> String {
    result.map_or_else(|error| error.to_string(), |()| "done".to_owned())
}

/// Checks the reservations at the end of a run. `is_older`: the manager's state was put back from a copy,
/// which does not know what was reserved since.
pub(crate) async fn check(client: &Client, kept: &Kept, is_older: bool) -> Result<(), String> {
    let kept = kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // The background looks at the books every second.
    sleep(Duration::from_secs(3)).await;
    let reply =
        client.reservations().await.map_err(|error| format!("reservations are not listed: {error}"))?;
    if reply.reservations.len() > RESERVATIONS_MAX {
        return Err(format!("{} reservations are in force", reply.reservations.len()));
    }
    let missing = kept.iter().find(|id| !reply.reservations.iter().any(|row| row.reservation == **id));
    match missing {
        Some(id) if !is_older => return Err(format!("reservation {id} was acknowledged, and is not there")),
        _ => {}
    }
    overbooked(&reply)
}

/// Refuses drives on which more is booked than their share, unless a reservation says that it is at risk.
fn overbooked(reply: &ReservationReply) -> Result<(), String> {
    let is_told = reply.reservations.iter().any(|row| !row.risk.is_empty());
    let over = reply.drives.iter().find(|drive| drive.worst_permille > reply.share_permille + 1);
    match over {
        Some(drive) if !is_told => Err(format!(
            "{} has {} permille booked, and nothing is at risk",
            drive.name, drive.worst_permille
        )),
        _ => Ok(()),
    }
}
