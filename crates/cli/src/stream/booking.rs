//! The reservations of a run: asked for together, kept while it lasts, ended with it.

use std::time::Duration;

use braid_client::{Client, DataDirection, Error, Name, RateAsk};
use braid_layout::ReservationId;
use braid_wire::control::ReservationRow;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::output::exit::Failure;

/// Time that a reservation has beyond the streams' own, for opening and closing.
const MARGIN: Duration = Duration::from_secs(60);
/// Time of a reservation whose streams have no end. It is extended until they end.
const OPEN_END: Duration = Duration::from_secs(15 * 60);
/// Interval between two extensions.
const EXTEND_EVERY: Duration = Duration::from_secs(4 * 60);

/// Terms of all reservations of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) direction: DataDirection,
    /// Bytes a second of each stream.
    pub(super) rate: u64,
    pub(super) period_ms: u32,
    pub(super) survive: u8,
    /// `None`: until the streams end.
    pub(super) duration: Option<Duration>,
}

/// A name that streams are reserved for.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) name: Name,
    pub(super) streams: u32,
}

/// The reservations of a run.
#[derive(Debug)]
pub(super) struct Booked {
    client: Client,
    rows: Vec<ReservationRow>,
    extending: Option<AbortHandle>,
}

impl Booked {
    /// Nothing is reserved.
    pub(super) fn nothing(client: &Client) -> Booked {
        Booked { client: client.clone(), rows: Vec::new(), extending: None }
    }

    /// Reserves for all names, or for none: if one is refused, the others end.
    pub(super) async fn reserve(client: &Client, terms: Terms, wanted: &[Wanted]) -> Result<Booked, Failure> {
        let mut booked = Booked::nothing(client);
        for wanted in wanted.iter().filter(|wanted| wanted.streams > 0) {
            match one(client, terms, wanted).await {
                Ok(row) => booked.rows.push(row),
                Err(error) => {
                    booked.end().await;
                    return Err(error.into());
                }
            }
        }
        if terms.duration.is_none() {
            let ids: Vec<ReservationId> = booked.rows.iter().map(|row| row.reservation).collect();
            booked.extending = Some(tokio::spawn(extend(client.clone(), ids)).abort_handle());
        }
        Ok(booked)
    }

    /// The numbers of the reservations.
    pub(super) fn numbers(&self) -> Vec<u64> {
        self.rows.iter().map(|row| row.reservation.0).collect()
    }

    /// The longest start-up latency that was admitted, in microseconds; `None` without a reservation.
    pub(super) fn start_us(&self) -> Option<u64> {
        self.rows.iter().map(|row| row.plan.start_us).max()
    }

    /// Ends all reservations.
    pub(super) async fn end(mut self) {
        if let Some(extending) = self.extending.take() {
            extending.abort();
        }
        for row in std::mem::take(&mut self.rows) {
            if let Err(error) = self.client.end_reservation(row.reservation).await {
                tracing::warn!(%error, reservation = %row.reservation, "a reservation was not ended");
            }
        }
    }
}

async fn one(client: &Client, terms: Terms, wanted: &Wanted) -> Result<ReservationRow, Error> {
    let duration = terms.duration.map_or(OPEN_END, |duration| duration + MARGIN);
    let rate = terms.rate.saturating_mul(u64::from(wanted.streams));
    let ask = RateAsk {
        streams: wanted.streams,
        period_ms: terms.period_ms,
        survive: terms.survive,
        ..match terms.direction {
            DataDirection::Read => RateAsk::read(rate, duration),
            DataDirection::Write => RateAsk::write(rate, duration),
        }
    };
    let reply = client.reserve_rate(&wanted.name, &ask, false).await?;
    let name = wanted.name.to_string();
    match (reply.admitted, reply.refused) {
        (Some(row), _) => Ok(row),
        (None, Some(refused)) => Err(Error::NotAdmitted { name, refused: Box::new(refused) }),
        (None, None) => {
            Err(Error::Answer { subject: name, why: "a rate was neither admitted nor refused".into() })
        }
    }
}

/// Extends reservations until the run ends.
async fn extend(client: Client, reservations: Vec<ReservationId>) {
    let ms = u64::try_from(OPEN_END.as_millis()).unwrap_or(u64::MAX);
    loop {
        sleep(EXTEND_EVERY).await;
        for reservation in &reservations {
            match client.extend_reservation(*reservation, ms).await {
                Ok(reply) if reply.refused.is_none() => {}
                Ok(_) => tracing::warn!(%reservation, "a reservation was not extended: it will end"),
                Err(error) => tracing::warn!(%error, %reservation, "a reservation was not extended"),
            }
        }
    }
}
