//! What the index costs: fills a new store with objects, units and extents and prints the process's resident memory; then
//! what it is in a process that opens the store as after kill -9, and in one that opens it after that one closed it.
//!
//!     cargo run --release -p braid-store --example index_memory -- DIR OBJECTS UNITS EXTENTS
//!
//! `UNITS` per object, `EXTENTS` per unit. The writes are holes, which cost the index what bytes do and the disk 512 bytes
//! each: 10 million take 5 GB in `DIR`, which must be empty or absent. With `DIR` alone a store that is there is opened and
//! closed.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use braid_layout::{
    ClusterId, Column, ColumnMask, DriveId, Generation, Lease, ObjectId, PartitionId, Version,
};
use braid_store::{
    Attributes, Body, Error, Identity, Mutation, Options, Outcome, Standing, Store, Write, WriteKind,
};

const PARTITION: PartitionId = PartitionId(1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let options = Options { sync: false, ..Options::default() };
    match &arguments[..] {
        [dir] => open(Path::new(dir), options),
        [dir, objects, units, extents] => {
            // Each in a process of its own: what one leaves in its heap is not the next one's.
            let again = |arguments: &[String]| -> Result<(), Box<dyn std::error::Error>> {
                let status = Command::new(std::env::current_exe()?).args(arguments).status()?;
                if status.success() { Ok(()) } else { Err(status.to_string().into()) }
            };
            again(&["fill", dir, objects, units, extents].map(str::to_owned))?;
            again(&arguments[..1])?;
            again(&arguments[..1])
        }
        [_, dir, objects, units, extents] => {
            let dir = Path::new(dir);
            Store::format(dir, Identity { cluster: ClusterId(1), drive: DriveId(1) }, &options)?;
            println!("before: {} KiB", resident_kib()?);
            let (store, _) = Store::open(dir, None, options)?;
            fill(&store, objects.parse()?, units.parse()?, extents.parse()?)?;
            println!("written: {} KiB resident", resident_kib()?);
            // As if killed.
            std::process::exit(0);
        }
        _ => Err("usage: index_memory DIR [OBJECTS UNITS EXTENTS]".into()),
    }
}

fn open(dir: &Path, options: Options) -> Result<(), Box<dyn std::error::Error>> {
    let began = Instant::now();
    let (store, recovery) = Store::open(dir, None, options)?;
    let took = began.elapsed();
    println!(
        "opened in {took:?}, checkpoint {}, {} records replayed: {} KiB resident",
        recovery.checkpoint,
        recovery.records,
        resident_kib()?
    );
    store.close()?;
    println!("closed: {} KiB resident", resident_kib()?);
    Ok(())
}

fn fill(store: &Store, objects: u64, units: u64, extents: u32) -> Result<(), Error> {
    let (partition, quota_bytes) = (PARTITION, None);
    store.commit(Mutation::PartitionCreate { partition, quota_bytes, key_epoch: 1 })?;
    let submit = |mutation| store.submit(mutation, Box::new(refused_is_fatal));
    for object in 0..objects {
        submit(create(object));
        if object % 256 == 255 {
            store.commit(Mutation::Flush)?;
        }
    }
    for object in 0..objects {
        for unit in 0..units {
            for extent in 0..extents {
                submit(hole(object, unit, extent, unit * u64::from(extents) + u64::from(extent) + 1));
            }
        }
        let settled_below = version(u64::MAX);
        submit(Mutation::Retire {
            partition,
            object: ObjectId(object),
            g: Generation(1),
            settled_below,
            client: 0,
            watermark: 0,
        });
    }
    store.commit(Mutation::Flush).map(drop)
}

fn refused_is_fatal(answer: Result<Outcome, Error>) {
    if let Err(error) = answer {
        eprintln!("refused: {error}");
        std::process::exit(1);
    }
}

/// An object with a map as long as one of ten columns.
fn create(object: u64) -> Mutation {
    let attributes = Attributes {
        unit_bytes: 1 << 20,
        column: Column(0),
        g: Generation(1),
        set: ColumnMask::all(10),
        map: vec![7; 250],
        ..Attributes::default()
    };
    Mutation::Create { partition: PARTITION, object: ObjectId(object), attributes }
}

/// Every second 4 KiB, so that extents do not join.
fn hole(object: u64, unit: u64, extent: u32, n: u64) -> Mutation {
    Mutation::Write(Write {
        partition: PARTITION,
        object: ObjectId(object),
        unit,
        from: extent * 8192,
        to: extent * 8192 + 4096,
        kind: WriteKind::Data,
        standing: Standing::Pending,
        version: version(n),
        columns: ColumnMask::all(1),
        cover: Vec::new(),
        client: 0,
        operation: 0,
        g: Generation(1),
        settled_below: Version::ZERO,
        body: Body::Hole,
    })
}

fn version(n: u64) -> Version {
    Version { g: Generation(1), lease: Lease(1), n }
}

/// The process's own: mapped pages of files are the page cache's.
fn resident_kib() -> std::io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or_default();
    Ok(line.trim().trim_end_matches(" kB").parse().unwrap_or_default())
}
