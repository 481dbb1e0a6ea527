//! One run: a cluster is made, clients work while things go wrong, all becomes well again, and everything
//! is checked.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use braid_client::Client;
use braid_layout::{Scheme, Shape};
use braid_transport::Transport;

use crate::cluster::Contact;
use crate::end::{all_up, check, decide, healed};
use crate::fate;
use crate::ills::Ills;
use crate::key_turner::{self, KeyTurner};
use crate::manager_disk::ManagerDisk;
use crate::model::Model;
use crate::mounts::{self, Mix};
use crate::nemesis::{Kind, Nemesis};
use crate::operator::{Operator, Relayer};
use crate::random::Random;
use crate::reserver::{self, Kept, Reserver};
use crate::site::{BOUND_MS, Site};
use crate::snapper::{self, Snapper, Taken};
use crate::trace::Trace;
use crate::workload::quotas::Quota;
use crate::workload::{self, Target, Task};
use crate::world::HostId;

/// Drives of a cluster, without the one that is added.
pub(crate) const DRIVES: usize = 6;
/// Percentage of runs with an operator.
const OPERATED: u64 = 50;
/// Percentage of runs with a file of which each client writes a part.
const RANGED: u64 = 50;
/// Percentage of runs in which files are laid out anew.
const RELAID: u64 = 40;
/// Percentage of runs in which keys are turned.
const TURNED: u64 = 30;
/// Percentage of runs in which snapshots are made.
const SNAPPED: u64 = 30;
/// Percentage of runs in which each drive has two rails, of which single ones are cut.
const RAILED: u64 = 30;
/// Percentage of runs with a quota.
const BOUNDED: u64 = 30;
/// Percentage of runs in which data rates are reserved for files.
const RESERVED: u64 = 50;
/// Percentage of runs in which disks, clocks and the manager's state suffer too.
const ILL: u64 = 50;
/// Percentage of runs in which the manager's disk fails for a while.
const MANAGER_DISK_ILL: u64 = 30;
/// Clients of a run.
const CLIENTS: usize = 3;
/// Files that are written by one client each.
const FILES: usize = 6;
/// Virtual time in which things go wrong.
pub(crate) const TROUBLE_MS: u64 = 30_000;

/// Bytes of a run's stack: the roles' code runs in one thread, and unoptimised code has large frames.
const STACK_BYTES: usize = 64 << 20;

/// The outcome of a seed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeedOutcome {
    pub seed: u64,
    /// Hash of everything that happened: equal for equal runs.
    pub hash: u64,
    /// Virtual time that passed, in milliseconds.
    pub passed_ms: u64,
    /// Number of operations that clients did.
    pub operations: u64,
    /// Number of faults of each kind.
    pub faults: BTreeMap<String, u64>,
    /// First failure, if there was one.
    pub failure: Option<String>,
    /// The last events.
    pub last: Vec<String>,
}

/// The way in which a seed is run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    /// True if events are printed as they happen.
    pub printed: bool,
    /// Mix of programs on mounts, which take the clients' place; `None`: clients.
    pub mounts: Option<Mix>,
    /// The way of clients to drives; `None`: drawn.
    pub transport: Option<Transport>,
}

impl Settings {
    /// The program's arguments for these settings, but for `printed`.
    pub fn arguments(&self) -> Vec<String> {
        let mounts = self.mounts.map(|mounts| format!("--mounts={mounts}"));
        let transport = self.transport.map(|transport| format!("--transport={transport}"));
        mounts.into_iter().chain(transport).collect()
    }

    /// The way of clients to drives in the run of a seed.
    pub(crate) fn transport(&self, seed: u64) -> Transport {
        let mut drawn = Random::new(seed ^ 0x0077_6179_7300);
        let all = [Transport::Tcp, Transport::UDP, Transport::AUTO];
        self.transport.or_else(|| drawn.one(&all)).unwrap_or_default()
    }
}

thread_local! {
    /// The first panic in a run, from any of its tasks.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs one seed, in a thread of its own, so that thread-local state begins anew. The run is the same each
/// time if no other seed ran in this process before: see [`crate::run_apart`].
pub fn run(seed: u64, settings: Settings) -> SeedOutcome {
    let running = std::thread::Builder::new().name(format!("seed {seed}")).stack_size(STACK_BYTES);
    let running = running.spawn(move || {
        fate::begin(seed);
        one(seed, settings)
    });
    running.expect("a thread").join().expect("a run gives its outcome, whatever happens")
}

/// Installs a hook that notes panics of a run, also those that a task's runtime catches.
pub fn note_panics() {
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name().is_some_and(|name| name.starts_with("seed ")) {
            PANIC.with_borrow_mut(|first| first.get_or_insert(panic.to_string()).len());
        } else {
            told(panic);
        }
    }));
}

