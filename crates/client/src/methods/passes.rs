//! Questions that take several runs: frequent sets of items, and where two files differ.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use braid_methods::{Answer, Arguments, ArgumentsError, ItemSet, MethodError, candidates};

use crate::client::Client;
use crate::error::Result;
use crate::file::File;
use crate::methods::{Ran, RunAsk, RunAt, failed};
use crate::naming::name::{Name, NameError};
use crate::open::OpenOptions;

/// Sets that are counted in one run: they go with each request.
const CANDIDATES_AT_ONCE: usize = 1500;
/// Items of the largest frequent sets, unless the arguments say otherwise.
const ITEMS_MAX: u64 = 3;
/// Items of a set at most: each takes a run or more.
const ITEMS_LIMIT: u64 = 64;
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
    /// Its name.
    pub name: &'static str,
    /// What it answers.
    pub about: &'static str,
    /// Its arguments.
    pub arguments: &'static str,
}

impl Client {
    /// Runs a method on a file: one of those that drives know ([`METHODS`](crate::METHODS)), or one that takes
    /// several runs of them ([`METHODS_OF_RUNS`]).
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
    ) -> Result<Vec<ItemSet>> {
        let ask = RunAsk::new("frequent-sets", Arguments::default()).at(at);
        let ask = RunAsk { progress: Arc::clone(progress), ..ask };
        match self.run_frequent_sets(name, support, items_max, &ask).await?.answer {
            Answer::Sets { sets, .. } => Ok(sets),
            _ => Err(failed(&name.to_string(), MethodError::Partial)),
        }
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
        let ask = RunAsk::new("compare", Arguments::default()).at(at);
        let ask = RunAsk { progress: Arc::clone(progress), ..ask };
        match self.run_compare(left, right, &ask).await?.answer {
            Answer::Difference { first } => Ok(first),
            _ => Err(failed(&left.to_string(), MethodError::Partial)),
        }
    }

    async fn run_frequent_sets(
        &self,
        name: &Name,
        support: u64,
        items_max: u64,
        ask: &RunAsk,
    ) -> Result<Ran> {
        let mut all = Vec::new();
        let mut sum = Ran::default();
        let mut counted_lines = None;
        // Without candidates all items are counted, each by itself.
        let mut asked = vec![Arguments::default()];
        for _ in 0..items_max {
            let mut frequent = Vec::new();
            for arguments in asked {
                let ask = RunAsk { arguments, ..ask.clone() };
                let ran = self.run_once(name, &ask).await?;
                sum.add(&ran);
                let Answer::Sets { sets, lines, bad_lines } = ran.answer else {
                    return Err(failed(&name.to_string(), MethodError::Partial));
                };
                counted_lines.get_or_insert((lines, bad_lines));
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
        let (lines, bad_lines) = counted_lines.unwrap_or_default();
        Ok(Ran { answer: Answer::Sets { sets: all, lines, bad_lines }, ..sum })
    }

    async fn run_compare(&self, left: &Name, right: &Name, ask: &RunAsk) -> Result<Ran> {
        let options = OpenOptions::new().read(true);
        let files = [self.open(left, &options).await?, self.open(right, &options).await?];
        let end = files[0].size().min(files[1].size());
        let mut sum = Ran::default();
        if files[0].size() != files[1].size() {
            // Blocks of files of different sizes are hashed apart.
            let first = Some(first_difference(&files, 0, end).await?.unwrap_or(end));
            return Ok(Ran { answer: Answer::Difference { first }, bytes: end, ..sum });
        }
        let mut hashes = Vec::new();
        for file in &files {
            let ask = RunAsk { method: "tree".to_owned(), arguments: Arguments::default(), ..ask.clone() };
            let ran = file.run(&ask).await?;
            sum.add(&ran);
            let Answer::Blocks { block_bytes, digests } = ran.answer else {
                return Err(failed(file.subject(), MethodError::Partial));
            };
            hashes.push((block_bytes, digests));
        }
        let (block_bytes, digests) = &hashes[0];
        let differs = digests.iter().zip(&hashes[1].1).position(|(left, right)| left != right);
        let first = match differs {
            None => None,
            Some(block) => {
                let from = u64::try_from(block).unwrap_or(u64::MAX).saturating_mul(*block_bytes);
                first_difference(&files, from, end.min(from.saturating_add(*block_bytes))).await?
            }
        };
        Ok(Ran { answer: Answer::Difference { first }, ..sum })
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
    Ok((arguments.number("support", 1, 1, u64::MAX)?, arguments.number("items", ITEMS_MAX, 1, ITEMS_LIMIT)?))
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
