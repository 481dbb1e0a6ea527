//! Several managers with the etcd that braid runs: three hosts are three addresses of this machine.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::support::{Cluster, Said, braid, finish, not_run, run, signal, until};

/// A manager's host: its address, and its directory.
struct Host {
    ip: &'static str,
    port: u16,
    dir: PathBuf,
    log: PathBuf,
    running: Option<Child>,
}

impl Host {
    fn new(place: &Cluster, name: &str, ip: &'static str) -> Host {
        // Ports that nobody has: one for the manager, and two in a row for etcd.
        let log = place.file(&format!("{name}.log"));
        Host { ip, port: free_ports(ip), dir: place.file(name), log, running: None }
    }

    fn address(&self) -> String {
        format!("{}:{}", self.ip, self.port)
    }

    /// A command of `braid cluster` for this host.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = braid();
        command.args(["cluster"]).args(words).arg("--dir").arg(&self.dir);
        command.args(["--listen", &self.address(), "--etcd-port", &(self.port + 1).to_string()]);
        command
    }

    /// Starts a command that serves this host, with its output and its log in files.
    fn start(&mut self, mut command: Command) {
        let open = |path: &PathBuf| fs::File::options().create(true).append(true).open(path).expect("a log");
        let out = open(&self.log.with_extension("out"));
        command.stdout(out).stderr(open(&self.log)).stdin(Stdio::null());
        self.running = Some(command.spawn().expect("it starts"));
    }

    /// Starts it again as an operator does.
    fn serve(&mut self) {
        let mut command = braid();
        command.args(["manager", "serve", "--dir"]).arg(&self.dir);
        self.start(command);
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The output of `braid cluster init` so far.
    fn printed(&self) -> String {
        fs::read_to_string(self.log.with_extension("out")).unwrap_or_default()
    }

    fn cluster(&self) -> PathBuf {
        self.dir.join("cluster.toml")
    }

    fn until_ready(&self) {
        until("the manager is ready", || self.cluster().exists());
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.running.take() {
            child.kill().expect("killed");
            child.wait().expect("waited for");
        }
    }

    /// Ends it as an operator does.
    fn stop(&mut self) {
        let child = self.running.take().expect("it runs");
        signal(child.id(), "TERM");
        finish(child);
    }

    /// Process numbers of the etcd of this host.
    fn etcds(&self) -> usize {
        let flag = format!("--data-dir={}", self.dir.join("etcd").display());
        let processes = fs::read_dir("/proc").expect("processes").filter_map(Result::ok);
        let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
        lines.filter(|line| String::from_utf8_lossy(line).split('\0').any(|word| word == flag)).count()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(25).collect();
            eprintln!("--- {}", self.log.display());
            tail.iter().rev().for_each(|line| eprintln!("{line}"));
        }
        self.kill();
    }
}

/// The first of three ports in a row that are free at this address.
fn free_ports(ip: &str) -> u16 {
    loop {
        let first = TcpListener::bind((ip, 0)).expect("a port");
        let port = first.local_addr().expect("an address").port();
        let free = |port| TcpListener::bind((ip, port)).is_ok();
        if port < u16::MAX - 2 && free(port + 1) && free(port + 2) {
            return port;
        }
    }
}

fn has_etcd() -> bool {
    let found = Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_ok() {
        return true;
    }
    not_run("etcd is not installed (apt install etcd-server etcd-client)");
    false
}

/// Runs `braid ARGS` by the cluster file of a host.
fn by(host: &Host, words: &[&str]) -> Said {
    let mut command = braid();
    command.args(words).arg("--cluster").arg(host.cluster());
    run(command)
}

/// Starts the first manager.
fn init(place: &Cluster) -> Host {
    init_with(place, &[])
}

/// Starts the first manager with more arguments.
fn init_with(place: &Cluster, more: &[&str]) -> Host {
    let mut first = Host::new(place, "a", "127.0.0.1");
    let mut command = first.command(&["init"]);
    command.args(more);
    first.start(command);
    until("the first manager serves", || first.printed().contains("to start this one again"));
    first
}

/// A token for a host that becomes a manager.
fn token(by_host: &Host, name: &str) -> String {
    let said = by(by_host, &["token", "new", name, "--role", "manager", "--expires", "1h"]).ok();
    said.text().trim().to_owned()
}

/// The command by which a host joins: the first manager of the list answers nobody. The token is in a file.
fn joining(of: &Host, host: &Host, token: &str) -> Command {
    let file = host.log.with_extension("token");
    fs::write(&file, token).expect("written");
    let file = file.to_str().expect("text").to_owned();
    let nobody = format!("{}:1", of.ip);
    host.command(&["join", "--token-file", &file, "--manager", &format!("{nobody},{}", of.address())])
}

