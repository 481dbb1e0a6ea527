//! Files compared with a model in memory, for every scheme, on a healthy cluster.

use std::io::SeekFrom;

use crate::common::{Cluster, Random, assert_same, name, pattern, put, read_all, shape};
use braid_client::Client;
use braid_client::File;
use braid_client::Kind;
use braid_client::Name;
use braid_client::OpenOptions;
use braid_client::Parents;
use braid_client::Replace;
use braid_layout::{Scheme, Shape};
use braid_wire::Reason;

/// Runs random reads, writes, truncations and reopens, each compared with a `Vec`.
async fn against_model(scheme: Scheme, k: u8, m: u8, seed: u64) {
    let cluster = Cluster::start(6).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let shape = shape(scheme, k, m, 4096);
    let path = name("model");
    let options = OpenOptions::new().read(true).write(true).create(true).shape(shape);
    let mut file = client.open(&path, &options).await.expect("open");
    let mut model: Vec<u8> = Vec::new();
    let mut random = Random(seed);
    for step in 0..120u64 {
        let context = format!("{shape}, seed {seed}, step {step}");
        match random.below(10) {
            0..=4 => write_some(&file, &mut model, &mut random, &context).await,
            5..=7 => read_some(&file, &model, &mut random, &context).await,
            8 => {
                let size = random.below(300_000);
                file.set_len(size).await.unwrap_or_else(|error| panic!("{context}: {error}"));
                model.resize(usize::try_from(size).expect("small"), 0);
            }
            _ => {
                file.close().await.unwrap_or_else(|error| panic!("{context}: {error}"));
                assert_same(&read_all(&client, &path).await.expect("read"), &model, &context);
                file =
                    client.open(&path, &options).await.unwrap_or_else(|error| panic!("{context}: {error}"));
            }
        }
    }
    file.close().await.expect("close");
    assert_same(&read_all(&client, &path).await.expect("read"), &model, "at the end");
    let report = client.check(&path, |_| {}).await.expect("check");
    assert!(report.is_clean(), "{shape}: {report:?}");
}

async fn write_some(file: &File, model: &mut Vec<u8>, random: &mut Random, context: &str) {
    let offset = usize::try_from(random.below(200_000)).expect("small");
    let length = match random.below(3) {
        0 => random.below(5000),
        1 => random.below(40_000),
        _ => random.below(150_000),
    };
    let bytes = pattern(random.draw(), usize::try_from(length).expect("small"));
    let at = u64::try_from(offset).expect("small");
    file.write_at(&bytes, at).await.unwrap_or_else(|error| panic!("{context}: {error}"));
    if !bytes.is_empty() {
        model.resize(model.len().max(offset + bytes.len()), 0);
        model[offset..offset + bytes.len()].copy_from_slice(&bytes);
    }
}

