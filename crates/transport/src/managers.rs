//! The addresses of a cluster's managers, and the search for the one that leads.
//!
//! The manager that led last is tried first. One that stands by refuses, and names the leader if it knows it:
//! that one is tried next. A manager that does not answer within [`PASS_OVER`] is passed over: the next is
//! tried while its answer is still awaited, so neither a dead host nor a slow leader holds the search up. A
//! manager whose certificate is of another authority is refused, and the others are still tried.
//!
//! A search that finds nobody ends when no answer is awaited any more, so it takes as long as one connection
//! may. The caller then tries again after a pause, as for a single manager that is away.
//!
//! Managers tell the list in each session ([`Welcome`](braid_wire::control::Welcome)). That list replaces the
//! one that was told at first, which is only tried when all others were.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_layout::ClusterId;
use braid_wire::control::managers_mark;
use braid_wire::token::Pin;
use braid_wire::{Reason, Refusal};
use tokio::task::JoinSet;

use crate::control_session::{ControlSession, Credentials};
use crate::error::{Result, TransportError};
use crate::limits::Limits;

/// Maximum number of managers in a list.
pub const MANAGERS_MAX: usize = 16;
/// Time after which the next manager is tried as well.
const PASS_OVER: Duration = Duration::from_millis(500);
/// Time after which managers without a leader should be asked again, in milliseconds.
const AGAIN_MS: u64 = 250;

/// The managers of a cluster. Copies share what is learned.
#[derive(Clone)]
pub struct Managers(Arc<Mutex<Known>>);

#[derive(Debug)]
struct Known {
    /// The addresses that were told at first.
    told: Vec<String>,
    /// The addresses that a manager told; empty: none has.
    learned: Vec<String>,
    /// The addresses that were known before the present list was told.
    remembered: Vec<String>,
    /// The manager that led last; empty: none was found yet.
    leading: String,
    /// Addresses at which another cluster's manager, or no manager, was found and logged.
    wrong: BTreeSet<String>,
}

/// Reason for which a text is no list of managers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadManagers {
    /// The list is empty.
    #[error("no manager's address is given: write HOST:PORT, and commas between several")]
    None,
    /// An entry is not an address that can be connected to.
    #[error("{0:?} is not the address of a manager: write HOST:PORT, and commas between several")]
    Unreadable(String),
    /// Two entries are the same.
    #[error("the manager {0} is given twice: write each address once")]
    Twice(String),
    /// More entries than a cluster may have managers.
    #[error("{0} managers are given, and a cluster has at most {MANAGERS_MAX}")]
    TooMany(usize),
}

