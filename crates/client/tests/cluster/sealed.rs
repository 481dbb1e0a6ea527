//! Files of encrypted volumes: as any file to who has the key, and to nobody else.

use std::fs::Permissions;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use braid_client::{
    Buffered, Client, Config, Error, File, KeyError, KeySource, Kind, Name, OpenOptions, Parents, TokenSpec,
    VolumeKeys,
};
use braid_layout::Scheme;
use braid_wire::Reason;
use braid_wire::capability::Protection;
use braid_wire::token::TokenRole;

use crate::common::{Cluster, Random, assert_same, pattern, read_all, shape, wait_for};

/// Bytes of the file in a block.
pub(crate) const PLAIN: usize = 4064;
/// Content that is found again if it is stored as it is.
pub(crate) const TEXT: &[u8] = b"what nobody but the client may ever read";

pub(crate) fn at(path: &str) -> Name {
    format!("braid://secret/{path}").parse().expect("a good name")
}

pub(crate) fn key_file(cluster: &Cluster, name: &str, byte: u8) -> PathBuf {
    let path = cluster.dir.path().join(name);
    std::fs::write(&path, [byte; 32]).expect("written");
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("set");
    path
}

pub(crate) fn with_key(cluster: &Cluster, key: &Path) -> Config {
    let mut keys = VolumeKeys::default();
    keys.insert("secret", KeySource::File(key.to_owned()));
    Config { volume_keys: keys, ..cluster.config() }
}

/// A cluster with an encrypted volume, its key file, and a client that has the key.
pub(crate) async fn sealed_cluster(drives: usize) -> (Cluster, PathBuf, Client) {
    let cluster = Cluster::start(drives).await;
    let key = key_file(&cluster, "secret.key", 0xa7);
    let client = Client::connect(with_key(&cluster, &key)).await.expect("a client");
    let shape = shape(Scheme::Raid5, 3, 1, 4096);
    let source = KeySource::File(key.clone());
    let made = client.volume_create_encrypted("secret", Some(shape), 0, Protection::Integrity, &source).await;
    made.expect("a volume");
    (cluster, key, client)
}

/// Returns true if any file below the directory holds these bytes.
fn is_stored(dir: &Path, bytes: &[u8]) -> bool {
    std::fs::read_dir(dir).expect("a directory").any(|entry| {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => is_stored(&path, bytes),
            false => std::fs::read(&path).expect("read").windows(bytes.len()).any(|some| some == bytes),
        }
    })
}

pub(crate) fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("small")
}

/// The bytes that a file must hold after the same operations.
struct Model {
    bytes: Vec<u8>,
    random: Random,
}

