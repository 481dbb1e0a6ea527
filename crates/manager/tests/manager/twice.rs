//! Two rebuilds of one drive at once: two replacements, and two processes of a drive that both heal it.

use braid_layout::ColumnMask;
use braid_wire::control::{Access, ReplaceDrive};
use braid_wire::{Reason, Refusal};
use tokio::task::JoinSet;

use crate::failures::{mask, put_all};
use crate::fake::{Cluster, FakeDrive, lost, open, opened, raid5, release};
use crate::successors::moving;

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
    // After this the drive's lease has surely lapsed.
    client.patient(lost(&file, &[1])).await.unwrap();
    let mut asked = JoinSet::new();
    for drive in &new {
        let mut client = cluster.manager.client().await;
        let (name, replace) =
            (drive.name.clone(), ReplaceDrive { old: old.name.clone(), new: drive.name.clone() });
        asked.spawn(async move { (name, client.patient(replace).await) });
    }
    let mut done = Vec::new();
    let mut refused = Vec::new();
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
    // Only that one makes the column anew.
    let winner = new.iter().find(|drive| drive.name == done[0]).unwrap();
    let heal = winner.begin_heal(file.stat.file).await.unwrap();
    winner.end_heal(&heal).await.unwrap();
    let segment = client.stat("f").await.unwrap().segments.remove(0);
    assert_eq!((segment.columns[1].drive, segment.set), (winner.id, mask(&[0, 1, 2])));
    assert_eq!(segment.joining, ColumnMask::EMPTY);
    // A repeat of the winner's request is answered that it is done: it names the drive that has the place
    // now.
    let again = ReplaceDrive { old: old.name.clone(), new: winner.name.clone() };
    client.ask(again).await.unwrap();
}

/// A drive was thought to be gone, and another process is in its place; then both heal.
#[tokio::test]
async fn two_processes_of_a_drive_make_its_column_ready_once() {
    let one = 11;
    let other = 12;
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    put_all(&cluster, &file);
    let drive = cluster.of(&file, 0).clone();
    drive.kill();
    client.patient(lost(&file, &[0])).await.unwrap();
    drive.start().await;
    client.until_up(&[&drive]).await;
    // Beside a writer. The second one joins the heal that is under way: the column has joined already.
    let first = drive.begin_comparison(file.stat.file, one).await.unwrap();
    let second = drive.begin_comparison(file.stat.file, other).await.unwrap();
    assert_eq!((second.stat.g, second.stat.segments[0].joining), (first.stat.g, mask(&[0])));
    drive.end_comparison(&first, one).await.unwrap();
    let stat = client.stat("f").await.unwrap();
    assert_eq!((stat.segments[0].joining, stat.segments[0].set), (ColumnMask::EMPTY, mask(&[0, 1, 2, 3])));
    // For the other there is nothing to end, and nothing to begin again.
    let refusal = drive.end_comparison(&second, other).await.unwrap_err();
    assert_eq!(refusal.reason, Reason::StaleGeneration);
    assert!(refusal.detail.contains("compare again"), "{refusal}");
    assert!(crate::failures::stale(&mut client, &drive.name).await.is_empty());
    let refusal = drive.begin_comparison(file.stat.file, other).await.unwrap_err();
    assert_eq!(refusal.reason, Reason::NotFound);
    drive.end_comparison(&second, other).await.unwrap_err();
    assert_eq!(client.stat("f").await.unwrap().g, stat.g, "nothing has changed");
}

/// Writes after one process began to compare are not in its successor, though the other process began later.
#[tokio::test]
async fn a_comparison_of_one_process_does_not_count_for_another_of_the_same_drive() {
    let cluster = Cluster::new(4, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    let (file, holder, spare) = moving(&cluster, &mut client).await;
    let number = file.stat.file;
    let compare_again = |refusal: Refusal| {
        assert_eq!(refusal.reason, Reason::StaleGeneration);
        assert!(refusal.detail.contains("compare again"), "{refusal}");
    };
    // Both processes begin beside a writer. One of them is told to begin anew, and does.
    let writer = opened(client.patient(open("f", Access::Write, false)).await.unwrap());
    let first = spare.begin_comparison(number, 11).await.unwrap();
    let second = spare.begin_comparison(number, 12).await.unwrap();
    client.done(release(&writer, true)).await;
    compare_again(spare.end_comparison(&first, 11).await.unwrap_err());
    let again = spare.begin_comparison(number, 13).await.unwrap();
    assert_eq!((second.stat.g, again.stat.g), (first.stat.g, first.stat.g));
    // The other's comparison from before the write still does not count.
    compare_again(spare.end_comparison(&second, 12).await.unwrap_err());
    assert_eq!(client.stat("f").await.unwrap().segments[0].columns[1].drive, holder.id);
    // The comparison of the first process is not affected.
    spare.end_comparison(&again, 13).await.unwrap();
    let segment = client.stat("f").await.unwrap().segments.remove(0);
    assert_eq!((segment.columns[1].drive, segment.set), (spare.id, mask(&[0, 1, 2])));
    assert!(holder.object(file.stat.volume.0, file.stat.segments[0].columns[1].object).is_none());
}
