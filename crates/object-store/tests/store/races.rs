//! Several requests at once: contents appear whole, one writer wins, and objects are replaced while they
//! are read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use braid_client::AttributeChanges;
use braid_client::Name;
use braid_object_store::v0_14::object_store::path::Path;
use braid_object_store::v0_14::object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, UpdateVersion};
use futures_util::{StreamExt, TryStreamExt};
use tokio::task::JoinSet;

use crate::cluster::{Cluster, name, pattern, write_file};

/// Lengths of the contents that replace each other. They differ, so a reader can tell by the length which
/// content it sees.
const SIZES: [usize; 2] = [100_000, 3 << 20];

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_beside_overwrites_sees_one_content_whole() {
    let cluster = Cluster::start().await;
    let writer = cluster.store().await;
    let reader = cluster.store().await;
    let contents = [pattern(1, SIZES[0]), pattern(2, SIZES[1])];
    let path = Path::from("d/object");
    writer.put(&path, contents[0].clone().into()).await.expect("put");
    let ended = Arc::new(AtomicBool::new(false));
    let reading = {
        let ended = Arc::clone(&ended);
        let contents = contents.clone();
        let path = path.clone();
        tokio::spawn(async move {
            let mut seen = [0; 2];
            while !ended.load(Ordering::Acquire) || seen.contains(&0) {
                let found = reader.get(&path).await.expect("there is always one");
                let size = found.meta.size;
                let bytes = found.bytes().await.expect("read");
                let which = usize::from(bytes.len() == SIZES[1]);
                assert!(bytes == contents[which], "neither the old nor the new content");
                assert_eq!(size, u64::try_from(bytes.len()).expect("small"));
                seen[which] += 1;
            }
        })
    };
    for round in 0..40 {
        writer.put(&path, contents[(round + 1) % 2].clone().into()).await.expect("put");
    }
    ended.store(true, Ordering::Release);
    // The reader must see both contents. The last one is in place, so the other one is written once more.
    while !reading.is_finished() {
        for content in &contents {
            writer.put(&path, content.clone().into()).await.expect("put");
        }
    }
    reading.await.expect("no reader failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_those_that_create_an_object_one_succeeds() {
    let cluster = Cluster::start().await;
    let stores = [cluster.store().await, cluster.store().await];
    for round in 0..5 {
        let path = Path::from(format!("new/{round}/object"));
        let mut creating = JoinSet::new();
        for number in 0..8_u8 {
            let store = stores[usize::from(number % 2)].clone();
            let path = path.clone();
            // Half of the objects are large: those are named by another request.
            let length = if number % 4 < 2 { 1000 } else { 2 << 20 };
            let content = vec![number; length];
            creating.spawn(async move {
                (number, store.put_opts(&path, content.into(), PutMode::Create.into()).await)
            });
        }
        let mut winner = None;
        for (number, created) in creating.join_all().await {
            match created {
                Ok(_) => assert_eq!(winner.replace(number), None, "two of them"),
                Err(Error::AlreadyExists { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        let found = stores[0].get(&path).await.expect("there").bytes().await.expect("read");
        assert_eq!(Some(found[0]), winner);
        assert!(found.iter().all(|byte| *byte == found[0]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_sees_every_change_also_by_other_programs() {
    let cluster = Cluster::start().await;
    let store = cluster.store().await;
    let path = Path::from("object");
    let update = |e_tag: &Option<String>| {
        let mode = PutMode::Update(UpdateVersion { e_tag: e_tag.clone(), version: None });
        let store = store.clone();
        let path = path.clone();
        async move { store.put_opts(&path, "updated".into(), mode.into()).await }
    };
    let first = store.put(&path, "first".into()).await.expect("put").e_tag;
    // The new content has the same size and the same time of modification.
    let before = store.head(&path).await.expect("there");
    let file = write_file(store.client(), "object", b"other").await;
    file.close().await.expect("closed");
    let modified_ns = before.last_modified.timestamp_nanos_opt();
    let changes = AttributeChanges { modified_ns, ..AttributeChanges::NONE };
    store.client().set_attributes(&name("object"), changes).await.expect("set");
    let after = store.head(&path).await.expect("there");
    assert_eq!((after.size, after.last_modified), (before.size, before.last_modified));
    assert_ne!(after.e_tag, first);
    assert!(matches!(update(&first).await, Err(Error::Precondition { .. })));
    update(&after.e_tag).await.expect("nothing has changed since");
    for no_tag in [None, Some("abc".to_owned())] {
        assert!(matches!(update(&no_tag).await, Err(Error::Precondition { .. })), "{no_tag:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_object_that_is_replaced_while_it_is_read_is_no_mixture() {
    let cluster = Cluster::start().await;
    let store = cluster.store().await;
    let path = Path::from("long");
    let old = pattern(1, 40 << 20);
    store.put(&path, old.clone().into()).await.expect("put");
    let mut stream = store.get(&path).await.expect("there").into_stream();
    let mut read = stream.next().await.expect("more").expect("read").to_vec();
    store.put(&path, pattern(2, 40 << 20).into()).await.expect("put");
    // The stream gives the old content to its end, or an error says that the object is gone.
    while let Some(chunk) = stream.next().await {
        match chunk {
            Ok(chunk) => read.extend_from_slice(&chunk),
            Err(Error::NotFound { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(old.starts_with(&read));
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_come_and_go_in_a_directory_that_others_empty() {
    let cluster = Cluster::start().await;
    let stores = [cluster.store().await, cluster.store().await];
    let mut working = JoinSet::new();
    for number in 0..8 {
        let store = stores[number % 2].clone();
        working.spawn(async move {
            let path = Path::from(format!("deep/er/{number}"));
            for _ in 0..15 {
                store.put(&path, "x".into()).await.expect("its directory is made again");
                store.delete(&path).await.expect("deleted");
            }
        });
    }
    working.join_all().await;
    assert_eq!(stores[0].list(None).try_collect::<Vec<_>>().await.expect("listed"), []);
    let root: Name = name("");
    assert!(stores[0].client().list(&root).all().await.expect("listed").is_empty(), "directories are gone");
}
