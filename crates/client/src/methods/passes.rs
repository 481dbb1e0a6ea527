//! Questions that take several runs: frequent sets of items, and where two files differ.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use braid_methods::{Answer, Arguments, ArgumentsError, MethodError, SET_ITEMS_MAX, candidates};

use crate::client::Client;
use crate::error::Result;
use crate::file::File;
use crate::methods::{Ran, RunAsk, RunAt, RunFailure, failed};
use crate::naming::name::{Name, NameError};
use crate::open::OpenOptions;

/// Sets that are counted in one run, and bytes of their texts: they go with each request.
const CANDIDATES_AT_ONCE: usize = 1500;
const CANDIDATE_BYTES_AT_ONCE: usize = 128 << 10;
/// Items of the largest frequent sets, unless the arguments say otherwise.
const ITEMS_MAX: u64 = 3;
/// Bytes that are compared at a time.
const COMPARED_BYTES: usize = 1 << 20;

/// Methods that take several runs.
pub const METHODS_OF_RUNS: &[MethodOfRuns] = &[
    MethodOfRuns { name: "compare", about: "where two files differ", arguments: "with=braid://VOLUME/PATH" },
    MethodOfRuns {
        name: "frequent-sets",
        about: "the sets of items that many lines hold, by the apriori algorithm",
        arguments: "support=LINES items=NUMBER",
    },
    MethodOfRuns {
        name: "parquet",
        about: "columns of the rows of a Parquet file for which conditions hold, as Arrow IPC",
        arguments: "columns=NAME,... where='NAME<VALUE and ...'",
    },
];

/// A method that takes several runs, for people.
#[derive(Debug, Clone, Copy)]
pub struct MethodOfRuns {
    /// The method's name.
    pub name: &'static str,
    /// The question that it answers.
    pub about: &'static str,
    /// The method's arguments.
    pub arguments: &'static str,
}

impl Client {
    /// Runs a method on a file: one of those that drives know ([`METHODS`](crate::METHODS)), or one that
    /// takes several runs of them ([`METHODS_OF_RUNS`]).
    pub async fn run(&self, name: &Name, ask: &RunAsk) -> Result<Ran> {
        let subject = name.to_string();
        match ask.method.as_str() {
            "compare" => {
                let other = other_name(&ask.arguments).map_err(|error| failed(&subject, error))?;
                self.run_compare(name, &other, ask).await
            }
            "frequent-sets" if ask.arguments.get("support").is_some() => {
                let (support, items) = bounds(&ask.arguments).map_err(|error| failed(&subject, error))?;
                self.run_frequent_sets(name, support, items, ask).await
            }
            _ => self.run_once(name, ask).await,
        }
    }

    /// The sets of items that at least `support` lines of the file hold, of at most `items_max` items, by the
    /// apriori algorithm: one run for each number of items.
    pub async fn frequent_sets(
        &self,
        name: &Name,
        support: u64,
        items_max: u64,
        at: RunAt,
        progress: &Arc<AtomicU64>,
    ) -> Result<Ran> {
        let ask = RunAsk::new("frequent-sets", Arguments::default()).at(at);
        let ask = RunAsk { progress: Arc::clone(progress), ..ask };
        self.run_frequent_sets(name, support, items_max, &ask).await
    }

    /// The first byte in which two files differ, or the end of the shorter one; `None`: they are the same.
    /// Their blocks' hashes are compared, and only blocks that differ are read.
    pub async fn compare(
        &self,
        left: &Name,
        right: &Name,
        at: RunAt,
        progress: &Arc<AtomicU64>,
    ) -> Result<Ran> {
        let ask = RunAsk::new("compare", Arguments::default()).at(at);
        let ask = RunAsk { progress: Arc::clone(progress), ..ask };
        self.run_compare(left, right, &ask).await
    }

