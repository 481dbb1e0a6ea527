//! The catalogue: the manager's rows as they are kept at several drives, so that names outlive a lost
//! manager. Pure.
//!
//! A *stream* is one picture of all carried rows and every change since, as a list of [`frame`]s, each bound
//! to the one before by its digest. Several drives hold the same stream, frame by frame. [`rows`] says which
//! rows are carried, and takes the secrets out. [`holders`] says which drives hold a stream. [`judge`]
//! decides what to believe when drives contradict each other. [`compose`] makes a manager's state of carried
//! rows. `docs/format-names.md` has the format.

pub mod compose;
pub mod frame;
pub mod holders;
pub mod judge;
pub mod rows;
