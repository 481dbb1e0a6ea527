//! The cluster: one manager and some drives, each on a host of its own, and the code that starts them
//! again.

use std::sync::Arc;
use std::time::Duration;

use braid_drive::Ready;
use braid_manager::Config;
use braid_manager::restore::backup;
use braid_manager::sessions::serve;
use braid_manager::sessions::session_slots::SessionSlots;
use braid_manager::start;
use braid_manager::sweep;
use braid_meta::records::db::Db;
use braid_meta::records::memory::{Disk, MemoryKv};
use braid_meta::records::schema::{DriveRecord, key, table};
use braid_transport::{Limits, Listener, Policy, Transport};
use braid_wire::token::Token;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::disk::{DriveDisk, End, Mounted};
use crate::random::Random;
use crate::world::{HostId, Slot, World};

/// Duration of a drive's heartbeat lease.
pub(crate) const LEASE_MS: u32 = 2000;
/// Duration of a client's lease.
pub(crate) const CLIENT_LEASE_MS: u32 = 3000;
/// Directory into which the manager writes the results of a comparison, the only data that it puts on a
/// real disk.
const MANAGER_DIR: &str = "/tmp/braid-torture";
/// Of so many drives one does not listen for datagrams where clients try both ways.
const MUTE_EACH: usize = 3;
/// Time after which a process that has ended is started again.
const AWAY_MS: u64 = 500;

/// The address and the tokens of the manager, for clients and drives.
#[derive(Debug, Clone)]
pub(crate) struct Contact {
    pub(crate) address: String,
    pub(crate) client_token: Token,
    pub(crate) join_token: Token,
    pub(crate) transport: Transport,
}

/// The manager and the drives.
pub(crate) struct Cluster {
    pub(crate) manager: HostId,
    pub(crate) drives: Vec<DriveHost>,
    state: MemoryKv,
    contact: Slot<Contact>,
    known: Option<Contact>,
    /// Reason for which the manager's process ended by itself.
    manager_ended: Slot<String>,
    /// Time at which the manager is to be started again.
    manager_back_ms: Option<u64>,
    /// True if the manager's state is older than the one that drives have seen. They know that in memory
    /// only, so the power is not cut everywhere: the manager must be able to find it out.
    pub(crate) is_older: bool,
    /// A drive whose disk lies. The drive and the manager are left alone, so that the lie can be found out.
    pub(crate) guarded: Option<HostId>,
    /// Draws the rails that are cut, if each drive has two.
    pub(crate) rails: Option<Random>,
    /// The way of clients to drives.
    transport: Transport,
}

/// Ports of a drive's rails; most drives have the first alone.
const RAIL_PORTS: [u16; 2] = [7000, 7001];

/// A host with a drive.
pub(crate) struct DriveHost {
    pub(crate) host: HostId,
    pub(crate) name: String,
    pub(crate) disk: Arc<DriveDisk>,
    ready: Slot<Ready>,
    ended: Slot<String>,
    /// Time at which the drive is to be started again.
    back_ms: Option<u64>,
}

impl Cluster {
    /// Adds hosts for a manager and this many drives; nothing runs yet.
    pub(crate) fn new(world: &mut World, drives: usize, random: &mut Random) -> Cluster {
        let manager = world.add_host("manager");
        let drive = |index: usize| {
            let name = format!("d{index}");
            let host = world.add_host(&name);
            let disk = DriveDisk::new(world.machine(host), world.net.clone(), random.fork());
            DriveHost { host, name, disk, ready: Slot::default(), ended: Slot::default(), back_ms: None }
        };
        let drives = (0..drives).map(drive).collect();
        Cluster {
            manager,
            drives,
            state: MemoryKv::new(),
            contact: Slot::default(),
            known: None,
            manager_ended: Slot::default(),
            manager_back_ms: None,
            is_older: false,
            guarded: None,
            rails: None,
            transport: Transport::Tcp,
        }
    }

    /// Sets the way of clients to drives, before any is started. A drive listens for datagrams if clients may
    /// come so; if they try both ways, some drives do not.
    pub(crate) fn set_transport(&mut self, transport: Transport) {
        self.transport = transport;
    }

    fn policy(&self, index: usize) -> Option<Policy> {
        match self.transport {
            Transport::Tcp => None,
            Transport::Udp(policy) => Some(policy),
            Transport::Auto(policy) => (!index.is_multiple_of(MUTE_EACH)).then_some(policy),
        }
    }

