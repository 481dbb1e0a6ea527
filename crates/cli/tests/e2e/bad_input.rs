//! A wrong input gets one line and an exit code, and changes nothing. Covers every item of the list that can
//! be reached from the command line.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::support::{Cluster, Said, braid, noise, run};

/// Arguments that are refused without any cluster, before one is looked for.
#[test]
fn what_the_command_line_gets_wrong() {
    let cluster = Cluster::nowhere();
    for (line, words) in [
        (
            "volume create v --scheme raid6",
            "unknown scheme \"raid6\": use raid0, raid1, raid4, raid5 or rs(k,m)",
        ),
        ("volume create v --unit 5000", "it must be a power of two from 4K to 64M"),
        ("volume create v --unit 2K", "it must be a power of two from 4K to 64M"),
        ("volume create v --unit 128M", "it must be a power of two from 4K to 64M"),
        ("volume create v --unit 8G", "it must be a power of two from 4K to 64M"),
        ("volume create v --scheme rs(4,5)", "parity"),
        ("volume create v --scheme raid5 --width 2", "raid5"),
        ("ls braid://main/a//b", "double '/'"),
        ("ls braid://main/a/../b", "'.' and '..' are not names"),
        ("mkdir braid://main/.", "'.' and '..' are not names"),
        ("ls braid://", "a volume's name"),
        ("ls local", "it must look like braid://VOLUME/PATH"),
        ("cp a b", "neither source nor target is braid://"),
        ("mv braid://main/a braid://other/a", "they are in different volumes"),
        ("mv braid://main/a local", "both names must be braid://"),
    ] {
        cluster.line(line).failed(2, words);
    }
    let long = format!("braid://main/{}", "x".repeat(256));
    cluster.braid(["mkdir", &long]).failed(2, "256 bytes is over the bound of 255");
    for line in
        ["plan read braid://main/a 5..5", "volume create v --unit x", "cp one", "frobnicate", "up --drives 0"]
    {
        let said = cluster.line(line);
        assert_eq!(said.code, 2, "{line}: {}", said.err);
    }
    cluster.line("ls braid://main").failed(5, "there is no such directory");
    cluster.line("down").failed(5, "there is no such directory");
    assert_eq!(cluster.line("--help").ok().text().matches("Exit codes:").count(), 1);
}

#[test]
fn what_the_cluster_refuses() {
    let cluster = Cluster::up(4);
    let file = cluster.make("f", 10_000, 1);
    cluster.put(&file, "braid://main/f");
    cluster.line("mkdir -p braid://main/d/sub").ok();
    for (line, code, words) in [
        ("volume create wide --scheme raid5 --width 5", 8, "needs 5 drives and 4 are up"),
        ("volume create wide --scheme rs(4,2)", 8, "needs 6 drives and 4 are up"),
        ("volume create main", 4, "main"),
        ("volume create bad/name", 2, "a volume's name"),
        ("volume rm main", 4, "main"),
        ("volume rm nothing", 3, "nothing"),
        ("ls braid://nothing", 3, "nothing"),
        ("cat braid://main/missing", 3, "missing"),
        ("stat braid://main/missing", 3, "missing"),
        ("rm braid://main/missing", 3, "missing"),
        ("mv braid://main/missing braid://main/x", 3, "missing"),
        ("rm braid://main/d", 4, "it is a directory; use -r"),
        ("mkdir braid://main/d", 4, "d"),
        ("mkdir braid://main/no/where", 3, "no"),
        ("mkdir braid://main/f/below", 4, "f"),
        ("cat braid://main/d", 4, "d"),
        ("cp braid://main/missing /tmp", 3, "no such file or directory"),
        ("cp /nonexistent/file braid://main/x", 3, "/nonexistent/file"),
        ("cp braid://main/f braid://main/no/where", 3, "no such directory"),
        ("rebuild nobody", 3, "nobody"),
        ("drive replace nobody drive-1", 3, "nobody"),
        ("drive replace drive-1 drive-1", 2, "it cannot take its own place"),
        ("drive add --name ../x", 2, "cannot be a drive's name"),
        ("drive add --name drive-1", 4, "is taken"),
        ("plan read braid://main/f 0..4K --down nobody", 3, "nobody"),
        ("plan write braid://main/f 0..4K --analyze", 2, "a write changes the file; with --rewrite"),
        ("plan shared-write braid://main/f 0..4K --analyze --rewrite", 2, "beside other writers"),
        ("plan read braid://main/f 0..4K --analyze --rewrite", 2, "a read has nothing to write"),
        ("plan write braid://main/f 0..1G --analyze --rewrite", 2, "are rewritten"),
        ("plan write braid://main/f 0..32M --analyze --rewrite", 4, "ends past the file's end"),
        ("why braid://main/d", 4, "it is a directory: name one file"),
        ("why braid://main/f --range 1G+1M", 4, "there is nothing to read there"),
        ("check braid://main", 4, "it is a directory; use --all"),
        ("plan read braid://main/d 0..1", 4, "it is a directory: only a file has plans"),
        ("plan write braid://main 0..1", 4, "it is a directory: only a file has plans"),
        ("cp braid://main/f braid://main/f braid://main/f", 4, "several sources need a directory"),
        ("cp braid://main/f braid://main/f braid://main/new", 2, "several sources need a directory"),
    ] {
        let said = cluster.line(line);
        assert_eq!(said.code, code, "{line}: {}", said.err);
        said.failed(code, words);
    }
    // A directory that is not empty is not replaced either.
    cluster.line("mkdir braid://main/e").ok();
    cluster.line("mkdir -p braid://main/g/e/full").ok();
    cluster.line("mv braid://main/e braid://main/g").failed(4, "empty");
    cluster.line("rm -f braid://main/missing").ok();
    assert_eq!(cluster.cat("braid://main/f"), noise(10_000, 1));
}

