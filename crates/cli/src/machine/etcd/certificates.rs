//! The files of etcd's certificates on a host.
//!
//! A certificate and its key are in one file, so that both are replaced at once. etcd reads them anew for
//! each connection.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use braid_manager::own_etcd::calls::Access;
use braid_manager::own_etcd::endpoints::Endpoints;
use braid_transport::{Authority, EtcdUse};

use super::make_private;
use crate::machine::cluster_dir::replace_file;
use crate::output::exit::{Doing, Exit, Failure};

/// The directory of the files.
#[derive(Debug, Clone)]
pub(crate) struct Certificates(PathBuf);

impl Certificates {
    /// Those of the manager in this directory.
    pub(crate) fn of(dir: &Path) -> Certificates {
        Certificates(dir.join("etcd-tls"))
    }

    /// The CA's certificate.
    pub(crate) fn ca(&self) -> PathBuf {
        self.0.join("ca.pem")
    }

    /// For other members.
    pub(crate) fn peer(&self) -> PathBuf {
        self.0.join("peer.pem")
    }

    /// For managers, by etcd.
    pub(crate) fn server(&self) -> PathBuf {
        self.0.join("server.pem")
    }

    /// The manager's own.
    pub(crate) fn client(&self) -> PathBuf {
        self.0.join("client.pem")
    }

    /// The way to members of etcd, with the manager's own certificate.
    pub(crate) fn access(&self, endpoints: Endpoints) -> Access {
        Access { endpoints, ca: self.ca(), certificate: self.client(), key: self.client() }
    }

    /// Makes all of them anew, for a host of these names and addresses.
    pub(crate) fn write(&self, authority: &Authority, hosts: &[String]) -> Result<(), Failure> {
        make_private(&self.0)?;
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let put = |path: PathBuf, text: String| {
            replace_file(&path, text.as_bytes()).doing(|| format!("write {}", path.display()))
        };
        put(self.ca(), authority.certificate_pem())?;
        for of in EtcdUse::ALL {
            let path = match of {
                EtcdUse::Peer => self.peer(),
                EtcdUse::Server => self.server(),
                EtcdUse::Client => self.client(),
            };
            let pair = authority.issue_for_etcd(of, hosts, now_s).map_err(|error| {
                Failure::new(Exit::Usage, format!("make a certificate for {}", hosts.join(", ")), error.to_string())
                    .remedy("name the host with --listen or --advertise by an address, or a name of the domain system")
            })?;
            put(path, pair.certificate + &pair.key)?;
        }
        Ok(())
    }
}
