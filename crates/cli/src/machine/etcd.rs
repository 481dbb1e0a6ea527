//! The etcd beside a manager: a member of its own on each manager's host, as a child of the manager's
//! process.
//!
//! What: the operator installs etcd's program and never has to know it. A manager's directory says that it
//! has one by its file `etcd.toml`, and `braid manager serve` then starts both.
//!
//! How: [`member`] is what is on record, and makes the flags of it; [`certificates`] has etcd's certificates,
//! which the host makes itself; [`binary`] finds the program; [`supervise`] keeps it running.
//!
//! | path | what |
//! |---|---|
//! | `etcd.toml` | this host's member, and the others as it last knew them |
//! | `authority.toml` | the cluster's certificate authority; mode 0600 |
//! | `etcd/` | etcd's own data; mode 0700 |
//! | `etcd-tls/` | certificates, made anew at each start |
//! | `etcd-snapshots/` | snapshots, while this host's manager leads |

pub(crate) mod binary;
pub(crate) mod certificates;
pub(crate) mod member;
pub(crate) mod supervise;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use braid_manager::EtcdConfig;
use braid_manager::own_etcd::endpoints::Endpoints;
use braid_manager::own_etcd::{AuthorityRecord, OwnEtcd, authority_of_text, authority_text, calls};
use braid_transport::Authority;
use braid_wire::token::{Pin, pin_of};
use tokio::time::{Instant, sleep};

use crate::machine::cluster_dir::{CLUSTER_FILE, ClusterFile, replace_file, write_cluster_file};
use crate::output::exit::{Doing, Exit, Failure};
use certificates::Certificates;
use member::{MEMBER_FILE, Member, Peer};
use supervise::Supervisor;

/// File of the cluster's certificate authority.
const AUTHORITY_FILE: &str = "authority.toml";
/// Beginning of its name, and of the one that it has while it is written.
const AUTHORITY_BEGIN: &str = "authority.";
/// The beginning of the keys of the managers' state.
const PREFIX: &str = "/braid/";
/// File that is locked while etcd runs for a manager of the directory.
const LOCK: &str = "etcd.lock";
/// Interval between two looks whether etcd answers.
const POLL: Duration = Duration::from_millis(200);
/// Time after which a host that joins is taken not to be a member, if no other member knows it: one of them
/// may be a little behind.
const ABSENT_MAX: Duration = Duration::from_secs(10);
/// Interval between two lines of a wait.
const SAY_EVERY: Duration = Duration::from_secs(10);
/// Interval at which it is looked whether a restored state is marked as such.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Number of such looks after which the list of members is asked for.
const FOLLOW_LOOKS: u32 = 5;
/// Number of such looks after which certificates are made anew: a day.
const RENEW_LOOKS: u32 = 24 * 60 * 60;

/// The host of a manager, with what its directory has on record of etcd.
#[derive(Debug)]
pub(crate) struct Host {
    dir: PathBuf,
    pub(crate) member: Member,
    authority: AuthorityRecord,
    /// Addresses of all members of etcd, which whoever asks etcd on this host shares.
    endpoints: Endpoints,
    /// True until a restored state is marked as such.
    restored: Arc<AtomicBool>,
}

/// The wait for etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// The host has just become a manager: a wait beyond this is a failure.
    First(Duration),
    /// The host was one before: the others may be away for long.
    Ever,
}

impl Host {
    /// The host of a manager that is on record in this directory; `None`: its manager has no etcd.
    pub(crate) fn of(dir: &Path) -> Result<Option<Host>, Failure> {
        let Some(member) = Member::read(dir)? else { return Ok(None) };
        let path = dir.join(AUTHORITY_FILE);
        let text = fs::read_to_string(&path).doing(|| format!("read {}", path.display()))?;
        let authority = authority_of_text(&text).ok_or_else(|| {
            Failure::new(Exit::Failed, format!("read {}", path.display()), "it is no certificate authority")
                .remedy("copy it from another manager's directory, where it is the same")
        })?;
        Ok(Some(Host::with(dir, member, authority)))
    }

    /// Makes a directory the one of a manager with etcd.
    pub(crate) fn found(dir: &Path, member: Member, authority: AuthorityRecord) -> Result<Host, Failure> {
        let host = Host::unfounded(dir, member, authority)?;
        let path = host.dir.join(AUTHORITY_FILE);
        replace_file(&path, authority_text(&host.authority).as_bytes())
            .doing(|| format!("write {}", path.display()))?;
        host.member.write(dir)?; // last: it says that the directory is whole
        Ok(host)
    }

    /// A host whose directory is not that of a manager yet.
    pub(crate) fn unfounded(dir: &Path, member: Member, authority: AuthorityRecord) -> Result<Host, Failure> {
        make_private(dir)?;
        Ok(Host::with(dir, member, authority))
    }

    fn with(dir: &Path, member: Member, authority: AuthorityRecord) -> Host {
        let restored = Arc::new(AtomicBool::new(member.restored));
        let endpoints = Endpoints::new(member.endpoints());
        Host { dir: dir.to_owned(), member, authority, endpoints, restored }
    }

