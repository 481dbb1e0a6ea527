//! Snapshots in a mount: `.snapshots/NAME` in each directory that has one.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use crate::mount::Mounted;
use crate::support::{Cluster, noise, until};

fn names(of: &Path) -> Vec<String> {
    let entries = fs::read_dir(of).expect("listed");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("read").file_name().into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

#[track_caller]
fn read_only<T: std::fmt::Debug>(done: io::Result<T>) {
    let error = done.expect_err("nothing can be changed");
    assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem, "{error}");
}

#[test]
fn a_mount_shows_snapshots_under_a_name_that_no_listing_has() {
    let cluster = Cluster::up(4);
    let Some(mounted) = Mounted::new(&cluster, "braid://main") else { return };
    let root = mounted.at.clone();
    let whole = noise((3 << 20) + 77, 1);
    fs::create_dir_all(root.join("d/sub")).expect("made");
    for name in ["a", "b", "d/c", "d/sub/e"] {
        fs::write(root.join(name), &whole).expect("written");
    }
    symlink("a", root.join("link")).expect("made");
    assert!(fs::metadata(root.join(".snapshots")).is_err(), "there are none yet");
    cluster.line("snapshot make braid://main s-1").ok();
    cluster.line("snapshot make braid://main/d s-d").ok();
    fs::write(root.join("a"), b"other").expect("written");
    fs::remove_file(root.join("b")).expect("removed");
    fs::rename(root.join("d/sub"), root.join("moved")).expect("renamed");
    fs::write(root.join("new"), b"new").expect("written");

    assert_eq!(names(&root), ["a", "d", "link", "moved", "new"], "the door is not listed");
    assert_eq!(names(&root.join(".snapshots")), ["s-1"]);
    assert_eq!(names(&root.join("d/.snapshots")), ["s-d"]);
    assert!(fs::metadata(root.join("moved/.snapshots")).is_err(), "it has none of its own");
    let past = root.join(".snapshots/s-1");
    assert_eq!(names(&past), ["a", "b", "d", "link"]);
    for name in ["a", "b", "d/c", "d/sub/e", "link", "d/../a"] {
        assert!(fs::read(past.join(name)).expect("read") == whole, "{name}");
    }
    assert!(fs::read(root.join("d/.snapshots/s-d/sub/e")).expect("read") == whole);
    assert!(fs::metadata(past.join("new")).is_err() && fs::metadata(root.join(".snapshots/x")).is_err());
    assert_eq!(fs::read_link(past.join("link")).expect("read"), Path::new("a"));
    let before = fs::metadata(past.join("a")).expect("there");
    let now = fs::metadata(root.join("a")).expect("there");
    assert!(before.ino() != now.ino() && before.ino() >> 63 == 1 && now.ino() >> 63 == 0);
    assert_eq!((before.len(), now.len()), (whole.len() as u64, 5));
    rustix::fs::statvfs(&past).expect("told");

    read_only(fs::write(past.join("a"), b"x"));
    read_only(OpenOptions::new().append(true).open(past.join("a")));
    read_only(File::create(past.join("x")));
    read_only(File::create(root.join(".snapshots/x")));
    read_only(fs::create_dir(past.join("x")));
    read_only(fs::create_dir(root.join(".snapshots/x")));
    read_only(fs::remove_file(past.join("a")));
    read_only(fs::remove_dir(past.join("d")));
    read_only(fs::remove_dir(root.join(".snapshots")));
    read_only(fs::remove_dir(root.join(".snapshots/s-1")));
    read_only(fs::rename(past.join("a"), past.join("z")));
    read_only(fs::rename(past.join("a"), root.join("z")));
    read_only(fs::rename(root.join("a"), past.join("z")));
    read_only(fs::rename(root.join(".snapshots"), root.join("z")));
    read_only(fs::hard_link(past.join("a"), root.join("z")));
    read_only(symlink("a", past.join("z")));
    read_only(fs::set_permissions(past.join("a"), PermissionsExt::from_mode(0o600)));
    let made = fs::create_dir(root.join("moved/.snapshots")).expect_err("the name is kept");
    assert_eq!(made.kind(), io::ErrorKind::InvalidInput, "{made}");
    let xattr = rustix::fs::setxattr(past.join("a"), "user.x", b"y", rustix::fs::XattrFlags::empty());
    assert_eq!(xattr, Err(rustix::io::Errno::ROFS));

    // A file that is open can be read until its bytes go with the snapshot, and then fails.
    let open = File::open(past.join("b")).expect("opened");
    cluster.line("snapshot rm braid://main s-1").ok();
    until("its name is gone", || fs::metadata(root.join(".snapshots")).is_err());
    let mut buffer = [0; 4096];
    until("it is not read any more", || {
        open.read_at(&mut buffer, 0).is_err() || {
            drop_pages(&open);
            false
        }
    });
    assert!(fs::read(root.join("d/.snapshots/s-d/c")).expect("the other is there") == whole);
    let said = mounted.end();
    assert_eq!(said.code, 0, "{}", said.err);
}

/// Has the kernel drop what it has cached of a file.
fn drop_pages(file: &File) {
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).expect("dropped");
}