impl Managers {
    fn of(told: Vec<String>) -> Managers {
        let (learned, remembered, leading, wrong) = Default::default();
        Managers(Arc::new(Mutex::new(Known { told, learned, remembered, leading, wrong })))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The addresses: those that a manager told, else those told at first.
    pub fn addresses(&self) -> Vec<String> {
        let known = self.lock();
        if known.learned.is_empty() { known.told.clone() } else { known.learned.clone() }
    }

    /// The manager that led last, else the first of the list. For messages.
    pub fn leading(&self) -> String {
        self.lock().order().next().unwrap_or_default()
    }

    /// Returns true if the cluster has several managers, as far as is known.
    pub fn are_several(&self) -> bool {
        self.lock().order().nth(1).is_some()
    }

    /// Returns true if both have the same addresses, in any order.
    pub fn is_same_list(&self, other: &Managers) -> bool {
        managers_mark(&self.addresses()) == managers_mark(&other.addresses())
    }

    /// This list, told anew at a later start to somebody who remembers `before`. The told managers are tried
    /// first. But the list may be as old as the first start, and they may be gone: the remembered ones are
    /// tried after them.
    pub fn with_remembered(self, before: &Managers) -> Managers {
        let remembered = before.addresses();
        self.lock().remembered = remembered;
        self
    }

    /// A session was begun at this address, whose manager leads and told this list.
    fn handle_leader(&self, address: &str, list: &[String]) {
        let mut known = self.lock();
        address.clone_into(&mut known.leading);
        let mut seen = BTreeSet::new();
        let is_good = |entry: &&String| is_address(entry) && seen.insert((*entry).clone());
        let mut list: Vec<String> = list.iter().filter(is_good).take(MANAGERS_MAX).cloned().collect();
        if list.is_empty() {
            // A manager that is alone tells no list: it is where it was found.
            list.push(address.to_owned());
        }
        if list != known.learned {
            if managers_mark(&list) != managers_mark(&known.learned) {
                tracing::debug!(managers = %list.join(","), "the list of managers");
            }
            known.learned = list;
        }
    }

    /// Returns true if the managers that were told are all among these, which are another cluster's. Those
    /// that are only remembered are for when the told ones are away: the list itself is wrong.
    fn are_told_wrong(&self, wrong: &BTreeSet<String>) -> bool {
        let known = self.lock();
        known.learned.is_empty() && known.told.iter().all(|address| wrong.contains(address))
    }

    /// Logs once that the manager at an address of the list is not one of the cluster's.
    fn handle_wrong(&self, address: &str, error: &TransportError) {
        if self.are_several() && self.lock().wrong.insert(address.to_owned()) {
            tracing::warn!(%error, "not a manager of this cluster, and passed over");
        }
    }
}

impl Known {
    /// The addresses in the order in which they are to be tried.
    fn order(&self) -> impl Iterator<Item = String> + use<'_> {
        let leading = (!self.leading.is_empty()).then_some(&self.leading);
        let mut seen = BTreeSet::new();
        let all = leading.into_iter().chain(&self.learned).chain(&self.told).chain(&self.remembered);
        all.filter(move |address| seen.insert(address.as_str())).cloned()
    }
}

impl From<&str> for Managers {
    /// One manager, at this address.
    fn from(address: &str) -> Managers {
        Managers::of(vec![address.to_owned()])
    }
}

impl From<String> for Managers {
    fn from(address: String) -> Managers {
        Managers::of(vec![address])
    }
}

impl From<&String> for Managers {
    fn from(address: &String) -> Managers {
        Managers::of(vec![address.clone()])
    }
}

impl FromStr for Managers {
    type Err = BadManagers;

    /// A list of addresses with commas between.
    fn from_str(text: &str) -> std::result::Result<Managers, BadManagers> {
        let list: Vec<String> = text.split(',').map(|entry| entry.trim().to_owned()).collect();
        if list.iter().all(String::is_empty) {
            return Err(BadManagers::None);
        }
        if list.len() > MANAGERS_MAX {
            return Err(BadManagers::TooMany(list.len()));
        }
        for (at, entry) in list.iter().enumerate() {
            if !is_address(entry) {
                return Err(BadManagers::Unreadable(entry.clone()));
            }
            if list[..at].contains(entry) {
                return Err(BadManagers::Twice(entry.clone()));
            }
        }
        Ok(Managers::of(list))
    }
}

/// Returns true for `HOST:PORT` with both parts. The host may be one that cannot be resolved now.
fn is_address(entry: &str) -> bool {
    let Some((host, port)) = entry.rsplit_once(':') else { return false };
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && !host.contains([':', '/', '[', ']', '"'])
                && !host.contains(char::is_whitespace)
        }
    };
    is_host
        && port.bytes().all(|byte| byte.is_ascii_digit())
        && port.parse::<u16>().is_ok_and(|port| port > 0)
}

impl fmt::Display for Managers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.addresses().join(","))
    }
}

impl fmt::Debug for Managers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.addresses(), f)
    }
}

/// One search for the leader: the choice of the manager that is tried next.
#[derive(Debug, Default)]
struct Search {
    /// Managers that have not been tried.
    waiting: VecDeque<String>,
    /// Managers whose answer is awaited.
    asked: BTreeSet<String>,
    /// Managers that stand by.
    standing_by: VecDeque<String>,
    /// Managers that failed, or are others'.
    failed: BTreeSet<String>,
}

