//! One run with mounts, from begin to end.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use braid_client::{Client, OpenOptions};
use braid_fuse::driven::Driven;
use braid_layout::{Scheme, Shape};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Mix;
use super::judge::{FILE_MAX, FileNo, Found, Judge, Life, Reader};
use super::kernel::{Caches, Kernel};
use super::locked::{LOCKED, RECORD, RECORDS};
use super::programs::{Program, all_names};
use crate::cluster::{Cluster, Contact};
use crate::disk::End;
use crate::end::{all_up, healed};
use crate::nemesis::{Kind, Nemesis};
use crate::random::Random;
use crate::run::{BOUND_MS, DRIVES, TROUBLE_MS, first_panic};
use crate::trace::Trace;
use crate::workload;
use crate::world::{HostId, World};

/// Mounts.
const MOUNTS: usize = 3;
/// Programs on each.
const PROGRAMS: usize = 2;
/// Of a hundred mounts that die, those with which a drive dies.
const WITH_A_DRIVE: u64 = 40;
/// A drive that dies with a mount is away for at most this long.
const DRIVE_AWAY_MS: u64 = 20_000;
/// A host is suspended for at most this long, and so long after the one before.
const SUSPENDED_MS: u64 = 14_000;

struct Stage {
    world: World,
    cluster: Cluster,
    judge: Judge,
    random: Random,
    mix: Mix,
    admin: HostId,
    mounts: Vec<(HostId, u64)>,
    /// The file of which records are locked.
    records: FileNo,
    asleep: Option<(HostId, u64)>,
    next_sleep_ms: u64,
    stop: Arc<AtomicBool>,
    stopped: Arc<Mutex<BTreeSet<u64>>>,
    operations: Arc<AtomicU64>,
}

/// Runs a seed. Gives what went wrong, if anything did; the time that passed; and the calls that were done.
pub(crate) fn torture(seed: u64, mix: Mix, trace: Trace) -> (Option<String>, u64, u64) {
    let mut stage = Stage::new(Random::new(seed ^ 0x6d6f_756e_7473), mix, trace);
    let failure = stage.go().err().or_else(|| stage.judge.failure());
    (failure, stage.world.now_ms(), stage.operations.load(Ordering::Relaxed))
}

impl Stage {
    fn new(mut random: Random, mix: Mix, trace: Trace) -> Stage {
        let mut world = World::new(random.fork(), trace);
        world.stand_still_in_suspend();
        let cluster = Cluster::new(&mut world, DRIVES, &mut random);
        let admin = world.add_host("admin");
        let mounts = (0..MOUNTS).map(|index| (world.add_host(&format!("m{index}")), 0)).collect();
        let (stop, stopped, operations, asleep) = Default::default();
        let judge = Judge::new(mix.slack_ms(), mix.sizes);
        let records = records(&judge);
        Stage {
            world,
            cluster,
            judge,
            random,
            mix,
            admin,
            mounts,
            records,
            asleep,
            next_sleep_ms: 0,
            stop,
            stopped,
            operations,
        }
    }

    fn go(&mut self) -> Result<(), String> {
        let contact = self.bring_up()?;
        for index in 0..MOUNTS {
            self.start_mount(index, &contact);
        }
        self.trouble(&contact)?;
        self.world.trace.event("no more trouble".to_owned());
        self.stop.store(true, Ordering::Relaxed);
        let mut left = BOUND_MS;
        while self.stopped.lock().unwrap_or_else(PoisonError::into_inner).len() < MOUNTS * PROGRAMS {
            left = self.step("the programs to stop", left)?;
        }
        for index in 0..MOUNTS {
            self.world.kill(self.mounts[index].0);
        }
        self.check(&contact)
    }

    /// One step of the world; an error when the time is up or something was wrong.
    fn step(&mut self, what: &str, left_ms: u64) -> Result<u64, String> {
        let before = self.world.now_ms();
        self.world.step();
        self.cluster.tend(&mut self.world);
        if let Some(wrong) = first_panic().or_else(|| self.judge.failure()) {
            return Err(wrong);
        }
        left_ms
            .checked_sub(self.world.now_ms() - before)
            .ok_or_else(|| format!("waited {} s in vain for {what}", BOUND_MS / 1000))
    }

