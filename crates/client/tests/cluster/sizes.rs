//! Sizes that are set or refused while several handles may write a file.

use crate::common::{Cluster, assert_same, name, pattern, put};
use crate::shared::{both, cluster, is, raid5, writers};

/// Also one that has not heard yet that another has joined cuts what the other has committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_size_that_is_set_is_so_whatever_another_committed_before() {
    let (cluster, client) = cluster(5).await;
    let path = name("f");
    put(&client, &path, raid5(), &[]).await;
    let files = writers(&cluster, &path, 2).await;
    let (one, other) = (&files[0], &files[1]);
    other.write_at(&[2; 9000], 0).await.expect("write");
    other.flush().await.expect("flush");
    one.set_len(5000).await.expect("cut");
    assert_eq!((one.size(), client.stat(&path).await.expect("stat").size()), (5000, 5000));
    for file in files {
        file.close().await.expect("close");
    }
    is(&client, &path, &[2; 5000], "in the end").await;
}

/// A writer takes back what is its own, and nothing where others write too.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_quota_refuses_is_taken_back_but_not_from_others() {
    let cluster = Cluster::start(5).await;
    let client = cluster.client().await;
    client.volume_create("main", Some(raid5()), 50_000).await.expect("a volume");
    let path = name("f");
    put(&client, &path, raid5(), &pattern(1, 20_000)).await;
    let one = client.open(&path, &both()).await.expect("open");
    one.write_at(&[7; 60_000], 10_000).await.expect("write");
    let refused = one.flush().await.expect_err("it does not fit");
    assert!(refused.to_string().contains("quota"), "{refused}");
    assert!(one.withdraw().await.expect("taken back"));
    assert_eq!(one.size(), 20_000);
    one.set_len(30_000).await.expect("it fits");
    let mut model = pattern(1, 20_000);
    model[10_000..].fill(7);
    model.resize(30_000, 0);
    // A close does it too, and what is refused is there at no time.
    one.write_at(&[8; 60_000], 10_000).await.expect("write");
    assert!(one.close().await.is_err());
    model[10_000..].fill(8);
    is(&client, &path, &model, "after a close that was refused").await;
    // Others' bytes are left alone.
    let files = writers(&cluster, &path, 2).await;
    let (one, other) = (&files[0], &files[1]);
    one.write_at(&[9; 30_000], 40_000).await.expect("write");
    assert!(one.flush().await.is_err());
    other.write_at(&[3; 10_000], 30_000).await.expect("write");
    assert!(!one.withdraw().await.expect("asked"));
    other.flush().await.expect("it fits");
    let mut bytes = vec![0; 10_000];
    assert_eq!(other.read_at(&mut bytes, 30_000).await.expect("read"), 10_000);
    assert_same(&bytes, &[3; 10_000], "what the other was told is kept");
}
