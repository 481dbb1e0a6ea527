//! A file that is removed in part: some of its components are freed, some not yet. A freed component is not
//! taken for a hole.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use braid_client::Kind;
use braid_client::OpenOptions;
use braid_layout::Scheme;
use braid_wire::data::DriveRequest;

use crate::between::Between;
use crate::common::{Cluster, name, pattern, shape, wait_for};

const UNIT: u64 = 4096;
/// Number of a stripe far behind the first.
const FAR: u64 = 1000;

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_a_column_that_is_gone_are_no_hole_before_those_of_another() {
    let mut cluster = Cluster::over_tcp(2).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    // The second drive is reached through a proxy.
    cluster.stop(1).await;
    let between = Between::start(&cluster.drives[1].address).await;
    cluster.drives[1].advertise = Some(between.address.clone());
    cluster.restart(1).await;
    cluster.all_up(&client).await;
    let options = OpenOptions::new().write(true).create(true).shape(shape(Scheme::Raid0, 2, 0, 4096));
    let file = client.open(&name("f"), &options).await.expect("create");
    let row = file.stat().await.expect("stat");
    let kept =
        row.segments[0].columns.iter().position(|column| column.drive_name == "d1").expect("two drives");
    let kept = u64::try_from(kept).expect("small");
    let bytes = pattern(1, 4096);
    // The near unit is on the first drive, the far one on the second.
    let near = (1 - kept) * UNIT;
    let far = (2 * FAR + kept) * UNIT;
    file.write_at(&bytes, near).await.expect("write");
    file.write_at(&bytes, far).await.expect("write");
    file.close().await.expect("close");
    let reader = client.open(&name("f"), &OpenOptions::new().read(true)).await.expect("open");
    assert_eq!(reader.data_after(0).await.expect("listed"), Some(0..2 * UNIT));
    let end = reader.size().min((2 * FAR + 2) * UNIT);
    assert_eq!(reader.data_after(2 * UNIT).await.expect("listed"), Some(2 * FAR * UNIT..end));

    // The manager cannot free what the second drive holds.
    let is_remove = |row: &&(u16, &str)| row.1 == "Remove";
    let remove = DriveRequest::KINDS.iter().find(is_remove).expect("there is such a request").0;
    between.way.stops.store(remove, Ordering::SeqCst);
    client.unlink(&name("f")).await.expect("unlink");
    wait_for(|| async { between.way.stopped.load(Ordering::SeqCst) > 0 }).await;
    let until = Instant::now() + Duration::from_secs(15);
    let error = loop {
        match reader.data_after(0).await {
            Ok(found) => assert_eq!(found, Some(0..2 * UNIT), "before the first drive's part is freed"),
            Err(error) => break error,
        }
        assert!(Instant::now() < until, "it is freed in the end");
    };
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
    let error = reader.read_at(&mut [0; 4096], near).await.expect_err("they are gone");
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
}
