//! The permissions of POSIX, for a token that is bound to a user. Pure.
//!
//! A class of bits counts: the owner's, else the group's, else that of all others. The superuser, user 0, may
//! do everything. What is allowed to a directory's writer is limited by its sticky bit. Owner, group and mode
//! are changed by the owner, within bounds, and nobody but the superuser gives a file away.

use braid_wire::control::{AttributeChanges, EntryKind, NewAttributes, TokenUser};

use crate::records::schema::InodeRecord;

/// The bit of directories in which only owners take names away.
const STICKY: u32 = 0o1000;
const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
/// The bit that lets the group run a file: without it the set-group-ID bit means something else.
const GROUP_RUNS: u32 = 0o010;

/// Something that permission bits allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// To read a file's bytes or attributes' values, or to list a directory.
    Read = 4,
    /// To write a file's bytes, or to change a directory's names.
    Write = 2,
    /// To look names up in a directory.
    Search = 1,
}

/// Reason for which a user may not do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// The permission bits do not allow it (EACCES).
    Bits,
    /// It is for the owner or the superuser (EPERM).
    NotOwner,
}

/// Ok if the user may do this to the file or directory.
pub fn may(user: &TokenUser, inode: &InodeRecord, act: Act) -> Result<(), Denied> {
    let class = if user.uid == inode.uid {
        inode.mode >> 6
    } else if user.gids.contains(&inode.gid) {
        inode.mode >> 3
    } else {
        inode.mode
    };
    if user.uid == 0 || class & act as u32 != 0 { Ok(()) } else { Err(Denied::Bits) }
}

/// Ok if the user owns the file or directory, or is the superuser.
pub fn owns(user: &TokenUser, inode: &InodeRecord) -> Result<(), Denied> {
    if user.uid == 0 || user.uid == inode.uid { Ok(()) } else { Err(Denied::NotOwner) }
}

/// Ok if the user may take a name of `inode` out of the directory.
pub fn may_take(user: &TokenUser, directory: &InodeRecord, inode: &InodeRecord) -> Result<(), Denied> {
    may(user, directory, Act::Write)?;
    if directory.mode & STICKY == 0 || owns(user, directory).is_ok() {
        return Ok(());
    }
    owns(user, inode)
}

/// Ok if the user may make a node of this kind.
pub fn may_make(user: &TokenUser, kind: EntryKind) -> Result<(), Denied> {
    let is_device = matches!(kind, EntryKind::CharDevice | EntryKind::BlockDevice);
    if is_device && user.uid != 0 { Err(Denied::NotOwner) } else { Ok(()) }
}

/// Attributes of something new that the user makes, whatever owner its client has named.
pub fn owned(user: &TokenUser, new: &NewAttributes) -> NewAttributes {
    let gid = user.gids.first().copied().unwrap_or(user.uid);
    NewAttributes { uid: user.uid, gid, ..*new }
}

/// The changes that a user may make of what it asks: as asked, or without the bits that POSIX clears.
pub fn changed(
    user: &TokenUser,
    inode: &InodeRecord,
    asked: &AttributeChanges,
) -> Result<AttributeChanges, Denied> {
    let mut changes = *asked;
    if user.uid == 0 {
        return Ok(changes);
    }
    let gives_away = asked.uid.is_some_and(|uid| uid != inode.uid);
    let is_foreign = asked.gid.is_some_and(|gid| gid != inode.gid && !user.gids.contains(&gid));
    if gives_away || is_foreign {
        return Err(Denied::NotOwner);
    }
    if !(is_writers(inode, asked) && may(user, inode, Act::Write).is_ok()) {
        owns(user, inode)?;
    }
    if asked.uid.is_some() || asked.gid.is_some() {
        let runs_as_group = inode.mode & GROUP_RUNS != 0;
        let cleared = SET_USER_ID | if runs_as_group { SET_GROUP_ID } else { 0 };
        let mode = asked.mode.unwrap_or(inode.mode);
        if inode.kind == EntryKind::File && mode & cleared != 0 {
            changes.mode = Some(mode & !cleared);
        }
    }
    let gid = asked.gid.unwrap_or(inode.gid);
    if let Some(mode) = changes.mode
        && inode.kind == EntryKind::File
        && !user.gids.contains(&gid)
    {
        changes.mode = Some(mode & !SET_GROUP_ID);
    }
    Ok(changes)
}

/// Returns true for changes that come with writing: times, which a writer sets with the bytes too, and the
/// loss of the set-user-ID and set-group-ID bits.
fn is_writers(inode: &InodeRecord, asked: &AttributeChanges) -> bool {
    let cleared = inode.mode & !(SET_USER_ID | SET_GROUP_ID);
    (asked.uid, asked.gid) == (None, None) && asked.mode.is_none_or(|mode| mode == cleared)
}

/// As [`changed`], for the attributes that come with the name of a new file: what the user may not change is
/// left as it is.
pub fn allowed_of(user: &TokenUser, inode: &InodeRecord, asked: &AttributeChanges) -> AttributeChanges {
    if let Ok(changes) = changed(user, inode, asked) {
        return changes;
    }
    let own = AttributeChanges { uid: None, gid: None, ..*asked };
    changed(user, inode, &own).unwrap_or(AttributeChanges { mode: None, ..own })
}

#[cfg(test)]
mod tests {
    use braid_layout::{FileId, VolumeId};

    use super::*;
    use crate::records::schema::directory_record;

    fn user(uid: u32, gids: &[u32]) -> TokenUser {
        TokenUser { uid, gids: gids.to_vec() }
    }

