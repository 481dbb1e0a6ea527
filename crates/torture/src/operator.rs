//! What an operator does while things go wrong: drives are drained, and drains are ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use braid_client::Client;
use tokio::time::sleep;

use crate::cluster::Contact;
use crate::random::Random;
use crate::trace::Trace;
use crate::workload;

/// Between two things that it does, at most.
const PAUSE_MS: u64 = 6_000;

/// What an operator knows of the run.
pub(crate) struct Operator {
    pub(crate) contact: Contact,
    /// The drives' names.
    pub(crate) drives: Vec<String>,
    pub(crate) random: Random,
    pub(crate) trace: Trace,
    pub(crate) stop: Arc<AtomicBool>,
}

impl Operator {
    /// Does something now and then, until it is told to stop.
    pub(crate) async fn operate(mut self) {
        let client = loop {
            match Client::connect(workload::config(&self.contact)).await {
                Ok(client) => break client,
                Err(_) => sleep(Duration::from_millis(500)).await,
            }
        };
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
