//! `braid cluster init`, `join` and `restore`: a directory becomes that of a manager with etcd, and is
//! served.
//!
//! How a host joins: it compares the CA of the manager that it calls with its token's, before it says
//! anything; that manager adds its etcd without a vote, and answers with the CA and the members; the host
//! makes its own certificates, and its etcd takes the state over from the others; then it gets its vote.

use std::fs;
use std::io::{self, BufRead, Read};
use std::net::{IpAddr, TcpListener, ToSocketAddrs};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use braid_client::{Client, TokenSpec};
use braid_layout::DriveId;
use braid_manager::own_etcd::{AuthorityRecord, authority_in, calls};
use braid_manager::restore::backup::{NAME_OF_BACKUPS, authority};
use braid_manager::{LOST_AFTER_MS, ManagerError, Ready};
use braid_transport::{Authority, ControlSession, Credentials, Limits, Managers, TransportError};
use braid_wire::capability::Key;
use braid_wire::control::{AddManager, ControlReply, ManagerAdded};
use braid_wire::token::{BadToken, Token, TokenRole, pin_of};
use braid_wire::{Reason, Refusal};
use sha2::{Digest, Sha256};
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

use crate::args::{
    ClusterInit, ClusterJoin, ClusterRestore, Configured, ETCD_PORT, EtcdOfState, Hosting, ManagerServe,
};
use crate::config::told::Told;
use crate::config::told_of_manager;
use crate::machine::address;
use crate::machine::cluster_dir::CLUSTER_FILE;
use crate::machine::etcd::member::{Member, Peer, at, host_of};
use crate::machine::etcd::{Host, Patience, binary};
use crate::machine::serve::with_etcd;
use crate::operate::manager_cmd::Unpacked;
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::report::print;
use crate::output::shell::quoted;

/// Port of a manager, if none is told.
const PORT: u16 = 7400;
/// Bound of etcd's first start.
const FIRST: Duration = Duration::from_secs(60);
/// Bound of the wait for the vote: the time to copy a large state.
pub(crate) const VOTE: Duration = Duration::from_secs(600);
/// Time for which the manager that is asked may be busy with another host that joins.
const TURN: Duration = Duration::from_secs(90);
/// Bound of making a member's data of a snapshot.
const RESTORE: Duration = Duration::from_secs(900);
/// Time for which a token for a host is valid.
pub(crate) const TOKEN_S: u64 = 24 * 3600;
/// Maximum bytes that are read of a token from standard input.
const TOKEN_BYTES_MAX: u64 = 4096;
/// Names that a first start makes in the directory before there is a state.
const MADE: &[&str] = &["etcd.toml", "authority.toml", "etcd.lock", "etcd", "etcd-tls"];

/// Runs `braid cluster init`.
pub(crate) async fn init(asked: ClusterInit) -> Result<(), Failure> {
    let listen = match (asked.listen, asked.hosts.first()) {
        (Some(listen), _) => listen,
        (None, Some(host)) => at(host, PORT),
        (None, None) => {
            return Err(Failure::usage("begin a cluster", "neither --hosts nor --listen is given"));
        }
    };
    Host::check_new(&asked.host.dir)?;
    let Prepared { serve, told, member } = prepare(asked.host, listen).await?;
    let dir = serve.dir.clone();
    let others: Vec<String> = asked.hosts.into_iter().skip(1).collect();
    let etcd_port = member.port;
    let host = Host::found(&dir, member, new_authority()?)?;
    let mut is_ready = false;
    let ready = async |ready: &Ready, address: &str| {
        is_ready = true;
        tell_others(ready, address, &others, &dir, etcd_port).await
    };
    let ended = with_etcd(serve, &told, host, Patience::First(FIRST), ready).await;
    if ended.is_err() && !is_ready {
        take_back(&dir);
    }
    ended
}

