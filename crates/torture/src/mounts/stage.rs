//! One run with mounts, from beginning to end.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use braid_client::Client;
use braid_client::Name;
use braid_client::OpenOptions;
use braid_fuse::kernel_side::driven::Driven;
use braid_layout::{Scheme, Shape};
use braid_transport::Transport;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Mix;
use super::judge::{At, FILE_MAX, FileNo, Found, Judge, Life, Reader};
use super::kernel::{Caches, Kernel};
use super::locked::{LOCKED, RECORD, RECORDS};
use super::programs::{Program, all_names};
use crate::cluster::Contact;
use crate::disk::End;
use crate::end::{all_up, healed};
use crate::nemesis::{Kind, Nemesis};
use crate::random::Random;
use crate::run::{DRIVES, TROUBLE_MS};
use crate::site::{BOUND_MS, Site};
use crate::trace::Trace;
use crate::workload;
use crate::world::HostId;

const MOUNTS: usize = 3;
/// Programs on each mount.
const PROGRAMS: usize = 2;
/// Percentage of dying mounts with which a drive dies.
const WITH_A_DRIVE: u64 = 40;
/// Longest time for which a drive that dies with a mount is away.
const DRIVE_AWAY_MS: u64 = 20_000;
/// Longest time for which a host is suspended, and longest time from one suspension to the next.
const SUSPENDED_MS: u64 = 14_000;
/// Percentage of runs in which the volume has a quota; `QUOTA_MAX` is the most bytes that it leaves for
/// files.
const WITH_QUOTA: u64 = 25;
const QUOTA_MAX: u64 = 2 << 20;
/// Number of tries of a request at the end, a second apart.
const TRIES: u32 = 60;
/// Percentage of runs in which the manager is put back at the end.
const PUT_BACK: u64 = 25;

struct Stage {
    site: Site,
    judge: Judge,
    random: Random,
    mix: Mix,
    /// Quota of the volume; 0: none.
    quota_bytes: u64,
    /// Draws for the restore at the end; `None`: the manager is not put back.
    restores: Option<Random>,
    mounts: Vec<(HostId, u64)>,
    /// The file whose records are locked.
    records: FileNo,
    asleep: Option<(HostId, u64)>,
    next_sleep_ms: u64,
    stop: Arc<AtomicBool>,
    stopped: Arc<Mutex<BTreeSet<u64>>>,
    operations: Arc<AtomicU64>,
}

/// Runs a seed. Returns the failure, if there was one; the time that passed; and the calls that were done.
pub(crate) fn torture(seed: u64, mix: Mix, transport: Transport, trace: Trace) -> (Option<String>, u64, u64) {
    let mut stage = Stage::new(Random::new(seed ^ 0x6d6f_756e_7473), mix, trace);
    stage.site.cluster.set_transport(transport);
    // Each is drawn apart, so that seeds without them are unchanged.
    let mut quotas = Random::new(seed ^ 0x0071_756f_7461);
    if mix.quota && quotas.percent(WITH_QUOTA) {
        stage.quota_bytes = RECORDS * RECORD + quotas.below(QUOTA_MAX);
    }
    let mut restores = Random::new(seed ^ 0x7265_7374_6f72);
    stage.restores = (mix.restores && restores.percent(PUT_BACK)).then_some(restores);
    let failure = stage.go().err().or_else(|| stage.judge.failure());
    (failure, stage.site.world.now_ms(), stage.operations.load(Ordering::Relaxed))
}

