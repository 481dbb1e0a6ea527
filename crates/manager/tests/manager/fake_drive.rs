//! A fake drive: it answers only the manager's requests, with a real drive's checks, and tests can reach its
//! state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use braid_layout::{Column, ColumnMask, DriveId, FileId, Generation, ObjectId, PartitionId, Version};
use braid_manager::Ready;
use braid_manager::catalogue::rebuild::PARTITION;
use braid_transport::{
    Bounds, ConnectionSlots, ControlSession, Credentials, GivesWay, Limits, Listener, OwnKey, Receiver,
    Secured, Sender, ServerIdentity, Stream, TransportError, challenge,
};
use braid_wire::authorise::{Denied, Scene, Verified, authorise_in};
use braid_wire::capability::{Binding, Key};
use braid_wire::control::*;
use braid_wire::data::{
    DiskCharge, DiskCost, DiskWay, DriveCost, DriveParts, DriveReply, DriveRequest, FenceReply, HELLO, Hello,
    List, ListReply, ListedObject, Listing, PartitionAttributes, PartitionListReply, PeerRole, PendingState,
    ProcessorWay, UnitState, UnitVerdict, VersionsReply, Written,
};
use braid_wire::session::Session;
use braid_wire::token::Token;
use braid_wire::{FrameHeader, Reason, Refusal, Wire};
use tokio::task::AbortHandle;

const BEAT: Duration = Duration::from_millis(60);

/// An object on a fake drive.
#[derive(Debug, Clone)]
pub(crate) struct FakeObject {
    /// The file that its record names; 0 if the record is damaged.
    pub(crate) file: FileId,
    pub(crate) column: Column,
    pub(crate) g: Generation,
    pub(crate) set: ColumnMask,
    pub(crate) joining: ColumnMask,
    pub(crate) units: BTreeMap<u64, UnitState>,
    pub(crate) verdicts: Vec<UnitVerdict>,
}

/// State of a fake drive, which outlives its process.
#[derive(Debug, Default)]
pub(crate) struct FakeState {
    pub(crate) partitions: BTreeSet<PartitionId>,
    pub(crate) objects: BTreeMap<(PartitionId, ObjectId), FakeObject>,
    /// End of the drive's lease, by its own count.
    pub(crate) serves_until: Option<tokio::time::Instant>,
    /// Names of the requests that were carried out.
    pub(crate) carried_out: Vec<&'static str>,
    /// True if the drive accepts connections and requests, but answers none.
    pub(crate) mute: bool,
    /// True if the drive sends no heartbeats.
    pub(crate) silent: bool,
    pub(crate) replaced: bool,
    /// Process that the drive claims to be; all zeros: it cannot be looked up.
    pub(crate) process: ProcessMark,
    pub(crate) leases: u64,
    /// Number that the process drew at its start. This and the next fields are reported with heartbeats.
    pub(crate) start: u64,
    pub(crate) instance: u64,
    pub(crate) log: u64,
    pub(crate) seen: StateMark,
    /// The answer to the last heartbeat.
    pub(crate) admission: Option<Admission>,
    /// True if the heartbeats say that the drive is full.
    pub(crate) full: bool,
    /// Columns that do not take the deltas that the drive's objects owe them.
    pub(crate) owes: ColumnMask,
    /// True if the drive has lost its objects' records: fences find them damaged.
    pub(crate) lost_records: bool,
    /// The refusal of the drive to all requests for a still.
    pub(crate) no_stills: Option<Reason>,
    /// True if the drive refuses frames of the catalogue of names.
    pub(crate) no_names: bool,
    /// Streams of the catalogue that are there, and the number of those that were ever made.
    pub(crate) streams: BTreeSet<ObjectId>,
    pub(crate) streams_made: usize,
}