/// Runs `braid cluster join`.
pub(crate) async fn join(asked: ClusterJoin) -> Result<(), Failure> {
    let what = || format!("join the managers of {}", asked.manager.addresses().join(","));
    let token = token_in(&asked.token_file)?;
    let name = asked.host.advertise.as_ref().unwrap_or(&asked.listen);
    let begun = Host::begun(&asked.host.dir, name, token.pin)?;
    if begun.is_none() {
        Host::check_new(&asked.host.dir)?;
    }
    let Prepared { serve, told, mut member } = prepare(asked.host, asked.listen).await?;
    if let Some(mut host) = begun {
        // A join that was cut short goes on: the others know of it.
        host.member.program = member.program;
        return with_etcd(serve, &told, host, Patience::First(FIRST), async |_: &Ready, _: &str| Ok(()))
            .await;
    }
    let added = ask(&asked.manager, &token, &member).await?;
    let authority = AuthorityRecord { key: added.authority, certificate: added.certificate };
    let is_right = pin_of(&authority.certificate) == token.pin
        && Authority::of_record(&authority.key, &authority.certificate).is_ok();
    if !is_right {
        let why = "its answer has another certificate authority than the token";
        return Err(Failure::new(Exit::NotAllowed, what(), why));
    }
    let peers = added.members.into_iter();
    member.members = peers.map(|it| Peer { name: it.name, peer: it.peer, client: it.client }).collect();
    member.joined = true;
    let host = Host::found(&serve.dir, member, authority)?;
    with_etcd(serve, &told, host, Patience::First(FIRST), async |_: &Ready, _: &str| Ok(())).await
}

/// Runs `braid cluster restore`.
pub(crate) async fn restore(asked: ClusterRestore) -> Result<(), Failure> {
    let snapshot = asked.snapshot;
    if is_backup(&snapshot)? {
        return restore_backup(&snapshot, asked.host, asked.listen).await;
    }
    let what = || format!("restore {}", snapshot.display());
    check_snapshot(&snapshot)?;
    Host::check_new(&asked.host.dir)?;
    let Prepared { serve, told, mut member } = prepare(asked.host, asked.listen).await?;
    let program = binary::restorer()?;
    member.restored = true;
    let dir = serve.dir.clone();
    let authority = async {
        // The snapshot has the cluster's CA; until that is read, etcd has certificates of one for the moment.
        let host = Host::unfounded(&dir, member.clone(), new_authority()?)?;
        let peer = format!("https://{}", member.peer());
        let mut command = Command::new(program);
        command.args(["snapshot", "restore"]).arg(&snapshot).arg("--data-dir").arg(dir.join("etcd"));
        command
            .arg(format!("--name={}", member.name))
            .arg(format!("--initial-cluster={}={peer}", member.name));
        command.arg(format!("--initial-advertise-peer-urls={peer}")).arg("--initial-cluster-token=braid");
        command.env("ETCDCTL_API", "3").stdin(Stdio::null()).kill_on_drop(true);
        let output = timeout(RESTORE, command.output()).await;
        let output = output
            .map_err(|_| Failure::new(Exit::Timeout, what(), format!("{program} takes too long")))?
            .doing(what)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned();
            return Err(Failure::new(Exit::Failed, what(), format!("{program}: {said}")));
        }
        let running = host.start()?;
        let read = async {
            host.until_answers(&running, Patience::First(FIRST)).await?;
            authority_in(&host.access())
                .await
                .map_err(|refusal| Failure::new(Exit::Failed, what(), refusal.detail))
        };
        let read = read.await;
        running.stop().await;
        read
    };
    let found = match authority.await {
        Ok(authority) => Host::found(&dir, member, authority),
        Err(failure) => Err(failure),
    };
    let host = found.inspect_err(|_| take_back(&dir))?;
    let after = async |_: &Ready, address: &str| tell_restored(address, &dir);
    with_etcd(serve, &told, host, Patience::First(FIRST), after).await
}