fn join(of: &Host, host: &mut Host, token: &str) {
    let command = joining(of, host, token);
    host.start(command);
    host.until_ready();
}

fn members(by_host: &Host) -> Vec<(String, bool)> {
    let said = by(by_host, &["cluster", "ls", "--json"]);
    if said.code != 0 {
        return Vec::new();
    }
    let facts = said.json();
    let rows = facts["members"].as_array().expect("a list").clone();
    let row =
        |row: &serde_json::Value| (row["name"].as_str().expect("a name").to_owned(), row["healthy"] == true);
    rows.iter().map(row).collect()
}

fn until_members(by_host: &Host, count: usize) {
    until("all members are healthy", || {
        let found = members(by_host);
        found.len() == count && found.iter().all(|(_, healthy)| *healthy)
    });
}

/// A drive that knows these managers.
fn drive(place: &Cluster, name: &str, first: &Host) -> Child {
    let mut command = braid();
    command.args(["drive", "serve", "--name", name, "--no-calibration", "--listen", "127.0.0.1:0", "--dir"]);
    command.arg(place.file(name)).args(["--manager", &first.address(), "--token-file"]);
    command.arg(first.dir.join("join.token")).env("BRAID_LOG", "warn").stdout(Stdio::null());
    command.spawn().expect("it starts")
}

/// A process that ends with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_host_dies_with_its_etcd_and_another_takes_its_place() {
    if !has_etcd() {
        return;
    }
    let place = Cluster::nowhere();
    let mut a = init(&place);
    let mut b = Host::new(&place, "b", "127.0.0.2");
    let mut c = Host::new(&place, "c", "127.0.0.3");
    let used = token(&a, "b");
    join(&a, &mut b, &used);
    let mut again = Host::new(&place, "again", "127.0.0.4");
    run(joining(&a, &again, &used)).failed(6, "is for one manager");
    assert!(!again.dir.join("etcd.toml").exists(), "nothing was made");
    let fresh = token(&a, "c");
    join(&a, &mut c, &fresh);
    until_members(&a, 3);
    let _drives: Vec<Ends> = ["d1", "d2", "d3"].map(|name| Ends(drive(&place, name, &a))).into();
    until("the drives have joined", || by(&a, &["drive", "ls"]).text().matches(" up ").count() == 3);
    by(&a, &["volume", "create", "v", "--scheme", "raid5", "--width", "3"]).ok();
    let one = place.make("one", 300_000, 1);
    let one = one.to_str().expect("text");
    by(&a, &["cp", one, "braid://v/one"]).ok();

    // The host of the manager that leads dies: its etcd with it.
    a.kill();
    until("its etcd has ended too", || a.etcds() == 0);
    until("another one leads", || by(&b, &["cat", "braid://v/one"]).code == 0);
    assert!(by(&b, &["cat", "braid://v/one"]).ok().out == fs::read(one).expect("read"));
    by(&c, &["cp", one, "braid://v/two"]).ok();

    // Its place is taken by a fourth.
    by(&b, &["manager", "replace", &b.address()]).failed(6, "still answers");
    let said = by(&b, &["manager", "replace", &a.address()]).ok();
    let fresh = said.text().split_whitespace().find(|word| word.starts_with("braid1.")).expect("a token");
    join(&b, &mut again, fresh);
    until_members(&b, 3);
    assert!(!members(&b).iter().any(|(name, _)| *name == a.address()));
    assert!(by(&again, &["cat", "braid://v/two"]).ok().out == fs::read(one).expect("read"));

    // The one that was taken out does not come back, and says what to do.
    a.serve();
    until("it says why", || a.log().contains("was taken out of the cluster"));
}

