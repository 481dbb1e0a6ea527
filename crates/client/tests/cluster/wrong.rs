//! Columns with wrong content, which the check names and nothing is computed from; and units that their drive
//! has lost.

use std::time::{Duration, Instant};

use braid_client::Client;
use braid_client::Error;
use braid_client::Fault;
use braid_client::OpenOptions;
use braid_layout::code::Code;
use braid_layout::{Column, Generation, Lease, Role, Scheme, Shape, Stripe, Version};

use crate::common::{Cluster, assert_same, name, pattern, put, read_all, shape, wait_for};
use crate::raw::{self, Part};

const UNIT: usize = 4096;
/// The stamp that `put` gives to stripe 0 of a new file.
const FIRST: Version = Version { g: Generation(1), lease: Lease(1), n: 1 };

async fn cluster(drives: usize) -> (Cluster, Client) {
    let cluster = Cluster::start(drives).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    (cluster, client)
}

/// The index of the drive that holds a column of stripe 0.
async fn drive_of(client: &Client, path: &str, column: usize) -> usize {
    let row = client.stat(&name(path)).await.expect("stat");
    row.segments[0].columns[column].drive_name[1..].parse().expect("d and a number")
}

/// Distance between the stripes of a test with many: each is in a plan set of its own, with its roles on the
/// same columns.
const APART: usize = 8;
const MANY: u64 = 24;

/// Stripes of rs 2+2 on columns 0 to 3, rewritten except on one column, which is then behind. There are many
/// of them, as a read must find out quickly that a stripe will not change.
#[tokio::test(flavor = "multi_thread")]
async fn a_column_that_is_behind_is_named_and_never_a_source() {
    let shape = shape(Scheme::Rs, 2, 2, 4096);
    let stripes: Vec<u64> = (0..MANY).map(|index| index * u64::try_from(APART).expect("small")).collect();
    for left_out in [0u8, 2] {
        let (mut cluster, client) = cluster(5).await;
        let stripe_bytes = u64::try_from(APART * 2 * UNIT).expect("small");
        assert_eq!(cluster.config().set_bytes, stripe_bytes, "a plan set has so many stripes");
        put(&client, &name("f"), shape, &pattern(1, stripes.len() * APART * 2 * UNIT)).await;
        let new = [pattern(5, UNIT), pattern(9, UNIT)];
        let mut parity = [vec![0; UNIT], vec![0; UNIT]];
        {
            let [p, q] = &mut parity;
            Code::new(shape).encode(&[&new[0], &new[1]], &mut [p, q]);
        }
        let columns = [(0, &new[0]), (1, &new[1]), (2, &parity[0]), (3, &parity[1])];
        let part = |stripe, column, bytes| Part {
            stripe,
            column,
            bytes,
            cover: if column < 2 { &[] } else { &[true, true] },
        };
        let written = columns.iter().filter(|(column, _)| *column != left_out);
        let parts: Vec<Part<'_>> = written
            .flat_map(|&(column, bytes)| stripes.iter().map(move |&stripe| part(stripe, column, bytes)))
            .collect();
        raw::write(&cluster, "f", FIRST, &parts).await;

        let began = Instant::now();
        let report = client.check(&name("f"), |_| {}).await.expect("check");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        let found: Vec<u64> = report.findings.iter().map(|finding| finding.stripe).collect();
        assert_eq!(found, stripes, "{report:?}");
        let expected = format!("d{}", drive_of(&client, "f", usize::from(left_out)).await);
        for finding in &report.findings {
            let unit = finding.unit.as_ref().expect("it is known which");
            assert_eq!(unit.drive, expected, "{finding:?}");
            assert!(matches!(finding.fault, Fault::Behind(_)), "{finding:?}");
        }

        // Without the other data column, which is then reconstructed from columns that are not behind.
        let other = drive_of(&client, "f", 1).await;
        cluster.kill(other);
        let mut found = vec![0; UNIT];
        let file = client.open(&name("f"), &OpenOptions::new().read(true)).await.expect("open");
        file.read_at(&mut found, u64::try_from(UNIT).expect("small")).await.expect("read");
        assert_same(&found, &new[1], "degraded");
        // With one parity column less, it could be reconstructed only from the column that is behind.
        let parity = drive_of(&client, "f", if left_out == 0 { 2 } else { 3 }).await;
        cluster.kill(parity);
        let error = file.read_at(&mut found, u64::try_from(UNIT).expect("small")).await.expect_err("too few");
        let Error::TooManyAway { drives, .. } = &error else { panic!("{error}") };
        assert!(drives.iter().any(|why| why.starts_with(&expected) && why.contains("older")), "{error}");
    }
}

