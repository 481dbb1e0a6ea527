//! Files that are laid out anew.

use braid_wire::control::*;

use crate::failures::put_all;
use crate::fake::{Client, Cluster, FakeDrive, eventually, open, opened, raid5, release};

const MIRROR: ShapeSpec = ShapeSpec { scheme: 1, k: 1, m: 1, unit_bytes: 4096 };

/// A closed file that is to be a mirror, and a drive that has begun to fill a column of it.
async fn begun(cluster: &Cluster, client: &mut Client) -> (Opened, FakeDrive, Opened) {
    let file = client.create("f").await;
    put_all(cluster, &file);
    client.done(release(&file, true)).await;
    let asked = Relayout { at: NamePlace::of("main", "f"), shape: Some(MIRROR) };
    client.ask(asked).await.unwrap();
    let begin = BeginHeal { file: file.stat.file, comparison: 0, filling: true, in_vain: 0 };
    let began = || async {
        for drive in &cluster.drives {
            if let Ok(ControlReply::Opened(filled)) = drive.ask(begin.clone()).await {
                return Some((drive.clone(), filled));
            }
        }
        None
    };
    eventually("it is begun", || async { began().await.is_some() }).await;
    let (drive, filled) = began().await.unwrap();
    (file, drive, filled)
}

async fn end(drive: &FakeDrive, filled: &Opened) {
    let file = filled.stat.file;
    let g = filled.stat.g;
    drive.ask(EndHeal { file, g, left: 0, comparison: 0, filling: true }).await.unwrap();
}

/// The drive may be the only one that knows of the new layout when the manager's state is lost.
#[tokio::test]
async fn one_that_can_be_read_is_given_up_in_a_new_generation() {
    let cluster = Cluster::new(5, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    let (_, drive, filled) = begun(&cluster, &mut client).await;
    let shown = client.stat("f").await.unwrap();
    assert_eq!((shown.segments.len(), &shown.segments[0].shape), (1, &raid5(2)), "it is not the file's yet");
    end(&drive, &filled).await;
    let writer = opened(client.patient(open("f", Access::Write, false)).await.unwrap());
    assert_eq!(writer.stat.segments[0].shape, raid5(2));
    assert!(writer.stat.g > filled.stat.g);
    client.done(release(&writer, true)).await;
}

#[tokio::test]
async fn one_that_cannot_be_read_makes_no_writer_wait() {
    let cluster = Cluster::new(5, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    let (_, _, filled) = begun(&cluster, &mut client).await;
    let writer = client.opened(open("f", Access::Write, false)).await;
    assert_eq!((writer.stat.segments[0].shape.clone(), writer.stat.g), (raid5(2), filled.stat.g));
    client.done(release(&writer, true)).await;
}
