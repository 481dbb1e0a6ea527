//! How far the kernel reads ahead. By itself it is 128 KiB, one unit or less: too little to have several
//! drives read at once. Only root may change it, once it is mounted; for others a program's own larger reads
//! count.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What the kernel reads ahead of a program that reads in order.
const READ_AHEAD_KIB: u32 = 8 << 10;

/// Has the kernel read further ahead in what is mounted here, where that is allowed.
pub(crate) fn extend(at: &Path) {
    let Ok(metadata) = fs::metadata(at) else { return };
    let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    let setting = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = fs::write(&setting, READ_AHEAD_KIB.to_string()) {
        tracing::info!(setting, %error, "the kernel reads ahead less than would be good");
    }
}
