//! A cluster of a bench: a manager and drives on the loopback, in a directory of their own.

use std::path::Path;

use braid_cli::DriveOptions;
use braid_cli::connect::connect;
use braid_cli::machine::bring_up::{Running, all_joined, bring_up, drive_names};
use braid_cli::machine::cluster_dir::{ClusterDir, ClusterFile};
use braid_cli::machine::down::stop_all;
use braid_cli::machine::local::{DriveStart, Mode, NamespaceHost, Server};
use braid_cli::output::exit::{Doing, Exit, Failure};
use braid_client::{Client, KeySource, Name, OpenOptions};
use braid_layout::Shape;
use braid_wire::capability::Protection;

use super::client::ClientProcess;
use super::hosts::Hosts;

/// Bytes of a unit in every bench.
pub(super) const UNIT_BYTES: u32 = 512 << 10;
/// Name of the volume of every cluster.
pub(super) const VOLUME: &str = "bench";

/// A running cluster. Dropping it kills its processes.
pub(super) struct Cluster {
    pub(super) client: Client,
    pub(super) running: Running,
    /// Number of the next file.
    next: u32,
    /// Name of the volume in which files are made.
    volume: &'static str,
}

impl Cluster {
    /// Brings up a cluster in a directory below `parent`, with a volume of this shape.
    pub(super) async fn up(
        parent: &Path,
        name: &str,
        drives: u16,
        shape: (&str, u8),
    ) -> Result<Cluster, Failure> {
        let dir = ClusterDir::at(parent.join(name));
        dir.prepare()?;
        let running = bring_up(dir, Some(drives), Mode::Attached, DriveOptions::default()).await?;
        let client = connect(&running.dir, &running.cluster).await?;
        let cluster = Cluster { client, running, next: 0, volume: VOLUME };
        cluster.make_volume(shape, UNIT_BYTES).await?;
        Ok(cluster)
    }

    /// Brings up a cluster with each drive on a host of its own, and the manager here. A drive that is silent
    /// for a second counts as lost.
    pub(super) async fn up_on(
        hosts: &Hosts,
        parent: &Path,
        name: &str,
        drives: u16,
        shape: (&str, u8),
    ) -> Result<Cluster, Failure> {
        let cluster = Cluster::bare_on(hosts, parent, name, drives, DriveOptions::default()).await?;
        cluster.make_volume(shape, UNIT_BYTES).await?;
        Ok(cluster)
    }

    /// As [`Cluster::up_on`], with these options for the drives, and no volume.
    pub(super) async fn bare_on(
        hosts: &Hosts,
        parent: &Path,
        name: &str,
        drives: u16,
        options: DriveOptions,
    ) -> Result<Cluster, Failure> {
        Cluster::railed_on(hosts, parent, name, drives, options, 1).await
    }

    /// As [`Cluster::bare_on`], with the drives at the first `rails` addresses of their hosts.
    pub(super) async fn railed_on(
        hosts: &Hosts,
        parent: &Path,
        name: &str,
        drives: u16,
        options: DriveOptions,
        rails: usize,
    ) -> Result<Cluster, Failure> {
        Cluster::patient_on(hosts, parent, name, drives, options, rails, "1").await
    }

    /// As [`Cluster::railed_on`], with another time after which a silent drive counts as lost: full links
    /// keep heartbeats waiting.
    pub(super) async fn patient_on(
        hosts: &Hosts,
        parent: &Path,
        name: &str,
        drives: u16,
        options: DriveOptions,
        rails: usize,
        lost_after: &str,
    ) -> Result<Cluster, Failure> {
        let listen = format!("{}:0", hosts.address(None));
        let mut cluster = Cluster::managed(parent, name, drives, &listen, lost_after).await?;
        cluster.running.options = options;
        for (index, drive) in cluster.running.cluster.drives.clone().iter().enumerate() {
            let directory = cluster.running.dir.drive(drive);
            let host = hosts.host(index, rails);
            cluster.start_at(drive, &directory, Some(host)).await?;
        }
        Ok(cluster)
    }

