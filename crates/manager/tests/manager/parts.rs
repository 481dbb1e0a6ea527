//! What drives tell of their parts is kept with them.

use braid_layout::DriveId;
use braid_manager::sessions::members::heartbeat;
use braid_meta::records::memory::MemoryKv;
use braid_wire::Reason;
use braid_wire::control::Heartbeat;
use braid_wire::data::{DiskCharge, DiskCost, DiskWay, DriveCost, DriveParts, ProcessorWay};

use crate::admission::{admitted, beat, with_drive_on};
use crate::crash::InMemory;
use crate::fake::Client;

fn parts(operation_ns: u64) -> DriveParts {
    let way = DiskWay { operation_ns, bytes_per_second: 1 };
    let processor = ProcessorWay { request_ns: 2, byte_ps: 3 };
    let cost = DriveCost {
        disk: DiskCost { charge: DiskCharge::Sum, read: way, write: way, sync_ns: 4 },
        read_processor: processor,
        write_processor: processor,
        measured_ms: 5,
        points: Vec::new(),
    };
    DriveParts {
        cost: Some(cost),
        derate: 900,
        derate_cause: "slow".to_owned(),
        model: None,
        rail_bytes_per_second: 6,
        refused: String::new(),
    }
}

async fn known(manager: &InMemory, drive: DriveId) -> Option<DriveParts> {
    let rows = Client::connect(&manager.ready).await.status().await.drives;
    rows.into_iter().find(|row| row.drive == drive).expect("its row").parts
}

#[tokio::test]
async fn what_a_drive_tells_of_its_parts_outlives_the_manager() {
    let kv = MemoryKv::new();
    let (manager, drive) = with_drive_on(&kv).await;
    assert_ne!(known(&manager, drive).await, Some(parts(2)));
    let core = &manager.core;
    let instance = admitted(core, drive, &beat(50, 1)).await.instance;
    for told in [Some(parts(1)), None, Some(parts(2)), None] {
        heartbeat(core, drive, Heartbeat { parts: told, ..beat(50, instance) }).await.expect("answered");
    }
    let nonsense = DriveParts { derate: 1001, ..parts(3) };
    let refused = heartbeat(core, drive, Heartbeat { parts: Some(nonsense), ..beat(50, instance) }).await;
    assert_eq!(refused.expect_err("nonsense").reason, Reason::Malformed);
    assert_eq!(known(&manager, drive).await, Some(parts(2)), "a beat without parts changes nothing");
    drop(manager);
    let manager = InMemory::start(&kv, "127.0.0.1:0").await;
    assert_eq!(known(&manager, drive).await, Some(parts(2)));
}
