//! Requests to etcd. Each goes to one member; if that does not answer in time, the next request goes to the
//! next member. The client library would choose among members by itself, but it may stay with one that hangs.
//!
//! Of an etcd that Braid runs the members change while the manager runs: the link asks those that there are
//! now.

use std::error::Error as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use etcd_client::{
    Client, ConnectOptions, Error, GetOptions, KvClient, LeaseClient, Txn, TxnOp, TxnResponse,
};
use tokio::time::{sleep, timeout};

use super::config::EtcdConfig;
use super::error::EtcdError;
use super::names::Names;
use crate::own_etcd::endpoints::Endpoints;

/// Maximum time that one member is waited for. Longer than etcd takes to elect a new leader of its own, and
/// short enough for two members to be asked within a lease.
pub(super) const ATTEMPT: Duration = Duration::from_secs(2);
/// Maximum time for a connection to be made.
const CONNECT: Duration = Duration::from_secs(1);
/// Pause before the next member is asked.
const PAUSE: Duration = Duration::from_millis(50);
/// Maximum bytes of an answer: some records or chunks of 1 MiB each.
const ANSWER_MAX: usize = 64 << 20;

/// The members of etcd.
pub(super) struct Link {
    members: RwLock<Arc<[Member]>>,
    /// Addresses of the members, as they change; `None`: they stay what they are.
    endpoints: Option<Endpoints>,
    options: ConnectOptions,
    /// Number of the member that is asked; taken modulo their number.
    current: AtomicUsize,
    pub(super) names: Names,
    /// The state, as errors name it.
    pub(super) state: String,
}

/// One member, or what is at its address.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) endpoint: String,
    pub(super) client: Client,
    pub(super) kv: KvClient,
    pub(super) lease: LeaseClient,
}

impl Member {
    async fn of(endpoint: &str, options: &ConnectOptions) -> Result<Member, EtcdError> {
        let client = Client::connect([endpoint], Some(options.clone())).await;
        let client =
            client.map_err(|error| EtcdError::Config(format!("etcd at {endpoint}: {}", text(&error))))?;
        let kv = client.kv_client().max_decoding_message_size(ANSWER_MAX);
        let lease = client.lease_client();
        Ok(Member { endpoint: endpoint.to_owned(), client, kv, lease })
    }
}

/// A request that was not carried out, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// There is no answer: it may have been carried out, or may still be.
    Unknown(String),
    /// Etcd has not carried it out, as it has no space.
    Full,
    /// The lease is over.
    LeaseGone,
    /// The certificate of the member is not right.
    Untrusted(String),
    /// Etcd has not carried it out.
    Refused(String),
}

