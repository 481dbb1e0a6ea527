//! Sets how far the kernel reads ahead. Its default is 128 KiB, one unit or less: too little to have several
//! drives read at once. Only root may change it, once the volume is mounted; for others a program's own
//! larger reads count.
//!
//! The mount's own process must never access the mounted file system: killed while it waits for its own
//! answer, it could not end before its request, nor the request before it. So the device is found in the list
//! of mounts.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// KiB that the kernel reads ahead of a program that reads in order.
const READ_AHEAD_KIB: u32 = 8 << 10;

/// Has the kernel read further ahead in the file system mounted here, where that is allowed.
pub(crate) fn extend(at: &Path) {
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let Some(device) = device(&mounts, at.as_os_str().as_bytes()) else {
        return tracing::info!(at = %at.display(), "the mount is not in /proc/self/mountinfo: the kernel reads ahead less than would be good");
    };
    let setting = format!("/sys/class/bdi/{device}/read_ahead_kb");
    if let Err(error) = fs::write(&setting, READ_AHEAD_KIB.to_string()) {
        tracing::info!(setting, %error, "the kernel reads ahead less than would be good");
    }
}

/// The device, `MAJOR:MINOR`, of the last file system mounted at this place.
fn device(mounts: &[u8], at: &[u8]) -> Option<String> {
    let of_line = |line: &[u8]| {
        let mut words = line.split(|byte| *byte == b' ');
        let device = words.nth(2)?.to_vec();
        (unescaped(words.nth(1)?) == at).then(|| String::from_utf8(device).ok())?
    };
    mounts.split(|byte| *byte == b'\n').rev().find_map(of_line)
}

/// Decodes a word of the list: blanks and the like are written as a backslash and three octal digits.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, after @ ..] = rest {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let code = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|code| u8::from_str_radix(code, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_is_that_of_the_last_mount_at_the_place() {
        let mounts = b"22 1 0:21 / /proc rw - proc proc rw\n\
            77 1 0:44 / /mnt/a\\040b rw,nosuid shared:9 - fuse braid://main rw\n\
            78 1 0:45 / /mnt rw - fuse braid://main rw\n\
            79 1 0:46 / /mnt rw - fuse braid://other rw\n";
        assert_eq!(device(mounts, b"/mnt").as_deref(), Some("0:46"));
        assert_eq!(device(mounts, b"/mnt/a b").as_deref(), Some("0:44"));
        assert_eq!(device(mounts, b"/mn"), None);
    }
}
