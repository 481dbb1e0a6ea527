//! Large files of the experiments, written and read from the beginning.

use braid_bench::stripes::{Done, Job, Work};
use braid_cli::output::exit::{Exit, Failure};
use braid_client::Name;

use crate::bench::client::{ClientProcess, alone, rate};
use crate::bench::cluster::Cluster;

/// Bytes of one request of large sequential work: whole stripes of four data units.
const REQUEST_BYTES: u64 = 8 << 20;
const REQUESTS: u32 = 4;

/// Creates a file and has a client process fill it.
pub(in crate::bench) async fn filled(
    cluster: &mut Cluster,
    client: &mut ClientProcess,
    bytes: u64,
) -> Result<Name, Failure> {
    let name = cluster.create().await?;
    alone(client, &write(&name, bytes)).await?;
    Ok(name)
}

/// Maximum number of files created to find one with a column on each drive that goes away.
const TRIES: u32 = 400;

/// Finds drives on which `healthy` has no column, and fills another file with a column on each of them for
/// which `is_hit` is true of the drives of its columns and those drives.
pub(in crate::bench) async fn healthy_and_hit(
    cluster: &mut Cluster,
    client: &mut ClientProcess,
    healthy: &Name,
    bytes: u64,
    is_hit: impl Fn(&[String], &[String]) -> bool,
) -> Result<(Name, Vec<String>), Failure> {
    let there = cluster.drives_of(healthy).await?;
    let all = cluster.running.cluster.drives.iter();
    let victims: Vec<String> = all.filter(|drive| !there.contains(drive)).cloned().collect();
    for _ in 0..TRIES {
        let file = cluster.create().await?;
        if is_hit(&cluster.drives_of(&file).await?, &victims) {
            alone(client, &write(&file, bytes)).await?;
            return Ok((file, victims));
        }
        cluster.remove(&[file]).await?;
    }
    let why = format!("none of {TRIES} lies on {victims:?} as it must");
    Err(Failure::new(Exit::Failed, "lay out a file", why))
}

/// The job that writes a file from the beginning, in large requests.
pub(in crate::bench) fn write(file: &Name, bytes: u64) -> Job {
    job(file, Work::Write { bytes, request_bytes: REQUEST_BYTES, depth: REQUESTS })
}

/// The job that reads a file from the beginning, in large requests.
pub(in crate::bench) fn read(file: &Name, bytes: u64) -> Job {
    job(file, Work::Read { bytes, request_bytes: REQUEST_BYTES, depth: REQUESTS })
}

pub(in crate::bench) fn job(file: &Name, work: Work) -> Job {
    Job { file: file.to_string(), by_stripe: false, work }
}

/// Bytes a second of one client.
pub(super) fn rate_of(done: Done) -> f64 {
    rate(&[done])
}