fn one(seed: u64, settings: Settings) -> SeedOutcome {
    let trace = Trace::printing(settings.printed);
    let transport = settings.transport(seed);
    if transport != Transport::Tcp {
        trace.event(format!("clients reach drives by {transport}"));
    }
    let (failure, passed_ms, operations) = match settings.mounts {
        None => with_clients(seed, transport, &trace),
        Some(mix) => mounts::torture(seed, mix, transport, trace.clone()),
    };
    let panic = PANIC.with_borrow_mut(Option::take);
    SeedOutcome {
        seed,
        hash: trace.hash(),
        passed_ms,
        operations,
        faults: trace.counts().into_iter().map(|(kind, count)| (kind.to_owned(), count)).collect(),
        failure: panic.or(failure),
        last: trace.last(),
    }
}

/// The first panic in the run so far.
pub(crate) fn first_panic() -> Option<String> {
    PANIC.with_borrow(Clone::clone)
}

/// Runs a seed with clients. Returns the failure, if there was one; the time that passed; and the
/// operations that were done.
fn with_clients(seed: u64, transport: Transport, trace: &Trace) -> (Option<String>, u64, u64) {
    // Each is drawn apart, so that seeds without an operator and without ills are unchanged.
    let mut operator = Random::new(seed ^ 0x0042_7261_6964);
    let operator = operator.percent(OPERATED).then_some(operator);
    let mut ranged = Random::new(seed ^ 0x7261_6e67_6573);
    let ranged = ranged.percent(RANGED).then_some(ranged);
    let mut ills = Random::new(seed ^ 0x696c_6c73);
    let ills = ills.percent(ILL).then_some(ills);
    let mut relayer = Random::new(seed ^ 0x0072_656c_6179_6572);
    let relayer = relayer.percent(RELAID).then_some(relayer);
    let mut run = Run::new(Random::new(seed), operator.clone(), ranged, trace.clone());
    let mut reserver = Random::new(seed ^ 0x7265_7365_7276_6572);
    let reserver = reserver.percent(RESERVED).then_some(reserver);
    run.reserver = reserver.map(|random| (run.site.world.add_host("reserver"), random));
    let mut turner = Random::new(seed ^ 0x0074_7572_6e65_7273);
    let turner = turner.percent(TURNED).then_some(turner);
    run.turner = turner.map(|random| (run.site.world.add_host("turner"), random));
    let mut snapper = Random::new(seed ^ 0x0073_6e61_7073);
    let snapper = snapper.percent(SNAPPED).then_some(snapper);
    run.snapper = snapper.map(|random| (run.site.world.add_host("snapper"), random));
    if run.snapper.is_some() {
        snapper::place(&mut run.targets);
    }
    let mut bounded = Random::new(seed ^ 0x0071_756f_7461_7300);
    if bounded.percent(BOUNDED) {
        run.quota = Quota::draw(&mut bounded, &run.targets);
        run.watcher = Some(run.site.world.add_host("watcher"));
    }
    run.relayer = relayer.map(|random| (run.site.world.add_host("relayer"), random));
    run.ills = ills;
    run.site.cluster.set_transport(transport);
    let mut railed = Random::new(seed ^ 0x7261_696c_7300);
    run.site.cluster.rails = railed.percent(RAILED).then_some(railed);
    let mut disk = Random::new(seed ^ 0x6d64_6973_6b73);
    run.manager_disk = disk.percent(MANAGER_DISK_ILL).then(|| ManagerDisk::new(disk));
    let failure = run.go(operator).err().or_else(|| run.model.failure());
    (failure, run.site.world.now_ms(), run.operations.load(Ordering::Relaxed))
}

