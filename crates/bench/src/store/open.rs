//! The time to open a large store after kill -9.
//!
//! The store is generated ([`braid_store::bench`]): a million objects over 100 GiB of log, of which only
//! the checkpoint and the tail after it take space. Its files are in the page cache, as a killed process
//! leaves them. After each opening the store is closed, and the bytes that were written then are removed
//! again.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use braid_layout::{ClusterId, DriveId};
use braid_store::Identity;
use braid_store::Options;
use braid_store::Store;
use braid_store::bench;

use crate::error::{Doing, Error};
use crate::machine::MeasuredDir;
use crate::measure::{Effort, Meter, Pairs};
use crate::raw::settle;
use crate::report::Timing;
use crate::stats;

const IDENTITY: Identity = Identity { cluster: ClusterId(0xb), drive: DriveId(0xd) };
/// Name of the row.
const NAME: &str = "open after kill -9";
/// Target of a full run: "Open after kill -9 with 1 M objects and 100 GB of log < 1 s."
const TARGET_SECONDS: f64 = 1.0;
/// Number of openings of one store.
const OPENINGS: u64 = 9;
/// Steps of progress in total: making each store counts as one.
pub(crate) const STEPS: u64 = 3 * (1 + OPENINGS);

/// The size of the store.
struct Scale {
    objects: u64,
    log_bytes: u64,
    /// Length of each tail (`None`: the longest possible), and length of the earlier content of its segments'
    /// files; 0: they are new. The first tail is that of a store with small checkpoints.
    tails: [(Option<u64>, u64); 3],
}

/// Measures the times to open a store in one place.
pub(crate) fn measure(
    pairs: &mut Pairs<'_>,
    place: &MeasuredDir,
    effort: Effort,
) -> Result<Vec<Timing>, Error> {
    if !pairs.wants(NAME) {
        pairs.done += STEPS;
        return Ok(Vec::new());
    }
    let scale = if effort == Effort::Quick {
        Scale {
            objects: 1000,
            log_bytes: 1 << 30,
            tails: [(Some(1 << 20), 0), (Some(2 << 20), 0), (Some(1 << 20), 8 << 20)],
        }
    } else {
        Scale {
            objects: 1_000_000,
            log_bytes: 100 << 30,
            tails: [(Some(64 << 20), 0), (None, 0), (Some(64 << 20), 512 << 20)],
        }
    };
    let all = scale.tails.iter().map(|&(checkpoint, tail)| one(pairs, place, &scale, checkpoint, tail));
    all.collect()
}

fn one(
    pairs: &mut Pairs<'_>,
    place: &MeasuredDir,
    scale: &Scale,
    tail_bytes: Option<u64>,
    earlier_bytes: u64,
) -> Result<Timing, Error> {
    pairs.step(&format!("{}: make up a big store", place.label))?;
    let big = Big { dir: place.directory.join("big") };
    let made = bench::generate(&big.dir, IDENTITY, scale.objects, scale.log_bytes, tail_bytes, earlier_bytes)
        .doing("make up a big store")?;
    let image = Image::of(&big.dir, made.stale_bytes).doing("look at a store's files")?;
    let mut seconds = Vec::new();
    let mut cpu = Vec::new();
    let mut records = 0;
    for _ in 0..OPENINGS {
        pairs.step(&format!("{}: {NAME}", place.label))?;
        let meter = Meter::begin();
        let (store, recovery) = Store::open(&big.dir, Some(IDENTITY), Options::default()).doing("open")?;
        let sample = meter.end(1, 0);
        seconds.push(sample.wall.as_secs_f64());
        cpu.push(sample.cpu.as_secs_f64());
        records = recovery.records;
        store.close().doing("close")?;
        drop(store);
        image.restore().doing("take away what closing wrote")?;
    }
    Ok(Timing {
        place: place.label.clone(),
        name: NAME,
        objects: scale.objects,
        log_bytes: scale.log_bytes,
        checkpoint_bytes: made.checkpoint_bytes,
        tail_bytes: made.tail_bytes,
        stale_bytes: made.stale_bytes,
        records,
        seconds: stats::spread(&seconds),
        cpu_seconds: stats::median(&cpu),
        target_seconds: TARGET_SECONDS,
    })
}

/// The store's directory, removed on drop.
struct Big {
    dir: PathBuf,
}

impl Drop for Big {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
        settle(self.dir.parent());
    }
}

/// A store's files and their lengths.
struct Image {
    dir: PathBuf,
    lengths: BTreeMap<PathBuf, u64>,
    /// Bytes after the log's end in the file of the last segment.
    stale_bytes: u64,
}

impl Image {
    /// Records the files as they are, and syncs them: all that a killed process had acknowledged was
    /// synced.
    fn of(dir: &Path, stale_bytes: u64) -> io::Result<Image> {
        let lengths = files(dir)?;
        lengths.keys().try_for_each(|path| File::open(path)?.sync_all())?;
        Ok(Image { dir: dir.to_owned(), lengths, stale_bytes })
    }

    /// Removes everything created or appended since, and restores the bytes after the log's end. A log is
    /// only appended to, so this is enough.
    fn restore(&self) -> io::Result<()> {
        for (path, now) in files(&self.dir)? {
            match self.lengths.get(&path) {
                None => fs::remove_file(path)?,
                Some(&length) if length < now => {
                    let file = OpenOptions::new().write(true).open(path)?;
                    file.set_len(length)?;
                    file.sync_all()?;
                }
                Some(_) => {}
            }
        }
        self.restore_stale()?;
        if files(&self.dir)? == self.lengths { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// Restores the bytes after the log's end, which the log may have overwritten or cut off.
    fn restore_stale(&self) -> io::Result<()> {
        let is_segment = |path: &&PathBuf| path.extension().is_some_and(|ending| ending == "seg");
        let Some(last) = self.lengths.keys().rfind(is_segment) else { return Ok(()) };
        let part = vec![bench::STALE; 1 << 20];
        let length = self.lengths[last];
        let file = OpenOptions::new().write(true).open(last)?;
        for at in (length - self.stale_bytes.min(length)..length).step_by(part.len()) {
            let rest = usize::try_from(length - at).map_or(part.len(), |left| left.min(part.len()));
            file.write_all_at(&part[..rest], at)?;
        }
        file.sync_all()
    }
}

/// All files below `dir` with their lengths.
fn files(dir: &Path) -> io::Result<BTreeMap<PathBuf, u64>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            all.append(&mut files(&path)?);
        } else {
            let length = fs::metadata(&path)?.len();
            all.insert(path, length);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_store_is_made_as_it_was_when_it_was_killed() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path().join("big");
        let made = bench::generate(&dir, IDENTITY, 100, 1 << 24, Some(1 << 18), 1 << 20).expect("made");
        assert!(made.stale_bytes > 1 << 19);
        let image = Image::of(&dir, made.stale_bytes).expect("there");
        let records = |_| {
            let (store, recovery) = Store::open(&dir, Some(IDENTITY), Options::default()).expect("opened");
            store.close().expect("closed");
            image.restore().expect("as it was");
            recovery.records
        };
        let records: Vec<u64> = (0..2).map(records).collect();
        assert!(records[0] > 0 && records[0] == records[1], "{records:?}");
        let one = image.lengths.keys().next().expect("a file");
        fs::remove_file(one).expect("removed");
        assert!(image.restore().is_err(), "what is gone cannot be brought back");
    }
}
