//! Questions that take several runs: frequent sets of items, and where two files differ.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use braid_methods::{Answer, Arguments, ItemSet, MethodError, candidates};

use crate::client::Client;
use crate::error::Result;
use crate::file::File;
use crate::methods::{RunAsk, RunAt, failed};
use crate::naming::name::Name;
use crate::open::OpenOptions;

/// Sets that are counted in one run: they go with each request.
const CANDIDATES_AT_ONCE: usize = 1500;
/// Bytes that are compared at a time.
const COMPARED_BYTES: usize = 1 << 20;

impl Client {
    /// The sets of items that at least `support` lines of the file hold, of at most `items_max` items, by the
    /// apriori algorithm: one run for each number of items.
    pub async fn frequent_sets(
        &self,
        name: &Name,
        support: u64,
        items_max: usize,
        at: RunAt,
        progress: &Arc<AtomicU64>,
    ) -> Result<Vec<ItemSet>> {
        let mut all = Vec::new();
        // Without candidates all items are counted, each by itself.
        let mut asked = vec![Arguments::default()];
        for _ in 0..items_max {
            let mut frequent = Vec::new();
            for arguments in asked {
                let progress = Arc::clone(progress);
                let ask = RunAsk { progress, ..RunAsk::new("frequent-sets", arguments) };
                let Answer::Sets { sets, .. } = self.run(name, &ask.at(at)).await?.answer else {
                    return Err(failed(&name.to_string(), MethodError::Partial));
                };
                frequent.extend(sets.into_iter().filter(|set| set.count >= support));
            }
            frequent.sort_by(|a, b| a.items.cmp(&b.items));
            let items: Vec<Vec<u32>> = frequent.iter().map(|set| set.items.clone()).collect();
            all.extend(frequent);
            let next = candidates(&items);
            if next.is_empty() {
                break;
            }
            asked = next.chunks(CANDIDATES_AT_ONCE).map(counted).collect();
        }
        Ok(all)
    }

    /// The first byte in which two files differ, or the end of the shorter one; `None`: they are the same.
    /// Their blocks' hashes are compared, and only the first block that differs is read.
    pub async fn compare(
        &self,
        left: &Name,
        right: &Name,
        at: RunAt,
        progress: &Arc<AtomicU64>,
    ) -> Result<Option<u64>> {
        let options = OpenOptions::new().read(true);
        let files = [self.open(left, &options).await?, self.open(right, &options).await?];
        let end = files[0].size().min(files[1].size());
        if files[0].size() != files[1].size() {
            // Blocks of files of different sizes are hashed apart.
            return Ok(Some(first_difference(&files, 0, end).await?.unwrap_or(end)));
        }
        let mut hashes = Vec::new();
        for file in &files {
            let ask = RunAsk { progress: Arc::clone(progress), ..RunAsk::new("tree", Arguments::default()) };
            let Answer::Blocks { block_bytes, digests } = file.run(&ask.at(at)).await?.answer else {
                return Err(failed(file.subject(), MethodError::Partial));
            };
            hashes.push((block_bytes, digests));
        }
        let (block_bytes, digests) = &hashes[0];
        let differs = digests.iter().zip(&hashes[1].1).position(|(left, right)| left != right);
        let Some(block) = differs else { return Ok(None) };
        let from = u64::try_from(block).unwrap_or(u64::MAX).saturating_mul(*block_bytes);
        first_difference(&files, from, end.min(from.saturating_add(*block_bytes))).await
    }
}

/// The arguments with which these sets are counted.
fn counted(sets: &[Vec<u32>]) -> Arguments {
    let words = |set: &Vec<u32>| set.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    let texts: Vec<String> = sets.iter().map(words).collect();
    Arguments::default().with("candidates", texts.join(";"))
}

/// The first byte from `from` on, below `to`, in which the files differ.
async fn first_difference(files: &[File; 2], from: u64, to: u64) -> Result<Option<u64>> {
    let mut at = from;
    let mut buffers = [vec![0; COMPARED_BYTES], vec![0; COMPARED_BYTES]];
    while at < to {
        let length = usize::try_from(to - at).unwrap_or(usize::MAX).min(COMPARED_BYTES);
        let mut filled = length;
        for (file, buffer) in files.iter().zip(&mut buffers) {
            filled = filled.min(file.read_at(&mut buffer[..length], at).await?);
        }
        let [left, right] = &buffers;
        if let Some(differs) = (0..filled).find(|&byte| left[byte] != right[byte]) {
            return Ok(Some(at + u64::try_from(differs).expect("a buffer is small")));
        }
        if filled == 0 {
            return Ok(Some(at));
        }
        at += u64::try_from(filled).expect("a buffer is small");
    }
    Ok(None)
}
