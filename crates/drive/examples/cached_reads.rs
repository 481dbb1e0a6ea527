//! Measures a drive: cost of a 4 KiB read from the page cache. `cached_reads DIRECTORY [SECONDS [IN_FLIGHT
//! [CONNECTIONS]]]`.
//!
//! Drive and asker are in one process, each on threads of its own, so that the processor time of each can be
//! told apart; what the kernel does for loopback counts for the side whose call it is. The last line is a raw
//! exchange of as many bytes on as many sockets: a program that does nothing else.

#[path = "../tests/drive/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_drive::Sending;
use braid_layout::Version;
use braid_transport::DriveSession;
use braid_wire::control::Grant;
use braid_wire::data::{ColumnMap, Create, DriveReply, DriveRequest, StripeWrite};
use support::manager::Manager;
use support::requests::{
    AT, G, LEASE, attributes_of, bytes, drive_level, map, object_level, partition_create,
};
use support::{Drive, config, settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

const UNIT: u32 = 512 << 10;
const UNITS: u64 = 256;
const READ: u32 = 4096;
/// Bytes of a request and of its answer on the wire, about.
const RAW: (usize, usize) = (400, 4300);

struct Load {
    time: Duration,
    in_flight: u64,
    connections: u64,
}

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().expect("a directory, which need not exist"));
    let mut number = |default| args.next().map_or(default, |text| text.parse().expect("a number"));
    let time = Duration::from_secs(number(5));
    let load = Arc::new(Load { time, in_flight: number(16), connections: number(1) });
    let serving = runtime("drive");
    let asking = runtime("asker");
    fs::create_dir_all(&dir).expect("a directory");
    let drive = serving.block_on(serving.spawn(start(dir.clone()))).expect("a drive");
    let (drive, manager) = drive;
    let drive = Arc::new(drive);
    asking.block_on(asking.spawn(fill(Arc::clone(&drive)))).expect("filled");
    for seconds in [1, load.time.as_secs()] {
        let load = Arc::new(Load { time: Duration::from_secs(seconds), ..*load });
        let reads = measure("braid", &load, |load, seed| {
            let drive = Arc::clone(&drive);
            async move { reads(&drive, &load, seed).await }
        });
        asking.block_on(reads);
    }
    let listener = serving.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
    let address = listener.local_addr().expect("an address");
    serving.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(raw_answers(stream));
        }
    });
    asking.block_on(measure("raw", &load, |load, _| async move {
        raw_asks(TcpStream::connect(address).await.expect("a connection"), &load).await
    }));
    drop(manager);
    fs::remove_dir_all(dir).expect("the drive's directory");
    std::process::exit(0);
}

fn runtime(name: &str) -> Runtime {
    Builder::new_multi_thread().worker_threads(2).thread_name(name).enable_all().build().expect("threads")
}

async fn start(dir: PathBuf) -> (Drive, Manager) {
    let manager = Manager::start().await;
    let (mut settings, clock) = settings();
    (settings.sending, settings.segment_bytes) = (Sending::Auto, None);
    let drive = Drive::start_with(config(&dir, &manager, settings), clock, &manager).await;
    (drive, manager)
}

async fn fill(drive: Arc<Drive>) {
    let mut session = drive.session().await;
    session.call(&drive.grant(drive_level()), &partition_create(), &[]).await.expect("a partition");
    let grant = drive.grant(object_level());
    let map = ColumnMap { unit_bytes: UNIT, ..map() };
    let create = Create { at: AT, attributes: attributes_of(map) };
    session.call(&grant, &create.into(), &[]).await.expect("an object");
    let payload = bytes(7, UNIT);
    for unit in 0..UNITS {
        let stamp = Version { g: G, lease: LEASE, n: unit + 1 };
        let write = StripeWrite { stamp, ..support::requests::write_of(unit, 0, &payload, unit + 1) };
        session.call(&grant, &write.into(), &[&payload]).await.expect("written");
    }
}