    /// The host of a join that was cut short in this directory, if it is the one of this manager and of the
    /// cluster whose CA has this hash; `None`: there is none, or it was completed.
    pub(crate) fn begun(dir: &Path, name: &str, pin: Pin) -> Result<Option<Host>, Failure> {
        let is_begun = |host: &Host| {
            let member = &host.member;
            member.joined
                && !member.started
                && member.name == name
                && pin_of(&host.authority.certificate) == pin
        };
        Ok(Host::of(dir)?.filter(is_begun))
    }

    /// Refuses a directory that holds anything, but for what a first start leaves that was cut short before
    /// the directory was whole.
    pub(crate) fn check_new(dir: &Path) -> Result<(), Failure> {
        let what = || format!("make {} the directory of a manager", dir.display());
        if dir.join(MEMBER_FILE).exists() {
            let why = "it is the directory of a manager already";
            return Err(Failure::new(Exit::Conflict, what(), why)
                .remedy(format!("start it: braid manager serve --dir {}", dir.display())));
        }
        // The file itself, or the one that was to become it.
        let is_left = |entry: std::io::Result<fs::DirEntry>| {
            entry.map(|entry| entry.file_name().to_string_lossy().starts_with(AUTHORITY_BEGIN))
        };
        let is_empty = match fs::read_dir(dir) {
            Ok(entries) => {
                let left: std::io::Result<Vec<bool>> = entries.map(is_left).collect();
                left.doing(what)?.into_iter().all(|is_left| is_left)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
            Err(error) => return Err(error).doing(what),
        };
        if is_empty {
            return Ok(());
        }
        Err(Failure::new(Exit::Conflict, what(), "it holds other things")
            .remedy("name an empty or a new directory with --dir"))
    }

    /// The way to etcd's members.
    pub(crate) fn access(&self) -> calls::Access {
        Certificates::of(&self.dir).access(self.endpoints.clone())
    }

    /// The manager's state in etcd.
    pub(crate) fn etcd_config(&self) -> EtcdConfig {
        let calls::Access { endpoints, ca, certificate, key } = self.access();
        EtcdConfig {
            endpoints: endpoints.now().to_vec(),
            ca: Some(ca),
            certificate: Some(certificate),
            key: Some(key),
            prefix: PREFIX.to_owned(),
        }
    }

    /// The etcd beside the manager, as the manager is told of it.
    pub(crate) fn own_etcd(&self) -> OwnEtcd {
        OwnEtcd {
            access: self.access(),
            authority: self.authority.clone(),
            snapshots: self.dir.join("etcd-snapshots"),
            restored: Arc::clone(&self.restored),
        }
    }

    /// Starts etcd, which runs until the supervisor is stopped or dropped.
    pub(crate) fn start(&self) -> Result<Running, Failure> {
        self.check_data()?;
        let program = binary::find(self.member.program.as_deref())?;
        let lock = lock(&self.dir)?;
        make_private(&self.dir.join("etcd"))?;
        self.write_certificates()?;
        let flags = self.member.flags(&self.dir);
        Ok(Running { supervisor: Supervisor::start(program, flags), _lock: lock })
    }

    /// Refuses to start an etcd that has lost its data: the others count on what it had promised them, and
    /// an empty one in its place would undo what a majority had agreed on.
    fn check_data(&self) -> Result<(), Failure> {
        if !self.member.started || self.dir.join("etcd").join("member").exists() {
            return Ok(());
        }
        let name = &self.member.name;
        let remedy = match self.member.others().next() {
            Some(_) => format!(
                "on another manager's host: braid manager replace {name}; then join with an empty directory, by the command that \
                 this prints"
            ),
            None => {
                "begin anew from a snapshot, with an empty directory: braid cluster restore FILE".to_owned()
            }
        };
        let what = format!("start the etcd of {}", self.dir.display());
        Err(Failure::new(Exit::Failed, what, "its data is gone: etcd/member is not there").remedy(remedy))
    }

    /// Puts on record that its etcd has answered here.
    pub(crate) fn has_started(&mut self) -> Result<(), Failure> {
        if self.member.started {
            return Ok(());
        }
        self.member.started = true;
        self.member.write(&self.dir)
    }

    /// Makes the certificates of etcd on this host.
    fn write_certificates(&self) -> Result<(), Failure> {
        let what = || "make the certificates of etcd".to_owned();
        let authority = Authority::of_record(&self.authority.key, &self.authority.certificate)
            .map_err(|error| Failure::new(Exit::Failed, what(), error.to_string()))?;
        Certificates::of(&self.dir).write(&authority, &self.member.hosts())
    }

    /// Waits until etcd answers: it then takes part in a majority.
    pub(crate) async fn until_answers(&self, running: &Running, patience: Patience) -> Result<(), Failure> {
        let own = self.member.client();
        let begun = Instant::now();
        let mut said = begun;
        while let Err(why) = calls::answers(&self.access(), &own).await {
            if let Patience::First(bound) = patience
                && begun.elapsed() > bound
            {
                let said = running.supervisor.last();
                let why = if said.is_empty() { why } else { said };
                return Err(Failure::new(Exit::Timeout, "start etcd", why)
                    .remedy(format!("see that nothing else uses port {} or the next", self.member.port)));
            }
            if said.elapsed() >= SAY_EVERY {
                said = Instant::now();
                let others: Vec<&str> = self.member.others().map(|peer| peer.name.as_str()).collect();
                tracing::warn!(%why, ?others, "waiting for a majority of the managers' etcd: start the other managers");
            }
            sleep(POLL).await;
        }
        Ok(())
    }

    /// Waits until this host's etcd has its vote, which the manager that leads gives it.
    pub(crate) async fn until_votes(&self, bound: Duration) -> Result<(), Failure> {
        let end = Instant::now() + bound;
        let others = Endpoints::new(self.member.other_endpoints());
        let others = calls::Access { endpoints: others, ..self.access() };
        let mut seen = Instant::now();
        loop {
            let members = calls::list(&others).await;
            let name = &self.member.name;
            let peer = self.member.peer();
            if !matches!(&members, Ok(members) if members.iter().all(|it| it.peer != peer)) {
                seen = Instant::now();
            } else if seen.elapsed() > ABSENT_MAX {
                let why =
                    "its etcd is none of the members any more: it was taken out, as it did not start in time";
                return Err(Failure::new(Exit::Timeout, "join the managers", why)
                    .remedy("remove its directory, and join again with the same token"));
            }
            match &members {
                Ok(members) if members.iter().any(|it| &it.name == name && !it.learns) => return Ok(()),
                _ if Instant::now() < end => {}
                Ok(_) => {
                    let why = format!("its etcd has no vote after {} s", bound.as_secs());
                    return Err(Failure::new(Exit::Timeout, "join the managers", why).remedy(
                        "see the log of the manager that leads; then braid manager serve --dir DIR goes on",
                    ));
                }
                Err(refusal) => {
                    return Err(Failure::new(Exit::Timeout, "join the managers", refusal.detail.clone())
                        .remedy("see that the other managers run"));
                }
            }
            sleep(POLL).await;
        }
    }

    /// Follows who is a member, and keeps certificates fresh, for ever.
    pub(crate) async fn follow(&mut self) {
        let mut looks = 0u32;
        loop {
            sleep(LOOK_EVERY).await;
            looks = looks.wrapping_add(1);
            if self.member.restored && !self.restored.load(Ordering::Acquire) {
                // The state itself says so from now on.
                self.member.restored = false;
                self.note(self.member.write(&self.dir));
            }
            if !looks.is_multiple_of(FOLLOW_LOOKS) {
                continue;
            }
            let Ok(members) = calls::list(&self.access()).await else { continue };
            let peers = members.into_iter().filter(|it| !it.name.is_empty());
            let peers = peers.map(|it| Peer { name: it.name, peer: it.peer, client: it.client }).collect();
            if self.member.handle_members(peers) || looks.is_multiple_of(RENEW_LOOKS) {
                self.endpoints.set(self.member.endpoints());
                self.note(self.member.write(&self.dir).and_then(|()| self.write_certificates()));
                self.note(self.tell_managers());
            }
        }
    }

    /// Writes who the managers are into the directory's file for admins.
    pub(crate) fn tell_managers(&self) -> Result<(), Failure> {
        let what = || format!("read the {CLUSTER_FILE} of {}", self.dir.display());
        let found = ClusterFile::read(&self.dir);
        let found = found.map_err(|error| Failure::new(Exit::Failed, what(), error.to_string()))?;
        let Some(file) = found else { return Ok(()) };
        let own = std::iter::once(self.member.name.as_str());
        let managers: Vec<&str> = own.chain(self.member.others().map(|peer| peer.name.as_str())).collect();
        let file = ClusterFile { manager: managers.join(","), ..file };
        write_cluster_file(&self.dir.join(CLUSTER_FILE), &file)
    }

    fn note(&self, written: Result<(), Failure>) {
        if let Err(failure) = written {
            let dir = self.dir.display();
            tracing::warn!(%dir, %failure, "what this host knows of the managers' etcd could not be stored");
        }
    }
}

/// A running etcd.
#[derive(Debug)]
pub(crate) struct Running {
    supervisor: Supervisor,
    _lock: File,
}

impl Running {
    /// Ends etcd, within a bound.
    pub(crate) async fn stop(self) {
        let supervisor = self.supervisor;
        // Errors are a panic of its thread, which is reported there.
        let _ = tokio::task::spawn_blocking(move || supervisor.stop()).await;
    }
}

/// Makes a directory that only its owner can enter.
fn make_private(dir: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    let what = || format!("make {}", dir.display());
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).doing(what)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).doing(what)
}

fn lock(dir: &Path) -> Result<File, Failure> {
    let what = || format!("start the etcd of {}", dir.display());
    let mut options = OpenOptions::new();
    let file =
        options.write(true).create(true).truncate(false).mode(0o600).open(dir.join(LOCK)).doing(what)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(Failure::new(Exit::Busy, what(), "another manager uses the directory")
                .remedy("stop that one first"))
        }
        Err(TryLockError::Error(error)) => Err(error).doing(what),
    }
}
