//! `braid manager rebuild`: a manager's state anew, from what the drives hold; and `braid drive testify`,
//! which has a drive of another host tell what it holds in a file.

mod testimony;
mod witness;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use braid_layout::{ClusterId, DriveId};
use braid_manager::catalogue::rebuild::{How, RebuildError, Rebuilt, Witness, describe, rebuild};
use braid_transport::{ControlSession, Credentials, Limits, Mismatch, TransportError};
use braid_wire::token::Pin;
use serde::Serialize;

use crate::args::ManagerRebuild;
use crate::output::exit::{Cause, Doing, Exit, Failure};
use crate::output::report::{Report, complain, count};
use crate::output::size;
use testimony::FileWitness;
use witness::{DirectoryWitness, Who};

/// Maximum time that a manager which may still live has to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(3);

/// Output of the command.
#[derive(Debug, Serialize)]
struct Facts {
    cluster: String,
    directory: PathBuf,
    /// True if the state is there now; false if this was a trial.
    made: bool,
    volumes: u64,
    files: u64,
    directories: u64,
    /// Links, devices and the like.
    others: u64,
    /// Files of which these drives hold something.
    found: u64,
    /// Files of which these drives hold something, and whose names are lost.
    nameless: u64,
    names: Option<NameFacts>,
    drives_read: Vec<String>,
    /// Drives of the cluster that were not given.
    drives_missing: Vec<String>,
    /// Drives whose place or name another has: they are left out.
    drives_replaced: Vec<String>,
    /// Drives that no record tells of.
    drives_unknown: Vec<String>,
    faults: Vec<FaultFacts>,
    contradictions: Vec<String>,
    seconds: f64,
}

/// Certainty of the names.
#[derive(Debug, Serialize)]
struct NameFacts {
    /// True if two drives or more say the same of all of them.
    certain: bool,
    witnesses: Vec<String>,
    /// Changes that only one drive knows, and the time before the loss that they took.
    uncertain_changes: u64,
    uncertain_ms: u64,
    /// True if one drive alone says what is newer, and that is left out.
    leaves_out: bool,
    term: u64,
    changes: u64,
}

#[derive(Debug, Serialize)]
struct FaultFacts {
    drive: String,
    what: String,
}

impl From<RebuildError> for Cause {
    fn from(error: RebuildError) -> Cause {
        let exit = match &error {
            RebuildError::NoDrives | RebuildError::Twice(_) => Exit::Usage,
            RebuildError::NoSuchDrive { .. } | RebuildError::NoNames { .. } => Exit::NotFound,
            RebuildError::TwoClusters { .. } => Exit::NotAllowed,
            RebuildError::NotEmpty { .. } => Exit::Conflict,
            RebuildError::Split { .. } | RebuildError::Alone { .. } | RebuildError::NoState(_) => {
                Exit::Mismatch
            }
            _ => Exit::Failed,
        };
        Cause::new(exit, error.to_string(), "")
    }
}

/// Runs `braid manager rebuild`.
pub(crate) async fn run(asked: ManagerRebuild, report: Report) -> Result<(), Failure> {
    let what = format!("rebuild the manager in {}", asked.dir.display());
    let opening = asked.from_drives.clone();
    let opened = tokio::task::spawn_blocking(move || open_all(&opening));
    let witnesses = opened.await.unwrap_or_else(|error| Err(broken(&what, &error)))?;
    refuse_if_it_lives(&witnesses, &what).await?;
    let made = tokio::task::spawn_blocking(move || make(&asked, &witnesses, report));
    made.await.unwrap_or_else(|error| Err(broken(&what, &error)))
}

/// Runs `braid drive testify`.
pub(crate) async fn testify(dir: PathBuf, file: PathBuf, report: Report) -> Result<(), Failure> {
    let what = format!("write what the drive in {} holds", dir.display());
    let work = tokio::task::spawn_blocking(move || {
        let witness = DirectoryWitness::open(&dir)?;
        let written = testimony::write(&file, &witness).doing(|| format!("write {}", file.display()))?;
        let facts = serde_json::json!({ "file": file, "drive": witness.known().name, "bytes": written });
        report.facts(&facts, |_| {
            format!(
                "{}: {}. It holds the drive's key: carry it by a way you trust, and remove it afterwards.\n",
                file.display(),
                size::show(written),
            )
        })
    });
    work.await.unwrap_or_else(|error| Err(broken(&what, &error)))
}

