//! Backups of the state: made while the manager runs, restored while it is stopped.
//!
//! A backup is one file: a header, every key and value of one consistent state, an end marker with their
//! number, and a CRC32C of all before it (`docs/format-manager.md`). It holds the cluster's secrets and every
//! drive's master key, so only its owner can read it.
//!
//! A restored state is usually older than what drives have seen, so it is marked: the manager that starts on
//! it compares it with what the drives hold before it answers any client ([`crate::restore::compare`]).

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use braid_meta::records::db::Db;
use braid_meta::records::kv::{Batch, Kv, KvError};
use braid_meta::records::schema::{AuthorityRecord, SCHEMA_VERSION_OLDEST, encode, key};
use braid_meta::records::tx::Tx;
use braid_transport::host::spawn_blocking;
use braid_wire::checksum::RunningCrc;
use braid_wire::control::{BACKUP_PART_BYTES_MAX, BackupPart, BackupReply, ReadBackup};
use braid_wire::{Reason, Refusal};

use crate::core::Core;
use crate::disk::directory::{ManagerError, STATE_FILE, lock};
use crate::disk::embedded::EmbeddedKv;

/// The first bytes of every backup.
pub const NAME_OF_BACKUPS: &[u8] = b"BRAIDMB";
/// The first bytes of a backup: a name and the version of the state.
const MAGIC: [u8; 8] = *b"BRAIDMB\x03";
/// The first bytes of a backup of a state of version 2, whose rows are read as they are.
const MAGIC_OF_VERSION_2: [u8; 8] = *b"BRAIDMB\x02";
/// The first bytes of a backup of a state of version 1, which is refused.
const MAGIC_OF_VERSION_1: [u8; 8] = *b"BRAIDMB\x01";
/// Length of the checksum at the end.
const CRC_BYTES: usize = 4;
/// The end marker, in place of a key's length.
const END: u32 = u32::MAX;
/// Maximum length of a key or value, in bytes: a longer one is damage.
const LENGTH_MAX: u32 = 16 << 20;
/// Number of rows of one page of the state, and of one transaction of a restore.
const ROWS_PER_PAGE: usize = 4096;
/// Maximum duration of a backup: enough for tens of gigabytes on a slow disk. The client waits longer.
const WAIT: Duration = Duration::from_secs(30 * 60);
/// The backup's name in the manager's directory.
pub(crate) const FILE: &str = "backup";

/// Makes a backup in the manager's directory, in place of the last one there.
pub async fn make(core: &Arc<Core>) -> Result<BackupReply, Refusal> {
    make_within(core, WAIT).await
}

async fn make_within(core: &Arc<Core>, wait: Duration) -> Result<BackupReply, Refusal> {
    let path = PathBuf::from(&core.directory).join(FILE);
    core.read_within(wait, move |core, tx| {
        // The permit is held by the writing, which goes on even if its caller gives up.
        let _turn = core.backups.try_acquire().map_err(|_| {
            Refusal::new(Reason::Busy, "another backup is being made: try again when it is done")
        })?;
        let failed = |error: io::Error| {
            let detail = format!("the backup {} cannot be written: {error}", path.display());
            Refusal::new(Reason::Medium, detail)
        };
        write_file(&path, tx).map_err(|error| match error {
            Problem::File(error) => failed(error),
            Problem::State(refusal) => refusal,
        })
    })
    .await
}

/// A part of the last backup.
pub async fn part(core: &Arc<Core>, asked: ReadBackup) -> Result<BackupPart, Refusal> {
    if asked.bytes > BACKUP_PART_BYTES_MAX {
        let detail = format!("{} bytes are asked for: at most {BACKUP_PART_BYTES_MAX}", asked.bytes);
        return Err(Refusal::new(Reason::Malformed, detail));
    }
    let path = PathBuf::from(&core.directory).join(FILE);
    let shown = path.display().to_string();
    let read = spawn_blocking(move || read_part(&path, &asked)).await;
    let detail = match read {
        Ok(Ok(Some(content))) => return Ok(BackupPart { content }),
        Ok(Ok(None)) => {
            let detail = format!("{shown} is another backup by now, or is gone: make it again");
            return Err(Refusal::new(Reason::Gone, detail));
        }
        Ok(Err(error)) => format!("the backup {shown} cannot be read: {error}"),
        Err(error) => format!("the backup {shown} cannot be read: {error}"),
    };
    Err(Refusal::new(Reason::Medium, detail))
}

