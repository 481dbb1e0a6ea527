//! `braid-lab bench peers`: the same work on what people would pick today (E17), as far as it is installed.
//!
//! Each system is one server on this machine, without redundancy beyond its own default, driven by `curl`
//! over HTTP or by a mount of the kernel. What it takes to start one is data; what is not installed is named.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use braid_bench::against::{Question, Taken};
use braid_cli::machine::process::CpuTicks;
use braid_cli::output::exit::{Doing, Exit, Failure};
use braid_cli::output::report::Report;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::sleep;

use super::cluster::Cluster;
use super::ratios::{self, Bench, Metered, Run};
use super::run::Which;
use super::stripes::{fill, read, write};
use crate::args::BenchCluster;

const BENCH: Bench = Bench { name: "peers", title: "Side by side with peers", needed: (8 << 30, 1 << 30) };
const BYTES: (u64, u64) = (1 << 30, 8 << 20);
const DRIVES: u16 = 5;
const SHAPE: (&str, u8) = ("raid5", 5);
/// Words for Braid's side, in the rows' names.
const OWN: &str = "raid5 4+1, durable, 4 in flight";
/// Longest wait for a peer to serve.
const WAIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);
const USER: &str = "braidbench";

/// A peer: how it is started and written. `{dir}` is its directory, `{port}` a free port.
struct Peer {
    name: &'static str,
    /// Words for the way it keeps bytes and is asked: rows name it, as it is not what Braid does.
    keeps: &'static str,
    programs: &'static [&'static str],
    start: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    door: Door,
    paper: [&'static str; 2],
}

/// The way in which a peer is written and read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    /// S3 with signatures of version 4.
    S3,
    /// Plain HTTP; the number is added to the port.
    Http(u16),
}

const PEERS: [Peer; 2] = [
    Peer {
        name: "MinIO",
        keeps: "3+2 drives, one stream",
        programs: &["minio", "curl"],
        start: &["minio", "server", "--quiet", "--address", "127.0.0.1:{port}", "{dir}/{1...5}"],
        environment: &[("MINIO_ROOT_USER", USER), ("MINIO_ROOT_PASSWORD", USER)],
        door: Door::S3,
        paper: ["640 MiB/s on another machine", "2,542 MiB/s on another machine"],
    },
    Peer {
        name: "SeaweedFS",
        keeps: "one copy, not synced, one stream",
        programs: &["weed", "curl"],
        start: &[
            "weed",
            "server",
            "-dir={dir}",
            "-ip=127.0.0.1",
            "-filer",
            "-filer.port={port}",
            "-volume.max=64",
        ],
        environment: &[],
        door: Door::Http(0),
        paper: ["139 MiB/s on another machine", "1,533 MiB/s on another machine"],
    },
];

/// Runs the command.
pub(crate) async fn run(asked: BenchCluster, report: Report) -> Result<(), Failure> {
    ratios::run(BENCH, asked, report, async |run| rows(run).await).await
}

async fn rows(run: &mut Run) -> Result<(), Failure> {
    ganesha(run);
    for peer in &PEERS {
        let rows = [
            (row(peer.name, peer.keeps, "write", peer.paper[0]), false),
            (row(peer.name, peer.keeps, "read", peer.paper[1]), true),
        ];
        if !run.wants_any(rows.iter().map(|(row, _)| row)) {
            continue;
        }
        if let Some(missing) = peer.programs.iter().find(|program| !is_installed(program)) {
            rows.iter().for_each(|(row, _)| run.leave_out(row, format!("{missing} is not installed here")));
            continue;
        }
        let bytes = run.size(BYTES.0, BYTES.1);
        let running = match Running::start(peer, run.path(), bytes).await {
            Ok(running) => running,
            Err(failure) => {
                rows.iter().for_each(|(row, _)| run.leave_out(row, failure.to_string()));
                continue;
            }
        };
        let mut cluster = Cluster::up(run.path(), "braid", DRIVES, SHAPE).await?;
        let mut metered = Metered::start(&cluster).await?;
        let file = fill(&mut cluster, &mut metered.client, bytes).await?;
        for (row, is_read) in &rows {
            run.pairs(row, async |which| match which {
                Which::First => {
                    let work = if *is_read { read(&file, bytes) } else { write(&file, bytes) };
                    metered.rate(&work).await
                }
                Which::Second => running.moved(*is_read).await,
            })
            .await?;
        }
        drop((metered, running));
        cluster.down().await?;
    }
    Ok(())
}

