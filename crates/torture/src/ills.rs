//! Further troubles in half of the runs: disks that are full, that fail or that lie, hosts that sleep, wall
//! clocks that jump, and a manager whose state is put back from a copy. They are drawn apart from
//! [`crate::nemesis`], so that runs without them are unchanged.

use std::collections::BTreeMap;

use braid_meta::records::memory::MemoryKv;

use crate::cluster::Cluster;
use crate::disk::{Ailment, DriveDisk, End};
use crate::model::Model;
use crate::nemesis::{Kind, Nemesis};
use crate::random::Random;
use crate::world::{HostId, World};

/// Longest time for which a disk is ill, a host sleeps, or a manager serves nothing.
const TROUBLE_MS: u64 = 8_000;
/// Time for which a drive that came back after a lie is left alone, until its columns are out.
const OUT_MS: u64 = 2_000;
/// Time well below the interval between two heartbeats.
const HEARD_MS: u64 = 200;
/// Greatest jump of a wall clock, to either side.
const JUMP_MS: u64 = 600_000;

/// Ills under way, and the time at which the next one is due.
pub(crate) struct Ills {
    random: Random,
    next_ms: u64,
    /// Longest pause between two ills.
    pause_ms: u64,
    kind: Kind,
    victims: Vec<usize>,
    /// True if the manager's state may be put back.
    restores: bool,
    /// True if a disk may lie. Beside a column that moves and a victim that is away, a lie would be a third
    /// loss.
    lies: bool,
    /// Time until which each ill disk is ill.
    sick: BTreeMap<usize, u64>,
    asleep: Vec<(HostId, u64)>,
    lie: Option<Lie>,
    backup: Option<MemoryKv>,
    /// Time at which an old state of the manager is accepted as the best there is.
    accept_ms: Option<u64>,
}

/// A disk that lies about its syncs.
#[derive(Debug, Clone, Copy)]
struct Lie {
    drive: usize,
    /// Number of the last record that the disk really has, and time since which it lies about later ones.
    log: u64,
    since_ms: u64,
    /// True if the power is cut when a receipt tells of more, but no heartbeat does; if that happens by
    /// `until_ms`.
    by_receipt: bool,
    until_ms: u64,
    /// Time for which the lie goes on after the manager was first told of more.
    time_ms: u64,
    /// Time at which the manager was first seen to know of more, by a heartbeat or a receipt.
    told_ms: Option<u64>,
    /// Set once the power was cut; holds the time since which the drive is up again.
    back_ms: Option<Option<u64>>,
}

impl Lie {
    /// Makes the lie true before a heartbeat tells of it, and begins another one.
    fn begin_anew(&mut self, disk: &DriveDisk, now_ms: u64) {
        if self.since_ms + HEARD_MS <= now_ms {
            disk.own_up();
            disk.lie();
            (self.log, self.since_ms) = (disk.log(), now_ms);
        }
    }
}

impl Ills {
    /// Draws the ills of a run. `moves`: columns move to other drives, and an old state of the manager does
    /// not know where they are.
    pub(crate) fn new(mut random: Random, nemesis: &Nemesis, moves: bool) -> Ills {
        let pause_ms = 500 + random.below(6000);
        let kind = nemesis.kind();
        let mut victims = nemesis.victims().to_vec();
        if kind == Kind::Damage && moves {
            // Beside a writer, a column that moves is missing for a while: that counts as a loss too.
            victims.truncate(1);
        }
        let (sick, asleep, lie, backup, accept_ms) = Default::default();
        let restores = kind == Kind::Away && !moves;
        let lies = kind == Kind::Damage && !moves;
        Ills {
            random,
            next_ms: 0,
            pause_ms,
            kind,
            victims,
            restores,
            lies,
            sick,
            asleep,
            lie,
            backup,
            accept_ms,
        }
    }