async fn reads(drive: &Drive, load: &Load, seed: u64) -> u64 {
    let mut session = drive.session().await;
    let grant = drive.grant(object_level());
    let mut random = seed;
    let mut done = 0;
    let mut into = vec![0; 4096];
    for tag in 0..load.in_flight {
        ask(&mut session, &grant, tag, &mut random).await;
    }
    let until = Instant::now() + load.time;
    let mut asked = load.in_flight;
    while asked > 0 {
        let answer = session.halves().1.next().await.expect("an answer");
        assert!(matches!(answer.reply, DriveReply::Read(_)) && answer.payload_bytes == READ);
        session.halves().1.payload(&mut into).await.expect("its payload");
        done += 1;
        if Instant::now() < until {
            ask(&mut session, &grant, answer.tag, &mut random).await;
        } else {
            asked -= 1;
        }
    }
    done
}

async fn ask(session: &mut DriveSession, grant: &Grant, tag: u64, random: &mut u64) {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let block = (*random >> 33) % (UNITS * u64::from(UNIT / READ));
    let from = u32::try_from(block % u64::from(UNIT / READ)).expect("small") * READ;
    let request: DriveRequest = support::requests::read(block / u64::from(UNIT / READ), from, from + READ);
    session.halves().0.ask(tag, grant, &request, &[]).await.expect("asked");
}

async fn raw_answers(mut stream: TcpStream) {
    stream.set_nodelay(true).expect("an option");
    let mut asked = vec![0; RAW.0];
    let answer = vec![7; RAW.1];
    while stream.read_exact(&mut asked).await.is_ok() {
        if stream.write_all(&answer).await.is_err() {
            return;
        }
    }
}

async fn raw_asks(mut stream: TcpStream, load: &Load) -> u64 {
    stream.set_nodelay(true).expect("an option");
    let request = vec![7; RAW.0];
    let mut answer = vec![0; RAW.1];
    for _ in 0..load.in_flight {
        stream.write_all(&request).await.expect("asked");
    }
    let until = Instant::now() + load.time;
    let mut done = 0;
    let mut asked = load.in_flight;
    while asked > 0 {
        stream.read_exact(&mut answer).await.expect("an answer");
        done += 1;
        if Instant::now() < until {
            stream.write_all(&request).await.expect("asked");
        } else {
            asked -= 1;
        }
    }
    done
}

/// Runs `work` on each connection, and prints what came of it.
async fn measure<W: Future<Output = u64> + Send + 'static>(
    what: &str,
    load: &Arc<Load>,
    work: impl Fn(Arc<Load>, u64) -> W,
) {
    let before = processor_us();
    let began = Instant::now();
    let each = Load { in_flight: (load.in_flight / load.connections).max(1), ..**load };
    let each = Arc::new(each);
    let tasks: Vec<_> =
        (0..load.connections).map(|seed| tokio::spawn(work(Arc::clone(&each), seed + 1))).collect();
    let mut done = 0;
    for task in tasks {
        done += task.await.expect("it ends well");
    }
    let took = began.elapsed();
    let after = processor_us();
    let cpu = |side: &str| (after.get(side).unwrap_or(&0.0) - before.get(side).unwrap_or(&0.0)) / done as f64;
    println!(
        "{what:6} {:8.0}/s  drive {:5.1} us  asker {:5.1} us",
        done as f64 / took.as_secs_f64(),
        cpu("drive") + cpu("store"),
        cpu("asker"),
    );
}

/// Microseconds of processor time that threads have used so far, by the first five letters of their names.
fn processor_us() -> BTreeMap<String, f64> {
    let mut used = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").expect("/proc").flatten() {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let name: String = read("comm").chars().take(5).collect();
        let nanos: f64 =
            read("schedstat").split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0.0);
        *used.entry(name).or_insert(0.0) += nanos / 1000.0;
    }
    used
}
