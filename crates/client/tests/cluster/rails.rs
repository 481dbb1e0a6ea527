//! A drive with two addresses: both carry, either may be lost and return, and only a drive that answers on
//! none is away.

use std::sync::atomic::Ordering;

use braid_client::{Client, Name, OpenOptions, Reached};
use braid_layout::Scheme;

use crate::between::Between;
use crate::common::{Cluster, assert_same, name, pattern, put, read_all, shape, wait_for};

const UNIT: u32 = 32 << 10;
const BYTES: usize = 6 << 20;

/// A cluster of three drives whose first is reached by two proxies alone, and a client.
struct Railed {
    cluster: Cluster,
    ways: [Between; 2],
    client: Client,
}

impl Railed {
    async fn start() -> Railed {
        let mut cluster = Cluster::over_tcp(3).await;
        cluster.stop(0).await;
        // Its first address is the one that it had; the other is of another kind where there is one.
        let first = cluster.drives[0].address.clone();
        let second = match std::net::TcpListener::bind("[::1]:0") {
            Ok(_) => "[::1]:0",
            Err(_) => "127.0.0.2:0",
        };
        cluster.drives[0].address = format!("{first},{second}");
        cluster.restart(0).await;
        let seen = cluster.client().await;
        cluster.all_up(&seen).await;
        let row = |rows: Vec<braid_wire::control::DriveRow>| rows.into_iter().find(|row| row.name == "d0");
        let told = row(seen.status().await.expect("status").drives).expect("it is listed").addresses;
        let told: Vec<&str> = told.iter().collect();
        let [near, far] = told[..] else { panic!("both are told: {told:?}") };
        assert_eq!(near, first);
        let ways = [Between::start(near).await, Between::start(far).await];
        cluster.drives[0].address = format!("{near},{far}");
        cluster.drives[0].advertise = Some(format!("{},{}", ways[0].address, ways[1].address));
        cluster.stop(0).await;
        cluster.restart(0).await;
        let mut config = cluster.config();
        config.set_bytes = 1 << 20;
        let client = Client::connect(config).await.expect("a client");
        cluster.all_up(&client).await;
        client.volume_create("main", None, 0).await.expect("a volume");
        Railed { cluster, ways, client }
    }

    /// Writes a file over all drives. All its columns count, so no drive was taken for away.
    async fn write(&self, to: &Name, bytes: &[u8]) {
        put(&self.client, to, shape(Scheme::Raid5, 2, 1, UNIT), bytes).await;
        let file = self.client.open(to, &OpenOptions::new().read(true)).await.expect("open");
        let row = file.stat().await.expect("stat");
        assert_eq!(row.segments[0].set.iter().count(), 3, "a column went out");
    }

    /// Reads a file and returns true once both rails were up and carried something since `before`.
    async fn reads_over_both(&self, from: &Name, expected: &[u8], before: [u64; 2]) -> bool {
        let read = read_all(&self.client, from).await.expect("read");
        assert_same(&read, expected, "read");
        let now = self.carried();
        self.is_up() == [true, true] && now[0] > before[0] && now[1] > before[1]
    }

    /// Bytes that each rail has carried.
    fn carried(&self) -> [u64; 2] {
        self.of_rails(|rail| rail.bytes)
    }

    fn is_up(&self) -> [bool; 2] {
        self.of_rails(|rail| rail.is_up)
    }

