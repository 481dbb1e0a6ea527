//! Calls to the members of etcd. Each has a bound; each error says what to do.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use braid_wire::{Reason, Refusal};
use etcd_client::{
    AlarmAction, AlarmOptions, AlarmType, Certificate, Client, CompactionOptions, ConnectOptions, GetOptions,
    Identity, MemberAddOptions, TlsOptions,
};
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::endpoints::Endpoints;
use super::plan::{Member, State};

/// Bound of a call that is answered at once.
const CALL: Duration = Duration::from_secs(3);
/// Bound of a defragmentation: the time to write 8 GiB to a slow disk.
const DEFRAGMENT: Duration = Duration::from_secs(300);
/// Bound of the wait for a next piece of a snapshot.
const PIECE: Duration = Duration::from_secs(60);
/// Bytes of the checksum that etcd puts at the end of a snapshot.
const CHECKSUM_BYTES: usize = 32;

/// The way to etcd's members.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// Addresses of the members.
    pub endpoints: Endpoints,
    /// File with the CA's certificate, in PEM.
    pub ca: PathBuf,
    /// File with this manager's certificate, in PEM.
    pub certificate: PathBuf,
    /// File with its key, in PEM.
    pub key: PathBuf,
}

/// Ok if the member at this address takes part in a majority: only then a read comes back.
pub async fn answers(access: &Access, endpoint: &str) -> Result<(), String> {
    let looked = async {
        let mut client = connect(access, endpoint).await?;
        let options = GetOptions::new().with_keys_only();
        client.get("braid", Some(options)).await.map(drop).map_err(|error| words(endpoint, &error))
    };
    within(CALL, endpoint, looked).await.map_err(|refusal| refusal.detail)
}

/// A member, as the host that runs it needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Address of its manager.
    pub name: String,
    /// Address for other members.
    pub peer: String,
    /// Address for managers.
    pub client: String,
    /// True if it has no vote yet.
    pub learns: bool,
}

/// The members, as the first one knows them that answers.
pub async fn list(access: &Access) -> Result<Vec<Listed>, Refusal> {
    let members = reach(access).await?.1;
    let listed = |member: Member| Listed {
        name: member.name,
        peer: member.peer,
        client: member.client,
        learns: member.learns,
    };
    Ok(members.into_iter().map(listed).collect())
}

/// The value of a key, from one member.
pub async fn value(access: &Access, endpoint: &str, key: &str) -> Result<Option<Vec<u8>>, Refusal> {
    let read = async {
        let mut client = connect(access, endpoint).await?;
        let found = client.get(key, None).await.map_err(|error| words(endpoint, &error))?;
        Ok(found.kvs().first().map(|pair| pair.value().to_vec()))
    };
    within(CALL, endpoint, read).await
}

/// Sets a key.
pub(crate) async fn put(access: &Access, key: &str, value: Vec<u8>) -> Result<(), Refusal> {
    let (mut client, _) = reach(access).await?;
    let done = async { client.put(key, value, None).await.map(drop).map_err(|error| words(key, &error)) };
    within(CALL, "etcd", done).await
}

/// The members, each with what it says of itself.
pub(crate) async fn look(access: &Access) -> Result<Vec<Member>, Refusal> {
    let mut members = reach(access).await?.1;
    let mut asked = tokio::task::JoinSet::new();
    for (at, member) in members.iter().enumerate().filter(|(_, member)| !member.client.is_empty()) {
        let access = access.clone();
        let endpoint = member.client.clone();
        asked.spawn(async move { (at, state(&access, &endpoint).await) });
    }
    while let Some(joined) = asked.join_next().await {
        if let Ok((at, Ok(state))) = joined {
            members[at].state = Some(state);
        }
    }
    Ok(members)
}

async fn state(access: &Access, endpoint: &str) -> Result<State, Refusal> {
    let ask = async {
        let mut client = connect(access, endpoint).await?;
        let status = client.status().await.map_err(|error| words(endpoint, &error))?;
        let bytes = |bytes: i64| u64::try_from(bytes).unwrap_or_default();
        Ok(State {
            leader: status.leader(),
            database_bytes: bytes(status.db_size()),
            used_bytes: bytes(status.raft_used_db_size()),
        })
    };
    within(CALL, endpoint, ask).await
}

/// Adds a member without a vote.
pub(crate) async fn add_learner(access: &Access, peer: &str) -> Result<(), Refusal> {
    let (mut client, _) = reach(access).await?;
    let options = MemberAddOptions::new().with_is_learner();
    let add = async {
        let added = client.member_add([url(peer)], Some(options)).await;
        added.map(drop).map_err(|error| words(peer, &error))
    };
    within(CALL, peer, add).await
}

