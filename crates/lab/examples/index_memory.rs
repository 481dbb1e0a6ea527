//! The memory cost of the index: fills a new store with objects, units and extents and prints the process's
//! resident memory. Then it measures a process that opens the store as after kill -9 and serves it, and
//! another that does the same after the first closed it.
//!
//!     cargo run --release -p braid-lab --example index_memory -- \
//!         DIR OBJECTS UNITS EXTENTS [ORDER [LIMIT_MIB]]
//!
//! `UNITS` per object, `EXTENTS` per unit. The writes are holes, which cost the index as much as bytes do and
//! the disk 512 bytes each: 10 million take 5 GB in `DIR`, which must be empty or absent. `ORDER`:
//! `ascending`, or `scattered` over objects and units. Serving means reading every unit and overwriting one
//! in a hundred. Fails if a process that opens the store has more than `LIMIT_MIB` resident. With only `DIR`
//! and `LIMIT_MIB` an existing store is opened, served and closed.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use braid_layout::{
    ClientId, ClusterId, Column, ColumnMask, DriveId, Generation, Lease, ObjectId, OperationNumber,
    PartitionId, Version,
};
use braid_store::Attributes;
use braid_store::Body;
use braid_store::Error;
use braid_store::Identity;
use braid_store::Mutation;
use braid_store::MutationOutcome;
use braid_store::Options;
use braid_store::Standing;
use braid_store::Store;
use braid_store::Want;
use braid_store::Write;
use braid_store::WriteKind;

const PARTITION: PartitionId = PartitionId(1);
/// The first argument of the process that fills the store.
const FILL: &str = "--fill";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let options = Options { sync: false, ..Options::default() };
    match &arguments[..] {
        [dir, limit_mib] => open(Path::new(dir), options, limit_mib.parse()?),
        [dir, objects, units, extents, rest @ ..] if rest.len() <= 2 && dir != FILL => {
            let order = rest.first().map_or("ascending", String::as_str);
            let limit_mib = rest.get(1).map_or("1000000", String::as_str);
            // Separate processes, so that one does not inherit another's heap.
            let again = |arguments: &[&str]| -> Result<(), Box<dyn std::error::Error>> {
                let status = Command::new(std::env::current_exe()?).args(arguments).status()?;
                if status.success() { Ok(()) } else { Err(status.to_string().into()) }
            };
            again(&[FILL, dir, objects, units, extents, order])?;
            again(&[dir, limit_mib])?;
            again(&[dir, limit_mib])
        }
        [_, dir, objects, units, extents, order] => {
            let dir = Path::new(dir);
            let scattered = order == "scattered";
            Store::format(dir, Identity { cluster: ClusterId(1), drive: DriveId(1) }, &options)?;
            println!("before: {} KiB", resident_kib()?);
            let (store, _) = Store::open(dir, None, options)?;
            fill(&store, objects.parse()?, units.parse()?, extents.parse()?, scattered)?;
            println!("written: {} KiB resident", resident_kib()?);
            // As after a kill.
            std::process::exit(0);
        }
        _ => Err("usage: index_memory DIR OBJECTS UNITS EXTENTS [ascending|scattered [LIMIT_MIB]]".into()),
    }
}

fn open(dir: &Path, options: Options, limit_mib: u64) -> Result<(), Box<dyn std::error::Error>> {
    let began = Instant::now();
    let (store, recovery) = Store::open(dir, None, options)?;
    let took = began.elapsed();
    println!(
        "opened in {took:?}, checkpoint {}, {} records replayed: {} KiB resident",
        recovery.checkpoint,
        recovery.records,
        resident_kib()?
    );
    let (read, written) = serve(&store)?;
    let resident = resident_kib()?;
    println!("{read} units read, {written} overwritten: {resident} KiB resident");
    store.close()?;
    println!("closed: {} KiB resident", resident_kib()?);
    let most = resident_kib()?.max(resident) >> 10;
    if most >= limit_mib {
        return Err(format!("{most} MiB are resident, and should be less than {limit_mib}").into());
    }
    Ok(())
}

