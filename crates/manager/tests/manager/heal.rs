//! Stale columns join and become ready at the word of their drives, beside the file's writer.

use braid_layout::{Column, ColumnMask, Generation};
use braid_wire::Reason;
use braid_wire::control::{Access, Refresh};

use crate::failures::{mask, put_all, stale};
use crate::fake::{Cluster, FakeDrive, lost, open, opened, raid5, release};

#[tokio::test]
async fn a_heal_takes_no_lease_and_one_that_broke_off_leaves_the_column_joining() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    put_all(&cluster, &file);
    let dead = cluster.of(&file, 0).clone();
    dead.kill();
    client.patient(lost(&file, &[0])).await.unwrap();
    dead.start().await;
    client.until_up(&[&dead]).await;
    // Beside a writer, whose lease goes on: it learns of the new generation, in which it writes on.
    let first = dead.begin_heal(file.stat.file).await.unwrap();
    let again = dead.begin_heal(file.stat.file).await.unwrap();
    assert_eq!(again.stat.g, first.stat.g, "it has joined already");
    let refresh = Refresh { file: file.stat.file, access: Access::Write, lease: file.lease, client: 7 };
    let view = client.opened(refresh).await;
    assert_eq!((view.stat.g, view.stat.segments[0].joining), (first.stat.g, mask(&[0])));
    client.done(release(&view, false)).await;
    let next = opened(client.patient(open("f", Access::Write, false)).await.unwrap());
    assert_eq!(next.stat.segments[0].joining, mask(&[0]));
    client.done(release(&next, true)).await;
    // The generation has risen since the columns were compared.
    assert_eq!(dead.end_heal(&first).await.unwrap_err().reason, Reason::StaleGeneration);
    assert_eq!(stale(&mut client, &dead.name).await, [file.stat.file.0]);
    let heal = dead.begin_heal(file.stat.file).await.unwrap();
    // Another drive cannot speak for it.
    let other = cluster.of(&file, 1);
    assert_eq!(other.begin_heal(file.stat.file).await.unwrap_err().reason, Reason::NotFound);
    other.end_heal(&heal).await.unwrap();
    assert_eq!(client.stat("f").await.unwrap().segments[0].joining, mask(&[0]));
    dead.end_heal(&heal).await.unwrap();
    assert_eq!(client.stat("f").await.unwrap().segments[0].joining, ColumnMask::EMPTY);
}

/// A stamp that a joining column has kept from before it went out may have been taken back since: it drops
/// it, also while a writer's own stamps are in flight on the others, which stay.
#[tokio::test]
async fn a_column_that_joins_beside_a_writer_drops_what_it_has_pending() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    put_all(&cluster, &file);
    let stamp = |n| braid_layout::Version { g: Generation(1), lease: file.lease, n };
    let dead = cluster.of(&file, 0).clone();
    dead.put(&file, Column(0), &[(5, stamp(3), mask(&[0, 3]))]);
    dead.kill();
    client.patient(lost(&file, &[0])).await.unwrap();
    cluster.of(&file, 1).put(&file, Column(1), &[(6, stamp(4), mask(&[1, 3]))]);
    dead.start().await;
    client.until_up(&[&dead]).await;
    let heal = dead.begin_heal(file.stat.file).await.unwrap();
    assert_eq!(heal.stat.segments[0].joining, mask(&[0]));
    let object = file.stat.segments[0].columns[0].object;
    let told = |drive: &FakeDrive| drive.object(file.stat.volume.0, object).unwrap().verdicts;
    assert!(told(&dead).iter().any(|verdict| verdict.unit == 5 && verdict.back == [stamp(3)]));
    assert!(told(cluster.of(&file, 1)).is_empty(), "it may be in flight");
}