impl Stage {
    fn new(mut random: Random, mix: Mix, trace: Trace) -> Stage {
        let judge = Judge::new(mix.slack_ms(), mix.sizes);
        let checker = judge.clone();
        let mut site = Site::new(DRIVES, &mut random, trace, move || checker.failure());
        site.world.stand_still_in_suspend();
        let mounts = (0..MOUNTS).map(|index| (site.world.add_host(&format!("m{index}")), 0)).collect();
        let (stop, stopped, operations, asleep) = Default::default();
        let records = records(&judge);
        Stage {
            site,
            judge,
            random,
            mix,
            quota_bytes: 0,
            restores: None,
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
        self.site.world.trace.event("no more trouble".to_owned());
        self.stop.store(true, Ordering::Relaxed);
        let mut left = BOUND_MS;
        while self.stopped.lock().unwrap_or_else(PoisonError::into_inner).len() < MOUNTS * PROGRAMS {
            left = self.site.step("the programs to stop", left)?;
        }
        for index in 0..MOUNTS {
            self.site.world.kill(self.mounts[index].0);
        }
        let full = self.check(&contact)?;
        match self.restores.take() {
            Some(random) => self.put_back(random, &contact, full),
            None => Ok(()),
        }
    }

    /// Puts the manager back to a backup of the final state. While it did not run, a drive went away.
    /// Nobody has written since the backup, so the files without holes are unchanged, even before that
    /// drive is back. (A file with holes may count as not whole: docs/operations.md.)
    fn put_back(&mut self, mut random: Random, contact: &Contact, full: Vec<String>) -> Result<(), String> {
        let backup = self.site.cluster.manager_state();
        let drive = usize::try_from(random.below(DRIVES as u64)).unwrap_or(0);
        let away_ms = random.below(DRIVE_AWAY_MS);
        let name = &self.site.cluster.drives[drive].name;
        self.site.world.trace.event(format!("the manager is restored; {name} is away for {away_ms} ms"));
        self.site.world.trace.count("managers restored");
        self.site.cluster.crash_drive(&mut self.site.world, drive, End::PowerCut, away_ms);
        let manager_ms = random.below(2000);
        self.site.cluster.put_manager_back(&mut self.site.world, &backup, true, manager_ms);
        let contact = contact.clone();
        let judge = self.judge.clone();
        self.site.administer("the files after a restore", async move {
            let client = Client::connect(workload::config(&contact)).await.map_err(|e| e.to_string())?;
            for name in &full {
                look(&client, name, &judge).await.map_err(|why| format!("{name}: {why}"))?;
            }
            all_up(&client).await;
            for name in &full {
                check(&client, name, &judge).await.map_err(|why| format!("{name}: {why}"))?;
            }
            Ok(())
        })?
    }

    fn bring_up(&mut self) -> Result<Contact, String> {
        let kinds = [(Scheme::Raid5, 2, 1), (Scheme::Rs, 2, 2), (Scheme::Raid1, 1, 1), (Scheme::Rs, 4, 2)];
        let (scheme, k, m) = self.random.one(&kinds).expect("some");
        let shape = Shape::new(scheme, k, m, 4096 << self.random.below(2)).expect("a good shape");
        let quota_bytes = self.quota_bytes;
        let contact = self.site.bring_up(DRIVES, move |client: Client| async move {
            client.volume_create("main", Some(shape), quota_bytes).await?;
            make_records(&client).await
        })?;
        self.site.world.trace.event(format!("the cluster is up: {shape}, quota {quota_bytes}"));
        Ok(contact)
    }

    /// Starts a mount with its programs.
    fn start_mount(&mut self, mount: usize, contact: &Contact) {
        let (host, life) = &mut self.mounts[mount];
        *life += 1;
        let host = *host;
        let life = Life { mount, life: *life };
        let contact = contact.clone();
        let judge = self.judge.clone();
        let mix = self.mix;
        let records = self.records;
        let trace = self.site.world.trace.clone();
        let stop = Arc::clone(&self.stop);
        let done = Arc::clone(&self.operations);
        let stopped = Arc::clone(&self.stopped);
        let mut random = self.random.fork();
        self.site.world.start(host, async move {
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
            // Handles of closed files are released behind the programs.
            std::future::pending::<()>().await;
        });
    }

    fn trouble(&mut self, contact: &Contact) -> Result<(), String> {
        let mut nemesis = Nemesis::new(self.random.fork(), DRIVES, Kind::Away, false);
        let hosts: Vec<HostId> = self.mounts.iter().map(|(host, _)| *host).collect();
        let until_ms = self.site.world.now_ms() + TROUBLE_MS;
        while self.site.world.now_ms() < until_ms {
            if let Some(host) = nemesis.act(&mut self.site.world, &mut self.site.cluster, &hosts) {
                let index = hosts.iter().position(|&other| other == host).expect("one of them");
                self.crash(index, contact);
            }
            if self.mix.suspends {
                self.suspend_some(&hosts);
            }
            self.site.step("trouble", BOUND_MS)?;
        }
        self.wake(u64::MAX);
        nemesis.end(&mut self.site.world);
        self.site.cluster.recall(&self.site.world);
        Ok(())
    }

    /// Ends a mount with its programs, and perhaps a drive with it; starts another mount.
    fn crash(&mut self, mount: usize, contact: &Contact) {
        let (host, life) = self.mounts[mount];
        self.site.world.kill(host);
        self.judge.died(Life { mount, life });
        if self.random.percent(WITH_A_DRIVE) {
            let drive = usize::try_from(self.random.below(DRIVES as u64)).unwrap_or(0);
            if self.site.cluster.is_up(&self.site.world, drive) {
                let away_ms = self.random.below(DRIVE_AWAY_MS);
                self.site.world.trace.event(format!("d{drive} dies with it, for {away_ms} ms"));
                self.site.world.trace.count("drives that died with a mount");
                self.site.cluster.crash_drive(&mut self.site.world, drive, End::PowerCut, away_ms);
            }
        }
        self.start_mount(mount, contact);
    }

    fn suspend_some(&mut self, hosts: &[HostId]) {
        let now_ms = self.site.world.now_ms();
        self.wake(now_ms);
        if self.asleep.is_some() || self.next_sleep_ms > now_ms {
            return;
        }
        self.next_sleep_ms = now_ms + self.random.below(SUSPENDED_MS);
        let host = self.random.one(hosts).expect("some");
        if self.site.world.is_running(host) && !self.site.world.is_paused(host) {
            let time_ms = 200 + self.random.below(SUSPENDED_MS);
            self.site
                .world
                .trace
                .event(format!("{} is suspended for {time_ms} ms", self.site.world.name(host)));
            self.site.world.trace.count("mounts suspended");
            self.site.world.suspend(host);
            self.asleep = Some((host, now_ms + time_ms));
        }
    }

    /// Wakes the host that sleeps, if its time has come.
    fn wake(&mut self, now_ms: u64) {
        if let Some((host, until_ms)) = self.asleep
            && until_ms <= now_ms
        {
            self.asleep = None;
            if self.site.world.is_paused(host) {
                self.site.world.resume(host);
                self.site.world.trace.event(format!("{} wakes", self.site.world.name(host)));
            }
        }
    }

    /// Waits until all is well again, then checks that every name stands for the file that it must, with
    /// the bytes that it must have. Returns the names of files without holes.
    fn check(&mut self, contact: &Contact) -> Result<Vec<String>, String> {
        self.site.world.net.calm_datagrams();
        let contact = contact.clone();
        let judge = self.judge.clone();
        let trace = self.site.world.trace.clone();
        let drives = self.site.cluster.drives.iter().map(|drive| drive.name.clone()).collect::<Vec<_>>();
        self.site.administer("the cluster to heal", async move {
            let client = Client::connect(workload::config(&contact)).await.map_err(|e| e.to_string())?;
            all_up(&client).await;
            healed(&client, &drives, &trace).await?;
            let mut full = Vec::new();
            for name in names() {
                let file = check(&client, &name, &judge).await.map_err(|why| format!("{name}: {why}"))?;
                if file.is_some_and(|file| judge.is_full(file)) {
                    full.push(name);
                }
            }
            Ok(full)
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

/// The file whose records are locked, as the judge knows it.
fn records(judge: &Judge) -> FileNo {
    let file = judge.new_file();
    let by = Life { mount: MOUNTS, life: 0 };
    let id = judge.begin_cut(file, RECORDS * RECORD, by);
    judge.end(file, id, true);
    judge.synced(file, judge.now(), by, true);
    judge.is_sure(LOCKED, Some(file), MOUNTS, judge.now());
    file
}

async fn make_records(client: &Client) -> braid_client::Result<()> {
    let name = format!("braid://main/{LOCKED}").parse().expect("a good name");
    let file = client.open(&name, &OpenOptions::new().write(true).create_new(true)).await?;
    file.set_len(RECORDS * RECORD).await?;
    file.close().await
}

/// All names that may exist.
fn names() -> impl Iterator<Item = String> {
    all_names((MOUNTS * PROGRAMS) as u64).into_iter().chain([LOCKED.to_owned()])
}

/// Checks that a name stands for the file that it must, that the file has the size and the bytes that it
/// must have, and that it is whole.
async fn check(client: &Client, name: &str, judge: &Judge) -> Result<Option<FileNo>, String> {
    let Some(file) = look(client, name, judge).await? else { return Ok(None) };
    let path = path_of(name);
    let report = patiently(|| client.check(&path, |_| {})).await?;
    if report.is_clean() {
        Ok(Some(file))
    } else {
        Err(format!("it is not whole: {:?}, {:?}", report.findings, report.unchecked))
    }
}

/// Has the judge see the file that a name stands for.
async fn look(client: &Client, name: &str, judge: &Judge) -> Result<Option<FileNo>, String> {
    let who = "the administrator, at the end,";
    let path = path_of(name);
    let Seen { began, file } = patiently(|| look_once(client, &path, judge)).await?;
    let Some((number, size, bytes)) = file else {
        return Ok(judge.looked(name, began, Found::Nothing, who));
    };
    let Some(file) = judge.looked(name, began, Found::Number(number), who) else { return Ok(None) };
    let reader = Reader { life: None, opened: judge.now() };
    judge.size(file, size, reader, reader.opened, who);
    judge.read(file, 0..FILE_MAX, &bytes, reader, reader.opened, who);
    Ok(Some(file))
}

/// The result of a look at a name.
struct Seen {
    /// Time at which the look began.
    began: At,
    /// The file's number, its size and its bytes; `None`: nothing has this name.
    file: Option<(u64, u64, Vec<u8>)>,
}

async fn look_once(client: &Client, path: &Name, judge: &Judge) -> braid_client::Result<Seen> {
    let began = judge.now();
    let row = match client.stat(path).await {
        Err(error) if error.kind() == braid_client::Kind::NotFound => return Ok(Seen { began, file: None }),
        row => row?,
    };
    // Opening the file for writing decides the writes that its last writer left.
    let open = client.open(path, &OpenOptions::new().read(true).write(true)).await?;
    let mut bytes = vec![0; usize::try_from(FILE_MAX).unwrap_or(0)];
    let count = open.read_at(&mut bytes, 0).await?;
    bytes.truncate(count);
    let size = open.size();
    open.close().await?;
    Ok(Seen { began, file: Some((row.file.0, size, bytes)) })
}

/// Does a request, with some retries.
async fn patiently<T, Acting>(act: impl Fn() -> Acting) -> Result<T, String>
where
    Acting: Future<Output = braid_client::Result<T>>,
{
    let mut tries = 0;
    loop {
        match act().await {
            Ok(done) => return Ok(done),
            Err(error) if tries == TRIES => return Err(error.to_string()),
            Err(_) => tries += 1,
        }
        sleep(Duration::from_secs(1)).await;
    }
}

fn path_of(name: &str) -> Name {
    format!("braid://main/{name}").parse().expect("a good name")
}
