//! Cost of many files for the manager: creates N of one stripe (raid5 4+1 on 20 drives) in a redb, in groups
//! of 256 to a transaction as bulk requests make them, and prints bytes per file, rates while the state
//! grows, and the duration of a start on it.
//!
//!     cargo run --release -p braid-lab --example many_files -- DIR [FILES [FILES_PER_DIRECTORY]]
//!
//! `DIR` must be empty or absent. Rates are measured when 1 %, 10 % and all of the files are there, each over
//! some thousand requests: creates are of new names, and are removed again in their order, as `rm -r` does;
//! stats and scattered removals are of names drawn at random; removed files are freed as if the drives had
//! answered. Rates are by the processor time of this process, so that other processes do not count. The last
//! line has all results as JSON. No drive takes part.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use braid_layout::{ColumnMask, DriveId, HolderId, Shape};
use braid_manager::Config;
use braid_manager::core::Core;
use braid_manager::disk::embedded::EmbeddedKv;
use braid_manager::files::opens;
use braid_manager::sessions::session_slots::SessionSlots;
use braid_manager::start::start;
use braid_meta::records::inodes;
use braid_meta::records::schema::{DriveRecord, RemoveRecord, key, table};
use braid_meta::records::tx::Tx;
use braid_meta::tree::directories::{self, Parents};
use braid_meta::tree::{files, volumes};
use braid_wire::Refusal;
use braid_wire::capability::Key;
use braid_wire::control::{
    Access, Backing, Commit, Cut, Ended, Ending, Lookup, NamePlace, NewAttributes, Open, ShapeSpec,
    UnlinkOnly,
};

const NEW_FILE: NewAttributes = NewAttributes { mode: 0o644, uid: 1, gid: 2 };

/// Number of files that one transaction creates or removes.
const GROUP: u64 = 256;
/// Maximum number of requests of one measurement; with few files, a part of their number.
const SAMPLE: u64 = 20_480;
const DRIVES: u64 = 20;
const VOLUME: &str = "main";

type Failure = Box<dyn Error>;

/// Requests a second of processor time at one size of the state.
struct Rates {
    files: u64,
    create: f64,
    stat: f64,
    unlink: f64,
    scattered: f64,
    free: f64,
}

/// The names of the files, by number.
struct Names {
    per_directory: u64,
}

impl Names {
    fn directory(&self, n: u64) -> String {
        format!("dir-{:06}", n / self.per_directory)
    }

    fn path(&self, n: u64) -> Vec<u8> {
        format!("{}/file-{n:07}", self.directory(n)).into_bytes()
    }
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (dir, numbers) = match &arguments[..] {
        [dir, numbers @ ..] if numbers.len() <= 2 => (Path::new(dir), numbers),
        _ => return Err("usage: many_files DIR [FILES [FILES_PER_DIRECTORY]]".into()),
    };
    let number = |at: usize, default| numbers.get(at).map_or(Ok(default), |number| number.parse::<u64>());
    let files = number(0, 10_000_000)?.max(GROUP);
    let per_directory = number(1, 10_000)?.max(1);
    std::fs::create_dir_all(dir)?;
    if std::fs::read_dir(dir)?.next().is_some() {
        return Err(format!("{} is not empty", dir.display()).into());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(dir, files, &Names { per_directory }))
}

