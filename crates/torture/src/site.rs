//! The place of a run: a world with a cluster in it, and an administrator.

use braid_client::Client;

use crate::cluster::{Cluster, Contact};
use crate::end::all_up;
use crate::random::Random;
use crate::run::first_panic;
use crate::trace::Trace;
use crate::workload;
use crate::world::{HostId, World};

/// Longest virtual time for each phase: to make the cluster, to stop the clients, and to heal.
pub(crate) const BOUND_MS: u64 = 400_000;

/// A world, a cluster in it, and an administrator.
pub(crate) struct Site {
    pub(crate) world: World,
    pub(crate) cluster: Cluster,
    admin: HostId,
    /// Returns the first error that the checkers have found.
    failure: Box<dyn Fn() -> Option<String>>,
}

impl Site {
    /// A world with a cluster of this many drives, none of which is started. `failure` returns the
    /// checkers' first error.
    pub(crate) fn new(
        drives: usize,
        random: &mut Random,
        trace: Trace,
        failure: impl Fn() -> Option<String> + 'static,
    ) -> Site {
        let mut world = World::new(random.fork(), trace);
        let cluster = Cluster::new(&mut world, drives, random);
        let admin = world.add_host("admin");
        Site { world, cluster, admin, failure: Box::new(failure) }
    }

    /// Runs one step of the world. Returns the time that is left; an error if the time is up or a checker
    /// failed.
    pub(crate) fn step(&mut self, what: &str, left_ms: u64) -> Result<u64, String> {
        let before = self.world.now_ms();
        self.world.step();
        self.cluster.tend(&mut self.world);
        if let Some(wrong) = first_panic().or_else(|| (self.failure)()) {
            return Err(wrong);
        }
        left_ms
            .checked_sub(self.world.now_ms() - before)
            .ok_or_else(|| format!("waited {} s in vain for {what}", BOUND_MS / 1000))
    }

    /// Runs a task on the administrator's host, until it ends.
    pub(crate) fn administer<T: Send + 'static>(
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

    /// Starts the manager and the first `drives` drives. When they are up, runs a task for the
    /// administrator.
    pub(crate) fn bring_up<Made>(
        &mut self,
        drives: usize,
        make: impl FnOnce(Client) -> Made + Send + 'static,
    ) -> Result<Contact, String>
    where
        Made: Future<Output = braid_client::Result<()>> + Send,
    {
        self.cluster.start_manager(&mut self.world);
        let mut left = BOUND_MS;
        let contact = loop {
            if let Some(contact) = self.cluster.contact() {
                break contact;
            }
            left = self.step("the manager", left)?;
        };
        for index in 0..drives {
            self.cluster.start_drive(&mut self.world, index);
        }
        self.world.start(self.admin, std::future::pending());
        let reached = contact.clone();
        let made = self.administer("a volume and all drives", async move {
            let client = Client::connect(workload::config(&reached)).await.map_err(|e| e.to_string())?;
            all_up(&client).await;
            make(client).await.map_err(|error| error.to_string())
        })?;
        made?;
        Ok(contact)
    }
}
