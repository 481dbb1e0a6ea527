//! Drives that die, lose bits or fill up, and a manager that restarts, during reads and writes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{Cluster, Random, assert_same, name, pattern, put, read_all, shape, wait_for};
use braid_client::Error;
use braid_client::Fault;
use braid_client::Kind;
use braid_client::OpenOptions;
use braid_layout::{Role, Scheme};

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_that_dies_during_reads_is_not_noticed() {
    let mut cluster = Cluster::start(5).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let path = name("f");
    let bytes = pattern(3, 2_000_000);
    put(&client, &path, shape(Scheme::Raid5, 4, 1, 16384), &bytes).await;
    let file = Arc::new(client.open(&path, &OpenOptions::new().read(true)).await.expect("open"));
    let bytes = Arc::new(bytes);
    let (begun, begins) = tokio::sync::oneshot::channel();
    let reader = tokio::spawn({
        let file = Arc::clone(&file);
        let bytes = Arc::clone(&bytes);
        async move {
            let mut random = Random(9);
            let mut begun = Some(begun);
            let until = Instant::now() + Duration::from_secs(2);
            while Instant::now() < until {
                let from = usize::try_from(random.below(1_000_000)).expect("small");
                let mut buffer = vec![0; 700_000];
                let read =
                    file.read_at(&mut buffer, u64::try_from(from).expect("small")).await.expect("read");
                assert_same(&buffer[..read], &bytes[from..from + read], "while a drive dies");
                if let Some(begun) = begun.take() {
                    begun.send(()).expect("the test waits");
                }
            }
        }
    });
    begins.await.expect("it reads");
    cluster.kill(2);
    reader.await.expect("every read was right");
    let report = client.check(&path, |_| {}).await.expect("check");
    assert!(report.findings.is_empty(), "{report:?}");
    assert_eq!(report.unchecked.iter().map(|u| u.drive.as_str()).collect::<Vec<_>>(), ["d2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_that_dies_during_writes_goes_out_and_is_rebuilt() {
    let mut cluster = Cluster::start(5).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let path = name("f");
    let shape = shape(Scheme::Raid5, 4, 1, 4096);
    let mut model = pattern(4, 300_000);
    put(&client, &path, shape, &model).await;
    let file = client.open(&path, &OpenOptions::new().read(true).write(true)).await.expect("open");
    let mut random = Random(21);
    for step in 0..60 {
        if step == 10 {
            cluster.kill(1);
        }
        let from = usize::try_from(random.below(280_000)).expect("small");
        let bytes = pattern(random.draw(), usize::try_from(1 + random.below(40_000)).expect("small"));
        file.write_at(&bytes, u64::try_from(from).expect("small")).await.expect("write");
        model.resize(model.len().max(from + bytes.len()), 0);
        model[from..from + bytes.len()].copy_from_slice(&bytes);
    }
    let mut found = vec![0; model.len()];
    assert_eq!(file.read_at(&mut found, 0).await.expect("read"), model.len());
    assert_same(&found, &model, "degraded, by the writer");
    file.close().await.expect("close");
    assert_same(&read_all(&client, &path).await.expect("read"), &model, "degraded, by a reader");
    let stat = client.stat(&path).await.expect("stat");
    assert_eq!(stat.segments[0].set.count(), 4, "the manager knows which column is stale");

    cluster.restart_anew(1).await;
    cluster.all_up(&client).await;
    // The drive cannot be replaced while its lease may hold.
    wait_for(|| async { client.replace_drive("d1", "d1-new").await.is_ok() }).await;
    assert_eq!(cluster.heal(1).await.0, 1);
    let report = client.check(&path, |_| {}).await.expect("check");
    assert!(report.is_clean(), "{report:?}");
    // Now without another drive: the rebuilt column is needed for every stripe.
    cluster.kill(3);
    assert_same(&read_all(&client, &path).await.expect("read"), &model, "after the rebuild, without another");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_that_was_away_during_writes_is_brought_up_to_date() {
    let mut cluster = Cluster::start(5).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let path = name("f");
    let shape = shape(Scheme::Raid5, 4, 1, 4096);
    let mut model = pattern(4, 200_000);
    put(&client, &path, shape, &model).await;
    cluster.stop(4).await;
    let file = client.open(&path, &OpenOptions::new().write(true)).await.expect("open");
    let bytes = pattern(77, 100_000);
    file.write_at(&bytes, 5000).await.expect("write");
    model[5000..105_000].copy_from_slice(&bytes);
    file.close().await.expect("close");
    cluster.restart(4).await;
    cluster.all_up(&client).await;
    assert_same(&read_all(&client, &path).await.expect("read"), &model, "its old bytes are not read");
    assert_eq!(cluster.heal(4).await.0, 1);
    assert!(client.check(&path, |_| {}).await.expect("check").is_clean());
    cluster.kill(0);
    assert_same(&read_all(&client, &path).await.expect("read"), &model, "without another drive");
}

#[tokio::test(flavor = "multi_thread")]
async fn rs_reads_and_writes_with_two_dead_and_names_three() {
    let mut cluster = Cluster::start(6).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let path = name("f");
    let shape = shape(Scheme::Rs, 4, 2, 4096);
    let mut model = pattern(6, 300_000);
    put(&client, &path, shape, &model).await;
    cluster.kill(0);
    cluster.kill(5);
    assert_same(&read_all(&client, &path).await.expect("read"), &model, "two dead");
    let file = client.open(&path, &OpenOptions::new().read(true).write(true)).await.expect("open");
    for (from, length) in [(10_000, 5000), (0, 100_000), (299_000, 30_000)] {
        let bytes = pattern(u64::try_from(from).expect("small") + 1, length);
        file.write_at(&bytes, u64::try_from(from).expect("small")).await.expect("write");
        model.resize(model.len().max(from + length), 0);
        model[from..from + length].copy_from_slice(&bytes);
    }
    file.close().await.expect("close");
    assert_same(&read_all(&client, &path).await.expect("read"), &model, "two dead, written");
    cluster.kill(3);
    let began = Instant::now();
    let error = read_all(&client, &path).await.expect_err("three dead");
    assert!(began.elapsed() < Duration::from_secs(8), "in bounded time: {:?}", began.elapsed());
    let Error::TooManyAway { spare: 2, drives, .. } = &error else { panic!("{error}") };
    for dead in ["d0", "d3", "d5"] {
        assert!(drives.iter().any(|drive| drive.starts_with(dead)), "{dead} is named in {error}");
    }
    assert_eq!(error.kind(), Kind::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_without_enough_drives_fail_in_bounded_time_and_name_them() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let path = name("f");
    put(&client, &path, shape(Scheme::Raid0, 3, 0, 4096), &pattern(6, 100_000)).await;
    let file = client.open(&path, &OpenOptions::new().write(true)).await.expect("open");
    cluster.kill(1);
    let began = Instant::now();
    let error = file.write_at(&pattern(7, 50_000), 0).await.expect_err("no redundancy");
    assert!(began.elapsed() < Duration::from_secs(10), "in bounded time: {:?}", began.elapsed());
    assert!(error.to_string().contains("d1"), "{error}");
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    let next = file.write_at(b"x", 0).await.expect_err("the handle writes no more");
    assert_eq!(next.kind(), Kind::Busy, "{next}");
    assert!(next.to_string().contains("d1"), "it says why: {next}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotten_byte_is_read_from_the_parity_and_found_by_a_check() {
    let mut cluster = Cluster::start(5).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let path = name("f");
    let bytes = pattern(8, 400_000);
    put(&client, &path, shape(Scheme::Raid5, 4, 1, 4096), &bytes).await;
    // The drive is stopped in order, so that the log is whole except for the bytes that are changed now.
    cluster.stop(2).await;
    let rotted = cluster.rot(2, &bytes);
    assert!(rotted > 0, "a block of the file's data was found in the drive's log");
    cluster.restart(2).await;
    cluster.all_up(&client).await;
    // The drive serves again once the manager has heard from it; its other columns are read from it.
    assert_same(&read_all(&client, &path).await.expect("read"), &bytes, "with a rotten byte");
    wait_for(|| async { client.check(&path, |_| {}).await.expect("check").unchecked.is_empty() }).await;
    let report = client.check(&path, |_| {}).await.expect("check");
    assert_eq!(report.findings.len(), 1, "{report:?}");
    let finding = &report.findings[0];
    let unit = finding.unit.as_ref().expect("it is known which");
    assert_eq!(unit.drive, "d2");
    assert!(matches!((unit.role, &finding.fault), (Role::Data(_), Fault::Damaged(_))), "{finding:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_restarts_is_waited_for() {
    let mut cluster = Cluster::start(5).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let path = name("f");
    let mut model = pattern(8, 300_000);
    put(&client, &path, shape(Scheme::Raid5, 4, 1, 4096), &model).await;
    let file = Arc::new(client.open(&path, &OpenOptions::new().read(true).write(true)).await.expect("open"));
    let writer = tokio::spawn({
        let file = Arc::clone(&file);
        async move {
            let until = Instant::now() + Duration::from_secs(3);
            let mut round = 0u64;
            while Instant::now() < until {
                round += 1;
                file.write_at(&pattern(round, 70_000), 33_333).await.expect("write");
            }
            round
        }
    });
    cluster.restart_manager().await;
    let rounds = writer.await.expect("every write was acknowledged");
    model[33_333..103_333].copy_from_slice(&pattern(rounds, 70_000));
    let file = Arc::try_unwrap(file).expect("the writer is done");
    file.close().await.expect("close");
    assert_same(&read_all(&client, &path).await.expect("read"), &model, "after the restart");
    assert!(client.check(&path, |_| {}).await.expect("check").is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_drive_fails_the_write_and_leaves_the_old_content() {
    let cluster = Cluster::start_with(5, |index| (index == 3).then_some(1 << 20)).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let path = name("f");
    let shape = shape(Scheme::Raid5, 4, 1, 65536);
    let old = pattern(1, 200_000);
    put(&client, &path, shape, &old).await;
    let new = client.create_unnamed("main", Some(shape)).await.expect("create");
    let mut failed = None;
    for part in 0..40u64 {
        if let Err(error) = new.write_at(&pattern(part + 2, 1 << 18), part << 18).await {
            failed = Some(error);
            break;
        }
    }
    let error = failed.expect("the drive is full in the end");
    assert_eq!(error.kind(), Kind::NoSpace, "{error}");
    assert!(error.to_string().contains("d3"), "{error}");
    let refused = new.link(&path, braid_client::Replace::Yes).await.expect_err("it is not whole");
    assert_eq!(refused.kind(), Kind::Busy, "{refused}");
    assert!(new.close().await.is_err(), "what was written is not all there");
    assert_same(&read_all(&client, &path).await.expect("read"), &old, "the old content");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_removed_under_a_reader_is_an_error_and_not_zeros() {
    let cluster = Cluster::start(5).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let path = name("f");
    let bytes = pattern(1, 100_000);
    put(&client, &path, shape(Scheme::Raid5, 4, 1, 4096), &bytes).await;
    let file = client.open(&path, &OpenOptions::new().read(true)).await.expect("open");
    client.unlink(&path).await.expect("unlink");
    let until = Instant::now() + Duration::from_secs(10);
    let error = loop {
        let mut buffer = vec![0; 100_000];
        match file.read_at(&mut buffer, 0).await {
            Ok(_) => assert_same(&buffer, &bytes, "before its components are freed"),
            Err(error) => break error,
        }
        assert!(Instant::now() < until, "its components are freed in the end");
    };
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mute_drive_delays_a_read_and_a_write_but_not_for_long() {
    let mut cluster = Cluster::start(5).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let path = name("f");
    let shape = shape(Scheme::Raid5, 4, 1, 4096);
    let mut model = pattern(4, 300_000);
    put(&client, &path, shape, &model).await;
    let mute = cluster.make_mute(2).await;
    let began = Instant::now();
    assert_same(&read_all(&client, &path).await.expect("read"), &model, "beside a mute drive");
    assert!(began.elapsed() < Duration::from_secs(4), "in bounded time: {:?}", began.elapsed());
    let file = client.open(&path, &OpenOptions::new().write(true)).await.expect("open");
    let bytes = pattern(5, 100_000);
    file.write_at(&bytes, 12_345).await.expect("write");
    model[12_345..112_345].copy_from_slice(&bytes);
    file.close().await.expect("close");
    assert_same(&read_all(&client, &path).await.expect("read"), &model, "written beside a mute drive");
    drop(mute);
}

/// The hard case for a degraded reader: the columns that it decodes from are being rewritten. Every unit must
/// be entirely of one version.
#[tokio::test(flavor = "multi_thread")]
async fn degraded_reads_beside_a_writer_are_of_one_version() {
    const UNIT: usize = 4096;
    let mut cluster = Cluster::start(5).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let path = name("f");
    let shape = shape(Scheme::Raid5, 4, 1, 4096);
    // A unit's bytes follow from its version, which is the first byte, and from its index. A mix of versions
    // matches none of them.
    let unit = |version: u8, index: usize| {
        let mut bytes = pattern(u64::from(version) * 1000 + u64::try_from(index).expect("small") + 1, UNIT);
        bytes[0] = version;
        bytes
    };
    let units = move |version: u8, indices: std::ops::Range<usize>| -> Vec<u8> {
        indices.flat_map(|index| unit(version, index)).collect()
    };
    put(&client, &path, shape, &units(1, 0..32)).await;
    cluster.kill(1);
    let file = client.open(&path, &OpenOptions::new().write(true)).await.expect("open");
    let reader = client.open(&path, &OpenOptions::new().read(true)).await.expect("open");
    let writer = tokio::spawn(async move {
        let until = Instant::now() + Duration::from_secs(2);
        let mut value = 1u8;
        while Instant::now() < until {
            value = value.checked_add(1).unwrap_or(1);
            // Whole stripes and single units alternate.
            let indices = if value.is_multiple_of(2) { 0..32 } else { 5..6 };
            let offset = u64::try_from(indices.start * UNIT).expect("small");
            file.write_at(&units(value, indices), offset).await.expect("write");
        }
        file.close().await.expect("close");
    });
    let mut reads = 0;
    while !writer.is_finished() {
        let mut buffer = vec![0; UNIT * 32];
        reader.read_at(&mut buffer, 0).await.expect("read");
        for (index, unit) in buffer.chunks(UNIT).enumerate() {
            assert_same(unit, &units(unit[0], index..index + 1), &format!("unit {index} of read {reads}"));
        }
        reads += 1;
    }
    writer.await.expect("every write was acknowledged");
    assert!(reads > 10, "{reads} reads");
}