impl Model {
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.random.draw() % length(bound.max(1))).expect("small")
    }

    /// A range near the edges of blocks, or any.
    fn range(&mut self, end: usize) -> Range<usize> {
        let edge = self.below(4) * PLAIN;
        let start = match self.below(3) {
            0 => edge,
            1 => (edge + 3).saturating_sub(self.below(6)),
            _ => self.below(end),
        };
        let long = if self.below(2) == 0 { PLAIN } else { 6 * PLAIN };
        start..start + 1 + self.below(long)
    }

    fn overwrite(&mut self, range: Range<usize>, with: &[u8]) {
        if self.bytes.len() < range.end {
            self.bytes.resize(range.end, 0);
        }
        self.bytes[range].copy_from_slice(with);
    }

    async fn step(&mut self, file: &File) {
        let size = self.bytes.len();
        match self.below(9) {
            0..=3 => {
                let range = self.range(size + PLAIN);
                let bytes = pattern(self.random.draw(), range.len());
                file.write_at(&bytes, length(range.start)).await.expect("written");
                self.overwrite(range, &bytes);
            }
            4 => {
                let to = self.range(size + 2 * PLAIN).start;
                file.set_len(length(to)).await.expect("cut or extended");
                self.bytes.resize(to, 0);
            }
            5 => {
                let range = self.range(size);
                file.punch(length(range.start)..length(range.end)).await.expect("punched");
                let end = range.end.min(size);
                if range.start < end {
                    self.bytes[range.start..end].fill(0);
                }
            }
            6 => {
                let bytes = pattern(self.random.draw(), 1 + self.below(5000));
                assert_eq!(file.append(&bytes).await.expect("appended"), length(size));
                self.bytes.extend_from_slice(&bytes);
            }
            7 => {
                let mut from = 0;
                while let Some(data) = file.data_after(length(from)).await.expect("told") {
                    let start = usize::try_from(data.start).expect("small");
                    assert!(self.bytes[from..start].iter().all(|byte| *byte == 0), "a hole has zeros");
                    from = usize::try_from(data.end).expect("small");
                }
                assert!(self.bytes[from..].iter().all(|byte| *byte == 0), "a hole has zeros");
            }
            _ => {
                let range = self.range(size);
                let mut bytes = vec![9; range.len()];
                let read = file.read_at(&mut bytes, length(range.start)).await.expect("read");
                let end = range.end.min(size);
                assert_same(&bytes[..read], &self.bytes[range.start.min(end)..end], "a part");
            }
        }
        assert_eq!(file.size(), length(self.bytes.len()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_is_done_to_a_file_comes_out_as_in_a_plain_one() {
    let (mut cluster, key, client) = sealed_cluster(4).await;
    let path = at("f");
    let mut model = Model { bytes: Vec::new(), random: Random(77) };
    for round in 0..4 {
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = client.open(&path, &options).await.expect("opened");
        assert_eq!(file.size(), length(model.bytes.len()), "round {round}");
        for _ in 0..50 {
            model.step(&file).await;
        }
        let text = TEXT.repeat(200);
        file.write_at(&text, 5000).await.expect("written");
        model.overwrite(5000..5000 + text.len(), &text);
        file.close().await.expect("closed");
        let other = Client::connect(with_key(&cluster, &key)).await.expect("a client");
        assert_same(&read_all(&other, &path).await.expect("read"), &model.bytes, "read by another client");
        let size = length(model.bytes.len());
        assert_eq!(other.stat(&path).await.expect("stat").size(), size);
        let listed = other.list(&at("")).all().await.expect("listed");
        assert_eq!(listed.iter().map(braid_wire::control::Entry::size).collect::<Vec<_>>(), [size]);
    }
    // Nobody needs the key to check it, and to make a lost column anew.
    let without = cluster.client().await;
    assert!(without.check(&path, |_| {}).await.expect("checked").is_clean());
    cluster.stop(1).await;
    assert_same(&read_all(&client, &path).await.expect("read"), &model.bytes, "without a drive");
    cluster.restart(1).await;
    cluster.all_up(&client).await;
    // What the drives and the manager have stored.
    let dir = cluster.dir.path();
    for of in ["manager", "drive0", "drive1", "drive2", "drive3"] {
        assert!(!is_stored(&dir.join(of), &TEXT[..16]), "{of} has what the file holds");
        assert!(!is_stored(&dir.join(of), &[0xa7; 32]), "{of} has the key");
    }
    assert!(is_stored(dir, &[0xa7; 32]), "the key file is there");
}

async fn refused(client: &Client, options: &OpenOptions, path: &str) -> Error {
    client.open(&at(path), options).await.expect_err("refused")
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_key_names_are_listed_and_no_file_is_opened_or_made() {
    let (cluster, key, client) = sealed_cluster(4).await;
    let write = OpenOptions::new().write(true).create(true);
    let file = client.open(&at("f"), &write).await.expect("made");
    file.write_at(TEXT, 0).await.expect("written");
    file.close().await.expect("closed");
    let id = client.volumes().await.expect("volumes")[0].key.clone().expect("a key").id;

    let without = cluster.client().await;
    let read = OpenOptions::new().read(true);
    for (options, path) in [(&read, "f"), (&write, "f"), (&write, "new")] {
        let error = refused(&without, options, path).await;
        let said = error.to_string();
        assert!(matches!(error, Error::Key { error: KeyError::Missing { .. }, .. }), "{said}");
        assert_eq!(error.kind(), Kind::Permission);
        assert!(said.contains(&id) && said.contains("--volume-key"), "{said}");
    }
    assert!(without.create_unnamed("secret", None).await.is_err());
    let listed = without.list(&at("")).all().await.expect("listed");
    assert_eq!(listed.len(), 1, "nothing was made");
    assert_eq!(listed[0].size(), length(TEXT.len()));

    let other = key_file(&cluster, "other.key", 1);
    let wrong = Client::connect(with_key(&cluster, &other)).await.expect("a client");
    let error = refused(&wrong, &read, "f").await;
    assert!(matches!(error, Error::Key { error: KeyError::Other { .. }, .. }), "{error}");

    // Its data key by another key: who has it open goes on, and the former key opens no more.
    let old = KeySource::File(key.clone());
    let new = KeySource::File(other.clone());
    assert!(client.volume_rekey("secret", &new, &old).await.is_err(), "it is not wrapped by that one");
    let ids = client.volume_rekey("secret", &old, &new).await.expect("wrapped anew");
    assert_eq!(ids.0, id);
    assert_ne!(ids.1, id);
    assert_same(&read_all(&client, &at("f")).await.expect("read"), TEXT, "a client that has the key");
    let by_new = Client::connect(with_key(&cluster, &other)).await.expect("a client");
    assert_same(&read_all(&by_new, &at("f")).await.expect("read"), TEXT, "by the new key");
    let by_old = Client::connect(with_key(&cluster, &key)).await.expect("a client");
    assert!(matches!(refused(&by_old, &read, "f").await, Error::Key { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_gives_no_rights_and_a_token_no_key_where_data_is_private_too() {
    let (cluster, key, admin) = sealed_cluster(4).await;
    let source = KeySource::File(key.clone());
    let shape = shape(Scheme::Raid5, 3, 1, 4096);
    let made = admin.volume_create_encrypted("both", Some(shape), 0, Protection::Privacy, &source).await;
    made.expect("a volume");
    let path = |path: &str| format!("braid://both/{path}").parse::<Name>().expect("a good name");
    admin.mkdir(&path("in"), Parents::Make).await.expect("made");
    let write = OpenOptions::new().write(true).create(true);
    let mut keys = VolumeKeys::default();
    keys.insert("both", source);
    let all =
        Client::connect(Config { volume_keys: keys.clone(), ..cluster.config() }).await.expect("a client");
    for at in ["in/f", "out"] {
        let file = all.open(&path(at), &write).await.expect("made");
        file.write_at(TEXT, 0).await.expect("written");
        file.close().await.expect("closed");
    }
    let spec = |name: &str, read_only| TokenSpec {
        name: name.to_owned(),
        role: TokenRole::Client,
        volumes: None,
        below: vec![path("in")],
        user: None,
        read_only,
        lasts_s: 0,
    };
    let inside = admin.make_token(spec("inside", false)).await.expect("made");
    let reads = admin.make_token(spec("reads", true)).await.expect("made");
    let with = async |token, volume_keys: &VolumeKeys| {
        let config = Config { credentials: token, volume_keys: volume_keys.clone(), ..cluster.config() };
        Client::connect(config).await.expect("a client")
    };
    let client = with((&inside).into(), &keys).await;
    assert_same(&read_all(&client, &path("in/f")).await.expect("read"), TEXT, "inside");
    let file = client.open(&path("in/new"), &write).await.expect("made");
    file.write_at(TEXT, 0).await.expect("written");
    file.close().await.expect("closed");
    let reader = with((&reads).into(), &keys).await;
    assert_same(&read_all(&reader, &path("in/new")).await.expect("read"), TEXT, "read only");
    for (client, at) in [(&client, "out"), (&client, "more"), (&reader, "in/f")] {
        let error = client.open(&path(at), &write).await.expect_err(at);
        assert_eq!(error.reason(), Some(Reason::NotAllowed), "{error}");
    }
    let without = with((&inside).into(), &VolumeKeys::default()).await;
    let error = without.open(&path("in/f"), &OpenOptions::new().read(true)).await.expect_err("no key");
    assert!(matches!(error, Error::Key { error: KeyError::Missing { .. }, .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_has_one_writer_and_any_number_of_readers() {
    let (cluster, key, client) = sealed_cluster(4).await;
    let write = OpenOptions::new().write(true).create(true);
    let file = client.open(&at("f"), &write).await.expect("made");
    file.write_at(TEXT, 0).await.expect("written");
    file.flush().await.expect("committed");
    let other = Client::connect(with_key(&cluster, &key)).await.expect("a client");
    assert_eq!(refused(&other, &write, "f").await.reason(), Some(Reason::Leased));
    assert_same(&read_all(&other, &at("f")).await.expect("read"), TEXT, "beside the writer");
    // The last block becomes longer, which the reader's size does not tell it.
    let reader = other.open(&at("f"), &OpenOptions::new().read(true)).await.expect("opened");
    file.write_at(&pattern(5, 9000), length(TEXT.len())).await.expect("written");
    let mut bytes = vec![0; TEXT.len()];
    assert_eq!(reader.read_at(&mut bytes, 0).await.expect("read"), TEXT.len());
    assert_same(&bytes, TEXT, "a block that was longer by then");
    file.close().await.expect("closed");
    let range = OpenOptions::new().write(true).range(0..12_288);
    assert!(other.open(&at("f"), &range).await.is_err(), "parts of it have no writers of their own");
    other.open(&at("f"), &write).await.expect("free again").close().await.expect("closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_shows_what_was_sealed_before() {
    let (_cluster, _key, client) = sealed_cluster(4).await;
    let options = OpenOptions::new().read(true).write(true).create(true);
    let before = pattern(3, 3 * PLAIN + 100);
    let file = client.open(&at("f"), &options).await.expect("made");
    file.write_at(&before, 0).await.expect("written");
    file.close().await.expect("closed");
    client.make_snapshot(&at(""), "s", Buffered::LeftOut).await.expect("a snapshot");
    let file = client.open(&at("f"), &options).await.expect("opened");
    file.set_len(50).await.expect("cut");
    file.write_at(&pattern(4, 5000), 20).await.expect("written");
    file.close().await.expect("closed");
    let past = at("f").in_snapshot("s").expect("a name");
    assert_same(&read_all(&client, &past).await.expect("read"), &before, "as it was");
    assert_eq!(client.stat(&past).await.expect("stat").size(), length(before.len()));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_writer_died_each_block_is_the_old_one_or_the_new_one() {
    const BLOCKS: usize = 40;
    let (cluster, key, client) = sealed_cluster(4).await;
    let path = at("f");
    let file = client.open(&path, &OpenOptions::new().write(true).create(true)).await.expect("made");
    file.write_at(&vec![0; BLOCKS * PLAIN], 0).await.expect("written");
    file.close().await.expect("closed");
    for round in 1..=3_u8 {
        // A process of its own, which ends whatever it was doing.
        let writer = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let writer = writer.expect("a runtime");
        let config = with_key(&cluster, &key);
        let began = std::sync::Arc::new(tokio::sync::Notify::new());
        let tell = std::sync::Arc::clone(&began);
        writer.spawn(async move {
            let client = Client::connect(config).await.expect("a client");
            let file = client.open(&at("f"), &OpenOptions::new().write(true)).await.expect("opened");
            for block in 0..BLOCKS {
                // Across the bounds of blocks, so that each is written in two parts.
                let bytes = vec![round; PLAIN];
                let from = block * PLAIN + 1000;
                let end = (from + PLAIN).min(BLOCKS * PLAIN);
                file.write_at(&bytes[..end - from], length(from)).await.expect("written");
                if block == usize::from(round) * 4 {
                    tell.notify_one();
                }
            }
            std::future::pending::<()>().await;
        });
        tokio::time::timeout(Duration::from_secs(60), began.notified()).await.expect("it has begun");
        writer.shutdown_background();
        wait_for(|| async {
            match client.open(&path, &OpenOptions::new().read(true).write(true)).await {
                Ok(file) => {
                    file.close().await.expect("closed");
                    true
                }
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Busy, "{error}");
                    false
                }
            }
        })
        .await;
        let bytes = read_all(&client, &path).await.expect("each block opens");
        assert_eq!(bytes.len(), BLOCKS * PLAIN);
        for (block, bytes) in bytes.chunks(PLAIN).enumerate() {
            let parts = [&bytes[..1000], &bytes[1000..]];
            for part in parts {
                assert!(part.iter().all(|byte| *byte == part[0] && *byte <= round), "block {block}");
            }
        }
        assert!(client.check(&path, |_| {}).await.expect("checked").is_clean());
    }
}