fn broken(what: &str, error: &tokio::task::JoinError) -> Failure {
    Failure::new(Exit::Failed, what.to_owned(), error.to_string())
}

type AnyWitness = Box<dyn WhoAndWitness + Send>;

/// A witness that also knows who may still be its manager.
trait WhoAndWitness: Witness + Who {}
impl<W: Witness + Who> WhoAndWitness for W {}

fn open_all(paths: &[PathBuf]) -> Result<Vec<AnyWitness>, Failure> {
    let open = |path: &PathBuf| -> Result<AnyWitness, Failure> {
        if path.is_file() {
            Ok(Box::new(FileWitness::open(path).doing(|| format!("read {}", path.display()))?))
        } else {
            Ok(Box::new(DirectoryWitness::open(path)?))
        }
    };
    paths.iter().map(open).collect()
}

/// Refuses if a manager of the cluster answers at an address that a drive knows.
async fn refuse_if_it_lives(witnesses: &[AnyWitness], what: &str) -> Result<(), Failure> {
    let mut asked = BTreeSet::new();
    let addresses_of = |witness: &AnyWitness| {
        let list = witness.manager().unwrap_or_default().split(',');
        list.map(|address| address.trim().to_owned()).collect::<Vec<_>>()
    };
    for (witness, address) in
        witnesses.iter().flat_map(|of| addresses_of(of).into_iter().map(move |at| (of, at)))
    {
        if address.is_empty() || !asked.insert(address.clone()) {
            continue;
        }
        let known = witness.known();
        // Any manager of the cluster counts, whatever its CA: none has this pin.
        let pin = Pin::default();
        let credentials =
            Credentials::of_drive(witness.cluster(), pin, known.drive, known.key_number, &known.master);
        let limits =
            Limits { connect: ANSWER_WAIT, reply: ANSWER_WAIT, stall: ANSWER_WAIT, ..Limits::default() };
        let answered = ControlSession::connect(&address, credentials, &limits).await;
        let is_of_cluster = |mismatch: &Mismatch| matches!(mismatch, Mismatch::Authority { .. });
        let lives = match &answered {
            Ok(_) | Err(TransportError::Refusal(_)) => true,
            Err(TransportError::WrongPeer { mismatch, .. }) => is_of_cluster(mismatch),
            Err(_) => false,
        };
        if lives {
            let why = format!("a manager of this cluster answers at {address}");
            return Err(Failure::new(Exit::Busy, what.to_owned(), why).remedy(
                "if its state is to be given up, stop it first; if not, nothing needs to be rebuilt",
            ));
        }
    }
    Ok(())
}

fn make(asked: &ManagerRebuild, witnesses: &[AnyWitness], report: Report) -> Result<(), Failure> {
    let began = Instant::now();
    let how = How {
        believe: asked.believe.clone(),
        agreed_only: asked.agreed,
        without_names: asked.without_names,
        keep: asked.yes,
    };
    let all: Vec<&dyn Witness> = witnesses.iter().map(|witness| &**witness as &dyn Witness).collect();
    let mut told = Instant::now();
    let mut progress = |rows: u64| {
        if !report.json && told.elapsed() > Duration::from_secs(2) {
            told = Instant::now();
            complain(&format!("{rows} rows so far"));
        }
    };
    let rebuilt = rebuild(&all, &asked.dir, &how, &mut progress)
        .doing(|| format!("rebuild the manager in {}", asked.dir.display()))?;
    let facts = facts(&rebuilt, &all, asked, began.elapsed());
    report.facts(&facts, text)
}