/// A drive: identity and state, with or without a running process.
#[derive(Clone)]
pub(crate) struct FakeDrive {
    pub(crate) id: DriveId,
    pub(crate) name: String,
    pub(crate) master: Key,
    pub(crate) state: Arc<Mutex<FakeState>>,
    cluster: braid_layout::ClusterId,
    pin: braid_wire::token::Pin,
    manager: String,
    certificate: ServerIdentity,
    running: Arc<Mutex<Vec<AbortHandle>>>,
}

impl FakeDrive {
    /// Joins a drive to the cluster and starts it.
    pub(crate) async fn join(ready: &Ready, id: u128, name: &str) -> Result<FakeDrive, TransportError> {
        FakeDrive::join_as(ready, id, name, ProcessMark::default()).await
    }

    /// Joins a drive that claims to be this process, and starts it.
    pub(crate) async fn join_as(
        ready: &Ready,
        id: u128,
        name: &str,
        process: ProcessMark,
    ) -> Result<FakeDrive, TransportError> {
        let token = &ready.join_token;
        let id = DriveId(id);
        let listener = Listener::bind("127.0.0.1:0").await?;
        let credentials = Credentials::joining(token, id);
        let mut session = ControlSession::connect(&ready.address, credentials, &Limits::default()).await?;
        let master = Token::master_key(&token.secret, session.binding(), session.nonce(), id);
        let address = listener.local_address().to_string();
        let join = JoinDrive {
            name: name.to_owned(),
            addresses: address.clone().into(),
            host: format!("host-{id}"),
            rack: String::new(),
            directory: "/nowhere".to_owned(),
            pid: 1,
            capacity_bytes: 1 << 40,
        };
        let ControlReply::Joined(joined) = session.call(&join.into()).await? else {
            panic!("no answer to a join")
        };
        let drive = FakeDrive {
            id,
            name: joined.name,
            master,
            state: Arc::new(Mutex::new(FakeState { process, start: 1, ..FakeState::default() })),
            cluster: ready.cluster,
            pin: token.pin,
            manager: ready.address.clone(),
            certificate: ServerIdentity::default(),
            running: Arc::default(),
        };
        drive.spawn(listener);
        Ok(drive)
    }

    /// Lets the file's columns on it join. While the manager is busy or does not know that the drive is up,
    /// it asks again, for 20 s at most.
    pub(crate) async fn begin_heal(&self, file: FileId) -> Result<Opened, Refusal> {
        self.begin_comparison(file, 1).await
    }