/// The bytes that are asked for; `None` if the file is not the backup with that checksum.
fn read_part(path: &Path, asked: &ReadBackup) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let length = file.metadata()?.len();
    let mut crc = [0; CRC_BYTES];
    let Some(at) = length.checked_sub(CRC_BYTES as u64) else { return Ok(None) };
    file.read_exact_at(&mut crc, at)?;
    if u32::from_le_bytes(crc) != asked.crc {
        return Ok(None);
    }
    let bytes = u64::from(asked.bytes).min(length.saturating_sub(asked.offset));
    let mut content = vec![0; usize::try_from(bytes).unwrap_or(0)];
    file.read_exact_at(&mut content, asked.offset)?;
    Ok(Some(content))
}

/// Puts the backup's state into the directory, which must hold none. The manager must not run. Returns the
/// number of rows.
pub fn restore(dir: &Path, backup: &Path) -> Result<u64, ManagerError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ManagerError::File { path, source }
    };
    crate::disk::private::make_dir_all(dir).map_err(failed(dir))?;
    let _lock = lock(dir)?;
    let state = dir.join(STATE_FILE);
    if fs::metadata(&state).is_ok_and(|found| found.len() > 0) {
        return Err(ManagerError::StateThere(state));
    }
    check(backup)?;
    let fresh = dir.join("manager.redb.new");
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&fresh)(error)),
        _ => {}
    }
    let kv = EmbeddedKv::open(&fresh)?;
    let rows = restore_into(&kv, backup)?;
    drop(kv);
    let sync = || -> io::Result<()> {
        File::open(&fresh)?.sync_all()?;
        fs::rename(&fresh, &state)?;
        File::open(dir)?.sync_all()
    };
    sync().map_err(failed(&state))?;
    Ok(rows)
}

/// Checks a backup to its end. Returns the number of rows.
pub fn check(backup: &Path) -> Result<u64, ManagerError> {
    let damaged = |what: String| ManagerError::Backup { path: backup.to_owned(), what };
    read_file(backup, |_| Ok(())).map_err(damaged)
}

/// Puts the backup's state into this store, which must be empty, and marks it as restored. [`check`] the
/// backup first: one that is found to be damaged later leaves a part of it there. Returns the number of rows.
pub fn restore_into(kv: &dyn Kv, backup: &Path) -> Result<u64, ManagerError> {
    let damaged = |what: String| ManagerError::Backup { path: backup.to_owned(), what };
    let rows = read_file(backup, |batch| kv.commit(&batch).map_err(|error| error.to_string()));
    let rows = rows.map_err(damaged)?;
    mark_as_restored(kv)?;
    Ok(rows)
}

/// Puts the backup's state into a store in the new file `at`, from where it is moved on. Returns the store
/// and the number of rows.
pub fn unpack(backup: &Path, at: &Path) -> Result<(Arc<dyn Kv>, u64), ManagerError> {
    check(backup)?;
    let kv = Arc::new(EmbeddedKv::open(at)?);
    let rows = restore_into(kv.as_ref(), backup)?;
    Ok((kv, rows))
}

/// The certificate authority of a state; `None` in those of before there was TLS.
pub fn authority(kv: Arc<dyn Kv>) -> Result<Option<AuthorityRecord>, Refusal> {
    Db::new(kv).read(|tx| Ok(tx.record(&key::meta("authority"))?))
}

/// Writes a backup of the state in the directory of a manager that does not run, whether it is the state
/// itself or a copy of one in etcd.
pub fn of_directory(dir: &Path, to: &Path) -> Result<BackupReply, ManagerError> {
    let is_there = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.len() > 0);
    let Some(state) =
        [STATE_FILE, crate::etcd::STATE_FILE].map(|name| dir.join(name)).into_iter().find(is_there)
    else {
        return Err(ManagerError::NoState(dir.to_owned()));
    };
    let _lock = lock(dir)?;
    let db = Db::new(Arc::new(EmbeddedKv::open(&state)?));
    let failed = |what: String| ManagerError::Backup { path: to.to_owned(), what };
    db.read(|tx| {
        Ok(write_file(to, tx).map_err(|problem| match problem {
            Problem::File(error) => failed(error.to_string()),
            Problem::State(refusal) => failed(refusal.detail),
        }))
    })
    .map_err(|refusal| failed(refusal.detail))?
}

