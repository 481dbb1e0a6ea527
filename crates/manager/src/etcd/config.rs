//! Where etcd is, and how it is trusted.

use std::fs;
use std::path::{Path, PathBuf};

use etcd_client::{Certificate, Identity, TlsOptions};

use super::error::EtcdError;

/// Beginning of the text of a state in etcd.
const SCHEME: &str = "etcd://";
/// The keys of a cluster begin with this.
const PREFIX: &str = "/braid/";

/// The place of etcd, and the means to trust it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdConfig {
    /// Addresses of etcd's members for clients, `host:port`.
    pub endpoints: Vec<String>,
    /// File with the certificate of the CA that etcd's certificates are of; none: etcd without TLS, which is
    /// allowed on this machine only.
    pub ca: Option<PathBuf>,
    /// File with the certificate by which this manager proves itself to etcd.
    pub certificate: Option<PathBuf>,
    /// File with that certificate's key.
    pub key: Option<PathBuf>,
    /// The cluster's keys begin with this: several clusters may be in one etcd.
    pub prefix: String,
}

impl EtcdConfig {
    /// Etcd as `--state` names it: `etcd://h1:2379,h2:2379`, or with a prefix `etcd://h1:2379/other/`.
    pub fn of_state(text: &str) -> Result<EtcdConfig, String> {
        let form = || {
            format!(
                "{text} is no state: etcd://HOST:PORT,HOST:PORT,... names etcd's members; without --state it is in --dir"
            )
        };
        let rest = text.strip_prefix(SCHEME).ok_or_else(form)?;
        let (hosts, prefix) = match rest.split_once('/') {
            Some((hosts, prefix)) if !prefix.is_empty() => {
                (hosts, format!("/{}/", prefix.trim_end_matches('/')))
            }
            Some((hosts, _)) => (hosts, PREFIX.to_owned()),
            None => (rest, PREFIX.to_owned()),
        };
        let endpoints: Vec<String> = hosts.split(',').map(str::to_owned).collect();
        let is_endpoint = |endpoint: &String| {
            let parts = endpoint.rsplit_once(':');
            parts.is_some_and(|(host, port)| {
                !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
            })
        };
        if !endpoints.iter().all(is_endpoint) {
            return Err(form());
        }
        Ok(EtcdConfig { endpoints, ca: None, certificate: None, key: None, prefix })
    }

    /// The state, as errors and logs name it.
    pub fn shown(&self) -> String {
        format!("{SCHEME}{}{}", self.endpoints.join(","), self.prefix)
    }

    /// The options of TLS; `None`: without.
    pub(super) fn tls(&self) -> Result<Option<TlsOptions>, EtcdError> {
        let Some(ca) = &self.ca else {
            if self.certificate.is_some() || self.key.is_some() {
                return Err(EtcdError::Config(
                    "--etcd-certificate and --etcd-key need the certificate of etcd's CA too: --etcd-ca FILE"
                        .to_owned(),
                ));
            }
            let other = self.endpoints.iter().find(|endpoint| !is_here(endpoint));
            return match other {
                None => Ok(None),
                Some(other) => Err(EtcdError::Config(format!(
                    "etcd at {other} is on another machine, and it would hold the cluster's keys without TLS: give etcd \
                     certificates, and the manager --etcd-ca, --etcd-certificate and --etcd-key"
                ))),
            };
        };
        let read = |path: &Path| {
            fs::read(path).map_err(|error| EtcdError::Config(format!("{}: {error}", path.display())))
        };
        let options = TlsOptions::new().ca_certificate(Certificate::from_pem(read(ca)?));
        match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                Ok(Some(options.identity(Identity::from_pem(read(certificate)?, read(key)?))))
            }
            (None, None) => Ok(Some(options)),
            _ => Err(EtcdError::Config(
                "--etcd-certificate and --etcd-key belong together: give both, or neither".to_owned(),
            )),
        }
    }
}

/// Returns true if the endpoint is on this machine for sure.
fn is_here(endpoint: &str) -> bool {
    let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_names_members_and_maybe_a_prefix() {
        let found = EtcdConfig::of_state("etcd://a:2379,[::1]:2,b:3").unwrap();
        assert_eq!(found.endpoints, ["a:2379", "[::1]:2", "b:3"]);
        assert_eq!(found.shown(), "etcd://a:2379,[::1]:2,b:3/braid/");
        assert_eq!(EtcdConfig::of_state("etcd://a:1/x/y").unwrap().prefix, "/x/y/");
        for bad in ["", "a:2379", "etcd://", "etcd://a", "etcd://a:0", "etcd://a:1,,b:2", "http://a:1"] {
            assert!(EtcdConfig::of_state(bad).unwrap_err().contains("etcd://HOST:PORT"), "{bad}");
        }
    }

    #[test]
    fn another_machine_without_tls_is_refused() {
        for here in ["127.0.0.1:1", "[::1]:1", "localhost:1"] {
            assert!(EtcdConfig::of_state(&format!("etcd://{here}")).unwrap().tls().unwrap().is_none());
        }
        let mut config = EtcdConfig::of_state("etcd://127.0.0.1:1,b:2").unwrap();
        assert!(config.tls().unwrap_err().to_string().contains("etcd at b:2 is on another machine"));
        config.certificate = Some("c".into());
        assert!(config.tls().unwrap_err().to_string().contains("--etcd-ca FILE"));
    }
}