    pub(crate) async fn begin_comparison(&self, file: FileId, comparison: u64) -> Result<Opened, Refusal> {
        let until = tokio::time::Instant::now() + Duration::from_secs(20);
        loop {
            match self.ask(BeginHeal { file, comparison, filling: false, in_vain: 0 }).await {
                Ok(ControlReply::Opened(opened)) => return Ok(opened),
                Err(TransportError::Refusal(refusal))
                    if matches!(refusal.reason, Reason::Busy | Reason::NoDrive | Reason::NotLeading)
                        && tokio::time::Instant::now() < until =>
                {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(TransportError::Refusal(refusal)) => return Err(refusal),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Reports that the joining columns are up to date.
    pub(crate) async fn end_heal(&self, opened: &Opened) -> Result<(), Refusal> {
        self.end_comparison(opened, 1).await
    }

    pub(crate) async fn end_comparison(&self, opened: &Opened, comparison: u64) -> Result<(), Refusal> {
        let file = opened.stat.file;
        let g = opened.stat.g;
        match self.ask(EndHeal { file, g, left: 0, comparison, filling: false }).await {
            Ok(ControlReply::Done(_)) => Ok(()),
            Err(TransportError::Refusal(refusal)) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    /// Sends one request to the manager, on a session of its own.
    pub(crate) async fn ask(
        &self,
        request: impl Into<ControlRequest>,
    ) -> Result<ControlReply, TransportError> {
        let credentials = Credentials::of_drive(self.cluster, self.pin, self.id, 1, &self.master);
        let mut session = ControlSession::connect(&self.manager, credentials, &Limits::default()).await?;
        session.call(&request.into()).await
    }

    /// Starts the drive's process (again), at a new address.
    pub(crate) async fn start(&self) {
        self.state().start += 1;
        self.spawn(Listener::bind("127.0.0.1:0").await.unwrap());
    }

    /// Ends the drive's process: connections to it are refused.
    pub(crate) fn kill(&self) {
        self.cut_off();
        self.state().serves_until = None;
    }

    /// Cuts the drive off from the manager, as a firewall that resets its connections and refuses new ones.
    /// Clients still reach the drive, and it serves them until its lease lapses.
    pub(crate) fn cut_off(&self) {
        self.running.lock().unwrap().drain(..).for_each(|task| task.abort());
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, FakeState> {
        self.state.lock().unwrap()
    }

    /// The state that the drive's heartbeats report.
    fn told(&self) -> FakeState {
        let state = self.state();
        FakeState {
            start: state.start,
            instance: state.instance,
            log: state.log,
            seen: state.seen.clone(),
            process: state.process.clone(),
            full: state.full,
            ..FakeState::default()
        }
    }

    /// Returns true if the drive would serve now.
    pub(crate) fn serves(&self) -> bool {
        self.state().serves_until.is_some_and(|until| tokio::time::Instant::now() < until)
    }

    pub(crate) fn object(&self, partition: u64, object: ObjectId) -> Option<FakeObject> {
        self.state().objects.get(&(PartitionId(partition), object)).cloned()
    }

    /// Adds an object as if a client had created and written it: per unit a settled version and maybe a
    /// pending one.
    pub(crate) fn put(&self, row: &Opened, column: Column, pending: &[(u64, Version, ColumnMask)]) {
        let segment = &row.stat.segments[0];
        let units = pending.iter().map(|&(unit, stamp, columns)| {
            let pending = PendingState { columns, ..PendingState::of(stamp) };
            (unit, UnitState { pending: Some(pending), ..UnitState::unwritten(unit) })
        });
        let object = FakeObject {
            file: row.stat.file,
            column,
            g: row.stat.g,
            set: segment.set,
            joining: segment.joining,
            units: units.collect(),
            verdicts: Vec::new(),
        };
        let place = (PartitionId(row.stat.volume.0), segment.columns[column.index()].object);
        self.state().objects.insert(place, object);
    }

    fn spawn(&self, listener: Listener) {
        let address = listener.local_address().to_string();
        let mut running = self.running.lock().unwrap();
        running.push(tokio::spawn(accept(self.clone(), listener)).abort_handle());
        running.push(tokio::spawn(heartbeats(self.clone(), address)).abort_handle());
    }

    fn carry_out(&self, verified: &Verified) -> (Generation, DriveReply) {
        let capability = &verified.capability;
        let mut state = self.state();
        if let Some(reply) = of_catalogue(&mut state, verified) {
            return (Generation(1), reply);
        }
        state.carried_out.push(verified.request.name());
        let place = (capability.partition, capability.object);
        let done = || DriveReply::from(braid_wire::data::Done {});
        let no = |reason| DriveReply::from(Refusal::new(reason, format!("{reason:?}")));
        let known_g = state.objects.get(&place).map(|object| object.g);
        let owes = state.owes;
        let reply = match &verified.request {
            DriveRequest::PartitionSet(set) => {
                state.partitions.insert(set.partition);
                done()
            }
            DriveRequest::Remove(remove) if remove.at.is_well_known() => {
                if state.objects.keys().any(|(partition, _)| *partition == remove.at.partition) {
                    no(Reason::PartitionNotEmpty)
                } else {
                    state.partitions.remove(&remove.at.partition);
                    done()
                }
            }
            DriveRequest::Remove(_) => {
                state.objects.remove(&place);
                done()
            }
            DriveRequest::List(list) => listing(&state, list),
            DriveRequest::Create(create) => {
                let map = &create.attributes.map;
                assert_eq!(map.objects.len(), map.drives.len());
                let object = FakeObject {
                    file: map.file,
                    column: map.column,
                    g: capability.g,
                    set: capability.set,
                    joining: capability.joining,
                    units: BTreeMap::new(),
                    verdicts: Vec::new(),
                };
                state.objects.entry(place).or_insert(object);
                done()
            }
            _ if known_g.is_none() => no(Reason::NoObject),
            DriveRequest::Fence(_) if state.lost_records => no(Reason::Damaged),
            DriveRequest::Fence(_) if known_g > Some(capability.g) => no(Reason::StaleGeneration),
            DriveRequest::Fence(fence) => {
                let object = state.objects.get_mut(&place).unwrap();
                (object.g, object.set, object.joining) = (capability.g, capability.set, capability.joining);
                let pending = |state: &&UnitState| state.pending.is_some() && state.unit >= fence.units_from;
                let units: Vec<u64> = object.units.values().filter(pending).map(|state| state.unit).collect();
                // Three at a time, so that the manager must ask again.
                let more = units.len() > 3;
                let owed_to = owes.and(object.set);
                FenceReply { unsettled: units.into_iter().take(3).collect(), more, owed_to }.into()
            }
            _ if known_g != Some(capability.g) => no(Reason::StaleGeneration),
            DriveRequest::Versions(asked) => {
                let object = &state.objects[&place];
                let of = |unit: &u64| {
                    object.units.get(unit).cloned().unwrap_or_else(|| UnitState::unwritten(*unit))
                };
                if asked.list == Listing::Named {
                    let units = asked.units.iter().take(2).map(of).collect();
                    return (object.g, VersionsReply { units, next: None }.into());
                }
                assert_eq!(asked.list, Listing::BytesDown, "nothing else is asked of it");
                // One at a time, so that the manager must ask again.
                let mut down = object.units.range(..=asked.from).rev().filter(|(_, state)| state.end > 0);
                let units = down.next().map(|(_, state)| state.clone()).into_iter().collect();
                VersionsReply { units, next: down.next().map(|(unit, _)| *unit) }.into()
            }
            DriveRequest::Snapshot(_) if state.no_stills.is_some() => no(state.no_stills.unwrap()),
            DriveRequest::Snapshot(take) => {
                let map = &take.attributes.map;
                let base = state.objects[&place].clone();
                assert!(base.joining.is_empty() && base.units.values().all(|unit| unit.pending.is_none()));
                let still = FakeObject {
                    file: map.file,
                    g: take.attributes.g,
                    set: take.attributes.set,
                    verdicts: Vec::new(),
                    ..base
                };
                state.objects.entry((capability.partition, take.still)).or_insert(still);
                done()
            }
            DriveRequest::Verdict(verdict) => {
                let object = state.objects.get_mut(&place).unwrap();
                verdict.units.iter().for_each(|unit| judge(object, unit));
                done()
            }
            _ => no(Reason::Unsupported),
        };
        (state.objects.get(&place).map_or(Generation(0), |object| object.g), reply)
    }
}

/// The answer to a request about the catalogue of names, of which a fake drive keeps the streams without
/// their frames.
fn of_catalogue(state: &mut FakeState, verified: &Verified) -> Option<DriveReply> {
    let done = || DriveReply::from(braid_wire::data::Done {});
    let stream = verified.capability.object;
    match &verified.request {
        DriveRequest::PartitionSet(set) if set.partition == PARTITION => Some(done()),
        _ if verified.capability.partition != PARTITION => None,
        DriveRequest::StripeWrite(_) if state.no_names => {
            Some(Refusal::new(Reason::Full, "a test's drive takes no names").into())
        }
        DriveRequest::StripeWrite(write) => Some(Written::new(write.stamp, false).into()),
        DriveRequest::Create(_) => {
            state.streams_made += usize::from(state.streams.insert(stream));
            Some(done())
        }
        DriveRequest::Remove(_) => {
            state.streams.remove(&stream);
            Some(done())
        }
        DriveRequest::List(_) => Some(ListReply { objects: Vec::new() }.into()),
        _ => Some(done()),
    }
}

fn judge(object: &mut FakeObject, verdict: &UnitVerdict) {
    object.verdicts.push(verdict.clone());
    let Some(state) = object.units.get_mut(&verdict.unit) else { return };
    let Some(pending) = state.pending.clone() else { return };
    if verdict.forward.contains(&pending.stamp) {
        (state.settled, state.pending) = (pending.stamp, None);
    } else if verdict.back.contains(&pending.stamp) {
        state.pending = None;
    }
}

/// Lists the drive's partitions, or a partition's objects. A few at a time, so that the manager must ask
/// again.
fn listing(state: &FakeState, list: &List) -> DriveReply {
    if list.partition == PartitionId(0) {
        let above = state.partitions.iter().filter(|partition| partition.0 > list.after);
        return PartitionListReply {
            partitions: above.take(1).map(|&partition| listed(partition)).collect(),
        }
        .into();
    }
    let above = (list.partition, ObjectId(list.after + 1))..=(list.partition, ObjectId(u64::MAX));
    let row = |(&(_, object), known): (&(PartitionId, ObjectId), &FakeObject)| ListedObject {
        object,
        file: known.file,
        segment: 0,
        column: known.column,
        g: known.g,
        set: known.set,
        joining: known.joining,
    };
    ListReply { objects: state.objects.range(above).take(2).map(row).collect() }.into()
}

fn listed(partition: PartitionId) -> PartitionAttributes {
    PartitionAttributes { partition, quota_bytes: 0, used_bytes: 0, objects: 0, key_epoch: 1 }
}

async fn accept(drive: FakeDrive, listener: Listener) {
    let mut sessions = tokio::task::JoinSet::new();
    loop {
        let stream = listener.accept().await.unwrap();
        sessions.spawn(session(drive.clone(), stream));
    }
}

async fn session(drive: FakeDrive, stream: Stream) -> Result<(), TransportError> {
    let places = ConnectionSlots::new(Bounds::new(1, 1), GivesWay::Idle);
    let place = places.take(stream.holder()?, stream.origin()).expect("the only one");
    let (mut sender, receiver): (Sender, Receiver) = stream.into_halves();
    let hello = Hello {
        role: PeerRole::Drive,
        version_min: braid_wire::frame::WIRE_VERSION,
        version_max: braid_wire::frame::WIRE_VERSION,
        cluster: drive.cluster,
        drive: drive.id,
        features: if drive.certificate.is_ready() { Hello::TLS } else { 0 },
        challenge: challenge(),
    };
    if drive.state().mute {
        return std::future::pending().await;
    }
    sender.send(HELLO, 0, &hello.to_bytes(), &[]).await?;
    let secured = Secured::accept_if_begun(sender, receiver, &drive.certificate).await?;
    let mut proven = Session::begun(secured.is_private());
    let binding = secured.binding(&hello);
    let Secured { mut sender, mut receiver, .. } = secured;
    receiver.admit(place);
    while let Some((header, body)) = receiver.frame().await? {
        if drive.state().mute {
            return std::future::pending().await;
        }
        let (kind, request, body) = answer(&drive, binding, &mut proven, &header, &body);
        sender.send(kind, request, &body, &[]).await?;
    }
    Ok(())
}

fn answer(
    drive: &FakeDrive,
    binding: Binding,
    proven: &mut Session,
    header: &FrameHeader,
    body: &[u8],
) -> (u16, u64, Vec<u8>) {
    let working_key =
        |partition, epoch| drive.master.drive_key(drive.id).partition_key(partition).working_key(epoch);
    let partitions = drive.state().partitions.clone();
    let is_there = |partition| partition == PARTITION || partitions.contains(&partition);
    let key_epoch = |partition: PartitionId| (partition.0 == 0 || is_there(partition)).then_some(1);
    let scene = Scene {
        drive: drive.id,
        binding,
        now_ms: drive.serves().then_some(0), // expiry is the real drive's to test
        working_key: &working_key,
        key_epoch: &key_epoch,
        key_number: 1,
        former: None,
    };
    let (seal, g, reply) = match authorise_in(proven, &scene, header, body) {
        Ok(verified) => {
            let (g, reply) = drive.carry_out(&verified);
            (verified.seal, g, reply)
        }
        Err(Denied { refusal, seal }) => (seal, Generation(0), refusal.into()),
    };
    (reply.kind(), seal.request(), seal.seal(g, &reply, 0))
}

async fn heartbeats(drive: FakeDrive, address: String) {
    let mut restarted = true;
    loop {
        if !drive.state().silent {
            let _ = beat(&drive, &address, &mut restarted).await;
        }
        tokio::time::sleep(BEAT).await;
    }
}

/// The parts of a drive: a disk of 200 MB/s.
fn parts() -> DriveParts {
    let way = DiskWay { operation_ns: 100_000, bytes_per_second: 200_000_000 };
    let cost = DriveCost {
        disk: DiskCost { charge: DiskCharge::Larger, read: way, write: way, sync_ns: 1_000_000 },
        read_processor: ProcessorWay::default(),
        write_processor: ProcessorWay::default(),
        measured_ms: 1,
        points: Vec::new(),
    };
    DriveParts {
        cost: Some(cost),
        derate: 1000,
        derate_cause: String::new(),
        model: None,
        rail_bytes_per_second: 0,
        refused: String::new(),
    }
}

async fn beat(drive: &FakeDrive, address: &str, restarted: &mut bool) -> Result<(), TransportError> {
    let credentials = Credentials::of_drive(drive.cluster, drive.pin, drive.id, 1, &drive.master);
    let mut session = ControlSession::connect(&drive.manager, credentials, &Limits::default()).await?;
    let key = OwnKey::new();
    let asked = CertifyDrive { public_key: key.public_key() };
    if let ControlReply::Certificate(given) = session.call(&asked.into()).await? {
        drive.certificate.set_certified(&key, given.chain, 0).expect("it is for the key");
    }
    let mut ended = Vec::new();
    while !drive.state().silent {
        // Take all in one call: a second guard within one expression would deadlock.
        let FakeState { start, instance, log, seen, process, full, .. } = drive.told();
        let beat = Heartbeat {
            addresses: address.into(),
            host: format!("host-{}", drive.id),
            directory: "/nowhere".to_owned(),
            pid: 1,
            process,
            capacity_bytes: 1 << 40,
            used_bytes: 1,
            live_bytes: 1 << 20,
            free_bytes: if full { 0 } else { 1 << 39 },
            spare_bytes: 0,
            file_system: Default::default(),
            restarted: *restarted,
            epoch: 0,
            io: String::new(),
            scrub: Default::default(),
            start,
            instance,
            log,
            seen,
            closing: false,
            manager_ms: 0,
            stalled_ms: 0,
            reads: Latency::default(),
            commits: Latency::default(),
            counts: Default::default(),
            parts: Some(parts()),
            promises: Vec::new(),
            ended: ended.clone(),
            key: 1,
        };
        let sent = tokio::time::Instant::now();
        if let ControlReply::Heartbeat(reply) = session.call(&beat.into()).await? {
            ended.clone_from(&reply.ended);
            let mut state = drive.state();
            state.serves_until = Some(sent + Duration::from_millis(u64::from(reply.lease_ms)));
            state.replaced |= reply.admission == Admission::Replaced;
            if matches!(reply.admission, Admission::Serve | Admission::Wait) {
                (state.instance, state.seen) = (reply.instance, reply.state);
            }
            state.admission = Some(reply.admission);
            state.leases += u64::from(reply.lease_ms > 0);
            *restarted &= reply.lease_ms == 0;
        }
        tokio::time::sleep(BEAT).await;
    }
    Ok(())
}
