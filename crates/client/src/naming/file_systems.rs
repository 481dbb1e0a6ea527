//! Drives that share one file system: each of them reports all the free space there, which must be counted
//! once.

use std::collections::BTreeMap;

use braid_wire::control::DriveRow;

/// The drives of a file system, or one drive that does not say on which it is.
#[derive(Debug)]
pub struct OnOneFileSystem<'d> {
    /// The drives on the file system; at least one.
    pub drives: Vec<&'d DriveRow>,
}

/// The drives by the file systems that they are on, in the order of their first drives.
pub fn file_systems<'d>(drives: impl IntoIterator<Item = &'d DriveRow>) -> Vec<OnOneFileSystem<'d>> {
    let mut groups = Vec::new();
    let mut known = BTreeMap::new();
    for drive in drives {
        let device = drive.file_system.device;
        if device == 0 {
            groups.push(OnOneFileSystem { drives: vec![drive] });
            continue;
        }
        // The same number on another machine is another file system.
        let at = *known.entry((drive.host.as_str(), device)).or_insert(groups.len());
        if at == groups.len() {
            groups.push(OnOneFileSystem { drives: Vec::new() });
        }
        groups[at].drives.push(drive);
    }
    groups
}

impl OnOneFileSystem<'_> {
    /// Returns true if several drives share the file system.
    pub fn is_shared(&self) -> bool {
        self.drives.len() > 1
    }

    /// Bytes that the drives can write in all. They may have bounds below the free space of the file system;
    /// if not, they can write until only the smallest of their reserves is left.
    pub fn free_bytes(&self) -> u64 {
        let sum =
            |of: fn(&DriveRow) -> u64| self.drives.iter().map(|drive| of(drive)).fold(0, u64::saturating_add);
        let free = sum(|drive| drive.free_bytes);
        if !self.is_shared() {
            return free;
        }
        // Each drive reports what was free at its last heartbeat.
        let available = self.drives.iter().map(|drive| drive.file_system.free_bytes).min().unwrap_or(0);
        free.min(
            available.saturating_add(sum(|drive| drive.spare_bytes)).saturating_sub(self.reserve_bytes()),
        )
    }

    /// Bytes that the drives keep for removing, cleaning and recovery: the smallest of their reserves.
    pub fn reserve_bytes(&self) -> u64 {
        self.drives.iter().map(|drive| reserve_bytes(drive)).min().unwrap_or(0)
    }
}

/// Bytes that a drive keeps for removing, cleaning and recovery: neither used nor available to writes.
pub fn reserve_bytes(drive: &DriveRow) -> u64 {
    // The row of a drive that the manager has not heard from yet has zeros.
    let told = drive.used_bytes > 0 || drive.free_bytes > 0;
    let rest = drive.capacity_bytes.saturating_sub(drive.used_bytes).saturating_sub(drive.free_bytes);
    if told { rest } else { 0 }
}

#[cfg(test)]
pub(crate) mod tests {
    use braid_layout::DriveId;
    use braid_wire::control::{DriveState, FileSystem};

    use super::*;

    /// A drive that keeps a reserve of 10.
    pub(crate) fn drive(host: &str, device: u64, on_disk: u64, free_bytes: u64) -> DriveRow {
        DriveRow {
            drive: DriveId(1),
            name: String::new(),
            state: DriveState::Up,
            addresses: "".into(),
            host: host.into(),
            rack: String::new(),
            directory: String::new(),
            pid: 1,
            capacity_bytes: free_bytes + 10 + 5,
            used_bytes: 5,
            live_bytes: 1,
            free_bytes,
            spare_bytes: 3,
            file_system: FileSystem { device, free_bytes: on_disk },
            room: true,
            silent_ms: 0,
            components: 0,
            stale: 0,
            lost: 0,
            scrub: Default::default(),
            io: String::new(),
            stalled_ms: 0,
            reads: Default::default(),
            commits: Default::default(),
            counts: Default::default(),
            parts: None,
            slow: String::new(),
            draining: false,
            paused_ms: 0,
        }
    }

    #[track_caller]
    fn check(drives: &[DriveRow], expected: &[(usize, u64)]) {
        let found: Vec<_> =
            file_systems(drives).iter().map(|group| (group.drives.len(), group.free_bytes())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_drives_share_is_counted_once() {
        let shared = || drive("a", 7, 100, 93);
        check(&[shared(), shared(), shared()], &[(3, 100 + 3 * 3 - 10)]);
        check(&[shared(), drive("b", 7, 100, 93), shared()], &[(2, 96), (1, 93)]);
        check(&[shared(), drive("a", 8, 50, 43)], &[(1, 93), (1, 43)]);
        check(&[drive("a", 0, 0, 93), drive("a", 0, 0, 93)], &[(1, 93), (1, 93)]);
        // Bounds of their own, below what the disk has.
        check(&[drive("a", 7, 1000, 20), drive("a", 7, 1000, 30)], &[(2, 50)]);
        assert_eq!(reserve_bytes(&shared()), 10);
    }
}
