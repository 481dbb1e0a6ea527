//! Runs on their way to the drives, several at a time; no two that have a byte in common.

use std::sync::Arc;

use fuser::Errno;

use crate::errors::{Outcome, errno};
use crate::files::dirty::length;
use crate::files::inode::{Inode, TRIES};
use crate::files::inode_state::{Flight, InodeState};

/// Maximum number of runs of a file in flight.
const FLIGHTS_MAX: usize = 16;
/// Number of bytes of a file in flight from which on no other run begins.
const FLIGHT_BYTES_MAX: u64 = 32 << 20;
/// Minimum number of bytes with which a run that ends a chunk is written at once.
const WHOLE_BYTES_MIN: u64 = 1 << 20;

/// A flight under way. If it is dropped without an answer (its task has ended), it has failed.
struct Aloft {
    inode: Arc<Inode>,
    flight: Option<Arc<Flight>>,
}

impl Inode {
    /// Begins all flights that may begin.
    pub(crate) fn start(self: &Arc<Inode>) {
        let mut begun = Vec::new();
        {
            let mut state = self.state();
            while let Some(flight) = state.next_flight() {
                begun.push(flight);
            }
        }
        for flight in begun {
            let aloft = Aloft { inode: Arc::clone(self), flight: Some(flight) };
            self.context.runtime.spawn(aloft.fly());
        }
    }

    /// Writes a run, with a new lease if its lease is lost.
    async fn write_out(&self, flight: &Flight) -> Outcome<()> {
        let mut tries = 0;
        loop {
            let slot = self.writing_out().await?;
            if flight.run.order <= self.state().forfeited {
                return Ok(());
            }
            let file = slot.file.as_ref().expect("it is open");
            match file.write_at(&flight.run.bytes, flight.from).await {
                Ok(()) => return Ok(()),
                Err(error) if slot.failed(&error) && tries + 1 < TRIES => tries += 1,
                Err(error) => {
                    tracing::warn!(file = %self.file, from = flight.from, %error, "bytes of the file could not be written");
                    return Err(errno(&error));
                }
            }
        }
    }
}

impl InodeState {
    /// Takes the next run that may be written.
    fn next_flight(&mut self) -> Option<Arc<Flight>> {
        let flying: u64 = self.flights.iter().map(|flight| length(&flight.run.bytes)).sum();
        let is_full = self.flights.len() >= FLIGHTS_MAX || flying >= FLIGHT_BYTES_MAX;
        if self.halted || self.holds > 0 || is_full {
            return None;
        }
        let flights = &self.flights;
        let drain = self.drain;
        let chunk = self.extents.chunk();
        let (from, run) = self.extents.take(self.cursor, |from, run| {
            let end = from + length(&run.bytes);
            let is_whole = end.is_multiple_of(chunk) && length(&run.bytes) >= WHOLE_BYTES_MIN;
            let is_due = run.order <= drain || is_whole;
            is_due && !flights.iter().any(|flight| flight.from < end && from < flight.end())
        })?;
        let flight = Arc::new(Flight { from, run });
        self.cursor = flight.end();
        self.flights.push(Arc::clone(&flight));
        Some(flight)
    }
}

impl Aloft {
    async fn fly(mut self) {
        let flight = Arc::clone(self.flight.as_ref().expect("it has not landed"));
        let written = self.inode.write_out(&flight).await;
        drop(flight);
        self.land(written);
    }

    fn land(&mut self, written: Outcome<()>) {
        let Some(flight) = self.flight.take() else { return };
        let inode = &self.inode;
        {
            let mut state = inode.state();
            state.flights.retain(|one| !Arc::ptr_eq(one, &flight));
            let is_forfeited = flight.run.order <= state.forfeited;
            if written.is_ok() && !is_forfeited {
                state.landed_end = state.landed_end.max(flight.end());
            }
            if let Err(why) = written
                && !is_forfeited
            {
                state.extents.put_under(flight.from, &flight.run.bytes, flight.run.order);
                state.stop(why);
            } else if let Some(flight) = Arc::into_inner(flight) {
                state.extents.written(flight.run);
            }
            inode.recount(&mut state);
        }
        inode.landed.notify_waiters();
        inode.context.budget.stir();
        inode.start();
    }
}

impl Drop for Aloft {
    fn drop(&mut self) {
        self.land(Err(Errno::EIO));
    }
}