/// The row of a peer that keeps bytes in its own way, which its name says.
fn row(peer: &'static str, keeps: &str, what: &str, paper: &'static str) -> Question {
    let name = format!("sequential {what} ({OWN}), over {peer} ({keeps})");
    Question::rates("E17", name, ["braid", peer]).paper(paper)
}

/// NFS-Ganesha needs a client of its own kind beside it: what is lacking is named.
fn ganesha(run: &mut Run) {
    let name = "sequential write and read, over NFS-Ganesha";
    let row = Question::rates("E17", name, ["braid", "NFS-Ganesha"]);
    let lacks: Vec<&str> =
        ["ganesha.nfsd", "mount.nfs"].into_iter().filter(|program| !is_installed(program)).collect();
    let why = match lacks.as_slice() {
        [] => "it is installed; its exports need root and the kernel's NFS client, which this bench does not set up"
            .to_owned(),
        lacks => format!("{} not installed here", lacks.join(" and ")),
    };
    run.leave_out(&row, why);
}

/// Returns true if a program of this name is found.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/sbin", "/sbin"].map(std::path::PathBuf::from);
    std::env::split_paths(&path).chain(sbin).any(|directory| directory.join(program).is_file())
}

/// A peer that serves, with a local file to send. Dropping it kills its process.
struct Running {
    child: Child,
    door: Door,
    port: u16,
    local: std::path::PathBuf,
    bytes: u64,
}

impl Running {
    async fn start(peer: &Peer, parent: &Path, bytes: u64) -> Result<Running, Failure> {
        let doing = || format!("start {}", peer.name);
        let dir = parent.join(peer.name);
        std::fs::create_dir_all(&dir).doing(doing)?;
        let local = parent.join("sent");
        std::fs::write(&local, vec![0xa5; usize::try_from(bytes).unwrap_or(0)]).doing(doing)?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").doing(doing)?;
        let port = listener.local_addr().doing(doing)?.port();
        drop(listener);
        let words = peer.start.iter().map(|word| put(word, &dir, port));
        let words: Vec<String> = words.collect();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).envs(peer.environment.iter().copied()).current_dir(&dir);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.kill_on_drop(true).spawn().doing(doing)?;
        let mut running = Running { child, door: peer.door, port, local, bytes };
        running.serves().await?;
        if peer.door == Door::S3 {
            until_taken(doing, async || running.curl(&["-X", "PUT", &running.url("")]).await.map(drop))
                .await?;
        }
        // A read needs something to read.
        until_taken(doing, async || running.moved(false).await.map(drop)).await?;
        Ok(running)
    }

    async fn serves(&mut self) -> Result<(), Failure> {
        let doing = || "wait for a peer".to_owned();
        let end = Instant::now() + WAIT;
        while TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
            let has_ended = self.child.try_wait().doing(doing)?.is_some();
            if has_ended || Instant::now() > end {
                return Err(Failure::new(Exit::Failed, doing(), "it does not serve"));
            }
            sleep(POLL).await;
        }
        Ok(())
    }

    fn url(&self, path: &str) -> String {
        let more = match self.door {
            Door::S3 => 0,
            Door::Http(more) => more,
        };
        format!("http://127.0.0.1:{}/bench{path}", self.port + more)
    }

    /// Writes or reads the file. The processor time is that of the peer and of curl.
    async fn moved(&self, is_read: bool) -> Result<Taken, Failure> {
        let url = self.url("/file");
        let local = self.local.to_string_lossy().into_owned();
        let before = self.ticks()?;
        let began = Instant::now();
        let own = match is_read {
            true => self.curl(&["-o", "/dev/null", &url]).await?,
            false => self.curl(&["-T", &local, &url]).await?,
        };
        let seconds = began.elapsed().as_secs_f64();
        let a_second = u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100).max(1);
        let ticks = u32::try_from(self.ticks()?.saturating_sub(before)).unwrap_or(u32::MAX);
        Ok(Taken::rate(self.bytes, seconds, own + f64::from(ticks) * 1e6 / f64::from(a_second)))
    }

    fn ticks(&self) -> Result<u64, Failure> {
        let gone = || Failure::new(Exit::Failed, "look at a peer", "it has ended");
        let ticks = CpuTicks::of(self.child.id().ok_or_else(gone)?).doing(|| "look at a peer".into())?;
        Ok(ticks.user + ticks.kernel)
    }

    /// Runs curl, and returns its processor time in microseconds.
    async fn curl(&self, arguments: &[&str]) -> Result<f64, Failure> {
        let doing = || format!("run curl {}", arguments.join(" "));
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--fail", "--max-time", "300"]);
        if self.door == Door::S3 {
            command.args(["--aws-sigv4", "aws:amz:us-east-1:s3", "--user", &format!("{USER}:{USER}")]);
            command.args(["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"]);
        }
        let before = children_us();
        let ended = command.args(arguments).stdin(Stdio::null()).output().await.doing(doing)?;
        if ended.status.success() {
            return Ok(children_us() - before);
        }
        let said = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
        Err(Failure::new(Exit::Failed, doing(), said))
    }
}

