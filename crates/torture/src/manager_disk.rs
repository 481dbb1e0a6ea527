//! The manager's disk, which in some runs is full for a while, or fails so that nobody knows what it
//! stored. Its faults are drawn apart from all others, so that runs without them are unchanged.

use braid_meta::records::memory::Disk;

use crate::cluster::Cluster;
use crate::random::Random;
use crate::world::World;

/// Longest time of a failure.
const TROUBLE_MS: u64 = 4_000;

/// The failure of the disk under way, and the time at which the next one is due.
pub(crate) struct ManagerDisk {
    random: Random,
    next_ms: u64,
    /// Longest pause between two failures.
    pause_ms: u64,
    until_ms: Option<u64>,
}

impl ManagerDisk {
    pub(crate) fn new(mut random: Random) -> ManagerDisk {
        let pause_ms = 500 + random.below(6000);
        ManagerDisk { next_ms: random.below(pause_ms), random, pause_ms, until_ms: None }
    }

    /// Ends a failure that is over, and begins the next one if it is due.
    pub(crate) fn act(&mut self, world: &World, cluster: &Cluster) {
        let now_ms = world.now_ms();
        if self.until_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            self.end(world, cluster);
        }
        if self.until_ms.is_none() && self.next_ms <= now_ms {
            let time_ms = 1 + self.random.below(TROUBLE_MS);
            let (disk, what) = match self.random.percent(50) {
                true => (Disk::Full, "full"),
                false => (Disk::Unsure, "unsure"),
            };
            self.until_ms = Some(now_ms + time_ms);
            self.next_ms = now_ms + time_ms + 1 + self.random.below(self.pause_ms);
            cluster.set_manager_disk(disk);
            world.trace.event(format!("the manager's disk is {what} for {time_ms} ms"));
            world.trace.count(if disk == Disk::Full {
                "managers' disks full"
            } else {
                "managers' disks unsure"
            });
        }
    }

    /// Ends the failure: the disk is sound again.
    pub(crate) fn end(&mut self, world: &World, cluster: &Cluster) {
        if self.until_ms.take().is_some() {
            cluster.set_manager_disk(Disk::Sound);
            world.trace.event("the manager's disk is sound again".to_owned());
        }
    }
}
