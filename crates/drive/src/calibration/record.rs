//! `calibration.toml` in the drive's directory: the last good result of a calibration. `docs/format-store.md`
//! has its table. If it cannot be read the drive is calibrated anew.

use braid_wire::data::{CurvePoint, DiskCharge, DiskCost, DiskWay, DriveCost, ProcessorWay};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::error::DriveError;
use crate::life::identity::Directory;

/// The file's name.
const FILE: &str = "calibration.toml";
/// The file's version.
const FORMAT: u32 = 1;

/// A result, and the device that the disk was made as slow as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) cost: DriveCost,
    pub(crate) model: Option<DiskCost>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    format: u32,
    measured_ms: u64,
    disk: DiskText,
    read_processor: ProcessorText,
    write_processor: ProcessorText,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<DiskText>,
    points: Vec<PointText>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DiskText {
    charge: String,
    read_operation_ns: u64,
    read_bytes_per_second: u64,
    write_operation_ns: u64,
    write_bytes_per_second: u64,
    sync_ns: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProcessorText {
    request_ns: u64,
    byte_ps: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PointText {
    write: bool,
    bytes: u64,
    operation_ns: u64,
}

/// The result in the drive's directory, if there is one that can be used.
pub(crate) fn load(directory: &Directory) -> Option<Stored> {
    let read = directory.read(FILE).map_err(|error| error.to_string());
    match read.and_then(|text| text.map(|text| parse(&text)).transpose()) {
        Ok(stored) => stored,
        Err(error) => {
            warn!(%error, "{FILE} cannot be used: the drive has to be calibrated anew (braid drive calibrate)");
            None
        }
    }
}

/// Stores a result in place of the one before; it is durable when this returns.
pub(crate) fn save(directory: &Directory, stored: &Stored) -> Result<(), DriveError> {
    directory.write(FILE, &text(stored))
}

fn parse(text: &str) -> Result<Stored, String> {
    let text: Text = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    if text.format != FORMAT {
        return Err(format!("format {}; this build knows {FORMAT}", text.format));
    }
    let processor = |text: ProcessorText| ProcessorWay { request_ns: text.request_ns, byte_ps: text.byte_ps };
    let point = |text: PointText| CurvePoint {
        write: text.write,
        bytes: text.bytes,
        operation_ns: text.operation_ns,
    };
    let cost = DriveCost {
        disk: disk(text.disk)?,
        read_processor: processor(text.read_processor),
        write_processor: processor(text.write_processor),
        measured_ms: text.measured_ms,
        points: text.points.into_iter().map(point).collect(),
    };
    Ok(Stored { cost, model: text.model.map(disk).transpose()? })
}

fn disk(text: DiskText) -> Result<DiskCost, String> {
    let charge = match text.charge.as_str() {
        "sum" => DiskCharge::Sum,
        "larger" => DiskCharge::Larger,
        other => return Err(format!("a disk is charged by sum or larger, and not by \"{other}\"")),
    };
    if text.read_bytes_per_second == 0 || text.write_bytes_per_second == 0 {
        return Err("a disk that moves 0 bytes a second".to_owned());
    }
    let way = |operation_ns, bytes_per_second| DiskWay { operation_ns, bytes_per_second };
    Ok(DiskCost {
        charge,
        read: way(text.read_operation_ns, text.read_bytes_per_second),
        write: way(text.write_operation_ns, text.write_bytes_per_second),
        sync_ns: text.sync_ns,
    })
}

fn text(stored: &Stored) -> String {
    let disk = |disk: &DiskCost| DiskText {
        charge: if disk.charge == DiskCharge::Sum { "sum" } else { "larger" }.to_owned(),
        read_operation_ns: disk.read.operation_ns,
        read_bytes_per_second: disk.read.bytes_per_second,
        write_operation_ns: disk.write.operation_ns,
        write_bytes_per_second: disk.write.bytes_per_second,
        sync_ns: disk.sync_ns,
    };
    let processor = |way: &ProcessorWay| ProcessorText { request_ns: way.request_ns, byte_ps: way.byte_ps };
    let point = |point: &CurvePoint| PointText {
        write: point.write,
        bytes: point.bytes,
        operation_ns: point.operation_ns,
    };
    let cost = &stored.cost;
    let text = Text {
        format: FORMAT,
        measured_ms: cost.measured_ms,
        disk: disk(&cost.disk),
        read_processor: processor(&cost.read_processor),
        write_processor: processor(&cost.write_processor),
        model: stored.model.as_ref().map(disk),
        points: cost.points.iter().map(point).collect(),
    };
    let body = toml::to_string(&text).expect("numbers and texts have a TOML form");
    format!("# What this drive's disk and processor cost, as measured by `braid drive calibrate`.\n{body}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> Stored {
        let way = |operation_ns, bytes_per_second| DiskWay { operation_ns, bytes_per_second };
        let disk = |charge| DiskCost { charge, read: way(1, 2), write: way(3, 4), sync_ns: 5 };
        let cost = DriveCost {
            disk: disk(DiskCharge::Sum),
            read_processor: ProcessorWay { request_ns: 6, byte_ps: 7 },
            write_processor: ProcessorWay { request_ns: 8, byte_ps: 9 },
            measured_ms: 1 << 40,
            points: [false, true].map(|write| CurvePoint { write, bytes: 4096, operation_ns: 10 }).into(),
        };
        Stored { cost, model: Some(disk(DiskCharge::Larger)) }
    }

    const GOLDEN: &str = "\
# What this drive's disk and processor cost, as measured by `braid drive calibrate`.
format = 1
measured_ms = 1099511627776

[disk]
charge = \"sum\"
read_operation_ns = 1
read_bytes_per_second = 2
write_operation_ns = 3
write_bytes_per_second = 4
sync_ns = 5

[read_processor]
request_ns = 6
byte_ps = 7

[write_processor]
request_ns = 8
byte_ps = 9

[model]
charge = \"larger\"
read_operation_ns = 1
read_bytes_per_second = 2
write_operation_ns = 3
write_bytes_per_second = 4
sync_ns = 5

[[points]]
write = false
bytes = 4096
operation_ns = 10

[[points]]
write = true
bytes = 4096
operation_ns = 10
";

    #[test]
    fn the_file_is_as_it_was_and_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let held = Directory::take(dir.path()).unwrap();
        assert_eq!(load(&held), None);
        save(&held, &stored()).unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join(FILE)).unwrap(), GOLDEN);
        assert_eq!(load(&held), Some(stored()));
        let document = include_str!("../../../../docs/format-store.md");
        for line in GOLDEN.lines().filter_map(|line| line.split_once(" = ")) {
            assert!(document.contains(&format!("`{}`", line.0)), "{} is not in the document", line.0);
        }
    }

    #[test]
    fn a_torn_or_foreign_file_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let held = Directory::take(dir.path()).unwrap();
        let other = GOLDEN.replace("format = 1", "format = 2");
        let charge = GOLDEN.replace("\"sum\"", "\"count\"");
        let still = GOLDEN.replace("read_bytes_per_second = 2", "read_bytes_per_second = 0");
        for bad in ["", "\0", &GOLDEN[..GOLDEN.len() - 30], &other, &charge, &still, "format = 1\nx = 2\n"] {
            std::fs::write(dir.path().join(FILE), bad).unwrap();
            assert_eq!(load(&held), None, "{bad}");
        }
    }
}
