//! Runs a seed in a process of its own. Some inputs of a run are counted per process (tokio mixes the
//! number of runtimes into the seed of its `select!`), so only a fresh process is the same each time. The
//! process also bounds the time of a run that never ends.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::run::{SeedOutcome, Settings};

/// Real time after which a run is given up; a run takes about half a second.
const REAL_BOUND: Duration = Duration::from_secs(120);
/// Argument with which the program prints a report, for [`run_apart`].
pub const REPORT: &str = "--report";

/// Runs a seed in a process of `program`, which is `braid-torture`.
pub fn run_apart(program: &Path, seed: u64, settings: Settings) -> io::Result<SeedOutcome> {
    let mut child = Command::new(program)
        .args(["--seed", &seed.to_string(), REPORT])
        .args(settings.arguments())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).map(|_| text)
    });
    let until = Instant::now() + REAL_BOUND;
    while !reading.is_finished() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    if !reading.is_finished() {
        child.kill()?;
    }
    child.wait()?;
    let text = reading.join().map_err(|_| io::ErrorKind::Other)??;
    Ok(parse(seed, &text))
}

/// The outcome as text that [`run_apart`] reads back.
pub fn report(outcome: &SeedOutcome) -> String {
    let one_line = |text: &str| text.replace('\n', "\u{1f}");
    let mut text = format!(
        "hash {:016x}\npassed {}\noperations {}\n",
        outcome.hash, outcome.passed_ms, outcome.operations
    );
    for (kind, count) in &outcome.faults {
        text += &format!("fault {count} {kind}\n");
    }
    if let Some(why) = &outcome.failure {
        text += &format!("failure {}\n", one_line(why));
        for line in &outcome.last {
            text += &format!("last {}\n", one_line(line));
        }
    }
    text + "end\n"
}

fn parse(seed: u64, text: &str) -> SeedOutcome {
    let mut outcome = SeedOutcome { seed, ..SeedOutcome::default() };
    let mut is_whole = false;
    for line in text.lines() {
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        let many_lines = || value.replace('\u{1f}', "\n");
        match key {
            "hash" => outcome.hash = u64::from_str_radix(value, 16).unwrap_or(0),
            "passed" => outcome.passed_ms = value.parse().unwrap_or(0),
            "operations" => outcome.operations = value.parse().unwrap_or(0),
            "fault" => {
                let (count, kind) = value.split_once(' ').unwrap_or(("0", value));
                outcome.faults.insert(kind.to_owned(), count.parse().unwrap_or(0));
            }
            "failure" => outcome.failure = Some(many_lines()),
            "last" => outcome.last.push(many_lines()),
            "end" => is_whole = true,
            _ => {}
        }
    }
    if !is_whole && outcome.failure.is_none() {
        let seconds = REAL_BOUND.as_secs();
        outcome.failure = Some(format!("its process ended early, or took more than {seconds} s"));
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_all_and_one_that_is_cut_short_says_so() {
        let outcome = SeedOutcome {
            seed: 7,
            hash: 0xab,
            passed_ms: 5,
            operations: 3,
            faults: [("pauses".to_owned(), 2)].into(),
            failure: Some("one\ntwo".to_owned()),
            last: vec!["a".to_owned(), "b\nc".to_owned()],
        };
        let text = report(&outcome);
        assert_eq!(parse(7, &text), outcome);
        let well = SeedOutcome { failure: None, last: Vec::new(), ..outcome };
        let text = report(&well);
        assert_eq!(parse(7, &text), well);
        assert!(parse(7, text.trim_end_matches("end\n")).failure.is_some());
    }
}
