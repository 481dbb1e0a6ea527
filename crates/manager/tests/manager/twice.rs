//! Two rebuilds of one drive at once: two replacements, and two processes of a drive that both heal it.

use braid_layout::ColumnMask;
use braid_wire::Reason;
use braid_wire::control::ReplaceDrive;
use tokio::task::JoinSet;

use crate::failures::{mask, put_all};
use crate::fake::{Cluster, FakeDrive, lost, raid5};

#[tokio::test]
async fn one_of_several_replacements_of_a_drive_is_carried_out_and_the_others_are_told_which() {
    const NEW: u128 = 6;
    let cluster = Cluster::new(3, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    put_all(&cluster, &file);
    let mut new = Vec::new();
    for id in 0..NEW {
        new.push(FakeDrive::join(&cluster.manager.ready, 10 + id, &format!("new-{id}")).await.unwrap());
    }
    client.until_up(&new.iter().collect::<Vec<_>>()).await;
    let old = cluster.of(&file, 1).clone();
    old.kill();
    // Its lease has surely lapsed then.
    client.patient(lost(&file, &[1])).await.unwrap();
    let mut asked = JoinSet::new();
    for drive in &new {
        let mut client = cluster.manager.client().await;
        let (name, replace) =
            (drive.name.clone(), ReplaceDrive { old: old.name.clone(), new: drive.name.clone() });
        asked.spawn(async move { (name, client.patient(replace).await) });
    }
    let (mut done, mut refused) = (Vec::new(), Vec::new());
    for (name, answer) in asked.join_all().await {
        match answer {
            Ok(_) => done.push(name),
            Err(refusal) => refused.push(refusal),
        }
    }
    assert_eq!(done.len(), 1, "{done:?} all take its place");
    let told = format!("{} was replaced by {} already", old.name, done[0]);
    let remedy = format!("`braid drive replace {} NEW`", done[0]);
    for refusal in refused {
        assert_eq!(refusal.reason, Reason::NoDrive);
        assert!(refusal.detail.contains(&told) && refusal.detail.contains(&remedy), "{refusal}");
    }
    // It is that one which makes the column anew, and nobody else.
    let winner = new.iter().find(|drive| drive.name == done[0]).unwrap();
    let heal = winner.begin_heal(file.stat.file).await.unwrap();
    winner.end_heal(&heal).await.unwrap();
    let segment = client.stat("f").await.unwrap().segments.remove(0);
    assert_eq!((segment.columns[1].drive, segment.set), (winner.id, mask(&[0, 1, 2])));
    assert_eq!(segment.joining, ColumnMask::EMPTY);
    // Asked for again, it is done already; and it names the one that has the place now.
    let again = ReplaceDrive { old: old.name.clone(), new: winner.name.clone() };
    client.ask(again).await.unwrap();
}
