//! What the store's tests share: a directory, a partition, writes with made-up bytes.

use std::path::Path;

use braid_layout::{
    ClusterId, Column, ColumnMask, DriveId, Generation, Lease, ObjectId, PartitionId, Version,
};
use braid_store::*;

/// The tests' partition.
pub(crate) const P: PartitionId = PartitionId(7);
/// Unit size of the tests' objects.
pub(crate) const UNIT: u32 = 64 << 10;

pub(crate) fn identity() -> Identity {
    Identity { cluster: ClusterId(0xc1), drive: DriveId(0xd1) }
}

pub(crate) fn options() -> Options {
    Options { segment_bytes: 256 << 10, sync: false, ..Options::default() }
}

pub(crate) fn open(dir: &Path) -> (Store, Recovery) {
    open_with(dir, options())
}

pub(crate) fn open_with(dir: &Path, options: Options) -> (Store, Recovery) {
    Store::open(dir, Some(identity()), options).expect("open the store")
}

/// A new store with the partition.
pub(crate) fn fresh(dir: &Path, options: Options) -> Store {
    Store::format(dir, identity(), &options).expect("format");
    let (store, _) = open_with(dir, options);
    store.commit(partition()).expect("partition");
    store
}

pub(crate) fn partition() -> Mutation {
    Mutation::PartitionCreate { partition: P, quota_bytes: None, key_epoch: 1 }
}

pub(crate) fn attributes() -> Attributes {
    Attributes {
        unit_bytes: UNIT,
        column: Column(2),
        g: Generation(1),
        set: ColumnMask::all(5),
        joining: ColumnMask::EMPTY,
        object_version: 1,
        created_ms: 1000,
        modified_ms: 1000,
        reserve_bytes: 0,
        cluster: 0,
        map: b"map".to_vec(),
        opaque: b"opaque".to_vec(),
    }
}

pub(crate) fn create(object: u64) -> Mutation {
    Mutation::Create { partition: P, object: ObjectId(object), attributes: attributes() }
}

/// As it is asked for in the generation that [`create`] gives.
pub(crate) fn remove(object: u64) -> Mutation {
    Mutation::Remove { partition: P, object: ObjectId(object), g: Generation(1) }
}

/// What was written below is settled; nothing is said of a client's operations.
pub(crate) fn settled(object: u64, below: Version) -> Mutation {
    let (partition, object, g) = (P, ObjectId(object), Generation(1));
    Mutation::Retire { partition, object, g, settled_below: below, client: 0, watermark: 0 }
}

pub(crate) fn version(lease: u32, n: u64) -> Version {
    Version { g: Generation(1), lease: Lease(lease), n }
}

/// Bytes that tell where they came from.
pub(crate) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}

pub(crate) fn body(from: u32, bytes: &[u8]) -> Body {
    Body::Bytes { payload: bytes.to_vec().into(), crcs: block_crcs(from, bytes) }
}

/// A data write of the pattern named by the version.
pub(crate) fn write(object: u64, unit: u64, from: u32, to: u32, version: Version) -> Write {
    let bytes = pattern(version.n, usize::try_from(to - from).expect("small"));
    Write {
        partition: P,
        object: ObjectId(object),
        unit,
        from,
        to,
        kind: WriteKind::Data,
        standing: Standing::Pending,
        version,
        columns: ColumnMask::all(3),
        cover: Vec::new(),
        client: 11,
        operation: version.n,
        g: Generation(1),
        settled_below: Version::ZERO,
        body: body(from, &bytes),
    }
}

/// The bytes of a range, holes as zeros, every block checked.
pub(crate) fn content(
    store: &Store,
    object: u64,
    unit: u64,
    from: u32,
    to: u32,
    want: Want,
) -> Result<Vec<u8>, Error> {
    bytes_of(&store.read(P, ObjectId(object), unit, from..to, want)?, to - from)
}

/// The same of a view of so many bytes.
pub(crate) fn bytes_of(view: &View, length: u32) -> Result<Vec<u8>, Error> {
    let mut stored = Vec::new();
    view.read_into(&mut stored)?;
    let mut out = Vec::new();
    let (mut rest, mut blocks) = (&stored[..], view.blocks());
    for extent in view.extents() {
        match *extent {
            ViewExtent::Hole { from, to } => {
                out.resize(out.len() + usize::try_from(to - from).expect("small"), 0)
            }
            ViewExtent::Stored { from, to } => {
                let (head, tail) = rest.split_at(usize::try_from(to - from).expect("small"));
                let crcs = block_crcs(from, head);
                let (ours, others) = blocks.split_at(crcs.len());
                if ours != crcs {
                    return Err(Error::Checksum { at: from });
                }
                out.extend_from_slice(head);
                (rest, blocks) = (tail, others);
            }
        }
    }
    assert!(rest.is_empty() && blocks.is_empty(), "extents, bytes and blocks go together");
    assert_eq!(out.len(), usize::try_from(length).expect("small"));
    Ok(out)
}

/// A copy of the store as it is on disk now: what a process killed at this moment leaves.
pub(crate) fn copy(from: &Path, to: &Path) {
    copy_log(from, to);
    for path in checkpoints(from) {
        std::fs::copy(&path, to.join("checkpoint").join(path.file_name().expect("a name"))).expect("copy");
    }
}

/// The same without its checkpoints.
pub(crate) fn copy_log(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.join("log")).expect("make a directory");
    std::fs::copy(from.join("superblock"), to.join("superblock")).expect("copy");
    for path in segments(from) {
        std::fs::copy(&path, to.join("log").join(path.file_name().expect("a name"))).expect("copy");
    }
    std::fs::create_dir_all(to.join("checkpoint")).expect("make a directory");
}

/// Leave the log alone: the next opening reads it from its first record, and verifies it all.
pub(crate) fn without_checkpoints(dir: &Path) {
    for path in checkpoints(dir) {
        std::fs::remove_file(path).expect("remove");
    }
}

/// The checkpoints' files, in order.
pub(crate) fn checkpoints(dir: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir.join("checkpoint")) else { return Vec::new() };
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("entry").path()).collect();
    paths.sort();
    paths
}

/// The files of the log, in order.
pub(crate) fn segments(dir: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir.join("log")).expect("list");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("entry").path()).collect();
    paths.sort();
    paths
}
