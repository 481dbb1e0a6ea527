//! Large files of the experiments, written and read from the beginning.

use braid_bench::stripes::{Done, Job, Work};
use braid_cli::output::exit::Failure;
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

/// The job that writes a file from the beginning, in large requests.
pub(in crate::bench) fn write(file: &Name, bytes: u64) -> Job {
    job(file, Work::Write { bytes, request_bytes: REQUEST_BYTES, depth: REQUESTS })
}

/// The job that reads a file from the beginning, in large requests.
pub(super) fn read(file: &Name, bytes: u64) -> Job {
    job(file, Work::Read { bytes, request_bytes: REQUEST_BYTES, depth: REQUESTS })
}

pub(in crate::bench) fn job(file: &Name, work: Work) -> Job {
    Job { file: file.to_string(), by_stripe: false, work }
}

/// Bytes a second of one client.
pub(super) fn rate_of(done: Done) -> f64 {
    rate(&[done])
}
