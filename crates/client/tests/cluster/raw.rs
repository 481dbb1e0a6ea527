//! A writer that sends exactly what a test says: stripe writes to single columns, as a correct client never
//! would.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use braid_layout::{
    ClientId, Column, ColumnMask, EndBound, FileId, HolderId, Lease, OperationNumber, ReservationId, Version,
};
use braid_transport::{ControlSession, DriveSession, Limits, TransportError};
use braid_wire::checksum::block_crcs;
use braid_wire::control::{
    Access, Backing, ControlReply, Ended, Ending, NamePlace, NewAttributes, Open, Opened, Refresh, Release,
    RequestHead, Room, ShapeSpec, Turn,
};
use braid_wire::data::{Address, DriveRequest, Read, Retire, StripeWrite, UnitWrite, Want};

use crate::common::Cluster;

/// Client number of this writer.
const CLIENT: ClientId = ClientId(77);
const HOLDER: HolderId = HolderId(77);

/// One column's part of a write of one stripe.
pub(crate) struct Part<'a> {
    pub(crate) stripe: u64,
    pub(crate) column: u8,
    pub(crate) bytes: &'a [u8],
    /// For parity: per data unit, true if it counts the unit at the write's stamp, false if at the version
    /// before.
    pub(crate) cover: &'a [bool],
}

