//! The operators' work during the trouble: they drain drives, end drains, and have files laid out anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use braid_client::Client;
use braid_layout::{Scheme, Shape};
use tokio::time::sleep;

use crate::cluster::Contact;
use crate::random::Random;
use crate::trace::Trace;
use crate::workload::{self, Target};

/// Longest pause between two actions.
const PAUSE_MS: u64 = 6_000;

/// An operator who drains drives.
pub(crate) struct Operator {
    pub(crate) contact: Contact,
    /// Names of the drives.
    pub(crate) drives: Vec<String>,
    pub(crate) random: Random,
    pub(crate) trace: Trace,
    pub(crate) stop: Arc<AtomicBool>,
}

impl Operator {
    /// Drains a drive or ends a drain now and then, until told to stop.
    pub(crate) async fn operate(mut self) {
        let client = connected(&self.contact).await;
        let mut drained: Option<String> = None;
        loop {
            sleep(Duration::from_millis(200 + self.random.below(PAUSE_MS))).await;
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            match drained.take() {
                Some(drive) if self.random.percent(60) => {
                    self.drain(&client, &drive, false).await;
                }
                _ => {
                    let index = self.random.below(u64::try_from(self.drives.len()).unwrap_or(1));
                    let drive = self.drives[usize::try_from(index).unwrap_or(0)].clone();
                    if self.drain(&client, &drive, true).await {
                        drained = Some(drive);
                    }
                }
            }
        }
    }

    async fn drain(&self, client: &Client, drive: &str, drain: bool) -> bool {
        let what = if drain { "is drained" } else { "is not drained any more" };
        match client.drain_drive(drive, drain).await {
            Ok(reply) => {
                self.trace.event(format!("{drive} {what}: {} components on it", reply.components));
                self.trace.count(if drain { "drains" } else { "drains ended" });
                true
            }
            Err(error) => {
                self.trace.event(format!("{drive} {what}, or not: {error}"));
                false
            }
        }
    }
}

/// An operator who has files laid out anew.
pub(crate) struct Relayer {
    pub(crate) contact: Contact,
    pub(crate) targets: Vec<Target>,
    pub(crate) random: Random,
    pub(crate) trace: Trace,
    pub(crate) stop: Arc<AtomicBool>,
}

impl Relayer {
    /// Has a file laid out anew now and then, until told to stop.
    pub(crate) async fn operate(mut self) {
        let client = connected(&self.contact).await;
        loop {
            sleep(Duration::from_millis(200 + self.random.below(PAUSE_MS))).await;
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let index = self.random.below(u64::try_from(self.targets.len()).unwrap_or(1));
            let target = &self.targets[usize::try_from(index).unwrap_or(0)];
            let shape = self.random.one(&shapes_for(target)).filter(|_| self.random.percent(85));
            let wanted = shape.map_or("as it is".to_owned(), |shape| shape.to_string());
            match client.relayout(&target.name, shape).await {
                Ok(reply) => {
                    self.trace.event(format!("{} is to be {wanted}: {}", target.name, reply.begun));
                    self.trace.count("relayouts");
                }
                Err(error) => {
                    self.trace.event(format!("{} is to be {wanted}, or not: {error}", target.name));
                }
            }
        }
    }
}

/// Shapes in which the file survives as many lost drives, and whose stripes and units are multiples of
/// those that it was made with: so a write that is all or none in a stripe stays so.
fn shapes_for(target: &Target) -> Vec<Shape> {
    let k = target.shape.k();
    let m = target.shape.m();
    let unit = target.shape.unit_bytes();
    let kinds = [
        (Scheme::Raid1, 1),
        (Scheme::Raid4, 2),
        (Scheme::Raid5, 2),
        (Scheme::Raid5, 4),
        (Scheme::Rs, 2),
        (Scheme::Rs, 3),
        (Scheme::Rs, 4),
    ];
    let mut shapes = vec![target.shape];
    for (scheme, other_k) in kinds {
        for unit_bytes in [unit, 2 * unit, 4 * unit] {
            let old = u64::from(unit) * u64::from(k);
            let new = u64::from(unit_bytes) * u64::from(other_k);
            if let Ok(shape) = Shape::new(scheme, other_k, m, unit_bytes)
                && new.is_multiple_of(old)
            {
                shapes.push(shape);
            }
        }
    }
    shapes
}

pub(crate) async fn connected(contact: &Contact) -> Client {
    loop {
        match Client::connect(workload::config(contact)).await {
            Ok(client) => return client,
            Err(_) => sleep(Duration::from_millis(500)).await,
        }
    }
}