struct Run {
    site: Site,
    model: Model,
    random: Random,
    kind: Kind,
    operator: Option<HostId>,
    relayer: Option<(HostId, Random)>,
    reserver: Option<(HostId, Random)>,
    turner: Option<(HostId, Random)>,
    snapper: Option<(HostId, Random)>,
    quota: Quota,
    watcher: Option<HostId>,
    /// Snapshots that are there.
    snapshots: Taken,
    /// Reservations that must be there at the end.
    reservations: Kept,
    ills: Option<Random>,
    manager_disk: Option<ManagerDisk>,
    /// Time at which a drive is added.
    added_ms: Option<u64>,
    clients: Vec<HostId>,
    targets: Vec<Target>,
    stop: Arc<AtomicBool>,
    operations: Arc<AtomicU64>,
}

impl Run {
    fn new(mut random: Random, operator: Option<Random>, ranged: Option<Random>, trace: Trace) -> Run {
        let model = Model::default();
        let added = usize::from(operator.is_some());
        let judge = model.clone();
        let mut site = Site::new(DRIVES + added, &mut random, trace, move || judge.failure());
        let added_ms = operator.clone().map(|mut random| random.below(TROUBLE_MS));
        let operator = operator.map(|_| site.world.add_host("operator"));
        let clients = (0..CLIENTS).map(|index| site.world.add_host(&format!("c{index}"))).collect();
        let kind = if random.percent(30) { Kind::Damage } else { Kind::Away };
        let mut targets = targets(&model, &mut random, kind);
        if let Some(mut ranged) = ranged {
            targets.push(by_range(&model, &mut ranged, &targets));
        }
        let (stop, operations) = Default::default();
        Run {
            site,
            model,
            random,
            kind,
            operator,
            relayer: None,
            reserver: None,
            turner: None,
            snapper: None,
            quota: Quota::default(),
            watcher: None,
            snapshots: Taken::default(),
            reservations: Kept::default(),
            ills: None,
            manager_disk: None,
            added_ms,
            clients,
            targets,
            stop,
            operations,
        }
    }

    fn go(&mut self, operator: Option<Random>) -> Result<(), String> {
        let contact = self.bring_up()?;
        if let (Some(random), Some(host)) = (operator, self.operator) {
            let contact = contact.clone();
            let drives = self.drive_names();
            let trace = self.site.world.trace.clone();
            let stop = Arc::clone(&self.stop);
            let operator = Operator { contact, drives, random, trace, stop };
            self.site.world.start(host, operator.operate());
        }
        let mut others = Vec::from_iter(self.operator);
        if let Some((host, random)) = self.relayer.take() {
            // A range consists of stripes of the shape that the file was made with.
            let targets = self.targets.iter().filter(|target| !target.ranged).cloned().collect();
            let contact = contact.clone();
            let trace = self.site.world.trace.clone();
            let stop = Arc::clone(&self.stop);
            self.site.world.start(host, Relayer { contact, targets, random, trace, stop }.operate());
            others.push(host);
        }
        if let Some((host, random)) = self.reserver.take() {
            let targets = self.targets.clone();
            let contact = contact.clone();
            let trace = self.site.world.trace.clone();
            let stop = Arc::clone(&self.stop);
            let kept = Arc::clone(&self.reservations);
            let reserver = Reserver { contact, targets, random, trace, stop, kept };
            self.site.world.start(host, reserver.operate());
            others.push(host);
        }
        if let Some((host, random)) = self.turner.take() {
            let drives = if self.ills.is_some() { Vec::new() } else { self.drive_names() };
            let contact = contact.clone();
            let trace = self.site.world.trace.clone();
            let stop = Arc::clone(&self.stop);
            self.site.world.start(host, KeyTurner { contact, drives, random, trace, stop }.operate());
            others.push(host);
        }
        let is_snapped = self.snapper.is_some();
        if let Some((host, random)) = self.snapper.take() {
            let snapper = Snapper {
                contact: contact.clone(),
                targets: self.targets.clone(),
                model: self.model.clone(),
                random,
                trace: self.site.world.trace.clone(),
                stop: Arc::clone(&self.stop),
                taken: Arc::clone(&self.snapshots),
            };
            self.site.world.start(host, snapper.operate());
            others.push(host);
        }
        if let Some(host) = self.watcher {
            let watch = self.quota.clone().watch(contact.clone(), self.model.clone(), Arc::clone(&self.stop));
            self.site.world.start(host, watch);
            others.push(host);
        }
        for index in 0..CLIENTS {
            self.start_client(index, &contact);
        }
        let damaged = self.trouble(&contact)?;
        self.site.world.trace.event("no more trouble".to_owned());
        self.stop.store(true, Ordering::Relaxed);
        let clients = self.clients.clone();
        let mut left = BOUND_MS;
        while !self.has_stopped() {
            left = self.site.step("the clients to stop", left)?;
        }
        for host in clients.into_iter().chain(others) {
            self.site.world.kill(host);
        }
        self.add_drive(u64::MAX);
        self.heal(&contact, damaged)?;
        if is_snapped { self.end_snapshots(&contact) } else { Ok(()) }
    }