/// Writes stripes of a file of volume `main`, then marks all as settled. Writes only these parts, each as a
/// whole, and those of a stripe under one stamp. `before` is the present version where a cover does not count
/// the write.
pub(crate) async fn write(cluster: &Cluster, path: &str, before: Version, parts: &[Part<'_>]) {
    let mut manager = manager(cluster).await;
    let shape = ShapeSpec { scheme: 0, k: 0, m: 0, unit_bytes: 0 };
    let open = Open {
        at: NamePlace::of("main", path.as_bytes().to_vec()),
        access: Access::Write,
        create: false,
        exclusive: false,
        alone: false,
        range: None,
        takes_sealed: false,
        shape,
        holder: HOLDER,
        new: NewAttributes { mode: 0o644, uid: 1, gid: 2 },
    };
    let head = operation(&manager);
    let ControlReply::Opened(opened) = manager.call_as(&head, &open.into()).await.expect("open") else {
        panic!("opened")
    };
    let stamp = |number| Version { g: opened.stat.g, lease: opened.lease, n: number };
    let mut last = 0;
    for part in parts {
        let number = part.stripe + 1;
        write_one(cluster, &opened, stamp(number), before, part).await.expect("written");
        last = last.max(number);
    }
    for column in parts.iter().map(|part| part.column).collect::<BTreeSet<u8>>() {
        let at = address(&opened, column);
        let watermark = last + 1;
        let retire = Retire {
            at,
            settled_to: stamp(last),
            durable: true,
            client: CLIENT,
            watermark: OperationNumber(watermark),
            ends_lease: false,
        };
        send(cluster, &opened, column, &retire.into(), &[]).await.expect("settled");
    }
    let file = opened.stat.file;
    let lease = opened.lease;
    let end = opened.stat.size();
    let ended = Ended { ending: Ending::Retired, end, columns: ColumnMask(u64::MAX) };
    let release = Release { file, lease, holder: HOLDER, ended, commit: None, backing: Backing::NONE }.into();
    let head = operation(&manager);
    manager.call_as(&head, &release).await.expect("released");
}

/// The bytes of a column's unit, as its drive holds them.
pub(crate) async fn read_unit(cluster: &Cluster, opened: &Opened, column: u8, unit: u64) -> Vec<u8> {
    let at = address(opened, column);
    let to = opened.stat.segments[0].shape.unit_bytes;
    let read = Read { at, unit, from: 0, to, want: Want::Newest, exactly: Vec::new(), timed: false };
    send(cluster, opened, column, &read.into(), &[]).await.expect("read")
}

/// Writes a unit through its data drive, which tells the parity drives, as who has a capability can.
pub(crate) async fn write_unit(
    cluster: &Cluster,
    opened: &Opened,
    stamp: Version,
    part: &Part<'_>,
) -> Result<(), TransportError> {
    let request = UnitWrite {
        at: address(opened, part.column),
        unit: part.stripe,
        from: 0,
        to: u32::try_from(part.bytes.len()).expect("a unit"),
        hole: false,
        client: CLIENT,
        operation: OperationNumber(stamp.n),
        stamp: Some(stamp),
        settled_below: Version::ZERO,
        crcs: block_crcs(0, part.bytes),
        watermark: OperationNumber(1),
        timed: false,
    };
    send(cluster, opened, part.column, &request.into(), &[part.bytes]).await.map(drop)
}

/// Capabilities for a file that is open for writing under this lease.
pub(crate) async fn grants(cluster: &Cluster, file: FileId, lease: Lease, holder: HolderId) -> Opened {
    let refresh = Refresh {
        file,
        access: Access::Write,
        lease,
        holder,
        turn: Turn::Any,
        in_vain: 0,
        reservation: ReservationId::NONE,
        reach: 0,
        room: Room::Keep,
        snapshot: 0,
    };
    match manager(cluster).await.call(&refresh.into()).await.expect("it is open") {
        ControlReply::Opened(opened) => opened,
        other => panic!("{other:?}"),
    }
}

/// Writes one part under these capabilities, as the stamp's operation.
pub(crate) async fn write_one(
    cluster: &Cluster,
    opened: &Opened,
    stamp: Version,
    before: Version,
    part: &Part<'_>,
) -> Result<(), TransportError> {
    let request = StripeWrite {
        at: address(opened, part.column),
        unit: part.stripe,
        from: 0,
        to: u32::try_from(part.bytes.len()).expect("a unit"),
        hole: false,
        install: false,
        whole: false,
        stamp,
        columns: ColumnMask::all(u8::try_from(opened.grants[0].len()).expect("few")),
        cover: part.cover.iter().map(|&counted| if counted { stamp } else { before }).collect(),
        ends: vec![EndBound::NONE; part.cover.len()],
        settled_below: Version::ZERO,
        client: CLIENT,
        operation: OperationNumber(stamp.n),
        crcs: block_crcs(0, part.bytes),
        timed: false,
    };
    send(cluster, opened, part.column, &request.into(), &[part.bytes]).await.map(drop)
}

pub(crate) async fn manager(cluster: &Cluster) -> ControlSession {
    let token = &cluster.ready.client_token;
    let limits = Limits::default();
    ControlSession::connect(&cluster.ready.address, token, &limits).await.expect("connect")
}

/// The head of this writer's next operation.
fn operation(manager: &ControlSession) -> RequestHead {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    RequestHead {
        client: CLIENT,
        operation: OperationNumber(number),
        settled_below: OperationNumber(1),
        begun_ms: manager.head().now_ms,
    }
}

fn address(opened: &Opened, column: u8) -> Address {
    let object = opened.stat.segments[0].columns[Column(column).index()].object;
    Address { partition: opened.stat.volume.into(), object }
}

/// Sends a request to a column's drive, in a session of its own. Returns the bytes that are answered.
async fn send(
    cluster: &Cluster,
    opened: &Opened,
    column: u8,
    request: &DriveRequest,
    payload: &[&[u8]],
) -> Result<Vec<u8>, TransportError> {
    let row = &opened.stat.segments[0].columns[Column(column).index()];
    let grant = opened.grants[0][Column(column).index()].as_ref().expect("a grant");
    let limits = Limits::default();
    let session =
        DriveSession::connect_first(&row.addresses, row.drive, cluster.ready.cluster, &limits).await;
    session.expect("connect").call(grant, request, payload).await.map(|(_, bytes)| bytes)
}
