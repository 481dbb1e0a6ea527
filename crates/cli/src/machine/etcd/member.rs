//! A host's member of etcd: what is on record of it, and the flags that etcd is started with.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use braid_manager::own_etcd::QUOTA_BYTES;
use braid_transport::ETCD_PEER_NAME;
use serde::{Deserialize, Serialize};

use super::certificates::Certificates;
use crate::machine::cluster_dir::replace_file;
use crate::output::exit::{Doing, Exit, Failure};

/// File of the member in a manager's directory.
pub(crate) const MEMBER_FILE: &str = "etcd.toml";
/// First line of the file.
const HEADER: &str = "# The etcd that braid runs for this manager. Written by braid.\n";
/// Time for which revisions that are over are kept, for those that follow.
const RETENTION: &str = "5m";
/// Number of changes after which etcd writes its state and forgets them: it has them in memory until then.
const SNAPSHOT_COUNT: u32 = 5000;

/// A member of etcd on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    /// Name of the member: the address of its manager.
    pub(crate) name: String,
    /// The host by which others reach it, a name or an address.
    pub(crate) host: String,
    /// The address that it listens on.
    pub(crate) bind: IpAddr,
    /// Its port for managers; the next one is for other members.
    pub(crate) port: u16,
    /// True if it joined members that were there; false: it is the first of its cluster.
    pub(crate) joined: bool,
    /// True if the state was put back from a snapshot, and no manager has served it yet.
    #[serde(default)]
    pub(crate) restored: bool,
    /// True once its etcd has answered here: its data must be there at each start from then on.
    #[serde(default)]
    pub(crate) started: bool,
    /// The program, if it is not the one in PATH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) program: Option<PathBuf>,
    /// All members, this one too, as they were last known.
    pub(crate) members: Vec<Peer>,
}

/// A member as others know it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Peer {
    /// Name of the member: the address of its manager.
    pub(crate) name: String,
    /// Address for other members.
    pub(crate) peer: String,
    /// Address for managers.
    pub(crate) client: String,
}

impl Member {
    /// The member that is on record in a directory; `None`: there is none.
    pub(crate) fn read(dir: &Path) -> Result<Option<Member>, Failure> {
        let path = dir.join(MEMBER_FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(error).doing(|| format!("read {}", path.display())),
        };
        toml::from_str(&text).map(Some).map_err(|error| {
            Failure::new(Exit::Failed, format!("read {}", path.display()), error.message())
                .remedy("take this manager out (braid manager replace), and join with an empty directory")
        })
    }

    /// Puts the member on record.
    pub(crate) fn write(&self, dir: &Path) -> Result<(), Failure> {
        let path = dir.join(MEMBER_FILE);
        let text = toml::to_string(self).map_err(io::Error::other);
        let written = text.and_then(|text| replace_file(&path, format!("{HEADER}{text}").as_bytes()));
        written.doing(|| format!("write {}", path.display()))
    }

    /// Its address for managers.
    pub(crate) fn client(&self) -> String {
        at(&self.host, self.port)
    }

    /// Its address for other members.
    pub(crate) fn peer(&self) -> String {
        at(&self.host, self.port.saturating_add(1))
    }

    /// This member, as others know it.
    pub(crate) fn as_peer(&self) -> Peer {
        Peer { name: self.name.clone(), peer: self.peer(), client: self.client() }
    }

    /// The other members.
    pub(crate) fn others(&self) -> impl Iterator<Item = &Peer> {
        self.members.iter().filter(|peer| peer.name != self.name)
    }