    async fn run_frequent_sets(
        &self,
        name: &Name,
        support: u64,
        items_max: u64,
        ask: &RunAsk,
    ) -> Result<Ran> {
        let file = self.open(name, &OpenOptions::new().read(true)).await?;
        let before = file.state();
        let mut all = Vec::new();
        let mut sum = Ran::default();
        let mut counted_lines = None;
        // Without candidates all items are counted, each by itself.
        let mut asked = vec![Arguments::default()];
        for _ in 0..items_max {
            let mut frequent = Vec::new();
            for arguments in asked {
                let ask = RunAsk { arguments, ..ask.clone() };
                let ran = file.pass(&ask).await?;
                sum.add(&ran);
                let Answer::Sets { sets, lines, bad_lines } = ran.answer else {
                    return Err(file.failed(MethodError::Partial));
                };
                counted_lines.get_or_insert((lines, bad_lines));
                frequent.extend(sets.into_iter().filter(|set| set.count >= support));
            }
            frequent.sort_by(|a, b| a.items.cmp(&b.items));
            let items: Vec<Vec<u32>> = frequent.iter().map(|set| set.items.clone()).collect();
            all.extend(frequent);
            let joining = tokio::task::spawn_blocking(move || candidates(&items).map(|next| counted(&next)));
            let joined = joining.await.map_err(|_| file.failed(RunFailure::Ended))?;
            asked = joined.map_err(|error| file.failed(error))?;
            if asked.is_empty() {
                break;
            }
        }
        let (lines, bad_lines) = counted_lines.unwrap_or_default();
        let changed = sum.changed | file.has_changed(before).await?;
        Ok(Ran { answer: Answer::Sets { sets: all, lines, bad_lines }, changed, ..sum })
    }

    async fn run_compare(&self, left: &Name, right: &Name, ask: &RunAsk) -> Result<Ran> {
        let options = OpenOptions::new().read(true);
        let files = [self.open(left, &options).await?, self.open(right, &options).await?];
        let before = [files[0].state(), files[1].state()];
        let mut sum = Ran::default();
        let first = if before[0].size == before[1].size {
            first_in_blocks(&files, before[0].size, ask, &mut sum).await?
        } else {
            // Blocks of files of different sizes are hashed apart.
            let end = before[0].size.min(before[1].size);
            sum.bytes = end;
            Some(first_difference(&files, 0, end).await?.unwrap_or(end))
        };
        for (file, before) in files.iter().zip(before) {
            sum.changed |= file.has_changed(before).await?;
        }
        Ok(Ran { answer: Answer::Difference { first }, ..sum })
    }
}

/// Returns true if the method takes several runs with these arguments.
pub(super) fn takes_several(ask: &RunAsk) -> bool {
    match ask.method.as_str() {
        "compare" => true,
        "frequent-sets" => ask.arguments.get("support").is_some(),
        _ => false,
    }
}

impl Ran {
    /// Adds what another run took.
    fn add(&mut self, other: &Ran) {
        self.bytes += other.bytes;
        self.bytes_at_drives += other.bytes_at_drives;
        self.answer_bytes += other.answer_bytes;
        self.read_bytes += other.read_bytes;
        self.asked_bytes += other.asked_bytes;
        self.changed |= other.changed;
    }
}

impl Default for Ran {
    fn default() -> Ran {
        let answer = Answer::Difference { first: None };
        Ran {
            answer,
            bytes: 0,
            bytes_at_drives: 0,
            answer_bytes: 0,
            read_bytes: 0,
            asked_bytes: 0,
            changed: false,
        }
    }
}

/// The error for a name that no method has, those of several runs among them.
pub(crate) fn unknown(name: &str) -> ArgumentsError {
    let mut known: Vec<&str> = braid_methods::METHODS.iter().map(|method| method.name).collect();
    for of_runs in METHODS_OF_RUNS {
        if !known.contains(&of_runs.name) {
            known.push(of_runs.name);
        }
    }
    let known = known.join(", ");
    ArgumentsError::Unknown { name: name.to_owned(), known }
}

/// The name of the file with which one is compared.
fn other_name(arguments: &Arguments) -> std::result::Result<Name, ArgumentsError> {
    arguments.check("compare", &["with"])?;
    let text = arguments.need("compare", "with")?;
    let wrong = |error: NameError| ArgumentsError::Value {
        name: "with",
        value: text.to_owned(),
        why: error.to_string(),
    };
    Name::parse(text.as_bytes()).map_err(wrong)
}

/// The least number of lines of a frequent set, and the most items of one.
fn bounds(arguments: &Arguments) -> std::result::Result<(u64, u64), ArgumentsError> {
    arguments.check("frequent-sets", &["support", "items"])?;
    let limit = u64::try_from(SET_ITEMS_MAX).expect("it is small");
    Ok((arguments.number("support", 1, 1, u64::MAX)?, arguments.number("items", ITEMS_MAX, 1, limit)?))
}

