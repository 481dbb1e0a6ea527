//! `braid store`: inspects a stopped drive's store from outside.

use std::fs;

use braid_layout::{
    ClientId, ClusterId, ColumnMask, DriveId, Generation, Lease, ObjectId, OperationNumber, PartitionId,
    Version,
};
use braid_store::Attributes;
use braid_store::Body;
use braid_store::Identity;
use braid_store::Mutation;
use braid_store::Options;
use braid_store::Standing;
use braid_store::Store;
use braid_store::Write;
use braid_store::WriteKind;
use braid_store::block_crcs;

use crate::support::{Cluster, braid, noise, run};

#[test]
fn a_stopped_drives_store_is_checked_shown_and_printed() {
    let cluster = Cluster::up(3);
    let content = noise(3 << 20, 33);
    fs::write(cluster.file("f"), &content).expect("written");
    cluster.put(&cluster.file("f"), "braid://main/f");
    let dir = cluster.dir().join("drive-1");
    let look = |what: &str, json: bool| {
        let mut command = braid();
        command.args(["store", what]).arg(&dir).args(json.then_some("--json"));
        run(command)
    };
    look("check", false).failed(7, "in use by another process; stop the drive first");
    cluster.down().ok();

    let whole = look("check", true).ok().json();
    assert_eq!((whole["whole"].as_bool(), whole["findings"].as_array().map(Vec::len)), (Some(true), Some(0)));
    assert!(whole["payload_bytes"].as_u64().expect("a number") >= 3 << 19, "{whole}");
    let figures = look("stat", true).ok().json();
    let figure = |name: &str| figures[name].as_u64().expect("a number");
    assert_eq!(figure("used_bytes"), figure("live_bytes") + figure("dead_bytes"));
    assert!(figure("objects") >= 1 && figure("extents") >= 3 && figure("index_bytes") > 0, "{figures}");
    assert!(look("stat", false).ok().text().contains("bytes an extent"));
    let dump = look("dump", false).ok();
    let records = dump
        .text()
        .lines()
        .filter(|line| line.contains(" data seq") || line.contains(" stripe parity "))
        .count();
    assert!(records >= 3, "{}", dump.text());

    // Flips one byte of the file, in whichever segment holds it.
    let log = dir.join("store/log");
    let flipped = fs::read_dir(log).expect("a log").map(|entry| entry.expect("read").path()).find(|path| {
        let mut bytes = fs::read(path).expect("read");
        let hit = (0..6).find_map(|unit| {
            let wanted = &content[unit * (512 << 10)..][..64];
            bytes.windows(64).position(|window| window == wanted)
        });
        hit.map(|at| bytes[at] ^= 1).map(|()| fs::write(path, &bytes).expect("written")).is_some()
    });
    let name = flipped.expect("the drive has a data unit").file_name().expect("a name").to_owned();
    let damaged = look("check", false);
    damaged.failed(10, "1 place is damaged; serve the drive; `braid check` then names the files");
    assert!(damaged.text().contains(&format!("log/{} at ", name.display())), "{}", damaged.text());
    look("dump", false).ok();

    let mut nothing = braid();
    nothing.args(["store", "check"]).arg(cluster.dir());
    run(nothing).failed(3, "holds no store; name a drive's directory");
}

/// Half of the data is overwritten and cleaning moves the rest, so more is written than the writes asked for.
#[test]
fn a_cleaned_stores_amplification_is_shown() {
    let place = Cluster::nowhere();
    let dir = place.file("store");
    let stat = |json: bool| {
        let mut command = braid();
        command.args(["store", "stat"]).arg(&dir).args(json.then_some("--json"));
        run(command).ok()
    };
    let identity = Identity { cluster: ClusterId(1), drive: DriveId(2) };
    let options = Options { segment_bytes: 256 << 10, sync: false, ..Options::default() };
    Store::format(&dir, identity, &options).expect("made");
    assert!(stat(true).json()["amplification"].is_null(), "nothing was written");
    let (store, _) = Store::open(&dir, None, options).expect("open");
    let partition = PartitionId(1);
    let object = ObjectId(1);
    let g = Generation(1);
    let attributes = Attributes { unit_bytes: 64 << 10, g, set: ColumnMask::all(1), ..Attributes::default() };
    let make = Mutation::PartitionCreate { partition, quota_bytes: None, key_epoch: 1 };
    store.commit(make).expect("a partition");
    store.commit(Mutation::Create { partition, object, attributes }).expect("an object");
    let payload = noise(64 << 10, 5);
    let write = |unit, n| {
        let version = Version { g, lease: Lease(1), n };
        let body = Body::Bytes { payload: payload.clone().into(), crcs: block_crcs(0, &payload) };
        let done = store.commit(Mutation::Write(Write {
            partition,
            object,
            unit,
            from: 0,
            to: 64 << 10,
            kind: WriteKind::Data,
            standing: Standing::Installed,
            stamp: version,
            columns: ColumnMask::all(1),
            cover: Vec::new(),
            ends: Vec::new(),
            client: ClientId(1),
            operation: OperationNumber(n),
            g,
            settled_below: Version::ZERO,
            body,
        }));
        assert!(done.is_ok(), "{done:?}");
    };
    (0..16).for_each(|unit| write(unit, 1 + unit));
    (0..8).for_each(|half| write(2 * half, 17 + half));
    store.clean().expect("cleaned");
    store.close().expect("closed");
    drop(store);
    let figures = stat(true).json();
    let figure = |name: &str| figures[name].as_f64().expect("a number");
    let written = figure("written_bytes");
    let moved = figure("moved_bytes");
    assert!(written > 24.0 * 65_536.0 && moved > 0.0, "{figures}");
    assert!(figure("amplification") > 1.0, "{figures}");
    assert!((figure("amplification") - (written + moved) / written).abs() < 1e-9, "{figures}");
    assert!(stat(false).text().contains("amplification"));
}
