//! Caching of the manager's answers: the manager tells a watching client when others change what it caches.
//!
//! While a client watches, the manager watches what the client looks up and lists. A task asks for news all
//! the time, which also renews the client's lease on its cached answers. A program that caches something
//! drops it when news of it come, and caches nothing while the lease is not live. News that are not heeded
//! delay the clients that made the changes, for a while.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_layout::{ClientId, FileId};
use braid_transport::host::boot_ms;
use braid_wire::control::{ControlReply, News, Watch};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use crate::client::{Client, unexpected};
use crate::error::Result;

/// Time for which the manager waits for news before it answers that there are none.
const WAIT: Duration = Duration::from_millis(1000);
/// Further time for the answer itself.
const ANSWER_MAX: Duration = Duration::from_millis(1500);
/// Maximum number of news queued for the program. While the queue is full no news are requested, and the
/// lease lapses.
const NEWS_MAX: usize = 64;
/// Longest delay of the next request until news are heeded, so that the request can tell so.
const HEED_MAX: Duration = Duration::from_millis(100);
/// Time within which closed files are gathered for one request.
const GATHER: Duration = Duration::from_millis(100);
/// Pause after a request that failed.
const PAUSE: Duration = Duration::from_millis(200);
/// Safety margin in milliseconds by which the lease ends earlier for this client: the clocks of two machines
/// do not run equally fast.
const MARGIN_MS: u32 = 100;
/// Maximum number of files that a request names as open, and likewise as closed.
const FILES_MAX: usize = 1 << 15;

/// A watch of the client, which ends when it is dropped.
#[derive(Debug)]
pub struct Watching {
    state: Arc<Mutex<State>>,
    /// Wakes the task to send a request at once.
    say: Arc<Notify>,
    /// Wakes the task to send a request after [`GATHER`].
    gather: Arc<Notify>,
    /// Wakes callers when the manager has answered a request.
    heard: Arc<Notify>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the last request.
    order: u64,
    seen: u64,
    heeded: u64,
    /// Number up to which the manager knows that news are heeded.
    told: u64,
    written: u64,
    /// Files to report as open, each with the number of the last request before the report was made.
    open: BTreeMap<FileId, u64>,
    closed: BTreeMap<FileId, u64>,
    /// End of the lease, in milliseconds since boot, on a clock that also runs in suspend.
    live_until_ms: u64,
}

/// The reports that a request carries.
struct Said {
    order: u64,
    heeded: u64,
    open: Vec<FileId>,
    closed: Vec<FileId>,
}

impl Client {
    /// Watches from now on what is looked up and listed. News come in order; the caller must drop what they
    /// concern, and then call [`Watching::heed`] with their number.
    pub fn watch(&self) -> (Watching, mpsc::Receiver<News>) {
        let state = Arc::new(Mutex::new(State::default()));
        let (tell, news) = mpsc::channel(NEWS_MAX);
        self.shared.watches.store(true, Ordering::Release);
        let [say, gather, heard] = [(); 3].map(|()| Arc::new(Notify::new()));
        let ways = [&say, &gather, &heard].map(Arc::clone);
        let task = tokio::spawn(run(self.clone(), Arc::clone(&state), ways, tell));
        (Watching { state, say, gather, heard, task }, news)
    }

    async fn news(&self, request: Watch) -> Result<News> {
        let subject = "changes made by other clients";
        match self.shared.control.watch(subject, request, WAIT + ANSWER_MAX).await? {
            ControlReply::News(news) => Ok(news),
            other => Err(unexpected(subject, &other)),
        }
    }
}

impl Watching {
    /// Returns true if answers of the manager may be cached, unless news tell of their change.
    pub fn is_live(&self) -> bool {
        !self.live_for().is_zero()
    }

    /// Shortest time for which answers may still be cached.
    pub fn live_for(&self) -> Duration {
        Duration::from_millis(self.lock().live_until_ms.saturating_sub(boot_ms()))
    }

    /// Reports that news up to this number are heeded. `open`: of the files that the news concern, those that
    /// are open here; they live on until they are closed, even if they have lost their names. For news of
    /// everything: all files that are open here.
    pub fn heed(&self, number: u64, open: impl IntoIterator<Item = FileId>) {
        let mut state = self.lock();
        state.heeded = state.heeded.max(number);
        let order = state.order;
        for file in open {
            state.closed.remove(&file);
            state.open.insert(file, order);
        }
        drop(state);
        self.say.notify_one();
    }

    /// Reports that the files recalled by news up to this number are written out.
    pub fn written(&self, number: u64) {
        let mut state = self.lock();
        state.written = state.written.max(number);
        drop(state);
        self.say.notify_one();
    }

    /// Reports that a file is not open any more.
    pub fn closed(&self, file: FileId) {
        let mut state = self.lock();
        let order = state.order;
        state.open.remove(&file);
        state.closed.insert(file, order);
        drop(state);
        self.gather.notify_one();
    }

