//! Programs in C and C++ against a cluster of processes: the library is made and installed as `make capi`
//! does it, they are compiled with what `pkg-config` says, and run.
//!
//! The cluster's processes are of the `braid` that cargo has built beside this test, or that BRAID_PROGRAM
//! names. With BRAID_CAPI_UNDER, such as "valgrind -q", the programs run under that one.

mod documents;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use braid_processes::{Said, run};

/// A rate that the modelled disks can promise, in bytes a second.
const RATE: &str = "100000";
/// The disks are modelled, so that what they carry does not depend on the machine's load.
const MODEL: &str = "flash,iops=5000,read=200MB/s,write=150MB/s,sync=1ms";
/// Bound for the drives' calibration.
const CALIBRATED_MAX: Duration = Duration::from_secs(120);

/// One cluster and one library are enough, as both take long to be made.
#[test]
fn programs_in_c_and_cpp_work_with_a_cluster() {
    let work = tempfile::tempdir().expect("a temporary directory");
    let library = Library::install(work.path());
    library.has_versions();
    let cluster = Cluster::up(work.path().join("cluster"));
    every_function(&library, &cluster);
    copies(&library, &cluster);
    documents::run(&library, &cluster);
}

/// Where the crate's files are.
fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The library, installed in a directory.
struct Library {
    root: PathBuf,
}

impl Library {
    fn install(work: &Path) -> Library {
        let root = work.join("root");
        let mut command = Command::new(here("install.sh"));
        command.arg(archive());
        // As for a package: the files are put below another directory than the one that they name.
        command.env("PREFIX", "/opt/braid").env("DESTDIR", &root).env_remove("LIBDIR");
        run(command).ok();
        Library { root }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join("opt/braid").join(path)
    }

    /// Every exported symbol is one of the header's, with its version.
    fn has_versions(&self) {
        let mut command = Command::new("nm");
        command.args(["-D", "--defined-only"]).arg(self.path("lib/libbraid.so.1"));
        let exported: BTreeSet<String> = run(command)
            .ok()
            .text()
            .lines()
            .filter_map(|line| line.split_whitespace().last())
            .filter(|&symbol| symbol != "BRAID_1")
            .map(str::to_owned)
            .collect();
        let map = fs::read_to_string(here("braid.map")).expect("the map");
        let names = map.lines().filter_map(|line| line.trim().strip_suffix(';'));
        let expected: BTreeSet<String> =
            names.filter(|name| name.starts_with("braid_")).map(|name| format!("{name}@@BRAID_1")).collect();
        assert_eq!(exported, expected);
    }

