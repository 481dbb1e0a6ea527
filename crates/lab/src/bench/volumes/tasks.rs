//! Work of many tasks of this process, in as many files.

use std::sync::Arc;
use std::time::Instant;

use braid_cli::output::exit::Failure;
use braid_client::{Client, Error, Name, OpenOptions};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Files that are made at a time.
const AT_ONCE: usize = 64;

/// Makes small files of these names.
pub(super) async fn make_files(client: &Client, names: Vec<Name>, bytes: usize) -> Result<(), Failure> {
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut making = JoinSet::new();
    for name in names {
        let turn = Arc::clone(&turns).acquire_owned().await.expect("never closed");
        let client = client.clone();
        making.spawn(async move {
            let made = make_file(&client, &name, bytes).await;
            drop(turn);
            made
        });
        while let Some(made) = making.try_join_next() {
            made.expect("a task that does not panic")?;
        }
    }
    for made in making.join_all().await {
        made?;
    }
    Ok(())
}

async fn make_file(client: &Client, name: &Name, bytes: usize) -> Result<(), Error> {
    let options = OpenOptions::new().write(true).create_new(true);
    let file = client.open(name, &options).await?;
    file.write_at(&vec![7; bytes], 0).await?;
    file.close().await
}

/// Reads files one by one, from open to close. Returns how many there were a second.
pub(super) async fn read_files(client: &Client, names: &[Name], bytes: usize) -> Result<f64, Failure> {
    let mut buffer = vec![0; bytes];
    let began = Instant::now();
    for name in names {
        let file = client.open(name, &OpenOptions::new().read(true)).await?;
        let read = file.read_at(&mut buffer, 0).await?;
        assert!(read == bytes && buffer.iter().all(|byte| *byte == 7), "{name} is as it was written");
        file.close().await?;
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    Ok(names.len() as f64 / began.elapsed().as_secs_f64())
}
