//! The faults of all runs, drawn by seed.

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::disk::{DriveDisk, End};
use crate::random::Random;
use crate::told::{Marks, segments};
use crate::world::{HostId, World};

/// Longest time for which a process is gone or stopped, or a link is bad.
const TROUBLE_MS: u64 = 8_000;

/// Troubles under way, and the time at which the next one is due.
pub(crate) struct Nemesis {
    random: Random,
    next_ms: u64,
    /// Longest pause between two troubles.
    pause_ms: u64,
    paused: Vec<(HostId, u64)>,
    /// Time at which the links are healed.
    heal_ms: Option<u64>,
    kind: Kind,
    /// Drives that come to harm.
    victims: Vec<usize>,
    /// True if a disk may go back to an older state.
    goes_back: bool,
    /// An older state of the first victim's disk.
    copy: Option<Arc<DriveDisk>>,
    /// Marks of the first victim's disk.
    marks: Marks,
}

/// The kind of faults in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No synced bytes are lost: anything may be away, and everything at once.
    Away,
    /// A disk loses synced bytes, or goes back to an older state. As a column that is stale and one that is
    /// damaged count together, only two drives come to harm, and all files can do without two.
    Damage,
}

impl Nemesis {
    /// Draws the faults of a run. `moves`: columns move to other drives. A column that has just moved, a
    /// disk that went back, and another drive that is away would be three losses: in such runs either no
    /// disk goes back, or only one drive comes to harm.
    pub(crate) fn new(mut random: Random, drives: usize, kind: Kind, moves: bool) -> Nemesis {
        let pause_ms = 500 + random.below(5000);
        let mut victims: Vec<usize> = (0..drives).collect();
        while kind == Kind::Damage && victims.len() > 2 {
            victims.remove(usize::try_from(random.below(victims.len() as u64)).unwrap_or(0));
        }
        let is_alone = kind == Kind::Damage && moves && random.percent(50);
        if is_alone {
            victims.truncate(1);
        }
        let goes_back = is_alone || !moves;
        let (paused, heal_ms, copy, marks) = Default::default();
        Nemesis { random, next_ms: 0, pause_ms, paused, heal_ms, kind, victims, goes_back, copy, marks }
    }