async fn run(dir: &Path, files: u64, names: &Names) -> Result<(), Failure> {
    let state = dir.join("manager.redb");
    let (core, _) = open(dir, &state).await?;
    let shape = ShapeSpec { scheme: 5, k: 4, m: 1, unit_bytes: 512 << 10 };
    core.write(move |_, tx| {
        (0..DRIVES).for_each(|n| tx.set(key::drive(drive(n)), &drive_record(n)));
        volumes::create(tx, VOLUME, shape, 0, 1)
    })
    .await?;
    let sizes = [files / 100, files / 10, files];
    let mut made = 0;
    let mut all = Vec::new();
    let began = Instant::now();
    let mut spent = 0.0;
    for size in sizes {
        made = create(&core, names, made, size).await?;
        let paused = Instant::now();
        let rates = measure(&core, names, made, SAMPLE.min(size / 4).max(1)).await?;
        println!(
            "{:>9} files: {:.0} creates, {:.0} stats, {:.0} removals, {:.0} scattered ones, {:.0} files freed a second of processor time",
            rates.files, rates.create, rates.stat, rates.unlink, rates.scattered, rates.free
        );
        spent += paused.elapsed().as_secs_f64();
        all.push(rates);
    }
    let seconds = began.elapsed().as_secs_f64() - spent;
    drop(core);
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    let found = std::fs::metadata(&state)?;
    let length = found.len();
    let blocks = std::os::unix::fs::MetadataExt::blocks(&found) * 512;
    let (core, open_seconds) = open(dir, &state).await?;
    let count = core.read(|_, tx| Ok(volumes::find(tx, VOLUME)?.files)).await?;
    if count != files {
        return Err(format!("{count} files are counted, and {files} were made").into());
    }
    let resident = resident_kib("VmRSS")?;
    println!(
        "{files} files in {seconds:.0} s; {} bytes each on disk ({} of the file's length); start {open_seconds:.3} s; \
         {} MiB resident, {} at most",
        blocks / files,
        length / files,
        resident >> 10,
        resident_kib("VmHWM")? >> 10
    );
    let rows = all.iter().map(|rates| {
        let Rates { files, create, stat, unlink, scattered, free } = rates;
        format!(
            "{{\"files\":{files},\"create\":{create:.0},\"stat\":{stat:.0},\"unlink\":{unlink:.0},\
             \"scattered_unlink\":{scattered:.0},\"free\":{free:.0}}}"
        )
    });
    println!(
        "{{\"files\":{files},\"bytes_per_file\":{},\"length_per_file\":{},\"create_seconds\":{seconds:.1},\
         \"start_seconds\":{open_seconds:.3},\"resident_kib\":{resident},\"resident_kib_max\":{},\"rates\":[{}]}}",
        blocks / files,
        length / files,
        resident_kib("VmHWM")?,
        rows.collect::<Vec<_>>().join(",")
    );
    Ok(())
}

/// A manager over the state, without sessions or background, and the duration of its start.
async fn open(dir: &Path, state: &Path) -> Result<(Arc<Core>, f64), Failure> {
    let began = Instant::now();
    let kv = EmbeddedKv::open(state)?;
    let core = start(Arc::new(kv), &Config::new(dir, ""), SessionSlots::of(4, 4)).await?;
    Ok((core, began.elapsed().as_secs_f64()))
}

/// Creates files from the `from`th on, up to `to`. Returns `to`.
async fn create(core: &Arc<Core>, names: &Names, from: u64, to: u64) -> Result<u64, Failure> {
    let mut at = from;
    while at < to {
        let directory = names.directory(at);
        let end = (at + GROUP).min(to);
        let end = end.min((at / names.per_directory + 1) * names.per_directory);
        if at.is_multiple_of(names.per_directory) {
            let of = NamePlace::of(VOLUME, directory);
            core.write(move |core, tx| directories::make(tx, &of, &NEW_FILE, Parents::Made, core.now_ms()))
                .await?;
        }
        let paths: Vec<Vec<u8>> = (at..end).map(|n| names.path(n)).collect();
        core.write(move |core, tx| paths.into_iter().try_for_each(|path| create_one(core, tx, path))).await?;
        at = end;
    }
    Ok(to)
}

/// Creates a file, and closes it as after a write.
fn create_one(core: &Core, tx: &mut Tx, path: Vec<u8>) -> Result<(), Refusal> {
    let holder = 0x5eed_0000_0000_0001;
    let open = Open {
        at: NamePlace::of(VOLUME, path),
        access: Access::Write,
        create: true,
        exclusive: true,
        shape: ShapeSpec { scheme: 0, k: 0, m: 0, unit_bytes: 0 },
        holder: HolderId(holder),
        alone: false,
        range: None,
        takes_sealed: false,
        new: NEW_FILE,
    };
    let (file, made) = files::find_or_create(tx, &open, None, &place, core.now_ms())?;
    let lease = made.map(|inode| inode.lease).unwrap_or_default();
    files::commit(
        tx,
        &Commit {
            file,
            lease,
            holder: HolderId(holder),
            size: 2 << 20,
            order: 1,
            cut: Cut::No,
            modified_ns: None,
            backing: Backing::NONE,
        },
        core.now_ms(),
    )?;
    let ended = Ended { ending: Ending::Settled, end: 2 << 20, columns: ColumnMask(u64::MAX) };
    files::release(tx, file, lease, &ended)
}

/// Chooses five of the drives, each as often as any other.
fn place(seed: u64, shape: &Shape) -> Result<(Vec<DriveId>, ColumnMask), Refusal> {
    let mixed = mix(seed);
    let first = mixed % DRIVES;
    let step = [1, 3, 7, 9][usize::from(mixed.to_le_bytes()[6]) % 4];
    let at = |column: u64| drive((first + column * step) % DRIVES);
    Ok(((0..u64::from(shape.width())).map(at).collect(), ColumnMask::EMPTY))
}

