//! A drive whose rail's rate was told: payloads go in pieces, each at its turn.

use crate::support::manager::Manager;
use crate::support::requests::*;
use crate::support::{Drive, SENDING, config, settings, within};
use braid_wire::data::{ColumnMap, Create};

/// Bytes of a piece, and of what is written: four pieces, the last of which is smaller.
const PIECE: u32 = 64 << 10;
const BYTES: u32 = 4 * PIECE - 4096;

#[tokio::test]
async fn payloads_cross_a_rail_in_pieces_and_are_whole() {
    for &sending in SENDING.iter() {
        let dir = tempfile::tempdir().unwrap();
        let manager = Manager::start().await;
        let (mut settings, clock) = settings();
        settings.sending = sending;
        settings.rail_bytes_per_second = 25_000_000;
        let drive = Drive::start_with(config(dir.path(), &manager, settings), clock, &manager).await;
        let mut session = drive.session().await;
        let attributes = attributes_of(ColumnMap { unit_bytes: 4 * PIECE, ..map() });
        let create = Create { at: AT, attributes }.into();
        let [of_drive, of_object] = [drive_level(), object_level()].map(|level| drive.grant(level));
        within(session.call(&of_drive, &partition_create(), &[])).await.unwrap();
        within(session.call(&of_object, &create, &[])).await.unwrap();
        let payload = bytes(9, BYTES);
        drive.write(0, &payload, 1).await;
        for (from, to) in [(0, BYTES), (4097, BYTES - 1), (0, PIECE), (PIECE - 1, PIECE + 1)] {
            let (_, got) = drive.read(0, from, to).await;
            let expected = &payload[usize::try_from(from).unwrap()..usize::try_from(to).unwrap()];
            assert!(got == expected, "{sending:?}, from {from} to {to}");
        }
        // Nothing was written there: the answer needs no turn.
        let (_, got) = drive.read(1, 0, BYTES).await;
        assert!(got.is_empty(), "{sending:?}");
        drive.stop().await;
    }
}