    /// Addresses of all members for managers, this one's first.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        std::iter::once(self.client()).chain(self.other_endpoints()).collect()
    }

    /// Addresses of the other members for managers.
    pub(crate) fn other_endpoints(&self) -> Vec<String> {
        self.others().map(|peer| peer.client.clone()).filter(|client| !client.is_empty()).collect()
    }

    /// Takes over who is a member. Returns true if that has changed.
    pub(crate) fn handle_members(&mut self, mut peers: Vec<Peer>) -> bool {
        peers.sort();
        if !peers.iter().any(|peer| peer.name == self.name) || peers == self.members {
            return false;
        }
        self.members = peers;
        true
    }

    /// The names and addresses that its certificates are for: etcd compares them with the address that a
    /// connection of this host comes from, which depends on the other end.
    pub(crate) fn hosts(&self) -> Vec<String> {
        let mut hosts = vec![self.host.trim_matches(['[', ']']).to_owned()];
        let ends = self.members.iter().map(|peer| peer.peer.clone()).chain([self.peer()]);
        hosts.extend(ends.filter_map(|end| source_towards(&end)).map(|ip| ip.to_string()));
        hosts.sort();
        hosts.dedup();
        hosts
    }

    /// The flags of etcd.
    pub(crate) fn flags(&self, dir: &Path) -> Vec<String> {
        let files = Certificates::of(dir);
        let listen = |port| format!("https://{}", SocketAddr::new(self.bind, port));
        let mut members: Vec<String> =
            self.others().map(|peer| format!("{}=https://{}", peer.name, peer.peer)).collect();
        members.push(format!("{}=https://{}", self.name, self.peer()));
        let path = |path: &Path| path.display().to_string();
        let peer = path(&files.peer());
        let server = path(&files.server());
        let ca = path(&files.ca());
        let flags = [
            ("name", self.name.clone()),
            ("data-dir", path(&dir.join("etcd"))),
            ("listen-client-urls", listen(self.port)),
            ("advertise-client-urls", format!("https://{}", self.client())),
            ("listen-peer-urls", listen(self.port.saturating_add(1))),
            ("initial-advertise-peer-urls", format!("https://{}", self.peer())),
            ("initial-cluster", members.join(",")),
            ("initial-cluster-state", if self.joined { "existing" } else { "new" }.to_owned()),
            ("initial-cluster-token", "braid".to_owned()),
            ("cert-file", server.clone()),
            ("key-file", server),
            ("trusted-ca-file", ca.clone()),
            ("client-cert-auth", "true".to_owned()),
            ("peer-cert-file", peer.clone()),
            ("peer-key-file", peer),
            ("peer-trusted-ca-file", ca),
            ("peer-client-cert-auth", "true".to_owned()),
            ("peer-cert-allowed-cn", ETCD_PEER_NAME.to_owned()),
            ("enable-grpc-gateway", "false".to_owned()),
            ("quota-backend-bytes", QUOTA_BYTES.to_string()),
            ("auto-compaction-mode", "periodic".to_owned()),
            ("auto-compaction-retention", RETENTION.to_owned()),
            ("snapshot-count", SNAPSHOT_COUNT.to_string()),
            ("logger", "zap".to_owned()),
            ("log-outputs", "stderr".to_owned()),
        ];
        flags.into_iter().map(|(name, value)| format!("--{name}={value}")).collect()
    }
}

/// The address of a port on a host.
pub(crate) fn at(host: &str, port: u16) -> String {
    format!("{host}:{port}")
}

/// The host of an address, in brackets if it is of IPv6.
pub(crate) fn host_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// The address of this host from which it would reach another one. Nothing is sent.
fn source_towards(address: &str) -> Option<IpAddr> {
    use std::net::ToSocketAddrs;
    let to = address.to_socket_addrs().ok()?.next()?;
    let any: IpAddr = if to.is_ipv4() { [0, 0, 0, 0].into() } else { [0u16; 8].into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn member() -> Member {
        let peer = |host: &str| Peer {
            name: format!("{host}:7400"),
            peer: format!("{host}:7381"),
            client: format!("{host}:7380"),
        };
        Member {
            name: "10.77.0.2:7400".into(),
            host: "10.77.0.2".into(),
            bind: [10, 77, 0, 2].into(),
            port: 7380,
            joined: true,
            restored: false,
            started: false,
            program: None,
            members: vec![peer("10.77.0.1"), peer("10.77.0.2")],
        }
    }

    #[test]
    fn etcd_is_bounded_and_says_nothing_in_clear() {
        let flags = member().flags(Path::new("/d"));
        let has = |flag: &str| assert!(flags.iter().any(|it| it == flag), "{flag} is not in {flags:?}");
        has("--initial-cluster=10.77.0.1:7400=https://10.77.0.1:7381,10.77.0.2:7400=https://10.77.0.2:7381");
        has("--initial-cluster-state=existing");
        has("--listen-client-urls=https://10.77.0.2:7380");
        has("--data-dir=/d/etcd");
        has("--client-cert-auth=true");
        has("--peer-client-cert-auth=true");
        has("--quota-backend-bytes=8589934592");
        has("--auto-compaction-retention=5m");
        assert!(!flags.iter().any(|flag| flag.contains("http:")), "{flags:?}");
        let first = Member { joined: false, ..member() };
        assert!(first.flags(Path::new("/d")).contains(&"--initial-cluster-state=new".to_owned()));
    }

    #[test]
    fn it_comes_back_from_its_file_and_a_damaged_one_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(Member::read(dir.path()).expect("read"), None);
        member().write(dir.path()).expect("written");
        assert_eq!(Member::read(dir.path()).expect("read"), Some(member()));
        fs::write(dir.path().join(MEMBER_FILE), "name = 3\n").expect("written");
        let said = Member::read(dir.path()).expect_err("damaged").to_string();
        assert!(said.contains(MEMBER_FILE) && said.contains("braid manager replace"), "{said}");
    }

    #[test]
    fn a_list_of_members_without_this_one_is_not_taken_over() {
        let mut own = member();
        let mut peers = own.members.clone();
        assert!(!own.handle_members(peers.clone()), "nothing has changed");
        peers.remove(0);
        assert!(own.handle_members(peers.clone()));
        assert_eq!(own.endpoints(), ["10.77.0.2:7380"]);
        peers.remove(0);
        assert!(!own.handle_members(peers), "this one was taken out");
    }

    #[test]
    fn its_certificates_are_for_the_addresses_that_it_connects_from() {
        let host = "127.0.0.1".to_owned();
        let own = Member { host, members: Vec::new(), ..member() };
        assert_eq!(own.hosts(), ["127.0.0.1"]);
        let beside = Member { host: "127.0.0.2".into(), ..own };
        assert!(beside.hosts().contains(&"127.0.0.2".to_owned()));
    }
}
