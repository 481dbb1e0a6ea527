//! Keys of drives, and what follows from them: a capability's public part is in the clear where a volume is
//! not private, so its private part can be made here, and looked for.

use std::collections::BTreeSet;

use braid_layout::{DriveId, PartitionId};
use braid_wire::Wire;
use braid_wire::capability::{Capability, Key};

use crate::Result;
use crate::needles::Needles;
use crate::streams::Streams;

/// Volumes and epochs of which keys are looked for, whether or not they were seen.
const PARTITIONS: u64 = 16;
const EPOCHS: u32 = 16;

/// A drive, with a master key that it had.
pub(crate) struct Drive {
    name: String,
    id: DriveId,
    key: Key,
}

impl Drive {
    pub(crate) fn read(name: &str, id: &str, key: &str) -> Result<Drive> {
        let secret: [u8; 32] = bytes(key)?.try_into().map_err(|_| format!("the key of {name} is not one"))?;
        Ok(Drive { name: name.to_owned(), id: DriveId(u128::from_str_radix(id, 16)?), key: Key::new(secret) })
    }
}

/// Looks for the keys of drives, and for the private part of each capability. Returns how many of these were
/// seen.
pub(crate) fn all_of(drives: &[Drive], streams: &Streams, needles: &mut Needles) -> Result<usize> {
    let ids: BTreeSet<DriveId> = drives.iter().map(|drive| drive.id).collect();
    let seen = capabilities(&ids, streams);
    for drive in drives {
        let name = &drive.name;
        needles.secret(true, &format!("master key of {name}"), drive.key.secret())?;
        let session = drive.key.derive("braid drive session", &[]);
        needles.secret(true, &format!("session secret of {name}"), session.secret())?;
        let key = drive.key.drive_key(drive.id);
        needles.secret(true, &format!("drive key of {name}"), key.secret())?;
        for partition in 0..PARTITIONS {
            let key = key.partition_key(PartitionId(partition));
            needles.secret(true, &format!("partition key {partition} of {name}"), key.secret())?;
            for epoch in 0..EPOCHS {
                let key = key.working_key(epoch);
                needles.secret(true, &format!("working key {partition}/{epoch} of {name}"), key.secret())?;
            }
        }
        for public in seen.iter().filter(|public| public.starts_with(&drive.id.to_bytes())) {
            let capability = Capability::take(&mut public.as_slice())?;
            let working = key.partition_key(capability.partition).working_key(capability.key_epoch);
            let private = working.private_part(&capability);
            needles.secret(true, &format!("private parts of capabilities of {name}"), private.secret())?;
        }
    }
    Ok(seen.len())
}

/// The public parts of the capabilities of these drives that are in the clear.
fn capabilities(ids: &BTreeSet<DriveId>, streams: &Streams) -> BTreeSet<Vec<u8>> {
    let mut seen = BTreeSet::new();
    for stream in &streams.all {
        for (at, id) in stream.bytes.windows(16).enumerate() {
            // What follows a drive's number elsewhere is seldom a capability, and does no harm if it is read
            // as one.
            let is_one =
                id.try_into().is_ok_and(|id: [u8; 16]| ids.contains(&DriveId(u128::from_le_bytes(id))));
            if !is_one {
                continue;
            }
            if let Ok(capability) = Capability::take(&mut &stream.bytes[at..]) {
                seen.insert(capability.to_bytes());
            }
        }
    }
    seen
}

/// The bytes of hex digits.
pub(crate) fn bytes(hex: &str) -> Result<Vec<u8>> {
    let digits = hex.as_bytes().chunks(2).map(|two| Ok(u8::from_str_radix(std::str::from_utf8(two)?, 16)?));
    digits.collect()
}