/// Restores a backup into an etcd that Braid runs: so a cluster of one manager becomes one of several.
async fn restore_backup(backup: &Path, asked: Hosting, listen: String) -> Result<(), Failure> {
    let what = || format!("restore {}", backup.display());
    let unpacked = Unpacked::of(backup)?;
    Host::check_new(&asked.dir)?;
    let Prepared { serve, told, member } = prepare(asked, listen).await?;
    let found = authority(Arc::clone(&unpacked.kv));
    let found = found.map_err(|refusal| Failure::new(Exit::Failed, what(), refusal.detail))?;
    let authority = match found {
        Some(authority) => authority,
        None => new_authority()?,
    };
    let dir = serve.dir.clone();
    let host = Host::found(&dir, member, authority).inspect_err(|_| take_back(&dir))?;
    let running = host.start().inspect_err(|_| take_back(&dir))?;
    let moved = async {
        host.until_answers(&running, Patience::First(FIRST)).await?;
        braid_manager::etcd::import(&host.etcd_config(), Arc::clone(&unpacked.kv))
            .await
            .map_err(ManagerError::from)
            .doing(what)
    };
    let moved = moved.await;
    running.stop().await;
    moved.inspect_err(|_| take_back(&dir))?;
    drop(unpacked);
    let after = async |_: &Ready, address: &str| tell_restored(address, &dir);
    with_etcd(serve, &told, host, Patience::First(FIRST), after).await
}

/// The common beginning of all.
struct Prepared {
    serve: ManagerServe,
    told: Told,
    member: Member,
}

/// Checks all that can be checked before anything is made.
async fn prepare(asked: Hosting, listen: String) -> Result<Prepared, Failure> {
    address::check(&listen, asked.advertise.as_deref()).await?;
    binary::find(asked.etcd.as_deref())?;
    let bind = resolved(host_of(&listen))?;
    let name = asked.advertise.clone().unwrap_or_else(|| listen.clone());
    if name.ends_with(":0") {
        return Err(Failure::usage(
            format!("listen on {listen}"),
            "other managers must know the port: choose one",
        ));
    }
    let port = asked.etcd_port;
    for (address, whose) in [
        (listen.clone(), "--listen"),
        (bound(bind, port), "--etcd-port"),
        (bound(bind, port + 1), "--etcd-port"),
    ] {
        let free = TcpListener::bind(&address).doing(|| format!("listen on {address}"));
        free.map_err(|failure| failure.remedy(format!("choose another {whose}")))?;
    }
    let mut member = Member {
        host: host_of(&name).to_owned(),
        name,
        bind,
        port,
        joined: false,
        restored: false,
        started: false,
        program: asked.etcd,
        members: Vec::new(),
    };
    member.members.push(member.as_peer());
    let told = told_of_manager(&asked.dir, &listen, asked.advertise.as_deref())?;
    let serve = ManagerServe {
        dir: asked.dir,
        listen,
        advertise: asked.advertise,
        lost_after: LOST_AFTER_MS / 1000,
        etcd: EtcdOfState::default(),
        configured: Configured { config: None, no_config: false, check: false },
        supervised: asked.supervised,
    };
    Ok(Prepared { serve, told, member })
}

/// An address in the form of the system.
fn bound(ip: IpAddr, port: u16) -> String {
    std::net::SocketAddr::new(ip, port).to_string()
}

/// The address of a host's name: etcd listens on addresses only.
fn resolved(host: &str) -> Result<IpAddr, Failure> {
    let what = || format!("find the address of {host}");
    let mut found = (host.trim_matches(['[', ']']), 0).to_socket_addrs().doing(what)?;
    found.next().map(|found| found.ip()).ok_or_else(|| Failure::usage(what(), "it has none"))
}

/// A certificate authority that nobody has yet.
fn new_authority() -> Result<AuthorityRecord, Failure> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret)
        .map_err(|error| Failure::new(Exit::Failed, "draw random numbers", error.to_string()))?;
    let key = Key::new(secret);
    Ok(AuthorityRecord { certificate: Authority::make(&key).certificate().to_vec(), key })
}

/// Removes what a first start has made that came to nothing: no manager has served it.
fn take_back(dir: &Path) {
    for name in MADE {
        let path = dir.join(name);
        let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
    }
    for name in ["LOCK", "told.toml"] {
        let _ = fs::remove_file(dir.join(name));
    }
    let _ = fs::remove_dir(dir); // if nothing else is in it
}