    /// Runs a task on the administrator's host to its end.
    fn administer<T: Send + 'static>(
        &mut self,
        what: &str,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let slot = self.world.spawn(self.admin, task);
        let mut left = BOUND_MS;
        loop {
            if let Some(done) = slot.take() {
                return Ok(done);
            }
            left = self.step(what, left)?;
        }
    }

    fn bring_up(&mut self) -> Result<Contact, String> {
        self.cluster.start_manager(&mut self.world);
        let mut left = BOUND_MS;
        let contact = loop {
            if let Some(contact) = self.cluster.contact() {
                break contact;
            }
            left = self.step("the manager", left)?;
        };
        for index in 0..DRIVES {
            self.cluster.start_drive(&mut self.world, index);
        }
        self.world.start(self.admin, std::future::pending());
        let kinds = [(Scheme::Raid5, 2, 1), (Scheme::Rs, 2, 2), (Scheme::Raid1, 1, 1), (Scheme::Rs, 4, 2)];
        let (scheme, k, m) = self.random.one(&kinds).expect("some");
        let shape = Shape::new(scheme, k, m, 4096 << self.random.below(2)).expect("a good shape");
        let reached = contact.clone();
        let made = self.administer("a volume and all drives", async move {
            let client = Client::connect(workload::config(&reached)).await.map_err(|e| e.to_string())?;
            all_up(&client).await;
            client.volume_create("main", Some(shape), 0).await.map_err(|error| error.to_string())?;
            make_records(&client).await.map_err(|error| error.to_string())
        })?;
        made?;
        self.world.trace.event(format!("the cluster is up: {shape}"));
        Ok(contact)
    }

    /// A mount begins, with its programs.
    fn start_mount(&mut self, mount: usize, contact: &Contact) {
        let (host, life) = &mut self.mounts[mount];
        *life += 1;
        let (host, life) = (*host, Life { mount, life: *life });
        let (contact, judge, mix, records) = (contact.clone(), self.judge.clone(), self.mix, self.records);
        let (trace, stop, done) =
            (self.world.trace.clone(), Arc::clone(&self.stop), Arc::clone(&self.operations));
        let stopped = Arc::clone(&self.stopped);
        let mut random = self.random.fork();
        self.world.start(host, async move {
            let kernel = mounted(&contact).await;
            trace.event(format!("m{mount} is mounted"));
            let mut programs = JoinSet::new();
            for number in 0..PROGRAMS {
                let index = (mount * PROGRAMS + number) as u64;
                let program = Program {
                    who: format!("m{mount}.{number}"),
                    index: (index, (MOUNTS * PROGRAMS) as u64),
                    life,
                    kernel: kernel.clone(),
                    judge: judge.clone(),
                    mix,
                    random: random.fork(),
                    trace: trace.clone(),
                    stop: Arc::clone(&stop),
                    done: Arc::clone(&done),
                    open: Vec::new(),
                    records,
                    locked: None,
                };
                let stopped = Arc::clone(&stopped);
                programs.spawn(async move {
                    program.work().await;
                    stopped.lock().unwrap_or_else(PoisonError::into_inner).insert(index);
                });
            }
            while programs.join_next().await.is_some() {}
            // What was closed is given back behind the programs.
            std::future::pending::<()>().await;
        });
    }

    fn trouble(&mut self, contact: &Contact) -> Result<(), String> {
        let mut nemesis = Nemesis::new(self.random.fork(), DRIVES, Kind::Away, false);
        let hosts: Vec<HostId> = self.mounts.iter().map(|(host, _)| *host).collect();
        let until_ms = self.world.now_ms() + TROUBLE_MS;
        while self.world.now_ms() < until_ms {
            if let Some(host) = nemesis.act(&mut self.world, &mut self.cluster, &hosts) {
                let index = hosts.iter().position(|&other| other == host).expect("one of them");
                self.crash(index, contact);
            }
            if self.mix.suspends {
                self.suspend_some(&hosts);
            }
            self.step("trouble", BOUND_MS)?;
        }
        self.wake(u64::MAX);
        nemesis.end(&mut self.world);
        self.cluster.recall(&self.world);
        Ok(())
    }

    /// A mount dies with its programs, and perhaps a drive with it; another begins.
    fn crash(&mut self, mount: usize, contact: &Contact) {
        let (host, life) = self.mounts[mount];
        self.world.kill(host);
        self.judge.died(Life { mount, life });
        if self.random.percent(WITH_A_DRIVE) {
            let drive = usize::try_from(self.random.below(DRIVES as u64)).unwrap_or(0);
            if self.cluster.is_up(&self.world, drive) {
                let away_ms = self.random.below(DRIVE_AWAY_MS);
                self.world.trace.event(format!("d{drive} dies with it, for {away_ms} ms"));
                self.world.trace.count("drives that died with a mount");
                self.cluster.crash_drive(&mut self.world, drive, End::PowerCut, away_ms);
            }
        }
        self.start_mount(mount, contact);
    }

    fn suspend_some(&mut self, hosts: &[HostId]) {
        let now_ms = self.world.now_ms();
        self.wake(now_ms);
        if self.asleep.is_some() || self.next_sleep_ms > now_ms {
            return;
        }
        self.next_sleep_ms = now_ms + self.random.below(SUSPENDED_MS);
        let host = self.random.one(hosts).expect("some");
        if self.world.is_running(host) && !self.world.is_paused(host) {
            let time_ms = 200 + self.random.below(SUSPENDED_MS);
            self.world.trace.event(format!("{} is suspended for {time_ms} ms", self.world.name(host)));
            self.world.trace.count("mounts suspended");
            self.world.suspend(host);
            self.asleep = Some((host, now_ms + time_ms));
        }
    }

    /// What has slept until now wakes.
    fn wake(&mut self, now_ms: u64) {
        if let Some((host, until_ms)) = self.asleep
            && until_ms <= now_ms
        {
            self.asleep = None;
            if self.world.is_paused(host) {
                self.world.resume(host);
                self.world.trace.event(format!("{} wakes", self.world.name(host)));
            }
        }
    }

    /// All is well again; every name is what it must be, and has the bytes that it must have.
    fn check(&mut self, contact: &Contact) -> Result<(), String> {
        let (contact, judge, trace) = (contact.clone(), self.judge.clone(), self.world.trace.clone());
        let drives = self.cluster.drives.iter().map(|drive| drive.name.clone()).collect::<Vec<_>>();
        self.administer("the cluster to heal", async move {
            let client = Client::connect(workload::config(&contact)).await.map_err(|e| e.to_string())?;
            all_up(&client).await;
            healed(&client, &drives, &trace).await?;
            let names = all_names((MOUNTS * PROGRAMS) as u64);
            for name in names.into_iter().chain([LOCKED.to_owned()]) {
                check(&client, &name, &judge).await.map_err(|why| format!("{name}: {why}"))?;
            }
            Ok(())
        })?
    }
}

