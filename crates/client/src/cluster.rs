//! The way a program finds a cluster: a directory with `cluster.toml`, or that file itself.
//!
//! The file holds the managers' addresses and a token, and is all that a client on another machine needs. It
//! is chosen by the caller, else by BRAID_CLUSTER, else it is where `braid up` puts it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use braid_transport::{BadManagers, BadTransport, Managers, Transport};
use braid_wire::token::{BadToken, Token};
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::config::Config;
use crate::sealed::keys::{KeyError, KeySource, VolumeKeys};

/// The file that says how to reach a cluster.
pub const CLUSTER_FILE: &str = "cluster.toml";

/// The environment's variable that names a cluster.
pub const CLUSTER_VARIABLE: &str = "BRAID_CLUSTER";

/// The environment's variable that names the transport.
pub const TRANSPORT_VARIABLE: &str = "BRAID_TRANSPORT";

/// Time in which a manager must accept the first connection. A program fails fast if no manager runs when it
/// starts; once under way it waits for the manager with the client's own, longer patience.
pub const FIRST_CONNECT: Duration = Duration::from_secs(3);

/// Contents of a cluster's file: all that is needed to reach the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterFile {
    /// The managers' `HOST:PORT`, with commas between.
    pub manager: String,
    /// A client's token or an admin's.
    pub token: String,
    /// Names of the drives that `braid up` runs; empty for a cluster started by hand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drives: Vec<String>,
    /// The way of data, as `--transport` takes it; `None`: TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// Keys of encrypted volumes: a file, or `command:` and a command, by volume.
    #[serde(default, rename = "volume-keys", skip_serializing_if = "BTreeMap::is_empty")]
    pub volume_keys: BTreeMap<String, String>,
}

/// Reason for which a cluster's file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClusterFileError {
    /// Nothing names a cluster, and there is no default.
    #[error("find the cluster: HOME is not set; name a cluster's directory or set BRAID_CLUSTER")]
    NoHome,
    /// The file, or the way to it, cannot be read.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// "find" or "read".
        action: &'static str,
        /// The path that could not be read or found.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not one of a cluster.
    #[error("read {}: {why}; it needs manager = \"HOST:PORT\" and token = \"braid1.client...\"", path.display())]
    Content {
        /// Path of the faulty file.
        path: PathBuf,
        /// The fault, in the parser's words.
        why: String,
    },
}

