//! Layouts of directories, by the command line and by a mount's extended attribute.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use rustix::fs::{XattrFlags, fgetxattr, fsetxattr, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;
use serde_json::Value;

use crate::mount::Mounted;
use crate::reserve::calibrate;
use crate::support::Cluster;

const NAME: &str = "user.braid.layout";

/// The scheme, columns and bytes of a unit of a file.
fn lies(cluster: &Cluster, name: &str) -> String {
    let stat = cluster.line(&format!("stat {name} --json")).ok().json();
    let shape = &stat["segments"][0]["shape"];
    let scheme = shape["scheme"].as_str().unwrap_or("?");
    format!("{scheme} {}+{} {}", shape["data_columns"], shape["parity_columns"], shape["unit_bytes"])
}

#[test]
fn directories_say_how_new_files_lie() {
    let cluster = Cluster::up(4);
    let file = cluster.make("f", 10_000, 1);
    cluster.line("mkdir -p braid://main/photos/raw").ok();
    cluster.put(&file, "braid://main/photos/old");
    let set = cluster.line("layout set braid://main/photos --scheme rs(2,2) --unit 64K").ok();
    let set = set.text();
    assert!(set.contains("what exists stays as it is; braid relayout braid://main/photos --scheme"), "{set}");
    cluster.put(&file, "braid://main/photos/raw/new");
    cluster.put(&file, "braid://main/beside");
    assert_eq!(lies(&cluster, "braid://main/photos/raw/new"), "rs 2+2 65536");
    assert_eq!(lies(&cluster, "braid://main/photos/old"), "raid5 3+1 524288");
    assert_eq!(lies(&cluster, "braid://main/beside"), "raid5 3+1 524288");
    let told = cluster.line("layout ls -R --json braid://main").ok().json();
    let rows: Vec<_> =
        told.as_array().expect("rows").iter().map(|row| (&row["name"], &row["from"])).collect();
    assert_eq!(rows.len(), 2, "{told}");
    assert!(rows[0] == (&"braid://main/".into(), &"volume".into()), "{told}");
    assert!(rows[1] == (&"braid://main/photos".into(), &"directory".into()), "{told}");
    let inherited = cluster.line("layout get --json braid://main/photos/raw").ok().json();
    assert_eq!(inherited[0]["of"], "braid://main/photos");
    assert_eq!((&inherited[0]["own"], &inherited[0]["layout"]["unit_bytes"]), (&false.into(), &65536.into()));

    // A copy has the layout that it is made with, wherever it is.
    let mut copy = cluster.command(["cp", "--scheme", "raid1", "--unit", "4K"]);
    copy.arg(&file).arg("braid://main/photos/mirror");
    crate::support::run(copy).ok();
    assert_eq!(lies(&cluster, "braid://main/photos/mirror"), "raid1 1+1 4096");

    cluster.line("volume set main --scheme raid0 --width 3").ok();
    cluster.line("volume set main --unit 16K").ok();
    cluster.put(&file, "braid://main/striped");
    assert_eq!(lies(&cluster, "braid://main/striped"), "raid0 3+0 16384");
    cluster.line("layout rm braid://main/photos").ok();
    cluster.put(&file, "braid://main/photos/raw/last");
    assert_eq!(lies(&cluster, "braid://main/photos/raw/last"), "raid0 3+0 16384");

    let refused = |line: &str, code: i32, why: &str| {
        let said = cluster.line(line);
        assert_eq!(said.code, code, "{line}: {}", said.err);
        assert!(said.err.contains(why), "{line}: {}", said.err);
    };
    refused("layout set braid://main/photos --scheme raid5 --width 5", 8, "needs 5 drives and 4 are up");
    refused("layout set braid://main/beside --scheme raid1", 4, "braid relayout braid://main/beside");
    refused("layout set braid://main/gone --scheme raid1", 3, "gone");
    refused("layout rm braid://main/photos", 3, "has no layout of its own");
    refused("layout set braid://main/photos --scheme raid7", 2, "unknown scheme");
    refused("cp --scheme raid1 braid://main/beside -", 2, "leave it out");
    cluster.line("check --all braid://main").ok();
}

fn shown(at: &Path) -> String {
    let mut value = [0; 200];
    let length = getxattr(at, NAME, &mut value).expect("it has a layout");
    String::from_utf8_lossy(&value[..length]).into_owned()
}

/// The names of a directory's or file's attributes.
fn listed(at: &Path) -> String {
    let mut names = [0_u8; 200];
    let length = listxattr(at, &mut names).expect("listed");
    String::from_utf8_lossy(&names[..length]).into_owned()
}

fn set(at: &Path, value: &str) -> Result<(), Errno> {
    setxattr(at, NAME, value.as_bytes(), XattrFlags::empty())
}

