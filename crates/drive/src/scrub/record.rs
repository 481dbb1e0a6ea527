//! `scrub.toml` in the drive's directory: the scrub's progress. Nothing depends on it: if it is missing or
//! cannot be read, the next pass starts from the beginning.

use std::collections::BTreeMap;

use braid_layout::{FileId, ObjectId, PartitionId};
use braid_wire::data::DamagedUnit;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::{Pass, Position, Progress, Verified};
use crate::error::DriveError;
use crate::life::identity::Directory;

/// The file's name.
pub(super) const FILE: &str = "scrub.toml";
/// The file's version.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    format: u32,
    passes: u64,
    ended_ms: u64,
    more: u64,
    #[serde(default)]
    repaired: u64,
    last: VerifiedText,
    pass: Option<PassText>,
    #[serde(default)]
    damaged: Vec<DamagedText>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VerifiedText {
    began_ms: u64,
    bytes: u64,
    units: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PassText {
    asked: Option<u64>,
    partition: u64,
    object: u64,
    unit: u64,
    verified: VerifiedText,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DamagedText {
    found_by: u64,
    partition: u64,
    object: u64,
    unit: Option<u64>,
    file: u64,
    what: String,
}

/// The scrub's progress from the drive's directory.
pub(crate) fn load(directory: &Directory) -> Progress {
    let read = directory.read(FILE).map_err(|error| error.to_string());
    match read.and_then(|text| text.map_or(Ok(Progress::default()), |text| parse(&text))) {
        Ok(progress) => progress,
        Err(error) => {
            warn!(%error, "{FILE} cannot be used: the scrub begins anew");
            Progress::default()
        }
    }
}

pub(crate) fn save(directory: &Directory, progress: &Progress) -> Result<(), DriveError> {
    directory.write(FILE, &text(progress))
}

fn parse(text: &str) -> Result<Progress, String> {
    let text: Text = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    if text.format != FORMAT {
        return Err(format!("format {}; this build knows {FORMAT}", text.format));
    }
    let verified =
        |text: VerifiedText| Verified { began_ms: text.began_ms, bytes: text.bytes, units: text.units };
    let mut damaged = BTreeMap::new();
    for unit in text.damaged {
        let partition = PartitionId(unit.partition);
        let object = ObjectId(unit.object);
        let found_by = unit.found_by;
        let file = FileId(unit.file);
        let what = unit.what;
        let unit = unit.unit;
        damaged.insert(
            (partition, object, unit),
            (found_by, DamagedUnit { partition, object, unit, file, what }),
        );
    }
    let pass = text.pass.map(|pass| Pass {
        asked: pass.asked,
        next: Position {
            partition: PartitionId(pass.partition),
            object: ObjectId(pass.object),
            unit: pass.unit,
        },
        verified: verified(pass.verified),
    });
    Ok(Progress {
        pass,
        passes: text.passes,
        ended_ms: text.ended_ms,
        last: verified(text.last),
        damaged,
        more: text.more,
        repaired: text.repaired,
        files: Default::default(),
    })
}

fn text(progress: &Progress) -> String {
    let verified = |verified: Verified| VerifiedText {
        began_ms: verified.began_ms,
        bytes: verified.bytes,
        units: verified.units,
    };
    let pass = progress.pass.as_ref().map(|pass| PassText {
        asked: pass.asked,
        partition: pass.next.partition.0,
        object: pass.next.object.0,
        unit: pass.next.unit,
        verified: verified(pass.verified),
    });
    let damaged = progress.damaged.values().map(|(found_by, unit)| DamagedText {
        found_by: *found_by,
        partition: unit.partition.0,
        object: unit.object.0,
        unit: unit.unit,
        file: unit.file.0,
        what: unit.what.clone(),
    });
    let text = Text {
        format: FORMAT,
        passes: progress.passes,
        ended_ms: progress.ended_ms,
        more: progress.more,
        repaired: progress.repaired,
        last: verified(progress.last),
        pass,
        damaged: damaged.collect(),
    };
    let body = toml::to_string(&text).expect("numbers and texts have a TOML form");
    format!(
        "# Where this drive's scrub is, and what it found. It may be removed: the scrub then begins anew.\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back_as_it_was_and_damage_to_it_harms_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let held = Directory::take(dir.path()).unwrap();
        assert_eq!(load(&held), Progress::default());
        let partition = PartitionId(3);
        let object = ObjectId(77);
        let unit =
            |unit| DamagedUnit { partition, object, unit, file: FileId(9), what: "\"no\"\n".to_owned() };
        let verified = Verified { began_ms: 1 << 40, bytes: 5, units: 6 };
        let progress = Progress {
            pass: Some(Pass { asked: Some(50), verified, next: Position { partition, object, unit: 8 } }),
            passes: 4,
            ended_ms: 7,
            last: verified,
            damaged: [None, Some(2)].map(|at| ((partition, object, at), (4, unit(at)))).into(),
            more: 1,
            repaired: 2,
            files: Default::default(),
        };
        save(&held, &progress).unwrap();
        assert_eq!(load(&held), progress);
        save(&held, &Progress::default()).unwrap();
        assert_eq!(load(&held), Progress::default());
        for bad in ["", "format = 2", "\0", &text(&progress)[..200]] {
            std::fs::write(dir.path().join(FILE), bad).unwrap();
            assert_eq!(load(&held), Progress::default(), "{bad}");
        }
    }
}