    /// A node of user 10 and group 20.
    fn node(kind: EntryKind, mode: u32) -> InodeRecord {
        let blank = directory_record(VolumeId(1), FileId(1), b"x".to_vec(), 0);
        InodeRecord { kind, mode, uid: 10, gid: 20, ..blank }
    }

    #[test]
    fn one_class_of_bits_counts() {
        let owner = user(10, &[99]);
        let member = user(11, &[99, 20]);
        let other = user(11, &[99]);
        let root = user(0, &[0]);
        // Mode, and the acts that owner, member, others and the superuser may do.
        for (mode, expected) in [
            (0o755, ["rwx", "r-x", "r-x", "rwx"]),
            (0o640, ["rw-", "r--", "---", "rwx"]),
            (0o077, ["---", "rwx", "rwx", "rwx"]),
            (0o707, ["rwx", "---", "rwx", "rwx"]),
            (0o001, ["---", "---", "--x", "rwx"]),
            (0o000, ["---", "---", "---", "rwx"]),
        ] {
            let inode = node(EntryKind::Directory, mode);
            let found = [&owner, &member, &other, &root].map(|user| {
                let bit = |act, letter| if may(user, &inode, act).is_ok() { letter } else { '-' };
                String::from_iter([bit(Act::Read, 'r'), bit(Act::Write, 'w'), bit(Act::Search, 'x')])
            });
            assert_eq!(found, expected, "{mode:o}");
        }
    }

    #[test]
    fn in_a_sticky_directory_only_owners_take_names() {
        let of = |uid, mode| InodeRecord { uid, ..node(EntryKind::Directory, mode) };
        for (uid, directory, mode, file, expected) in [
            (30, 10, 0o777, 40, Ok(())),
            (30, 10, 0o1777, 40, Err(Denied::NotOwner)),
            (30, 10, 0o1777, 30, Ok(())),
            (30, 30, 0o1777, 40, Ok(())),
            (0, 10, 0o1777, 40, Ok(())),
            (30, 10, 0o1755, 30, Err(Denied::Bits)),
        ] {
            let taken = may_take(&user(uid, &[uid]), &of(directory, mode), &of(file, 0o644));
            assert_eq!(taken, expected, "user {uid}, directory of {directory} {mode:o}, file of {file}");
        }
    }

    #[test]
    fn owner_group_and_mode_are_the_owners_within_bounds() {
        let none =
            AttributeChanges { mode: None, uid: None, gid: None, accessed_ns: None, modified_ns: None };
        let mode = |mode| AttributeChanges { mode: Some(mode), ..none };
        let uid = |uid| AttributeChanges { uid: Some(uid), ..none };
        let gid = |gid| AttributeChanges { gid: Some(gid), ..none };
        let time = AttributeChanges { modified_ns: Some(5), ..none };
        let owner = user(10, &[20, 21]);
        let outside = user(10, &[21]);
        let other = user(11, &[20]);
        let root = user(0, &[0]);
        let plain = node(EntryKind::File, 0o644);
        let theirs = node(EntryKind::File, 0o6664);
        let runs = node(EntryKind::File, 0o6755);
        let locks = node(EntryKind::File, 0o2745);
        let directory = node(EntryKind::Directory, 0o2755);
        for (who, inode, asked, expected) in [
            (&owner, &plain, mode(0o600), Ok(mode(0o600))),
            (&other, &plain, mode(0o666), Err(Denied::NotOwner)),
            (&root, &plain, mode(0o6777), Ok(mode(0o6777))),
            (&owner, &plain, mode(0o2755), Ok(mode(0o2755))),
            (&outside, &plain, mode(0o2755), Ok(mode(0o755))),
            (&outside, &directory, mode(0o2755), Ok(mode(0o2755))),
            (&owner, &plain, uid(11), Err(Denied::NotOwner)),
            (&owner, &plain, uid(10), Ok(uid(10))),
            (&root, &plain, uid(11), Ok(uid(11))),
            (&owner, &plain, gid(21), Ok(gid(21))),
            (&owner, &plain, gid(99), Err(Denied::NotOwner)),
            (&other, &plain, gid(20), Err(Denied::NotOwner)),
            (&owner, &runs, gid(21), Ok(AttributeChanges { mode: Some(0o755), ..gid(21) })),
            (&owner, &locks, gid(21), Ok(gid(21))),
            (&owner, &directory, gid(21), Ok(gid(21))),
            (&owner, &plain, time, Ok(time)),
            (&other, &plain, time, Err(Denied::NotOwner)),
            (&other, &theirs, time, Ok(time)),
            (&other, &theirs, mode(0o664), Ok(mode(0o664))),
            (&other, &theirs, mode(0o666), Err(Denied::NotOwner)),
        ] {
            assert_eq!(changed(who, inode, &asked), expected, "{who:?} asks {asked:?} of {:o}", inode.mode);
        }
        let both = AttributeChanges { mode: Some(0o600), uid: Some(0), ..none };
        assert_eq!(allowed_of(&owner, &plain, &both), mode(0o600), "the owner stays");
    }

    #[test]
    fn devices_are_the_superusers() {
        let other = user(11, &[20]);
        assert_eq!(may_make(&other, EntryKind::BlockDevice), Err(Denied::NotOwner));
        assert_eq!(may_make(&other, EntryKind::Fifo), Ok(()));
        assert_eq!(may_make(&user(0, &[0]), EntryKind::CharDevice), Ok(()));
        let new = owned(&other, &NewAttributes { mode: 0o644, uid: 0, gid: 0 });
        assert_eq!(new, NewAttributes { mode: 0o644, uid: 11, gid: 20 });
    }
}
