//! Servers with configuration files, logs in JSON, and what their directories remember.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::{Cluster, Said, braid, finish, run, until};

/// A server that is killed when its test ends.
struct Server(Option<Child>);

impl Server {
    /// Starts a server whose log goes to a file.
    fn start(command: &mut Command, log: &Path) -> Server {
        let log = fs::File::create(log).expect("a log");
        Server(Some(command.stderr(log).stdout(Stdio::null()).spawn().expect("it starts")))
    }

    /// Ends it with SIGTERM.
    fn stop(mut self) {
        let child = self.0.take().expect("it was started");
        crate::support::signal(child.id(), "TERM");
        finish(child);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn serve(words: &[&str], config: &Path) -> Command {
    let mut command = braid();
    command.args(words).arg("--config").arg(config);
    command
}

fn check(words: &[&str], config: &Path) -> Said {
    let mut command = serve(words, config);
    command.arg("--check");
    run(command)
}

#[test]
fn a_manager_and_a_drive_serve_by_their_files_and_remember() {
    let place = Cluster::nowhere();
    let file = |name: &str| place.file(name);
    let manager = format!(
        "dir = {:?}\nlisten = \"127.0.0.1:0\"\nlog = \"json\"\npid-file = {:?}\nlost-after = 700\n",
        file("m"),
        file("m.pid")
    );
    fs::write(file("manager.toml"), &manager).expect("written");
    let said = check(&["manager", "serve"], &file("manager.toml")).ok();
    let text = String::from_utf8(said.out).expect("text");
    assert!(text.contains("lost-after = 700  # ") && text.contains("manager.toml:5"), "{text}");
    assert!(!file("m").exists(), "a check makes nothing");
    let _manager = Server::start(&mut serve(&["manager", "serve"], &file("manager.toml")), &file("m.log"));
    until("the manager serves", || file("m.pid").exists());
    let record = fs::read_to_string(file("m.pid")).expect("a record");
    let address = record.lines().find_map(|line| line.strip_prefix("address = ")).expect("its address");
    let address = address.trim_matches('"');

    let drive = format!(
        "dir = {:?}\nname = \"d1\"\nmanager = {address:?}\ntoken-file = {:?}\nlisten = [\"127.0.0.1:0\"]\n\
         no-calibration = true\ncapacity = \"1G\"\npid-file = {:?}\nrack = \"r1\"\nhost = \"h1\"\n",
        file("d"),
        file("m").join("join.token"),
        file("d.pid")
    );
    fs::write(file("drive.toml"), drive).expect("written");
    let mut command = serve(&["drive", "serve", "--log", "json"], &file("drive.toml"));
    let server = Server::start(&mut command, &file("d.log"));
    until("the drive serves", || file("d.pid").exists() && file("d").join("told.toml").exists());
    server.stop();
    for log in ["m.log", "d.log"] {
        let log = fs::read_to_string(file(log)).expect("a log");
        let lines = log.lines().collect::<Vec<_>>();
        // The manager still writes: its last line may be a part of one.
        let whole = if log.ends_with('\n') { &lines[..] } else { &lines[..lines.len() - 1] };
        assert!(!whole.is_empty());
        for line in whole {
            let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
            for key in ["time", "level", "target", "message", "fields"] {
                assert!(!line[key].is_null(), "{key} of {line}");
            }
        }
    }
    let secret = fs::read_to_string(file("m").join("join.token")).expect("a token");
    let log = fs::read_to_string(file("d.log")).expect("a log");
    let told = fs::read_to_string(file("d").join("told.toml")).expect("it is remembered");
    assert!(!log.contains(secret.trim()) && !told.contains(secret.trim()));

    // The directory alone says what the drive was told, and what it was told once stays.
    let dir = file("d").display().to_string();
    let later = |more: &[&str]| {
        let mut command = braid();
        command.args(["drive", "serve", "--dir", &dir]).args(more);
        run(command)
    };
    let text = String::from_utf8(later(&["--check"]).ok().out).expect("text");
    for line in
        ["capacity = \"1G\"  # remembered", "host = \"h1\"  # remembered", "scrub-rate = \"8M\"  # default"]
    {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    later(&["--rack", "r2"]).failed(2, "leave --rack out");
    later(&["--name", "d2"]).failed(2, "a drive keeps its name");
}

#[test]
fn a_wrong_file_and_a_token_in_the_environment_are_refused() {
    let place = Cluster::nowhere();
    let config = place.file("x.toml");
    fs::write(&config, "dir = \"/nonexistent/d\"\nlisen = [\"127.0.0.1:0\"]\n").expect("written");
    for words in [["manager", "serve"], ["drive", "serve"]] {
        check(&words, &config).failed(2, "the nearest key is listen");
        check(&words, &config).failed(2, "line 2");
    }
    fs::write(&config, "listen = \"127.0.0.1:0\"\n").expect("written");
    // What is missing, and which flags there are, clap says.
    let refused = |words: &[&str], part: &str| {
        let said = check(words, &config);
        said.failed_with_output(2);
        assert!(said.err.contains(part), "{}", said.err);
    };
    refused(&["manager", "serve"], "--dir");
    refused(&["manager", "serve"], "x.toml has a part of these flags");
    refused(&["drive", "serve", "--token", "t", "--dir", "d"], "unexpected argument '--token'");
    let mut command = braid();
    command.args(["drive", "serve", "--no-config", "--dir"]).arg(place.file("d"));
    command.env("BRAID_JOIN_TOKEN", "braid-join-secret");
    let said = run(command);
    assert!(!said.err.contains("secret"), "{}", said.err);
    said.failed(2, "--token-file");
}