/// Makes tokens for the other hosts, and prints the command for each.
async fn tell_others(
    ready: &Ready,
    address: &str,
    others: &[String],
    dir: &Path,
    etcd_port: u16,
) -> Result<(), Failure> {
    let mut text = format!("the first manager of the cluster serves on {address}\n");
    let dir = quoted(dir.as_os_str());
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(PORT);
    let etcd_port = if etcd_port == ETCD_PORT { String::new() } else { format!(" --etcd-port {etcd_port}") };
    if !others.is_empty() {
        let client =
            Client::connect(braid_client::Config::new(address.to_owned(), ready.client_token.clone()))
                .await?;
        for host in others {
            let token = client.make_token(token_spec(host)).await?;
            let listen = at(host, port);
            text += &format!(
                "\non {host}:\n  braid cluster join --manager {address} --listen {listen} --dir {dir}{etcd_port} \
                 --token-file - <<< {token}\n"
            );
        }
    }
    print(&format!("{text}\nto start this one again: braid manager serve --dir {dir}\n"))
}

/// Says what comes after a restore.
fn tell_restored(address: &str, dir: &Path) -> Result<(), Failure> {
    let cluster = quoted(dir.join(CLUSTER_FILE).as_os_str());
    print(&format!(
        "the first manager of the restored cluster serves on {address}\n\n\
         It answers once it has compared its state with the drives. Drives that know none of its addresses are\n\
         started with --manager {address}; clients need the address too. How it goes:\n  \
         braid --cluster {cluster} status\n\
         A token for each other host that is to be a manager:\n  \
         braid --cluster {cluster} token new NAME --role manager --expires 1d --out FILE\n"
    ))
}

/// A token for one host that becomes a manager.
pub(crate) fn token_spec(host: &str) -> TokenSpec {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    let host: String = host.chars().map(|letter| if fits(letter) { letter } else { '-' }).take(40).collect();
    // A later token for the same host has another name.
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    TokenSpec {
        name: format!("manager-{host}-{now_s}"),
        role: TokenRole::Manager,
        volumes: None,
        below: Vec::new(),
        user: None,
        read_only: false,
        lasts_s: TOKEN_S,
    }
}

/// The token of a host that joins, from a file or from standard input: others on the host can read command
/// lines.
fn token_in(file: &Path) -> Result<Token, Failure> {
    let what = || format!("read {}", file.display());
    if file.as_os_str() != "-" {
        return token(&fs::read_to_string(file).doing(what)?);
    }
    let mut text = String::new();
    let mut first = io::BufReader::new(io::stdin().lock().take(TOKEN_BYTES_MAX));
    first.read_line(&mut text).doing(|| "read the token from standard input".to_owned())?;
    token(&text)
}

/// The token of this text, if a host may become a manager with it.
fn token(text: &str) -> Result<Token, Failure> {
    let what = || "read the token".to_owned();
    let refused = |why: String| {
        Failure::new(Exit::NotAllowed, what(), why)
            .remedy("ask an admin for one: braid token new NAME --role manager --expires 1d --out FILE")
    };
    let token: Token = text.parse().map_err(|error: BadToken| refused(error.to_string()))?;
    if token.role != TokenRole::Manager {
        return Err(refused(format!("it is for role {}, and a manager's is needed", token.role.word())));
    }
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    if token.expires_s != 0 && token.expires_s <= now_s {
        return Err(refused("it has expired".to_owned()));
    }
    Ok(token)
}

