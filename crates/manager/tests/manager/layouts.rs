//! Layouts of directories, volumes and files that were never written.

use braid_wire::Reason;
use braid_wire::control::*;

use crate::fake::{Client, Cluster, NEW_FILE, open, raid5, release};

const MIRROR: ShapeSpec = ShapeSpec { scheme: 1, k: 1, m: 1, unit_bytes: 4096 };

async fn layout(client: &mut Client, path: &str) -> LayoutReply {
    match client.ask(LayoutOf { at: NamePlace::of("main", path) }).await {
        Ok(ControlReply::Layout(reply)) => reply,
        other => panic!("{other:?}"),
    }
}

fn set(path: &str, shape: Option<ShapeSpec>) -> SetLayout {
    SetLayout { at: NamePlace::of("main", path), shape }
}

async fn shape_of_new(client: &mut Client, path: &str) -> ShapeSpec {
    let file = client.create(path).await;
    client.done(release(&file, true)).await;
    file.stat.segments[0].shape.clone()
}

#[tokio::test]
async fn layouts_of_directories_outlive_the_manager() {
    let cluster = Cluster::new(5, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    client.made(MakeDirectory { at: NamePlace::of("main", "d/e"), parents: true, new: NEW_FILE }).await;
    client.done(set("d", Some(MIRROR))).await;
    let wide = client.refused(set("d/e", Some(raid5(5)))).await;
    assert_eq!(wide.reason, Reason::TooFewDrives);
    assert!(wide.detail.contains("needs 6 drives, and there are 5"), "{wide}");
    assert_eq!(shape_of_new(&mut client, "d/e/before").await, MIRROR);
    let cluster = cluster.restart_manager().await;
    let mut client = cluster.manager.client().await;
    client.until_up(&cluster.drives.iter().collect::<Vec<_>>()).await;
    assert_eq!(shape_of_new(&mut client, "d/e/after").await, MIRROR);
    assert_eq!(shape_of_new(&mut client, "beside").await, raid5(2));
    let told = layout(&mut client, "d/e").await;
    assert_eq!(
        (told.shape, told.from, told.path.as_str()),
        (MIRROR, LayoutFrom::Directory, "braid://main/d")
    );
    client.done(set("", Some(raid5(3)))).await;
    client.done(set("d", None)).await;
    assert_eq!(shape_of_new(&mut client, "d/e/last").await, raid5(3), "the volume's new one");
    assert_eq!(client.refused(set("d", None)).await.reason, Reason::NoXattr);
}

#[tokio::test]
async fn a_file_has_another_layout_until_it_is_written() {
    let cluster = Cluster::new(5, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    let mut file = client.create("f").await;
    assert_eq!(client.refused(set("f", Some(MIRROR))).await.reason, Reason::Leased, "it is open");
    let empty = |file: &Opened| {
        let mut release = release(file, true);
        release.ended.columns = braid_layout::ColumnMask::EMPTY;
        release
    };
    client.done(empty(&file)).await;
    client.done(set("f", Some(MIRROR))).await;
    file = client.opened(open("f", Access::Write, false)).await;
    assert_eq!((&file.stat.segments[0].shape, file.grants[0].len()), (&MIRROR, 2));
    client.done(release(&file, true)).await;
    let refused = client.refused(set("f", Some(raid5(2)))).await;
    assert_eq!(refused.reason, Reason::Written, "it may have been written: {refused}");
    assert!(refused.detail.contains("braid relayout"), "{refused}");
}
