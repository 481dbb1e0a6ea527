//! Tests of bytes and attributes, and of how a store is found.

use std::time::Duration;

use braid_client::OpenOptions;
use braid_object_store::v0_14::object_store::path::Path;
use braid_object_store::v0_14::object_store::{
    Attribute, Attributes, Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt,
};
use braid_object_store::{BraidStoreBuilder, BuildError, v0_13};
use futures_util::{StreamExt, TryStreamExt};

use crate::cluster::{Cluster, name, pattern};

#[tokio::test(flavor = "multi_thread")]
async fn a_long_object_comes_in_bounded_chunks() {
    let cluster = Cluster::start().await;
    let store = cluster.store().await;
    let path = Path::from("long");
    let content = pattern(3, (20 << 20) + 12_345);
    store.put(&path, content.clone().into()).await.expect("put");
    let chunks: Vec<_> =
        store.get(&path).await.expect("there").into_stream().try_collect().await.expect("read");
    assert!(chunks.len() > 2 && chunks.iter().all(|chunk| chunk.len() <= 8 << 20));
    assert!(chunks.concat() == content);
    let from = 5 << 20;
    let to = (19 << 20) + 1;
    let options = GetOptions::new().with_range(Some(GetRange::Bounded(from as u64..to as u64)));
    let part = store.get_opts(&path, options).await.expect("there").bytes().await.expect("read");
    assert!(part == content[from..to]);
    // The ranges are close together, far apart, overlapping, and past the end.
    let end = content.len() as u64;
    let ranges = [10..20, 25..40, 9_000_000..9_100_000, 15..30, end - 5..end + 100];
    let parts = store.get_ranges(&path, &ranges).await.expect("read");
    for (range, part) in ranges.iter().zip(parts) {
        let range =
            usize::try_from(range.start).expect("small")..usize::try_from(range.end.min(end)).expect("small");
        assert!(part == content[range.clone()], "{range:?}");
    }
    assert!(
        store.get_ranges(&path, std::slice::from_ref(&(end..end + 1))).await.is_err(),
        "nothing is there"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_keeps_holes_and_attributes() {
    let cluster = Cluster::start().await;
    let store = cluster.store().await;
    let size = 1_u64 << 40;
    let far = 1_u64 << 39;
    let file = store
        .client()
        .open(&name("sparse"), &OpenOptions::new().write(true).create(true))
        .await
        .expect("open");
    file.write_at(&pattern(1, 3 << 20), 5000).await.expect("written");
    file.write_at(b"far", far).await.expect("written");
    file.set_len(size).await.expect("set");
    file.close().await.expect("closed");
    store.copy(&"sparse".into(), &"d/copy".into()).await.expect("copied");
    let copy = Path::from("d/copy");
    assert_eq!(store.head(&copy).await.expect("there").size, size);
    let ranges = [5000..5000 + (3 << 20), far..far + 3, far + 3..far + 10, size - 10..size];
    let parts = store.get_ranges(&copy, &ranges).await.expect("read");
    assert!(parts[0] == pattern(1, 3 << 20) && parts[1] == "far");
    assert!(parts[2..].iter().all(|part| part.iter().all(|byte| *byte == 0)));

    for size in [10, 2 << 20] {
        let attributes = Attributes::from_iter([
            (Attribute::ContentType, "text/plain"),
            (Attribute::Metadata("origin".into()), "here"),
        ]);
        let from = Path::from(format!("{size}"));
        store.put_opts(&from, pattern(1, size).into(), attributes.clone().into()).await.expect("put");
        let to = Path::from(format!("{size}.copy"));
        store.copy(&from, &to).await.expect("copied");
        assert_eq!(store.get(&to).await.expect("there").attributes, attributes);
        let head = store.get_opts(&to, GetOptions::new().with_head(true)).await.expect("there");
        assert_eq!(head.attributes, attributes);
        store.put(&to, "plain".into()).await.expect("put");
        assert!(store.get(&to).await.expect("there").attributes.is_empty(), "they go with the content");
    }
    let class = Attributes::from_iter([(Attribute::StorageClass, "COLD")]);
    let refused = store.put_opts(&copy, "x".into(), class.into()).await;
    assert!(matches!(refused, Err(Error::NotImplemented { .. })), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_objects_are_deleted_in_order_beside_errors() {
    let cluster = Cluster::start().await;
    let store = cluster.store().await;
    let paths: Vec<_> = (0..600).map(|number| Path::from(format!("many/{}/{number}", number % 7))).collect();
    let putting = paths.iter().map(|path| store.put(path, "x".into()));
    futures_util::stream::iter(putting).buffered(64).try_for_each(async |_| Ok(())).await.expect("put");
    assert_eq!(store.list(None).try_collect::<Vec<_>>().await.expect("listed").len(), 600);
    let mut locations: Vec<_> = paths.iter().cloned().map(Ok).collect();
    locations.insert(300, Ok("many/missing".into()));
    locations.insert(100, Err(Error::NotImplemented { operation: "its".into(), implementer: "own".into() }));
    let results: Vec<_> = store.delete_stream(futures_util::stream::iter(locations).boxed()).collect().await;
    assert!(matches!(results[100], Err(Error::NotImplemented { .. })), "{:?}", results[100]);
    assert!(matches!(&results[301], Err(Error::NotFound { path, .. }) if path == "many/missing"));
    let deleted: Vec<_> = results.into_iter().filter_map(Result::ok).collect();
    assert_eq!(deleted, paths);
    assert!(store.client().list(&name("")).all().await.expect("listed").is_empty(), "no directory is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_is_found_by_its_cluster() {
    let cluster = Cluster::start().await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let find =
        |place: &std::path::Path| BraidStoreBuilder::new().with_cluster(place).with_url("braid://main/sub");
    assert!(matches!(find(dir.path()).build().await, Err(BuildError::NoCluster { .. })));
    std::fs::write(dir.path().join("cluster.toml"), cluster.file()).expect("written");
    let store = find(dir.path()).build().await.expect("found");
    assert_eq!(store.to_string(), "Braid(braid://main/sub)");
    let path = Path::from("object");
    store.put(&path, "x".into()).await.expect("put");
    // A library of the other version sees the same object.
    let whole =
        BraidStoreBuilder::new().with_client(store.client().clone()).with_volume("main").build().await;
    let whole = whole.expect("made");
    let older: &dyn v0_13::object_store::ObjectStore = &whole;
    let found = v0_13::object_store::ObjectStoreExt::get(older, &"sub/object".into()).await.expect("there");
    assert_eq!(found.bytes().await.expect("read"), "x");

    let nobody =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let text = cluster.file().replace(&store.client().config().managers.to_string(), &nobody.to_string());
    std::fs::write(dir.path().join("cluster.toml"), text).expect("written");
    let failed =
        tokio::time::timeout(Duration::from_secs(20), find(dir.path()).build()).await.expect("in time");
    assert!(matches!(failed, Err(BuildError::NoManager { .. })), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_is_missing_has_no_objects() {
    let cluster = Cluster::start().await;
    let store = cluster.store().await;
    let missing = Path::from("missing");
    assert!(matches!(store.get(&missing).await, Err(Error::NotFound { .. })));
    let absent = braid_object_store::BraidStore::new(store.client().clone(), "absent").expect("a good name");
    assert!(matches!(absent.get(&missing).await, Err(Error::NotFound { .. })), "no volume, no object");
    assert!(absent.put(&missing, "x".into()).await.is_err());
}