/// Asks the manager that leads to add this host: a manager that stands by names it. Those that cannot be
/// reached are passed over.
async fn ask(managers: &Managers, token: &Token, member: &Member) -> Result<ManagerAdded, Failure> {
    let end = Instant::now() + TURN;
    let addresses = managers.addresses();
    let what = || format!("join the managers of {}", addresses.join(","));
    let mut others = addresses.iter();
    let mut address = others.next().cloned().unwrap_or_default();
    let request = AddManager { address: member.name.clone(), peer: member.peer() };
    loop {
        let answered = ask_once(&address, token, &request).await;
        let refusal = match answered {
            Ok(added) => return Ok(added),
            Err(TransportError::Refusal(refusal)) => refusal,
            Err(error) => match others.next() {
                Some(next) => {
                    address.clone_from(next);
                    continue;
                }
                None => return Err(error).doing(what),
            },
        };
        if !may_pass(&refusal) || Instant::now() > end {
            let exit = match refusal.reason {
                Reason::BadToken | Reason::NotAllowed | Reason::OtherCluster => Exit::NotAllowed,
                Reason::Exists => Exit::Conflict,
                Reason::Busy => Exit::Busy,
                _ => Exit::Failed,
            };
            return Err(Failure::new(exit, what(), refusal.detail));
        }
        if refusal.leader.is_empty() {
            sleep(Duration::from_secs(1)).await;
        } else {
            address.clone_from(&refusal.leader);
        }
    }
}

/// True if a later attempt may be answered otherwise.
fn may_pass(refusal: &Refusal) -> bool {
    matches!(refusal.reason, Reason::NotLeading | Reason::Busy)
}

async fn ask_once(
    address: &str,
    token: &Token,
    request: &AddManager,
) -> Result<ManagerAdded, TransportError> {
    // The same number in each repeat: the token is then known to be used by this host.
    let digest = Sha256::digest(request.address.as_bytes());
    let number = digest.iter().take(16).fold(0u128, |number, byte| number << 8 | u128::from(*byte));
    let credentials = Credentials::joining(token, DriveId(number));
    let mut session = ControlSession::connect(address, credentials, &Limits::default()).await?;
    match session.call(&request.clone().into()).await? {
        ControlReply::ManagerAdded(added) => Ok(added),
        other => {
            let what = format!("{} as the answer to a host that joins", other.name());
            Err(TransportError::Unexpected { address: address.to_owned(), what })
        }
    }
}

/// True for a file of `braid manager backup`; other files are taken for snapshots of etcd.
fn is_backup(path: &Path) -> Result<bool, Failure> {
    let what = || format!("read {}", path.display());
    let mut begin = Vec::new();
    fs::File::open(path)
        .doing(what)?
        .take(NAME_OF_BACKUPS.len() as u64)
        .read_to_end(&mut begin)
        .doing(what)?;
    Ok(begin == NAME_OF_BACKUPS)
}

/// Refuses what is no whole snapshot.
fn check_snapshot(path: &Path) -> Result<(), Failure> {
    let what = || format!("read {}", path.display());
    let mut file = fs::File::open(path).doing(what)?;
    let mut seal = calls::Seal::default();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut buffer).doing(what)?;
        if count == 0 {
            break;
        }
        seal.update(&buffer[..count]);
    }
    seal.check().map(drop).map_err(|why| {
        Failure::new(Exit::Mismatch, what(), format!("it {why}")).remedy("take another one of etcd-snapshots")
    })
}

#[cfg(test)]
mod tests {
    use braid_layout::TokenId;

    use super::*;

    fn text(role: TokenRole, expires_s: u64) -> String {
        Token { role, pin: [1; 32], id: TokenId(1), secret: Key::new([2; 32]), expires_s }.to_string()
    }

    #[test]
    fn only_a_managers_token_that_lasts_is_used() {
        assert!(token(&text(TokenRole::Manager, 0)).is_ok());
        for (wrong, words) in [
            (text(TokenRole::Drive, 0), "role drive"),
            (text(TokenRole::Manager, 1), "expired"),
            ("nonsense".to_owned(), "not a token"),
        ] {
            let failure = token(&wrong).expect_err(words);
            assert!(failure.exit == Exit::NotAllowed && failure.to_string().contains(words), "{failure}");
        }
    }

    #[test]
    fn a_tokens_name_is_one_whatever_the_hosts() {
        let name = token_spec(&format!("[fd00::1]{}", "x".repeat(60))).name;
        assert!(name.starts_with("manager--fd00--1-x") && name.len() <= 64, "{name}");
    }
}