    /// Cuts one rail of a drive, chosen at random, if drives have two. Returns true if one was cut.
    pub(crate) fn sever_rail(&mut self, world: &World) -> bool {
        let Some(random) = &mut self.rails else { return false };
        let Some(drive) = random.one(&self.drives.iter().map(|drive| drive.host).collect::<Vec<_>>()) else {
            return false;
        };
        let Some(port) = random.one(&RAIL_PORTS) else { return false };
        world.net.sever((world.ip(drive), port).into());
        world.trace.event(format!("rail {port} of {} is cut", world.name(drive)));
        world.trace.count("rails cut");
        true
    }

    /// Returns true if nothing may happen to this host now.
    pub(crate) fn spares(&self, host: HostId) -> bool {
        self.guarded.is_some_and(|drive| host == drive || host == self.manager)
    }

    /// Number of the last record of the drive's log that the manager surely knows of by heartbeats; 0:
    /// none.
    pub(crate) fn told(&self, index: usize) -> u64 {
        self.known_of(index).0
    }

    /// Number of the last record of the drive's log that the manager knows of by receipts; 0: none.
    pub(crate) fn receipt(&self, index: usize) -> u64 {
        self.known_of(index).1
    }

    fn known_of(&self, index: usize) -> (u64, u64) {
        let state = Db::new(Arc::new(self.state.clone()));
        let name = &self.drives[index].name;
        let known = state.read(|tx| {
            let records = tx.records::<DriveRecord>(&key::all(table::DRIVE), usize::MAX)?;
            let mut records = records.into_iter().map(|(_, record)| record);
            let Some(record) = records.find(|record| record.name == *name && !record.behind) else {
                return Ok((0, 0));
            };
            let receipt = tx.record::<u64>(&key::receipt(record.drive))?;
            Ok((record.log, receipt.unwrap_or(0)))
        });
        known.unwrap_or_default()
    }

    /// Sets the fate of the manager's commits until it is started again.
    pub(crate) fn set_manager_disk(&self, disk: Disk) {
        self.state.set_disk(disk);
    }

    /// The manager's state, as it is at any time until the manager is started again.
    pub(crate) fn present_state(&self) -> MemoryKv {
        self.state.clone()
    }

    /// A copy of the manager's present state.
    pub(crate) fn manager_state(&self) -> MemoryKv {
        self.state.restarted()
    }

    /// Ends the manager's process for `away_ms`. When it returns it finds this state; `marked`: as a state
    /// that was restored.
    pub(crate) fn put_manager_back(
        &mut self,
        world: &mut World,
        state: &MemoryKv,
        marked: bool,
        away_ms: u64,
    ) {
        self.crash_manager(world, away_ms);
        self.state = state.restarted();
        self.is_older = !marked;
        if marked {
            backup::mark_as_restored(&self.state).expect("memory takes it");
        }
    }

    /// The manager's address and tokens, once it has served.
    pub(crate) fn contact(&mut self) -> Option<Contact> {
        if let Some(contact) = self.contact.take() {
            self.known = Some(Contact { transport: self.transport, ..contact });
        }
        self.known.clone()
    }

    pub(crate) fn start_manager(&mut self, world: &mut World) {
        (self.manager_back_ms, self.manager_ended) = (None, Slot::default());
        self.state = self.state.restarted();
        let kv = self.state.clone();
        let contact = self.contact.clone();
        let ended = self.manager_ended.clone();
        world.start(self.manager, async move {
            if let Err(error) = manage(kv, contact).await {
                ended.put(error);
            }
        });
    }

    /// Ends the manager's process for `away_ms`.
    pub(crate) fn crash_manager(&mut self, world: &mut World, away_ms: u64) {
        world.kill(self.manager);
        self.manager_back_ms = Some(world.now_ms() + away_ms);
    }

