use braid_layout::{DriveId, FileId, VolumeId};
use braid_wire::control::RatePlan;

use super::*;

/// A reservation of which this is reported.
fn row(lateness: Lateness) -> ReservationRow {
    let shape = ShapeSpec::DEFAULT;
    let plan = RatePlan {
        shape,
        drives: Vec::new(),
        buffer_bytes: 0,
        lateness_us: 20_000,
        failover_us: 7_800_000,
        start_us: 0,
    };
    ReservationRow {
        reservation: ReservationId(7),
        volume: "main".to_owned(),
        path: b"cam".to_vec(),
        volume_id: VolumeId(1),
        file: FileId(1),
        direction: DataDirection::Write,
        rate: 1_000_000,
        streams: 1,
        period_ms: 100,
        survive: 1,
        begun_ms: 0,
        ends_ms: 10_000,
        claim_until_ms: 0,
        plan,
        risk: String::new(),
        lateness,
    }
}

/// The list as text and as JSON.
fn listing(lateness: Lateness) -> (String, serde_json::Value) {
    let drive = DriveBooking {
        drive: DriveId(1),
        name: "drive-1".to_owned(),
        healthy_permille: 100,
        worst_permille: 200,
        able_permille: 1000,
    };
    let reply = ReservationReply {
        reservations: vec![row(lateness)],
        more: false,
        drives: vec![drive],
        share_permille: 800,
    };
    let listed = listed(&reply, 0);
    (show_list(&listed), serde_json::to_value(&listed).expect("written"))
}

#[test]
fn what_was_paused_is_told_apart_from_what_was_late() {
    let paused = Lateness {
        periods: 50,
        late_periods: 2,
        worst_us: 30_000,
        paused_periods: 12,
        paused_us: 1_020_000,
        ..Lateness::NONE
    };
    let (text, json) = listing(paused);
    assert!(text.contains("2/50"), "{text}");
    let line = "paused under reservation 7, at a drive's death: 12 periods, 1020.0 ms at most; stated 7800.0 ms beyond the bound\n";
    assert!(text.contains(line), "{text}");
    let delivered = &json["reservations"][0]["delivered"];
    assert_eq!(delivered["paused_periods"], 12);
    assert_eq!(delivered["paused_us"], 1_020_000);
    let (text, json) = listing(Lateness { periods: 50, ..Lateness::NONE });
    assert!(!text.contains("paused"), "{text}");
    assert_eq!(json["reservations"][0]["delivered"]["paused_periods"], 0);
}
