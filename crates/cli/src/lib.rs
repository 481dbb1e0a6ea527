//! `braid` as a library: words in, exit code out. Each command is a module; what they share is how they fail
//! ([`output::exit`]), how they report ([`output::report`]) and how they find their cluster
//! ([`machine::cluster_dir`], [`connect`]). What is public beside [`main`] is there for `braid-lab`, whose
//! experiments run clusters in the same way and are this program for all that they do not know themselves.

mod args;
mod config;
pub mod connect;
mod copy;
pub mod demo;
mod elsewhere;
mod engine;
pub mod files;
pub mod machine;
pub mod operate;
pub mod output;
pub mod sim;
mod sizing;
mod stream;

use crate::files::attributes;
use crate::files::list;
use crate::files::methods;
use crate::files::modules;
use crate::files::mount;
use crate::files::mount_helper;
use crate::files::namespace;
use crate::files::plan_cmd;

use crate::files::stat;
use crate::files::why;
use crate::machine::down;
use crate::machine::hosting;
use crate::machine::serve;
use crate::machine::up;
use crate::operate::check;
use crate::operate::df;
use crate::operate::drive_cmd;
use crate::operate::heal;
use crate::operate::jobs;
use crate::operate::manager_cmd;
use crate::operate::rails;
use crate::operate::rebalance;
use crate::operate::rebuild;
use crate::operate::scrub;
use crate::operate::status;
use crate::operate::store_cmd;
use crate::operate::volume;
use crate::operate::{key, layout, qualify, quota, relayout, reserve, snapshot, token};
use crate::output::interrupt;
use crate::output::manual;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use clap::Parser;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use args::{Bench, Cli, ClusterCommand, Command, Drive, LogFormat, Manager, Sim};
use config::Expanded;
use config::told::Told;
use output::exit::{Doing, Exit, Failure};
use output::interrupt::{Interrupts, Of};
use output::json_log::{self, JsonLines};
use output::report::{Report, complain};

pub use args::{Demo, DriveOptions, SimRun};

/// Time limit for background threads to stop when the program ends.
const LINGER: Duration = Duration::from_millis(200);
/// Stack of a worker thread. One request of the manager takes more than a megabyte in a build that is not for
/// release, as the steps of all kinds of requests have room in it.
const STACK_BYTES: usize = 8 << 20;

/// Runs `braid` with these words, the first of which is the program's name, and returns its exit code.
pub fn main(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let words: Vec<OsString> = words.into_iter().collect();
    if let Some(ended) = engine::work(&words) {
        return ended;
    }
    let words = match mount_helper::arguments(words.iter().cloned()) {
        None => words,
        Some(Ok(arguments)) => arguments,
        Some(Err(stop)) => return stop.tell(),
    };
    let expanded = match config::expand(words) {
        Ok(expanded) => expanded,
        Err(failure) => return ended(Err(failure)),
    };
    let cli = match Cli::try_parse_from(&expanded.words) {
        Ok(cli) => cli,
        Err(error) => return refused(&error, &expanded),
    };
    match start_log(&cli.command) {
        Ok(()) => conclude(run(cli, expanded)),
        Err(failure) => ended(Err(failure)),
    }
}

/// Says why the words were refused, or what they ask for if that is help, and which file has a part of them.
fn refused(error: &clap::Error, expanded: &Expanded) -> ExitCode {
    // A failure to write it is ignored.
    let _ = error.print();
    match (expanded.file(), error.exit_code()) {
        (_, 0) => return ExitCode::SUCCESS,
        (Some(file), _) => complain(&format!("{} has a part of these flags", file.display())),
        (None, _) => {}
    }
    ExitCode::from(Exit::Usage as u8)
}

/// Runs a command to its end, tells how it failed, and returns the program's exit code.
pub fn conclude(command: impl Future<Output = Result<(), Failure>>) -> ExitCode {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.enable_all().thread_stack_size(STACK_BYTES).build();
    ended(runtime.doing(|| "start".into()).and_then(|runtime| {
        let ended = runtime.block_on(command);
        runtime.shutdown_timeout(LINGER);
        ended
    }))
}

fn ended(ended: Result<(), Failure>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if failure.exit != Exit::Ok {
                complain(&failure.to_string());
            }
            ExitCode::from(failure.exit as u8)
        }
    }
}

