//! Shows that the torture finds faults: switches off one mechanism after another (`mutants.txt`), each in a
//! copy of the workspace, and looks for the first seed that finds it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use braid_torture::mutants::{Mutant, mutants};
use clap::Parser;

/// Switches off mechanisms, and looks for the seeds that find it.
#[derive(Debug, Parser)]
#[command(name = "braid-mutants")]
struct Args {
    /// Only these mutants; by default all.
    names: Vec<String>,
    /// The seeds to try: A..B.
    #[arg(long, default_value = "0..400")]
    seeds: String,
    /// Directory in which the copy of the workspace is made and built.
    #[arg(long)]
    dir: Option<PathBuf>,
}

fn main() -> ExitCode {
    match go(&Args::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Tries all mutants. Returns the number of those that were not found.
fn go(args: &Args) -> io::Result<usize> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let all = mutants(&root)?;
    if let Some(strange) = args.names.iter().find(|name| all.iter().all(|mutant| mutant.name != **name)) {
        return Err(io::Error::other(format!("there is no mutant {strange}")));
    }
    let dir = args.dir.clone().unwrap_or_else(|| std::env::temp_dir().join("braid-mutants"));
    let copy = dir.join("workspace");
    copy_tree(&root, &copy)?;
    let mut lives = 0;
    for mutant in all.iter().filter(|mutant| args.names.is_empty() || args.names.contains(&mutant.name)) {
        let began = Instant::now();
        let applied = mutant.applied(&copy)?;
        let mut before = Vec::new();
        for (path, text) in &applied {
            before.push((path, fs::read(copy.join(path))?));
            fs::write(copy.join(path), text)?;
        }
        let found = try_one(&copy, &dir.join("target"), mutant, &args.seeds);
        for (path, text) in before {
            fs::write(copy.join(path), text)?;
        }
        lives += usize::from(!matches!(found, Ok(Some(_))));
        tell(mutant, &found, began);
    }
    Ok(lives)
}

fn tell(mutant: &Mutant, found: &io::Result<Option<String>>, began: Instant) {
    let seconds = began.elapsed().as_secs();
    println!("{} ({})", mutant.name, mutant.breaks);
    match found {
        Ok(Some(line)) => println!("    {line} ({seconds} s)"),
        Ok(None) => println!("    NOT FOUND by these seeds ({seconds} s)"),
        Err(error) => println!("    {error}"),
    }
}

/// Builds the copy and runs seeds until one fails. Returns the line that reports it.
fn try_one(copy: &Path, target: &Path, mutant: &Mutant, seeds: &str) -> io::Result<Option<String>> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(copy).env("CARGO_TARGET_DIR", target);
    let built = cargo.args(["build", "--quiet", "-p", "braid-torture", "--bin", "braid-torture"]).output()?;
    if !built.status.success() {
        let why = String::from_utf8_lossy(&built.stderr).into_owned();
        return Err(io::Error::other(format!("the mutant does not build:\n{why}")));
    }
    let mut torture = Command::new(target.join("debug/braid-torture"));
    let mounts = mutant.mounts.as_ref().map(|mix| format!("--mounts={mix}"));
    let ran = torture.args(["--seeds", seeds]).args(mounts).output()?;
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    Ok(said.lines().find(|line| line.contains(" FAILED: ")).map(str::to_owned))
}

/// Copies all files that a build needs. Files that are unchanged keep their times.
fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let kind = entry.file_type()?;
        if name == "target" || name == ".git" || name == "fuzz" {
            continue;
        }
        let source = entry.path();
        let place = to.join(&name);
        if kind.is_dir() {
            copy_tree(&source, &place)?;
        } else if kind.is_file() {
            let text = fs::read(&source)?;
            if fs::read(&place).ok().as_ref() != Some(&text) {
                fs::write(&place, text)?;
            }
        }
    }
    Ok(())
}
