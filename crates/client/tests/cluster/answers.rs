//! Answers of the manager that are lost or damaged on the network, and sessions that break.

use std::sync::atomic::Ordering;
use std::time::Duration;

use braid_client::Client;
use braid_client::Error;
use braid_client::Kind;
use braid_client::OpenOptions;
use braid_client::Parents;
use braid_client::Replace;
use braid_layout::Scheme;

use crate::between::Between;
use crate::common::{Cluster, assert_same, name, open_when_free, pattern, put, read_all, shape, wait_for};

fn small() -> braid_layout::Shape {
    shape(Scheme::Raid5, 2, 1, 4096)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remove_and_a_rename_whose_answers_were_lost_hit_no_file_made_since() {
    let mut cluster = Cluster::start(3).await;
    let direct = cluster.client().await;
    direct.volume_create("main", None, 0).await.expect("a volume");
    let between = Between::start(&cluster.ready.address).await;
    let client = between.client(&cluster).await;
    for restarts in [false, true] {
        put(&direct, &name("f"), small(), b"removed").await;
        put(&direct, &name("g"), small(), b"moved").await;
        for path in ["f", "g"] {
            between.lose_next_answer();
            let asker = client.clone();
            let moves = path == "g";
            let asked = tokio::spawn(async move {
                if moves {
                    asker.rename(&name("g"), &name("h")).await
                } else {
                    asker.unlink(&name("f")).await
                }
            });
            between.lost().await;
            assert_eq!(direct.stat(&name(path)).await.unwrap_err().kind(), Kind::NotFound, "it was done");
            put(&direct, &name(path), small(), b"another's").await;
            if restarts {
                cluster.restart_manager().await;
            }
            between.open();
            asked.await.expect("no panic").expect("it was done");
            assert_eq!(read_all(&direct, &name(path)).await.expect("it is there"), b"another's");
        }
        assert_eq!(read_all(&direct, &name("h")).await.expect("it is there"), b"moved");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exclusive_create_whose_answer_was_lost_finds_its_file() {
    let cluster = Cluster::start(3).await;
    let direct = cluster.client().await;
    direct.volume_create("main", None, 0).await.expect("a volume");
    let between = Between::start(&cluster.ready.address).await;
    let client = between.client(&cluster).await;
    between.lose_next_answer();
    let asker = client.clone();
    let asked = tokio::spawn(async move {
        let options = OpenOptions::new().write(true).create_new(true).shape(small());
        asker.open(&name("new"), &options).await
    });
    between.lost().await;
    wait_for(|| async { direct.stat(&name("new")).await.is_ok() }).await;
    between.open();
    let file = asked.await.expect("no panic").expect("it is the one that made it");
    let bytes = pattern(3, 20_000);
    file.write_at(&bytes, 0).await.expect("write");
    file.close().await.expect("close");
    assert_same(&read_all(&direct, &name("new")).await.expect("read"), &bytes, "what was written");
    let options = OpenOptions::new().write(true).create_new(true);
    assert_eq!(client.open(&name("new"), &options).await.unwrap_err().kind(), Kind::Exists);
}

/// The file is new to the client that created it, but another client had it meanwhile: its units have
/// versions, though there are no bytes. Parity that counts them as never written would fit no column.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_another_wrote_before_its_create_was_answered_is_not_taken_for_a_fresh_one() {
    let mut cluster = Cluster::start(4).await;
    let direct = cluster.client().await;
    direct.volume_create("main", None, 0).await.expect("a volume");
    let between = Between::start(&cluster.ready.address).await;
    let client = between.client(&cluster).await;
    between.lose_next_answer();
    let asker = client.clone();
    let asked = tokio::spawn(async move {
        let options = OpenOptions::new().write(true).create_new(true);
        asker.open(&name("new"), &options.shape(shape(Scheme::Raid5, 3, 1, 4096))).await
    });
    between.lost().await;
    wait_for(|| async { direct.stat(&name("new")).await.is_ok() }).await;
    // The lease whose grant was lost ends, and another client gets the file. It writes bytes and takes them
    // back.
    let other = open_when_free(&direct, &name("new")).await;
    other.write_at(&pattern(1, 3 * 4096), 0).await.expect("write");
    other.set_len(0).await.expect("cut");
    other.close().await.expect("close");
    between.open();
    let file = asked.await.expect("no panic").expect("it is the one that made it");
    assert_eq!(file.size(), 0);
    file.write_at(b"again", 0).await.expect("write");
    file.close().await.expect("close");
    let report = direct.check(&name("new"), |_| {}).await.expect("check");
    assert!(report.is_clean(), "{report:?}");
    let row = direct.stat(&name("new")).await.expect("stat");
    cluster.kill(row.segments[0].columns[0].drive_name[1..].parse().expect("d and a number"));
    let found = read_all(&direct, &name("new")).await.expect("read");
    assert_same(&found, b"again", "without the drive that has the bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_whose_answer_was_lost_is_done_though_the_lease_is_over_by_then() {
    let cluster = Cluster::start(3).await;
    let direct = cluster.client().await;
    direct.volume_create("main", None, 0).await.expect("a volume");
    let between = Between::start(&cluster.ready.address).await;
    let client = between.client(&cluster).await;
    let unnamed = client.create_unnamed("main", Some(small())).await.expect("create");
    unnamed.write_at(b"bytes", 0).await.expect("write");
    between.lose_next_answer();
    let asked = tokio::spawn(async move { (unnamed.link(&name("f"), Replace::No).await, unnamed) });
    between.lost().await;
    // Renewals are blocked too: the lease ends, while another writer has the file.
    let other = direct.open(&name("f"), &OpenOptions::new().write(true)).await.expect("it is shared");
    let g = other.stat().await.expect("stat").g;
    wait_for(|| async { other.stat().await.expect("stat").g > g }).await;
    between.open();
    let (linked, unnamed) = asked.await.expect("no panic");
    linked.expect("it was done");
    let lost = unnamed.close().await.expect_err("the lease is lost");
    assert_eq!(lost.kind(), Kind::Busy, "{lost}");
    assert_eq!(read_all(&direct, &name("f")).await.expect("read"), b"bytes");
}

/// The cut may have begun: bytes written past it would be acknowledged and then discarded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handle_that_does_not_know_whether_its_cut_began_acknowledges_nothing_more() {
    let cluster = Cluster::start(3).await;
    let direct = cluster.client().await;
    direct.volume_create("main", None, 0).await.expect("a volume");
    let bytes = pattern(4, 1000);
    put(&direct, &name("f"), small(), &bytes).await;
    let between = Between::start(&cluster.ready.address).await;
    let mut config = cluster.config();
    config.managers = (&between.address).into();
    config.patience = Duration::from_millis(300);
    let client = Client::connect(config).await.expect("a client");
    let file = client.open(&name("f"), &OpenOptions::new().write(true)).await.expect("open");
    between.lose_next_answer();
    assert_eq!(file.set_len(50).await.expect_err("no answer").kind(), Kind::Unavailable);
    assert_eq!(direct.stat(&name("f")).await.expect("stat").size(), 50, "it was done");
    between.open();
    assert_eq!(file.write_at(&[1; 100], 2000).await.expect_err("refused").kind(), Kind::Busy);
    drop(file);
    let file = open_when_free(&direct, &name("f")).await;
    assert_eq!(file.size(), 50);
    file.set_len(1000).await.expect("grow");
    file.close().await.expect("close");
    let mut model = bytes[..50].to_vec();
    model.resize(1000, 0);
    assert_same(&read_all(&direct, &name("f")).await.expect("read"), &model, "cut and grown");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_sessions_make_no_success_of_a_refusal() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    client.mkdir(&name("d"), Parents::MustExist).await.expect("a directory");
    // Each request finds a session that broke while it was idle.
    cluster.restart_manager().await;
    assert_eq!(client.unlink(&name("no")).await.unwrap_err().kind(), Kind::NotFound);
    cluster.restart_manager().await;
    assert_eq!(client.rename(&name("no"), &name("x")).await.unwrap_err().kind(), Kind::NotFound);
    cluster.restart_manager().await;
    assert_eq!(client.mkdir(&name("d"), Parents::MustExist).await.unwrap_err().kind(), Kind::Exists);
    cluster.restart_manager().await;
    assert_eq!(client.volume_create("main", None, 0).await.unwrap_err().kind(), Kind::Exists);
    cluster.restart_manager().await;
    assert_eq!(client.volume_remove("other").await.unwrap_err().kind(), Kind::NotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_go_on_though_bits_are_flipped_on_their_way() {
    let cluster = Cluster::start(3).await;
    let direct = cluster.client().await;
    direct.volume_create("main", None, 0).await.expect("a volume");
    let between = Between::start(&cluster.ready.address).await;
    let mut config = cluster.config();
    config.managers = (&between.address).into();
    // A length that is hit makes its reader wait; on a busy machine several tries may fail in a row.
    config.patience = Duration::from_secs(120);
    let client = Client::connect(config).await.expect("a client");
    // A session of TLS, with one request, has about eight pieces: most are to get through.
    between.way.flips.store(17, Ordering::SeqCst);
    for index in 0..30 {
        let directory = name(&format!("d{index}"));
        let file = name(&format!("d{index}/f"));
        client.mkdir(&directory, Parents::MustExist).await.expect("mkdir");
        put(&client, &file, small(), b"bytes").await;
        assert_eq!(read_all(&client, &file).await.expect("read"), b"bytes");
        client.rename(&file, &name(&format!("d{index}/g"))).await.expect("rename");
        client.unlink(&name(&format!("d{index}/g"))).await.expect("unlink");
        client.unlink(&directory).await.expect("rmdir");
    }
    assert!(between.way.flipped.load(Ordering::SeqCst) > 15);
    // When nothing gets through, the error says why.
    between.way.flips.store(1, Ordering::SeqCst);
    let mut config = cluster.config();
    config.managers = (&between.address).into();
    config.patience = Duration::from_secs(1);
    let error = Client::connect(config).await.expect_err("nothing gets through");
    assert!(matches!(error, Error::Manager { .. }) && error.kind() == Kind::Unavailable, "{error}");
    let words = error.to_string();
    assert!(words.contains("damaged") && words.contains("network") && !words.contains("running"), "{words}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drive_that_is_mute_ends_no_idle_writers_lease() {
    let mut cluster = Cluster::start(3).await;
    let mut config = cluster.config();
    // Retiring what is settled waits this long for a silent drive, longer than a lease.
    (config.limits.connect, config.drive_reply) = (Duration::from_secs(20), Duration::from_secs(20));
    let client = Client::connect(config).await.expect("a client");
    client.volume_create("main", None, 0).await.expect("a volume");
    let options = OpenOptions::new().write(true).create(true).shape(small());
    let file = client.open(&name("f"), &options).await.expect("open");
    file.write_at(&pattern(1, 40_000), 0).await.expect("write");
    let _mute = cluster.make_mute(0).await;
    // For more than two leases the writer is idle, and its renewals continue.
    tokio::time::sleep(Duration::from_millis(7500)).await;
    file.flush().await.expect("the lease is kept");
}