/// Marks the state in the directory as restored, for one that was put there by other means than [`restore`].
/// The manager must not run.
pub fn adopt(dir: &Path) -> Result<(), ManagerError> {
    let state = dir.join(STATE_FILE);
    if fs::metadata(&state).map_or(true, |found| found.len() == 0) {
        return Err(ManagerError::StateGone { dir: dir.to_owned() });
    }
    let _lock = lock(dir)?;
    Ok(mark_as_restored(&EmbeddedKv::open(&state)?)?)
}

/// Marks a state as restored. No manager may run on it.
pub fn mark_as_restored(kv: &dyn Kv) -> Result<(), KvError> {
    let mark = |word, value: u64| (key::meta(word), Some(encode(&value)));
    kv.commit(&[mark("restored", 1), mark("unnamed", 1), mark("older", 0)].into_iter().collect())
}

enum Problem {
    File(io::Error),
    State(Refusal),
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Problem {
        Problem::File(error)
    }
}

/// Writes the backup atomically: under another name first.
fn write_file(path: &Path, tx: &Tx) -> Result<BackupReply, Problem> {
    let fresh = path.with_extension("new");
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    let mut out = Summed { inner: BufWriter::new(file), crc: RunningCrc::new(), bytes: 0 };
    out.write_all(&MAGIC)?;
    let mut from = Vec::new();
    let to = vec![u8::MAX; 64];
    let mut rows = 0u64;
    loop {
        let page = tx.scan(&from, &to, ROWS_PER_PAGE).map_err(|error| Problem::State(error.into()))?;
        for (key, value) in &page {
            put(&mut out, key)?;
            put(&mut out, value)?;
            rows += 1;
        }
        match page.last() {
            Some((last, _)) if page.len() == ROWS_PER_PAGE => from = [last.as_slice(), &[0]].concat(),
            _ => break,
        }
    }
    out.write_all(&END.to_le_bytes())?;
    out.write_all(&rows.to_le_bytes())?;
    let crc = out.crc.value();
    out.write_all(&crc.to_le_bytes())?;
    let bytes = out.bytes;
    let file = out.inner.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    if let Some(dir) = path.parent() {
        File::open(dir)?.sync_all()?;
    }
    Ok(BackupReply { path: path.display().to_string(), bytes, rows, crc })
}

fn put(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidData)?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(bytes)
}

/// Reads a backup to its end and passes its rows to `take` in batches. Returns their number. The error says
/// what is wrong with the backup.
fn read_file(path: &Path, mut take: impl FnMut(Batch) -> Result<(), String>) -> Result<u64, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut input = SummedInput { inner: BufReader::new(file), crc: RunningCrc::new() };
    match input.array()? {
        MAGIC | MAGIC_OF_VERSION_2 => {}
        MAGIC_OF_VERSION_1 => {
            return Err(KvError::Version { found: 1, wanted: SCHEMA_VERSION_OLDEST }.to_string());
        }
        _ => return Err("it is not a backup of a manager, or of another version".to_owned()),
    }
    let mut batch = Batch::new();
    let mut rows = 0u64;
    loop {
        let length = u32::from_le_bytes(input.array()?);
        if length == END {
            break;
        }
        let key = input.bytes(length)?;
        let length = u32::from_le_bytes(input.array()?);
        batch.insert(key, Some(input.bytes(length)?));
        rows += 1;
        if batch.len() >= ROWS_PER_PAGE {
            take(std::mem::take(&mut batch))?;
        }
    }
    take(batch)?;
    let told = u64::from_le_bytes(input.array()?);
    let crc = input.crc.value();
    if u32::from_le_bytes(input.array()?) != crc {
        return Err("its checksum is wrong: it is damaged".to_owned());
    }
    if told != rows || input.inner.read(&mut [0]).map_err(|error| error.to_string())? > 0 {
        return Err(format!(
            "it says that it has {told} rows, and has {rows}, or more follows: it is damaged"
        ));
    }
    Ok(rows)
}

