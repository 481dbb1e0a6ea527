//! What the index costs: fills a new store with objects, units and extents, opens it again and prints the process's
//! resident memory for each.
//!
//!     cargo run --release -p braid-store --example index_memory -- DIR OBJECTS UNITS EXTENTS
//!
//! `UNITS` per object, `EXTENTS` per unit. The writes are holes, which cost the index what bytes do and the disk 512 bytes
//! each: 10 million take 5 GB in `DIR`, which must be empty or absent.

use std::path::Path;
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
    let [dir, objects, units, extents] = &arguments[..] else {
        return Err("usage: index_memory DIR OBJECTS UNITS EXTENTS".into());
    };
    let (dir, objects) = (Path::new(dir), objects.parse::<u64>()?);
    let (units, extents) = (units.parse::<u64>()?, extents.parse::<u32>()?);
    let options = Options { sync: false, ..Options::default() };
    Store::format(dir, Identity { cluster: ClusterId(1), drive: DriveId(1) }, &options)?;
    println!("before: {} KiB", resident_kib()?);
    let (store, _) = Store::open(dir, None, options.clone())?;
    fill(&store, objects, units, extents)?;
    report("written", objects, objects * units * u64::from(extents))?;
    store.close()?;
    drop(store);
    let began = Instant::now();
    let (store, recovery) = Store::open(dir, None, options)?;
    println!("opened again in {:?}: {} records", began.elapsed(), recovery.records);
    report("opened", objects, objects * units * u64::from(extents))?;
    store.close()?;
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

fn report(when: &str, objects: u64, extents: u64) -> std::io::Result<()> {
    let kib = resident_kib()?;
    println!(
        "{when}: {kib} KiB resident; {objects} objects, {extents} extents; {} bytes an extent in all",
        kib * 1024 / extents.max(1)
    );
    Ok(())
}

fn resident_kib() -> std::io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    Ok(line.trim().trim_end_matches(" kB").parse().unwrap_or_default())
}
