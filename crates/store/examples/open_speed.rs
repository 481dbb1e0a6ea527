//! The time in which a large store opens after it was killed: generates one, opens it and prints the times.
//!
//!     cargo run --release -p braid-store --example open_speed -- DIR OBJECTS LOG_GIB [TAIL_MIB]
//!
//! `DIR` must be empty or absent; afterwards it can be opened repeatedly with `DIR` alone. Without `TAIL_MIB`
//! the tail is as long as it can get before a checkpoint is due.

use std::path::Path;
use std::time::Instant;

use braid_layout::{ClusterId, DriveId};
use braid_store::Identity;
use braid_store::Options;
use braid_store::Store;
use braid_store::bench;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let dir = Path::new(arguments.first().ok_or("usage: open_speed DIR [OBJECTS LOG_GIB [TAIL_MIB]]")?);
    let identity = Identity { cluster: ClusterId(1), drive: DriveId(1) };
    if let [_, objects, log_gib, tail @ ..] = &arguments[..] {
        let log_gib = log_gib.parse::<u64>()?;
        let tail_mib = tail.first().map(|mib| mib.parse::<u64>()).transpose()?;
        bench::generate(
            dir,
            identity,
            objects.parse()?,
            log_gib << 30,
            tail_mib.map(|mib| mib << 20),
            512 << 20,
        )?;
    }
    let began = Instant::now();
    let (store, recovery) = Store::open(dir, Some(identity), Options::default())?;
    let took = began.elapsed();
    let stat = store.stat()?;
    println!(
        "{took:?}: {} objects, {} live bytes in {} segments; checkpoint {}, {} records replayed, {} damaged",
        stat.objects, stat.live, stat.segments, recovery.checkpoint, recovery.records, recovery.damaged_count
    );
    // As after a kill: a clean close would shorten the next opening.
    std::process::exit(0);
}