fn drive(n: u64) -> DriveId {
    DriveId(u128::from(n + 1) << 64 | 0xd1)
}

fn drive_record(n: u64) -> DriveRecord {
    DriveRecord {
        drive: drive(n),
        name: format!("drive-{n}"),
        master: Key::new([1; 32]),
        confirmed: true,
        replaced_by: DriveId(0),
        addresses: "".into(),
        host: String::new(),
        rack: String::new(),
        directory: String::new(),
        capacity_bytes: 1 << 50,
        joined_ms: 0,
        instance: 0,
        stored: 0,
        start: 0,
        log: 0,
        behind: false,
    }
}

/// A number that looks random, from its place in a row (splitmix64).
fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// Measures the rates while `files` files are there, and leaves these.
async fn measure(core: &Arc<Core>, names: &Names, files: u64, sample: u64) -> Result<Rates, Failure> {
    let a_second = |count: u64, began: f64| -> Result<f64, Failure> {
        Ok(count as f64 / (processor_seconds()? - began).max(0.01))
    };
    let drawn: Vec<u64> = {
        let all: std::collections::BTreeSet<u64> = (0..sample).map(|n| mix(n ^ files) % files).collect();
        all.into_iter().collect()
    };
    let count = u64::try_from(drawn.len())?;
    let mut shuffled = drawn.clone();
    shuffled.sort_unstable_by_key(|n| mix(*n));
    let began = processor_seconds()?;
    for &n in &shuffled {
        let lookup = Lookup { at: NamePlace::of(VOLUME, names.path(n)), follow: false, watch: false };
        opens::stat(core, lookup).await?;
    }
    let stat = a_second(count, began)?;
    let began = processor_seconds()?;
    remove(core, names, &shuffled).await?;
    let scattered = a_second(count, began)?;
    free_all(core).await?;
    // The removed names are created again, and as many new ones after the last are created and removed.
    for some in drawn.chunks(usize::try_from(GROUP)?) {
        let paths: Vec<Vec<u8>> = some.iter().map(|n| names.path(*n)).collect();
        core.write(move |core, tx| paths.into_iter().try_for_each(|path| create_one(core, tx, path))).await?;
    }
    let began = processor_seconds()?;
    create(core, names, files, files + sample).await?;
    let create = a_second(sample, began)?;
    let began = processor_seconds()?;
    remove(core, names, &(files..files + sample).collect::<Vec<_>>()).await?;
    let unlink = a_second(sample, began)?;
    let began = processor_seconds()?;
    free_all(core).await?;
    let free = a_second(sample, began)?;
    Ok(Rates { files, create, stat, unlink, scattered, free })
}

async fn remove(core: &Arc<Core>, names: &Names, which: &[u64]) -> Result<(), Failure> {
    for some in which.chunks(usize::try_from(GROUP)?) {
        let all: Vec<NamePlace> = some.iter().map(|n| NamePlace::of(VOLUME, names.path(*n))).collect();
        let unlink = move |core: &Core, tx: &mut Tx| {
            all.iter()
                .try_for_each(|at| directories::unlink(tx, at, UnlinkOnly::Any, &|_| false, core.now_ms()))
        };
        core.write(unlink).await?;
    }
    Ok(())
}

/// Drops all rows of components to be freed, as if the drives had answered.
async fn free_all(core: &Arc<Core>) -> Result<(), Failure> {
    loop {
        let some = |_: &Core, tx: &mut Tx| {
            let rows = tx.records::<RemoveRecord>(&key::all(table::REMOVE), 1024)?;
            rows.iter().try_for_each(|(row, _)| inodes::removed(tx, row))?;
            Ok(rows.len())
        };
        if core.write(some).await? == 0 {
            return Ok(());
        }
    }
}

/// Processor time of this process so far, in ticks of 10 ms.
fn processor_seconds() -> Result<f64, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, after_name) = stat.rsplit_once(')').ok_or("no name")?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |at: usize| -> Result<f64, Failure> { Ok(fields.get(at).ok_or("too few fields")?.parse()?) };
    Ok((ticks(11)? + ticks(12)?) / 100.0)
}

/// The value in KiB of a line of this process's status.
fn resident_kib(which: &str) -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(which)?.strip_prefix(':'));
    Ok(line.and_then(|line| line.split_whitespace().next()).ok_or("no such line")?.parse()?)
}
