//! `braid demo`: starts a temporary cluster; copies real files in and out; kills, replaces and rebuilds a
//! drive; kills another. Compares every copy by SHA-256. Whoever has measured bounds gets every rate
//! compared.

mod files;
mod steps;
mod transfer;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

use braid_client::Client;
use braid_client::Name;
use braid_layout::Shape;
use braid_wire::control::StatRow;

use crate::args::{self, DriveOptions};
use crate::connect::connect;
use crate::machine::bring_up::{Running, all_joined, bring_up};
use crate::machine::cluster_dir::ClusterDir;
use crate::machine::down::stop_all;
use crate::machine::local::{DriveStart, Mode, Server};
use crate::machine::temporary_dir::{OnDrop, TemporaryDir};
use crate::operate::heal::{HealTotals, until_healed};
use crate::operate::replace::replace;
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::rate::Rate;
use crate::output::report::{Report, count};
use crate::output::size;

use files::Input;
use steps::{Kind, StepOutcome, Steps};
use transfer::{Hash, TransferBuffers};

pub use steps::Bounds;
pub use transfer::WINDOW_BYTES;

const DRIVES: u16 = 6;
const SCHEME: &str = "raid5";
/// Number of columns of each file, one of them parity.
pub const WIDTH: u8 = 5;
const UNIT_BYTES: u32 = 512 << 10;
const VOLUME: &str = "demo";
/// Bytes for the logs of processes and for what drives need besides.
const SPARE_BYTES: u64 = 128 << 20;

/// Runs the command. With bounds it prints the ratio of each rate to its bound.
pub async fn run(demo: args::Demo, report: Report, bounds: Option<Bounds>) -> Result<(), Failure> {
    let inputs = files::choose(&demo.files)?;
    let bytes: u64 = inputs.iter().map(|input| input.size).sum();
    let parent = demo.dir.clone().unwrap_or_else(std::env::temp_dir);
    // Space for the files with parity, one of them twice, and a drive's share again for the rebuild.
    let on_drop = if demo.keep { OnDrop::Keep } else { OnDrop::Remove };
    let dir = TemporaryDir::make(&parent, "demo", bytes * 3 + SPARE_BYTES, on_drop)?;
    let mut steps = Steps::new(report, bounds);
    steps.say(format!(
        "{}, {}; {DRIVES} drives in {}; {SCHEME} 4+1, unit {}",
        count(inputs.len() as u64, "file"),
        size::show(bytes),
        dir.path().display(),
        size::show(u64::from(UNIT_BYTES))
    ))?;
    let ended = all_steps(&dir, &inputs, &mut steps).await;
    steps.finish(dir.path().display().to_string(), inputs.len() as u64, bytes, ended.as_ref().err())?;
    ended?;
    match steps.ok() {
        true => steps.say("every comparison held"),
        false => {
            Err(Failure::new(Exit::Mismatch, "demo", "a comparison did not hold: see the steps marked WRONG"))
        }
    }
}

/// The demo while it runs. Dropping it kills every process.
struct Demo<'a> {
    client: Client,
    running: Running,
    window: TransferBuffers,
    steps: &'a mut Steps,
    /// The stored files, each with the hash of its source.
    stored: Vec<(Name, Hash)>,
}

async fn all_steps(dir: &TemporaryDir, inputs: &[Input], steps: &mut Steps) -> Result<(), Failure> {
    let mut demo = Demo::start(dir, inputs, steps).await?;
    demo.write_all(inputs).await?;
    demo.read_all("read back and compared").await?;

    let (degraded, unnamed, victim) = demo.choose_victim(inputs).await?;
    demo.kill(&victim).await?;
    demo.read_all(&format!("read without {victim} and compared")).await?;
    let first = inputs.first().map(|input| input.path.clone()).unwrap_or_default();
    let (rate, hash) = demo.window.write(&first, unnamed, &degraded).await?;
    demo.steps.moved(format!("new file written without {victim}"), Kind::Written, rate, StepOutcome::Good)?;
    demo.stored.push((degraded.clone(), hash));
    demo.read_one("new file read and compared", demo.stored.len() - 1).await?;

    demo.rebuild(&victim).await?;
    demo.check().await?;
    let second = demo.column_drive(&degraded, 1).await?;
    demo.kill(&second).await?;
    demo.read_all(&format!("read without {second} and compared")).await?;

    let began = Instant::now();
    let Demo { running, steps, .. } = demo;
    stop_all(running.servers).await?;
    steps.did("all processes stopped", began.elapsed(), StepOutcome::Good)
}

