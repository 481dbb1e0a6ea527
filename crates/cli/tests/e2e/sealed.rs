//! Encrypted volumes: made, used and given another key, by commands and in a mount.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::mount::Mounted;
use crate::support::{Cluster, Said, braid, noise, run};

/// The words that make an encrypted volume for the tests.
const CREATE: &str = "volume create secret --unit 4K --encrypt --key-file";

fn key(cluster: &Cluster, name: &str) -> String {
    let path = cluster.file(name);
    fs::write(&path, noise(32, name.len() as u64)).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
    path.to_str().expect("text").to_owned()
}

/// Runs a line with the key of the volume.
fn with(cluster: &Cluster, key: &str, line: &str) -> Said {
    let mut command = cluster.command(line.split(' '));
    command.env("BRAID_VOLUME_KEYS", format!("secret={key}"));
    run(command)
}

fn is_stored(dir: &Path, bytes: &[u8]) -> bool {
    fs::read_dir(dir).expect("a directory").any(|entry| {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => is_stored(&path, bytes),
            // Sockets and files that are gone by now hold nothing.
            false => fs::read(&path).is_ok_and(|read| read.windows(bytes.len()).any(|some| some == bytes)),
        }
    })
}

#[test]
fn files_of_an_encrypted_volume_are_copied_in_and_out_by_who_has_the_key() {
    let cluster = Cluster::up(4);
    let own = key(&cluster, "own.key");
    let said = cluster.line(&format!("{CREATE} {own}")).ok();
    assert!(said.text().contains("encrypted, by key file:"), "{}", said.text());
    let sizes = [0, 1, 4064, 4065, 300_000, 9_000_000];
    for (n, bytes) in sizes.into_iter().enumerate() {
        let local = cluster.make(&format!("in-{n}"), bytes, n as u64);
        with(&cluster, &own, &format!("cp {} braid://secret/{n}", local.display())).ok();
        let out = cluster.file(&format!("out-{n}"));
        with(&cluster, &own, &format!("cp braid://secret/{n} {}", out.display())).ok();
        assert!(fs::read(&out).expect("read") == fs::read(&local).expect("read"), "{bytes} bytes");
        if bytes >= 4064 {
            assert!(!is_stored(&cluster.dir(), &noise(bytes, n as u64)[..2000]), "{bytes} bytes are stored");
        }
    }
    assert!(!is_stored(&cluster.dir(), &fs::read(&own).expect("read")), "the key is nowhere");
    // Without the key names and sizes are there, and no bytes.
    let listed = cluster.line("ls -l braid://secret").ok();
    assert!(listed.text().contains("9000000"), "{}", listed.text());
    cluster.line("check braid://secret/5").ok();
    cluster.line("cat braid://secret/5").failed(6, "--volume-key");
    cluster.line(&format!("cp {own} braid://secret/new")).failed(6, "its key is file:");
    let other = key(&cluster, "another.key");
    with(&cluster, &other, "cat braid://secret/5").failed(6, "its key is file:");
    with(&cluster, "/no/such/file", "cat braid://secret/5").failed(6, "/no/such/file");
    cluster.line(&format!("cat --volume-key secret={own} braid://secret/1")).ok();
    // A part of a file, by the file that names the cluster.
    let toml = fs::read_to_string(cluster.dir().join("cluster.toml")).expect("read");
    let named = cluster.file("with-key.toml");
    fs::write(&named, format!("{toml}\n[volume-keys]\nsecret = \"{own}\"\n")).expect("written");
    let mut cat = braid();
    cat.args(["cat", "braid://secret/4", "--cluster"]).arg(&named);
    assert!(run(cat).ok().out == noise(300_000, 4));
    // By another key from now on.
    let rekey = format!("volume rekey secret --key-file {own} --new-key-file {other}");
    cluster.line(&rekey).ok();
    cluster.line(&rekey).failed(6, "its key is file:");
    with(&cluster, &own, "cat braid://secret/4").failed(6, "its key is file:");
    assert!(with(&cluster, &other, "cat braid://secret/4").ok().out == noise(300_000, 4));
    assert!(cluster.line("volume ls --json").ok().text().contains("\"key\": \"file:"));
}

