//! Number of requests that the common operations take: each is a round trip, unless it goes out with others.

use braid_client::AttributeChanges;
use braid_client::Client;
use braid_client::OpenOptions;
use braid_client::Parents;
use braid_client::Replace;
use braid_client::SentRequests;
use braid_layout::{Scheme, Shape};
use braid_wire::Reason;

use crate::common::{Cluster, Times, name, pattern, read_all, shape};

/// Numbers of requests sent since `before`: to the manager, and to drives.
fn since(client: &Client, before: SentRequests) -> (u64, u64) {
    let now = client.sent_requests();
    (now.manager - before.manager, now.drives - before.drives)
}

async fn with_volume(shape: Shape) -> (Cluster, Client) {
    // No lease is renewed while requests are counted.
    let times = Times { client_lease_ms: 600_000, ..Times::default() };
    let cluster = Cluster::start_timed(5, |_| None, times).await;
    let client = cluster.client().await;
    client.volume_create("main", Some(shape), 0).await.expect("a volume");
    (cluster, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_file_takes_the_manager_twice_and_only_the_drives_that_hold_it() {
    let (cluster, client) = with_volume(shape(Scheme::Raid5, 4, 1, 512 << 10)).await;
    let path = name("f");
    let bytes = pattern(1, 4096);
    let begun = client.sent_requests();
    let file = client.open(&path, &OpenOptions::new().write(true).create_new(true)).await.expect("open");
    assert_eq!(since(&client, begun), (1, 0), "open");
    let before = client.sent_requests();
    file.write_at(&bytes, 0).await.expect("write");
    assert_eq!(since(&client, before), (0, 4), "a data unit and its parity, each created and written");
    let before = client.sent_requests();
    file.close().await.expect("close");
    let (manager, _) = since(&client, before);
    assert_eq!(manager, 1, "close");
    client.finish().await;
    assert_eq!(since(&client, begun), (2, 6), "both drives were told that it is settled, after the close");

    let before = client.sent_requests();
    assert_eq!(read_all(&client, &path).await.expect("read"), bytes);
    assert_eq!(since(&client, before), (1, 1), "open, read and close");
    let before = client.sent_requests();
    client.stat(&path).await.expect("stat");
    assert_eq!(since(&client, before), (1, 0), "stat");

    // The first writer after the creation needs a fence: the earlier writes may not be retired yet.
    let g = client.stat(&path).await.expect("stat").g;
    let before = client.sent_requests();
    let file = client.open(&path, &OpenOptions::new().write(true)).await.expect("open");
    assert_eq!(since(&client, before), (1, 0), "open");
    file.write_at(&bytes[..100], 50).await.expect("write");
    assert_eq!(since(&client, before), (1, 10), "what is past the size is written as holes: all units");
    file.close().await.expect("close");
    assert_eq!(since(&client, before), (2, 15), "all columns are told, and then the manager");
    assert!(client.stat(&path).await.expect("stat").g > g, "fenced");
    // The next writer needs none.
    let g = client.stat(&path).await.expect("stat").g;
    let file = client.open(&path, &OpenOptions::new().write(true)).await.expect("open");
    file.close().await.expect("close");
    assert_eq!(client.stat(&path).await.expect("stat").g, g, "the last one was retired");
    let before = client.sent_requests();
    client.unlink(&path).await.expect("unlink");
    assert_eq!(since(&client, before), (1, 0), "unlink");
    drop(cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn random_reads_and_overwrites_of_an_open_file_take_one_drive_each() {
    let (cluster, client) = with_volume(shape(Scheme::Raid5, 4, 1, 64 << 10)).await;
    let path = name("f");
    let bytes = pattern(2, 4 << 20);
    let file =
        client.open(&path, &OpenOptions::new().read(true).write(true).create(true)).await.expect("open");
    file.write_at(&bytes, 0).await.expect("write");
    let mut found = vec![0; 4096];
    for at in [0, 777_000, 3_333_333] {
        let before = client.sent_requests();
        let length = file.read_at(&mut found, at / 4096 * 4096).await.expect("read");
        assert_eq!((length, since(&client, before)), (4096, (0, 1)), "read at {at}");
        let before = client.sent_requests();
        file.write_at(&found, at / 4096 * 4096).await.expect("write");
        assert_eq!(since(&client, before), (0, 1), "write at {at}: its drive tells the parity's");
    }
    file.set_len(8 << 20).await.expect("set");
    let before = client.sent_requests();
    file.read_at(&mut found, 6 << 20).await.expect("read");
    assert!(found.iter().all(|byte| *byte == 0));
    assert_eq!(since(&client, before), (0, 2), "where nothing was written, its parity is asked too");
    // A caller that waits for long sees from this number that the drives still answer.
    let before = client.drive_answers();
    file.set_len(0).await.expect("cut");
    assert!(client.drive_answers() > before, "drives have answered");
    file.close().await.expect("close");
    drop(cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_names_at_once_share_messages_and_one_that_is_bad_keeps_no_other_from_its_answer() {
    let (cluster, client) = with_volume(shape(Scheme::Raid5, 4, 1, 64 << 10)).await;
    let mut names = Vec::new();
    for index in 0..100 {
        names.push(name(&format!("d{index}")));
        client.mkdir(&names[index], Parents::MustExist).await.expect("mkdir");
    }
    names.insert(50, name("no such"));
    let before = client.sent_requests();
    let found = client.stat_all(&names).await;
    let (manager, _) = since(&client, before);
    // Some requests may be sent twice on a busy machine.
    assert!(manager <= 20, "{manager} messages for 101 names");
    for (name, result) in names.iter().zip(&found) {
        assert_eq!(result.is_ok(), *name != names[50], "{name}: {result:?}");
    }
    let before = client.sent_requests();
    let removed = client.unlink_all(&names).await;
    assert!(since(&client, before).0 <= 20);
    let refused: Vec<String> = removed.into_iter().filter_map(Result::err).map(|e| e.to_string()).collect();
    assert!(refused.len() == 1 && refused[0].contains("no such"), "{refused:?}");
    assert!(client.list(&name("")).all().await.expect("list").is_empty());
    drop(cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_takes_the_manager_twice() {
    let (cluster, client) = with_volume(shape(Scheme::Raid5, 4, 1, 512 << 10)).await;
    let before = client.sent_requests();
    let file = client.create_unnamed("main", None).await.expect("create");
    file.write_at(&pattern(3, 4096), 0).await.expect("write");
    file.link_and_close(&name("f"), Replace::No, AttributeChanges::NONE).await.expect("link");
    assert_eq!(since(&client, before).0, 2);
    assert_eq!(read_all(&client, &name("f")).await.expect("read"), pattern(3, 4096));
    // A name that is taken: the file is given up, and the name keeps its file.
    let other = client.create_unnamed("main", None).await.expect("create");
    other.write_at(&pattern(4, 100), 0).await.expect("write");
    let refused =
        other.link_and_close(&name("f"), Replace::No, AttributeChanges::NONE).await.expect_err("taken");
    assert_eq!(refused.reason(), Some(Reason::Exists));
    assert_eq!(read_all(&client, &name("f")).await.expect("read"), pattern(3, 4096));
    drop(cluster);
}