    /// Brings up a cluster of drives with these options. A drive that is silent for `lost_after` seconds
    /// counts as lost.
    pub(super) async fn up_with(
        parent: &Path,
        name: &str,
        drives: u16,
        options: DriveOptions,
        lost_after: &str,
    ) -> Result<Cluster, Failure> {
        let mut cluster = Cluster::managed(parent, name, drives, "127.0.0.1:0", lost_after).await?;
        cluster.running.options = options;
        cluster.start_drives().await?;
        Ok(cluster)
    }

    /// Starts all drives.
    pub(super) async fn start_drives(&mut self) -> Result<(), Failure> {
        for drive in self.running.cluster.drives.clone() {
            let directory = self.running.dir.drive(&drive);
            self.start(&drive, &directory).await?;
        }
        Ok(())
    }

    /// Starts a manager that knows no drives yet.
    async fn managed(
        parent: &Path,
        name: &str,
        drives: u16,
        listen: &str,
        lost_after: &str,
    ) -> Result<Cluster, Failure> {
        let more = ["--lost-after", lost_after];
        let start =
            async |dir: &ClusterDir| Server::start_manager_with(dir, listen, Mode::Attached, &more).await;
        Cluster::founded(parent, name, drives, None, start).await
    }

    /// Makes the directory, and starts its first manager, which knows no drives yet. `managers` are the
    /// addresses of all managers that there will be, if it is not the only one.
    pub(super) async fn founded(
        parent: &Path,
        name: &str,
        drives: u16,
        managers: Option<&str>,
        start: impl AsyncFnOnce(&ClusterDir) -> Result<Server, Failure>,
    ) -> Result<Cluster, Failure> {
        let dir = ClusterDir::at(parent.join(name));
        dir.prepare()?;
        let manager = start(&dir).await?;
        let path = dir.manager().join("client.token");
        let token = std::fs::read_to_string(&path).doing(|| format!("read {}", path.display()))?;
        let file = ClusterFile {
            manager: managers.unwrap_or(&manager.record.address).to_owned(),
            token: token.trim().to_owned(),
            drives: drive_names(None, Some(drives), |_| false),
            transport: None,
            volume_keys: Default::default(),
        };
        dir.write(&file)?;
        let client = connect(&dir, &file).await?;
        let servers = vec![manager];
        let options = DriveOptions::default();
        let lacks = Vec::new();
        let running = Running { dir, cluster: file, servers, options, lacks };
        Ok(Cluster { client, running, next: 0, volume: VOLUME })
    }

    /// Starts the manager at its former address, and all drives, after they were stopped.
    pub(super) async fn start_all(&mut self) -> Result<(), Failure> {
        let dir = &self.running.dir;
        let address = &self.running.cluster.manager;
        let manager = Server::start_manager_with(dir, address, Mode::Attached, &[]).await?;
        let path = dir.manager().join("client.token");
        let token = std::fs::read_to_string(&path).doing(|| format!("read {}", path.display()))?;
        self.running.cluster.token = token.trim().to_owned();
        dir.write(&self.running.cluster)?;
        self.running.servers.push(manager);
        self.client = connect(&self.running.dir, &self.running.cluster).await?;
        self.start_drives().await
    }

    /// Makes the volume, with this shape.
    pub(super) async fn make_volume(&self, shape: (&str, u8), unit_bytes: u32) -> Result<(), Failure> {
        let (scheme, width) = shape;
        let shape = Shape::parse(scheme, Some(width), unit_bytes).doing(|| "make the volume".into())?;
        self.client.volume_create(VOLUME, Some(shape), 0).await?;
        Ok(())
    }

    /// Makes another volume, with this shape; files are then made in it.
    pub(super) async fn turn_to(&mut self, volume: &'static str, shape: (&str, u8)) -> Result<(), Failure> {
        let (scheme, width) = shape;
        let shape = Shape::parse(scheme, Some(width), UNIT_BYTES).doing(|| "make a volume".into())?;
        self.client.volume_create(volume, Some(shape), 0).await?;
        self.volume = volume;
        Ok(())
    }

