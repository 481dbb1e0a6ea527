//! Volumes whose data is private: what is on the wire between clients and drives, and between drives.

use std::sync::{Arc, Mutex};

use braid_client::{Client, OpenOptions};
use braid_layout::Scheme;
use braid_transport::{DriveSession, Limits};
use braid_wire::capability::Protection;
use braid_wire::control::{Access, ControlReply, Refresh, Room, Turn};
use braid_wire::data::{Address, GetAttributes};
use braid_wire::{Addresses, Reason};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{Cluster, name, put, read_all, shape, wait_for};
use crate::raw;
use crate::shared::{UNIT, both};

/// Bytes that nothing but the file has in it.
const DATA: &[u8] = b"what nobody is to read along";
const NAME: &str = "a-name-that-is-secret";

/// All that has passed.
type Taken = Arc<Mutex<Vec<u8>>>;

/// A way before a server that keeps all that passes. Returns its address.
async fn tap(server: String, taken: Taken) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let Ok(far) = TcpStream::connect(&server).await else { continue };
            let (from_near, to_near) = near.into_split();
            let (from_far, to_far) = far.into_split();
            tokio::spawn(pass(from_near, to_far, Arc::clone(&taken)));
            tokio::spawn(pass(from_far, to_near, Arc::clone(&taken)));
        }
    });
    address
}

async fn pass(mut from: impl AsyncReadExt + Unpin, mut to: impl AsyncWriteExt + Unpin, taken: Taken) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        taken.lock().expect("no holder panics").extend_from_slice(&bytes[..read]);
        if to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

fn has(taken: &Taken, needle: &[u8]) -> bool {
    taken.lock().expect("no holder panics").windows(needle.len()).any(|at| at == needle)
}

/// A cluster whose drives are reached over taps only.
async fn tapped() -> (Cluster, Client, Taken) {
    let mut cluster = Cluster::over_tcp(3).await;
    let client = cluster.client().await;
    let taken = Taken::default();
    for drive in 0..3 {
        cluster.stop(drive).await;
        let address = tap(cluster.drives[drive].address.clone(), Arc::clone(&taken)).await;
        cluster.drives[drive].advertise = Some(address);
        cluster.restart(drive).await;
    }
    cluster.all_up(&client).await;
    (cluster, client, taken)
}

fn data() -> Vec<u8> {
    DATA.iter().copied().cycle().take(300_000).collect()
}

/// Whole stripes, parts of stripes that go on to the parity drive, and reads of all sizes.
async fn use_files(cluster: &Cluster, client: &Client, volume_file: &str) {
    let raid5 = shape(Scheme::Raid5, 2, 1, u32::try_from(UNIT).expect("small"));
    let path = name(volume_file);
    put(client, &path, raid5, &data()).await;
    let other = cluster.client().await;
    let one = client.open(&path, &both()).await.expect("opened");
    let two = other.open(&path, &both()).await.expect("opened");
    let few = &data()[..1000];
    one.write_at(few, 100_000).await.expect("written");
    two.write_at(few, 200_000).await.expect("written");
    let mut back = vec![0; 1000];
    two.read_at(&mut back, 100_000).await.expect("read");
    assert_eq!(back, few);
    one.close().await.expect("closed");
    two.close().await.expect("closed");
    assert_eq!(read_all(client, &path).await.expect("read").len(), 300_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_reads_along_where_data_is_private() {
    let (cluster, client, taken) = tapped().await;
    let raid5 = shape(Scheme::Raid5, 2, 1, u32::try_from(UNIT).expect("small"));
    client.volume_create_with("main", Some(raid5), 0, Protection::Privacy).await.expect("a volume");
    use_files(&cluster, &client, NAME).await;
    // The names at the drives come to them too, in time; they are written as the manager sees fit.
    let path = name(NAME);
    wait_for(|| async { client.check(&path, |_| {}).await.is_ok_and(|report| report.is_clean()) }).await;
    assert!(!has(&taken, DATA) && !has(&taken, NAME.as_bytes()), "it is in TLS");

    // As integrity, the same is there to be read: the taps see it.
    client.volume_protect("main", Protection::Integrity).await.expect("set");
    use_files(&cluster, &cluster.client().await, "plain").await;
    assert!(has(&taken, DATA));
    assert!(!has(&taken, NAME.as_bytes()), "names are for the manager alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_refuses_in_the_clear_what_is_private_and_no_private_part_is_sent() {
    let (cluster, client, taken) = tapped().await;
    let raid5 = shape(Scheme::Raid5, 2, 1, u32::try_from(UNIT).expect("small"));
    client.volume_create_with("main", Some(raid5), 0, Protection::Privacy).await.expect("a volume");
    put(&client, &name("f"), raid5, &data()).await;
    let reader = client.open(&name("f"), &OpenOptions::new().read(true)).await.expect("opened");
    let file = reader.stat().await.expect("stat").file;
    let mut manager = raw::manager(&cluster).await;
    let refresh = Refresh {
        file,
        access: Access::Read,
        lease: Default::default(),
        holder: braid_layout::HolderId(0),
        turn: Turn::Any,
        in_vain: 0,
        reservation: braid_layout::ReservationId::NONE,
        reach: 0,
        room: Room::Keep,
        snapshot: 0,
    };
    let ControlReply::Opened(opened) = manager.call(&refresh.into()).await.expect("opened") else {
        panic!("an open")
    };
    let column = &opened.stat.segments[0].columns[0];
    let grant = opened.grants[0][0].clone().expect("it is in the set");
    assert_eq!(grant.capability.protection, Protection::Privacy);
    let at = Address { partition: opened.stat.volume.into(), object: column.object };
    let ask = async |addresses: &Addresses, grant| {
        let home = braid_transport::Home {
            cluster: cluster.ready.cluster,
            pin: Some(cluster.ready.client_token.pin),
        };
        let limits = Limits::default();
        let mut session =
            DriveSession::connect_first(addresses, column.drive, home, &limits).await.expect("connected");
        session.call(grant, &GetAttributes { at }.into(), &[]).await.map(drop)
    };
    ask(&column.addresses.in_tls(), &grant).await.expect("answered");
    // This side does not send it either; a client that does not care sends it as if it were not private.
    assert!(ask(&column.addresses, &grant).await.is_err());
    let mut bare = grant.clone();
    bare.capability.protection = Protection::Integrity;
    let error = ask(&column.addresses, &bare).await.expect_err("another capability");
    let braid_transport::TransportError::Refusal(refusal) = &error else { panic!("{error}") };
    assert_eq!(refusal.reason, Reason::Forged, "the protection is under the MAC");
    assert!(!has(&taken, grant.private.secret()));
}