    /// Ends troubles that are over, and begins another one if it is due. Returns a client's host that must
    /// crash.
    pub(crate) fn act(
        &mut self,
        world: &mut World,
        cluster: &mut Cluster,
        clients: &[HostId],
    ) -> Option<HostId> {
        let now_ms = world.now_ms();
        let over: Vec<HostId> =
            self.paused.iter().filter(|(_, until)| *until <= now_ms).map(|(host, _)| *host).collect();
        self.paused.retain(|(_, until)| *until > now_ms);
        over.into_iter().for_each(|host| resume(world, host));
        if self.heal_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            self.heal_ms = None;
            world.net.heal();
            world.trace.event("all links are sound".to_owned());
        }
        if self.kind == Kind::Damage {
            let index = self.victims[0];
            let disk = &cluster.drives[index].disk;
            self.marks.look(now_ms, &disk.store(), || (disk.log(), cluster.told(index)));
        }
        if self.next_ms > now_ms {
            return None;
        }
        self.next_ms = now_ms + 1 + self.random.below(self.pause_ms);
        self.trouble(world, cluster, clients)
    }

    /// Ends all troubles.
    pub(crate) fn end(&mut self, world: &mut World) {
        for (host, _) in std::mem::take(&mut self.paused) {
            resume(world, host);
        }
        self.heal_ms = None;
        world.net.heal();
    }

    fn trouble(&mut self, world: &mut World, cluster: &mut Cluster, clients: &[HostId]) -> Option<HostId> {
        match self.random.below(100) {
            0..15 => self.crash_drive(world, cluster, End::Killed),
            15..27 => self.crash_drive(world, cluster, End::PowerCut),
            27..35 => self.cut_in_commit(world, cluster),
            35..42 => self.crash_manager(world, cluster),
            42..50 => return self.crash_client(world, clients),
            50..60 => self.pause(world, cluster, clients),
            60..72 => self.partition(world, cluster, clients),
            72..80 => self.slow(world, cluster, clients),
            80..88 => self.cut_connections(world, cluster),
            88..97 if self.kind == Kind::Damage => self.rot(world, cluster),
            88..92 => self.cut_connections(world, cluster),
            _ if self.kind == Kind::Away => self.cut_all_power(world, cluster),
            _ if self.goes_back => self.go_back(world, cluster),
            _ => self.rot(world, cluster),
        }
        None
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn victims(&self) -> &[usize] {
        &self.victims
    }

    /// The drive on whose disk damage may be found, if any.
    pub(crate) fn damaged(&self) -> Option<usize> {
        (self.kind == Kind::Damage).then_some(self.victims[0])
    }

    fn any_drive(&mut self) -> usize {
        self.random.one(&self.victims).expect("there are victims")
    }

    /// Returns true if the link between two hosts may go bad. A drive that is cut off may go out of a
    /// file's set.
    fn may_part(&self, cluster: &Cluster, one: HostId, other: HostId) -> bool {
        let is_victim = |host| self.victims.iter().any(|&index| cluster.drives[index].host == host);
        let is_spared = cluster.spares(one) || cluster.spares(other);
        !is_spared && (self.kind == Kind::Away || is_victim(one) || is_victim(other))
    }

    fn crash_drive(&mut self, world: &mut World, cluster: &mut Cluster, end: End) {
        let index = self.any_drive();
        if !cluster.is_up(world, index) || cluster.spares(cluster.drives[index].host) {
            return;
        }
        let away_ms = self.random.below(TROUBLE_MS);
        let name = cluster.drives[index].name.clone();
        world.trace.event(format!("{name} crashes ({end:?}) for {away_ms} ms"));
        world.trace.count(if end == End::Killed { "drives killed" } else { "drives without power" });
        cluster.crash_drive(world, index, end, away_ms);
    }

    fn cut_all_power(&mut self, world: &mut World, cluster: &mut Cluster) {
        if cluster.is_older {
            return;
        }
        world.trace.event("the power is cut everywhere".to_owned());
        world.trace.count("power cuts everywhere");
        for index in 0..cluster.drives.len() {
            if cluster.is_up(world, index) {
                let away_ms = 100 + self.random.below(3000);
                cluster.crash_drive(world, index, End::PowerCut, away_ms);
            }
        }
        if world.is_running(cluster.manager) {
            cluster.crash_manager(world, 100 + self.random.below(2000));
        }
    }

    fn cut_in_commit(&mut self, world: &World, cluster: &Cluster) {
        let index = self.any_drive();
        if cluster.is_up(world, index) && !cluster.spares(cluster.drives[index].host) {
            let changes = 1 + self.random.below(20);
            let drive = &cluster.drives[index];
            world.trace.event(format!("{}'s power will be cut after {changes} changes", drive.name));
            world.trace.count("power cuts in a commit");
            drive.disk.cut_soon(changes);
        }
    }

    fn crash_manager(&mut self, world: &mut World, cluster: &mut Cluster) {
        if world.is_running(cluster.manager) && !cluster.spares(cluster.manager) {
            let away_ms = self.random.below(TROUBLE_MS);
            world.trace.event(format!("the manager crashes for {away_ms} ms"));
            world.trace.count("managers killed");
            cluster.crash_manager(world, away_ms);
        }
    }

    fn crash_client(&mut self, world: &World, clients: &[HostId]) -> Option<HostId> {
        let client = self.random.one(clients).filter(|&client| world.is_running(client))?;
        world.trace.event(format!("{} crashes", world.name(client)));
        world.trace.count("clients killed");
        Some(client)
    }

    fn any_host(&mut self, cluster: &Cluster, clients: &[HostId]) -> HostId {
        let drives: Vec<HostId> = self.victims.iter().map(|&index| cluster.drives[index].host).collect();
        let mut all: Vec<HostId> = drives.iter().chain(&drives).chain(clients).copied().collect();
        if self.kind == Kind::Away {
            all.push(cluster.manager);
        }
        self.random.one(&all).expect("there are hosts")
    }

    fn pause(&mut self, world: &mut World, cluster: &Cluster, clients: &[HostId]) {
        let host = self.any_host(cluster, clients);
        if world.is_running(host) && !world.is_paused(host) && !cluster.spares(host) {
            let time_ms = 200 + self.random.below(TROUBLE_MS);
            world.trace.event(format!("{} is paused for {time_ms} ms", world.name(host)));
            world.trace.count("pauses");
            world.pause(host);
            self.paused.push((host, world.now_ms() + time_ms));
        }
    }

    /// Cuts off one host from some of the others, in one direction or both.
    fn partition(&mut self, world: &World, cluster: &Cluster, clients: &[HostId]) {
        let host = self.any_host(cluster, clients);
        let one_way = self.random.below(3);
        let share = 20 + self.random.below(90);
        let all = cluster.drives.iter().map(|drive| drive.host).chain(clients.iter().copied());
        let mut from = Vec::new();
        for other in all.chain([cluster.manager]).filter(|&other| other != host) {
            if self.random.percent(share) && self.may_part(cluster, host, other) {
                from.push(world.name(other).to_owned());
                let near = world.ip(host);
                let far = world.ip(other);
                if one_way != 1 {
                    world.net.block(near, far);
                }
                if one_way != 2 {
                    world.net.block(far, near);
                }
            }
        }
        let time_ms = 200 + self.random.below(TROUBLE_MS);
        let way = ["both ways", "inwards", "outwards"][usize::try_from(one_way).unwrap_or(0)];
        let name = world.name(host);
        world.trace.event(format!("{name} is cut off {way} from {} for {time_ms} ms", from.join(" ")));
        world.trace.count("partitions");
        self.heal_ms = Some(world.now_ms() + time_ms);
    }

    fn slow(&mut self, world: &World, cluster: &Cluster, clients: &[HostId]) {
        let one = self.any_host(cluster, clients);
        let other = self.any_host(cluster, clients);
        if !self.may_part(cluster, one, other) {
            return;
        }
        let delay_ms = 10 + self.random.below(1500);
        let time_ms = 200 + self.random.below(TROUBLE_MS);
        let names = (world.name(one), world.name(other));
        world.trace.event(format!("from {} to {} takes {delay_ms} ms", names.0, names.1));
        world.trace.count("slow links");
        world.net.slow(world.ip(one), world.ip(other), delay_ms);
        self.heal_ms = Some(self.heal_ms.unwrap_or(0).max(world.now_ms() + time_ms));
    }

    /// Cuts some connections, and where drives have two rails also one of those, for a while.
    fn cut_connections(&mut self, world: &World, cluster: &mut Cluster) {
        if cluster.sever_rail(world) {
            let time_ms = 200 + self.random.below(TROUBLE_MS);
            self.heal_ms = Some(self.heal_ms.unwrap_or(0).max(world.now_ms() + time_ms));
        }
        let count = 1 + self.random.below(4);
        for _ in 0..count {
            if world.net.cut() {
                world.trace.count("connections cut");
            }
        }
        world.trace.event(format!("{count} connections are cut"));
    }

    /// Makes the first victim's disk go back to an older state, as if it was restored from a copy.
    fn go_back(&mut self, world: &mut World, cluster: &mut Cluster) {
        let index = self.victims[0];
        let name = cluster.drives[index].name.clone();
        let drive = &cluster.drives[index];
        let may = cluster.is_up(world, index) && !cluster.spares(drive.host);
        match self.copy.take() {
            Some(copy) if may && (cluster.told(index) > copy.log() || drive.disk.log() == copy.log()) => {
                let away_ms = self.random.below(TROUBLE_MS);
                world.trace.event(format!("{name} is restored from its copy, after {away_ms} ms"));
                world.trace.count("disks restored from a copy");
                cluster.exchange_disk(world, index, copy, away_ms);
            }
            _ => {
                world.trace.event(format!("{name} is copied"));
                self.copy = Some(cluster.drives[index].disk.copy());
            }
        }
    }

    /// Flips one bit of the first victim's disk, in a part of a file that the manager was told of.
    fn rot(&mut self, world: &World, cluster: &Cluster) {
        let index = self.victims[0];
        let drive = &cluster.drives[index];
        let told = cluster.told(index);
        let disk = drive.disk.store();
        let files = segments(&disk);
        let index = usize::try_from(self.random.below(files.len() as u64)).unwrap_or(0);
        let Some(name) = files.get(index) else { return };
        let content = disk.content(name).unwrap_or_default();
        let bit = self.random.below(8 * content.len() as u64);
        let byte = usize::try_from(bit / 8).unwrap_or(0);
        if self.marks.is_told(told, name, byte, &content) && disk.rot(name, bit) {
            world.trace.event(format!("bit {bit} of {name} on {} flips", drive.name));
            world.trace.count("bits flipped");
        }
    }
}

fn resume(world: &mut World, host: HostId) {
    if world.is_paused(host) {
        world.resume(host);
        world.trace.event(format!("{} goes on", world.name(host)));
    }
}
