//! An operator who turns keys during the trouble.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use braid_client::Client;
use braid_wire::control::{KeyTurning, KeysReply};
use tokio::time::sleep;

use crate::cluster::Contact;
use crate::operator::connected;
use crate::random::Random;
use crate::trace::Trace;

/// Longest pause between two turns.
const PAUSE_MS: u64 = 8_000;
/// Longest time, in virtual seconds, until all drives have heard of all turns at the end.
const HEARD_SECONDS: u64 = 60;

pub(crate) struct KeyTurner {
    pub(crate) contact: Contact,
    /// Names of the drives whose own keys are turned. None where the manager's state may be put back: the
    /// drives with newer keys would have to join anew.
    pub(crate) drives: Vec<String>,
    pub(crate) random: Random,
    pub(crate) trace: Trace,
    pub(crate) stop: Arc<AtomicBool>,
}

impl KeyTurner {
    /// Turns the volume's keys or a drive's now and then, until told to stop.
    pub(crate) async fn operate(mut self) {
        let client = connected(&self.contact).await;
        loop {
            sleep(Duration::from_millis(200 + self.random.below(PAUSE_MS))).await;
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let at_once = self.random.percent(70);
            let index = self.random.below(u64::try_from(self.drives.len()).unwrap_or(0).max(1));
            let drive = self.drives.get(usize::try_from(index).unwrap_or(0)).cloned();
            let drive = drive.filter(|_| self.random.percent(60));
            let (of, name, counted) = match &drive {
                Some(drive) => (KeyTurning::Drive, drive.as_str(), "turns of drives' keys"),
                None => (KeyTurning::Volume, "main", "turns of volumes' keys"),
            };
            match client.rotate_keys(of, name, at_once).await {
                Ok(()) => {
                    self.trace.event(format!("the keys of {name} are turned (at once: {at_once})"));
                    self.trace.count(counted);
                }
                Err(error) => self.trace.event(format!("the keys of {name} are turned, or not: {error}")),
            }
        }
    }
}

/// Waits until all drives have heard of all turns.
pub(crate) async fn check(client: &Client) -> Result<(), String> {
    let mut last = String::new();
    for _ in 0..HEARD_SECONDS {
        match client.keys().await {
            Ok(keys) => match unheard(&keys) {
                None => return Ok(()),
                Some(unheard) => last = unheard,
            },
            Err(error) => last = error.to_string(),
        }
        sleep(Duration::from_secs(1)).await;
    }
    Err(format!("keys are not turned everywhere: {last}"))
}

fn unheard(keys: &KeysReply) -> Option<String> {
    let behind = keys.volumes.iter().find(|row| !row.behind.is_empty());
    let behind = behind.map(|row| format!("{} have not heard of epoch {}", row.behind.join(", "), row.epoch));
    let turning = keys.drives.iter().find(|row| row.is_turning);
    behind.or_else(|| turning.map(|row| format!("{} has key {} and is to turn it", row.name, row.number)))
}