    /// Waits until the manager has been told that a file was closed, if it was: requests about the file then
    /// count as later than the close.
    pub async fn until_said(&self, file: FileId) {
        loop {
            let heard = self.heard.notified();
            let mut heard = std::pin::pin!(heard);
            heard.as_mut().enable();
            if !self.lock().closed.contains_key(&file) {
                return;
            }
            self.say.notify_one();
            heard.await;
        }
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

async fn run(
    client: Client,
    state: Arc<Mutex<State>>,
    [say, gather, heard]: [Arc<Notify>; 3],
    tell: mpsc::Sender<News>,
) {
    let to_say = async || {
        tokio::select! {
            () = say.notified() => {}
            () = async { gather.notified().await; tokio::time::sleep(GATHER).await } => {}
        }
    };
    loop {
        let asked_at_ms = boot_ms();
        let (request, said) = lock(&state).request(client.shared.number);
        // Reports are sent at once, on another session: the present one waits for news.
        let (asked_at_ms, said, answer) = tokio::select! {
            answer = client.news(request) => (asked_at_ms, said, answer),
            () = to_say() => {
                let asked_at_ms = boot_ms();
                let (request, said) = lock(&state).request(client.shared.number);
                (asked_at_ms, said, client.news(Watch { wait_ms: 0, ..request }).await)
            }
        };
        match answer {
            Ok(news) => {
                let is_new = lock(&state).hear(&news, asked_at_ms, &said);
                heard.notify_waiters();
                if is_new {
                    if tell.send(news).await.is_err() {
                        return; // nobody listens any more
                    }
                    // The next request should tell that these news are heeded.
                    let _ = tokio::time::timeout(HEED_MAX, say.notified()).await;
                }
                if lock(&state).has_more() {
                    say.notify_one();
                }
            }
            Err(error) => {
                tracing::debug!(%error, "the manager cannot be asked for changes made by other clients; trying again");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn request(&mut self, client: ClientId) -> (Watch, Said) {
        self.order += 1;
        let some = |of: &BTreeMap<FileId, u64>| of.keys().copied().take(FILES_MAX).collect::<Vec<_>>();
        let open = some(&self.open);
        let closed = some(&self.closed);
        let &mut State { order, seen, written, .. } = self;
        // News count as heeded only when all open files that they concern are reported.
        let heeded = if open.len() < self.open.len() { self.told } else { self.heeded };
        let wait_ms = u32::try_from(WAIT.as_millis()).unwrap_or(u32::MAX);
        let said = Said { order, heeded, open: open.clone(), closed: closed.clone() };
        (Watch { client, order, seen, heeded, written, open, closed, wait_ms }, said)
    }

    /// Returns true if there are more reports than fitted into a request.
    fn has_more(&self) -> bool {
        !self.open.is_empty() || !self.closed.is_empty() || self.told < self.heeded
    }

    /// Takes the answer to a request. Returns true if it has news that were not received before.
    fn hear(&mut self, news: &News, asked_at_ms: u64, said: &Said) -> bool {
        let forget = |of: &mut BTreeMap<FileId, u64>, files: &[FileId]| {
            let is_said = |file: &&FileId| of.get(file).is_some_and(|order| *order < said.order);
            let files: Vec<FileId> = files.iter().filter(is_said).copied().collect();
            for file in files {
                of.remove(&file);
            }
        };
        forget(&mut self.open, &said.open);
        forget(&mut self.closed, &said.closed);
        self.told = self.told.max(said.heeded);
        let is_new = news.number > self.seen;
        self.seen = self.seen.max(news.number);
        if news.lease_ms > MARGIN_MS {
            self.live_until_ms = asked_at_ms + u64::from(news.lease_ms - MARGIN_MS);
        }
        if news.everything && news.number > self.heeded {
            // The lease is live again only when these news are heeded: all that is cached is older.
            self.live_until_ms = 0;
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn news(number: u64) -> News {
        News { number, lease_ms: 3000, everything: false, changed: Vec::new(), recalled: Vec::new() }
    }

    #[test]
    fn what_is_said_anew_while_a_request_is_under_way_is_said_again() {
        let mut state = State::default();
        let [a, b] = [1, 2].map(FileId);
        state.open.extend([(a, 0), (b, 0)]);
        let (request, said) = state.request(ClientId(7));
        assert_eq!((request.order, request.open.as_slice()), (1, &[a, b][..]));
        // News of file `a` are heeded again, and file `b` is closed.
        state.open.insert(a, state.order);
        state.open.remove(&b);
        state.closed.insert(b, state.order);
        state.hear(&news(0), 0, &said);
        assert_eq!((state.open.contains_key(&a), state.open.contains_key(&b)), (true, false));
        let (request, said) = state.request(ClientId(7));
        assert_eq!((request.closed.as_slice(), request.open.as_slice()), (&[b][..], &[a][..]));
        state.hear(&news(0), 0, &said);
        assert!(!state.has_more());
    }

    #[test]
    fn news_count_as_heeded_when_all_is_said_that_is_open() {
        let mut state = State { heeded: 5, ..State::default() };
        state.open.extend((0..=FILES_MAX as u64).map(|file| (FileId(file), 0)));
        let (request, said) = state.request(ClientId(7));
        assert_eq!((request.heeded, request.open.len()), (0, FILES_MAX));
        state.hear(&news(0), 0, &said);
        assert!(state.has_more());
        let (request, said) = state.request(ClientId(7));
        assert_eq!((request.heeded, request.open.len()), (5, 1));
        state.hear(&news(0), 0, &said);
        assert!(!state.has_more());
    }
}