impl Link {
    /// The members of this configuration, or those of a list that may change. Connections are made when they
    /// are needed.
    pub(super) async fn new(config: &EtcdConfig, endpoints: Option<Endpoints>) -> Result<Link, EtcdError> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT)
            .with_keep_alive(Duration::from_secs(5), Duration::from_secs(5))
            .with_keep_alive_while_idle(true);
        if let Some(tls) = config.tls()? {
            options = options.with_tls(tls);
        }
        let mut members = Vec::new();
        for endpoint in &config.endpoints {
            members.push(Member::of(endpoint, &options).await?);
        }
        let members = RwLock::new(members.into());
        let current = AtomicUsize::new(0);
        let names = Names::new(&config.prefix);
        Ok(Link { members, endpoints, options, current, names, state: config.shown() })
    }

    /// The members of etcd that there are now.
    pub(super) async fn members(&self) -> Arc<[Member]> {
        let known = Arc::clone(&self.members.read().unwrap_or_else(PoisonError::into_inner));
        let Some(endpoints) = self.endpoints.as_ref().map(Endpoints::now) else { return known };
        if endpoints.is_empty() || endpoints.iter().eq(known.iter().map(|member| &member.endpoint)) {
            return known;
        }
        let mut members = Vec::new();
        for endpoint in endpoints.iter() {
            let found = known.iter().find(|member| member.endpoint == *endpoint).cloned();
            let member = match found {
                Some(member) => Ok(member),
                None => Member::of(endpoint, &self.options).await,
            };
            match member {
                Ok(member) => members.push(member),
                Err(error) => tracing::warn!(%error, "a member of the managers' etcd cannot be asked"),
            }
        }
        if members.is_empty() {
            return known;
        }
        let members: Arc<[Member]> = members.into();
        *self.members.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&members);
        members
    }

    /// Asks one member, once.
    pub(super) async fn once<R, F: Future<Output = Result<R, Error>>>(
        &self,
        wait: Duration,
        ask: impl FnOnce(Member) -> F,
    ) -> Result<R, Trouble> {
        let members = self.members().await;
        let turn = self.current.load(Ordering::Relaxed);
        let member = members[turn % members.len()].clone();
        let endpoint = member.endpoint.clone();
        let result = match timeout(wait, ask(member)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => trouble(&endpoint, &error),
            Err(_) => Trouble::Unknown(format!("{endpoint} has not answered for {} ms", wait.as_millis())),
        };
        if matches!(result, Trouble::Unknown(_) | Trouble::Untrusted(_)) {
            // If another task has turned already, this one does not turn past that member.
            let next = turn.wrapping_add(1);
            let _ = self.current.compare_exchange(turn, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        Err(result)
    }

    /// Asks one member after another until one answers, for a request that may be carried out twice.
    pub(super) async fn ask<R, F: Future<Output = Result<R, Error>>>(
        &self,
        wait: Duration,
        ask: impl Fn(Member) -> F,
    ) -> Result<R, EtcdError> {
        let until = Instant::now() + wait;
        let mut untrusted = 0;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let trouble = match self.once(ATTEMPT.min(left), &ask).await {
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            untrusted = if matches!(trouble, Trouble::Untrusted(_)) { untrusted + 1 } else { 0 };
            let may_help = matches!(trouble, Trouble::Unknown(_) | Trouble::Untrusted(_));
            if !may_help || left <= PAUSE || untrusted >= self.members().await.len() {
                return Err(self.error(trouble));
            }
            sleep(PAUSE).await;
        }
    }

    /// Several reads of one moment, which is no earlier than now: a member that is cut off from the others
    /// answers nothing.
    pub(super) async fn read(
        &self,
        wait: Duration,
        reads: &[(Vec<u8>, GetOptions)],
    ) -> Result<TxnResponse, EtcdError> {
        let reads: Vec<TxnOp> =
            reads.iter().map(|(key, options)| TxnOp::get(key.clone(), Some(options.clone()))).collect();
        let ask = |mut member: Member| {
            let txn = Txn::new().and_then(reads.clone());
            async move { member.kv.txn(txn).await }
        };
        self.ask(wait, ask).await
    }

    /// The error for a request that was given up.
    pub(super) fn error(&self, trouble: Trouble) -> EtcdError {
        let state = self.state.clone();
        match trouble {
            Trouble::Unknown(what) => EtcdError::Silent { state, what },
            Trouble::Untrusted(what) => EtcdError::Untrusted { state, what },
            Trouble::Full => EtcdError::Full(state),
            Trouble::LeaseGone => EtcdError::Deposed("its lease in etcd is over".to_owned()),
            Trouble::Refused(what) => EtcdError::Refused { state, what },
        }
    }
}

/// The fate of a request that failed.
fn trouble(endpoint: &str, error: &Error) -> Trouble {
    /// Codes of gRPC with which etcd refuses for good.
    const REFUSED: [i32; 8] = [3, 5, 6, 7, 9, 11, 12, 16];
    let what = format!("{endpoint}: {}", text(error));
    match error {
        Error::GRpcStatus(status) => {
            let message = status.message();
            let is_certificate = what.to_lowercase().contains("certificate");
            match i32::from(status.code()) {
                8 if message.contains("space exceeded") => Trouble::Full,
                5 if message.contains("lease not found") => Trouble::LeaseGone,
                code if REFUSED.contains(&code) && message.contains("etcdserver") => Trouble::Refused(what),
                _ if is_certificate => Trouble::Untrusted(what),
                _ => Trouble::Unknown(what),
            }
        }
        Error::LeaseKeepAliveError(said) if said.contains("not found") => Trouble::LeaseGone,
        Error::InvalidArgs(_) | Error::InvalidUri(_) => Trouble::Refused(what),
        _ => Trouble::Unknown(what),
    }
}

/// The error and its causes.
fn text(error: &Error) -> String {
    let (mut text, mut cause) = match error {
        Error::GRpcStatus(status) => (status.message().to_owned(), status.source()),
        Error::TransportError(error) => (error.to_string(), error.source()),
        other => (other.to_string(), None),
    };
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn members_that_join_are_asked_and_those_that_leave_are_not() {
        let config = EtcdConfig::of_state("etcd://127.0.0.1:1").unwrap();
        let endpoints = Endpoints::new(config.endpoints.clone());
        let link = Link::new(&config, Some(endpoints.clone())).await.unwrap();
        let asked = async || {
            let ask = |member: Member| async move { Ok::<_, Error>(member.endpoint) };
            link.once(ATTEMPT, ask).await.unwrap()
        };
        assert_eq!(asked().await, "127.0.0.1:1");
        endpoints.set(vec!["127.0.0.1:2".to_owned(), "127.0.0.1:3".to_owned()]);
        assert_eq!(asked().await, "127.0.0.1:2");
        assert_eq!(link.members().await.len(), 2);
        endpoints.set(Vec::new());
        assert_eq!(link.members().await.len(), 2, "a list of nobody is no list");
    }
}