#[test]
fn wrong_words_about_keys_are_refused() {
    let cluster = Cluster::up(3);
    let own = key(&cluster, "own.key");
    cluster.line("volume create secret --encrypt").failed_with_output(2);
    cluster.line(&format!("volume create secret --key-file {own}")).failed_with_output(2);
    cluster.line("volume rekey secret --key-file a").failed_with_output(2);
    cluster.line("ls --volume-key nothing braid://main").failed_with_output(2);
    with(&cluster, "command:", "ls braid://main").failed(2, "NAME=FILE");
    let short = cluster.make("short", 31, 1);
    cluster.line(&format!("{CREATE} {}", short.display())).failed(6, "/dev/urandom");
    cluster.line("volume rekey main --key-file a --new-key-file b").failed(6, "is not encrypted");
    assert!(!cluster.line("volume ls").ok().text().contains("secret"), "nothing was made");
}

#[test]
fn a_key_command_wraps_and_unwraps() {
    let cluster = Cluster::up(3);
    // A key server of little use: it exchanges digits of base64 for others, as long as it is there.
    let server = cluster.file("server");
    fs::write(&server, "").expect("written");
    let script = cluster.file("kms");
    let text = format!(
        "test -e {} || {{ echo 'the key server is away' >&2; exit 3; }}\n\
         case $1 in wrap) echo \"$(tr A-Za-z0-9+/ E-Za-z0-9+/A-D) k-$BRAID_VOLUME\";; \
         unwrap) tr E-Za-z0-9+/A-D A-Za-z0-9+/;; esac\n",
        server.display()
    );
    fs::write(&script, text).expect("written");
    let command = format!("sh {}", script.display());
    let create = ["volume", "create", "secret", "--encrypt", "--key-command", &command];
    let said = cluster.braid(create).ok();
    assert!(said.text().contains("by key command:k-secret"), "{}", said.text());
    let local = cluster.make("in", 100_000, 5);
    let with_command = |words: &[&str]| {
        let mut of = cluster.command(words);
        of.args(["--volume-key", &format!("secret=command:{command}")]);
        run(of)
    };
    with_command(&["cp", local.to_str().expect("text"), "braid://secret/f"]).ok();
    assert!(with_command(&["cat", "braid://secret/f"]).ok().out == noise(100_000, 5));
    // A command from which the data key does not come back gets nothing to keep.
    for (wrong, why) in
        [("cat; true", "does not wrap"), ("head -c 200 /dev/zero | base64; true", "base64 -w0")]
    {
        let rekey = ["volume", "rekey", "secret", "--key-command", &command, "--new-key-command", wrong];
        cluster.braid(rekey).failed(6, why);
    }
    assert!(with_command(&["cat", "braid://secret/f"]).ok().out == noise(100_000, 5));
    fs::remove_file(&server).expect("removed");
    with_command(&["cat", "braid://secret/f"]).failed(6, "the key server is away");
}

#[test]
fn programs_use_an_encrypted_volume_in_a_mount() {
    let cluster = Cluster::up(4);
    let own = key(&cluster, "own.key");
    cluster.line(&format!("{CREATE} {own}")).ok();
    let told = format!("secret={own}");
    let volume = "braid://secret";
    let Some(mounted) = Mounted::with(&cluster, volume, "mounted", &["--volume-key", &told]) else { return };
    for (n, bytes) in [0, 1, 4096, 700_000, 5_000_001].into_iter().enumerate() {
        fs::write(mounted.at.join(n.to_string()), noise(bytes, n as u64)).expect("written");
        assert!(fs::read(mounted.at.join(n.to_string())).expect("read") == noise(bytes, n as u64), "{n}");
        assert_eq!(fs::metadata(mounted.at.join(n.to_string())).expect("there").len(), bytes as u64);
    }
    let append = |text: &str| {
        let line = format!("echo {text} >> {}", mounted.at.join("log").display());
        assert!(Command::new("sh").args(["-c", &line]).status().expect("run").success());
    };
    append("one");
    append("two");
    assert_eq!(fs::read(mounted.at.join("log")).expect("read"), b"one\ntwo\n");
    assert_eq!(mounted.end().code, 0);
    assert!(with(&cluster, &own, "cat braid://secret/3").ok().out == noise(700_000, 3));
    assert!(!is_stored(&cluster.dir(), &noise(700_000, 3)[..4096]));
    // Without the key.
    let mounted = Mounted::with(&cluster, volume, "mounted", &[]).expect("as before");
    assert_eq!(fs::metadata(mounted.at.join("3")).expect("there").len(), 700_000);
    let refused = fs::read(mounted.at.join("3")).expect_err("no key");
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::NOKEY.raw_os_error()));
    let refused = fs::write(mounted.at.join("new"), b"x").expect_err("no key");
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::NOKEY.raw_os_error()));
    assert_eq!(mounted.end().code, 0);
}