/// Gives a member its vote. Refused while it lags behind.
pub(crate) async fn promote(access: &Access, member: &Member) -> Result<(), Refusal> {
    let (mut client, _) = reach(access).await?;
    let name = member.shown();
    let promote =
        async { client.member_promote(member.id).await.map(drop).map_err(|error| words(name, &error)) };
    within(CALL, name, promote).await
}

/// Takes a member out.
pub(crate) async fn remove(access: &Access, id: u64) -> Result<(), Refusal> {
    let (mut client, _) = reach(access).await?;
    let remove =
        async { client.member_remove(id).await.map(drop).map_err(|error| words("a member", &error)) };
    within(CALL, "etcd", remove).await
}

/// Alarms that members have raised: the member and the alarm's name.
pub(crate) async fn alarms(access: &Access) -> Result<Vec<(u64, &'static str)>, Refusal> {
    let (mut client, _) = reach(access).await?;
    let list = async {
        let raised = client.alarm(AlarmAction::Get, AlarmType::None, None).await;
        let raised = raised.map_err(|error| words("etcd", &error))?;
        let name = |alarm| match alarm {
            AlarmType::Nospace => "NOSPACE",
            AlarmType::Corrupt => "CORRUPT",
            AlarmType::None => "NONE",
        };
        Ok(raised.alarms().iter().map(|raised| (raised.member_id(), name(raised.alarm()))).collect())
    };
    within(CALL, "etcd", list).await
}

/// Ends the alarm of a member that was out of space.
pub(crate) async fn disarm(access: &Access, member: u64) -> Result<(), Refusal> {
    let (mut client, _) = reach(access).await?;
    let mut options = AlarmOptions::new();
    options.with_member(member);
    let disarm = async {
        let done = client.alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(options)).await;
        done.map(drop).map_err(|error| words("etcd", &error))
    };
    within(CALL, "etcd", disarm).await
}

/// Has etcd forget all revisions but the present one.
pub(crate) async fn compact(access: &Access) -> Result<(), Refusal> {
    let (mut client, _) = reach(access).await?;
    let compact = async {
        let now = client.get("braid", Some(GetOptions::new().with_keys_only())).await;
        let now = now.map_err(|error| words("etcd", &error))?;
        let revision = now.header().map_or(0, |header| header.revision());
        let options = CompactionOptions::new().with_physical();
        match client.compact(revision, Some(options)).await {
            Ok(_) => Ok(()),
            Err(error) if error.to_string().contains("has been compacted") => Ok(()),
            Err(error) => Err(words("etcd", &error)),
        }
    };
    within(DEFRAGMENT, "etcd", compact).await
}

/// Has a member give free space of its database back.
pub(crate) async fn defragment(access: &Access, member: &Member) -> Result<(), Refusal> {
    let endpoint = &member.client;
    let defragment = async {
        let mut client = connect_for(access, endpoint, DEFRAGMENT).await?;
        client.defragment().await.map(drop).map_err(|error| words(endpoint, &error))
    };
    within(DEFRAGMENT, endpoint, defragment).await
}

/// Writes a snapshot of the whole database to a new file, and compares it with its checksum.
pub(crate) async fn snapshot(access: &Access, path: &Path) -> Result<u64, Refusal> {
    let file = |error: io::Error| {
        let detail = format!("the snapshot {} cannot be written: {error}", path.display());
        Refusal::new(Reason::Medium, detail)
    };
    let (mut client, _) = reach(access).await?;
    let mut pieces =
        within(CALL, "etcd", async { client.snapshot().await.map_err(|error| words("etcd", &error)) })
            .await?;
    let mut out = tokio::fs::OpenOptions::new();
    let mut out = out.write(true).create(true).truncate(true).mode(0o600).open(path).await.map_err(file)?;
    let mut seal = Seal::default();
    loop {
        let next = async { pieces.message().await.map_err(|error| words("etcd", &error)) };
        let Some(piece) = within(PIECE, "etcd", next).await? else { break };
        seal.update(piece.blob());
        out.write_all(piece.blob()).await.map_err(file)?;
    }
    out.sync_all().await.map_err(file)?;
    seal.check().map_err(|why| Refusal::new(Reason::Damaged, format!("the snapshot of etcd {why}")))
}

/// The check of a snapshot: its last bytes are the SHA-256 of all before them.
#[derive(Default)]
pub struct Seal {
    digest: Sha256,
    /// The last bytes, which may be the checksum.
    last: Vec<u8>,
    bytes: u64,
}

impl Seal {
    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.last.extend_from_slice(bytes);
        let content = self.last.len().saturating_sub(CHECKSUM_BYTES);
        self.digest.update(&self.last[..content]);
        self.last.drain(..content);
    }

    /// The snapshot's length, if it is whole; else what is wrong.
    pub fn check(self) -> Result<u64, String> {
        if self.last.len() < CHECKSUM_BYTES || self.digest.finalize().as_slice() != self.last {
            return Err("is cut short or damaged: its checksum is not that of its bytes".to_owned());
        }
        Ok(self.bytes)
    }
}

