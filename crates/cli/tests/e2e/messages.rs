//! Messages shown to users: no repetition, no advice that cannot be followed, no silence.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;

use braid_wire::FrameHeader;
use braid_wire::frame::{WIRE_VERSION, WIRE_VERSION_OLDEST};

use crate::support::{Cluster, braid, finish, noise, run, said, signal};

#[test]
fn a_wait_for_the_manager_is_told_once() {
    let cluster = Cluster::up(3);
    let manager = cluster.status()["manager"]["pid"].as_u64().expect("a pid");
    let manager = u32::try_from(manager).expect("small");
    signal(manager, "STOP");
    let mut command = cluster.command(["ls", "braid://main"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let first = lines.next().expect("it says something").expect("text");
    signal(manager, "CONT");
    assert!(first.starts_with("braid: waiting for the manager at 127.0.0.1:"), "{first}");
    said(finish(child)).ok();
    assert_eq!(lines.count(), 0);
}

#[test]
fn nobody_is_asked_the_same_twice() {
    let cluster = Cluster::up(3);
    cluster.down().ok();
    let said = cluster.line("ls braid://main");
    said.failed(5, "nothing listens there; `braid up --detach --dir ");
    assert!(!said.err.to_lowercase().contains("is it running"), "{}", said.err);
    // A client of a cluster on several hosts has only the file: `braid up` would start another cluster.
    let alone = cluster.file("elsewhere.toml");
    fs::copy(cluster.dir().join("cluster.toml"), &alone).expect("copied");
    let mut command = braid();
    command.args(["ls", "braid://main", "--cluster"]).arg(&alone);
    let said = run(command);
    said.failed(5, "see that `braid manager serve` runs on its host");
    assert!(!said.err.contains("braid up"), "{}", said.err);
    let mut command = braid();
    command.args(["down", "--dir"]).arg(&alone);
    run(command).failed(5, "`braid up` did not start it");
}

#[test]
fn a_manager_of_another_release_is_named_at_once() {
    let cluster = Cluster::nowhere();
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let file = format!(
        "manager = \"{}\"\ntoken = \"braid1.client.{:064x}.{:016x}.{:064x}.0\"\ndrives = []\n",
        listener.local_addr().expect("an address"),
        7,
        8,
        9
    );
    let other = WIRE_VERSION_OLDEST - 1;
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("accepted");
            let mut frame = FrameHeader::new(1, 0, b"", 0).emit();
            frame[4..6].copy_from_slice(&other.to_le_bytes());
            let crc = braid_wire::checksum::crc32c(&frame[..28]);
            frame[28..].copy_from_slice(&crc.to_le_bytes());
            let _ = stream.write_all(&frame);
            let _ = stream.read(&mut [0; 1]);
        }
    });
    let path = cluster.file("other.toml");
    fs::write(&path, file).expect("written");
    let mut command = braid();
    command.args(["status", "--cluster"]).arg(&path);
    let ours = format!("versions {WIRE_VERSION_OLDEST} to {WIRE_VERSION}");
    let both = format!("it speaks wire version {other}, this build {ours}: upgrade the older end");
    run(command).failed(5, &both);
}

#[test]
fn an_empty_variable_is_as_unset_and_an_empty_argument_is_refused() {
    let cluster = Cluster::nowhere();
    let mut command = braid();
    command.env("BRAID_CLUSTER", "").env("XDG_DATA_HOME", cluster.file("data")).arg("ls");
    run(command).failed(5, "data/braid: there is no such directory");
    let mut command = braid();
    command.args(["ls", "--cluster", ""]);
    assert_eq!(run(command).code, 2);
}

#[test]
fn what_up_says_can_be_typed() {
    let cluster = Cluster::nowhere();
    let dir = cluster.file("it's a place");
    let up = |detach| {
        let mut command = braid();
        command.args(["up", "--drives", "1", "--dir"]).arg(&dir).args(detach);
        run(command)
    };
    let said = up(["--detach"]).ok();
    let line =
        said.text().lines().find_map(|line| line.strip_prefix("use it with: ")).expect("a line").to_owned();
    let mut shell = std::process::Command::new("sh");
    shell.arg("-c").arg(format!("{line}; \"{}\" ls; \"{0}\" down", env!("CARGO_BIN_EXE_braid")));
    let typed = run(shell).ok();
    assert_eq!(typed.text(), "braid://main\nstopped drive-1, manager\n");
}

#[test]
fn listings_and_targets_are_as_people_expect() {
    let cluster = Cluster::up(3);
    let file = cluster.make("f", 1_572_864, 1);
    cluster.put(&file, "braid://main/f");
    let long = cluster.line("ls -lh braid://main").ok();
    let text = long.text();
    assert!(text.starts_with("-rw-r--r--   1 ") && text.contains("  1.50 MiB  20"), "{text}");
    assert!(cluster.line("ls --help").ok().text().contains("human-readable"));
    for line in [
        "mv braid://main/f braid://main/no/",
        "cp braid://main/f braid://main/no/",
        "cp braid://main/f /nowhere/",
    ] {
        cluster.line(line).failed(3, "no such directory; make it with mkdir");
    }
    for line in ["mv braid://main/f braid://main/f/", "cp braid://main/f braid://main/f/"] {
        cluster.line(line).failed(4, "it is not a directory");
    }
    let rated = cluster.braid([OsStr::new("cp"), file.as_os_str(), OsStr::new("braid://main/g")]).ok();
    assert!(
        rated.text().contains("1.50 MiB in ") && rated.text().trim_end().ends_with("iB/s"),
        "{}",
        rated.text()
    );
}

#[test]
fn a_volume_is_copied_as_what_is_in_it() {
    let cluster = Cluster::up(3);
    let file = cluster.make("f", 5000, 1);
    cluster.put(&file, "braid://main/f");
    cluster.line("mkdir -p braid://main/d/e").ok();
    cluster.put(&file, "braid://main/d/e/g");
    let out = cluster.file("out");
    fs::create_dir(&out).expect("made");
    let copy = |from: &OsStr, to: &OsStr| cluster.braid([OsStr::new("cp"), OsStr::new("-r"), from, to]);
    copy(OsStr::new("braid://main/"), out.as_os_str()).ok();
    assert_eq!(fs::read(out.join("f")).expect("read"), noise(5000, 1));
    assert_eq!(fs::read(out.join("d/e/g")).expect("read"), noise(5000, 1));
    // The same in the other direction, and with a directory's contents.
    cluster.line("mkdir braid://main/back").ok();
    copy(out.join("d/.").as_os_str(), OsStr::new("braid://main/back/")).ok();
    assert_eq!(
        cluster.line("ls -R braid://main/back").ok().text(),
        "braid://main/back:\ne/\nbraid://main/back/e:\ng\n"
    );
    copy(OsStr::new("-"), OsStr::new("braid://main/back/")).failed(2, "it has no name to use there");
}
