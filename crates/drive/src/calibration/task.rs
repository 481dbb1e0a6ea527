//! Runs calibrations: at a start, and when one is asked for.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use braid_schedule::Charge;
use braid_store::disk::modelled::{Device, MachineTime, Modelled};
use braid_store::disk::{self, Disk, private};
use braid_transport::host;
use braid_wire::data::DriveCost;
use tokio::sync::watch;
use tracing::{info, warn};

use super::measure::{Effort, Measured, SHORT, WHOLE, measure};
use super::record::{self, Stored};
use super::{BESIDE_BYTES_MAX, Before, Calibration, Traffic, device_cost, judge, told};
use crate::core::Core;
use crate::life::config::Settings;
use crate::life::identity::Directory;

/// Directory of the measured file, in the drive's directory.
const TRIAL_DIR: &str = "calibration";

/// The drive's calibration at its start: the stored result, or else that of a short run, unless the settings
/// forbid it. Blocks on the disk.
pub(crate) fn at_start(directory: &Directory, settings: &Settings) -> Calibration {
    let device = settings.disk_model.as_deref();
    let model = device.map(|device| told(device.cost()));
    let stored = record::load(directory).filter(|stored| stored.model == model).map(|stored| stored.cost);
    #[cfg(feature = "simulated")]
    let stored = if directory.medium().is_some() { Some(simulated()) } else { stored };
    let mut calibration = Calibration::new(stored, device.map(Device::cost), settings.rail_bytes_per_second);
    calibration.device = if device.is_none() { device_of(directory) } else { None };
    if calibration.cost.is_some() || !settings.calibrate {
        return calibration;
    }
    let alone = Meanwhile { tell: &|_| {}, quiet: &|| true };
    match run(directory, settings, &SHORT, None, &alone) {
        Ok(cost) => calibration.cost = Some(cost),
        Err(why) => info!(%why, "the drive has no cost of its disk yet: braid drive calibrate"),
    }
    calibration
}

/// The cost of a simulated disk, which takes no time: one that is as fast as a disk with a head.
#[cfg(feature = "simulated")]
fn simulated() -> DriveCost {
    let way = braid_wire::data::DiskWay { operation_ns: 200_000, bytes_per_second: 200_000_000 };
    let disk = braid_wire::data::DiskCost {
        charge: braid_wire::data::DiskCharge::Larger,
        read: way,
        write: way,
        sync_ns: 1_000_000,
    };
    DriveCost {
        disk,
        read_processor: Default::default(),
        write_processor: Default::default(),
        measured_ms: 0,
        points: Vec::new(),
    }
}

/// The number of the device of a directory that is not simulated.
fn device_of(directory: &Directory) -> Option<u64> {
    #[cfg(feature = "simulated")]
    if directory.medium().is_some() {
        return None;
    }
    fs::metadata(directory.path()).ok().map(|found| found.dev())
}

/// Calibrates whenever that is asked for, until `closing` is set.
pub(crate) async fn serve(core: Arc<Core>, directory: Arc<Directory>, mut closing: watch::Receiver<bool>) {
    loop {
        let asked = core.calibration().poll();
        let Some((before, done)) = asked else {
            tokio::select! {
                () = core.calibrate_wake.notified() => continue,
                _ = closing.wait_for(|&closing| closing) => return,
            }
        };
        let worker = Arc::clone(&core);
        let directory = Arc::clone(&directory);
        let result = host::spawn_blocking(move || beside(&worker, &directory, before, &done)).await;
        let result = result.unwrap_or_else(|error| Err(error.to_string()));
        match &result {
            Ok(cost) => info!(disk = ?cost.disk, "calibrated"),
            Err(why) => warn!(%why, "the calibration is refused; the last good one stays"),
        }
        core.calibration().handle_end(result);
        let parts = core.calibration().parts();
        if let Some(cost) = device_cost(&parts) {
            core.gate.set_cost(cost);
        }
    }
}

/// Calibrates beside serving. A run in which clients used the drive says nothing.
fn beside(core: &Core, directory: &Directory, before: Before, done: &AtomicU32) -> Result<DriveCost, String> {
    let last = match before {
        Before::Counts => core.calibration().cost.clone(),
        Before::Other => None,
    };
    let began = core.traffic();
    let quiet = || moved(began, core.traffic()) <= BESIDE_BYTES_MAX;
    let tell = |part| done.store(part, Ordering::Relaxed);
    run(directory, &core.settings, &WHOLE, last.as_ref(), &Meanwhile { tell: &tell, quiet: &quiet })
}

/// Those beside a run, whom it tells and asks.
struct Meanwhile<'a> {
    /// Told of the progress, in thousandths.
    tell: &'a dyn Fn(u32),
    /// Asked after the measurement: true if it counts, as nobody used the drive.
    quiet: &'a dyn Fn() -> bool,
}

fn moved(before: Traffic, now: Traffic) -> u64 {
    now.0.saturating_sub(before.0).saturating_add(now.1.saturating_sub(before.1))
}

/// Measures, judges and stores.
fn run(
    directory: &Directory,
    settings: &Settings,
    effort: &Effort,
    last: Option<&DriveCost>,
    meanwhile: &Meanwhile<'_>,
) -> Result<DriveCost, String> {
    #[cfg(feature = "simulated")]
    if directory.medium().is_some() {
        return Err("its disk is simulated".to_owned());
    }
    let device = settings.disk_model.as_ref();
    let dir = directory.path().join(TRIAL_DIR);
    let (measured, hint) =
        on_disk(&dir, device, effort, meanwhile.tell).map_err(|error| error.to_string())?;
    if !(meanwhile.quiet)() {
        return Err("clients read or wrote on the drive meanwhile: once more, while nobody does".to_owned());
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    let cost = judge(&measured, last, hint, now_ms)?;
    let stored = Stored { cost, model: device.map(|device| told(device.cost())) };
    record::save(directory, &stored).map_err(|error| error.to_string())?;
    Ok(stored.cost)
}

/// Measures in a directory of its own, which is removed again. The second value is what the system says of
/// the device.
fn on_disk(
    dir: &Path,
    device: Option<&Arc<Device>>,
    effort: &Effort,
    done: &dyn Fn(u32),
) -> io::Result<(Measured, Option<Charge>)> {
    private::make_dir_all(dir)?;
    let real = disk::Directory::lock(dir).map_err(|error| io::Error::other(error.to_string()))?;
    let hint = match device {
        Some(device) => Some(device.cost().charge),
        None => real.space().and_then(|space| rotational(space.device)),
    };
    let time = MachineTime::default();
    let measured = match device {
        None => measure(&real, &time, effort, done),
        Some(device) => measure(&Modelled::new(real, Arc::clone(device)), &time, effort, done),
    };
    let removed = fs::remove_dir(dir);
    let measured = measured?;
    removed.map(|()| (measured, hint))
}

/// The charge of the device of this number, as the kernel says whether it has a head.
fn rotational(device: u64) -> Option<Charge> {
    let block = format!("/sys/dev/block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    // A partition has no queue of its own.
    let paths = [format!("{block}/queue/rotational"), format!("{block}/../queue/rotational")];
    let text = paths.iter().find_map(|path| fs::read_to_string(path).ok())?;
    match text.trim() {
        "1" => Some(Charge::Sum),
        "0" => Some(Charge::Larger),
        _ => None,
    }
}
