//! Finds a cluster, and makes a store of it.

use std::path::PathBuf;

use braid_client::Client;
use braid_client::Name;
use braid_client::NameError;
use braid_client::cluster::{self, BadClusterFile, CLUSTER_FILE, ClusterFile, ClusterFileError, NoManager};
use braid_client::{KeyError, Transport, VolumeKeys};

use crate::store::BraidStore;

/// Makes a [`BraidStore`]. The volume must be given, by itself or as part of a URL.
#[derive(Debug, Default, Clone)]
pub struct BraidStoreBuilder {
    client: Option<Client>,
    cluster: Option<PathBuf>,
    url: Option<String>,
    volume: Option<String>,
    prefix: Option<String>,
    snapshot: Option<String>,
    keeps_directories: bool,
    volume_keys: VolumeKeys,
    transport: Option<Transport>,
}

/// The reason why no store was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Neither a volume nor a URL was given.
    #[error("name a volume: with_volume(\"main\"), or with_url(\"braid://main/directory\")")]
    NoVolume,
    /// The volume, the URL or the prefix is not a valid name.
    #[error("{name:?} is not a valid name: {source}")]
    Name {
        /// The text that was given.
        name: String,
        /// The rule that the text breaks.
        source: NameError,
    },
    /// The file `cluster.toml` cannot be read.
    #[error(transparent)]
    File(#[from] ClusterFileError),
    /// There is no cluster in this directory.
    #[error("no cluster is at {}: it has no {CLUSTER_FILE}; start one with braid up, or name one by BRAID_CLUSTER",
        place.display())]
    NoCluster {
        /// The directory that was searched.
        place: PathBuf,
    },
    /// The file's token is none, or its managers' addresses are.
    #[error("read the cluster's file: {0}")]
    Content(#[from] BadClusterFile),
    /// The environment, or the cluster's file, does not say where keys are.
    #[error("find the keys of volumes: {0}")]
    Keys(#[from] KeyError),
    /// The manager does not answer.
    #[error("connect to the manager at {address}: {source}")]
    NoManager {
        /// Network addresses of the managers, `host:port`, with commas between.
        address: String,
        /// The reason why the manager could not be reached.
        source: NoManager,
    },
    /// An error of the client.
    #[error(transparent)]
    Client(#[from] braid_client::Error),
}

impl BraidStoreBuilder {
    /// Creates a builder that uses the cluster named by BRAID_CLUSTER, or else the user's own.
    pub fn new() -> BraidStoreBuilder {
        BraidStoreBuilder::default()
    }

    /// Sets the cluster: its directory, or the path of its `cluster.toml`.
    pub fn with_cluster(mut self, place: impl Into<PathBuf>) -> BraidStoreBuilder {
        self.cluster = Some(place.into());
        self
    }

    /// Sets a client that exists already; no cluster is looked for.
    pub fn with_client(mut self, client: Client) -> BraidStoreBuilder {
        self.client = Some(client);
        self
    }

    /// Sets the volume whose files are the objects.
    pub fn with_volume(mut self, volume: impl Into<String>) -> BraidStoreBuilder {
        self.volume = Some(volume.into());
        self
    }

    /// Sets a directory in the volume, to which the paths of objects are relative.
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> BraidStoreBuilder {
        self.prefix = Some(prefix.into());
        self
    }

    /// Sets a snapshot: of the volume, or of the first directory on the prefix that has one of this name. The
    /// store shows what that shows, and its objects can only be read.
    pub fn with_snapshot(mut self, name: impl Into<String>) -> BraidStoreBuilder {
        self.snapshot = Some(name.into());
        self
    }

    /// Sets volume and directory as `braid://VOLUME/PATH`, or `braid://VOLUME@SNAPSHOT/PATH`, without
    /// percent-encoding. A volume, prefix or snapshot that is given separately takes precedence.
    pub fn with_url(mut self, url: impl Into<String>) -> BraidStoreBuilder {
        self.url = Some(url.into());
        self
    }

    /// Says where the keys of encrypted volumes are. Not with a client that exists already: it has its own.
    pub fn with_volume_keys(mut self, keys: VolumeKeys) -> BraidStoreBuilder {
        self.volume_keys.extend(keys);
        self
    }

    /// Chooses how data goes to and from drives. Not with a client that exists already: it has its own.
    pub fn with_transport(mut self, transport: Transport) -> BraidStoreBuilder {
        self.transport = Some(transport);
        self
    }

    /// Chooses whether empty directories are removed; see [`BraidStore::with_automatic_cleanup`].
    pub fn with_automatic_cleanup(mut self, cleans_up: bool) -> BraidStoreBuilder {
        self.keeps_directories = !cleans_up;
        self
    }

    /// Connects, if no client was given, and makes the store. Fails within seconds if no manager answers.
    pub async fn build(self) -> Result<BraidStore, BuildError> {
        let root = self.root()?;
        let client = match self.client {
            Some(client) => client,
            None => connect(self.cluster, self.volume_keys, self.transport).await?,
        };
        Ok(BraidStore { client, root, cleans_up: !self.keeps_directories })
    }

    fn root(&self) -> Result<Name, BuildError> {
        let bad = |name: &str| {
            let name = name.to_owned();
            move |source| BuildError::Name { name, source }
        };
        let url = self.url.as_deref().map(|url| url.parse::<Name>().map_err(bad(url))).transpose()?;
        let volume = self.volume.as_deref().or(url.as_ref().map(Name::volume)).ok_or(BuildError::NoVolume)?;
        let path = match (&self.prefix, &url) {
            (Some(prefix), _) => prefix.as_bytes(),
            (None, Some(url)) => url.path(),
            (None, None) => b"",
        };
        let root =
            Name::new(volume, path).map_err(bad(&format!("{volume}/{}", String::from_utf8_lossy(path))))?;
        match self.snapshot.as_deref().or(url.as_ref().and_then(Name::snapshot)) {
            Some(snapshot) => root.in_snapshot(snapshot).map_err(bad(snapshot)),
            None => Ok(root),
        }
    }
}

async fn connect(
    asked: Option<PathBuf>,
    keys: VolumeKeys,
    transport: Option<Transport>,
) -> Result<Client, BuildError> {
    let asked = asked.or_else(cluster::from_environment);
    let place = cluster::choose(asked.as_deref())?;
    let Some(cluster) = ClusterFile::read(&place)? else { return Err(BuildError::NoCluster { place }) };
    let mut config = cluster.config()?;
    config.volume_keys = cluster.volume_keys()?;
    config.volume_keys.extend(keys);
    config.transport = transport.unwrap_or(config.transport);
    let looked = cluster.look_for_manager().await;
    looked.map_err(|source| BuildError::NoManager { address: cluster.manager.clone(), source })?;
    Ok(Client::connect(config).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(builder: BraidStoreBuilder, expected: Option<&str>) {
        assert_eq!(builder.root().ok().map(|root| root.to_string()).as_deref(), expected, "{builder:?}");
    }

    #[test]
    fn volume_and_prefix_come_from_the_url_unless_given() {
        let url = BraidStoreBuilder::new().with_url("braid://main/a/b/");
        check(url.clone(), Some("braid://main/a/b"));
        check(url.clone().with_volume("other"), Some("braid://other/a/b"));
        check(url.with_prefix("c"), Some("braid://main/c"));
        check(BraidStoreBuilder::new().with_volume("main"), Some("braid://main/"));
        check(BraidStoreBuilder::new().with_prefix("c"), None);
        check(BraidStoreBuilder::new().with_url("s3://main/a"), None);
        check(BraidStoreBuilder::new().with_volume("main").with_prefix("a//b"), None);
        let past = BraidStoreBuilder::new().with_url("braid://main@s/a");
        check(past.clone(), Some("braid://main@s/a"));
        check(past.clone().with_snapshot("t").with_prefix("b"), Some("braid://main@t/b"));
        check(past.with_snapshot("no/name"), None);
        check(BraidStoreBuilder::new().with_volume("main").with_snapshot("s"), Some("braid://main@s/"));
    }
}
