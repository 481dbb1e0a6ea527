//! Analysis: what was measured of requests, and what it says.

use std::sync::Arc;

use braid_client::analysis::{Act, Limit, Work};
use braid_client::{Asked, OpenOptions};
use braid_layout::Scheme;
use braid_schedule::{Charge, DeviceCost, DirectionCost};
use braid_store::disk::modelled::Device;

use crate::common::{Cluster, name, pattern, put, shape};

const UNIT: u32 = 64 << 10;

/// One drive's disk takes 150 ms for each read: the analysis names it. The requests are those of the plan.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_waits_for_a_slow_disk_is_bound_by_it() {
    let mut cluster = Cluster::start(5).await;
    let file = name("slow");
    let bytes = pattern(1, 16 * UNIT as usize);
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    put(&client, &file, shape(Scheme::Raid5, 4, 1, UNIT), &bytes).await;
    let free = DirectionCost { operation_ns: 0, bytes_per_second: u64::MAX };
    let read = DirectionCost { operation_ns: 150_000_000, ..free };
    let cost = DeviceCost { charge: Charge::Sum, read, write: free, sync_ns: 0 };
    cluster.stop(2).await;
    cluster.drives[2].disk_model = Some(Arc::new(Device::new(cost)));
    cluster.restart(2).await;
    let client = cluster.client().await;
    cluster.all_up(&client).await;

    let plans = client.plan(&file, Asked::Read, 0..16 * u64::from(UNIT), &[]).await.expect("a plan");
    let (analysed, recorder) = client.analysed();
    let open = analysed.open(&file, &OpenOptions::new().read(true)).await.expect("open");
    let mut found = vec![0; bytes.len()];
    recorder.begin();
    open.read_at(&mut found, 0).await.expect("read");
    // Other tests of this process run at the same time: they take processor time, and make all of it longer.
    let work = Work { cpu_us: 0, busiest_us: 0, wall_us: 0, ..recorder.take() };
    assert!(found == bytes);

    let bound = work.bound();
    let slow = cluster.drives[2].id;
    assert_eq!(bound.limit, Limit::Disk(slow), "{bound:#?}");
    assert_eq!(bound.drives[0].drive, slow);
    assert!(bound.drives[0].disk_us >= 140_000, "{bound:#?}");
    let planned: usize = plans.iter().map(|plan| plan.set.len()).sum();
    let measured: Vec<_> = plans.iter().flat_map(|plan| plan.measured(&work)).collect();
    assert_eq!((measured.len(), work.spans.len()), (planned, planned));
    let is_told =
        |drive| work.spans.iter().filter(|span| span.drive == drive).all(|span| span.times.is_some());
    assert!(cluster.drives.iter().all(|drive| is_told(drive.id)));

    // A client that does not ask is told nothing, and records nothing.
    let plain = client.open(&file, &OpenOptions::new().read(true)).await.expect("open");
    plain.read_at(&mut found[..10], 0).await.expect("read");
    assert!(recorder.take().spans.is_empty());
}

/// Writes tell the time of their commits; a short write through its data drive is one request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_tell_what_their_commits_took() {
    let cluster = Cluster::start(5).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let file = name("written");
    let bytes = pattern(2, 4 * UNIT as usize);
    put(&client, &file, shape(Scheme::Raid5, 4, 1, UNIT), &bytes).await;
    let (analysed, recorder) = client.analysed();
    let open = analysed.open(&file, &OpenOptions::new().write(true)).await.expect("open");
    recorder.begin();
    open.write_at(&bytes, 0).await.expect("write");
    let work = recorder.take();
    let writes: Vec<_> = work.spans.iter().filter(|span| span.act == Act::StripeWrite).collect();
    assert_eq!(writes.len(), 5);
    for span in writes {
        let times = span.times.expect("it was asked for");
        assert!(times.commit_us > 0 && times.total_us >= times.commit_us && !times.cached, "{times:?}");
        assert!(span.crc_ns > 0 && span.is_done);
    }
    assert!(work.computed_us > 0, "parity");
    open.write_at(&bytes[..100], 0).await.expect("write");
    let work = recorder.take();
    let through: Vec<_> = work.spans.iter().filter(|span| span.act == Act::UnitWrite).collect();
    assert_eq!(through.len(), 1);
    assert!(through[0].times.is_some_and(|times| times.total_us >= times.commit_us));
    open.close().await.expect("close");
}