/// The arguments with which these sets are counted, for each run.
fn counted(sets: &[Vec<u32>]) -> Vec<Arguments> {
    let mut all: Vec<String> = Vec::new();
    let mut sets_of_last = 0;
    for set in sets {
        let words = set.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        match all.last_mut() {
            Some(text)
                if sets_of_last < CANDIDATES_AT_ONCE
                    && text.len() + words.len() < CANDIDATE_BYTES_AT_ONCE =>
            {
                text.push(';');
                text.push_str(&words);
                sets_of_last += 1;
            }
            _ => {
                all.push(words);
                sets_of_last = 1;
            }
        }
    }
    all.into_iter().map(|text| Arguments::default().with("candidates", text)).collect()
}

/// The first byte in which two files of this size differ: the hashes of their blocks say where to look.
async fn first_in_blocks(files: &[File; 2], size: u64, ask: &RunAsk, sum: &mut Ran) -> Result<Option<u64>> {
    let mut hashes = Vec::new();
    for file in files {
        let ask = RunAsk { method: "tree".to_owned(), arguments: Arguments::default(), ..ask.clone() };
        let ran = file.pass(&ask).await?;
        sum.add(&ran);
        let Answer::Blocks { block_bytes, digests } = ran.answer else {
            return Err(file.failed(MethodError::Partial));
        };
        hashes.push((block_bytes, digests));
    }
    // Of files that have another size by now.
    if hashes[0].0 != hashes[1].0 || hashes[0].1.len() != hashes[1].1.len() {
        return Err(files[0].failed(RunFailure::Hashes(0)));
    }
    let block_bytes = hashes[0].0;
    let blocks = (0_u64..).map(|block| block.saturating_mul(block_bytes));
    let pairs = blocks.zip(hashes[0].1.iter().zip(&hashes[1].1));
    let mut unlike = pairs.filter(|(_, (left, right))| left != right).map(|(from, _)| from);
    let first_unlike = unlike.next();
    let mut found = None;
    for from in first_unlike.into_iter().chain(unlike) {
        found = first_difference(files, from, size.min(from.saturating_add(block_bytes))).await?;
        if found.is_some() {
            break;
        }
    }
    verdict(first_unlike, found).map_err(|error| files[0].failed(error))
}

/// The answer, given the first block whose hashes differ, and the first byte that does in such blocks.
fn verdict(unlike: Option<u64>, found: Option<u64>) -> std::result::Result<Option<u64>, RunFailure> {
    match (unlike, found) {
        (Some(from), None) => Err(RunFailure::Hashes(from)),
        _ => Ok(found),
    }
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
            return Err(files[0].failed(RunFailure::Cut));
        }
        at += u64::try_from(filled).expect("a buffer is small");
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_that_differ_are_never_the_same_file() {
        assert_eq!(verdict(None, None), Ok(None));
        assert_eq!(verdict(Some(4096), Some(5000)), Ok(Some(5000)));
        assert_eq!(verdict(Some(4096), None), Err(RunFailure::Hashes(4096)));
    }

    #[test]
    fn sets_are_counted_in_runs_of_bounded_number_and_length() {
        let pairs: Vec<Vec<u32>> = (0..4000).map(|item| vec![item, u32::MAX]).collect();
        let runs = counted(&pairs);
        assert_eq!(runs.len(), 3);
        let long: Vec<Vec<u32>> =
            (0..1500).map(|at| (0..16).map(|item| 4_000_000_000 + item + at).collect()).collect();
        let runs = counted(&long);
        let text = |run: &Arguments| run.get("candidates").expect("it is there").to_owned();
        assert!(runs.len() > 1 && runs.iter().all(|run| text(run).len() <= CANDIDATE_BYTES_AT_ONCE));
        let sets: usize = runs.iter().map(|run| text(run).split(';').count()).sum();
        assert_eq!(sets, long.len());
        assert_eq!(counted(&[]), []);
    }

    #[test]
    fn sets_have_as_many_items_as_a_drive_counts() {
        let asked = |items: &str| Arguments::default().with("support", "5").with("items", items);
        assert_eq!(bounds(&asked("16")), Ok((5, 16)));
        assert!(bounds(&asked("17")).is_err());
    }
}