    /// Checks what the snapshots that are left show, and that nothing is left once they are removed.
    fn end_snapshots(&mut self, contact: &Contact) -> Result<(), String> {
        let contact = contact.clone();
        let targets = self.targets.clone();
        let model = self.model.clone();
        let taken = Arc::clone(&self.snapshots);
        let state = self.site.cluster.present_state();
        let trace = self.site.world.trace.clone();
        self.site.administer("the snapshots to go", async move {
            let client = Client::connect(workload::config(&contact)).await.map_err(|e| e.to_string())?;
            snapper::end(&client, &targets, &model, &taken, &state, &trace).await
        })?
    }

    /// Starts the additional drive, if its time has come.
    fn add_drive(&mut self, since_ms: u64) {
        if self.added_ms.is_some_and(|at_ms| at_ms <= since_ms) {
            self.added_ms = None;
            self.site.world.trace.event(format!("a drive is added: d{DRIVES}"));
            self.site.world.trace.count("drives added");
            self.site.cluster.start_drive(&mut self.site.world, DRIVES);
        }
    }

    fn bring_up(&mut self) -> Result<Contact, String> {
        let is_snapped = self.snapper.is_some();
        let quota = self.quota.clone();
        let made = move |client: Client| async move {
            client.volume_create("main", None, 0).await?;
            quota.set(&client).await?;
            if is_snapped { snapper::make_directory(&client).await } else { Ok(()) }
        };
        let contact = self.site.bring_up(DRIVES, made)?;
        self.site.world.trace.event("the cluster is up".to_owned());
        Ok(contact)
    }

    fn start_client(&mut self, index: usize, contact: &Contact) {
        let is_own = |target: &Target| target.record.is_some() || target.number % CLIENTS == index;
        let (own, others) = self.targets.iter().cloned().partition(is_own);
        let task = Task {
            who: format!("c{index}"),
            index: (index as u64, CLIENTS as u64),
            own,
            others,
            model: self.model.clone(),
            quota: self.quota.clone(),
            trace: self.site.world.trace.clone(),
            stop: Arc::clone(&self.stop),
            done: Arc::clone(&self.operations),
        };
        let work = workload::work(task, contact.clone(), self.random.fork());
        self.site.world.start(self.clients[index], work);
    }

    /// Lets things go wrong for a while. Returns the drive on whose disk damage may be found.
    fn trouble(&mut self, contact: &Contact) -> Result<Option<String>, String> {
        let moves = self.operator.is_some();
        let mut nemesis = Nemesis::new(self.random.fork(), DRIVES, self.kind, moves);
        let mut ills = self.ills.take().map(|random| Ills::new(random, &nemesis, moves));
        let mut left = TROUBLE_MS;
        let clients = self.clients.clone();
        loop {
            if let Some(client) = nemesis.act(&mut self.site.world, &mut self.site.cluster, &clients) {
                self.site.world.kill(client);
                let index = clients.iter().position(|&other| other == client).expect("one of them");
                self.start_client(index, contact);
            }
            if let Some(ills) = &mut ills {
                ills.act(&mut self.site.world, &mut self.site.cluster, &clients, &self.model);
            }
            if let Some(disk) = &mut self.manager_disk {
                disk.act(&self.site.world, &self.site.cluster);
            }
            let before = self.site.world.now_ms();
            self.add_drive(TROUBLE_MS - left);
            self.site.step("trouble", BOUND_MS)?;
            match left.checked_sub(self.site.world.now_ms() - before) {
                Some(less) => left = less,
                None => break,
            }
        }
        if let Some(ills) = &mut ills {
            ills.end(&mut self.site.world, &mut self.site.cluster);
        }
        if let Some(disk) = &mut self.manager_disk {
            disk.end(&self.site.world, &self.site.cluster);
        }
        nemesis.end(&mut self.site.world);
        self.site.cluster.recall(&self.site.world);
        Ok(nemesis.damaged().map(|index| self.site.cluster.drives[index].name.clone()))
    }