#[test]
fn a_restart_needs_one_command_and_a_snapshot_begins_anew() {
    if !has_etcd() {
        return;
    }
    let place = Cluster::nowhere();
    let mut a = init(&place);
    let drives: Vec<Ends> = ["d1", "d2", "d3"].map(|name| Ends(drive(&place, name, &a))).into();
    until("the drives have joined", || by(&a, &["drive", "ls"]).text().matches(" up ").count() == 3);
    by(&a, &["volume", "create", "v", "--scheme", "raid5", "--width", "3"]).ok();
    let one = place.make("one", 300_000, 1);
    let one = one.to_str().expect("text");
    by(&a, &["cp", one, "braid://v/one"]).ok();
    a.stop();
    assert_eq!(a.etcds(), 0, "etcd ends with its manager");
    run(a.command(&["init"])).failed(4, "braid manager serve");
    // A snapshot is due when the newest one is of yesterday.
    let snapshots = a.dir.join("etcd-snapshots");
    fs::remove_dir_all(&snapshots).expect("removed");
    a.serve();
    let made = || fs::read_dir(&snapshots).into_iter().flatten().filter_map(Result::ok).map(|it| it.path());
    let mut found = None;
    until("a snapshot is made", || {
        found = made().find(|path| path.extension().is_some_and(|end| end == "snapshot"));
        found.is_some()
    });
    let snapshot = place.file("braid.snapshot");
    fs::copy(found.expect("there"), &snapshot).expect("copied");
    by(&a, &["cat", "braid://v/one"]).ok();
    a.kill();

    let snapshot_text = snapshot.to_str().expect("text");
    let mut anew = Host::new(&place, "anew", "127.0.0.1");
    anew.port = a.port; // where the drives look for it
    let torn = place.file("torn.snapshot");
    let bytes = fs::read(&snapshot).expect("read");
    fs::write(&torn, &bytes[..bytes.len() - 100]).expect("written");
    run(anew.command(&["restore", torn.to_str().expect("text")])).failed(10, "cut short or damaged");
    if Command::new("etcdctl").arg("version").stdout(Stdio::null()).status().is_err() {
        return not_run("etcdctl is not installed (apt install etcd-client)");
    }
    let command = anew.command(&["restore", snapshot_text]);
    anew.start(command);
    anew.until_ready();
    until("the restored state is served", || by(&anew, &["cat", "braid://v/one"]).code == 0);
    assert!(by(&anew, &["cat", "braid://v/one"]).ok().out == fs::read(one).expect("read"));
    assert!(anew.dir.join("comparison.txt").exists(), "it was compared with the drives");
    drop(drives);
}

#[test]
fn a_cluster_of_one_manager_becomes_one_of_several() {
    if !has_etcd() {
        return;
    }
    let place = Cluster::nowhere();
    let mut alone = Host::new(&place, "alone", "127.0.0.1");
    let mut command = braid();
    command.args(["manager", "serve", "--dir"]).arg(&alone.dir).args(["--listen", &alone.address()]);
    alone.start(command);
    alone.until_ready();
    let drives: Vec<Ends> = ["d1", "d2", "d3"].map(|name| Ends(drive(&place, name, &alone))).into();
    until("the drives have joined", || by(&alone, &["drive", "ls"]).text().matches(" up ").count() == 3);
    by(&alone, &["volume", "create", "v", "--scheme", "raid5", "--width", "3"]).ok();
    let one = place.make("one", 300_000, 1);
    let one = one.to_str().expect("text");
    by(&alone, &["cp", one, "braid://v/one"]).ok();
    let file = place.file("manager.backup");
    let dir = alone.dir.clone();
    let of_directory = || {
        let mut command = braid();
        command.current_dir(file.parent().expect("a directory"));
        command.args(["manager", "backup", "manager.backup"]).arg("--dir").arg(&dir);
        run(command)
    };
    of_directory().failed(7, "in use by another manager");
    alone.stop();
    of_directory().ok();

    let mut several = Host::new(&place, "several", "127.0.0.1");
    several.port = alone.port; // where the drives look for it
    let command = several.command(&["restore", file.to_str().expect("text")]);
    several.start(command);
    several.until_ready();
    until("the state is served", || by(&several, &["cat", "braid://v/one"]).code == 0);
    assert!(by(&several, &["cat", "braid://v/one"]).ok().out == fs::read(one).expect("read"));
    let mut second = Host::new(&place, "second", "127.0.0.2");
    let token = token(&several, "second");
    join(&several, &mut second, &token);
    until_members(&several, 2);
    by(&second, &["cp", one, "braid://v/two"]).ok();
    drop(drives);
}

#[test]
fn an_etcd_that_is_out_of_space_takes_changes_again() {
    use std::os::unix::fs::PermissionsExt;
    if !has_etcd() {
        return;
    }
    let place = Cluster::nowhere();
    let small = place.file("small-etcd");
    fs::write(&small, "#!/bin/sh\nexec etcd \"$@\" --quota-backend-bytes=8000000\n").expect("written");
    fs::set_permissions(&small, fs::Permissions::from_mode(0o700)).expect("set");
    let a = init_with(&place, &["--etcd", small.to_str().expect("text")]);
    let etcdctl = |words: &[&str], value: &[u8]| {
        let tls = a.dir.join("etcd-tls");
        let mut command = Command::new("etcdctl");
        command
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints=https://{}:{}", a.ip, a.port + 1))
            .args(words);
        for (flag, file) in [("--cacert", "ca.pem"), ("--cert", "client.pem"), ("--key", "client.pem")] {
            command.arg(flag).arg(tls.join(file));
        }
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().ok()?;
        child.stdin.take().expect("a pipe").write_all(value).expect("written");
        Some(String::from_utf8(finish(child).stdout).expect("text"))
    };
    let Some(_) = etcdctl(&["version"], b"") else {
        return not_run("etcdctl is not installed (apt install etcd-client)");
    };
    // The same key again and again: what is over can be forgotten.
    let junk = vec![b'x'; 1_000_000];
    until("it is out of space", || {
        etcdctl(&["put", "junk"], &junk);
        a.log().contains("out of space: room is being made")
    });
    until("it has room", || a.log().contains("takes changes again"));
    until("no alarm is left", || etcdctl(&["alarm", "list"], b"").is_some_and(|list| list.trim().is_empty()));
    token(&a, "b");
}

