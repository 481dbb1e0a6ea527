//! Objects of a snapshot: read as they were, and never changed.

use braid_client::{Buffered, Name};
use braid_object_store::v0_14::object_store::path::Path;
use braid_object_store::v0_14::object_store::{
    Attribute, Attributes, Error, ObjectStore, ObjectStoreExt, PutOptions,
};
use braid_object_store::{BraidStore, BraidStoreBuilder};
use futures_util::TryStreamExt;

use crate::cluster::{Cluster, pattern};

async fn listed(store: &BraidStore) -> Vec<String> {
    let all: Vec<_> = store.list(None).try_collect().await.expect("listed");
    all.into_iter().map(|meta| meta.location.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_a_snapshot_shows_what_was_and_refuses_changes() {
    let cluster = Cluster::start().await;
    let store = cluster.store().await;
    let content = pattern(1, (3 << 20) + 7);
    let attributes = Attributes::from_iter([(Attribute::ContentType, "text/plain")]);
    let options = PutOptions { attributes: attributes.clone(), ..PutOptions::default() };
    store.put_opts(&"d/a".into(), content.clone().into(), options).await.expect("put");
    store.put(&"b".into(), "b".into()).await.expect("put");
    let root = Name::root("main").expect("good");
    store.client().make_snapshot(&root, "s", Buffered::LeftOut).await.expect("made");
    store.put(&"d/a".into(), "other".into()).await.expect("put");
    store.put(&"new".into(), "new".into()).await.expect("put");
    store.delete(&"b".into()).await.expect("deleted");

    let client = store.client().clone();
    let built = BraidStoreBuilder::new().with_client(client.clone()).with_url("braid://main@s").build().await;
    let past = built.expect("a store");
    assert_eq!(listed(&past).await, ["b", "d/a"]);
    let level = past.list_with_delimiter(None).await.expect("listed");
    assert_eq!((level.objects.len(), level.common_prefixes.len()), (1, 1));
    let got = past.get(&"d/a".into()).await.expect("there");
    assert_eq!((got.meta.size, &got.attributes), (content.len() as u64, &attributes));
    assert!(got.bytes().await.expect("read") == content);
    assert!(past.get_range(&"d/a".into(), 100..4000).await.expect("read") == content[100..4000]);
    assert_eq!(past.head(&"b".into()).await.expect("there").size, 1);
    let missing = past.get(&"new".into()).await;
    assert!(matches!(missing, Err(Error::NotFound { .. })), "{missing:?}");
    assert_eq!(store.get(&"d/a".into()).await.expect("there").bytes().await.expect("read"), "other");
    let below = store.clone().with_snapshot("s").and_then(|store| store.with_prefix("d")).expect("a store");
    assert_eq!(listed(&below).await, ["a"]);

    let path = Path::from("x");
    let a = Path::from("d/a");
    let refused = [
        past.put(&path, "x".into()).await.map(drop),
        past.delete(&a).await,
        past.copy(&a, &path).await,
        past.rename(&a, &path).await,
        past.put_multipart(&path).await.map(drop),
    ];
    for refused in refused {
        let Err(Error::PermissionDenied { source, .. }) = &refused else { panic!("{refused:?}") };
        assert!(source.to_string().contains("is in a snapshot"), "{source}");
    }
    let gone = store.with_snapshot("t").expect("a name").get(&a).await;
    assert!(matches!(gone, Err(Error::NotFound { .. })), "{gone:?}");
}
