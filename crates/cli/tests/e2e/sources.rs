//! Sources that cannot be copied are refused or skipped, with a message; no copy waits for ever.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Cluster, finish, noise, said, signal, until};

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo runs").success());
}

#[test]
fn what_is_no_file_is_refused_by_name_and_skipped_in_a_tree() {
    let cluster = Cluster::up(3);
    let tree = cluster.file("tree");
    fs::create_dir_all(tree.join("below/deeper")).expect("made");
    fs::write(tree.join("below/file"), noise(70_000, 1)).expect("written");
    fifo(&tree.join("pipe"));
    let _socket = UnixListener::bind(tree.join("socket")).expect("bound");
    symlink("below/file", tree.join("to-file")).expect("linked");
    symlink("below", tree.join("to-directory")).expect("linked");
    symlink("nowhere", tree.join("to-nothing")).expect("linked");
    symlink("pipe", tree.join("to-pipe")).expect("linked");
    symlink("round", tree.join("round")).expect("linked");

    let copy = |name: &str| {
        cluster.braid([OsStr::new("cp"), tree.join(name).as_os_str(), OsStr::new("braid://main/x")])
    };
    copy("pipe").failed(
        4,
        "it is a named pipe, not a regular file; to copy what comes out of it: braid cp - TARGET <",
    );
    copy("to-pipe").failed(4, "it is a named pipe");
    copy("socket").failed(4, "it is a socket");
    copy("to-nothing").failed(3, "it is a symbolic link that leads to nothing");
    cluster.line("cp /dev/zero braid://main/x").failed(4, "it is a device");
    assert_eq!(cluster.line("ls braid://main").ok().text(), "");

    let said =
        cluster.braid([OsStr::new("cp"), OsStr::new("-r"), tree.as_os_str(), OsStr::new("braid://main/")]);
    assert_eq!(said.code, 1, "{}", said.err);
    for (name, why) in [
        ("pipe", "it is a named pipe"),
        ("socket", "it is a socket"),
        ("to-directory", "it is a symbolic link to a directory"),
        ("to-nothing", "it is a symbolic link that leads to nothing"),
        ("to-pipe", "it is a symbolic link to a named pipe"),
    ] {
        let line = format!("braid: skipped {}: {why}\n", tree.join(name).display());
        assert!(said.err.contains(&line), "{line:?} is not in {}", said.err);
    }
    assert!(said.err.ends_with("braid: copy: 6 things were skipped; the rest is copied\n"), "{}", said.err);
    assert_eq!(cluster.line("ls braid://main/tree").ok().text(), "below/\nto-file\n");
    assert_eq!(cluster.line("ls braid://main/tree/below").ok().text(), "deeper/\nfile\n");
    assert_eq!(cluster.cat("braid://main/tree/to-file"), noise(70_000, 1));
}

/// A signal ends the program soon, whatever it hangs in.
#[test]
fn a_signal_ends_a_copy_that_hangs_in_the_system() {
    let cluster = Cluster::up(3);
    let file = cluster.make("f", 4 << 20, 2);
    cluster.put(&file, "braid://main/f");
    for number in 0..3000 {
        fs::write(cluster.file(&format!("n{number}")), "").expect("written");
    }
    let pipe = cluster.file("pipe");
    fifo(&pipe);
    cluster.line("mkdir braid://main/many").ok();
    let many = (0..3000).map(|number| cluster.file(&format!("n{number}")).into_os_string());
    let copy = [OsStr::new("cp").to_owned(), OsStr::new("-q").to_owned()].into_iter().chain(many);
    cluster.braid(copy.chain([OsStr::new("braid://main/many").to_owned()])).ok();

    for (number, end) in ["INT", "TERM"].into_iter().enumerate() {
        // Opening a named pipe without a reader, and writing to a full one.
        let open = cluster.command([OsStr::new("cp"), OsStr::new("braid://main/f"), pipe.as_os_str()]);
        let write = cluster.command(["cat", "braid://main/f"]);
        let list = cluster.command(["ls", "--json", "braid://main/many"]);
        for (what, mut command) in [("open", open), ("write", write), ("list", list)] {
            let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
            let pid = child.id();
            until("it hangs", || hangs(pid, what));
            signal(pid, end);
            let status = wait(child);
            assert_eq!(status, Some(130), "{what} {number}");
        }
    }
    // A pipe whose writer is silent.
    let mut command = cluster.command(["cp", "-", "braid://main/x"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(&noise(1 << 20, 3)).expect("taken");
    signal(child.id(), "TERM");
    let ended = said(finish(child));
    drop(stdin);
    assert_eq!((ended.code, ended.err.as_str()), (130, "braid: interrupted\n"));
}

/// Returns true if a thread of the process blocks in the given call, by the kernel's wait channel where that
/// is available.
fn hangs(pid: u32, what: &str) -> bool {
    let places: &[&str] = match what {
        "open" => &["wait_for_partner", "fifo_open"],
        _ => &["pipe_write", "anon_pipe_write", "pipe_wait"],
    };
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().filter_map(Result::ok);
    tasks.into_iter().any(|task| {
        fs::read_to_string(task.path().join("wchan")).is_ok_and(|place| places.contains(&place.trim()))
    })
}

/// Waits for the child's end without reading its output.
fn wait(mut child: std::process::Child) -> Option<i32> {
    let mut status = None;
    until("it has ended", || {
        status = child.try_wait().expect("waited for");
        status.is_some()
    });
    status.and_then(|status| status.code())
}