impl Search {
    fn new(order: impl Iterator<Item = String>) -> Search {
        Search { waiting: order.collect(), ..Search::default() }
    }

    /// The next manager to try.
    fn next(&mut self) -> Option<String> {
        let next = self.waiting.pop_front()?;
        self.asked.insert(next.clone());
        Some(next)
    }

    /// The manager at this address stands by, and says that the one at `leader` leads; empty: it knows of
    /// none.
    fn handle_standing_by(&mut self, address: &str, leader: &str) {
        self.asked.remove(address);
        self.standing_by.push_back(address.to_owned());
        let is_new = !self.asked.contains(leader)
            && !self.failed.contains(leader)
            && !self.standing_by.iter().any(|other| other == leader);
        let tried = self.asked.len() + self.failed.len() + self.standing_by.len();
        if is_address(leader) && is_new && tried < 2 * MANAGERS_MAX {
            self.waiting.retain(|other| other != leader);
            self.waiting.push_front(leader.to_owned());
        }
    }

    /// The manager at this address cannot be used in this search.
    fn handle_failure(&mut self, address: &str) {
        self.asked.remove(address);
        self.failed.insert(address.to_owned());
    }

    /// Nothing was heard for [`PASS_OVER`]: if all were tried, those that stand by are asked again, as one of
    /// them may lead by now.
    fn handle_silence(&mut self) {
        if self.waiting.is_empty() {
            self.waiting.append(&mut self.standing_by);
        }
    }
}

/// Value of an error as the answer of a whole search: the highest is told. An answer of the cluster is worth
/// more than silence, and a manager that may come back more than another cluster's.
fn worth(error: &TransportError) -> u8 {
    match error {
        TransportError::Refusal(_) => 2,
        TransportError::WrongPeer { .. } | TransportError::Forged { .. } | TransportError::Tls { .. } => 0,
        _ => 1,
    }
}

/// Returns true if another manager may answer in the place of one that refused for this reason.
fn others_may_answer(refusal: &Refusal) -> bool {
    matches!(refusal.reason, Reason::NotLeading | Reason::Busy | Reason::Closing)
}

impl ControlSession {
    /// Finds the manager that leads, and begins a session with it as [`ControlSession::connect`] does.
    pub async fn find(
        managers: &Managers,
        credentials: impl Into<Credentials>,
        limits: &Limits,
    ) -> Result<ControlSession> {
        let credentials = credentials.into();
        let session = search(managers, &credentials, limits).await?;
        managers.handle_leader(session.address(), session.told());
        Ok(session)
    }

    /// Asks the managers, one after the other, for the identity of their cluster: see
    /// [`ControlSession::cluster_at`].
    pub async fn cluster_of(managers: &Managers, pin: Pin, limits: &Limits) -> Result<ClusterId> {
        let order: Vec<String> = managers.lock().order().collect();
        let mut told = None;
        let mut wrong = BTreeSet::new();
        for address in order {
            match ControlSession::cluster_at(&address, pin, limits).await {
                Ok(cluster) => return Ok(cluster),
                Err(error) => {
                    if worth(&error) == 0 {
                        wrong.insert(address);
                        if managers.are_told_wrong(&wrong) {
                            return Err(error);
                        }
                    }
                    told = Some(better(told, error));
                }
            }
        }
        Err(soon(told))
    }
}

