//! Terms of the manager's state, which tell a restored state from the one that was lost.

use braid_meta::records::schema::key;
use braid_meta::records::tx::Tx;
use braid_meta::rules::grants::CAPABILITY_MS;
use braid_wire::{Reason, Refusal};

use crate::time::AHEAD_MS;

/// Distance, in milliseconds, by which time begins ahead on a restored state, so that all capabilities of the
/// lost manager have expired: it may have signed them at times up to `AHEAD_MS` past the wall clock. Drives
/// get leases before they are told of the columns that went out since the backup, and would still accept such
/// capabilities.
pub(crate) const RESTORED_LATER_MS: u64 = AHEAD_MS + CAPABILITY_MS;

/// Stores the next term, which is above `above` too, with a random mark, and returns both. After a restore
/// the term is also kept as `restored_term`: see [`is_of_lost_state`].
pub(crate) fn begin_term(tx: &mut Tx, above: u64) -> Result<(u64, u64), Refusal> {
    let last = tx.number("term")?.max(above);
    let term = last.checked_add(1).ok_or_else(|| {
        Refusal::new(
            Reason::Damaged,
            format!("term {last} was reached: no manager gave it, restore a backup"),
        )
    })?;
    let mark = u64::from_le_bytes(random());
    if tx.number("restored")? != 0 {
        tx.set(key::meta("restored_term"), &term);
    }
    tx.set(key::meta("term"), &term);
    tx.set(key::term(term), &mark);
    Ok((term, mark))
}

/// Returns true if a term that a drive has seen is of the state that was lost when this one was restored. A
/// drive that was away during the comparison reports such a term when it returns: that does not make this
/// state outdated.
pub(crate) fn is_of_lost_state(tx: &Tx, term: u64) -> Result<bool, Refusal> {
    Ok(term < tx.number("restored_term")?)
}

pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system gives random bytes");
    bytes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use braid_meta::records::db::Db;
    use braid_meta::records::memory::MemoryKv;

    use super::*;

    #[test]
    fn a_term_never_goes_back() {
        let db = Db::new(Arc::new(MemoryKv::new()));
        assert_eq!(db.write(|tx| begin_term(tx, 7)).unwrap().0, 8);
        assert_eq!(db.write(|tx| begin_term(tx, 0)).unwrap().0, 9);
        assert!(db.write(|tx| begin_term(tx, u64::MAX)).is_err());
        assert_eq!(db.write(|tx| begin_term(tx, 0)).unwrap().0, 10);
    }
}