/// Makes a file `f` whose stripe [`APART`] was written on these columns only: the drives of the others have
/// lost their units, and do not know it. Returns the bytes of the stripe.
async fn with_lost_units(cluster: &Cluster, client: &Client, shape: Shape, written: &[u8]) -> Vec<u8> {
    let k = usize::from(shape.k());
    let stripe = u64::try_from(APART).expect("small");
    put(client, &name("f"), shape, &pattern(1, k * UNIT)).await;
    let file = client.open(&name("f"), &OpenOptions::new().write(true)).await.expect("open");
    file.set_len((stripe + 1) * shape.stripe_bytes()).await.expect("set");
    file.close().await.expect("close");
    let data: Vec<Vec<u8>> = (0..shape.k()).map(|data| pattern(5 + u64::from(data), UNIT)).collect();
    let mut parity = vec![vec![0; UNIT]; usize::from(shape.m())];
    {
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        Code::new(shape).encode(&data, &mut parity);
    }
    let counted = vec![true; k];
    let parts = written.iter().map(|&column| match shape.role(Stripe(stripe), Column(column)) {
        Role::Data(data_index) => Part { stripe, column, bytes: &data[usize::from(data_index)], cover: &[] },
        Role::Parity(index) => Part { stripe, column, bytes: &parity[usize::from(index)], cover: &counted },
    });
    raw::write(cluster, "f", FIRST, &parts.collect::<Vec<_>>()).await;
    data.concat()
}

/// Asserts the content of the stripe by two reads: of its first bytes, and of the whole stripe with the unit
/// before it.
async fn finds(client: &Client, shape: Shape, expected: &[u8], context: &str) {
    let from = u64::try_from(APART).expect("small") * shape.stripe_bytes();
    let file = client.open(&name("f"), &OpenOptions::new().read(true)).await.expect("open");
    let mut small = vec![0xee; 100];
    let mut large = vec![0xee; UNIT + expected.len()];
    file.read_at(&mut small, from).await.expect("read");
    assert_same(&small, &expected[..100], &format!("{context}: a short read"));
    file.read_at(&mut large, from - u64::try_from(UNIT).expect("small")).await.expect("read");
    assert_same(
        &large,
        &[&vec![0; UNIT], expected].concat(),
        &format!("{context}: and what was never written"),
    );
}

/// A drive that has lost a unit, and does not know it, answers that the unit was never written. Parity shows
/// that it was, also if one of several parity columns has lost its own unit.
#[tokio::test(flavor = "multi_thread")]
async fn a_unit_that_is_not_there_is_no_hole_where_parity_counts_it() {
    let shape = shape(Scheme::Rs, 2, 2, 4096);
    for written in [&[1, 2, 3][..], &[1, 2], &[1, 3]] {
        let (cluster, client) = cluster(5).await;
        let bytes = with_lost_units(&cluster, &client, shape, written).await;
        finds(&client, shape, &bytes, &format!("{written:?}")).await;
    }
}

/// A lost copy of a mirror that is read instead of the first copy is no hole either, while another copy
/// exists.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_not_there_is_no_hole_where_another_is() {
    let (mut cluster, client) = cluster(5).await;
    let shape = shape(Scheme::Raid1, 1, 2, 4096);
    // In this stripe column 1 is the first of the copies, and column 2 the second.
    assert_eq!(shape.role(Stripe(u64::try_from(APART).expect("small")), Column(2)), Role::Parity(0));
    let bytes = with_lost_units(&cluster, &client, shape, &[0, 1]).await;
    let first = drive_of(&client, "f", 1).await;
    cluster.kill(first);
    finds(&client, shape, &bytes, "without the first").await;
}