    /// Compiles a program with what pkg-config says, and every warning.
    fn compile(&self, compiler: &str, standard: &str, source: &Path) -> PathBuf {
        let mut command = Command::new("pkg-config");
        command.args(["--cflags", "--libs", "braid"]);
        command.env("PKG_CONFIG_PATH", self.path("lib/pkgconfig")).env("PKG_CONFIG_SYSROOT_DIR", &self.root);
        let flags = run(command).ok().text().to_owned();
        let program = source.with_extension("program");
        let program = self.root.join(program.file_name().expect("a file"));
        let mut command = Command::new(compiler);
        command.args([standard, "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]).arg(source);
        command.arg("-o").arg(&program).args(flags.split_whitespace());
        run(command).ok();
        program
    }

    /// Runs a program with the library and the cluster.
    fn run(&self, program: &Path, cluster: &Cluster, arguments: &[&OsStr]) -> Said {
        let under = std::env::var("BRAID_CAPI_UNDER").unwrap_or_default();
        let mut words: Vec<OsString> = under.split_whitespace().map(OsString::from).collect();
        words.push(program.into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(arguments);
        command.env("LD_LIBRARY_PATH", self.path("lib")).env("BRAID_CLUSTER", &cluster.directory);
        command.env("TEST_MANAGERS", &cluster.managers).env("TEST_TOKEN", &cluster.token);
        run(command)
    }
}

/// The archive that cargo built with this test: the newest one beside it. Another one is of other features.
fn archive() -> PathBuf {
    let this = std::env::current_exe().expect("this program");
    let beside = fs::read_dir(this.parent().expect("its folder")).expect("read");
    let archives = beside.map(|entry| entry.expect("an entry").path()).filter(|path| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.starts_with("libbraid_capi-") && name.ends_with(".a")
    });
    let changed = |path: &PathBuf| fs::metadata(path).and_then(|found| found.modified()).expect("its time");
    archives.max_by_key(changed).expect("cargo builds the archive with the library")
}

/// A running cluster, which ends with this value.
struct Cluster {
    directory: PathBuf,
    managers: String,
    token: String,
}

impl Cluster {
    fn up(directory: PathBuf) -> Cluster {
        braid(&["up", "--detach", "--disk-model", MODEL, "--dir"], &directory).ok();
        let file = fs::read_to_string(directory.join("cluster.toml")).expect("the cluster's file");
        let value = |key: &str| {
            let line = file.lines().find_map(|line| line.strip_prefix(&format!("{key} = \"")));
            line.and_then(|rest| rest.strip_suffix('"')).expect(key).to_owned()
        };
        let cluster = Cluster { managers: value("manager"), token: value("token"), directory };
        cluster.calibrated();
        cluster
    }

    /// Waits until the costs of all disks are known: without them no rate is promised. On a busy machine the
    /// short run at the start may not have been enough: then another is asked for.
    fn calibrated(&self) {
        let end = Instant::now() + CALIBRATED_MAX;
        loop {
            let rows = braid(&["drive", "ls", "--cost", "--json", "--cluster"], &self.directory).ok().json();
            let left: Vec<&str> = rows
                .as_array()
                .expect("a list")
                .iter()
                .filter(|row| row["cost"].is_null())
                .map(|row| row["drive"].as_str().expect("a name"))
                .collect();
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < end, "not calibrated: {left:?}");
            std::thread::sleep(Duration::from_millis(200));
            for drive in left {
                braid(&["drive", "calibrate", drive, "--cluster"], &self.directory);
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        braid(&["down", "--dir"], &self.directory);
    }
}

/// Runs `braid` with these words.
fn braid(words: &[&str], last: &Path) -> Said {
    let this = std::env::current_exe().expect("this program");
    let beside = || this.parent().and_then(Path::parent).expect("cargo's folder").join("braid");
    let program = std::env::var_os("BRAID_PROGRAM").map_or_else(beside, PathBuf::from);
    assert!(program.exists(), "there is no {}: cargo build --locked -p braid-cli", program.display());
    let mut command = Command::new(program);
    command.args(words).arg(last).env_remove("BRAID_CLUSTER");
    run(command)
}

fn every_function(library: &Library, cluster: &Cluster) {
    let program = library.compile("cc", "-std=gnu11", &here("tests/programs/test.c"));
    library.run(&program, cluster, &["braid://main/test".as_ref(), RATE.as_ref()]).ok();
}

fn copies(library: &Library, cluster: &Cluster) {
    let program = library.compile("c++", "-std=c++17", &here("samples/copy.cpp"));
    let local = library.root.join("local");
    fs::write(&local, (0..20_000_003_u32).map(|at| at.to_le_bytes()[at as usize % 3]).collect::<Vec<_>>())
        .expect("written");
    let name: &OsStr = "braid://main/copied".as_ref();
    let said = library.run(&program, cluster, &[local.as_os_str(), name]).ok();
    assert_eq!(said.text(), "copied and compared 20000003 bytes\n");
    let nowhere = library.run(&program, cluster, &[local.as_os_str(), "braid://main/none/copied".as_ref()]);
    assert_eq!((nowhere.code, nowhere.err.contains("none/copied")), (1, true), "{}", nowhere.err);
}
