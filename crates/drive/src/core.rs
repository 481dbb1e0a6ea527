//! State that all connections of one drive share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use braid_layout::{ClusterId, DriveId, PartitionId};
use braid_schedule::Direction;
use braid_schedule::drift::InFlight;
use braid_store::Store;
use braid_store::disk::is_residency_told;
use braid_transport::{Credits, Seldom, ServerIdentity};
use braid_wire::Refusal;
use braid_wire::authorise::Scene;
use braid_wire::capability::Binding;
use braid_wire::data::DriveCounts;
use tokio::sync::Notify;

use crate::calibration::{Calibration, Traffic, device_cost};
use crate::connections::buffers::Pool;
use crate::connections::modules::Modules;
use crate::connections::room::PeerSlots;
use crate::connections::sending::Chosen;
use crate::damage::Damage;
use crate::device::gate::Gate;
use crate::device::processors::processors;
use crate::device::rail::Rails;
use crate::keys::Keys;
use crate::life::clock::{Clock, Moment};
use crate::life::config::Settings;
use crate::life::latency::Latencies;
use crate::life::lease::Lease;
use crate::parity::forwarder::Forwarder;
use crate::readahead::state::Readahead;
use crate::readmission::ReadmissionFence;
use crate::revoked::Revoked;
use crate::scrub::{Progress, Scrub};

/// The part (a quarter) of the memory for payloads that is for requests under a promise.
const PROMISED_PART: usize = 4;

/// State of one running drive.
pub(crate) struct Core {
    pub(crate) cluster: ClusterId,
    pub(crate) drive: DriveId,
    /// The certificate with which sessions in TLS are begun, once the manager has given one.
    pub(crate) certificate: ServerIdentity,
    pub(crate) store: Store,
    pub(crate) settings: Settings,
    pub(crate) pool: Pool,
    /// Buffers for requests under a promise: others that wait never hold all memory.
    pub(crate) promised_pool: Pool,
    /// The turn of each request at the disk.
    pub(crate) gate: Arc<Gate>,
    /// The turn of each method at the processors.
    pub(crate) processors: Arc<Gate>,
    /// Modules of users, which methods run.
    pub(crate) modules: Modules,
    /// The turn of each payload at the rail; `None`: its rate is not known.
    pub(crate) rails: Option<Rails>,
    /// Bytes that may be on their way here, by link.
    pub(crate) inward: Credits,
    pub(crate) figures: Figures,
    pub(crate) readahead: Readahead,
    pub(crate) readmission: ReadmissionFence,
    pub(crate) room: PeerSlots,
    pub(crate) forwarder: Forwarder,
    /// The way in which the bytes of reads are sent.
    pub(crate) sending: Chosen,
    /// Shared with the healer in this process.
    pub(crate) damage: Arc<Damage>,
    /// Random number that identifies this process in heartbeats; 0 until heartbeats begin.
    pub(crate) start: AtomicU64,
    /// Notified when a scrub is requested.
    pub(crate) scrub_wake: Notify,
    /// Notified when a calibration is requested.
    pub(crate) calibrate_wake: Notify,
    /// Log lines about connections that peers caused to be closed.
    pub(crate) closed_log: Seldom,
    pub(crate) keys: Keys,
    lease: Mutex<Lease>,
    revoked: Mutex<Revoked>,
    scrub: Mutex<Scrub>,
    calibration: Mutex<Calibration>,
    /// Latencies of reads and of store mutations, in this order.
    latencies: [Mutex<Latencies>; 2],
    started: Moment,
}

/// State of the lease when a request arrives.
pub(crate) struct Arrival {
    /// Manager time in milliseconds, while the drive holds its lease.
    pub(crate) now_ms: Option<u64>,
    /// Ok if new requests may be served; otherwise their refusal.
    pub(crate) serving: Result<(), Refusal>,
}

/// Kind of operation whose latency is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timed {
    Read,
    Commit,
}

/// Counters since the drive's start.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) read_bytes: AtomicU64,
    /// Part of `read_bytes` that was sent from the page cache by sendfile; the rest was copied.
    pub(crate) sent_bytes: AtomicU64,
    /// Bytes that were read ahead from the disk.
    pub(crate) ahead_bytes: AtomicU64,
    /// Bytes of those written that the manager wrote.
    pub(crate) system_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) refused: AtomicU64,
    /// Reads that were answered from memory, without a turn at the disk.
    pub(crate) at_once: AtomicU64,
}

impl Figures {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

impl Core {
    pub(crate) fn new(
        (cluster, drive): (ClusterId, DriveId),
        keys: Keys,
        store: Store,
        (lease, readmission, scrub, room, gate): (Lease, ReadmissionFence, Progress, PeerSlots, Arc<Gate>),
        forwarder: Forwarder,
        calibration: Calibration,
        settings: Settings,
    ) -> Core {
        if let Some(cost) = device_cost(&calibration.parts()) {
            gate.set_cost(cost);
        }
        Core {
            cluster,
            certificate: ServerIdentity::default(),
            drive,
            store,
            pool: Pool::new(settings.payload_bytes_max - settings.payload_bytes_max / PROMISED_PART),
            promised_pool: Pool::new(settings.payload_bytes_max / PROMISED_PART),
            processors: processors(&gate),
            modules: Modules::default(),
            rails: Rails::new(&gate, settings.rail_bytes_per_second),
            gate,
            inward: Credits::default(),
            figures: Figures::default(),
            readahead: Readahead::new(settings.read_ahead_bytes),
            readmission,
            room,
            forwarder,
            sending: Chosen::new(settings.sending),
            damage: Arc::new(Damage::new(settings.clock.clone())),
            start: AtomicU64::new(0),
            scrub_wake: Notify::new(),
            calibrate_wake: Notify::new(),
            closed_log: Seldom::default(),
            keys,
            lease: Mutex::new(lease),
            revoked: Mutex::default(),
            scrub: Mutex::new(Scrub::new(scrub, settings.scrub_rate)),
            calibration: Mutex::new(calibration),
            latencies: [(); 2].map(|()| Mutex::new(Latencies::new(settings.clock.now()))),
            started: settings.clock.now(),
            settings,
        }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.settings.clock
    }