/// Asks a peer until it does what it is asked: it may listen before its parts have found each other.
async fn until_taken(
    doing: impl Fn() -> String,
    ask: impl AsyncFn() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let end = Instant::now() + WAIT;
    loop {
        let Err(failure) = ask().await else { return Ok(()) };
        if Instant::now() > end {
            let why = format!("it takes no bytes for {} s: {failure}", WAIT.as_secs());
            return Err(Failure::new(Exit::Timeout, doing(), why));
        }
        sleep(POLL).await;
    }
}

/// Processor time of ended children of this process, in microseconds.
fn children_us() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    children_ticks(&stat).map_or(0.0, |ticks| {
        let a_second = u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100).max(1);
        f64::from(u32::try_from(ticks).unwrap_or(u32::MAX)) * 1e6 / f64::from(a_second)
    })
}

/// The ticks of ended children in `/proc/PID/stat`.
fn children_ticks(stat: &str) -> Option<u64> {
    // The fields after the name, which may contain spaces: the 14th and 15th are the children's.
    let mut fields = stat.rsplit(')').next()?.split_whitespace().skip(13);
    let user: u64 = fields.next()?.parse().ok()?;
    let kernel: u64 = fields.next()?.parse().ok()?;
    Some(user + kernel)
}

/// A word of a command line with the peer's directory and port in it.
fn put(word: &str, dir: &Path, port: u16) -> String {
    word.replace("{dir}", &dir.to_string_lossy()).replace("{port}", &port.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_names_how_each_side_keeps_bytes() {
        let [_, weed] = &PEERS;
        let row = row(weed.name, weed.keeps, "write", weed.paper[0]);
        let own = "sequential write (raid5 4+1, durable, 4 in flight)";
        assert_eq!(row.name, format!("{own}, over SeaweedFS (one copy, not synced, one stream)"));
    }

    #[tokio::test]
    async fn a_peer_that_listens_too_early_is_asked_again() {
        let asked = std::cell::Cell::new(0);
        let ask = async || {
            asked.set(asked.get() + 1);
            let early = || Failure::new(Exit::Failed, "write", "no volume server yet");
            if asked.get() < 3 { Err(early()) } else { Ok(()) }
        };
        assert!(until_taken(|| "start it".to_owned(), ask).await.is_ok());
        assert_eq!(asked.get(), 3);
    }

    #[test]
    fn words_get_the_directory_and_the_port() {
        assert_eq!(put("{dir}/{1...5}", Path::new("/d"), 9), "/d/{1...5}");
        assert_eq!(put("127.0.0.1:{port}", Path::new("/d"), 9000), "127.0.0.1:9000");
        let stat = "12 (a name) S 1 2 3 4 5 6 7 8 9 10 11 12 30 40 20 0 5";
        assert_eq!(children_ticks(stat), Some(70));
        assert!(!is_installed("no-such-program-of-anybody") && is_installed("sh"));
    }
}
