//! Listing of an object's units by a drive.

use crate::support::Drive;
use crate::support::manager::Manager;
use crate::support::requests::*;
use braid_wire::data::{DriveReply, DriveRequest, Listing, Versions};

#[tokio::test]
async fn units_are_listed_up_and_down_in_pages() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    drive.write(0, &bytes(1, UNIT), 1).await;
    drive.write(5, &bytes(1, UNIT), 2).await;
    let mut session = drive.session().await;
    let grant = drive.grant(object_level());
    let listed =
        |list, from| -> DriveRequest { Versions { at: AT, list, units: vec![], from, limit: 1 }.into() };
    for (list, from, expected) in
        [(Listing::Written, 0, [0, 5]), (Listing::Bytes, 0, [0, 5]), (Listing::BytesDown, u64::MAX, [5, 0])]
    {
        let mut found = Vec::new();
        let mut next = Some(from);
        while let Some(from) = next {
            match session.call(&grant, &listed(list, from), &[]).await.unwrap().0 {
                DriveReply::Versions(reply) => {
                    assert!(reply.units.len() <= 1, "no more than was asked for");
                    found.extend(reply.units.iter().map(|state| (state.unit, state.end)));
                    next = reply.next;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(found, expected.map(|unit| (unit, UNIT)));
    }
    drive.stop().await;
}
