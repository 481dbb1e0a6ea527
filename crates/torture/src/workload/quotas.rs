//! A quota over all files: what there is never goes beyond it, and nobody is refused who is within it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use braid_client::{Client, Error, Name};
use braid_wire::Reason;
use tokio::time::sleep;

use crate::cluster::Contact;
use crate::model::Model;
use crate::operator::connected;
use crate::random::Random;
use crate::trace::Trace;
use crate::workload::Target;

/// Pause between two looks at what the manager counts.
const LOOK: Duration = Duration::from_millis(1500);
/// Number of looks, a second apart, until what is counted at the end is what is there.
const TRIES: u32 = 60;

/// The quota of the volume, and how far each file was ever asked to grow: the sum is never less than what
/// counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Quota(Option<Arc<Asked>>);

#[derive(Debug)]
struct Asked {
    limit: u64,
    ends: Mutex<BTreeMap<usize, u64>>,
}

fn root() -> Name {
    "braid://main".parse().expect("a good name")
}

impl Quota {
    /// Draws a quota: mostly one that is too small for all files at their longest.
    pub(crate) fn draw(random: &mut Random, targets: &[Target]) -> Quota {
        let all: u64 = targets.iter().map(|target| target.length).sum();
        let percent = if random.percent(30) { 100 } else { 15 + random.below(50) };
        Quota(Some(Arc::new(Asked { limit: all * percent / 100, ends: Mutex::default() })))
    }

    /// Sets the quota, if there is one.
    pub(crate) async fn set(&self, client: &Client) -> braid_client::Result<()> {
        match &self.0 {
            Some(asked) => client.set_quota(&root(), None, asked.limit.max(1), 0).await,
            None => Ok(()),
        }
    }

    /// Notes that a file is to have bytes up to `end`.
    pub(crate) fn wants(&self, file: usize, end: u64) {
        let Some(asked) = &self.0 else { return };
        let mut ends = asked.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let most = ends.entry(file).or_default();
        *most = end.max(*most);
    }

    /// Judges an error: within the quota nobody is refused for it.
    pub(crate) fn judge(&self, error: &Error, model: &Model, trace: &Trace) {
        let Some(asked) = self.0.as_ref().filter(|_| error.reason() == Some(Reason::Quota)) else { return };
        trace.count("refused for a quota");
        let sum: u64 = asked.ends.lock().unwrap_or_else(PoisonError::into_inner).values().sum();
        if sum <= asked.limit && model.knows_past() {
            model
                .fail(format!("within the quota of {}, at most {sum} being asked for: {error}", asked.limit));
        }
    }

    /// Looks at what the manager counts, until told to stop.
    pub(crate) async fn watch(self, contact: Contact, model: Model, stop: Arc<AtomicBool>) {
        let client = connected(&contact).await;
        while !stop.load(Ordering::Relaxed) && model.knows_past() {
            if let Ok(bytes) = counted(&client).await {
                self.must_hold(bytes, &model);
            }
            sleep(LOOK).await;
        }
    }

    fn must_hold(&self, bytes: u64, model: &Model) {
        let limit = self.0.as_ref().map_or(u64::MAX, |asked| asked.limit.max(1));
        if bytes > limit && model.knows_past() {
            model.fail(format!("{bytes} bytes count, and the quota is {limit}"));
        }
    }

    /// Checks that what counts is what is there, and no more than may be. Nobody writes any more.
    pub(crate) async fn check(
        &self,
        client: &Client,
        targets: &[Target],
        model: &Model,
    ) -> Result<(), String> {
        if self.0.is_none() || !model.knows_past() {
            return Ok(());
        }
        let mut last = String::new();
        for _ in 0..TRIES {
            let mut there = 0;
            for target in targets {
                there += client.stat(&target.name).await.map_err(|error| error.to_string())?.size();
            }
            self.must_hold(there, model);
            match counted(client).await {
                Ok(bytes) if bytes == there => return Ok(()),
                Ok(bytes) => last = format!("{bytes} bytes count, and {there} are there"),
                Err(error) => last = error.to_string(),
            }
            sleep(Duration::from_secs(1)).await;
        }
        Err(format!("the quota is not right: {last}"))
    }
}

async fn counted(client: &Client) -> braid_client::Result<u64> {
    let rows = client.quotas(Some("main")).await?;
    Ok(rows.first().map_or(0, |row| row.bytes))
}