#[test]
fn names_are_bytes() {
    let cluster = Cluster::up(3);
    let file = cluster.make("f", 100, 1);
    for bytes in [b"\xff\xfe".as_slice(), "żółw".as_bytes(), b"a b\n", b"...", &[b'y'; 255]] {
        let name = OsStr::from_bytes(&[b"braid://main/".as_slice(), bytes].concat()).to_owned();
        cluster.braid([OsString::from("cp"), file.clone().into(), name.clone()]).ok();
        assert_eq!(cluster.braid([OsString::from("cat"), name.clone()]).ok().out, noise(100, 1));
        cluster.braid([OsString::from("rm"), name]).ok();
    }
    assert_eq!(cluster.line("ls braid://main").ok().text(), "");
}

#[test]
fn a_bad_token_opens_nothing() {
    let cluster = Cluster::up(3);
    let other = Cluster::up(3);
    let path = cluster.dir().join("cluster.toml");
    let good = fs::read_to_string(&path).expect("read");
    let token = |text: &str| {
        text.split("token = \"").nth(1).and_then(|rest| rest.split('"').next()).map(str::to_owned)
    };
    let own = token(&good).expect("a token");
    let foreign = {
        let text = fs::read_to_string(other.dir().join("cluster.toml")).expect("read");
        token(&text).expect("a token")
    };
    // The last part is the token's end; the one before it the secret.
    let (before, end) = own.rsplit_once('.').expect("parts");
    let last = if before.ends_with('0') { '1' } else { '0' };
    let forged = format!("{}{last}.{end}", &before[..before.len() - 1]);
    for (wrong, code) in [(forged.as_str(), 6), (&foreign, 6), ("nonsense", 6)] {
        fs::write(&path, good.replace(&own, wrong)).expect("written");
        let said = cluster.line("ls braid://main");
        said.failed(code, "token");
    }
    fs::write(&path, &good).expect("written");
    cluster.line("ls braid://main").ok();
}

fn serve(cluster: &Cluster, args: &[&str]) -> Said {
    let mut command = braid();
    command.args(args).env("BRAID_LOG", "off").current_dir(cluster.dir());
    run(command)
}

