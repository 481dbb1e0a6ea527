//! The rows that a catalogue carries, and their form: no secret is among them.
//!
//! Carried is all that a manager needs and drives do not say: names, records of files, volumes, quotas,
//! snapshots, the drives and their seats. Not carried are rows that follow from others (components of drives,
//! counts), what ends with the manager (operations, sessions of locks), the states of keys, tokens, and the
//! time, which each frame has. Of the cluster and of drives the keys are zeros.

use braid_layout::DriveId;
use braid_wire::capability::Key;

use crate::records::schema::{ClusterRecord, DriveRecord, decode, encode, key, table};

/// The key in place of a secret.
pub const NO_KEY: [u8; 32] = [0; 32];

/// The words of `m` that are carried.
const WORDS: [&str; 13] = [
    "cluster",
    "format",
    "heal-rate",
    "balance-off",
    "nameless",
    "next",
    "qualified",
    "relayouts",
    "removing",
    "restored_term",
    "seats",
    "term",
    "watched",
];

/// The form in which a row is carried; `None` if it is not. A row that cannot be read is not carried, as it
/// might hold a secret.
pub fn carried(row: &[u8], value: Option<&[u8]>) -> Option<Option<Vec<u8>>> {
    if !is_carried(row) {
        return None;
    }
    let Some(value) = value else { return Some(None) };
    let bytes = match row.first() {
        Some(&table::DRIVE) => {
            let record: DriveRecord = decode(row, value).ok()?;
            encode(&DriveRecord { master: Key::new(NO_KEY), ..record })
        }
        Some(&table::META) if row == key::meta("cluster") => {
            let record: ClusterRecord = decode(row, value).ok()?;
            let none = || Key::new(NO_KEY);
            encode(&ClusterRecord { client_secret: none(), join_secret: none(), ..record })
        }
        _ => value.to_vec(),
    };
    Some(Some(bytes))
}

/// Returns true if a change of the row is worth a frame of its own: its value, or `None` if it is deleted.
/// Log positions, which follow from writing to drives, go along with the next. But a drive that is behind,
/// or removed, must be so after a rebuild too.
pub fn is_worth_a_frame(row: &[u8], value: Option<&[u8]>) -> bool {
    match (row.first(), value) {
        (Some(&table::RECEIPT), _) => false,
        (Some(&table::DRIVE), Some(value)) => decode::<DriveRecord>(row, value)
            .is_ok_and(|record| record.behind || record.replaced_by != DriveId(0)),
        _ => true,
    }
}

/// The key from which a scan of all rows goes on: long tables that are not carried are passed over.
pub fn skip(from: Vec<u8>) -> Vec<u8> {
    match from.first() {
        Some(&table) if matches!(table, table::COLUMN | table::OPERATION) => vec![table + 1],
        _ => from,
    }
}

fn is_carried(row: &[u8]) -> bool {
    match row.first() {
        Some(&table::META) => WORDS.iter().any(|word| row == key::meta(word)),
        Some(
            &(table::COLUMN
            | table::DRIVE_COUNT
            | table::OPERATION
            | table::LOCK_SESSION
            | table::DRIVE_KEY
            | table::TOKEN
            | table::PARTS),
        ) => false,
        Some(_) => true,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use braid_layout::{ClusterId, FileId, TokenId};

    use super::*;
    use crate::rules::drives::examples::record;

    const SECRET: [u8; 32] = [0xa7; 32];

    fn holds_secret(bytes: &[u8]) -> bool {
        bytes.windows(8).any(|some| some == &SECRET[..8])
    }

    #[test]
    fn no_secret_is_carried() {
        let secret = || Key::new(SECRET);
        let cluster = ClusterRecord {
            cluster: ClusterId(7),
            client_secret: secret(),
            join_secret: secret(),
            created_ms: 9,
        };
        let drive = DriveRecord { master: secret(), ..record(3, "d3") };
        for (row, bytes) in
            [(key::meta("cluster"), encode(&cluster)), (key::drive(DriveId(3)), encode(&drive))]
        {
            assert!(holds_secret(&bytes));
            let form = carried(&row, Some(&bytes)).unwrap().unwrap();
            assert!(!holds_secret(&form), "{row:?}");
            assert_eq!(form.len(), bytes.len());
        }
        assert_eq!(carried(&key::drive_key(DriveId(3)), Some(&SECRET)), None);
        assert_eq!(carried(&key::token(TokenId(3)), Some(&SECRET)), None);
        assert_eq!(carried(&key::drive(DriveId(3)), Some(b"not a record")), None);
    }

    #[test]
    fn names_are_carried_as_they_are_and_what_follows_from_them_is_not() {
        let row = key::entry(FileId(2), b"f");
        assert_eq!(carried(&row, Some(b"x")), Some(Some(b"x".to_vec())));
        assert_eq!(carried(&row, None), Some(None));
        for row in [key::columns(1, 2), key::drive_count(DriveId(1)), key::meta("time"), Vec::new()] {
            assert_eq!(carried(&row, Some(b"x")), None, "{row:?}");
        }
    }

    #[test]
    fn of_a_drives_record_that_it_is_behind_replaced_or_gone_makes_a_frame_and_log_positions_do_not() {
        let row = key::drive(DriveId(3));
        let is_worth = |record: DriveRecord| is_worth_a_frame(&row, Some(&encode(&record)));
        assert!(!is_worth(DriveRecord { log: 77, ..record(3, "d3") }));
        assert!(is_worth(DriveRecord { behind: true, ..record(3, "d3") }));
        assert!(is_worth(DriveRecord { replaced_by: DriveId(4), ..record(3, "d3") }));
        assert!(is_worth_a_frame(&row, None));
        assert!(!is_worth_a_frame(&key::receipt(DriveId(3)), Some(b"1")));
        assert!(is_worth_a_frame(&key::entry(FileId(2), b"f"), Some(b"x")));
    }
}
