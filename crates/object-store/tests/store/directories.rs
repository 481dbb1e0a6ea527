//! Features of a file system that an object store does not have: directories, symbolic links, special
//! files, names that are not text, several names of one file.

use braid_client::Name;
use braid_client::NewAttributes;
use braid_client::Node;
use braid_client::Parents;
use braid_object_store::BraidStore;
use braid_object_store::v0_14::object_store::path::Path;
use braid_object_store::v0_14::object_store::{Error, ObjectStore, ObjectStoreExt};
use futures_util::TryStreamExt;

use crate::cluster::{Cluster, name, write_file};

async fn listed(store: &BraidStore, prefix: &str) -> Vec<String> {
    let found: Vec<_> = store.list(Some(&prefix.into())).try_collect().await.expect("listed");
    found.into_iter().map(|meta| meta.location.to_string()).collect()
}

async fn is_there(store: &BraidStore, path: &str) -> bool {
    store.client().stat_itself(&name(path)).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_that_become_empty_go_unless_they_are_to_stay() {
    let cluster = Cluster::start().await;
    let store = cluster.store().await;
    let object = Path::from("a/b/c/object");
    for path in ["a/beside", "a/b/c/object"] {
        store.put(&path.into(), "x".into()).await.expect("put");
    }
    store.delete(&object).await.expect("deleted");
    assert!(!is_there(&store, "a/b").await && is_there(&store, "a/beside").await);
    store.put(&object, "x".into()).await.expect("put");
    store.rename(&object, &"a/other".into()).await.expect("renamed");
    assert!(!is_there(&store, "a/b").await);
    let level = store.list_with_delimiter(None).await.expect("listed");
    assert_eq!(level.common_prefixes, [Path::from("a")]);

    let keeping = store.clone().with_automatic_cleanup(false);
    keeping.put(&object, "x".into()).await.expect("put");
    keeping.delete(&object).await.expect("deleted");
    assert!(is_there(&store, "a/b/c").await);
    assert_eq!(listed(&store, "").await, ["a/beside", "a/other"], "a directory is no object");

    // The root of the store stays, even if it is empty.
    let below = cluster.store().await.with_prefix("a/b/c").expect("a good prefix");
    below.put(&"d/object".into(), "x".into()).await.expect("put");
    below.delete(&"d/object".into()).await.expect("deleted");
    assert!(is_there(&store, "a/b/c").await && !is_there(&store, "a/b/c/d").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_no_object_and_an_empty_one_makes_way() {
    let cluster = Cluster::start().await;
    let store = cluster.store().await;
    store.put(&"d/object".into(), "x".into()).await.expect("put");
    let directory = Path::from("d");
    let other = Path::from("other");
    assert!(matches!(store.get(&directory).await, Err(Error::NotFound { .. })));
    assert!(matches!(store.delete(&directory).await, Err(Error::NotFound { .. })));
    assert!(matches!(store.rename(&directory, &other).await, Err(Error::NotFound { .. })));
    assert!(matches!(store.copy(&directory, &other).await, Err(Error::NotFound { .. })));
    assert!(matches!(store.get(&"d/object/below".into()).await, Err(Error::NotFound { .. })));
    // A file system cannot have both an object and a directory of the same name.
    for path in ["d", "d/object/below"] {
        let refused = store.put(&path.into(), "x".into()).await.expect_err("a file system has only one");
        assert!(matches!(refused, Error::Generic { .. }), "{refused:?}");
    }
    assert_eq!(listed(&store, "").await, ["d/object"]);
    for content in ["small".to_owned(), "large".repeat(1 << 19)] {
        store.client().mkdir(&name("empty/er"), Parents::Make).await.expect("made");
        let path = Path::from("empty/er");
        store.put(&path, content.clone().into()).await.expect("put");
        assert!(store.get(&path).await.expect("there").bytes().await.expect("read") == content);
        store.delete(&path).await.expect("deleted");
        store.client().mkdir(&name("empty/er"), Parents::Make).await.expect("made");
        store.rename(&"d/object".into(), &path).await.expect("renamed");
        store.rename(&path, &"d/object".into()).await.expect("renamed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn symbolic_links_are_what_they_lead_to() {
    let cluster = Cluster::start().await;
    let store = cluster.store().await;
    store.put(&"d/object".into(), "content".into()).await.expect("put");
    let client = store.client();
    for (target, link) in [("d/object", "file"), ("d", "directory"), ("nothing", "broken")] {
        client.symlink(target.as_bytes(), &name(link)).await.expect("linked");
    }
    let new = NewAttributes { mode: 0o644, uid: 0, gid: 0 };
    client.make_node(&name("fifo"), Node::Fifo, new).await.expect("made");
    assert_eq!(listed(&store, "").await, ["d/object", "file"]);
    let level = store.list_with_delimiter(None).await.expect("listed");
    let found: Vec<_> = level.objects.iter().map(|meta| (meta.location.as_ref(), meta.size)).collect();
    assert_eq!((found, level.common_prefixes), (vec![("file", 7)], vec![Path::from("d")]));
    for path in ["file", "directory/object"] {
        assert_eq!(store.get(&path.into()).await.expect("there").bytes().await.expect("read"), "content");
    }
    for path in ["broken", "fifo", "directory"] {
        assert!(matches!(store.get(&path.into()).await, Err(Error::NotFound { .. })), "{path}");
        assert!(matches!(store.head(&path.into()).await, Err(Error::NotFound { .. })), "{path}");
    }
    // An object replaces the link itself, and not the file that it leads to.
    store.put(&"file".into(), "new".into()).await.expect("put");
    assert_eq!(store.get(&"d/object".into()).await.expect("there").bytes().await.expect("read"), "content");
    store.rename(&"broken".into(), &"moved".into()).await.expect("a link may be renamed");
    store.delete(&"moved".into()).await.expect("a link may be deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_no_path_can_have_are_not_listed() {
    let cluster = Cluster::start().await;
    let store = cluster.store().await;
    for odd in [&b"not\xffutf8"[..], b"line\nfeed"] {
        let odd = Name::new("main", odd).expect("a good name");
        let file = store.client().create_unnamed("main", None).await.expect("made");
        file.link(&odd, braid_client::Replace::No).await.expect("named");
        file.close().await.expect("closed");
    }
    let odd = Name::new("main", b"directory\xff").expect("a good name");
    store.client().mkdir(&odd, Parents::MustExist).await.expect("made");
    let good = ["100%", "a b", "a+b", "b~", "\u{1f600}"];
    for path in good {
        store.put(&Path::parse(path).expect("a path"), "x".into()).await.expect("put");
        assert!(is_there(&store, path).await, "{path} is the file's name as it is");
    }
    assert_eq!(listed(&store, "").await, good);
    assert_eq!(store.list_with_delimiter(None).await.expect("listed").objects.len(), good.len());
    let long = Path::from("x".repeat(256));
    assert!(matches!(store.put(&long, "x".into()).await, Err(Error::Generic { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn other_names_of_a_file_are_other_objects() {
    let cluster = Cluster::start().await;
    let store = cluster.store().await;
    write_file(store.client(), "one", b"content").await.close().await.expect("closed");
    store.client().hard_link(&name("one"), &name("two")).await.expect("linked");
    store.rename(&"one".into(), &"two".into()).await.expect("renamed");
    assert_eq!(listed(&store, "").await, ["two"]);
    // A copy is a file of its own.
    store.copy(&"two".into(), &"three".into()).await.expect("copied");
    write_file(store.client(), "two", b"changed").await.close().await.expect("closed");
    assert_eq!(store.get(&"three".into()).await.expect("there").bytes().await.expect("read"), "content");
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_come_in_the_order_of_paths_and_begin_anywhere() {
    let cluster = Cluster::start().await;
    let store = cluster.store().await;
    // '!' and ' ' come before '/', '0' after it.
    let mut paths = vec!["a", "a!/x", "a /x", "a/b/c", "a/b!", "a0", "b/a/a", "b/a.x", "b/a0/a", "c"];
    paths.retain(|path| *path != "a");
    for path in &paths {
        store.put(&Path::parse(path).expect("a path"), "x".into()).await.expect("put");
    }
    paths.sort_unstable();
    assert_eq!(listed(&store, "").await, paths);
    for (index, after) in paths.iter().enumerate() {
        let rest = store.list_with_offset(None, &Path::parse(after).expect("a path"));
        let rest: Vec<_> = rest.map_ok(|meta| meta.location.to_string()).try_collect().await.expect("listed");
        assert_eq!(rest, paths[index + 1..], "after {after}");
    }
}