impl<'a> Demo<'a> {
    /// Brings the cluster up.
    async fn start(dir: &TemporaryDir, inputs: &[Input], steps: &'a mut Steps) -> Result<Demo<'a>, Failure> {
        let began = Instant::now();
        let cluster = ClusterDir::at(dir.path().to_owned());
        cluster.prepare()?;
        let running = bring_up(cluster, Some(DRIVES), Mode::Attached, DriveOptions::default()).await?;
        let client = connect(&running.dir, &running.cluster).await?;
        let shape = Shape::parse(SCHEME, Some(WIDTH), UNIT_BYTES).doing(|| "make the volume".into())?;
        client.volume_create(VOLUME, Some(shape), 0).await?;
        steps.did(format!("manager and {DRIVES} drives started"), began.elapsed(), StepOutcome::Good)?;
        let largest = inputs.iter().map(|input| input.size).max().unwrap_or(0);
        Ok(Demo { client, running, window: TransferBuffers::new(largest), steps, stored: Vec::new() })
    }

    /// Stores every input under its own name.
    async fn write_all(&mut self, inputs: &[Input]) -> Result<(), Failure> {
        let mut rate = Rate::default();
        for (index, input) in inputs.iter().enumerate() {
            let name = file_name(index, &input.path)?;
            let file = self.client.create_unnamed(VOLUME, None).await?;
            let (written, hash) = self.window.write(&input.path, file, &name).await?;
            rate += written;
            self.stored.push((name, hash));
        }
        let written = format!("{} written", count(inputs.len() as u64, "file"));
        self.steps.moved(written, Kind::Written, rate, StepOutcome::Good)
    }

    /// Reads every stored file and compares it.
    async fn read_all(&mut self, step: &str) -> Result<(), Failure> {
        let mut rate = Rate::default();
        let mut outcome = StepOutcome::Good;
        for (name, expected) in &self.stored {
            let (read, hash) = self.window.read(&self.client, name).await?;
            rate += read;
            if hash != *expected {
                outcome = StepOutcome::Bad;
            }
        }
        self.steps.moved(step, Kind::Read, rate, outcome)
    }

    async fn read_one(&mut self, step: &str, index: usize) -> Result<(), Failure> {
        let (name, expected) = &self.stored[index];
        let (rate, hash) = self.window.read(&self.client, name).await?;
        let outcome = if hash == *expected { StepOutcome::Good } else { StepOutcome::Bad };
        self.steps.moved(step, Kind::Read, rate, outcome)
    }

    /// Opens the file to be written degraded while all drives are still up. Returns the drive to kill, which
    /// holds a column of this file and of the first one.
    async fn choose_victim(
        &mut self,
        inputs: &[Input],
    ) -> Result<(Name, braid_client::File, String), Failure> {
        let first = &self.stored.first().ok_or_else(|| Failure::new(Exit::Failed, "demo", "no file"))?.0;
        let of_first = drives(&self.client.stat(first).await?);
        let file = self.client.create_unnamed(VOLUME, None).await?;
        let of_new = drives(&file.stat().await?);
        let victim = of_first.into_iter().find(|drive| of_new.contains(drive));
        let victim = victim
            .ok_or_else(|| Failure::new(Exit::Failed, "demo", "no drive holds columns of both files"))?;
        let path = inputs.first().map(|input| input.path.clone()).unwrap_or_default();
        Ok((file_name(inputs.len(), &path)?, file, victim))
    }

    /// The drive that holds a column of a file.
    async fn column_drive(&self, name: &Name, column: usize) -> Result<String, Failure> {
        let found = drives(&self.client.stat(name).await?).into_iter().nth(column);
        found.ok_or_else(|| Failure::new(Exit::Failed, "demo", "the file has too few columns"))
    }

    /// Kills a drive with SIGKILL.
    async fn kill(&mut self, drive: &str) -> Result<(), Failure> {
        let began = Instant::now();
        let index = self.running.servers.iter().position(|server| server.name == drive);
        let index = index.ok_or_else(|| {
            Failure::new(Exit::NotFound, format!("kill {drive}"), "it is not one of the demo's")
        })?;
        self.running.servers.remove(index).kill().await?;
        self.steps.did(format!("{drive} killed (SIGKILL)"), began.elapsed(), StepOutcome::Good)
    }

    /// Starts the drive again with an empty directory, and so with a new identity. Gives it the columns of
    /// the old one and rebuilds them.
    async fn rebuild(&mut self, old: &str) -> Result<(), Failure> {
        let began = Instant::now();
        let dir = &self.running.dir;
        let new = format!("{old}-new");
        let directory = dir.drive(old);
        std::fs::remove_dir_all(&directory).doing(|| format!("empty {}", directory.display()))?;
        let manager = &self.running.cluster.manager;
        let options = self.running.options;
        let start = DriveStart { name: &new, directory: &directory, manager, options, host: None };
        let server = Server::start_drive(dir, start, Mode::Attached).await?;
        self.running.servers.push(server);
        all_joined(&self.client, std::slice::from_ref(&new)).await?;
        self.steps.did(format!("{old} started again empty, as {new}"), began.elapsed(), StepOutcome::Good)?;
        let began = Instant::now();
        let before = HealTotals::now(&self.client).await?;
        replace(&self.client, old, &new).await?;
        self.steps.did(
            format!("{new} takes the place of {old}, whose lease has lapsed"),
            began.elapsed(),
            StepOutcome::Good,
        )?;
        let (done, time) = until_healed(&self.client, &new, before, |_| {}).await?;
        let rate = Rate { bytes: done.written_bytes, time };
        self.steps.moved(format!("{new} rebuilt"), Kind::Rebuilt, rate, StepOutcome::Good)
    }

    /// Compares every unit with its parity.
    async fn check(&mut self) -> Result<(), Failure> {
        let began = Instant::now();
        let mut outcome = StepOutcome::Good;
        for (name, _) in &self.stored {
            if !self.client.check(name, |_| {}).await?.is_clean() {
                outcome = StepOutcome::Bad;
            }
        }
        self.steps.did("every unit checked against its parity", began.elapsed(), outcome)
    }
}

/// The drives of a file's columns, in the columns' order.
fn drives(row: &StatRow) -> Vec<String> {
    row.segments.iter().flat_map(|segment| &segment.columns).map(|column| column.drive_name.clone()).collect()
}

/// A name for an input; the index keeps it unique.
fn file_name(index: usize, path: &Path) -> Result<Name, Failure> {
    let last = path.file_name().map_or(b"file".as_slice(), OsStrExt::as_bytes);
    let short = &last[..last.len().min(200)];
    Name::new(VOLUME, &[format!("{}-", index + 1).as_bytes(), short].concat())
        .doing(|| format!("name {}", path.display()))
}
