//! The durable list of files that are to be laid out anew, each with its new shape. Rows are counted as they
//! come and go.

use std::collections::BTreeMap;

use braid_layout::FileId;
use braid_wire::control::ShapeSpec;

use crate::records::kv::KvError;
use crate::records::schema::{RelayoutRecord, key};
use crate::records::tx::Tx;

/// The word under which the number of files on the list is stored.
pub const COUNT: &str = "relayouts";

/// Reasons, for people, why files on the list are not being laid out yet. In memory only.
pub type Reasons = BTreeMap<FileId, String>;

/// Puts a file on the list, or changes its shape there. Rows are counted as they come and go, so that a
/// request for their number need not read them all.
pub fn put_on(tx: &mut Tx, file: FileId, shape: ShapeSpec) -> Result<(), KvError> {
    if tx.get(&key::relayout(file))?.is_none() {
        let count = tx.number(COUNT)? + 1;
        tx.set(key::meta(COUNT), &count);
    }
    tx.set(key::relayout(file), &RelayoutRecord { shape });
    Ok(())
}

/// Takes a file off the list. Returns true if it was on the list.
pub fn take_off(tx: &mut Tx, file: FileId) -> Result<bool, KvError> {
    let was = tx.get(&key::relayout(file))?.is_some();
    if was {
        let count = tx.number(COUNT)?.saturating_sub(1);
        tx.set(key::meta(COUNT), &count);
        tx.delete(key::relayout(file));
    }
    Ok(was)
}