#[test]
fn small_files_are_clustered_and_a_layout_is_that_of_a_rate() {
    let cluster = Cluster::up(3);
    cluster.line("mkdir -p braid://main/photos/2026").ok();
    cluster.line("layout set braid://main/photos --rate 1MB/s").failed(15, "not calibrated");
    calibrate(&cluster, 3, |row| row["cost"] != Value::Null);
    let set = cluster.line("layout set braid://main/photos --clustering directory").ok();
    let set = set.text();
    assert!(set.contains("directory") && set.contains("what exists stays as it is"), "{set}");
    let told =
        |name: &str| cluster.line(&format!("layout ls --json {name}")).ok().json()[0]["clustering"].clone();
    assert_eq!(told("braid://main/photos/2026"), "directory");
    assert_eq!(told("braid://main"), "none");
    let file = cluster.make("f", 100, 1);
    cluster.put(&file, "braid://main/photos/2026/f");
    assert_eq!(told("braid://main/photos/2026/f"), "directory");
    cluster.line("layout set braid://main/photos/2026 --clustering none").ok();
    assert_eq!(told("braid://main/photos/2026"), "none");
    cluster.line("layout set braid://main/photos/2026 --clustering inherit").ok();
    assert_eq!(told("braid://main/photos/2026"), "directory");
    cluster.line("layout set braid://main/photos/2026/f --clustering tree").failed(4, "no directory");
    assert_eq!(cluster.line("layout set braid://main/photos").code, 2, "nothing is set");
    cluster.line("layout set braid://main/photos --rate 1000GB/s").failed(15, "layout set");
    let rated = cluster.line("layout set braid://main/photos --rate 1MB/s").ok();
    let rated = rated.text();
    assert!(rated.contains("set here"), "{rated}");
}

#[test]
fn a_mount_shows_and_sets_layouts_as_an_attribute() {
    let cluster = Cluster::up(4);
    let Some(mounted) = Mounted::new(&cluster, "braid://main") else { return };
    let at = |name: &str| mounted.at.join(name);
    fs::create_dir_all(at("d/below")).expect("made");
    assert_eq!(shown(&at("d")), "raid5 3+1 unit=512KiB");
    assert_eq!(set(&at("d"), "raid1 unit=64K"), Ok(()));
    assert_eq!(shown(&at("d/below")), "raid1 1+1 unit=64KiB");
    assert_eq!((listed(&at("d")), listed(&at("d/below"))), (format!("{NAME}\0"), String::new()));
    fs::write(at("d/below/f"), b"bytes").expect("written");
    assert_eq!(shown(&at("d/below/f")), "raid1 1+1 unit=64KiB");
    assert_eq!(listed(&at("d/below/f")), "");

    assert_eq!(set(&at("d"), "raid9 3"), Err(Errno::INVAL));
    assert_eq!(set(&at("d"), "raid0 5"), Err(Errno::INVAL), "there are four drives");
    assert_eq!(set(&at("d/below/f"), "raid0 2"), Err(Errno::BUSY), "it has bytes");
    assert_eq!(removexattr(at("d/below/f"), NAME), Err(Errno::INVAL));
    assert_eq!(removexattr(at("d/below"), NAME), Err(Errno::NODATA));

    // A file that is open, and closed, before anything is written to it.
    let mut file = File::create(at("d/open")).expect("made");
    assert_eq!(fsetxattr(&file, NAME, b"rs(2,2) unit=8K", XattrFlags::empty()), Ok(()));
    file.write_all(b"more").expect("written");
    assert_eq!(fsetxattr(&file, NAME, b"raid0 2", XattrFlags::empty()), Err(Errno::BUSY));
    drop(file);
    File::create(at("d/closed")).expect("made");
    assert_eq!(set(&at("d/closed"), "raid0 2"), Ok(()));
    assert_eq!(set(&at("d/closed"), "raid0 3"), Ok(()));
    let file = File::open(at("d/closed")).expect("open");
    let mut value = [0; 200];
    let length = fgetxattr(&file, NAME, &mut value).expect("it has a layout");
    assert_eq!(&value[..length], b"raid0 3 unit=512KiB");
    fs::write(at("d/closed"), b"bytes").expect("written");
    for (name, content) in [("d/open", &b"more"[..]), ("d/closed", b"bytes")] {
        assert_eq!(fs::read(at(name)).expect("read"), content, "{name}");
    }
    assert_eq!(removexattr(at("d"), NAME), Ok(()));
    assert_eq!(shown(&at("d/below")), "raid5 3+1 unit=512KiB");
    assert_eq!(mounted.end().code, 0);
    assert_eq!(lies(&cluster, "braid://main/d/open"), "rs 2+2 8192");
    assert_eq!(lies(&cluster, "braid://main/d/closed"), "raid0 3+0 524288");
    cluster.line("check --all braid://main").ok();
}
