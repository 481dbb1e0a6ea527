//! Changes of attributes: permissions, owner, times, extended attributes. Each function is the work of one
//! transaction.

use braid_layout::FileId;
use braid_wire::control::{
    AttributeChanges, LAYOUT_XATTR, MODE_MAX, NamePlace, NewAttributes, SetXattr, XATTR_BYTES_MAX,
    XATTR_NAME_BYTES_MAX, Xattr, XattrHow,
};
use braid_wire::{Reason, Refusal};

use crate::records::past;
use crate::records::schema::{InodeRecord, XattrRecord, key};
use crate::records::tx::Tx;
use crate::tokens::permissions::Act;
use crate::tree::directories::resolve;
use crate::tree::names::show;
use crate::tree::{room, seen};

/// The beginning of the names of attributes that users give.
const USERS: &[u8] = b"user.";

/// Changes attributes of the file, node or directory at a place. Returns its number.
pub fn set(tx: &mut Tx, at: &NamePlace, changes: &AttributeChanges, now_ms: u64) -> Result<FileId, Refusal> {
    let mut found = resolve(tx, at)?.changeable(at)?;
    let before = found.inode.clone();
    let changes = match tx.access() {
        Some(access) => access.changed(&before, changes)?,
        None => *changes,
    };
    change(&mut found.inode, &changes)?;
    room::refuse_above(tx, Some(&before), Some(&found.inode))?;
    found.inode.times.changed(now_ms);
    tx.set_inode(found.file, &found.inode)?;
    Ok(found.file)
}

/// Applies changes of attributes to a record.
pub fn change(inode: &mut InodeRecord, changes: &AttributeChanges) -> Result<(), Refusal> {
    let &AttributeChanges { mode, uid, gid, accessed_ns, modified_ns } = changes;
    if let Some(mode) = mode {
        inode.mode = checked(mode)?;
    }
    (inode.uid, inode.gid) = (uid.unwrap_or(inode.uid), gid.unwrap_or(inode.gid));
    let times = &mut inode.times;
    times.accessed_ns = accessed_ns.unwrap_or(times.accessed_ns);
    times.modified_ns = modified_ns.unwrap_or(times.modified_ns);
    Ok(())
}

/// Refuses attributes of a new file that no file can have.
pub fn check(new: &NewAttributes) -> Result<(), Refusal> {
    checked(new.mode).map(drop)
}

/// Sets or removes an extended attribute.
pub fn set_xattr(tx: &mut Tx, set: &SetXattr, now_ms: u64) -> Result<(), Refusal> {
    let SetXattr { at, name, value, how } = set;
    if name.is_empty() || name.len() > XATTR_NAME_BYTES_MAX || name.contains(&0) {
        let detail =
            format!("an extended attribute's name has 1 to {XATTR_NAME_BYTES_MAX} bytes, none of them NUL");
        return Err(Refusal::new(Reason::BadName, detail));
    }
    let mut found = resolve(tx, at)?.changeable(at)?;
    refuse_xattr(tx, &found.inode, name, Act::Write)?;
    let row = key::xattr(found.file, name);
    let before: Option<XattrRecord> = tx.record(&row)?;
    match (how, &before) {
        (XattrHow::Create, Some(_)) => {
            return Err(Refusal::new(Reason::Exists, format!("it has an attribute {:?}", show(name))));
        }
        (XattrHow::Replace | XattrHow::Remove, None) => {
            return Err(Refusal::new(Reason::NoXattr, format!("it has no attribute {:?}", show(name))));
        }
        _ => {}
    }
    let held = before.map_or(0, |before| name.len() + before.value.len());
    let takes = if *how == XattrHow::Remove { 0 } else { name.len() + value.len() };
    let all = usize::try_from(found.inode.xattr_bytes).unwrap_or(usize::MAX).saturating_sub(held) + takes;
    if all > XATTR_BYTES_MAX {
        let detail = format!(
            "extended attributes of {all} bytes: a file may have {XATTR_BYTES_MAX}; remove some of them"
        );
        return Err(Refusal::new(Reason::TooLarge, detail));
    }
    past::keep(tx, found.file)?;
    match how {
        XattrHow::Remove => tx.delete(row),
        _ => tx.set(row, &XattrRecord { value: value.clone() }),
    }
    found.inode.xattr_bytes = u32::try_from(all).unwrap_or(u32::MAX);
    found.inode.times.changed(now_ms);
    Ok(tx.set_inode(found.file, &found.inode)?)
}

/// All extended attributes of the file, node or directory at a place, by name. A directory that has a layout
/// of its own has that among them.
pub fn xattrs(tx: &Tx, at: &NamePlace) -> Result<Vec<Xattr>, Refusal> {
    let found = resolve(tx, at)?;
    refuse_xattr(tx, &found.inode, USERS, Act::Read)?;
    let mut xattrs = match found.inode.xattr_bytes {
        0 => Vec::new(),
        _ => seen::xattrs(tx, found.file, found.within)?,
    };
    if let Some(shape) = found.inode.layout.and_then(|layout| layout.shape().ok()) {
        let at = xattrs.partition_point(|xattr| xattr.name.as_slice() < LAYOUT_XATTR);
        xattrs.insert(at, Xattr { name: LAYOUT_XATTR.to_vec(), value: shape.text().into_bytes() });
    }
    Ok(xattrs)
}

/// Refuses an extended attribute to the asker's user: those of users go by the permission bits, all others
/// are changed by the owner alone.
fn refuse_xattr(tx: &Tx, inode: &InodeRecord, name: &[u8], act: Act) -> Result<(), Refusal> {
    match tx.access() {
        Some(access) if name.starts_with(USERS) => access.may(inode, act),
        Some(access) => access.owns(inode, "set an attribute of"),
        None => Ok(()),
    }
}

fn checked(mode: u32) -> Result<u32, Refusal> {
    if mode <= MODE_MAX {
        return Ok(mode);
    }
    let detail = format!("mode {mode:o} has more than permission bits: at most {MODE_MAX:o}");
    Err(Refusal::new(Reason::Malformed, detail))
}
