//! Reading ahead for sequential readers, and for readers of many small objects of a cluster: [`streams`] and
//! [`areas`] find them and say what is due, [`chunks`] does it.
//!
//! The system's page cache is the buffer: the next pieces of the log are read into it while answers are being
//! sent. So there are no copies and no memory of the drive's own, `sendfile` works as before, and nothing is
//! served from here: every read looks its bytes up in the index, and finds them in the cache or not. Bytes
//! that are no longer the unit's content lie elsewhere in the log, and are never looked up.
//!
//! A chunk waits for its turn at the gate as best effort of the reader. It takes nothing of what is promised,
//! to the reader or to others: a read under a reservation waits only for a chunk that the disk is reading
//! already, and else takes its own turn. What is in memory then needs no turn, so no byte is charged twice.
//! While promises are kept on the drive, a chunk is no longer than the operations that their bounds are for.

mod areas;
pub(crate) mod chunks;
pub(crate) mod state;
mod streams;