/// Runs the command, or ends it at the first signal. Servers and `up` handle signals themselves.
async fn run(cli: Cli, expanded: Expanded) -> Result<(), Failure> {
    let cluster = cli.cluster();
    connect::tell_keys(cli.volume_keys);
    connect::tell_transport(cli.transport);
    let report = Report { json: cli.json };
    let told = &expanded.told;
    if cli.command.configured().is_some_and(|configured| configured.check) {
        match &cli.command {
            Command::Manager(Manager::Serve(serve)) => serve::check_manager(serve).await?,
            Command::Drive(Drive::Serve(serve)) => serve::check_drive(serve).await?,
            _ => {}
        }
        return config::effective::print(&expanded, report);
    }
    let cluster = cluster.as_deref();
    match cli.command {
        Command::Up(up) => return up::run(up, cluster, report).await,
        Command::Mount(mount) => return mount::run(mount, cluster, report).await,
        Command::Stream(asked) => return stream::run(asked, cluster, report).await,
        Command::Bench(Bench::Qualify(asked)) => return qualify::run(asked, cluster, report).await,
        Command::Manager(Manager::Serve(serve)) => return serve::manager(*serve, told).await,
        Command::Drive(Drive::Serve(serve)) => return serve::drive(*serve, told).await,
        Command::Cluster(ClusterCommand::Init(asked)) => return hosting::init(asked).await,
        Command::Cluster(ClusterCommand::Join(asked)) => return hosting::join(asked).await,
        Command::Cluster(ClusterCommand::Restore(asked)) => return hosting::restore(asked).await,
        _ => {}
    }
    // The demo has processes to stop and files to remove; other commands end almost at once.
    let slow = matches!(cli.command, Command::Demo(_));
    let grace = if slow { interrupt::GRACE_DEMO } else { interrupt::GRACE };
    interruptible(grace, command(cli.command, cluster, report)).await
}

/// Runs a command until it ends or the first signal comes. After a signal it has `grace` to undo what it has
/// begun.
pub async fn interruptible(
    grace: Duration,
    command: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    Interrupts::end_after(grace)?;
    let mut interrupts = Interrupts::new(Of::Command)?;
    // Dropping a command undoes what it has begun: children are stopped, temporary files removed, and no file
    // gets its name.
    tokio::select! {
        ended = command => ended,
        _ = interrupts.next() => Err(Interrupts::failure()),
    }
}

