//! A state that was restored from a backup, and drives that are ahead of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use braid_layout::{Column, FileId};
use braid_manager::check::check;
use braid_manager::embedded::EmbeddedKv;
use braid_manager::kv::Db;
use braid_wire::control::*;

use crate::fake::{Client, Cluster, eventually, no_shape, opened, raid5, release};

/// Its components on the drives, as its client makes them.
fn put(cluster: &Cluster, file: &Opened) {
    for column in 0..4 {
        cluster.of(file, column).put(file, Column(column), &[]);
    }
}

async fn file(cluster: &Cluster, client: &mut Client, path: &str) -> Opened {
    let file = client.create(path).await;
    put(cluster, &file);
    client.done(release(&file, true)).await;
    file
}

async fn backup(client: &mut Client) -> PathBuf {
    match client.ask(Backup {}).await.unwrap() {
        ControlReply::Backup(made) => made.path.into(),
        other => panic!("{other:?}"),
    }
}

fn report(cluster: &Cluster) -> String {
    std::fs::read_to_string(cluster.manager.dir.join("comparison.txt")).unwrap()
}

fn components(cluster: &Cluster, file: FileId) -> usize {
    let on = |drive: &crate::fake::FakeDrive| {
        drive.state().objects.values().filter(|object| object.file == file).count()
    };
    cluster.drives.iter().map(on).sum()
}

async fn holds_together(cluster: Cluster) {
    let dir: &Path = &cluster.manager.dir.clone();
    cluster.manager.stop().await;
    let db = Db::new(Arc::new(EmbeddedKv::open(&dir.join("manager.redb")).unwrap()));
    assert_eq!(check(&db).unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn what_got_its_name_after_the_backup_is_kept_and_what_was_removed_before_it_is_freed() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    file(&cluster, &mut client, "kept").await;
    let gone = file(&cluster, &mut client, "gone").await;
    let away = cluster.of(&gone, 0).clone();
    away.kill();
    client.done(Unlink { volume: "main".into(), path: "gone".into() }).await;
    eventually("it is freed where it can be", || async { components(&cluster, gone.stat.file) == 1 }).await;
    away.state().mute = true;
    away.start().await;
    // Two uploads: of the second nothing is on any drive yet.
    let unnamed = || CreateUnnamed { volume: "main".into(), shape: no_shape(), client: 7, avoid: Vec::new() };
    let up = opened(client.patient(unnamed()).await.unwrap());
    client.opened(unnamed()).await;
    put(&cluster, &up);
    let backup = backup(&mut client).await;
    let (file, lease, volume, path) = (up.stat.file, up.lease, "main".to_owned(), "up".into());
    let (modified_ms, mode) = (None, None);
    client
        .done(Link { file, lease, volume, path, size: 50, replace: false, order: 1, modified_ms, mode })
        .await;
    client.done(release(&up, true)).await;

    let cluster = cluster.restore(&backup).await;
    away.state().mute = false;
    let mut client = cluster.manager.client().await;
    client.until_up(&cluster.drives.iter().collect::<Vec<_>>()).await;
    client.done(VolumeCreate { name: "other".into(), shape: raid5(3), quota_bytes: 0 }).await;
    client.until("the removal list is empty", |status| status.removing == 0).await;
    assert_eq!(components(&cluster, gone.stat.file), 0);
    assert_eq!(components(&cluster, up.stat.file), 4);
    let report = report(&cluster);
    assert!(report.contains("1 files have a name; 1 of them are whole, 0 are not"), "{report}");
    assert!(report.contains("1 files on the drives have no name"), "{report}");
    client.done(FreeUnnamed {}).await;
    eventually("an operator let go of it", || async { components(&cluster, up.stat.file) == 0 }).await;
    holds_together(cluster).await;
}