    fn of_rails<T>(&self, what: impl Fn(&braid_client::RailUse) -> T) -> [T; 2] {
        let rails = self.client.rails();
        let one = |way: &Between| {
            what(rails.iter().find(|rail| rail.address == way.address).expect("the rail is known"))
        };
        [one(&self.ways[0]), one(&self.ways[1])]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rail_may_be_lost_in_the_midst_of_writes_and_reads_and_carries_again_when_it_returns() {
    let railed = Railed::start().await;
    let bytes = pattern(1, BYTES);
    let file = name("f");
    railed.write(&file, &bytes).await;
    wait_for(|| railed.reads_over_both(&file, &bytes, [0, 0])).await;

    // A large write, and one rail ends its connections in the midst.
    railed.ways[0].cut_after(20);
    let more = pattern(2, BYTES);
    railed.write(&name("g"), &more).await;
    assert!(railed.ways[0].way.closed.load(Ordering::SeqCst), "it was cut");
    assert_same(&read_all(&railed.client, &name("g")).await.expect("read"), &more, "over the other");
    assert_eq!(railed.is_up(), [false, true]);

    railed.ways[0].open();
    let before = railed.carried();
    wait_for(|| railed.reads_over_both(&file, &bytes, before)).await;

    // A large read, and the other rail falls silent in the midst.
    let reading = async {
        assert_same(&read_all(&railed.client, &file).await.expect("read"), &bytes, "while a rail is mute");
    };
    let muting = async { railed.ways[1].way.mute.store(true, Ordering::SeqCst) };
    tokio::join!(reading, muting);
    wait_for(|| async {
        assert_same(&read_all(&railed.client, &file).await.expect("read"), &bytes, "after it fell silent");
        railed.is_up() == [true, false]
    })
    .await;
    railed.ways[1].way.mute.store(false, Ordering::SeqCst);
    let before = railed.carried();
    wait_for(|| railed.reads_over_both(&file, &bytes, before)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_that_answers_on_no_rail_is_away_and_one_that_answers_on_the_last_is_not() {
    let railed = Railed::start().await;
    let bytes = pattern(3, BYTES);
    let file = name("f");
    railed.write(&file, &bytes).await;

    // A client that reaches one address alone uses that, and the manager too.
    railed.ways[0].way.closed.store(true, Ordering::SeqCst);
    let client = railed.cluster.client().await;
    assert_same(&read_all(&client, &file).await.expect("read"), &bytes, "over the second rail");
    let rows = client.status().await.expect("status").drives;
    let seen = client.see_rails(&rows).await;
    let of_first = rows.iter().zip(&seen).find(|(row, _)| row.name == "d0").expect("it is listed").1;
    assert!(matches!(of_first[0].reached, Reached::Not(_)), "{of_first:?}");
    assert!(matches!(of_first[1].reached, Reached::In(_)), "{of_first:?}");
    railed.write(&name("g"), &bytes).await;

    railed.ways[1].way.closed.store(true, Ordering::SeqCst);
    assert_same(&read_all(&client, &file).await.expect("read"), &bytes, "without the drive");
    railed.ways.iter().for_each(Between::open);
    wait_for(|| async {
        assert_same(&read_all(&railed.client, &file).await.expect("read"), &bytes, "it is back");
        railed.is_up().contains(&true)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_of_another_drive_is_no_rail() {
    let mut cluster = Cluster::start(3).await;
    cluster.stop(0).await;
    let Cluster { drives, .. } = &mut cluster;
    let own = drives[0].address.clone();
    drives[0].advertise = Some(format!("{},{own}", drives[1].address));
    drives[0].address = format!("{own},127.0.0.1:0");
    cluster.restart(0).await;
    let client = cluster.client().await;
    cluster.all_up(&client).await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let bytes = pattern(4, BYTES);
    put(&client, &name("f"), shape(Scheme::Raid5, 2, 1, UNIT), &bytes).await;
    assert_same(&read_all(&client, &name("f")).await.expect("read"), &bytes, "over its own");
    let rows = client.status().await.expect("status").drives;
    let seen = client.see_rails(&rows).await;
    let of_first = rows.iter().zip(&seen).find(|(row, _)| row.name == "d0").expect("it is listed").1;
    let Reached::Not(why) = &of_first[0].reached else { panic!("{of_first:?}") };
    assert!(why.contains("another peer") && why.contains(&cluster.drives[1].address), "{why}");
}
