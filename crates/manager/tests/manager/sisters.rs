//! Addresses and grants that drives get for their sisters (PROTOCOL R3).

use braid_layout::{DriveId, PartitionId};
use braid_transport::TransportError;
use braid_wire::Reason;
use braid_wire::capability::Rights;
use braid_wire::control::*;

use crate::fake::{Cluster, raid5};

fn rows(reply: ControlReply) -> Vec<SisterRow> {
    let ControlReply::Sisters(reply) = reply else { panic!("{reply:?}") };
    reply.sisters
}

#[tokio::test]
async fn a_drive_is_told_where_its_sisters_are_and_may_send_them_deltas_alone() {
    let cluster = Cluster::new(3, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    let partition = PartitionId::from(file.stat.volume);
    let [asker, other, gone] = [0, 1, 2].map(|index: usize| cluster.drives[index].clone());
    let all = || Sisters { partition, drives: vec![other.id, gone.id, DriveId(4711)] };
    let told = rows(asker.ask(all()).await.unwrap());
    assert_eq!(told.iter().map(|row| row.drive).collect::<Vec<_>>(), [other.id, gone.id], "none is unknown");
    for row in &told {
        let capability = &row.grant.capability;
        assert_eq!((capability.drive, capability.holder), (row.drive, asker.id));
        assert_eq!(
            (capability.partition, capability.object.0, capability.rights),
            (partition, 0, Rights::DELTA)
        );
        assert!(capability.expires_ms > 0 && row.addresses.count() == 1);
    }
    // The key is the sister's own: the sister accepts a grant that the manager signs with it.
    let key = other.master.drive_key(other.id).partition_key(partition).working_key(1);
    assert_eq!(key.private_part(&told[0].grant.capability), told[0].grant.private);
    let nowhere = Sisters { partition: PartitionId(999), ..all() };
    assert_eq!(rows(asker.ask(nowhere).await.unwrap()), []);
    gone.kill();
    crate::fake::eventually("the drive is away", || async {
        rows(asker.ask(all()).await.unwrap()).len() == 1
    })
    .await;
    assert_eq!(client.refused(all()).await.reason, Reason::NotAllowed);
    let many = Sisters { partition, drives: vec![DriveId(1); SISTERS_MAX + 1] };
    let refused = |error: TransportError| matches!(error, TransportError::Refusal(refusal) if refusal.reason == Reason::Malformed);
    assert!(asker.ask(many).await.is_err_and(refused));
}