async fn search(managers: &Managers, credentials: &Credentials, limits: &Limits) -> Result<ControlSession> {
    let mut search = Search::new(managers.lock().order());
    let mut trying = JoinSet::new();
    let mut told = None;
    let mut wrong = BTreeSet::new();
    loop {
        if trying.is_empty() {
            match search.next() {
                Some(address) => begin(&mut trying, address, credentials, limits),
                None => return Err(soon(told)),
            }
        }
        let ended = tokio::select! {
            ended = trying.join_next() => ended,
            () = tokio::time::sleep(PASS_OVER) => {
                search.handle_silence();
                if let Some(address) = search.next() {
                    begin(&mut trying, address, credentials, limits);
                }
                continue;
            }
        };
        // A task that was cut off or panicked counts as silence: the runtime ends.
        let Some(Ok((address, tried))) = ended else { continue };
        let error = match tried {
            Ok(session) => return Ok(session),
            Err(error) => error,
        };
        match &error {
            TransportError::Refusal(refusal) if refusal.reason == Reason::NotLeading => {
                search.handle_standing_by(&address, &refusal.leader);
            }
            TransportError::Refusal(refusal) if !others_may_answer(refusal) => return Err(error),
            _ => search.handle_failure(&address),
        }
        if worth(&error) == 0 {
            managers.handle_wrong(&address, &error);
            wrong.insert(address);
            if managers.are_told_wrong(&wrong) {
                return Err(error);
            }
        }
        told = Some(better(told, error));
        // The next one need not wait for those that are passed over.
        if let Some(address) = search.next() {
            begin(&mut trying, address, credentials, limits);
        }
    }
}

type Tried = (String, Result<ControlSession>);

fn begin(trying: &mut JoinSet<Tried>, address: String, credentials: &Credentials, limits: &Limits) {
    let credentials = credentials.clone();
    let limits = *limits;
    trying.spawn(async move {
        let tried = ControlSession::connect(&address, credentials, &limits).await;
        (address, tried)
    });
}

/// The error of the two that says more.
fn better(before: Option<TransportError>, error: TransportError) -> TransportError {
    match before {
        Some(before) if worth(&before) >= worth(&error) => before,
        _ => error,
    }
}