/// Reason for which a cluster's file gives no settings.
#[derive(Debug, thiserror::Error)]
pub enum BadClusterFile {
    /// The token is none.
    #[error(transparent)]
    Token(#[from] BadToken),
    /// The managers' addresses are none.
    #[error(transparent)]
    Managers(#[from] BadManagers),
    /// The transport is none, in the file or in the environment.
    #[error(transparent)]
    Transport(#[from] BadTransport),
}

/// That which names the transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportFrom {
    /// Nothing names it.
    Default,
    /// The cluster's file.
    File,
    /// The environment's [`TRANSPORT_VARIABLE`].
    Environment,
}

/// Reason for which a manager does not take a connection.
#[derive(Debug, thiserror::Error)]
pub enum NoManager {
    /// The manager's host refuses: no process listens on the port.
    #[error("nothing listens there")]
    NobodyListens,
    /// The system's error.
    #[error("{0}")]
    Io(io::Error),
    /// The manager or its host did not answer within [`FIRST_CONNECT`].
    #[error("no answer in {} s", FIRST_CONNECT.as_secs())]
    Silent,
}

impl ClusterFile {
    /// Reads the file at `path`, or the one in the directory at `path`; `None` if there is none.
    pub fn read(path: &Path) -> Result<Option<ClusterFile>, ClusterFileError> {
        let path = if path.is_file() { path.to_owned() } else { path.join(CLUSTER_FILE) };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(source) => return Err(ClusterFileError::Io { action: "read", path, source }),
        };
        match toml::from_str(&text) {
            Ok(cluster) => Ok(Some(cluster)),
            Err(error) => Err(ClusterFileError::Content { path, why: error.message().to_owned() }),
        }
    }

    /// A client's settings for this cluster.
    pub fn config(&self) -> Result<Config, BadClusterFile> {
        let token: Token = self.token.parse()?;
        let managers: Managers = self.manager.parse()?;
        let (transport, _) = self.transport()?;
        Ok(Config { transport, ..Config::new(managers, token) })
    }

    /// The transport that the environment names, else this file, else TCP.
    pub fn transport(&self) -> Result<(Transport, TransportFrom), BadTransport> {
        let told = environment(TRANSPORT_VARIABLE).map(|text| text.to_string_lossy().into_owned());
        match (told, &self.transport) {
            (Some(text), _) => Ok((text.parse()?, TransportFrom::Environment)),
            (None, Some(text)) => Ok((text.parse()?, TransportFrom::File)),
            (None, None) => Ok((Transport::Tcp, TransportFrom::Default)),
        }
    }

    /// The keys of encrypted volumes that this file names, and those that the environment names, which count
    /// first.
    pub fn volume_keys(&self) -> Result<VolumeKeys, KeyError> {
        let mut keys = VolumeKeys::default();
        for (volume, source) in &self.volume_keys {
            keys.insert(volume, KeySource::parse(source)?);
        }
        keys.extend(VolumeKeys::from_environment()?);
        Ok(keys)
    }

    /// Looks whether a manager takes a connection, and gives up soon.
    pub async fn look_for_manager(&self) -> Result<(), NoManager> {
        let mut looking = JoinSet::new();
        for address in self.manager.split(',') {
            looking.spawn(look_at(address.trim().to_owned()));
        }
        let mut found = Err(NoManager::NobodyListens);
        while let Some(looked) = looking.join_next().await {
            match looked {
                Ok(Ok(())) => return Ok(()),
                // Of a silent host more is said than of one where nobody listens.
                Ok(Err(error)) if !matches!(error, NoManager::NobodyListens) => found = Err(error),
                Ok(Err(_)) | Err(_) => {}
            }
        }
        found
    }
}

async fn look_at(address: String) -> Result<(), NoManager> {
    match timeout(FIRST_CONNECT, TcpStream::connect(&address)).await {
        Ok(Ok(_)) => Ok(()),
        // The manager is just ending or restarting: the client's own retries handle that.
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => Err(NoManager::NobodyListens),
        Ok(Err(error)) => Err(NoManager::Io(error)),
        Err(_) => Err(NoManager::Silent),
    }
}

/// The cluster's directory, or its file: `asked`, else the user's default. Absolute: what is given to other
/// processes and shown to users must not depend on the working directory.
pub fn choose(asked: Option<&Path>) -> Result<PathBuf, ClusterFileError> {
    let chosen = asked.map(Path::to_path_buf).or_else(default_directory).ok_or(ClusterFileError::NoHome)?;
    std::path::absolute(&chosen).map_err(|source| ClusterFileError::Io {
        action: "find",
        path: chosen,
        source,
    })
}

/// The path that [`CLUSTER_VARIABLE`] holds, if it is set.
pub fn from_environment() -> Option<PathBuf> {
    environment(CLUSTER_VARIABLE).map(PathBuf::from)
}

/// A variable of the environment; an empty one counts as unset. Scripts leave variables empty, and a parser
/// would refuse that.
pub fn environment(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The directory in which `braid up` puts a cluster by default; `None` if the environment names no home.
fn default_directory() -> Option<PathBuf> {
    let set = |name| environment(name).map(PathBuf::from);
    set("XDG_DATA_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".local/share")))
        .map(|data| data.join("braid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_and_its_file_name_the_same_cluster() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        assert_eq!(ClusterFile::read(dir.path()).expect("read"), None);
        let file = dir.path().join(CLUSTER_FILE);
        std::fs::write(&file, "manager = \"127.0.0.1:1\"\ntoken = \"t\"\n").expect("written");
        let expected = ClusterFile {
            manager: "127.0.0.1:1".into(),
            token: "t".into(),
            drives: Vec::new(),
            transport: None,
            volume_keys: BTreeMap::new(),
        };
        for path in [dir.path(), &file] {
            assert_eq!(ClusterFile::read(path).expect("read").as_ref(), Some(&expected));
        }
        assert!(expected.config().is_err(), "this is no token");
    }

    #[tokio::test]
    async fn one_manager_of_the_list_that_takes_connections_is_enough() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let here = listener.local_addr().expect("its address");
        let file = |manager: &str| ClusterFile {
            manager: manager.to_owned(),
            token: String::new(),
            drives: Vec::new(),
            transport: None,
            volume_keys: BTreeMap::new(),
        };
        file(&format!("127.0.0.1:1, {here}")).look_for_manager().await.expect("the second");
        let nobody = file("127.0.0.1:1,127.0.0.1:2").look_for_manager().await;
        assert!(matches!(nobody, Err(NoManager::NobodyListens)), "{nobody:?}");
    }

    #[test]
    fn a_bad_list_of_managers_is_named() {
        let pin = [1; 32];
        let token = Token::lasting(
            braid_wire::token::TokenRole::Client,
            pin,
            braid_layout::TokenId(1),
            braid_wire::Key::new([2; 32]),
        );
        let refused = |manager: &str| {
            let file = ClusterFile {
                manager: manager.to_owned(),
                token: token.to_string(),
                drives: Vec::new(),
                transport: None,
                volume_keys: BTreeMap::new(),
            };
            file.config().map(|config| config.managers.to_string()).map_err(|error| error.to_string())
        };
        assert_eq!(refused("a:1,b:1"), Ok("a:1,b:1".to_owned()));
        for (bad, why) in [("", "no manager"), ("a:1,a:1", "twice"), ("a:1,b:x", "\"b:x\"")] {
            let error = refused(bad).expect_err(bad);
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_file_names_keys_of_volumes() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let text = "manager = \"127.0.0.1:1\"\ntoken = \"t\"\n[volume-keys]\nmedia = \"/etc/media.key\"\n";
        std::fs::write(dir.path().join(CLUSTER_FILE), text).expect("written");
        let read = ClusterFile::read(dir.path()).expect("read").expect("it is there");
        assert_eq!(
            toml::from_str::<ClusterFile>(&toml::to_string(&read).expect("text")).ok(),
            Some(read.clone())
        );
        let keys = read.volume_keys().expect("keys");
        assert_eq!(keys.of("media"), Some(&KeySource::File("/etc/media.key".into())));
    }

    #[test]
    fn a_file_names_the_transport() {
        let text = "manager = \"127.0.0.1:1\"\ntoken = \"t\"\n";
        let read = |more: &str| toml::from_str::<ClusterFile>(&format!("{text}{more}")).expect("a file");
        // The tester's own transport counts first.
        if environment(TRANSPORT_VARIABLE).is_some() {
            assert_eq!(read("").transport().map(|(_, from)| from), Ok(TransportFrom::Environment));
            return;
        }
        assert_eq!(read("").transport(), Ok((Transport::Tcp, TransportFrom::Default)));
        let auto = read("transport = \"auto\"");
        assert_eq!(auto.transport(), Ok((Transport::AUTO, TransportFrom::File)));
        assert_eq!(toml::from_str::<ClusterFile>(&toml::to_string(&auto).expect("text")).ok(), Some(auto));
        assert!(read("transport = \"quic\"").transport().is_err());
    }

    #[test]
    fn what_a_file_lacks_is_said() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join(CLUSTER_FILE), "manager = \"127.0.0.1:1\"\n").expect("written");
        let error = ClusterFile::read(dir.path()).expect_err("no token").to_string();
        assert!(error.contains("token") && error.contains("braid1.client..."), "{error}");
    }
}
