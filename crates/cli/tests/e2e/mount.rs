//! A mounted volume, read by ordinary programs.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::{Cluster, Said, finish, noise, not_run, runs, said, signal, until};

/// A mount by a command in the foreground, which is killed when its test ends.
pub(crate) struct Mounted {
    pub(crate) child: Option<Child>,
    pub(crate) at: PathBuf,
}

impl Mounted {
    /// Mounts a volume; `None` where nothing may be mounted.
    pub(crate) fn new(cluster: &Cluster, volume: &str) -> Option<Mounted> {
        Mounted::with(cluster, volume, "mounted", &[])
    }

    /// Mounts a volume on a directory of this name, with further arguments.
    pub(crate) fn with(cluster: &Cluster, volume: &str, name: &str, more: &[&str]) -> Option<Mounted> {
        let mut command = cluster.command(["mount", volume]);
        command.args(more);
        Mounted::by(command, cluster.file(name))
    }

    /// Mounts by a command that lacks only the directory.
    pub(crate) fn by(mut command: Command, at: PathBuf) -> Option<Mounted> {
        if !Path::new("/dev/fuse").exists() {
            not_run("there is no /dev/fuse here");
            return None;
        }
        fs::create_dir_all(&at).expect("made");
        command.arg(&at).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("started");
        until("it is mounted, or not", || is_mounted(&at) || child.try_wait().expect("asked").is_some());
        if is_mounted(&at) {
            return Some(Mounted { child: Some(child), at });
        }
        let said = said(finish(child));
        assert!(said.err.contains("not permitted"), "{}", said.err);
        not_run("nothing may be mounted here");
        None
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    pub(crate) fn end(mut self) -> Said {
        signal(self.pid(), "INT");
        said(finish(self.child.take().expect("it runs")))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            // A thread of the mount may wait in the kernel, to have a name dropped, for a program that waits
            // for the mount.
            let _ = Command::new("umount").arg("-f").arg(&self.at).stderr(Stdio::null()).status();
            let _ = child.wait();
            let _ = Command::new("umount").arg("-l").arg(&self.at).status();
        }
    }
}

/// Two mounts of the volume `main`; `None` where nothing may be mounted.
pub(crate) fn two(cluster: &Cluster) -> Option<(Mounted, Mounted)> {
    let a = Mounted::with(cluster, "braid://main", "a", &[])?;
    Some((a, Mounted::with(cluster, "braid://main", "b", &[])?))
}

pub(crate) fn is_mounted(at: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/mounts").expect("read");
    mounts.lines().any(|line| line.split(' ').nth(1) == at.to_str())
}

#[test]
fn any_program_reads_it_also_without_a_drive() {
    let cluster = Cluster::up(5);
    let tree = cluster.file("tree");
    fs::create_dir_all(tree.join("deep/er")).expect("made");
    let sizes = [0, 1, 4096, 700_000, 3 << 20];
    for (n, bytes) in sizes.into_iter().enumerate() {
        fs::write(tree.join(format!("deep/{n}")), noise(bytes, n as u64)).expect("written");
    }
    for n in 0..1500 {
        fs::write(tree.join(format!("deep/er/{n}")), [1]).expect("written");
    }
    cluster.line(&format!("cp -rp {} braid://main/", tree.display())).ok();
    let Some(mounted) = Mounted::with(&cluster, "braid://main", "mounted", &["--read-only"]) else { return };
    let same = || {
        let mut diff = Command::new("diff");
        let said = said(diff.arg("-r").arg(&tree).arg(mounted.at.join("tree")).output().expect("run"));
        assert_eq!(said.code, 0, "{} {}", said.text(), said.err);
    };
    same();
    assert_eq!(fs::read_dir(mounted.at.join("tree/deep/er")).expect("listed").count(), 1500);
    let meta = |path: PathBuf| fs::metadata(path).expect("there");
    let stored = meta(mounted.at.join("tree/deep/3"));
    let original = meta(tree.join("deep/3"));
    assert_eq!((stored.len(), stored.permissions()), (original.len(), original.permissions()));
    let ms = |meta: &fs::Metadata| {
        let since = meta.modified().expect("a time").duration_since(std::time::UNIX_EPOCH);
        since.expect("later").as_millis()
    };
    assert_eq!(ms(&stored), ms(&original));
    let refused = fs::write(mounted.at.join("new"), b"x").expect_err("it is only read");
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    let missing = fs::read(mounted.at.join("missing")).expect_err("there is none");
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
    cluster.kill_drive("drive-2");
    same();
    // Changes by other clients are seen soon.
    cluster.line("mv braid://main/tree braid://main/moved").ok();
    until("the new name is there", || mounted.at.join("moved").exists() && !mounted.at.join("tree").exists());
    let at = mounted.at.clone();
    let ended = mounted.end();
    assert_eq!((ended.code, ended.err.as_str(), is_mounted(&at)), (0, "", false));
}

#[test]
fn it_ends_with_umount_and_a_signal_ends_it_though_it_is_in_use() {
    let cluster = Cluster::up(5);
    let file = cluster.make("f", 100_000, 1);
    cluster.put(&file, "braid://main/f");
    let Some(mut mounted) = Mounted::new(&cluster, "braid://main") else { return };
    let unmounted = Command::new("umount").arg(&mounted.at).status().expect("run");
    assert!(unmounted.success());
    let pid = mounted.pid();
    let ended = said(finish(mounted.child.take().expect("it runs")));
    assert_eq!((ended.code, runs(pid)), (0, false), "{}", ended.err);

    let mounted = Mounted::new(&cluster, "braid://main").expect("as before");
    let mut open = fs::File::open(mounted.at.join("f")).expect("opened");
    let mut begin = [0; 10];
    open.read_exact(&mut begin).expect("read");
    let at = mounted.at.clone();
    let ended = mounted.end();
    assert_eq!((ended.code, is_mounted(&at)), (0, false), "{}", ended.err);
    assert!(ended.err.contains("was in use"), "{}", ended.err);
}

#[test]
fn one_that_ends_leaves_its_directory_to_the_next() {
    let cluster = Cluster::up(5);
    let Some(mut first) = Mounted::new(&cluster, "braid://main") else { return };
    fs::write(first.at.join("f"), "bytes").expect("written");
    assert!(Command::new("umount").arg(&first.at).status().expect("run").success());
    let second = Mounted::new(&cluster, "braid://main").expect("mounted");
    let ended = said(finish(first.child.take().expect("it ran")));
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert_eq!(fs::read(second.at.join("f")).expect("read"), b"bytes");
    assert_eq!(second.end().code, 0);
}

#[test]
fn what_cannot_be_mounted_is_refused_in_one_line() {
    let cluster = Cluster::up(5);
    let at = cluster.file("at");
    fs::create_dir(&at).expect("made");
    let at = at.display();
    let file = cluster.make("file", 10, 1);
    cluster.line(&format!("cp {} braid://main/f", file.display())).ok();
    cluster.line(&format!("mount braid://main/f {at}")).failed(2, "a volume is mounted, or a directory");
    cluster.line(&format!("mount braid://main/g {at}")).failed(3, "no file or directory");
    cluster.line(&format!("mount braid://nothing {at}")).failed(3, "nothing");
    cluster.line(&format!("mount local {at}")).failed(2, "braid://VOLUME");
    if Path::new("/dev/fuse").exists() {
        let said = cluster.line("mount braid://main /no/such/directory");
        assert!(said.code != 0 && said.err.contains("/no/such/directory"), "{}", said.err);
    }
}
