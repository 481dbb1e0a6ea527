//! Reads the same bytes round after round, for a program that measures itself beside it
//! (`crates/python/bench`).
//!
//!     read_rounds CLUSTER ranges NAME BYTES TOGETHER    a file, in ranges of so many bytes
//!     read_rounds CLUSTER files DIRECTORY TOGETHER      a directory's files, each opened and read whole
//!
//! Each line on standard input begins a round; the answer is its seconds. `fresh` in the line has each read
//! get new memory, all of which is kept to the end of the round; else tasks use theirs again.

use std::error::Error;
use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use braid_client::Client;
use braid_client::File;
use braid_client::Name;
use braid_client::OpenOptions;
use braid_client::cluster::{self, ClusterFile};
use tokio::task::JoinSet;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// One read of a round.
#[derive(Clone)]
enum Read {
    /// A range of an open file, of this many bytes.
    Range(Arc<File>, u64, usize),
    /// A whole file, of this many bytes.
    Whole(Name, usize),
}

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (cluster, rest) = args.split_first().ok_or("which cluster?")?;
    let place = cluster::choose(Some(Path::new(cluster)))?;
    let client = Client::connect(ClusterFile::read(&place)?.ok_or("no cluster is here")?.config()?).await?;
    let (reads, together) = match rest {
        ["ranges", name, bytes, together] => (ranges(&client, name, bytes.parse()?).await?, together),
        ["files", directory, together] => (files(&client, directory).await?, together),
        _ => return Err("say `ranges NAME BYTES TOGETHER` or `files DIRECTORY TOGETHER`".into()),
    };
    let reads = Arc::new(reads);
    let together = together.parse()?;
    for line in std::io::stdin().lock().lines() {
        let seconds = round(&client, &reads, together, line?.trim() == "fresh").await?;
        println!("{seconds}");
    }
    Ok(())
}

async fn ranges(client: &Client, name: &str, bytes: usize) -> Result<Vec<Read>> {
    let file = Arc::new(client.open(&name.parse()?, &OpenOptions::new().read(true)).await?);
    let starts = (0..file.size()).step_by(bytes.max(1));
    Ok(starts.map(|start| Read::Range(Arc::clone(&file), start, bytes)).collect())
}

async fn files(client: &Client, directory: &str) -> Result<Vec<Read>> {
    let directory: Name = directory.parse()?;
    let entries = client.list(&directory).all().await?;
    let whole = |entry: &braid_wire::control::Entry| -> Result<Read> {
        Ok(Read::Whole(directory.join(&entry.name)?, usize::try_from(entry.size())?))
    };
    entries.iter().map(whole).collect()
}

/// Does all reads, `together` at a time. Returns the seconds taken.
async fn round(client: &Client, reads: &Arc<Vec<Read>>, together: usize, fresh: bool) -> Result<f64> {
    let next = Arc::new(AtomicUsize::new(0));
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..together {
        let client = client.clone();
        let reads = Arc::clone(reads);
        let next = Arc::clone(&next);
        tasks.spawn(async move {
            let mut kept = Vec::new();
            let mut buffer = Vec::new();
            while let Some(read) = reads.get(next.fetch_add(1, Ordering::Relaxed)) {
                let (Read::Range(_, _, bytes) | Read::Whole(_, bytes)) = read;
                if fresh {
                    kept.push(std::mem::replace(&mut buffer, vec![0; *bytes]));
                }
                buffer.resize(*bytes, 0);
                match read {
                    Read::Range(file, start, _) => file.read_at(&mut buffer, *start).await?,
                    Read::Whole(name, _) => {
                        let file = client.open(name, &OpenOptions::new().read(true)).await?;
                        file.read_at(&mut buffer, 0).await?
                    }
                };
            }
            kept.push(buffer);
            Ok::<_, braid_client::Error>(kept)
        });
    }
    let mut kept = Vec::new();
    while let Some(done) = tasks.join_next().await {
        kept.push(done??);
    }
    Ok(begun.elapsed().as_secs_f64())
}
