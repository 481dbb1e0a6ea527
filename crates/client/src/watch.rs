//! Keeping what the manager told: it says when others change it.
//!
//! While a client watches, what it looks up and lists is watched by the manager. A task asks for news all the
//! time, which also renews the client's lease on what it keeps. Whoever keeps something drops it when news of
//! it come, and keeps nothing while the lease is not live. News that are not heeded hold up those who made
//! the changes, for a while.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use braid_layout::FileId;
use braid_wire::control::{ControlReply, News, Watch};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use crate::client::{Client, unexpected};
use crate::error::Result;

/// How long the manager waits for news before it answers that there are none.
const WAIT: Duration = Duration::from_millis(1000);
/// Bound of an answer beyond that.
const ANSWER_MAX: Duration = Duration::from_millis(1500);
/// News that wait to be heard. While there are more none are asked for, and the lease lapses.
const NEWS_MAX: usize = 64;
/// How long the next request waits for news to be heeded, so that it can say so.
const HEED_MAX: Duration = Duration::from_millis(100);
/// Pause after a request that failed.
const PAUSE: Duration = Duration::from_millis(200);
/// The lease is taken for over so much earlier: clocks of two machines do not run equally fast.
const MARGIN: Duration = Duration::from_millis(100);

/// Watches until it is dropped.
#[derive(Debug)]
pub struct Watching {
    state: Arc<Mutex<State>>,
    /// There is something to say before the next news.
    say: Arc<Notify>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct State {
    seen: u64,
    heeded: u64,
    written: u64,
    open: Vec<FileId>,
    closed: Vec<FileId>,
    live_until: Option<Instant>,
}

impl Client {
    /// Watches from now on what is looked up and listed. News come in order; what they concern is to be
    /// dropped, and then [`Watching::heed`] called with their number.
    pub fn watch(&self) -> (Watching, mpsc::Receiver<News>) {
        let state = Arc::new(Mutex::new(State::default()));
        let (tell, news) = mpsc::channel(NEWS_MAX);
        self.shared.watches.store(true, Ordering::Release);
        let say = Arc::new(Notify::new());
        let task = tokio::spawn(run(self.clone(), Arc::clone(&state), Arc::clone(&say), tell));
        (Watching { state, say, task }, news)
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
        drop(state);
        self.say.notify_one();
    }

    /// What news up to this number recall is written out.
    pub fn written(&self, number: u64) {
        let mut state = self.lock();
        state.written = state.written.max(number);
        drop(state);
        self.say.notify_one();
    }

    /// A file that was said to be open is open no more.
    pub fn closed(&self, file: FileId) {
        let mut state = self.lock();
        state.open.retain(|open| *open != file);
        state.closed.push(file);
        drop(state);
        self.say.notify_one();
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

async fn run(client: Client, state: Arc<Mutex<State>>, say: Arc<Notify>, tell: mpsc::Sender<News>) {
    loop {
        let asked_at = Instant::now();
        let request = lock(&state).request(client.shared.number);
        let said = (request.open.len(), request.closed.len());
        // What there is to say goes at once, on a session of its own: this one waits for news.
        let answer = tokio::select! {
            answer = client.news(request) => answer,
            () = say.notified() => {
                let request = Watch { wait_ms: 0, ..lock(&state).request(client.shared.number) };
                let said = (request.open.len(), request.closed.len());
                let asked_at = Instant::now();
                match client.news(request).await {
                    Ok(news) if !lock(&state).hear(&news, asked_at, said) => continue,
                    Ok(news) => {
                        if tell.send(news).await.is_err() {
                            return;
                        }
                        continue;
                    }
                    Err(error) => Err(error),
                }
            }
        };
        match answer {
            Ok(news) => {
                let is_new = lock(&state).hear(&news, asked_at, said);
                if is_new {
                    if tell.send(news).await.is_err() {
                        return; // nobody listens any more
                    }
                    // The next request is to say that they are heeded.
                    let _ = tokio::time::timeout(HEED_MAX, say.notified()).await;
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
        let &State { seen, heeded, written, .. } = self;
        let (open, closed) = (self.open.clone(), self.closed.clone());
        let wait_ms = u32::try_from(WAIT.as_millis()).unwrap_or(u32::MAX);
        Watch { client, seen, heeded, written, open, closed, wait_ms }
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
        if news.everything && news.number > self.heeded {
            // Not before it is heeded: what is kept is of before.
            self.live_until = None;
        }
        is_new
    }
}