    /// Ends the ills that are over, and begins another one if it is due.
    pub(crate) fn act(
        &mut self,
        world: &mut World,
        cluster: &mut Cluster,
        clients: &[HostId],
        model: &Model,
    ) {
        let now_ms = world.now_ms();
        let well: Vec<usize> =
            self.sick.iter().filter(|(_, until)| **until <= now_ms).map(|(&index, _)| index).collect();
        for index in well {
            self.sick.remove(&index);
            cluster.drives[index].disk.recover();
            world.trace.event(format!("{}'s disk is well again", cluster.drives[index].name));
        }
        let (over, asleep) = self.asleep.drain(..).partition(|(_, until)| *until <= now_ms);
        self.asleep = asleep;
        wake(world, over);
        if self.accept_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            self.accept(world, cluster);
        }
        self.go_on_lying(world, cluster);
        if self.next_ms <= now_ms {
            self.next_ms = now_ms + 1 + self.random.below(self.pause_ms);
            self.begin(world, cluster, clients, model);
        }
    }

    /// Ends all ills.
    pub(crate) fn end(&mut self, world: &mut World, cluster: &mut Cluster) {
        wake(world, std::mem::take(&mut self.asleep));
        self.sick.clear();
        self.lie = None;
        cluster.guarded = None;
        for drive in &cluster.drives {
            drive.disk.recover();
            drive.disk.own_up();
        }
        if self.accept_ms.is_some() {
            self.accept(world, cluster);
        }
    }

    fn begin(&mut self, world: &mut World, cluster: &mut Cluster, clients: &[HostId], model: &Model) {
        match self.random.below(100) {
            0..50 if self.lies => self.begin_to_lie(world, cluster),
            // If a disk reports that it is full, columns move to drives that are less full, and an old
            // state of the manager does not know where they are.
            0..15 if !self.restores => self.sicken(world, cluster, Ailment::Full),
            0..25 => self.sicken(world, cluster, Ailment::NoSpace),
            25..40 => self.sicken(world, cluster, Ailment::WritesFail),
            40..52 => self.sicken(world, cluster, Ailment::ReadsFail),
            52..64 => self.sleep(world, cluster, clients),
            64..76 => self.jump(world, cluster, clients),
            _ if self.lies => self.begin_to_lie(world, cluster),
            _ if self.restores => self.put_back(world, cluster, model),
            _ => self.sleep(world, cluster, clients),
        }
    }

    fn any_drive(&mut self) -> usize {
        self.random.one(&self.victims).expect("there are victims")
    }

    fn sicken(&mut self, world: &World, cluster: &Cluster, ailment: Ailment) {
        let index = self.any_drive();
        if self.sick.contains_key(&index) || cluster.guarded.is_some() {
            return;
        }
        let time_ms = 200 + self.random.below(TROUBLE_MS);
        let drive = &cluster.drives[index];
        drive.disk.fall_ill(ailment);
        world.trace.event(format!("{}'s disk is ill ({ailment:?}) for {time_ms} ms", drive.name));
        world.trace.count(match ailment {
            Ailment::Full => "disks full",
            Ailment::NoSpace => "disks that refuse room",
            Ailment::WritesFail => "disks that fail writes",
            Ailment::ReadsFail => "disks that fail reads",
        });
        self.sick.insert(index, world.now_ms() + time_ms);
    }

    fn any_host(&mut self, cluster: &Cluster, clients: &[HostId]) -> HostId {
        let drives = self.victims.iter().map(|&index| cluster.drives[index].host);
        let mut all: Vec<HostId> = drives.chain(clients.iter().copied()).collect();
        if self.kind == Kind::Away {
            all.push(cluster.manager);
        }
        self.random.one(&all).expect("there are hosts")
    }

    /// Suspends a host as a whole: its timers stand still, and only its boot-time clock goes on.
    fn sleep(&mut self, world: &mut World, cluster: &Cluster, clients: &[HostId]) {
        let host = self.any_host(cluster, clients);
        if !world.is_running(host) || world.is_paused(host) || cluster.spares(host) {
            return;
        }
        let time_ms = 200 + self.random.below(TROUBLE_MS);
        world.trace.event(format!("{} sleeps for {time_ms} ms", world.name(host)));
        world.trace.count("hosts that slept");
        world.suspend(host);
        self.asleep.push((host, world.now_ms() + time_ms));
    }

    /// Sets a host's wall clock forward or back.
    fn jump(&mut self, world: &World, cluster: &Cluster, clients: &[HostId]) {
        let mut host = self.any_host(cluster, clients);
        if self.random.percent(20) {
            host = cluster.manager;
        }
        let by_ms = i64::try_from(self.random.below(2 * JUMP_MS)).unwrap_or(0) - JUMP_MS.cast_signed();
        world.trace.event(format!("{}'s wall clock jumps by {by_ms} ms", world.name(host)));
        world.trace.count("clock jumps");
        world.machine(host).set_wall(by_ms);
    }

    fn begin_to_lie(&mut self, world: &World, cluster: &mut Cluster) {
        let index = self.any_drive();
        let drive = &cluster.drives[index];
        let is_quiet = self.sick.is_empty() && self.asleep.is_empty() && world.net.is_sound();
        let both = world.is_running(cluster.manager) && cluster.is_up(world, index);
        if self.lie.is_some() || !is_quiet || !both || world.is_paused(drive.host) {
            return;
        }
        let time_ms = self.random.below(TROUBLE_MS);
        drive.disk.cut_never();
        drive.disk.lie();
        world.trace.event(format!("{}'s disk lies about its syncs from now on", drive.name));
        world.trace.count("disks that lie");
        let now_ms = world.now_ms();
        self.lie = Some(Lie {
            drive: index,
            log: drive.disk.log(),
            since_ms: now_ms,
            until_ms: now_ms + TROUBLE_MS,
            by_receipt: time_ms.is_multiple_of(2),
            time_ms,
            told_ms: None,
            back_ms: None,
        });
        cluster.guarded = Some(drive.host);
    }

    /// Cuts the power of a disk that has lied for long enough, and leaves its drive alone until it is known
    /// to be behind.
    fn go_on_lying(&mut self, world: &mut World, cluster: &mut Cluster) {
        let Some(lie) = &mut self.lie else { return };
        let now_ms = world.now_ms();
        let index = lie.drive;
        let name = cluster.drives[lie.drive].name.clone();
        match (lie.told_ms, &mut lie.back_ms) {
            (None, _) if lie.by_receipt && cluster.receipt(index) > lie.log.max(cluster.told(index)) => {
                (lie.told_ms, lie.time_ms) = (Some(now_ms), 0);
                world.trace.count("lies of which a receipt tells");
            }
            (None, _) if lie.by_receipt && now_ms < lie.until_ms => {
                lie.begin_anew(&cluster.drives[index].disk, now_ms)
            }
            (None, _) if cluster.told(index) > lie.log => lie.told_ms = Some(now_ms),
            (Some(told_ms), None) if told_ms + lie.time_ms <= now_ms && cluster.is_up(world, index) => {
                lie.back_ms = Some(None);
                let away_ms = self.random.below(TROUBLE_MS);
                world.trace.event(format!("{name} loses its power and all that it has lied about"));
                world.trace.count("lies found out");
                cluster.crash_drive(world, index, End::PowerCut, away_ms);
            }
            (_, Some(back_ms)) if cluster.is_up(world, index) => {
                let since_ms = *back_ms.get_or_insert(now_ms);
                if since_ms + OUT_MS <= now_ms {
                    self.lie = None;
                    cluster.guarded = None;
                }
            }
            (_, Some(back_ms)) => *back_ms = None,
            _ => {}
        }
    }

    /// Copies the manager's state, or puts it back from its copy: either as the operator's guide says, or
    /// unseen. If unseen, the manager finds it out, and serves nothing until the operator accepts the
    /// state.
    fn put_back(&mut self, world: &mut World, cluster: &mut Cluster, model: &Model) {
        let Some(backup) = self.backup.take() else {
            if model.has_begun() && world.is_running(cluster.manager) {
                world.trace.event("the manager's state is copied".to_owned());
                self.backup = Some(cluster.manager_state());
            }
            return;
        };
        let away_ms = self.random.below(2000);
        let is_marked = self.random.percent(70);
        let how = if is_marked { "restored" } else { "put back unseen" };
        world.trace.event(format!("the manager's state is {how}, after {away_ms} ms"));
        world.trace.count(if is_marked { "managers restored" } else { "managers put back unseen" });
        if !is_marked {
            self.accept_ms = Some(world.now_ms() + away_ms + 1000 + self.random.below(TROUBLE_MS));
        }
        model.put_back();
        cluster.put_manager_back(world, &backup, is_marked, away_ms);
    }

    fn accept(&mut self, world: &mut World, cluster: &mut Cluster) {
        self.accept_ms = None;
        world.trace.event("the manager's old state is accepted".to_owned());
        let state = cluster.manager_state();
        cluster.put_manager_back(world, &state, true, 0);
    }
}

fn wake(world: &mut World, asleep: Vec<(HostId, u64)>) {
    for (host, _) in asleep {
        if world.is_paused(host) {
            world.resume(host);
            world.trace.event(format!("{} wakes", world.name(host)));
        }
    }
}
