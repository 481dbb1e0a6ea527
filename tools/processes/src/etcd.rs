//! An etcd of one or several members, for tests: real processes on free ports, which end with the test.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::signal;

/// The way to get etcd, for whoever runs the tests without it.
const REMEDY: &str = "cannot start etcd, which these tests need: install it (apt-get install etcd-server)";

/// Members that run.
#[derive(Debug)]
pub struct Etcd {
    dir: PathBuf,
    members: Vec<Member>,
    options: Vec<String>,
    /// With TLS, or without, to clients.
    scheme: &'static str,
}

/// Files, in PEM, of an etcd that speaks TLS with its clients and asks for their certificates.
#[derive(Debug, Clone, Copy)]
pub struct Tls<'a> {
    pub ca: &'a Path,
    pub certificate: &'a Path,
    pub key: &'a Path,
}

#[derive(Debug)]
struct Member {
    client: u16,
    peer: u16,
    process: Option<Child>,
}

impl Etcd {
    /// Starts this many members.
    ///
    /// # Panics
    /// Etcd is not installed.
    pub fn start(members: usize) -> Etcd {
        Etcd::start_with(members, &[])
    }

    /// Starts this many members with these options more.
    ///
    /// # Panics
    /// Etcd is not installed.
    pub fn start_with(members: usize, options: &[&str]) -> Etcd {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        Etcd::launch(members, options, "http")
    }

    /// Starts a member that speaks TLS.
    ///
    /// # Panics
    /// Etcd is not installed.
    pub fn start_secured(tls: Tls<'_>) -> Etcd {
        let file = |flag: &str, path: &Path| format!("--{flag}={}", path.display());
        let options = vec![
            file("trusted-ca-file", tls.ca),
            file("cert-file", tls.certificate),
            file("key-file", tls.key),
            "--client-cert-auth".to_owned(),
        ];
        Etcd::launch(1, options, "https")
    }

    fn launch(members: usize, options: Vec<String>, scheme: &'static str) -> Etcd {
        // Held together, so that all are different.
        let held: Vec<TcpListener> =
            (0..2 * members).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
        let ports: Vec<u16> = held.iter().map(|held| held.local_addr().expect("bound").port()).collect();
        let members =
            ports.chunks(2).map(|ports| Member { client: ports[0], peer: ports[1], process: None }).collect();
        let mut etcd = Etcd { dir: place(ports[0]), members, options, scheme };
        drop(held);
        for number in 0..etcd.members.len() {
            etcd.run(number);
        }
        etcd
    }

    /// Addresses for clients.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| format!("127.0.0.1:{}", member.client)).collect()
    }

    /// The state in it, as `braid manager serve --state` takes it.
    pub fn state(&self) -> String {
        format!("etcd://{}", self.endpoints().join(","))
    }

    /// Kills a member, as a crash does.
    pub fn kill(&mut self, number: usize) {
        if let Some(mut process) = self.members[number].process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Starts a member that was killed.
    pub fn run(&mut self, number: usize) {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let at = format!("{}://127.0.0.1:{}", self.scheme, self.members[number].client);
        let all: Vec<String> =
            self.members.iter().enumerate().map(|(at, of)| format!("m{at}={}", url(of.peer))).collect();
        let member = &self.members[number];
        let log = File::options().create(true).append(true).open(self.dir.join(format!("m{number}.log")));
        let process = Command::new("etcd")
            .args(["--name", &format!("m{number}"), "--data-dir"])
            .arg(self.dir.join(format!("m{number}")))
            .args(["--listen-client-urls", &at, "--advertise-client-urls", &at])
            .args([
                "--listen-peer-urls",
                &url(member.peer),
                "--initial-advertise-peer-urls",
                &url(member.peer),
            ])
            .args([
                "--initial-cluster",
                &all.join(","),
                "--initial-cluster-token",
                &self.members[0].peer.to_string(),
            ])
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("a log"))
            .spawn();
        self.members[number].process = Some(process.unwrap_or_else(|error| panic!("{REMEDY}: {error}")));
    }

    /// Stops a member for a while, as one that hangs.
    pub fn stop(&self, number: usize) {
        self.signal(number, "STOP");
    }

    /// Lets a member that was stopped go on.
    pub fn resume(&self, number: usize) {
        self.signal(number, "CONT");
    }

    /// Runs etcdctl on the first member, and returns what it says.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        let done = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.endpoints()[0]])
            .args(arguments)
            .output()
            .unwrap_or_else(|error| panic!("cannot run etcdctl: apt-get install etcd-client: {error}"));
        format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr))
    }

    fn signal(&self, number: usize, which: &str) {
        let process = self.members[number].process.as_ref().expect("it runs");
        signal(process.id(), which);
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for number in 0..self.members.len() {
            self.kill(number);
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A directory of its own, in memory if there is such a place: a test waits for its syncs else.
fn place(port: u16) -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let above = if memory.is_dir() { memory } else { std::env::temp_dir() };
    let dir = above.join(format!("braid-etcd-{}-{port}", std::process::id()));
    fs::create_dir_all(&dir).expect("a directory");
    dir
}