/// Read every unit, and overwrite one in a hundred; returns the numbers of both.
fn serve(store: &Store) -> Result<(u64, u64), Error> {
    let mut read = 0;
    let mut written = 0;
    let mut from = None;
    loop {
        let objects = store.objects(PARTITION, from, 1000)?;
        for &object in &objects {
            for unit in store.units(PARTITION, object, 0, usize::MAX)? {
                let view = store.read(PARTITION, object, unit, 0..4096, Want::Newest)?;
                read += 1;
                if read % 100 == 0 {
                    written += 1;
                    let over = installed(object.0, unit, view.version.n + (1 << 40));
                    store.submit(over, Box::new(refused_is_fatal));
                }
            }
        }
        let Some(last) = objects.last() else { break };
        from = Some(*last);
    }
    store.commit(Mutation::Flush)?;
    Ok((read, written))
}

fn fill(store: &Store, objects: u64, units: u64, extents: u32, scattered: bool) -> Result<(), Error> {
    let partition = PARTITION;
    let quota_bytes = None;
    store.commit(Mutation::PartitionCreate { partition, quota_bytes, key_epoch: 1 })?;
    let submit = |mutation| store.submit(mutation, Box::new(refused_is_fatal));
    for object in 0..objects {
        submit(create(object));
        if object % 256 == 255 {
            store.commit(Mutation::Flush)?;
        }
    }
    // A stride that is coprime to the number of units visits each of them once.
    let all = objects * units;
    let stride = if scattered { 2_147_483_647 } else { 1 };
    for i in 0..all {
        let at = u64::try_from(u128::from(i) * stride % u128::from(all)).expect("below");
        let object = at / units;
        let unit = at % units;
        for extent in 0..extents {
            submit(hole(object, unit, extent, i * u64::from(extents) + u64::from(extent) + 1));
        }
    }
    for object in 0..objects {
        let settled_below = version(u64::MAX);
        submit(Mutation::Retire {
            partition,
            object: ObjectId(object),
            g: Generation(1),
            settled_below,
            client: ClientId::NONE,
            watermark: OperationNumber::NONE,
        });
    }
    store.commit(Mutation::Flush)?;
    // Holes are short: without this the tail would have many times the records that writes of 4 KiB leave
    // after a checkpoint.
    store.checkpoint()?;
    for i in 0..all / 20 {
        let at = u64::try_from(u128::from(i) * 2_147_483_647 % u128::from(all)).expect("below");
        submit(installed(at / units, at % units, (1 << 32) + i));
    }
    store.commit(Mutation::Flush).map(drop)
}

fn refused_is_fatal(answer: Result<MutationOutcome, Error>) {
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

/// Every second 4 KiB, so that extents do not merge.
fn hole(object: u64, unit: u64, extent: u32, n: u64) -> Mutation {
    Mutation::Write(Write {
        partition: PARTITION,
        object: ObjectId(object),
        unit,
        from: extent * 8192,
        to: extent * 8192 + 4096,
        kind: WriteKind::Data,
        standing: Standing::Pending,
        stamp: version(n),
        columns: ColumnMask::all(1),
        cover: Vec::new(),
        ends: Vec::new(),
        client: ClientId::NONE,
        operation: OperationNumber::NONE,
        g: Generation(1),
        // One write is unsettled in each object.
        settled_below: version(n),
        body: Body::Hole,
    })
}

/// A unit's first extent again, settled at once.
fn installed(object: u64, unit: u64, n: u64) -> Mutation {
    match hole(object, unit, 0, n) {
        Mutation::Write(write) => {
            Mutation::Write(Write { standing: Standing::Installed, settled_below: Version::ZERO, ..write })
        }
        other => other,
    }
}

fn version(n: u64) -> Version {
    Version { g: Generation(1), lease: Lease(1), n }
}

/// Resident anonymous memory of this process, in KiB: mapped file pages belong to the page cache.
fn resident_kib() -> std::io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or_default();
    Ok(line.trim().trim_end_matches(" kB").parse().unwrap_or_default())
}