/// A writer that counts and checksums all bytes.
struct Summed<W> {
    inner: W,
    crc: RunningCrc,
    bytes: u64,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.crc.update(&bytes[..count]);
        self.bytes += u64::try_from(count).unwrap_or(u64::MAX);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// A reader that checksums all bytes.
struct SummedInput<R> {
    inner: R,
    crc: RunningCrc,
}

impl<R: Read> SummedInput<R> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn bytes(&mut self, length: u32) -> Result<Vec<u8>, String> {
        if length > LENGTH_MAX {
            return Err(format!("a row of {length} bytes: it is damaged"));
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), String> {
        self.inner.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => "it ends too early: it is cut short".to_owned(),
            _ => error.to_string(),
        })?;
        self.crc.update(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::session_slots::SessionSlots;
    use crate::start::{Config, start};
    use braid_meta::records::memory::MemoryKv;

    fn state(path: &Path) -> Db {
        Db::new(Arc::new(EmbeddedKv::open(path).unwrap()))
    }

    fn rows(db: &Db) -> Vec<(Vec<u8>, Vec<u8>)> {
        db.read(|tx| Ok(tx.scan(&[], &[u8::MAX; 64], usize::MAX)?)).unwrap()
    }

    #[test]
    fn what_was_backed_up_comes_back_marked_as_restored() {
        let dir = tempfile::tempdir().unwrap();
        let db = state(&dir.path().join("a.redb"));
        db.write(|tx| {
            (0..10_000u64).for_each(|n| tx.set(key::block(n), &n));
            tx.set(key::meta("next"), &7u64);
            Ok(())
        })
        .unwrap();
        let backup = dir.path().join("backup");
        let told = db.read(|tx| write_file(&backup, tx).map_err(|_| unreachable!())).unwrap();
        let written = fs::read(&backup).unwrap();
        assert_eq!((told.bytes, told.rows), (written.len() as u64, 10_001));
        let (before, last) = written.split_at(written.len() - 4);
        assert_eq!((braid_wire::checksum::crc32c(before), last), (told.crc, &told.crc.to_le_bytes()[..]));
        let new = dir.path().join("new");
        assert_eq!(restore(&new, &backup).unwrap(), 10_001);
        assert!(matches!(restore(&new, &backup), Err(ManagerError::StateThere(_))));
        let restored = state(&new.join(STATE_FILE));
        let marked = restored.read(|tx| Ok(tx.number("restored")?)).unwrap();
        assert_eq!(marked, 1);
        let without = |db: &Db| {
            let words: Vec<Vec<u8>> = ["restored", "unnamed", "older"].map(key::meta).to_vec();
            let mut all = rows(db);
            all.retain(|(key, _)| !words.contains(key));
            all
        };
        assert_eq!(without(&restored), rows(&db));
    }

    /// The worked example of `docs/format-manager.md`.
    #[test]
    fn a_backup_is_as_documented() {
        let dir = tempfile::tempdir().unwrap();
        let db = state(&dir.path().join("a.redb"));
        db.write(|tx| {
            tx.set(key::meta("next"), &7u64);
            tx.set(key::block(5), &6u64);
            Ok(())
        })
        .unwrap();
        let backup = dir.path().join("backup");
        db.read(|tx| write_file(&backup, tx).map_err(|_| unreachable!())).unwrap();
        let hex: Vec<String> = fs::read(&backup).unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
        let document = include_str!("../../../../docs/format-manager.md");
        let (_, example) = document.split_once("A whole backup, of two rows:\n\n```\n").expect("the example");
        let (example, _) = example.split_once("```").expect("its end");
        assert_eq!(example.split_whitespace().collect::<String>(), hex.concat());
    }

    #[test]
    fn a_state_moves_to_another_store_and_back() {
        let dir = tempfile::tempdir().unwrap();
        let db = state(&dir.path().join("a.redb"));
        db.write(|tx| {
            (0..5_000u64).for_each(|n| tx.set(key::block(n), &n));
            Ok(())
        })
        .unwrap();
        let [there, back] = ["there", "back"].map(|name| dir.path().join(name));
        db.read(|tx| write_file(&there, tx).map_err(|_| unreachable!())).unwrap();
        assert_eq!(check(&there).unwrap(), 5_000);
        let memory = Arc::new(MemoryKv::new());
        assert_eq!(restore_into(memory.as_ref(), &there).unwrap(), 5_000);
        let elsewhere = Db::new(memory);
        assert_eq!(elsewhere.read(|tx| Ok(tx.number("restored")?)).unwrap(), 1, "compared before it serves");
        elsewhere.read(|tx| write_file(&back, tx).map_err(|_| unreachable!())).unwrap();
        let new = dir.path().join("new");
        restore(&new, &back).unwrap();
        assert_eq!(rows(&state(&new.join(STATE_FILE))), rows(&elsewhere));
    }

    #[tokio::test]
    async fn a_backup_is_read_in_parts_until_another_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config::new(dir.path(), "");
        let core = start(Arc::new(MemoryKv::new()), &config, SessionSlots::of(4, 4)).await.unwrap();
        let ask = |crc, offset, bytes| part(&core, ReadBackup { crc, offset, bytes });
        assert_eq!(ask(0, 0, 9).await.unwrap_err().reason, Reason::Gone);
        let made = make(&core).await.unwrap();
        let mut read = Vec::new();
        loop {
            let content = ask(made.crc, read.len() as u64, 100).await.unwrap().content;
            read.extend_from_slice(&content);
            if content.len() < 100 {
                break;
            }
        }
        assert_eq!(read, fs::read(dir.path().join(FILE)).unwrap());
        assert!(ask(made.crc, u64::MAX, 100).await.unwrap().content.is_empty());
        let too_many = ask(made.crc, 0, BACKUP_PART_BYTES_MAX + 1).await.unwrap_err();
        assert_eq!(too_many.reason, Reason::Malformed);
        core.write(|_, tx| {
            tx.set(key::block(1), &1u64);
            Ok(())
        })
        .await
        .unwrap();
        make(&core).await.unwrap();
        assert_eq!(ask(made.crc, 0, 9).await.unwrap_err().reason, Reason::Gone);
    }

