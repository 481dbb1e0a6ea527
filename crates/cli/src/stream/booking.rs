//! The reservations of a run: asked for together, kept while it lasts, ended with it.

use std::time::Duration;

use braid_client::{Client, DataDirection, Name, RateAsk};
use braid_layout::ReservationId;
use braid_wire::control::ReservationRow;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::output::exit::Failure;
use crate::output::interrupt::{GRACE, Interrupts};
use crate::output::waiting::for_rate;

/// Time that a reservation has beyond the streams' own, for opening and closing.
const MARGIN: Duration = Duration::from_secs(60);
/// Time that is left of a reservation after it was extended, and of one whose streams have no end.
const EXTENSION: Duration = Duration::from_secs(15 * 60);
/// Time that is left of a long reservation when it is extended.
const LEFT: Duration = Duration::from_secs(11 * 60);
/// Least time between two attempts to extend.
const RETRY_AFTER: Duration = Duration::from_secs(5);

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

impl Terms {
    /// Time for which a rate is booked at first. It is extended as long as the streams go on.
    fn booked(&self) -> Duration {
        self.duration.map_or(EXTENSION, |duration| duration.saturating_add(MARGIN))
    }

    /// The rate of this many streams.
    fn ask(&self, streams: u32) -> RateAsk {
        let rate = self.rate.saturating_mul(u64::from(streams));
        let ask = match self.direction {
            DataDirection::Read => RateAsk::read(rate, self.booked()),
            DataDirection::Write => RateAsk::write(rate, self.booked()),
        };
        RateAsk { streams, period_ms: self.period_ms, survive: self.survive, ..ask }
    }
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

    /// Reserves for all names, or for none: if one is refused, or a signal comes, the others end.
    pub(super) async fn reserve(
        client: &Client,
        terms: Terms,
        wanted: &[Wanted],
        interrupts: &mut Interrupts,
    ) -> Result<Booked, Failure> {
        let began = Instant::now();
        let mut booked = Booked::nothing(client);
        for wanted in wanted.iter().filter(|wanted| wanted.streams > 0) {
            let ask = terms.ask(wanted.streams);
            let answer = answered(for_rate(client.book_rate(&wanted.name, &ask)), interrupts.next()).await;
            let failure = match answer.came {
                None => Some(Interrupts::failure()),
                Some(Err(error)) => Some(error.into()),
                Some(Ok(row)) => {
                    booked.rows.push(row);
                    None
                }
            };
            if let Some(failure) = failure.or_else(|| answer.is_stopped.then(Interrupts::failure)) {
                booked.end().await;
                return Err(failure);
            }
        }
        if !booked.rows.is_empty() {
            let ids: Vec<ReservationId> = booked.rows.iter().map(|row| row.reservation).collect();
            let client = client.clone();
            let ends = began + terms.booked();
            let extending = async move { extend(ends, &ids, |id| extend_one(&client, id)).await };
            booked.extending = Some(tokio::spawn(extending).abort_handle());
        }
        Ok(booked)
    }

    /// Number of connections that the streams make to drives: each has its own, to each of its drives.
    pub(super) fn connections(&self) -> u64 {
        let of = |row: &ReservationRow| {
            u64::from(row.streams) * u64::try_from(row.plan.drives.len()).unwrap_or(u64::MAX)
        };
        self.rows.iter().map(of).fold(0, u64::saturating_add)
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

/// The answer to a request.
struct Answer<T> {
    /// `None`: there was none before the signal, nor soon after it.
    came: Option<T>,
    is_stopped: bool,
}

/// Waits for an answer, after a signal only a little: what it brings is to be given back.
async fn answered<T, S>(asking: impl Future<Output = T>, signal: impl Future<Output = S>) -> Answer<T> {
    tokio::pin!(asking);
    tokio::select! {
        came = &mut asking => return Answer { came: Some(came), is_stopped: false },
        _ = signal => {}
    }
    Answer { came: timeout(GRACE, asking).await.ok(), is_stopped: true }
}

/// Extends reservations that end at this time, for as long as it is polled.
async fn extend<E>(mut ends: Instant, reservations: &[ReservationId], extend_one: impl Fn(ReservationId) -> E)
where
    E: Future<Output = bool>,
{
    loop {
        let left = ends.saturating_duration_since(Instant::now());
        sleep(left.saturating_sub(LEFT).max(left / 2).max(RETRY_AFTER)).await;
        let began = Instant::now();
        let mut are_extended = true;
        for reservation in reservations {
            are_extended &= extend_one(*reservation).await;
        }
        if are_extended {
            ends = began + EXTENSION;
        }
    }
}

/// Extends a reservation. Returns false if it could not be extended.
async fn extend_one(client: &Client, reservation: ReservationId) -> bool {
    let ms = u64::try_from(EXTENSION.as_millis()).unwrap_or(u64::MAX);
    match client.extend_reservation(reservation, ms).await {
        Ok(reply) if reply.refused.is_none() => return true,
        Ok(_) => tracing::warn!(%reservation, "a reservation was not extended: it will end"),
        Err(error) => tracing::warn!(%error, %reservation, "a reservation was not extended"),
    }
    false
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::time::timeout_at;

    use super::*;

    /// Extends a reservation of a stream of this length, and fails as many times first. Returns true if it
    /// stayed in force for a day.
    async fn lasts_a_day(of: Option<Duration>, failures: u32) -> bool {
        let terms =
            Terms { direction: DataDirection::Read, rate: 1, period_ms: 100, survive: 1, duration: of };
        let began = Instant::now();
        let state = Arc::new(Mutex::new((began + terms.booked(), failures, true)));
        let extend_one = |_| {
            let mut state = state.lock().unwrap();
            state.2 &= Instant::now() < state.0;
            let fails = state.1 > 0;
            if fails {
                state.1 -= 1;
            } else {
                state.0 = Instant::now() + EXTENSION;
            }
            async move { !fails }
        };
        let day = began + Duration::from_secs(24 * 3600);
        let extending = extend(began + terms.booked(), &[ReservationId(1)], extend_one);
        assert!(timeout_at(day, extending).await.is_err());
        let state = state.lock().unwrap();
        state.2 && day < state.0
    }

    #[tokio::test(start_paused = true)]
    async fn a_reservation_lasts_as_long_as_its_streams() {
        for of in [None, Some(1), Some(60), Some(7200), Some(200_000)] {
            for failures in [0, 3] {
                assert!(lasts_a_day(of.map(Duration::from_secs), failures).await, "{of:?} {failures}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_soon_after_a_signal_is_taken() {
        let after = |ms| sleep(Duration::from_millis(ms));
        for (asked, signal, came, is_stopped) in
            [(10, 50, true, false), (100, 50, true, true), (100_000, 50, false, true)]
        {
            let answer = answered(after(asked), after(signal)).await;
            assert_eq!((answer.came.is_some(), answer.is_stopped), (came, is_stopped), "{asked}");
        }
    }
}