#[test]
fn a_join_that_was_killed_goes_on_and_an_etcd_that_lost_its_data_does_not() {
    use std::os::unix::fs::PermissionsExt;
    if !has_etcd() {
        return;
    }
    let place = Cluster::nowhere();
    let a = init(&place);
    let mut b = Host::new(&place, "b", "127.0.0.2");
    let token = token(&a, "b");
    // It is killed when the others know of it, and its etcd has not begun.
    let idle = place.file("idle-etcd");
    let script = "#!/bin/sh\n[ \"$1\" = --version ] && exec etcd --version\nexec sleep 600\n";
    fs::write(&idle, script).expect("written");
    fs::set_permissions(&idle, fs::Permissions::from_mode(0o700)).expect("set");
    let mut command = joining(&a, &b, &token);
    command.arg("--etcd").arg(&idle);
    b.start(command);
    until("the others know of it", || b.dir.join("etcd.toml").exists());
    b.kill();
    // Earlier still: the file that says that the directory is whole is not there yet.
    fs::remove_file(b.dir.join("etcd.toml")).expect("removed");
    for name in ["etcd", "etcd-tls"] {
        let _ = fs::remove_dir_all(b.dir.join(name));
    }
    let _ = fs::remove_file(b.dir.join("etcd.lock"));
    let mut command = joining(&a, &b, &token);
    command.arg("--etcd").arg(&idle);
    b.start(command);
    until("it is asked for again", || b.dir.join("etcd.toml").exists());
    b.kill();
    let mut command = joining(&a, &b, &token);
    command.env("BRAID_LOG", "debug");
    b.start(command);
    b.until_ready();
    until_members(&a, 2);
    let secret = token.split('.').nth(4).expect("a secret");
    assert!(![&a, &b].iter().any(|host| host.log().contains(secret)), "a secret is in a log");
    run(joining(&a, &b, &token)).failed(4, "braid manager serve");

    // Its disk has lost what etcd had: to begin with nothing would be to forget what it had agreed to.
    b.stop();
    fs::remove_dir_all(b.dir.join("etcd")).expect("removed");
    let mut command = braid();
    command.args(["manager", "serve", "--dir"]).arg(&b.dir);
    run(command).failed(1, &format!("braid manager replace {}", b.address()));
    assert_eq!(b.etcds(), 0);
}

#[test]
fn what_cannot_become_a_manager_is_told_why() {
    let place = Cluster::nowhere();
    let host = Host::new(&place, "h", "127.0.0.1");
    run({
        let mut command = host.command(&["init"]);
        command.args(["--etcd", "/nonexistent/etcd"]);
        command
    })
    .failed(3, "apt install etcd-server");
    assert!(!host.dir.exists(), "nothing was made");
    if !has_etcd() {
        return;
    }
    fs::create_dir(&host.dir).expect("made");
    fs::write(host.dir.join("photo"), "").expect("written");
    run(host.command(&["init"])).failed(4, "name an empty or a new directory");
    fs::remove_dir_all(&host.dir).expect("removed");
    let taken = TcpListener::bind((host.ip, host.port + 2)).expect("free");
    run(host.command(&["init"])).failed(12, "choose another --etcd-port");
    drop(taken);

    let a = init(&place);
    let good = token(&a, "b");
    let parts: Vec<&str> = good.split('.').collect();
    let with =
        |role: &str, pin: &str, expires: &str| [parts[0], role, pin, parts[3], parts[4], expires].join(".");
    let zeros = "0".repeat(64);
    let b = Host::new(&place, "b", "127.0.0.2");
    for (token, code, words) in [
        (with("manager", &zeros, parts[5]), 6, "certificate is of the authority"),
        (with("manager", parts[2], "1"), 6, "has expired"),
        (with("drive", parts[2], parts[5]), 6, "--role manager"),
        ("nonsense".to_owned(), 6, "not a token"),
    ] {
        run(joining(&a, &b, &token)).failed(code, words);
        assert!(!b.dir.exists(), "nothing was made for {words}");
    }
    by(&a, &["token", "revoke", "b"]).ok();
    run(joining(&a, &b, &good)).failed(6, "was revoked");
    let mut without_port = b.command(&["join", "--manager", b.ip, "--token-file", "-"]);
    without_port.stdin(Stdio::null());
    let said = run(without_port);
    assert!(said.code == 2 && said.err.contains("is not the address of a manager"), "{}", said.err);
}