    pub(crate) fn start_drive(&mut self, world: &mut World, index: usize) {
        let contact = self.contact().expect("the manager has served");
        let udp = self.policy(index);
        let drive = &mut self.drives[index];
        (drive.back_ms, drive.ready, drive.ended) = (None, Slot::default(), Slot::default());
        let mut config = braid_drive::Config::new(format!("/drive/{}", drive.name), "0.0.0.0:7000");
        config.manager = Some(contact.address);
        config.token = Some(contact.join_token);
        config.name = Some(drive.name.clone());
        config.host = Some(format!("host-{}", drive.name));
        let ports = if self.rails.is_some() { &RAIL_PORTS[..] } else { &RAIL_PORTS[..1] };
        config.listen = ports.iter().map(|port| format!("0.0.0.0:{port}")).collect();
        config.advertise = ports.iter().map(|port| format!("{}:{port}", world.ip(drive.host))).collect();
        config.settings.udp = udp;
        config.settings.segment_bytes = Some(1 << 20);
        config.settings.medium = Some(Arc::new(Mounted(Arc::clone(&drive.disk))));
        let (tell, told) = oneshot::channel();
        let ready = drive.ready.clone();
        let ended = drive.ended.clone();
        world.start(drive.host, async move {
            let telling = async move {
                if let Ok(value) = told.await {
                    ready.put(value);
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                done = braid_heal::run(config, tell, std::future::pending()) => {
                    ended.put(done.map_or_else(|error| error.to_string(), |()| "stopped".to_owned()));
                }
                () = telling => {}
            }
        });
    }

    /// Ends the drive's process for `away_ms`.
    pub(crate) fn crash_drive(&mut self, world: &mut World, index: usize, end: End, away_ms: u64) {
        let drive = &mut self.drives[index];
        if end == End::PowerCut {
            world.net.set_down(world.ip(drive.host));
        }
        drive.disk = drive.disk.after(end);
        world.kill(drive.host);
        drive.back_ms = Some(world.now_ms() + away_ms);
    }

    /// Ends the drive's process for `away_ms`; when it returns it finds this disk.
    pub(crate) fn exchange_disk(
        &mut self,
        world: &mut World,
        index: usize,
        disk: Arc<DriveDisk>,
        away_ms: u64,
    ) {
        self.crash_drive(world, index, End::Killed, away_ms);
        self.drives[index].disk = disk;
    }

    /// Notices processes that have ended, and starts those that are due.
    pub(crate) fn tend(&mut self, world: &mut World) {
        if let Some(why) = self.manager_ended.take() {
            world.trace.event(format!("the manager ended: {why}"));
            self.crash_manager(world, AWAY_MS);
        } else if self.manager_back_ms.is_some_and(|at_ms| at_ms <= world.now_ms()) {
            world.trace.event("the manager starts".to_owned());
            self.start_manager(world);
        }
        for index in 0..self.drives.len() {
            let drive = &self.drives[index];
            if world.is_running(drive.host) && drive.disk.is_cut() {
                world.trace.event(format!("{}'s power is cut in the middle of a commit", drive.name));
                self.crash_drive(world, index, End::PowerCut, AWAY_MS);
            } else if let Some(why) = drive.ended.take() {
                world.trace.event(format!("{} ended: {why}", drive.name));
                self.crash_drive(world, index, End::Killed, AWAY_MS);
            } else if drive.back_ms.is_some_and(|at_ms| at_ms <= world.now_ms()) {
                world.trace.event(format!("{} starts", drive.name));
                self.start_drive(world, index);
            }
        }
    }

    /// Starts everything that is away at once, and cancels power cuts to come.
    pub(crate) fn recall(&mut self, world: &World) {
        let now_ms = world.now_ms();
        self.manager_back_ms = self.manager_back_ms.map(|_| now_ms);
        for drive in &mut self.drives {
            drive.disk.cut_never();
            drive.back_ms = drive.back_ms.map(|_| now_ms);
        }
    }

    /// Returns true if the drive's process runs or is paused.
    pub(crate) fn is_up(&self, world: &World, index: usize) -> bool {
        world.is_running(self.drives[index].host)
    }
}

/// Runs a manager until its loops end, which they should not.
async fn manage(kv: MemoryKv, contact: Slot<Contact>) -> Result<(), String> {
    std::fs::create_dir_all(MANAGER_DIR).map_err(|error| format!("{MANAGER_DIR}: {error}"))?;
    let mut config = Config::new(MANAGER_DIR, "0.0.0.0:7000");
    (config.lease_ms, config.client_lease_ms) = (LEASE_MS, CLIENT_LEASE_MS);
    // A restore adds minutes to the time, and a state that was put back does not know of columns moved
    // since.
    config.lost_after_ms = 0;
    let slots = SessionSlots::of(64, 64);
    let listener = Listener::bind_with(&config.listen, Limits::default(), slots.capacity()).await;
    let listener = listener.map_err(|error| error.to_string())?;
    let core = start::start(Arc::new(kv), &config, slots).await.map_err(|error| error.to_string())?;
    let told = start::ready(&core, &listener);
    contact.put(Contact {
        address: told.address,
        client_token: told.client_token,
        join_token: told.join_token,
        transport: Transport::Tcp,
    });
    let mut tasks = JoinSet::new();
    tasks.spawn(serve::serve(Arc::clone(&core), listener));
    tasks.spawn(sweep::sweep(core));
    while tasks.join_next().await.is_some() {}
    // Both loops should run for ever.
    tokio::time::sleep(Duration::from_secs(1)).await;
    Err("its loops ended".to_owned())
}