/// A connection to a member that has a vote, and the members that it knows.
async fn reach(access: &Access) -> Result<(Client, Vec<Member>), Refusal> {
    let mut failed = Vec::new();
    for endpoint in access.endpoints.now().iter() {
        let ask = async {
            let mut client = connect(access, endpoint).await?;
            let list = client.member_list().await.map_err(|error| words(endpoint, &error))?;
            let members = list.members().iter().map(|member| Member {
                id: member.id(),
                name: member.name().to_owned(),
                peer: member.peer_urls().first().map(|url| bare(url)).unwrap_or_default(),
                client: member.client_urls().first().map(|url| bare(url)).unwrap_or_default(),
                learns: member.is_learner(),
                state: None,
            });
            Ok((client, members.collect()))
        };
        match within(CALL, endpoint, ask).await {
            Ok(found) => return Ok(found),
            Err(refusal) => failed.push(refusal.detail),
        }
    }
    let detail = format!("no member of the managers' etcd answers: {}", failed.join("; "));
    Err(Refusal::new(Reason::Medium, detail))
}

async fn connect(access: &Access, endpoint: &str) -> Result<Client, Refusal> {
    connect_for(access, endpoint, CALL).await
}

async fn connect_for(access: &Access, endpoint: &str, bound: Duration) -> Result<Client, Refusal> {
    let read = |path: &Path| {
        fs::read(path)
            .map_err(|error| Refusal::new(Reason::Medium, format!("read {}: {error}", path.display())))
    };
    let identity = Identity::from_pem(read(&access.certificate)?, read(&access.key)?);
    let tls = TlsOptions::new().ca_certificate(Certificate::from_pem(read(&access.ca)?)).identity(identity);
    let options = ConnectOptions::new().with_tls(tls).with_connect_timeout(CALL).with_timeout(bound);
    Client::connect([url(endpoint)], Some(options)).await.map_err(|error| words(endpoint, &error))
}

async fn within<T>(
    bound: Duration,
    whom: &str,
    call: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    match timeout(bound, call).await {
        Ok(done) => done,
        Err(_) => {
            let detail = format!("{whom} did not answer in {} s", bound.as_secs());
            Err(Refusal::new(Reason::Medium, detail))
        }
    }
}

/// The URL of an address.
fn url(address: &str) -> String {
    format!("https://{address}")
}

/// The address in a URL.
fn bare(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.trim_end_matches('/').to_owned()
}

/// An error of etcd, in words that say what to do.
fn words(whom: &str, error: &etcd_client::Error) -> Refusal {
    let text = error.to_string();
    let has = |part: &str| text.contains(part);
    if has("too many learner") {
        return Refusal::new(
            Reason::Busy,
            "another host is joining, and one can join at a time: wait until it has",
        );
    }
    if has("in sync with leader") {
        return Refusal::new(Reason::Busy, format!("{whom} has not caught up yet"));
    }
    if has("database space exceeded") {
        let detail = "the managers' etcd is out of space, and takes no changes until the manager that leads has made room \
                      (braid status --jobs)";
        return Refusal::new(Reason::ManagerFull, detail);
    }
    if has("unhealthy cluster") || has("not have enough started members") || has("no leader") {
        // Also for some seconds after a member has come: etcd first sees for itself that it stays.
        let detail = format!(
            "{whom}: too few members of the managers' etcd have been connected for long enough: start those that are \
             away ({text})"
        );
        return Refusal::new(Reason::Busy, detail);
    }
    Refusal::new(Reason::Medium, format!("{whom}: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_taken_only_whole() {
        let content = vec![7; 5000];
        let sealed = [content.as_slice(), &Sha256::digest(&content)].concat();
        let check = |bytes: &[u8], piece| {
            let mut seal = Seal::default();
            bytes.chunks(piece).for_each(|piece| seal.update(piece));
            seal.check()
        };
        for piece in [1, 31, 32, 33, 9999] {
            assert_eq!(check(&sealed, piece), Ok(5032));
            assert!(check(&sealed[..sealed.len() - 1], piece).is_err());
            assert!(check(&content, piece).is_err());
            assert!(check(&content[..9], piece).is_err());
        }
        let mut torn = sealed.clone();
        torn[100] ^= 1;
        assert!(check(&torn, 512).is_err());
    }

    #[test]
    fn addresses_and_urls() {
        assert_eq!(bare(&url("h:1")), "h:1");
        assert_eq!(bare("https://[::1]:7380/"), "[::1]:7380");
    }
}
