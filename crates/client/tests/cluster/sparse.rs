//! A file of a few bytes that lie far apart: the cost of operations depends on the bytes that it holds, not
//! on its length.

use std::time::Duration;

use braid_client::Client;
use braid_client::OpenOptions;
use braid_layout::Scheme;

use crate::common::{Cluster, assert_same, name, open_when_free, pattern, put, read_all, shape};

/// Offset of the far bytes: 4 EiB.
const FAR: u64 = 1 << 62;

/// Fails after 20 s: far less than it takes to walk the range, even on a busy machine.
async fn soon<T>(what: &str, does: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), does)
        .await
        .unwrap_or_else(|_| panic!("{what} takes for ever"))
}

async fn far_byte(cluster: &Cluster, path: &str) -> Client {
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let options = OpenOptions::new().write(true).create(true).shape(shape(Scheme::Raid5, 3, 1, 4096));
    let file = client.open(&name(path), &options).await.expect("create");
    file.write_at(b"near", 5).await.expect("write");
    file.write_at(b"far", FAR).await.expect("write");
    file.close().await.expect("close");
    client
}

async fn bytes_at(client: &Client, path: &str, offset: u64, length: usize) -> Vec<u8> {
    let file = client.open(&name(path), &OpenOptions::new().read(true)).await.expect("open");
    let mut buffer = vec![0xee; length];
    let read = file.read_at(&mut buffer, offset).await.expect("read");
    buffer.truncate(read);
    buffer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sparse_file_is_checked_rebuilt_cut_and_settled_at_once() {
    let mut cluster = Cluster::start(4).await;
    let client = far_byte(&cluster, "f").await;
    let path = name("f");
    let report = soon("a check", client.check(&path, |_| {})).await.expect("check");
    assert!(report.is_clean() && report.stripes == 2, "{report:?}");

    // The file's drives are rebuilt one after another.
    for index in 0..2 {
        cluster.stop(index).await;
        let file = client.open(&path, &OpenOptions::new().write(true)).await.expect("open");
        file.write_at(b"anew", 5).await.expect("write");
        file.write_at(b"new", FAR).await.expect("write");
        file.close().await.expect("close");
        cluster.restart(index).await;
        cluster.all_up(&client).await;
        let (files, bytes) = soon("a heal", cluster.heal(index)).await;
        assert!(files == 1 && bytes <= 2 * 4096, "{files} files, {bytes} bytes");
    }
    assert_eq!(bytes_at(&client, "f", FAR - 2, 9).await, b"\0\0new");

    // The file's writer disappears: the size is settled, and there is nothing to clear.
    let file = client.open(&path, &OpenOptions::new().write(true)).await.expect("open");
    file.write_at(b"farther", 2 * FAR - 9).await.expect("write");
    drop(file);
    let file = soon("opening it", open_when_free(&client, &path)).await;
    assert_eq!(file.size(), 2 * FAR - 2);

    soon("a cut", file.set_len(7)).await.expect("cut");
    file.set_len(FAR + 3).await.expect("grow");
    file.close().await.expect("close");
    assert_eq!(bytes_at(&client, "f", 5, 4).await, b"an\0\0");
    assert_eq!(bytes_at(&client, "f", FAR, 9).await, b"\0\0\0", "the old bytes are gone");
    assert!(soon("a check", client.check(&path, |_| {})).await.expect("check").is_clean());
    cluster.kill(3);
    assert_eq!(bytes_at(&client, "f", FAR, 9).await, b"\0\0\0", "from the parity too");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_being_written_are_healed_too() {
    let mut cluster = Cluster::start(4).await;
    let client = far_byte(&cluster, "a").await;
    let shape = shape(Scheme::Raid5, 3, 1, 4096);
    let bytes = pattern(4, 50_000);
    let new = pattern(9, 3 * 4096);
    for index in 0..12 {
        put(&client, &name(&format!("f{index}")), shape, &bytes).await;
    }
    cluster.kill(1);
    let mut open = Vec::new();
    for index in 0..12 {
        let path = name(&format!("f{index}"));
        let file = client.open(&path, &OpenOptions::new().write(true)).await.expect("open");
        // A whole stripe: the dead drive's column is taken out.
        file.write_at(&new, 0).await.expect("write");
        // Two of the files stay open, under their leases.
        if index < 2 {
            open.push(file);
        } else {
            file.close().await.expect("close");
        }
    }
    cluster.restart(1).await;
    cluster.all_up(&client).await;
    let (files, _) = soon("a heal", cluster.heal(1)).await;
    assert_eq!(files, 12);
    let mut model = bytes;
    model[..new.len()].copy_from_slice(&new);
    for index in 0..12 {
        let stat = client.stat(&name(&format!("f{index}"))).await.expect("stat");
        assert_eq!(stat.segments[0].set.minus(stat.segments[0].joining).count(), 4, "f{index}");
    }
    for file in open {
        file.write_at(&new[..4096], 0).await.expect("it is still its writer");
        file.close().await.expect("close");
    }
    cluster.kill(2);
    for index in 0..12 {
        let found = read_all(&client, &name(&format!("f{index}"))).await.expect("read");
        assert_same(&found, &model, &format!("f{index} from the healed column"));
    }
}
