//! New files go where there is space.

use std::collections::BTreeSet;

use braid_layout::DriveId;
use braid_wire::control::*;

use crate::fake::{Cluster, eventually, no_shape, raid5};

fn drives(opened: &Opened) -> BTreeSet<DriveId> {
    opened.stat.segments[0].columns.iter().map(|column| column.drive).collect()
}

fn unnamed(avoid: &BTreeSet<DriveId>) -> CreateUnnamed {
    let avoid = avoid.iter().copied().collect();
    CreateUnnamed { volume: "main".into(), shape: no_shape(), client: 1, avoid }
}

#[tokio::test]
async fn full_drives_are_passed_over_while_others_are_enough() {
    let cluster = Cluster::new(8, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let full: BTreeSet<DriveId> = cluster.drives[..4].iter().map(|drive| drive.id).collect();
    cluster.drives[..4].iter().for_each(|drive| drive.state().full = true);
    eventually("the manager knows", || async {
        let mut client = cluster.manager.client().await;
        let rows = client.status().await.drives;
        rows.iter().filter(|row| row.free_bytes == 0).count() == 4
    })
    .await;
    let rows = client.status().await.drives;
    assert!(rows.iter().all(|row| (row.free_bytes == 0) == full.contains(&row.drive)));
    for n in 0..20 {
        let file = client.create(&format!("f{n}")).await;
        assert!(drives(&file).is_disjoint(&full), "{n}");
    }
    // With one more full drive there are not enough others: then any drive is used.
    cluster.drives[4].state().full = true;
    eventually("it is full too", || async {
        let mut client = cluster.manager.client().await;
        client.status().await.drives.iter().filter(|row| row.free_bytes == 0).count() == 5
    })
    .await;
    assert_eq!(drives(&client.create("any").await).len(), 4);
}

#[tokio::test]
async fn a_file_that_met_full_drives_is_made_anew_on_others() {
    let cluster = Cluster::new(8, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let first = client.opened(unnamed(&BTreeSet::new())).await;
    let met: BTreeSet<DriveId> = drives(&first).into_iter().take(2).collect();
    for _ in 0..20 {
        let next = client.opened(unnamed(&met)).await;
        assert!(drives(&next).is_disjoint(&met));
    }
    // Too many to avoid: they are used again.
    let most: BTreeSet<DriveId> = cluster.drives[..5].iter().map(|drive| drive.id).collect();
    assert_eq!(drives(&client.opened(unnamed(&most)).await).len(), 4);
}