/// The error of a search. If all that answered stand by, one of them will lead soon.
fn soon(told: Option<TransportError>) -> TransportError {
    let refusal = match told {
        Some(TransportError::Refusal(refusal)) if refusal.reason == Reason::NotLeading => refusal,
        Some(other) => return other,
        None => Refusal::standing_by(""),
    };
    TransportError::Refusal(if refusal.again_ms == 0 { refusal.again_in(AGAIN_MS) } else { refusal })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Mismatch;

    fn list(text: &str) -> Managers {
        text.parse().expect(text)
    }

    fn order(managers: &Managers) -> Vec<String> {
        managers.lock().order().collect()
    }

    #[test]
    fn a_list_is_read_and_what_is_none_is_named() {
        assert_eq!(list("a:1, [::1]:2,10.0.0.1:65535").to_string(), "a:1,[::1]:2,10.0.0.1:65535");
        for text in ["", " ", ","] {
            assert_eq!(text.parse::<Managers>().unwrap_err(), BadManagers::None, "{text:?}");
        }
        for bad in ["a", "a:", ":1", "a:0", "a:65536", "a:+1", "::1:2", "[x]:1", "a b:1", "http://a:1"] {
            let error = format!("ok:1,{bad}").parse::<Managers>().unwrap_err();
            assert_eq!(error, BadManagers::Unreadable(bad.to_owned()));
            assert!(error.to_string().contains("HOST:PORT"), "{error}");
        }
        assert!(
            matches!("a:1,,b:1".parse::<Managers>(), Err(BadManagers::Unreadable(entry)) if entry.is_empty())
        );
        assert_eq!("a:1,b:1,a:1".parse::<Managers>().unwrap_err(), BadManagers::Twice("a:1".to_owned()));
        let many: Vec<String> = (1..=17).map(|port| format!("a:{port}")).collect();
        assert_eq!(many.join(",").parse::<Managers>().unwrap_err(), BadManagers::TooMany(17));
    }

    #[test]
    fn what_is_learned_replaces_the_list_and_the_last_leader_is_first() {
        let managers = list("a:1,b:1");
        managers.handle_leader("b:1", &[]);
        assert_eq!((managers.leading(), managers.to_string()), ("b:1".to_owned(), "a:1,b:1".to_owned()));
        let told = ["c:1", "b:1", "bad", "c:1"].map(str::to_owned);
        managers.clone().handle_leader("c:1", &told);
        assert_eq!(managers.to_string(), "c:1,b:1", "copies share it");
        assert_eq!(order(&managers), ["c:1", "b:1", "a:1"], "what was told at first is the last resort");
        assert!(managers.is_same_list(&list("b:1,c:1")) && !managers.is_same_list(&list("a:1,b:1")));
    }

    #[test]
    fn what_is_remembered_is_tried_after_what_is_told_and_is_not_told_on() {
        let told = list("b:1,d:1").with_remembered(&list("a:1,b:1,c:1"));
        assert_eq!(order(&told), ["b:1", "d:1", "a:1", "c:1"]);
        assert!(told.are_several() && told.to_string() == "b:1,d:1", "{told}");
        told.handle_leader("c:1", &["c:1".to_owned()]);
        assert_eq!((told.to_string(), order(&told).len()), ("c:1".to_owned(), 4));
    }

    fn search(text: &str) -> Search {
        Search::new(list(text).lock().order())
    }

    #[test]
    fn the_named_leader_is_next_and_each_is_tried_once() {
        let mut of = search("a:1,b:1,c:1");
        assert_eq!(of.next().unwrap(), "a:1");
        of.handle_standing_by("a:1", "c:1");
        assert_eq!(of.next().unwrap(), "c:1");
        // It names one that is in no list, and then the first again.
        of.handle_standing_by("c:1", "d:1");
        assert_eq!(of.next().unwrap(), "d:1");
        of.handle_standing_by("d:1", "a:1");
        assert_eq!(of.next().unwrap(), "b:1");
        of.handle_failure("b:1");
        assert_eq!(of.next(), None);
    }

    #[test]
    fn one_that_failed_or_is_awaited_is_not_tried_again_when_named() {
        let mut of = search("a:1,b:1,c:1");
        let [a, b] = [of.next().unwrap(), of.next().unwrap()];
        of.handle_failure(&a);
        of.handle_standing_by(&b, "a:1");
        assert_eq!(of.next().unwrap(), "c:1");
        of.handle_standing_by(&b, "c:1");
        assert_eq!(of.next(), None);
        for bad in ["", "nonsense", "c:1"] {
            of.handle_standing_by(&b, bad);
            assert_eq!(of.next(), None, "{bad}");
        }
    }

    #[test]
    fn while_one_is_silent_those_that_stand_by_are_asked_again() {
        let mut of = search("a:1,b:1,c:1");
        let silent = of.next().unwrap();
        of.handle_silence();
        let b = of.next().unwrap();
        of.handle_standing_by(&b, &silent);
        let c = of.next().unwrap();
        of.handle_standing_by(&c, &silent);
        assert_eq!(of.next(), None);
        of.handle_silence();
        assert_eq!([of.next(), of.next(), of.next()], [Some(b), Some(c), None]);
    }

    #[test]
    fn names_without_end_come_to_an_end() {
        let mut of = search("a:1,b:1");
        let mut tried = 0;
        while let Some(address) = of.next() {
            tried += 1;
            of.handle_standing_by(&address, &format!("x:{tried}"));
        }
        assert!(tried <= 2 * MANAGERS_MAX + 2, "{tried}");
    }

    #[test]
    fn an_answer_of_the_cluster_is_told_before_silence_and_that_before_another_cluster() {
        let wrong = || TransportError::WrongPeer {
            address: "a:1".to_owned(),
            mismatch: Mismatch::Cluster { expected: ClusterId(1), found: ClusterId(2) },
        };
        let silent = || TransportError::Refused { address: "b:1".to_owned() };
        let stands_by = || TransportError::Refusal(Refusal::standing_by("d:1"));
        let told = |errors: Vec<TransportError>| {
            errors.into_iter().fold(None, |told, error| Some(better(told, error))).unwrap().to_string()
        };
        assert_eq!(told(vec![wrong(), silent(), wrong()]), silent().to_string());
        assert_eq!(told(vec![silent(), stands_by(), silent()]), stands_by().to_string());
        let TransportError::Refusal(refusal) = soon(Some(stands_by())) else { panic!("not a refusal") };
        assert_eq!(refusal.again_ms, 250);
    }
}
