//! One NFS server with the transactions: NFS-Ganesha on a directory of the bench, and the port mapper that it
//! wants, if none runs.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use braid_bench::mining::Sales;
use braid_bench::mining::nfs::{Nfs, Place};
use braid_cli::output::exit::{Doing, Exit, Failure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

/// Longest wait until it serves.
const WAIT: Duration = Duration::from_secs(30);
/// Longest wait until it has ended.
const END_WAIT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(200);
/// Port of the port mapper.
const MAPPER_PORT: u16 = 111;
const FILE: &str = "sales";

/// The server. Dropping it kills its processes.
pub(super) struct Server {
    ganesha: Child,
    mapper: Option<Child>,
    place: Place,
    bytes: u64,
}

impl Server {
    /// Starts a server of the first `bytes_max` bytes of the transactions, on all addresses of this host.
    pub(super) async fn start(parent: &Path, sales: &Sales, bytes_max: u64) -> Result<Server, Failure> {
        let doing = || "start NFS-Ganesha".to_owned();
        let dir = parent.join("nfs");
        let export = dir.join("export");
        fs::create_dir_all(&export).doing(doing)?;
        let mut file = fs::File::create(export.join(FILE)).doing(doing)?;
        let few = Sales { bytes: sales.bytes.min(bytes_max), ..*sales };
        for number in 0..few.chunks() {
            file.write_all(&few.chunk(number).bytes).doing(doing)?;
        }
        let [nfs_port, mount_port] = free_ports().doing(doing)?;
        let place = Place {
            server: "127.0.0.1".into(),
            nfs_port,
            mount_port,
            export: export.to_string_lossy().into_owned(),
            file: FILE.into(),
        };
        let configuration = configuration(&place, &dir);
        let path = dir.join("ganesha.conf");
        fs::write(&path, configuration).doing(doing)?;
        let mapper = mapper().await?;
        let mut command = Command::new("ganesha.nfsd");
        command.arg("-F").arg("-f").arg(&path).arg("-L").arg(dir.join("log")).arg("-p").arg(dir.join("pid"));
        let ganesha = background(&mut command).map_err(|error| missing("ganesha.nfsd", error))?;
        let mut server = Server { ganesha, mapper, place, bytes: few.bytes };
        server.serves().await?;
        Ok(server)
    }

    /// The place of the file, for clients that reach this host at `address`.
    pub(super) fn place(&self, address: &str) -> Place {
        Place { server: address.to_owned(), ..self.place.clone() }
    }

    /// Bytes of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    async fn serves(&mut self) -> Result<(), Failure> {
        let doing = || "wait for NFS-Ganesha".to_owned();
        let end = Instant::now() + WAIT;
        loop {
            let place = self.place.clone();
            let opened = tokio::task::spawn_blocking(move || Nfs::open(&place));
            let Err(error) = opened.await.map_err(std::io::Error::other).flatten() else { return Ok(()) };
            let has_ended = self.ganesha.try_wait().doing(doing)?.is_some();
            if has_ended || Instant::now() > end {
                return Err(error).doing(doing);
            }
            sleep(POLL).await;
        }
    }

    /// Ends it, so that it takes itself off the port mapper.
    pub(super) async fn stop(mut self) -> Result<(), Failure> {
        let doing = || "stop NFS-Ganesha".to_owned();
        let id = self.ganesha.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(id) = id {
            kill_process(id, Signal::TERM).map_err(std::io::Error::from).doing(doing)?;
        }
        if timeout(END_WAIT, self.ganesha.wait()).await.is_err() {
            self.ganesha.kill().await.doing(doing)?;
        }
        match &mut self.mapper {
            Some(mapper) => mapper.kill().await.doing(doing),
            None => Ok(()),
        }
    }
}

/// Starts a port mapper, if there is none: the server does not start without.
async fn mapper() -> Result<Option<Child>, Failure> {
    let is_there = async || tokio::net::TcpStream::connect(("127.0.0.1", MAPPER_PORT)).await.is_ok();
    if is_there().await {
        return Ok(None);
    }
    let child = background(Command::new("rpcbind").arg("-f")).map_err(|error| missing("rpcbind", error))?;
    let end = Instant::now() + WAIT;
    while !is_there().await && Instant::now() < end {
        sleep(POLL).await;
    }
    Ok(Some(child))
}

fn background(command: &mut Command) -> std::io::Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.kill_on_drop(true).process_group(0).spawn()
}

fn missing(program: &str, error: std::io::Error) -> Failure {
    let why = match error.kind() {
        std::io::ErrorKind::NotFound => "it is not installed here".to_owned(),
        _ => error.to_string(),
    };
    Failure::new(Exit::Failed, format!("start {program}"), why)
}

/// Two ports that were free a moment ago.
fn free_ports() -> std::io::Result<[u16; 2]> {
    let listeners = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
    let port = |listener: &TcpListener| listener.local_addr().map(|address| address.port());
    Ok([port(&listeners[0])?, port(&listeners[1])?])
}

/// The server's configuration: one export, to be read, by NFSv3 over TCP.
fn configuration(place: &Place, dir: &Path) -> String {
    let Place { nfs_port, mount_port, export, .. } = place;
    let dir = dir.display();
    format!(
        "NFS_CORE_PARAM {{\n    Protocols = 3; NFS_Port = {nfs_port}; MNT_Port = {mount_port};\n    \
         Bind_addr = 0.0.0.0; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false;\n}}\n\
         NFSV4 {{ Graceless = true; RecoveryRoot = {dir}; }}\n\
         EXPORT {{\n    Export_Id = 1; Path = {export}; Pseudo = /export; Access_Type = RO;\n    \
         Squash = No_Root_Squash; SecType = sys; Protocols = 3; Transports = TCP; Filesystem_id = 7.7;\n    \
         FSAL {{ Name = VFS; }}\n}}\nLOG {{ Default_Log_Level = CRIT; }}\n"
    )
}
