//! Objects of files that are gone and on no removal list.

use std::time::Duration;

use braid_layout::{Column, ColumnMask, FileId, Generation, ObjectId, PartitionId};
use braid_meta::records::check::check;
use braid_meta::records::memory::MemoryKv;
use braid_meta::records::schema::key;
use braid_wire::control::*;

use crate::crash::InMemory;
use crate::fake::{Client, Cluster, FakeDrive, eventually, raid5, release};
use crate::fake_drive::FakeObject;

async fn file(cluster: &Cluster, client: &mut Client, path: &str) -> Opened {
    let file = client.create(path).await;
    for column in 0..4 {
        cluster.of(&file, column).put(&file, Column(column), &[]);
    }
    client.done(release(&file, true)).await;
    file
}

fn object(file: u64) -> FakeObject {
    FakeObject {
        file: FileId(file),
        column: Column(0),
        g: Generation(3),
        set: ColumnMask::all(4),
        joining: ColumnMask::EMPTY,
        units: Default::default(),
        verdicts: Vec::new(),
    }
}

#[tokio::test]
async fn a_drive_put_back_to_before_a_removal_is_rid_of_what_was_removed() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let mut gone = Vec::new();
    for n in 0..5 {
        gone.push(file(&cluster, &mut client, &format!("gone{n}")).await);
    }
    let kept = file(&cluster, &mut client, "kept").await;
    let drive = cluster.drives[0].clone();
    let older = drive.state().objects.clone();
    assert_eq!(older.len(), 6);
    for n in 0..5 {
        client
            .done(Unlink {
                at: NamePlace::of("main", format!("gone{n}")),
                only: UnlinkOnly::Any,
                keep: false,
            })
            .await;
    }
    client.until("they are freed", |status| status.removing == 0).await;
    assert_eq!(cluster.objects(), 4);
    drive.kill();
    let volume = PartitionId(kept.stat.volume.0);
    let damaged = (volume, ObjectId(u64::MAX - 1));
    {
        let mut state = drive.state();
        state.objects = older;
        state.objects.insert(damaged, object(0));
        // An object of a layout that the file has no more, with another column than the file has on this
        // drive.
        let column = Column(u8::from(drive.id == kept.stat.segments[0].columns[0].drive));
        let of_kept = FakeObject { column, ..object(kept.stat.file.0) };
        state.objects.insert((volume, ObjectId(u64::MAX - 2)), of_kept);
    }
    drive.start().await;
    client.until_up(&[&drive]).await;
    eventually("what was removed is gone again", || async {
        let state = drive.state();
        let is_left = |at: &(PartitionId, ObjectId)| at.1 == ObjectId(u64::MAX - 2);
        !gone.iter().any(|file| state.objects.values().any(|object| object.file == file.stat.file))
            && !state.objects.keys().any(is_left)
    })
    .await;
    let left: Vec<FileId> = drive.state().objects.values().map(|object| object.file).collect();
    assert_eq!(left.len(), 2, "what is alive, and what does not tell its file: {left:?}");
    assert!(left.contains(&kept.stat.file) && left.contains(&FileId(0)));
    client.until("the list is empty", |status| status.removing == 0).await;
}

#[tokio::test]
async fn nothing_is_freed_on_the_word_of_a_restored_state_until_an_operator_says_so() {
    let kv = MemoryKv::new();
    let manager = InMemory::start(&kv, "127.0.0.1:0").await;
    let core = &manager.core;
    core.write(|_, tx| {
        tx.set(key::meta("unnamed"), &1u64);
        Ok(())
    })
    .await
    .unwrap();
    let drive = FakeDrive::join(&manager.ready, 1, "a").await.unwrap();
    let mut client = Client::connect(&manager.ready).await;
    client.until_up(&[&drive]).await;
    // A file of a volume that was made after the backup.
    let place = (PartitionId(77), ObjectId(5));
    {
        let mut state = drive.state();
        state.partitions.extend([PartitionId(9), place.0]);
        state.objects.insert(place, object(1234));
    }
    drive.kill();
    drive.start().await;
    client.until_up(&[&drive]).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(drive.state().objects.contains_key(&place));
    client.done(FreeUnnamed {}).await;
    eventually("it is freed, and the partitions of no volume too", || async {
        let state = drive.state();
        state.objects.is_empty() && state.partitions.is_empty()
    })
    .await;
    client.until("the list is empty", |status| status.removing == 0).await;
    assert_eq!(check(&core.db).unwrap(), Vec::<String>::new());
}