#[test]
fn directories_and_ports_are_not_shared() {
    let cluster = Cluster::up(3);
    let other = Cluster::up(3);
    let address = cluster.status()["manager"]["address"].as_str().expect("text").to_owned();
    let foreign = other.status()["manager"]["address"].as_str().expect("text").to_owned();
    let foreign_token = other.dir().join("manager/join.token").display().to_string();

    // Two managers, then two drives, in one directory.
    serve(&cluster, &["manager", "serve", "--dir", "manager", "--listen", "127.0.0.1:0"]).failed(7, "in use");
    serve(&cluster, &["drive", "serve", "--dir", "drive-1", "--manager", &address]).failed(7, "in use");
    // A port in use.
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = taken.local_addr().expect("bound").to_string();
    serve(&cluster, &["manager", "serve", "--dir", "new", "--listen", &port]).failed(12, &port);
    let join = ["--token-file", "manager/join.token", "--manager", &address];
    serve(&cluster, &[&["drive", "serve", "--dir", "d9", "--listen", &port], join.as_slice()].concat())
        .failed(12, &port);
    // Each of several addresses needs one to advertise, or none does; and none stands there twice.
    let mut rails = vec!["drive", "serve", "--dir", "d10", "--listen", "127.0.0.1:0", "--listen", "[::]:0"];
    rails.extend(["--advertise", "host-a:1"]);
    serve(&cluster, &[rails.as_slice(), join.as_slice()].concat())
        .failed(2, "one --advertise for each --listen");
    rails.extend(["--advertise", "host-a:1"]);
    serve(&cluster, &[rails.as_slice(), join.as_slice()].concat()).failed(2, "host-a:1 is given twice");
    // A wildcard address is not advertised.
    for listen in ["0.0.0.0:0", "[::]:0"] {
        serve(&cluster, &["manager", "serve", "--dir", "any", "--listen", listen])
            .failed(2, "--advertise HOST:PORT");
        serve(&cluster, &[&["drive", "serve", "--dir", "d10", "--listen", listen], join.as_slice()].concat())
            .failed(2, "--advertise HOST:PORT");
    }
    serve(
        &cluster,
        &["manager", "serve", "--dir", "any", "--listen", "0.0.0.0:0", "--advertise", "0.0.0.0:1"],
    )
    .failed(2, "nobody can connect");
    assert!(!cluster.dir().join("any").exists() && !cluster.dir().join("d10").exists());
    // A drive without a token, and with the wrong kind of token.
    serve(&cluster, &["drive", "serve", "--dir", "d9", "--manager", &address]).failed(2, "--role drive");
    let client = ["--token-file", "manager/client.token"];
    serve(&cluster, &[&["drive", "serve", "--dir", "d9", "--manager", &address], client.as_slice()].concat())
        .failed(6, "this is for clients");
    // A drive's directory of another cluster.
    cluster.down().ok();
    let wrong = ["drive", "serve", "--dir", "drive-1", "--manager", &foreign, "--token-file", &foreign_token];
    serve(&cluster, &wrong).failed(6, "another directory");
    // A directory that is not a cluster is not made one.
    let mut up = braid();
    up.args(["up", "--detach", "--dir"]).arg(cluster.dir().join("drive-1"));
    run(up).failed(4, "and no cluster");
}

/// A directory of a user's files, given by mistake: no mode in it changes, and no file is added.
#[test]
fn a_directory_of_other_things_is_left_as_it_is() {
    let cluster = Cluster::up(1);
    let address = cluster.status()["manager"]["address"].as_str().expect("text").to_owned();
    let dir = cluster.file("theirs");
    let letter = dir.join("letter");
    let inner = dir.join("log");
    fs::create_dir_all(&inner).expect("made");
    fs::write(&letter, "read by all").expect("written");
    fs::set_permissions(&letter, Permissions::from_mode(0o644)).expect("set");
    for path in [&dir, &inner] {
        fs::set_permissions(path, Permissions::from_mode(0o755)).expect("set");
    }
    let dir_name = dir.to_str().expect("text");
    let join = ["--manager", &address, "--token-file", "manager/join.token"];
    let drive = ["drive", "serve", "--listen", "127.0.0.1:0", "--dir", dir_name];
    serve(&cluster, &[drive.as_slice(), &join].concat()).failed(4, "choose an empty or new directory");
    serve(&cluster, &["manager", "serve", "--listen", "127.0.0.1:0", "--dir", dir_name])
        .failed(4, "choose an empty or new directory");
    serve(&cluster, &["up", "--detach", "--dir", dir_name]).failed(4, "choose an empty or new directory");
    let modes =
        [&dir, &inner, &letter].map(|path| fs::metadata(path).expect("there").permissions().mode() & 0o777);
    assert_eq!(modes, [0o755, 0o755, 0o644]);
    let mut names: Vec<_> =
        fs::read_dir(&dir).expect("listed").map(|entry| entry.expect("one").file_name()).collect();
    names.sort();
    assert_eq!(names, ["letter", "log"]);
}

/// Garbage, a truncated frame, a frame with an impossible length: the connection ends, the server goes on.
#[test]
fn garbage_on_the_ports_harms_nobody() {
    let cluster = Cluster::up(3);
    let file = cluster.make("f", 2_000_000, 1);
    cluster.put(&file, "braid://main/f");
    let status = cluster.status();
    let drives = status["drives"].as_array().expect("a list").iter().map(|drive| &drive["address"]);
    let addresses = drives.chain([&status["manager"]["address"]]);
    let mut oversized = b"BRAD".to_vec();
    oversized.extend_from_slice(&[0xff; 60]);
    for address in addresses.map(|address| address.as_str().expect("text")) {
        for bytes in
            [noise(100_000, 7).as_slice(), &[0; 64], &oversized, b"GET / HTTP/1.1\r\n\r\n", b"B", b""]
        {
            let mut stream = TcpStream::connect(address).expect("accepted");
            stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
            // The server may close the connection before it has read everything.
            let _ = stream.write_all(bytes);
            let _ = stream.shutdown(Shutdown::Write);
            let mut rest = Vec::new();
            match stream.read_to_end(&mut rest) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    panic!("{address} keeps a broken connection")
                }
                _ => {}
            }
        }
    }
    assert!(cluster.cat("braid://main/f") == noise(2_000_000, 1));
}