    fn has_stopped(&self) -> bool {
        let stopped = |name: &str| {
            let told = format!("{name} has stopped");
            self.site.world.trace.last().iter().any(|line| line.ends_with(&told))
        };
        self.clients.iter().all(|&client| stopped(self.site.world.name(client)))
    }

    /// Waits until all drives are up and healed, then checks and reads every file.
    fn heal(&mut self, contact: &Contact, damaged: Option<String>) -> Result<(), String> {
        self.site.world.net.calm_datagrams();
        let contact = contact.clone();
        let names = self.drive_names();
        let targets = self.targets.clone();
        let model = self.model.clone();
        let trace = self.site.world.trace.clone();
        let reservations = Arc::clone(&self.reservations);
        let quota = self.quota.clone();
        let snapshots = Arc::clone(&self.snapshots);
        let counts = trace.counts();
        let is_older = counts
            .into_iter()
            .any(|(kind, _)| kind.starts_with("managers restored") || kind.starts_with("managers put"));
        self.site.administer("the cluster to heal", async move {
            let client = Client::connect(workload::config(&contact)).await.map_err(|e| e.to_string())?;
            all_up(&client).await;
            trace.event("all drives are up".to_owned());
            if !model.knows_past() {
                snapper::remove_again(&client, &snapshots, &trace).await?;
            }
            for target in &targets {
                decide(&client, target, &model).await?;
            }
            healed(&client, &names, &trace).await?;
            key_turner::check(&client).await?;
            reserver::check(&client, &reservations, is_older).await?;
            for target in &targets {
                check(&client, target, &model, damaged.as_deref()).await?;
            }
            quota.check(&client, &targets, &model).await
        })?
    }

    fn drive_names(&self) -> Vec<String> {
        self.site.cluster.drives.iter().map(|drive| drive.name.clone()).collect()
    }
}

/// The files: some for each client, of several schemes, of a few stripes each; and one that all clients
/// write.
fn targets(model: &Model, random: &mut Random, kind: Kind) -> Vec<Target> {
    let two = [(Scheme::Rs, 2, 2), (Scheme::Raid1, 1, 2), (Scheme::Rs, 3, 2)];
    let all = [
        (Scheme::Raid5, 2, 1),
        (Scheme::Rs, 2, 2),
        (Scheme::Raid1, 1, 1),
        (Scheme::Raid5, 4, 1),
        (Scheme::Rs, 3, 2),
        (Scheme::Raid1, 1, 2),
    ];
    let mut shapes = if kind == Kind::Damage { [two, two].concat() } else { all.to_vec() };
    assert_eq!(shapes.len(), FILES, "and the one that all write");
    shapes.push(random.one(&shapes).expect("some"));
    let target = |(number, (scheme, k, m)): (usize, (Scheme, u8, u8))| {
        let unit = 4096 << random.below(2);
        let shape = Shape::new(scheme, k, m, unit).expect("a good shape");
        let stripe = u64::from(unit) * u64::from(k);
        let length = stripe * (2 + random.below(5)) + random.below(stripe);
        let path = format!("braid://main/f{number}");
        let name = path.parse().expect("a good name");
        let record = (number == FILES).then(|| 1 + random.below(2 * u64::from(unit)).max(unit.into()) / 2);
        // If several clients write a file, a write is all or none within a unit.
        let whole = if record.is_some() { u64::from(unit) } else { stripe };
        assert_eq!(model.add(&path, length, whole), number, "in order");
        Target { number, name, shape, length, record, ranged: false }
    };
    shapes.into_iter().enumerate().map(target).collect()
}

/// The file of which each client writes a part.
fn by_range(model: &Model, random: &mut Random, others: &[Target]) -> Target {
    let shapes: Vec<Shape> = others.iter().map(|target| target.shape).collect();
    let shape = random.one(&shapes).expect("some");
    let unit = u64::from(shape.unit_bytes());
    let clients = CLIENTS as u64;
    let number = others.len();
    let stripe = unit * u64::from(shape.k());
    let record = stripe * (1 + random.below(3));
    let length = record * clients - random.below(stripe);
    let path = format!("braid://main/f{number}");
    let name = path.parse().expect("a good name");
    // If a client comes that wants more, the clients share the file.
    assert_eq!(model.add(&path, length, unit), number, "in order");
    Target { number, name, shape, length, record: Some(record), ranged: true }
}