    pub(crate) fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn revoked(&self) -> MutexGuard<'_, Revoked> {
        self.revoked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn scrub(&self) -> MutexGuard<'_, Scrub> {
        self.scrub.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn calibration(&self) -> MutexGuard<'_, Calibration> {
        self.calibration.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that clients have read and written since the start. What the manager keeps here is nobody's use.
    pub(crate) fn traffic(&self) -> Traffic {
        let figures = &self.figures;
        let written = figures.written_bytes.load(Ordering::Relaxed);
        let by_clients = written.saturating_sub(figures.system_bytes.load(Ordering::Relaxed));
        (figures.read_bytes.load(Ordering::Relaxed), by_clients)
    }

    /// Latencies of one kind of operation.
    pub(crate) fn latencies(&self, of: Timed) -> MutexGuard<'_, Latencies> {
        let [reads, commits] = &self.latencies;
        let which = if of == Timed::Read { reads } else { commits };
        which.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the latency of an operation that began at `began` and ends now.
    pub(crate) fn note_latency(&self, of: Timed, began: Instant) {
        let took_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.latencies(of).note(took_us, self.clock().now());
    }

    /// Reads in flight, for a read that is not cached, if the system tells what is, and nothing is written
    /// beside it, which would make it slower; else `None`.
    pub(crate) fn reads_from_disk(&self) -> Option<InFlight> {
        let is_told = self.settings.disk_model.is_some() || is_residency_told();
        is_told.then(|| self.gate.only_reads_in_flight()).flatten()
    }

    /// Records a read that went to the disk.
    pub(crate) fn note_disk_read(&self, began: Instant, in_flight: InFlight) {
        let took_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.calibration().handle_read(took_ns, in_flight, self.clock().now());
    }

    /// Counts since the start, for the manager.
    pub(crate) fn counts(&self) -> DriveCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let figures = &self.figures;
        let [reads, writes] = [Direction::Read, Direction::Write].map(|way| self.gate.served(way));
        DriveCounts {
            reads: reads.requests + of(&figures.at_once),
            writes: writes.requests,
            refused: of(&figures.refused),
            read_bytes: of(&figures.read_bytes),
            sent_bytes: of(&figures.sent_bytes),
            ahead_bytes: of(&figures.ahead_bytes),
            written_bytes: of(&figures.written_bytes),
            read_queue_us: reads.queue_ns / 1000,
            read_disk_us: reads.disk_ns / 1000,
            write_queue_us: writes.queue_ns / 1000,
            write_disk_us: writes.disk_ns / 1000,
        }
    }

    /// Text for users about reads and writes: a word if the disk is modelled, the shares of read bytes sent
    /// by sendfile and by copy since the start, and what each costs. Without what is not known.
    pub(crate) fn io(&self) -> String {
        let read = self.figures.read_bytes.load(Ordering::Relaxed);
        let sent = self.figures.sent_bytes.load(Ordering::Relaxed).min(read);
        let sent = sent.saturating_mul(100).checked_div(read);
        let sent = sent.map(|percent| format!("reads {percent} % sendfile, {} % copy", 100 - percent));
        let model = self.settings.disk_model.as_ref().map(|_| "modelled disk".to_owned());
        let why = Some(self.sending.why()).filter(|why| !why.is_empty());
        model.into_iter().chain(sent).chain(why).collect::<Vec<_>>().join("; ")
    }

    /// Manager time in milliseconds, while the drive holds its lease.
    pub(crate) fn manager_ms(&self) -> Option<u64> {
        let now = self.clock().now();
        let lease = self.lease();
        lease.holds(now).ok().and_then(|()| lease.manager_ms(now))
    }

    /// Checks the lease for a request that arrives now (PROTOCOL R8).
    pub(crate) fn arrival(&self) -> Arrival {
        let now = self.clock().now();
        let lease = self.lease();
        let now_ms = lease.holds(now).ok().and_then(|()| lease.manager_ms(now));
        Arrival { now_ms, serving: lease.serving(now) }
    }

    /// Ok if a reply may leave now, because the lease holds (PROTOCOL R8).
    pub(crate) fn holds(&self) -> Result<(), Refusal> {
        let now = self.clock().now();
        self.lease().holds(now)
    }

    /// Milliseconds since the start.
    pub(crate) fn uptime_ms(&self) -> u64 {
        self.clock().now().since(self.started)
    }

    /// Runs `check` with the drive's present state.
    pub(crate) fn with_scene<T>(
        &self,
        binding: Binding,
        now_ms: Option<u64>,
        check: impl FnOnce(&Scene<'_>) -> T,
    ) -> T {
        let key_epoch = |partition: PartitionId| match partition {
            PartitionId(0) => Some(1),
            partition => self.store.partition(partition).ok().map(|state| state.key_epoch),
        };
        let drive = self.drive;
        self.keys.with(now_ms, &key_epoch, |key_number, working_key, former| {
            check(&Scene { drive, binding, now_ms, working_key, key_epoch: &key_epoch, key_number, former })
        })
    }
}