async fn command(command: Command, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    match command {
        Command::Up(up) => up::run(up, cluster, report).await,
        Command::Mount(mount) => mount::run(mount, cluster, report).await,
        Command::Manager(Manager::Serve(serve)) => serve::manager(*serve, &Told::default()).await,
        Command::Manager(Manager::Backup { file, dir: None }) => {
            manager_cmd::backup(file, cluster, report).await
        }
        Command::Manager(Manager::Backup { file, dir: Some(dir) }) => {
            manager_cmd::backup_of_directory(file, &dir, report)
        }
        Command::Manager(Manager::Restore(asked)) => manager_cmd::restore(asked, report).await,
        Command::Manager(Manager::Rebuild(asked)) => rebuild::run(asked, report).await,
        Command::Manager(Manager::FreeUnnamed) => manager_cmd::free_unnamed(cluster, report).await,
        Command::Manager(Manager::Replace { old }) => manager_cmd::replace(&old, cluster, report).await,
        Command::Cluster(ClusterCommand::Init(asked)) => hosting::init(asked).await,
        Command::Cluster(ClusterCommand::Join(asked)) => hosting::join(asked).await,
        Command::Cluster(ClusterCommand::Restore(asked)) => hosting::restore(asked).await,
        Command::Cluster(ClusterCommand::Ls) => manager_cmd::list(cluster, report).await,
        Command::Down(down) => down::run(down, cluster, report).await,
        Command::Status { jobs: true, .. } => jobs::run(cluster, report).await,
        Command::Status { reservations: true, .. } => reserve::status(cluster, report).await,
        Command::Status { rails: true, .. } => rails::run(cluster, report).await,
        Command::Status { .. } => status::run(cluster, report).await,
        Command::Df => df::run(cluster, report).await,
        Command::Cp(cp) => copy::run(cp, cluster, report).await,
        Command::Cat(cat) => copy::cat(cat, cluster).await,
        Command::Ls(ls) => list::run(ls, cluster, report).await,
        Command::Chmod(chmod) => attributes::chmod(chmod, cluster).await,
        Command::Chown(chown) => attributes::chown(chown, cluster).await,
        Command::Ln(ln) => attributes::ln(ln, cluster).await,
        Command::Touch(touch) => attributes::touch(touch, cluster).await,
        Command::Truncate(truncate) => attributes::truncate(truncate, cluster).await,
        Command::Rm(rm) => namespace::rm(rm, cluster, report).await,
        Command::Mv(mv) => namespace::mv(mv, cluster, report).await,
        Command::Mkdir(mkdir) => namespace::mkdir(mkdir, cluster, report).await,
        Command::Stat(stat) => stat::run(stat, cluster, report).await,
        Command::Volume(volume) => volume::run(volume, cluster, report).await,
        Command::Quota(asked) => quota::run(asked, cluster, report).await,
        Command::Key(asked) => key::run(asked, cluster, report).await,
        Command::Token(asked) => token::run(asked, cluster, report).await,
        Command::Snapshot(asked) => snapshot::run(asked, cluster, report).await,
        Command::Layout(asked) => layout::run(asked, cluster, report).await,
        Command::Plan(plan) => plan_cmd::run(plan, cluster, report).await,
        Command::Run(asked) => methods::run(asked, cluster, report).await,
        Command::Sum(asked) => methods::sum(asked, cluster, report).await,
        Command::Module(asked) => modules::run(asked, cluster, report).await,
        Command::Why(asked) => why::run(asked, cluster, report).await,
        Command::Check(check) => check::run(check, cluster, report).await,
        Command::Scrub(scrub) => scrub::run(scrub, cluster, report).await,
        Command::Drive(drive) => drive_cmd::run(drive, cluster, report).await,
        Command::Rebuild(rebuild) => heal::rebuild(rebuild, cluster, report).await,
        Command::Heal(heal) => heal::run(heal, cluster, report).await,
        Command::Relayout(relayout) => relayout::run(relayout, cluster, report).await,
        Command::Reserve(asked) => reserve::run(asked, cluster, report).await,
        Command::Stream(asked) => stream::run(asked, cluster, report).await,
        Command::Rebalance(rebalance) => rebalance::run(rebalance, cluster, report).await,
        Command::Demo(demo) => demo::run(demo, report, None).await,
        Command::Store(store) => store_cmd::run(store, report).await,
        Command::Bench(Bench::Qualify(asked)) => qualify::run(asked, cluster, report).await,
        Command::Bench(Bench::Elsewhere(_)) | Command::Sim(Sim::Swift1991(_)) => Err(elsewhere::run()),
        Command::Sim(Sim::Run(asked)) => sim::run(asked, report).await,
        Command::Size(size) => sizing::run(&size, report),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { directory } => manual::pages(&directory),
    }
}

/// Starts the log. Servers log what they do. Other commands log nothing by default, so that an error stays
/// one line. A mount logs errors, or more if it has a log file.
fn start_log(command: &Command) -> Result<(), Failure> {
    let log = match command {
        Command::Mount(mount) => mount.log.as_deref(),
        _ => None,
    };
    let format = match command {
        Command::Mount(mount) => mount.log_format,
        Command::Manager(Manager::Serve(serve)) => serve.supervised.log_format,
        Command::Drive(Drive::Serve(serve)) => serve.supervised.log_format,
        Command::Cluster(asked) => {
            asked.supervised().map_or(LogFormat::Text, |supervised| supervised.log_format)
        }
        _ => LogFormat::Text,
    };
    let default = match command {
        Command::Manager(Manager::Serve(_)) | Command::Drive(Drive::Serve(_)) => "info",
        Command::Cluster(asked) if asked.supervised().is_some() => "info",
        Command::Mount(_) if log.is_some() => "info",
        Command::Mount(_) => "error",
        _ => "off",
    };
    log_as(log, default, format)
}

/// Starts a log of what the environment asks for, or else of `default`, in a file or on standard error.
pub fn log_to(file: Option<&Path>, default: &str) -> Result<(), Failure> {
    log_as(file, default, LogFormat::Text)
}

fn log_as(file: Option<&Path>, default: &str, format: LogFormat) -> Result<(), Failure> {
    let filter = EnvFilter::try_from_env("BRAID_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let writer = match file {
        Some(path) => {
            let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
            BoxMakeWriter::new(Mutex::new(file.doing(|| format!("open {}", path.display()))?))
        }
        None => BoxMakeWriter::new(std::io::stderr),
    };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(writer);
    match format {
        LogFormat::Text => lines.with_target(false).init(),
        LogFormat::Json => {
            json_log::begin();
            lines.event_format(JsonLines).init();
        }
    }
    Ok(())
}