async fn read_some(file: &File, model: &[u8], random: &mut Random, context: &str) {
    let offset = usize::try_from(random.below(320_000)).expect("small");
    let mut bytes = vec![0xee; usize::try_from(random.below(200_000)).expect("small")];
    let at = u64::try_from(offset).expect("small");
    let read = file.read_at(&mut bytes, at).await.unwrap_or_else(|error| panic!("{context}: {error}"));
    let expected = model.get(offset..).unwrap_or_default();
    let expected = &expected[..expected.len().min(bytes.len())];
    assert_same(&bytes[..read], expected, &format!("{context}, read at {offset}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn raid5_is_like_a_file() {
    against_model(Scheme::Raid5, 4, 1, 11).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rs_is_like_a_file() {
    against_model(Scheme::Rs, 4, 2, 12).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn raid1_is_like_a_file() {
    against_model(Scheme::Raid1, 1, 2, 13).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn raid0_is_like_a_file() {
    against_model(Scheme::Raid0, 5, 0, 14).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn raid4_is_like_a_file() {
    against_model(Scheme::Raid4, 3, 1, 15).await;
}

async fn one_file() -> (Cluster, Client, Shape) {
    let cluster = Cluster::start(5).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    (cluster, client, shape(Scheme::Raid5, 4, 1, 4096))
}

#[tokio::test(flavor = "multi_thread")]
async fn positions_append_and_the_end() {
    let (_cluster, client, shape) = one_file().await;
    let path = name("f");
    let options = OpenOptions::new().read(true).write(true).create(true).shape(shape);
    let mut file = client.open(&path, &options).await.expect("open");
    file.write(b"hello ").await.expect("write");
    file.write(b"world").await.expect("write");
    assert_eq!(file.seek(SeekFrom::Start(6)).expect("seek"), 6);
    let mut buffer = [0; 64];
    assert_eq!(file.read(&mut buffer).await.expect("read"), 5);
    assert_eq!(&buffer[..5], b"world");
    assert_eq!(file.read(&mut buffer).await.expect("read at the end"), 0);
    assert_eq!(file.read_at(&mut buffer, u64::MAX).await.expect("read far past the end"), 0);
    assert_eq!(file.read_at(&mut [], 0).await.expect("read nothing"), 0);
    file.write_at(&[], 1 << 40).await.expect("write nothing");
    assert_eq!(file.size(), 11);
    // Past the end, so that there is a hole in between.
    assert_eq!(file.seek(SeekFrom::End(100_000)).expect("seek"), 100_011);
    file.write(b"!").await.expect("write");
    assert_eq!(file.size(), 100_012);
    assert_eq!(file.seek(SeekFrom::Current(-1_000_000)).expect_err("before the start").kind(), Kind::Usage);
    let refused = file.write_at(b"x", u64::MAX).await.expect_err("past the largest offset");
    assert_eq!(refused.kind(), Kind::Usage);
    assert_eq!(file.set_len(u64::MAX).await.expect_err("too large").kind(), Kind::Usage);
    file.close().await.expect("close");

    let mut log = client.open(&path, &OpenOptions::new().append(true)).await.expect("open to append");
    assert_eq!(log.read(&mut buffer).await.expect_err("not for reading").kind(), Kind::Usage);
    log.write(b"more").await.expect("append");
    log.close().await.expect("close");
    let mut expected = b"hello world".to_vec();
    expected.resize(100_011, 0);
    expected.extend_from_slice(b"!more");
    assert_same(&read_all(&client, &path).await.expect("read"), &expected, "after appending");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_writers_of_one_handle_and_many_files_at_once() {
    let (_cluster, client, shape) = one_file().await;
    let options = OpenOptions::new().read(true).write(true).create(true).shape(shape);
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..4u64 {
        let client = client.clone();
        let options = options.clone();
        tasks.spawn(async move {
            let path = name(&format!("f{index}"));
            let file = std::sync::Arc::new(client.open(&path, &options).await.expect("open"));
            // Records of 3000 bytes: many share a stripe, and a unit.
            let mut writes = tokio::task::JoinSet::new();
            for record in 0..40u64 {
                let file = std::sync::Arc::clone(&file);
                writes.spawn(async move {
                    file.write_at(&pattern(index * 1000 + record, 3000), record * 3000).await.expect("write");
                });
            }
            while let Some(done) = writes.join_next().await {
                done.expect("a write");
            }
            std::sync::Arc::try_unwrap(file).expect("all writes are done").close().await.expect("close");
            let expected: Vec<u8> = (0..40).flat_map(|record| pattern(index * 1000 + record, 3000)).collect();
            assert_same(&read_all(&client, &path).await.expect("read"), &expected, "all records");
            assert!(client.check(&path, |_| {}).await.expect("check").is_clean());
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("a file");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_listing_and_unnamed_files() {
    let (_cluster, client, shape) = one_file().await;
    client.mkdir(&name("a/b"), Parents::Make).await.expect("mkdir");
    assert_eq!(
        client.mkdir(&name("a"), Parents::MustExist).await.expect_err("it is there").kind(),
        Kind::Exists
    );
    let unnamed = client.create_unnamed("main", Some(shape)).await.expect("create");
    let bytes = pattern(5, 50_000);
    unnamed.write_at(&bytes, 0).await.expect("write");
    unnamed.link(&name("a/b/c"), Replace::No).await.expect("link");
    unnamed.close().await.expect("close");
    assert_same(&read_all(&client, &name("a/b/c")).await.expect("read"), &bytes, "linked");
    client.rename(&name("a/b/c"), &name("a/d")).await.expect("rename");
    let entries = client.list(&name("a")).all().await.expect("list");
    let names: Vec<&[u8]> = entries.iter().map(|entry| entry.name.as_slice()).collect();
    assert_eq!(names, [b"b".as_slice(), b"d"]);
    assert_eq!(client.unlink(&name("nothing")).await.expect_err("not there").kind(), Kind::NotFound);
    client.unlink(&name("a/d")).await.expect("unlink");
    let gone = client.open(&name("a/d"), &OpenOptions::new().read(true)).await.expect_err("gone");
    assert_eq!(gone.kind(), Kind::NotFound);
    let again = OpenOptions::new().write(true).create_new(true);
    let file = client.open(&name("e"), &again).await.expect("create");
    file.close().await.expect("close");
    assert_eq!(client.open(&name("e"), &again).await.expect_err("it is there").kind(), Kind::Exists);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_writer_and_readers_are_admitted_beside_the_first() {
    let (_cluster, client, shape) = one_file().await;
    let path = name("f");
    put(&client, &path, shape, b"first").await;
    let writing = OpenOptions::new().write(true);
    let first = client.open(&path, &writing).await.expect("open");
    let second = client.open(&path, &writing).await.expect("it is shared");
    assert_ne!(first.holder(), second.holder());
    second.close().await.expect("close");
    assert_same(&read_all(&client, &path).await.expect("read"), b"first", "beside a writer");
    first.close().await.expect("close");
    client.open(&path, &writing).await.expect("it is free").close().await.expect("close");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_shown_for_any_drives_down() {
    let (cluster, client, shape) = one_file().await;
    let path = name("f");
    put(&client, &path, shape, &pattern(1, 200_000)).await;
    let down = [cluster.drives[0].name.clone()];
    let healthy = client.plan(&path, braid_client::Asked::Read, 0..100_000, &[]).await.expect("a plan");
    let degraded = client.plan(&path, braid_client::Asked::Read, 0..100_000, &down).await.expect("a plan");
    assert!(healthy[0].set.arithmetic.is_empty() && !degraded[0].set.arithmetic.is_empty());
    assert!(!degraded[0].text.is_empty());
    let unknown = client.plan(&path, braid_client::Asked::Write, 0..10, &["nobody".to_owned()]).await;
    assert_eq!(unknown.expect_err("no such drive").kind(), Kind::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_written_over_has_a_new_time() {
    let cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let path = name("f");
    put(&client, &path, shape(Scheme::Raid5, 2, 1, 4096), &pattern(1, 1000)).await;
    let time = || async { client.stat(&path).await.expect("stat").attributes.modified_ns };
    let before = time().await;
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    let file = client.open(&path, &OpenOptions::new().write(true)).await.expect("open");
    file.write_at(b"over", 100).await.expect("write");
    file.close().await.expect("close");
    let after = time().await;
    assert!(after > before, "{before} {after}");
    // Opening alone changes nothing.
    client.open(&path, &OpenOptions::new().write(true)).await.expect("open").close().await.expect("close");
    assert_eq!(time().await, after);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_leads_to_a_file_whatever_its_name_becomes() {
    let cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let bytes = pattern(3, 10_000);
    client.mkdir(&name("d"), Parents::MustExist).await.expect("made");
    put(&client, &name("d/f"), shape(Scheme::Raid5, 2, 1, 4096), &bytes).await;
    let numbered = |row: &braid_wire::control::StatRow| Name::number("main", row.file).expect("a name");
    let directory = numbered(&client.stat(&name("d")).await.expect("stat"));
    let file = numbered(&client.stat(&name("d/f")).await.expect("stat"));
    client.rename(&directory.join(b"f").expect("a name"), &name("g")).await.expect("renamed");
    assert_eq!(read_all(&client, &file).await.expect("read"), bytes);
    let listed = client.list(&directory).all().await.expect("listed");
    assert!(listed.is_empty(), "{listed:?}");
    let again = directory.join(b"again").expect("a name");
    put(&client, &again, shape(Scheme::Raid5, 2, 1, 4096), &bytes).await;
    assert_eq!(read_all(&client, &name("d/again")).await.expect("read"), bytes);
    assert!(again.to_string().starts_with("braid://main/"), "{again}");
    client.unlink(&again).await.expect("removed");
    let gone = client.unlink(&file).await.expect_err("a number is no name");
    assert_eq!(gone.reason(), Some(Reason::BadName), "{gone}");
    client.unlink(&name("g")).await.expect("removed");
    let gone = client.stat(&file).await.expect_err("it is removed");
    assert_eq!(gone.reason(), Some(Reason::NotFound), "{gone}");
}