    #[tokio::test]
    async fn a_backup_that_nobody_waits_for_any_more_still_keeps_others_from_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config::new(dir.path(), "");
        let core = start(Arc::new(MemoryKv::new()), &config, SessionSlots::of(4, 4)).await.unwrap();
        make(&core).await.unwrap();
        let good = fs::read(dir.path().join(FILE)).unwrap();
        // The disk hangs: opening a pipe for writing blocks until a reader opens it.
        let fresh = dir.path().join(FILE).with_extension("new");
        assert!(std::process::Command::new("mkfifo").arg(&fresh).status().unwrap().success());
        let brief = Duration::from_millis(300);
        let first = make_within(&core, brief).await;
        let second = make_within(&core, brief).await;
        fs::read(&fresh).unwrap();
        assert_eq!(first.unwrap_err().reason, Reason::Medium);
        assert_eq!(second.unwrap_err().reason, Reason::Busy);
        fs::remove_file(&fresh).unwrap();
        assert_eq!(fs::read(dir.path().join(FILE)).unwrap(), good);
        while core.backups.available_permits() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        make(&core).await.unwrap();
    }

    #[test]
    fn a_damaged_backup_restores_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let db = state(&dir.path().join("a.redb"));
        db.write(|tx| {
            (0..50u64).for_each(|n| tx.set(key::block(n), &n));
            Ok(())
        })
        .unwrap();
        let backup = dir.path().join("backup");
        db.read(|tx| write_file(&backup, tx).map_err(|_| unreachable!())).unwrap();
        let good = fs::read(&backup).unwrap();
        let mut cases: Vec<Vec<u8>> = [0, 9, good.len() / 2, good.len() - 1]
            .into_iter()
            .map(|at| {
                let mut bad = good.clone();
                bad[at] ^= 1;
                bad
            })
            .collect();
        cases.extend([good[..good.len() - 1].to_vec(), good[..20].to_vec(), Vec::new()]);
        cases.push([good.as_slice(), b"x"].concat());
        for bad in cases {
            fs::write(&backup, bad).unwrap();
            let new = dir.path().join("new");
            assert!(matches!(restore(&new, &backup), Err(ManagerError::Backup { .. })));
            assert!(!new.join(STATE_FILE).exists());
        }
    }
}
