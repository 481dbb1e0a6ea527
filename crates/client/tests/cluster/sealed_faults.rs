//! Files of encrypted volumes where something fails, is refused, or is not what it claims to be.

use braid_client::{Client, Config, Error, Kind, Name, OpenOptions};
use braid_layout::{Scheme, Version};
use braid_transport::{ControlSession, Limits};
use braid_wire::Reason;
use braid_wire::control::{Backing, Commit, Cut};

use crate::common::{Cluster, assert_same, open_when_free, pattern, read_all, shape, wait_for};
use crate::raw;
use crate::sealed::{PLAIN, TEXT, at, key_file, length, sealed_cluster, with_key};

fn both() -> OpenOptions {
    OpenOptions::new().read(true).write(true).create(true)
}

fn volume() -> Name {
    "braid://secret".parse().expect("a good name")
}

async fn client_with_key(cluster: &Cluster) -> Client {
    let key = key_file(cluster, "secret.key", 0xa7);
    Client::connect(Config { volume_keys: with_key(cluster, &key).volume_keys, ..cluster.config() })
        .await
        .expect("a client")
}

fn assert_not_encrypted(error: &Error) {
    let said = error.to_string();
    assert!(matches!(error, Error::NotEncrypted { .. }) && error.kind() == Kind::Permission, "{said}");
    assert!(said.contains("volume secret") && said.contains("--volume-key"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_a_key_for_a_volume_reads_and_writes_no_plain_file_there() {
    let (cluster, _key, client) = sealed_cluster(4).await;
    client.open(&at("sealed"), &both()).await.expect("made").close().await.expect("closed");
    client.unlink(&at("sealed")).await.expect("removed");
    client.finish().await;
    // Another volume of the name, as a manager could also only claim.
    let plain = cluster.client().await;
    wait_for(|| async { plain.volume_remove("secret").await.is_ok() }).await;
    plain.volume_create("secret", Some(shape(Scheme::Raid5, 3, 1, 4096)), 0).await.expect("a volume");
    let file = plain.open(&at("f"), &both()).await.expect("made");
    file.write_at(TEXT, 0).await.expect("written");
    file.close().await.expect("closed");
    // One that has had the key, to which only the file's own attributes tell it; and one that asks for it.
    for client in [client, client_with_key(&cluster).await] {
        for options in [both(), OpenOptions::new().read(true)] {
            assert_not_encrypted(&client.open(&at("f"), &options).await.expect_err("it is plain"));
        }
        assert_not_encrypted(&client.create_unnamed("secret", None).await.expect_err("it would be plain"));
        // What drives hold is compared without any key.
        assert!(client.check(&at("f"), |_| {}).await.expect("checked").is_clean());
    }
    let client = client_with_key(&cluster).await;
    assert_not_encrypted(&client.open(&at("new"), &both()).await.expect_err("it would be plain"));
    assert_eq!(plain.list(&volume()).all().await.expect("listed").len(), 1, "nothing was made");
    assert_same(&read_all(&plain, &at("f")).await.expect("read"), TEXT, "without a key");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_that_the_quota_refused_leaves_no_hole_when_it_is_tried_again() {
    const APPEND: usize = 300_000;
    let (_cluster, _key, client) = sealed_cluster(4).await;
    let other = client.open(&at("other"), &both()).await.expect("made");
    other.write_at(&pattern(1, 4 << 20), 0).await.expect("written");
    other.close().await.expect("closed");
    client.set_quota(&volume(), None, 8 << 20, 0).await.expect("set");
    let file = client.open(&at("log"), &both()).await.expect("made");
    let mut model = Vec::new();
    loop {
        let bytes = pattern(length(model.len()), APPEND);
        match file.append(&bytes).await {
            Ok(offset) => assert_eq!(offset, length(model.len())),
            Err(error) => break assert_eq!(error.reason(), Some(Reason::Quota), "{error}"),
        }
        model.extend_from_slice(&bytes);
        assert!(model.len() < 8 << 20, "there is a quota");
    }
    for _ in 0..2 {
        let refused = file.append(&pattern(9, APPEND)).await.expect_err("there is no room");
        assert_eq!(refused.reason(), Some(Reason::Quota), "{refused}");
        assert_eq!(file.reserve(APPEND).await.expect_err("nor for this").reason(), Some(Reason::Quota));
    }
    client.unlink(&at("other")).await.expect("removed");
    let bytes = pattern(7, APPEND);
    assert_eq!(file.append(&bytes).await.expect("there is room"), length(model.len()));
    model.extend_from_slice(&bytes);
    assert_eq!(file.size(), length(model.len()));
    file.close().await.expect("closed");
    assert_same(&read_all(&client, &at("log")).await.expect("read"), &model, "without a hole");
}

#[tokio::test(flavor = "multi_thread")]
async fn places_of_appends_outlast_a_file_that_grows_and_not_one_that_is_cut() {
    let (_cluster, _key, client) = sealed_cluster(4).await;
    let file = client.open(&at("f"), &both()).await.expect("made");
    assert_eq!(file.reserve(10_000).await.expect("a place"), 0);
    file.set_len(5000).await.expect("longer");
    assert_eq!(file.reserve(10).await.expect("a place"), 10_000, "behind what was given before");
    file.write_at(&pattern(1, 10_000), 0).await.expect("written at its place");
    file.set_len(100).await.expect("cut");
    assert_eq!(file.append(b"end").await.expect("appended"), 100);
    file.close().await.expect("closed");
    let expected = [&pattern(1, 10_000)[..100], b"end"].concat();
    assert_same(&read_all(&client, &at("f")).await.expect("read"), &expected, "all of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_that_is_refused_takes_no_byte() {
    let (_cluster, _key, client) = sealed_cluster(4).await;
    let file = client.open(&at("f"), &both()).await.expect("made");
    let bytes = pattern(5, 30_000);
    file.write_at(&bytes, 0).await.expect("written");
    client.set_quota(&volume(), None, 20_000, 0).await.expect("set");
    assert_eq!(file.set_len(25_000).await.expect_err("over the quota").kind(), Kind::NoSpace);
    let mut read = vec![0; bytes.len()];
    assert_eq!(file.read_at(&mut read, 0).await.expect("read"), bytes.len());
    assert_same(&read, &bytes, "as it was");
    file.set_len(15_000).await.expect("cut");
    file.close().await.expect("closed");
    assert_same(&read_all(&client, &at("f")).await.expect("read"), &bytes[..15_000], "cut");
}

/// The writer's process ends between the two halves of a cut: what is left of the last block is not sealed.
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_within_a_block_is_ended_by_who_opens_the_file_next() {
    let (cluster, _key, client) = sealed_cluster(4).await;
    let path = at("f");
    let bytes = pattern(6, 300_000);
    let file = client.open(&path, &both()).await.expect("made");
    file.write_at(&bytes, 0).await.expect("written");
    file.flush().await.expect("committed");
    let token = &cluster.ready.client_token;
    let limits = Limits::default();
    let mut session = ControlSession::connect(&cluster.ready.address, token, &limits).await.expect("connect");
    let blocks = 70_000 / PLAIN;
    let begins = Commit {
        file: file.number(),
        lease: file.lease(),
        holder: file.holder(),
        size: length(blocks * 4096 + 32 + 70_000 % PLAIN),
        order: 100,
        cut: Cut::Begins,
        modified_ns: None,
        backing: Backing::NONE,
    };
    session.call(&begins.into()).await.expect("the first half");
    drop(file);
    wait_for(|| async { client.stat(&path).await.expect("stat").size() == 70_000 }).await;
    assert_same(&read_all(&client, &path).await.expect("read"), &bytes[..70_000], "before it is ended");
    let file = open_when_free(&client, &path).await;
    assert_eq!(file.size(), 70_000, "the size stands");
    file.write_at(b"x", 250_000).await.expect("written");
    file.close().await.expect("closed");
    let mut model = bytes[..70_000].to_vec();
    model.resize(250_000, 0);
    model.push(b'x');
    assert_same(&read_all(&client, &path).await.expect("read"), &model, "cut and grown");
    assert!(client.check(&path, |_| {}).await.expect("checked").is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_of_another_place_does_not_open_whatever_its_drives_say() {
    let (cluster, key, client) = sealed_cluster(4).await;
    let bytes = pattern(8, 12 * PLAIN);
    let file = client.open(&at("f"), &both()).await.expect("made");
    file.write_at(&bytes, 0).await.expect("written");
    file.flush().await.expect("committed");
    let held = raw::grants(&cluster, file.number(), file.lease(), file.holder()).await;
    let first = raw::read_unit(&cluster, &held, 0, 0).await;
    // With three blocks in a stripe, of which each begins a column further, this is the fifth. Its checksums
    // are right, and parity counts it.
    let part = raw::Part { stripe: 1, column: 0, bytes: &first, cover: &[] };
    let stamp = Version { g: held.stat.g, lease: held.lease, n: 1000 };
    raw::write_unit(&cluster, &held, stamp, &part).await.expect("written");
    let other = Client::connect(with_key(&cluster, &key)).await.expect("a client");
    let reader = other.open(&at("f"), &OpenOptions::new().read(true)).await.expect("opened");
    let mut read = vec![0; 4 * PLAIN];
    reader.read_at(&mut read, 0).await.expect("read");
    assert_same(&read, &bytes[..4 * PLAIN], "before it");
    reader.read_at(&mut read, length(5 * PLAIN)).await.expect("read");
    assert_same(&read, &bytes[5 * PLAIN..9 * PLAIN], "behind it");
    let mut some = [0; 10];
    let error = reader.read_at(&mut some, length(4 * PLAIN + 50)).await.expect_err("it is of another place");
    assert!(matches!(error, Error::NotSealed { block: 4, .. }) && error.kind() == Kind::Corrupt, "{error}");
    assert_eq!(some, [0; 10], "no byte of it is returned");
}