async fn mounted(contact: &Contact) -> Kernel {
    loop {
        let caches = Arc::new(Caches::default());
        if let Ok(client) = Client::connect(workload::config(contact)).await
            && let Ok(mount) = Driven::new(client, "main", Arc::clone(&caches) as _).await
        {
            return Kernel::new(caches, mount);
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// The file of which records are locked, as the judge knows it.
fn records(judge: &Judge) -> FileNo {
    let (file, by) = (judge.new_file(), Life { mount: MOUNTS, life: 0 });
    let id = judge.begin_cut(file, RECORDS * RECORD, by);
    judge.end(file, id, true);
    judge.synced(file, judge.now(), by, true);
    judge.is_sure(LOCKED, Some(file));
    file
}

async fn make_records(client: &Client) -> braid_client::Result<()> {
    let name = format!("braid://main/{LOCKED}").parse().expect("a good name");
    let file = client.open(&name, &OpenOptions::new().write(true).create_new(true)).await?;
    file.set_len(RECORDS * RECORD).await?;
    file.close().await
}

async fn check(client: &Client, name: &str, judge: &Judge) -> Result<(), String> {
    let who = "the administrator, at the end,";
    let path = format!("braid://main/{name}").parse().map_err(|_| "no name".to_owned())?;
    let began = judge.now();
    let row = match client.stat(&path).await {
        Ok(row) => row,
        Err(error) if error.kind() == braid_client::Kind::NotFound => {
            judge.looked(name, began, Found::Nothing, who);
            return Ok(());
        }
        Err(error) => return Err(error.to_string()),
    };
    let found = judge.looked(name, began, Found::Number(row.file.0), who);
    let Some(file) = found else { return Ok(()) };
    // What its last writer left is decided on.
    let open = client.open(&path, &OpenOptions::new().read(true).write(true)).await;
    let open = open.map_err(|error| error.to_string())?;
    let reader = Reader { life: None, opened: judge.now() };
    judge.size(file, open.size(), (reader, reader.opened, who));
    let mut bytes = vec![0; usize::try_from(FILE_MAX).unwrap_or(0)];
    let count = open.read_at(&mut bytes, 0).await.map_err(|error| error.to_string())?;
    judge.read(file, 0..FILE_MAX, &bytes[..count], (reader, reader.opened, who));
    open.close().await.map_err(|error| error.to_string())?;
    let report = client.check(&path, |_| {}).await.map_err(|error| error.to_string())?;
    if report.is_clean() {
        Ok(())
    } else {
        Err(format!("it is not whole: {:?}, {:?}", report.findings, report.unchecked))
    }
}
