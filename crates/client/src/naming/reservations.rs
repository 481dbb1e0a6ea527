//! Reserved data rates: asked for here, admitted by the manager, kept by the drives.

use std::time::Duration;

use braid_layout::ReservationId;
use braid_wire::control::{
    ControlReply, EndReservation, ExtendReservation, Qualified, Qualify, QualifyAct, RateReserved,
    ReservationReply, ReservationRow, Reservations, ReserveRate, ShapeSpec, WholeRate,
};

pub use braid_wire::capability::DataDirection;
use tokio::runtime::Handle;

use crate::client::{Client, unexpected};
use crate::error::{Error, Result};
use crate::naming::name::Name;

/// A data rate to ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateAsk {
    /// The direction of the data.
    pub direction: DataDirection,
    /// Bytes of file data a second, of all streams together.
    pub rate: u64,
    /// Number of streams that share the rate.
    pub streams: u32,
    /// Milliseconds in which the rate's bytes must have arrived.
    pub period_ms: u32,
    /// Number of drives that may be lost while the rate is kept.
    pub survive: u8,
    /// Milliseconds for which the rate is kept.
    pub duration_ms: u64,
    /// Milliseconds in which something must be opened under the reservation; 0: the manager's own choice.
    pub claim_ms: u64,
    /// Rate of this client's rail in bytes a second; 0: not known.
    pub rail: u64,
    /// Shape of new files; [`ShapeSpec::DEFAULT`] leaves it open.
    pub shape: ShapeSpec,
}

impl RateAsk {
    /// This many bytes a second to read, for one stream, in periods of 100 ms, surviving the loss of a drive.
    pub fn read(rate: u64, duration: Duration) -> RateAsk {
        RateAsk::new(DataDirection::Read, rate, duration)
    }

    /// As [`RateAsk::read`], to write.
    pub fn write(rate: u64, duration: Duration) -> RateAsk {
        RateAsk::new(DataDirection::Write, rate, duration)
    }

    fn new(direction: DataDirection, rate: u64, duration: Duration) -> RateAsk {
        RateAsk {
            direction,
            rate,
            streams: 1,
            period_ms: 100,
            survive: 1,
            duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
            claim_ms: 0,
            rail: 0,
            shape: ShapeSpec::DEFAULT,
        }
    }
}

/// A reservation that ends with an open file.
#[derive(Debug)]
pub(crate) struct Reserved {
    client: Client,
    runtime: Handle,
    /// `None`: it has ended.
    reservation: Option<ReservationId>,
}

impl Reserved {
    /// Reserves a rate.
    pub(crate) async fn ask(client: &Client, name: &Name, ask: &RateAsk) -> Result<Reserved> {
        let row = client.book_rate(name, ask).await?;
        Ok(Reserved {
            client: client.clone(),
            runtime: Handle::current(),
            reservation: Some(row.reservation),
        })
    }

    /// Ends the reservation.
    pub(crate) async fn end(mut self) {
        if let Some(reservation) = self.reservation.take() {
            end(&self.client, reservation).await;
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let Some(reservation) = self.reservation.take() else { return };
        let client = self.client.clone();
        let _entered = self.runtime.enter();
        self.client.shared.later.spawn(async move { end(&client, reservation).await });
    }
}

/// Ends a reservation. One that stays is given back at the end of its time.
async fn end(client: &Client, reservation: ReservationId) {
    if let Err(error) = client.end_reservation(reservation).await {
        tracing::debug!(%reservation, %error, "a reservation was not ended");
    }
}

impl Client {
    /// Reserves a data rate for a file, a directory or a volume. What is opened there in this direction, by
    /// any client, shares the rate from then on, until it ends. With `trial` nothing is booked. The answer
    /// is a reservation, or the reason why it cannot be had with what can.
    pub async fn reserve_rate(&self, name: &Name, ask: &RateAsk, trial: bool) -> Result<RateReserved> {
        let subject = name.to_string();
        let request = ReserveRate {
            at: self.place(name).await?,
            direction: ask.direction,
            rate: ask.rate,
            streams: ask.streams,
            period_ms: ask.period_ms,
            survive: ask.survive,
            duration_ms: ask.duration_ms,
            claim_ms: ask.claim_ms,
            rail: ask.rail,
            shape: ask.shape.clone(),
            trial,
        };
        rate_reserved(&subject, self.ask_manager(&subject, request).await?)
    }

    /// As [`Client::reserve_rate`], for a caller that needs the rate: a refusal is [`Error::NotAdmitted`].
    pub async fn book_rate(&self, name: &Name, ask: &RateAsk) -> Result<ReservationRow> {
        let reply = self.reserve_rate(name, ask, false).await?;
        let name = name.to_string();
        match (reply.admitted, reply.refused) {
            (Some(row), _) => Ok(row),
            (None, Some(refused)) => Err(Error::NotAdmitted { name, refused: Box::new(refused) }),
            (None, None) => {
                let why = "a rate was neither admitted nor refused".to_owned();
                Err(Error::Answer { subject: name, why })
            }
        }
    }

    /// The manager's time in milliseconds, as its last answer told it and the time since then; 0 before the
    /// first answer.
    pub fn manager_ms(&self) -> u64 {
        self.shared.control.now_ms()
    }

    /// All reservations in force, and the bookings of all drives.
    pub async fn reservations(&self) -> Result<ReservationReply> {
        let mut listed = Vec::new();
        let mut after = ReservationId::NONE;
        loop {
            let reply = match self.ask_manager("the cluster", Reservations { after }).await? {
                ControlReply::Reservations(reply) => reply,
                other => return Err(unexpected("the cluster", &other)),
            };
            listed.extend(reply.reservations);
            match listed.last() {
                Some(last) if reply.more && last.reservation > after => after = last.reservation,
                // The bookings are those of the end: of what was reserved meanwhile too.
                _ => return Ok(ReservationReply { reservations: listed, more: false, ..reply }),
            }
        }
    }

    /// Has the manager keep or forget what all drives do together, or tell it.
    pub async fn qualify(&self, act: QualifyAct, whole: Option<WholeRate>) -> Result<Qualified> {
        match self.ask_manager("the cluster", Qualify { act, whole }).await? {
            ControlReply::Qualified(reply) => Ok(reply),
            other => Err(unexpected("the cluster", &other)),
        }
    }

    /// Lets a reservation end this many milliseconds from now.
    pub async fn extend_reservation(
        &self,
        reservation: ReservationId,
        duration_ms: u64,
    ) -> Result<RateReserved> {
        let subject = format!("reservation {reservation}");
        let answer = self.ask_manager(&subject, ExtendReservation { reservation, duration_ms }).await?;
        rate_reserved(&subject, answer)
    }

    /// Ends a reservation. Files that are open under it go on as best effort.
    pub async fn end_reservation(&self, reservation: ReservationId) -> Result<()> {
        let subject = format!("reservation {reservation}");
        match self.ask_manager(&subject, EndReservation { reservation }).await? {
            ControlReply::Done(_) => Ok(()),
            other => Err(unexpected(&subject, &other)),
        }
    }
}

/// The answer to a request for a rate, which says one of two things.
fn rate_reserved(subject: &str, answer: ControlReply) -> Result<RateReserved> {
    match answer {
        ControlReply::RateReserved(reply) if reply.admitted.is_some() != reply.refused.is_some() => Ok(reply),
        other => Err(unexpected(subject, &other)),
    }
}