    /// Makes another volume, which is encrypted with the key in this file; files are then made in it.
    pub(super) async fn turn_to_sealed(
        &mut self,
        volume: &'static str,
        shape: (&str, u8),
        key: &Path,
    ) -> Result<(), Failure> {
        let (scheme, width) = shape;
        let shape = Shape::parse(scheme, Some(width), UNIT_BYTES).doing(|| "make a volume".into())?;
        let source = KeySource::File(key.to_owned());
        let how = Protection::Integrity;
        self.client.volume_create_encrypted(volume, Some(shape), 0, how, &source).await?;
        self.client = connect(&self.running.dir, &self.running.cluster).await?;
        self.volume = volume;
        Ok(())
    }

    /// Ends the cluster's processes and removes its files.
    pub(super) async fn down(self) -> Result<(), Failure> {
        let root = self.running.dir.root().to_owned();
        drop(self.client);
        stop_all(self.running.servers).await?;
        std::fs::remove_dir_all(&root).doing(|| format!("remove {}", root.display()))
    }

    /// Starts a client process for this cluster.
    pub(super) async fn client_process(&self) -> Result<ClientProcess, Failure> {
        ClientProcess::start(&self.running.cluster).await
    }

    /// Creates an empty file and returns its name.
    pub(super) async fn create(&mut self) -> Result<Name, Failure> {
        self.next += 1;
        let path = format!("file-{}", self.next);
        let name = Name::new(self.volume, path.as_bytes()).doing(|| format!("name {path}"))?;
        self.create_at(&name).await?;
        Ok(name)
    }

    /// Creates an empty file of this name.
    pub(super) async fn create_at(&self, name: &Name) -> Result<(), Failure> {
        let options = OpenOptions::new().write(true).create_new(true);
        Ok(self.client.open(name, &options).await?.close().await?)
    }

    pub(super) async fn remove(&self, files: &[Name]) -> Result<(), Failure> {
        for file in files {
            self.client.unlink(file).await?;
        }
        Ok(())
    }

    /// The drives of a file's columns, in the columns' order.
    pub(super) async fn drives_of(&self, file: &Name) -> Result<Vec<String>, Failure> {
        let row = self.client.stat(file).await?;
        let columns = row.segments.iter().flat_map(|segment| &segment.columns);
        Ok(columns.map(|column| column.drive_name.clone()).collect())
    }

    /// Kills a drive with SIGKILL. The manager may count it as up until its lease has lapsed; clients go
    /// around it at once.
    pub(super) async fn kill(&mut self, drive: &str) -> Result<(), Failure> {
        self.take(drive)?.kill().await
    }

    /// Stops a drive in order, and starts it again: nothing is in its memory then.
    pub(super) async fn restart(&mut self, drive: &str) -> Result<(), Failure> {
        self.take(drive)?.stop().await?;
        let directory = self.running.dir.drive(drive);
        self.start(drive, &directory).await
    }

    /// Stops a drive in order. Returns the address at which it served.
    pub(super) async fn stop(&mut self, drive: &str) -> Result<String, Failure> {
        let server = self.take(drive)?;
        let address = server.record.address.clone();
        server.stop().await?;
        Ok(address)
    }

    fn take(&mut self, drive: &str) -> Result<Server, Failure> {
        let index = self.running.servers.iter().position(|server| server.name == drive);
        let index =
            index.ok_or_else(|| Failure::new(Exit::NotFound, format!("stop {drive}"), "it does not run"))?;
        Ok(self.running.servers.remove(index))
    }

    /// Starts a drive in this directory, and waits until the manager has heard of it.
    pub(super) async fn start(&mut self, drive: &str, directory: &Path) -> Result<(), Failure> {
        self.start_at(drive, directory, None).await
    }

    /// Starts a drive like [`Cluster::start`], on one of the hosts if one is given.
    async fn start_at(
        &mut self,
        drive: &str,
        directory: &Path,
        host: Option<NamespaceHost>,
    ) -> Result<(), Failure> {
        let dir = &self.running.dir;
        let options = self.running.options;
        let manager = &self.running.cluster.manager;
        let start = DriveStart { name: drive, directory, manager, options, host };
        let server = Server::start_drive(dir, start, Mode::Attached).await?;
        self.running.servers.push(server);
        all_joined(&self.client, &[drive.to_owned()]).await
    }
}

/// The name of a path in the volume.
pub(super) fn name(path: &str) -> Result<Name, Failure> {
    Name::new(VOLUME, path.as_bytes()).doing(|| format!("name {path}"))
}