fn facts(rebuilt: &Rebuilt, witnesses: &[&dyn Witness], asked: &ManagerRebuild, took: Duration) -> Facts {
    let name = |drive: DriveId| {
        let given = witnesses.iter().find(|witness| witness.known().drive == drive);
        let known = rebuilt.drives.get(&drive).cloned();
        known.or(given.map(|given| given.known().name.clone())).unwrap_or_else(|| drive.to_string())
    };
    let verdict = rebuilt.verdict.as_ref();
    let names = verdict.map(|verdict| {
        let (uncertain_changes, uncertain_ms) = verdict.tail.unwrap_or_default();
        NameFacts {
            certain: verdict.is_certain(),
            witnesses: verdict.witnesses.iter().map(|drive| name(*drive)).collect(),
            uncertain_changes,
            uncertain_ms,
            leaves_out: verdict.leaves_out(),
            term: verdict.age.term,
            changes: verdict.age.changes,
        }
    });
    let faults = verdict.map(|verdict| &verdict.faults[..]).unwrap_or_default();
    let ClusterId(cluster) = rebuilt.cluster;
    Facts {
        cluster: format!("{cluster:032x}"),
        directory: asked.dir.clone(),
        made: asked.yes,
        volumes: rebuilt.names.volumes,
        files: rebuilt.names.files,
        directories: rebuilt.names.directories,
        others: rebuilt.names.others,
        found: rebuilt.found,
        nameless: rebuilt.nameless,
        names,
        drives_read: witnesses.iter().map(|witness| witness.known().name.clone()).collect(),
        drives_missing: rebuilt.apart.unheard.clone(),
        drives_replaced: rebuilt.apart.replaced.clone(),
        drives_unknown: rebuilt.apart.unknown.clone(),
        faults: faults
            .iter()
            .map(|(drive, fault)| FaultFacts { drive: name(*drive), what: describe(fault) })
            .collect(),
        contradictions: rebuilt.violations.clone(),
        seconds: took.as_secs_f64(),
    }
}

fn text(facts: &Facts) -> String {
    let mut lines = vec![format!(
        "cluster {}: {} in {}, {}, {} links and other nodes",
        facts.cluster,
        count(facts.files, "file"),
        count(facts.volumes, "volume"),
        directories(facts.directories),
        facts.others,
    )];
    match &facts.names {
        Some(names) if names.certain => {
            lines.push(format!("certain: {} say the same of all names", names.witnesses.join(", ")));
        }
        Some(names) if names.leaves_out && names.uncertain_changes == 0 => lines.push(format!(
            "certain, as {} agree, up to their last change: what one drive alone says is newer, and is left out",
            names.witnesses.join(", "),
        )),
        Some(names) if names.witnesses.len() > 1 => lines.push(format!(
            "certain, as {} agree: all but the last {} changes, of {:.1} s, which are one drive's word",
            names.witnesses.join(", "),
            names.uncertain_changes,
            f64::from(u32::try_from(names.uncertain_ms).unwrap_or(u32::MAX)) / 1000.0,
        )),
        Some(names) => lines.push(format!(
            "uncertain: all names are the word of {} alone; what it may have changed or left out is not seen",
            names.witnesses.join(", ")
        )),
        None => lines.push("no names: no drive has a catalogue".to_owned()),
    }
    lines.push(format!(
        "drives read: {}; they hold parts of {} of the files",
        facts.drives_read.join(", "),
        facts.found
    ));
    if facts.nameless > 0 {
        lines.push(format!(
            "{} more on these drives, without a name: in lost+found of their volumes, by number, once the manager has started",
            count(facts.nameless, "file")
        ));
    }
    if !facts.drives_missing.is_empty() {
        lines.push(format!(
            "not given: {}. Start these with the new join token (braid drive serve --token-file), or replace them",
            facts.drives_missing.join(", ")
        ));
    }
    if !facts.drives_replaced.is_empty() {
        lines.push(format!(
            "left out: {}. Another drive has its place or its name; to use the disk again, give it a new drive",
            facts.drives_replaced.join(", ")
        ));
    }
    if !facts.drives_unknown.is_empty() {
        lines.push(format!(
            "unknown: {}. No record tells of it: it had just joined, or was removed. It comes back as a drive that is \
             behind; if it was removed, remove it again",
            facts.drives_unknown.join(", ")
        ));
    }
    lines.extend(facts.faults.iter().map(|fault| format!("! {} {}", fault.drive, fault.what)));
    lines.extend(facts.contradictions.iter().map(|what| format!("! the rows contradict each other: {what}")));
    let dir = facts.directory.display();
    lines.push(if facts.made {
        format!(
            "made in {:.1} s. Start the manager in {dir}, then the drives: before it answers anybody it compares every file with \
             what the drives hold; {} in that directory says which are whole. Clients need the new cluster.toml",
            facts.seconds,
            braid_manager::restore::compare::REPORT_FILE
        )
    } else {
        format!("a trial, in {:.1} s: nothing was kept. To make the state in {dir}: --yes", facts.seconds)
    });
    lines.join("\n") + "\n"
}

fn directories(number: u64) -> String {
    if number == 1 { "1 directory".to_owned() } else { format!("{number} directories") }
}

/// Names a path in an error.
pub(super) fn reading(path: &Path) -> impl FnOnce() -> String + '_ {
    move || format!("read the drive in {}", path.display())
}