/// A parity column that did not answer lately is asked if no other column can tell.
#[tokio::test(flavor = "multi_thread")]
async fn parity_that_is_passed_over_for_a_while_is_asked_all_the_same() {
    let (mut cluster, client) = cluster(5).await;
    let shape = shape(Scheme::Raid4, 2, 1, 4096);
    let bytes = with_lost_units(&cluster, &client, shape, &[1, 2]).await;
    let parity = drive_of(&client, "f", 2).await;
    // A mirror on all drives has a copy on that one.
    put(&client, &name("mirror"), self::shape(Scheme::Raid1, 1, 4, 4096), &pattern(1, 5 * UNIT)).await;
    let mut config = cluster.config();
    config.avoid = Duration::from_secs(3600);
    let client = Client::connect(config).await.expect("a client");
    let file = client.open(&name("mirror"), &OpenOptions::new().read(true)).await.expect("open");
    cluster.kill(parity);
    let mut found = vec![0; 5 * UNIT];
    file.read_at(&mut found, 0).await.expect("read from others");
    cluster.restart(parity).await;
    // While the manager takes that drive for away nobody can tell, and zeros are believed. On a busy machine
    // that may happen after all drives were up. The client itself passes the drive over for an hour.
    let from = u64::try_from(APART).expect("small") * shape.stripe_bytes();
    wait_for(|| async {
        cluster.all_up(&client).await;
        let file = client.open(&name("f"), &OpenOptions::new().read(true)).await.expect("open");
        let mut small = vec![0xee; 100];
        file.read_at(&mut small, from).await.expect("read") == 100 && small == bytes[..100]
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_that_is_wrong_is_named_where_the_others_can_tell() {
    for m in [1u8, 2] {
        let (cluster, client) = cluster(4).await;
        let shape = shape(Scheme::Raid1, 1, m, 4096);
        put(&client, &name("f"), shape, &pattern(1, 9 * UNIT)).await;
        let right = pattern(5, UNIT);
        let wrong = pattern(9, UNIT);
        // One of the copies differs, under the same stamp.
        let parts: Vec<Part<'_>> = (0..=m)
            .map(|column| Part {
                stripe: 0,
                column,
                bytes: if column == 1 { &wrong } else { &right },
                cover: if column == 0 { &[] } else { &[true] },
            })
            .collect();
        raw::write(&cluster, "f", FIRST, &parts).await;
        let report = client.check(&name("f"), |_| {}).await.expect("check");
        let [finding] = &report.findings[..] else { panic!("{report:?}") };
        assert!(matches!(finding.fault, Fault::Unequal { .. }) && finding.stripe == 0, "{finding:?}");
        let named = finding.unit.as_ref().map(|unit| unit.drive.clone());
        let expected = format!("d{}", drive_of(&client, "f", 1).await);
        assert_eq!(named, (m == 2).then_some(expected), "of two that differ nobody can tell which is right");
    }
}

/// Flips a bit in the header of the record that holds these bytes in a stopped drive's log.
fn spoil_headers(cluster: &Cluster, index: usize, bytes: &[u8]) -> usize {
    let mut spoiled = 0;
    let mut stack = vec![cluster.drives[index].dir.clone()];
    while let Some(dir) = stack.pop() {
        for entry in std::fs::read_dir(dir).expect("the drive's directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                // The store must read only the log: a checkpoint would know the lost records.
                if path.file_name().is_some_and(|name| name == "checkpoint") {
                    for checkpoint in std::fs::read_dir(&path).expect("checkpoints") {
                        std::fs::remove_file(checkpoint.expect("one").path()).expect("removed");
                    }
                } else {
                    stack.push(path);
                }
                continue;
            }
            let mut log = std::fs::read(&path).expect("a file of the drive");
            if let Some(at) = log.windows(64).position(|window| window == &bytes[..64]) {
                log[at - 512] ^= 1;
                std::fs::write(&path, log).expect("a file of the drive");
                spoiled += 1;
            }
        }
    }
    spoiled
}

/// Units that a drive has lost, data and parity, accept writes again: of the whole unit, or of a part, which
/// the stripe's other columns complete.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_units_are_mended_by_writes_to_them() {
    let (mut cluster, client) = cluster(5).await;
    let shape = shape(Scheme::Raid5, 4, 1, 4096);
    let mut model = pattern(1, 28 * UNIT);
    put(&client, &name("f"), shape, &[]).await;
    // One stripe after another, so that no two of the records to be lost are adjacent: a store cannot tell
    // what such a gap held, and counts all units of its objects as damaged.
    let file = client.open(&name("f"), &OpenOptions::new().read(true).write(true)).await.expect("open");
    for (bytes, from) in model.chunks(4 * UNIT).zip((0..).step_by(4 * UNIT)) {
        file.write_at(bytes, from).await.expect("written");
    }
    file.close().await.expect("closed");
    // Column 0 has data of stripes 0, 2 and 6 and the parity of stripe 4.
    let index = drive_of(&client, "f", 0).await;
    cluster.stop(index).await;
    let mut lost = Vec::new();
    for stripe in [0, 2, 4, 6] {
        let role = shape.role(Stripe(stripe), Column(0));
        let begin = usize::try_from(stripe).expect("small") * 4 * UNIT;
        let data: Vec<&[u8]> = model[begin..begin + 4 * UNIT].chunks(UNIT).collect();
        let unit = match role {
            Role::Data(data_index) => data[usize::from(data_index)].to_vec(),
            Role::Parity(_) => {
                let mut parity = vec![0; UNIT];
                Code::new(shape).encode(&data, &mut [&mut parity]);
                parity
            }
        };
        assert_eq!(spoil_headers(&cluster, index, &unit), 1, "stripe {stripe}");
        lost.push(role);
    }
    cluster.restart(index).await;
    cluster.all_up(&client).await;
    let damaged = |report: &braid_client::Report| {
        report.findings.iter().filter(|found| matches!(found.fault, Fault::Damaged(_))).count()
    };
    assert_eq!(lost, [Role::Data(0), Role::Data(2), Role::Parity(0), Role::Data(1)]);
    wait_for(|| async { client.check(&name("f"), |_| {}).await.is_ok_and(|r| r.unchecked.is_empty()) }).await;
    assert_eq!(damaged(&client.check(&name("f"), |_| {}).await.expect("check")), 4);

    let file = client.open(&name("f"), &OpenOptions::new().read(true).write(true)).await.expect("open");
    // Part of a lost data unit; part of a data unit whose parity is lost; then a whole stripe.
    for (from, length, seed) in [(100, 50, 7), (17 * UNIT + 10, 60, 8), (8 * UNIT, 4 * UNIT, 9)] {
        let bytes = pattern(seed, length);
        file.write_at(&bytes, u64::try_from(from).expect("small"))
            .await
            .expect("a damaged unit is no obstacle");
        model[from..from + length].copy_from_slice(&bytes);
        let mut found = vec![0; model.len()];
        file.read_at(&mut found, 0).await.expect("read");
        assert_same(&found, &model, "before it is settled");
    }
    // A hole in place of the whole unit.
    let hole = 25 * UNIT..26 * UNIT;
    file.punch(hole.start as u64..hole.end as u64).await.expect("nor to a hole");
    model[hole].fill(0);
    file.close().await.expect("close");
    let report = client.check(&name("f"), |_| {}).await.expect("check");
    assert!(report.is_clean(), "{report:?}");
    // The rewritten units are whole on that drive: the file is read without another drive.
    for other in (0..5).filter(|other| *other != index).take(1) {
        cluster.kill(other);
    }
    assert_same(&read_all(&client, &name("f")).await.expect("read"), &model, "degraded");
}
