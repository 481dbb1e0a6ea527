//! Keeping what the manager told: it says when others change it.
//!
//! While a client watches, what it looks up and lists is watched by the manager. A task asks for news all the
//! time, which also renews the client's lease on what it keeps. Whoever keeps something drops it when news of it
//! come, and keeps nothing while the lease is not live. News that are not heeded hold up those who made the
//! changes, for a while.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use braid_layout::FileId;
use braid_wire::control::{ControlReply, News, Watch};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::client::{Client, unexpected};
use crate::error::Result;

/// How long the manager waits for news before it answers that there are none.
const WAIT: Duration = Duration::from_millis(1000);
/// Bound of an answer beyond that.
const ANSWER_MAX: Duration = Duration::from_millis(1500);
/// Pause after a request that failed.
const PAUSE: Duration = Duration::from_millis(200);
/// The lease is taken for over so much earlier: clocks of two machines do not run equally fast.
const MARGIN: Duration = Duration::from_millis(100);

/// Watches until it is dropped.
#[derive(Debug)]
pub struct Watching {
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct State {
    seen: u64,
    heeded: u64,
    open: Vec<FileId>,
    closed: Vec<FileId>,
    live_until: Option<Instant>,
}

impl Client {
    /// Watches from now on what is looked up and listed. News come in order; what they concern is to be dropped,
    /// and then [`Watching::heed`] called with their number.
    pub fn watch(&self) -> (Watching, mpsc::UnboundedReceiver<News>) {
        let state = Arc::new(Mutex::new(State::default()));
        let (tell, news) = mpsc::unbounded_channel();
        self.shared.watches.store(true, Ordering::Release);
        let task = tokio::spawn(run(self.clone(), Arc::clone(&state), tell));
        (Watching { state, task }, news)
    }

    async fn news(&self, request: Watch) -> Result<News> {
        let subject = "what others change";
        match self.shared.control.watch(subject, request, WAIT + ANSWER_MAX).await? {
            ControlReply::News(news) => Ok(news),
            other => Err(unexpected(subject, &other)),
        }
    }
}

impl Watching {
    /// Whether what was told, and not changed as far as the news say, may be kept.
    pub fn is_live(&self) -> bool {
        self.lock().live_until.is_some_and(|until| Instant::now() < until)
    }

    /// News up to this number are heeded. Of what they concern, these files are open here: they live on until
    /// they are closed, even if they have lost their names. Of news of everything: all that live so.
    pub fn heed(&self, number: u64, open: impl IntoIterator<Item = FileId>) {
        let mut state = self.lock();
        state.heeded = state.heeded.max(number);
        state.open.extend(open);
    }

    /// A file that was said to be open is open no more.
    pub fn closed(&self, file: FileId) {
        let mut state = self.lock();
        state.open.retain(|open| *open != file);
        state.closed.push(file);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(client: Client, state: Arc<Mutex<State>>, tell: mpsc::UnboundedSender<News>) {
    loop {
        let asked_at = Instant::now();
        let request = lock(&state).request(client.shared.number);
        let (opens, closes) = (request.open.len(), request.closed.len());
        match client.news(request).await {
            Ok(news) => {
                let is_new = lock(&state).hear(&news, asked_at, (opens, closes));
                if is_new && tell.send(news).is_err() {
                    return; // nobody listens any more
                }
            }
            Err(error) => {
                tracing::debug!(%error, "no news for now");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn request(&self, client: u64) -> Watch {
        let &State { seen, heeded, .. } = self;
        let (open, closed) = (self.open.clone(), self.closed.clone());
        let wait_ms = u32::try_from(WAIT.as_millis()).unwrap_or(u32::MAX);
        Watch { client, seen, heeded, open, closed, wait_ms }
    }

    /// An answer to a request with so many files. Returns whether it has news that were not heard before.
    fn hear(&mut self, news: &News, asked_at: Instant, (opens, closes): (usize, usize)) -> bool {
        self.open.drain(..opens.min(self.open.len()));
        self.closed.drain(..closes.min(self.closed.len()));
        let lease = Duration::from_millis(u64::from(news.lease_ms));
        if let Some(lease) = lease.checked_sub(MARGIN) {
            self.live_until = Some(asked_at + lease);
        }
        let is_new = news.number > self.seen;
        self.seen = self.seen.max(news.number);
        if is_new && news.everything {
            // Not before it is heeded: what is kept is of before.
            self.live_until = None;
        }
        is_new
    }
}
