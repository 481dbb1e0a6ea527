//! Uploads in parts: an upload that is not completed leaves nothing, and parts may be of any size.

use braid_object_store::BraidStore;
use braid_object_store::v0_14::object_store::path::Path;
use braid_object_store::v0_14::object_store::{Error, ObjectStoreExt, PutPayload};
use bytes::Bytes;

use crate::cluster::{Cluster, pattern, wait_for};

/// Number of bytes that files have on drives, with a name or without.
async fn stored_bytes(store: &BraidStore) -> u64 {
    let status = store.client().status().await.expect("status");
    status.drives.iter().map(|drive| drive.live_bytes).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_aborted_or_dropped_leaves_nothing() {
    let cluster = Cluster::start().await;
    let store = cluster.store().await;
    let empty = stored_bytes(&store).await;
    for aborts in [true, false] {
        let mut upload = store.put_multipart(&Path::from("a/b")).await.expect("begun");
        upload.put_part(pattern(1, 3 << 20).into()).await.expect("written");
        wait_for(|| async { stored_bytes(&store).await > empty + (3 << 20) }).await;
        if aborts {
            upload.abort().await.expect("aborted");
            let late = upload.complete().await.expect_err("it is over");
            assert!(late.to_string().contains("completed or aborted before"), "{late}");
        } else {
            drop(upload);
        }
        // But for the catalogue of names, which each change makes a little longer.
        wait_for(|| async { stored_bytes(&store).await < empty + (1 << 20) }).await;
        let level = store.client().list(&crate::cluster::name("")).all().await.expect("listed");
        assert!(level.is_empty(), "not even a directory: {level:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_any_sizes_make_one_object() {
    let cluster = Cluster::start().await;
    let store = cluster.store().await;
    let sizes = [1, 5 << 20, 0, 4096, (3 << 20) + 7, 1, 70_000];
    let parts: Vec<Bytes> = (0..).zip(sizes).map(|(seed, size)| pattern(seed, size)).collect();
    let mut upload = store.put_multipart(&Path::from("odd")).await.expect("begun");
    // A part may itself be of many pieces.
    let writing: Vec<_> = parts
        .iter()
        .map(|part| upload.put_part(part.chunks(999_983).map(Bytes::copy_from_slice).collect()))
        .collect();
    for part in writing.into_iter().rev() {
        part.await.expect("written");
    }
    let result = upload.complete().await.expect("completed");
    let found = store.get(&Path::from("odd")).await.expect("there");
    assert_eq!(found.meta.e_tag, result.e_tag);
    assert!(found.bytes().await.expect("read") == parts.concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lacks_a_part_is_not_completed() {
    let cluster = Cluster::start().await;
    let store = cluster.store().await;
    let path = Path::from("part");
    let mut upload = store.put_multipart(&path).await.expect("begun");
    let first = upload.put_part("first".into());
    upload.put_part(", second".into()).await.expect("written");
    let refused = upload.complete().await.expect_err("the first is not written");
    assert!(refused.to_string().contains("1 of the upload's 2 parts"), "{refused}");
    assert!(matches!(store.head(&path).await, Err(Error::NotFound { .. })));
    first.await.expect("written");
    upload.complete().await.expect("completed");
    assert_eq!(store.get(&path).await.expect("there").bytes().await.expect("read"), "first, second");
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_of_many_pieces_are_written_in_order() {
    let cluster = Cluster::start().await;
    let store = cluster.store().await;
    // Some pieces are gathered, and one is longer than the gathered ones together may be.
    let sizes = [10, 1 << 20, 17 << 20, 5, 3 << 20, 1];
    let pieces: Vec<Bytes> = (0..).zip(sizes).map(|(seed, size)| pattern(seed, size)).collect();
    let payload: PutPayload = pieces.iter().cloned().collect();
    store.put(&Path::from("a/large"), payload).await.expect("put");
    let found = store.get(&Path::from("a/large")).await.expect("there").bytes().await.expect("read");
    assert!(found == pieces.concat());
}
