//! A writer that sends exactly what a test says: stripe writes to single columns, as a correct client never
//! would.

use std::sync::atomic::{AtomicU64, Ordering};

use braid_layout::{Column, ColumnMask, Version};
use braid_transport::{ControlSession, DriveSession, Limits};
use braid_wire::checksum::block_crcs;
use braid_wire::control::{Access, ControlReply, Open, Opened, Release, RequestHead, ShapeSpec};
use braid_wire::data::{Address, Retire, StripeWrite};

use crate::common::Cluster;

/// One column's part of a write of stripe 0.
pub(crate) struct Part<'a> {
    pub(crate) column: u8,
    pub(crate) bytes: &'a [u8],
    /// For parity: per data unit, whether it counts the unit at the write's stamp or at the version before.
    pub(crate) cover: &'a [bool],
}

/// Writes stripe 0 of a file of volume `main`: only these columns, each as a whole, all under one stamp, then
/// marks it settled. `before` is the present version of stripe 0.
pub(crate) async fn write(cluster: &Cluster, path: &str, before: Version, parts: &[Part<'_>]) -> Version {
    let (token, limits) = (&cluster.ready.client_token, Limits::default());
    let mut manager = ControlSession::connect(&cluster.ready.address, token, &limits).await.expect("connect");
    let shape = ShapeSpec { scheme: 0, k: 0, m: 0, unit_bytes: 0 };
    let open = Open {
        volume: "main".to_owned(),
        path: path.as_bytes().to_vec(),
        access: Access::Write,
        create: false,
        exclusive: false,
        shape,
        client: 77,
    };
    let head = operation(&manager);
    let ControlReply::Opened(opened) = manager.call_as(&head, &open.into()).await.expect("open") else {
        panic!("opened")
    };
    let stamp = Version { g: opened.stat.g, lease: opened.lease, n: 1 };
    for part in parts {
        write_one(cluster, &opened, stamp, before, part).await;
    }
    let (file, lease, end) = (opened.stat.file, opened.lease, opened.stat.size);
    let release = Release { file, lease, clean: true, end }.into();
    let head = operation(&manager);
    manager.call_as(&head, &release).await.expect("released");
    stamp
}

/// The head of this writer's next operation.
fn operation(manager: &ControlSession) -> RequestHead {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    RequestHead { client: 77, operation: number, settled_below: 1, begun_ms: manager.head().now_ms }
}

async fn write_one(cluster: &Cluster, opened: &Opened, stamp: Version, before: Version, part: &Part<'_>) {
    let row = &opened.stat.segments[0].columns[Column(part.column).index()];
    let grant = opened.grants[0][Column(part.column).index()].as_ref().expect("a grant");
    let limits = Limits::default();
    let session = DriveSession::connect(&row.address, row.drive, cluster.ready.cluster, &limits).await;
    let mut session = session.expect("connect");
    let at = Address { partition: opened.stat.volume.into(), object: row.object };
    let request = StripeWrite {
        at,
        unit: 0,
        from: 0,
        to: u32::try_from(part.bytes.len()).expect("a unit"),
        hole: false,
        install: false,
        stamp,
        columns: ColumnMask::all(u8::try_from(opened.grants[0].len()).expect("few")),
        cover: part.cover.iter().map(|&counted| if counted { stamp } else { before }).collect(),
        settled_below: Version::ZERO,
        client: 77,
        operation: 1,
        crcs: block_crcs(0, part.bytes),
    };
    session.call(grant, &request.into(), &[part.bytes]).await.expect("written");
    let retire = Retire { at, settled_to: stamp, durable: true, client: 77, watermark: 2, ends_lease: false };
    session.call(grant, &retire.into(), &[]).await.expect("settled");
}
