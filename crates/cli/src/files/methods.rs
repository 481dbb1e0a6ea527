//! `braid run` and `braid sum`: questions about a file's records, answered by the drives that hold them.

use std::io::{IsTerminal, stdout};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use braid_client::{
    Answer, Argument, Arguments, Client, ItemSet, METHODS, METHODS_OF_RUNS, MethodOfRuns, Name, PlannedRun,
    Ran, RunAsk, RunAt, RunPlan, WASM, arrow_to_csv,
};
use serde::Serialize;

use crate::files::modules;
use crate::files::names::{remote, show_remote};
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::rate::{Bar, Progress};
use crate::output::report::{Report, count, print_bytes, table};
use crate::output::size;
use crate::{args, connect};

/// Interval between two looks at how far a run is.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A method in `--json`.
#[derive(Debug, Serialize)]
struct MethodFacts {
    name: &'static str,
    about: &'static str,
    arguments: &'static str,
}

/// The plan of a run in `--json`.
#[derive(Debug, Serialize)]
struct ExplainFacts {
    /// Where it would run: `drives` or `client`.
    runs_at: &'static str,
    /// The reason for which no drive runs it, if there is one.
    hindrance: Option<&'static str>,
    drives: WayFacts,
    client: WayFacts,
    text: String,
}

#[derive(Debug, Serialize)]
struct WayFacts {
    moved_bytes: u64,
    time_us: u64,
}

/// A file's checksum in `--json`.
#[derive(Debug, Serialize)]
struct SumFacts {
    name: String,
    algorithm: &'static str,
    digest: String,
}

impl From<args::At> for RunAt {
    fn from(at: args::At) -> RunAt {
        match at {
            args::At::Cheapest => RunAt::Cheapest,
            args::At::Drive => RunAt::Drives,
            args::At::Client => RunAt::Client,
        }
    }
}

/// Runs `braid run`.
pub(crate) async fn run(asked: args::Run, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let at = RunAt::from(asked.at);
    let Some(method) = asked.method else { return list(report) };
    let Some(name) = asked.name else { return list(report) };
    let name = remote(&name)?;
    let arguments = arguments_of(&asked.arguments)?;
    let client = connect::cluster(cluster).await?;
    let progress = Arc::default();
    let ask =
        if method == WASM { modules::asked(arguments)? } else { RunAsk::new(&method, arguments) }.at(at);
    let ask = RunAsk { record_max: asked.record_max, progress: Arc::clone(&progress), ..ask };
    if asked.explain {
        return explain(&client.plan_run(&name, &ask).await?, report);
    }
    let work = client.run(&name, &ask);
    let ran = shown(&client, &name, report, &progress, work).await?;
    let changed = ran.changed;
    if let Some(path) = &asked.out {
        let Answer::Arrow(stream) = &ran.answer else {
            let why = "--out is for answers in Arrow: of parquet, and of csv with format=arrow";
            return Err(Failure::usage(format!("run {method}"), why));
        };
        std::fs::write(path, stream).doing(|| format!("write {}", path.display()))?;
        report.facts(&ran.document(&method), |document| match document.row_count() {
            Some(rows) => format!("{}\n", count(rows, "row")),
            None => String::new(),
        })?;
    } else if report.json {
        report.facts(&ran.document(&method), |_| String::new())?;
    } else {
        print_bytes(&text_of(&ran))?;
    }
    match ran.answer {
        _ if changed => Err(is_changed("run", &name)),
        Answer::Difference { first: Some(byte) } => {
            Err(Failure::new(Exit::Mismatch, "compare", format!("they differ from byte {byte} on")))
        }
        _ => Ok(()),
    }
}

/// Runs `braid sum`.
pub(crate) async fn sum(asked: args::Sum, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let names = asked.names.iter().map(|name| remote(name)).collect::<Result<Vec<Name>, _>>()?;
    let client = connect::cluster(cluster).await?;
    let algorithm = if asked.sha256 { "sha256" } else { "blake3" };
    for name in names {
        let arguments = Arguments::default().with("algorithm", algorithm);
        let ask = RunAsk::new("checksum", arguments).at(asked.at.into());
        let progress = Arc::clone(&ask.progress);
        let ran = shown(&client, &name, report, &progress, client.run(&name, &ask)).await?;
        // The hash of a file in several states is that of none.
        if ran.changed {
            return Err(is_changed("sum", &name));
        }
        let Answer::Digest { digest, .. } = ran.answer else {
            return Err(Failure::new(Exit::Failed, "sum", "the answer is no checksum"));
        };
        let facts = SumFacts { name: show_remote(&name), algorithm, digest: hex(&digest) };
        report.line(&facts, |facts| format!("{}  {}", facts.digest, facts.name))?;
    }
    Ok(())
}

fn is_changed(what: &str, name: &Name) -> Failure {
    let what = format!("{what} {}", show_remote(name));
    Failure::new(
        Exit::Busy,
        what,
        "the file was written meanwhile: the answer may be of several states of it",
    )
    .remedy("run it again, or on a snapshot (braid snapshot make)")
}

/// Does the work with a progress bar beside it.
async fn shown<T>(
    client: &Client,
    name: &Name,
    report: Report,
    done: &Arc<AtomicU64>,
    work: impl Future<Output = braid_client::Result<T>>,
) -> Result<T, Failure> {
    let bytes = client.stat(name).await?.size();
    let progress = Progress::begin(Some(bytes), Bar::beside(report));
    progress.name(show_remote(name));
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            result = &mut work => {
                progress.end();
                return Ok(result?);
            }
            () = tokio::time::sleep(LOOK_EVERY) => progress.reached(done.load(Ordering::Relaxed)),
        }
    }
}

fn arguments_of(texts: &[String]) -> Result<Arguments, Failure> {
    let one = |text: &String| match text.split_once('=') {
        Some((name, value)) => Ok(Argument { name: name.to_owned(), value: value.to_owned() }),
        None => Err(Failure::usage("run a method", format!("{text:?} is no argument: give NAME=VALUE"))),
    };
    Ok(Arguments(texts.iter().map(one).collect::<Result<_, _>>()?))
}

/// Lists what there is.
fn list(report: Report) -> Result<(), Failure> {
    let of = |method: &braid_client::Method| MethodFacts {
        name: method.name,
        about: method.about,
        arguments: method.arguments,
    };
    let of_runs = |method: &MethodOfRuns| MethodFacts {
        name: method.name,
        about: method.about,
        arguments: method.arguments,
    };
    let all: Vec<MethodFacts> = METHODS.iter().map(of).chain(METHODS_OF_RUNS.iter().map(of_runs)).collect();
    report.facts(&all, |all| {
        let row = |of: &MethodFacts| vec![of.name.to_owned(), of.about.to_owned(), of.arguments.to_owned()];
        table(&["method", "answers", "arguments"], &[], all.iter().map(row))
    })
}

fn explain(plan: &RunPlan, report: Report) -> Result<(), Failure> {
    let sum = |of: fn(&PlannedRun) -> u64| plan.sets.iter().map(of).sum::<u64>();
    let way = |moved_bytes, time_ns: u64| WayFacts { moved_bytes, time_us: time_ns / 1000 };
    let drives = way(sum(|of| of.ways.drives.moved_bytes), sum(|of| of.ways.drives.time_ns));
    let client = way(sum(|of| of.ways.client.moved_bytes), sum(|of| of.ways.client.time_ns));
    let runs_at = if plan.is_at_drives { "drives" } else { "client" };
    let sets: Vec<String> = plan.sets.iter().map(|of| of.set.to_string()).collect();
    let hindrance = plan.hindrance;
    let facts = ExplainFacts { runs_at, hindrance, drives, client, text: sets.join("\n") };
    report.facts(&facts, |facts| {
        let show =
            |way: &WayFacts| format!("{} moved, about {} us", size::show(way.moved_bytes), way.time_us);
        let why = facts.hindrance.map(|why| format!(": {why}")).unwrap_or_default();
        format!(
            "{}\nat the drives: {}\nat the client: {}\nit runs at the {}{why}\n",
            facts.text,
            show(&facts.drives),
            show(&facts.client),
            facts.runs_at
        )
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn show_sets(sets: &[ItemSet]) -> String {
    let row = |set: &ItemSet| {
        let items: Vec<String> = set.items.iter().map(u32::to_string).collect();
        vec![set.count.to_string(), items.join(" ")]
    };
    table(&["lines", "items"], &[0], sets.iter().map(row))
}

/// The answer as text. Records are shown as they are, each behind its offset.
fn text_of(ran: &Ran) -> Vec<u8> {
    match &ran.answer {
        Answer::Count { records, bytes } => format!("{}, {bytes} bytes\n", count(*records, "record")).into(),
        Answer::Records(found) => {
            let mut text = Vec::new();
            for record in found {
                text.extend_from_slice(format!("{}:", record.offset).as_bytes());
                text.extend_from_slice(&record.bytes);
                text.push(b'\n');
            }
            text
        }
        Answer::Histogram { bins, below, above, without } => {
            let row =
                |bin: &braid_client::Bin| vec![format!("{}..{}", bin.from, bin.to), bin.count.to_string()];
            let of = |name: &str, number: u64| vec![name.to_owned(), number.to_string()];
            let rest = [of("below", *below), of("above", *above), of("no value", *without)];
            table(&["values", "records"], &[1], bins.iter().map(row).chain(rest)).into()
        }
        Answer::Digest { digest, .. } => format!("{}\n", hex(digest)).into(),
        Answer::Blocks { block_bytes, digests } => {
            let row = |(number, digest): (usize, &[u8; 32])| vec![number.to_string(), hex(digest)];
            let text = table(&["block", "hash"], &[0], digests.iter().enumerate().map(row));
            format!("blocks of {block_bytes} bytes\n{text}").into()
        }
        Answer::Sets { sets, lines, bad_lines } => {
            let text = show_sets(sets);
            format!("{}, of which {bad_lines} with what is no item\n{text}", count(*lines, "line")).into()
        }
        Answer::Difference { first: None } => b"the files are the same\n".to_vec(),
        Answer::Difference { first: Some(byte) } => {
            format!("the files differ from byte {byte} on\n").into_bytes()
        }
        Answer::Rows(bytes) | Answer::Bytes(bytes) => bytes.clone(),
        Answer::Arrow(stream) if stdout().is_terminal() => {
            let why =
                |error: String| format!("the rows cannot be shown: {error}: write them to a file (--out)\n");
            arrow_to_csv(stream).unwrap_or_else(|error| why(error.to_string()).into())
        }
        Answer::Arrow(stream) => stream.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_names_and_values() {
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let arguments = arguments_of(&texts(&["pattern=a=b", "invert=yes"])).expect("good");
        assert_eq!((arguments.get("pattern"), arguments.get("invert")), (Some("a=b"), Some("yes")));
        assert!(arguments_of(&texts(&["pattern"])).is_err());
    }

    #[test]
    fn records_are_shown_as_they_are() {
        let records = Answer::Records(vec![braid_client::Found { offset: 7, bytes: b"a\xffb".to_vec() }]);
        let ran = Ran {
            answer: records,
            bytes: 9,
            bytes_at_drives: 9,
            answer_bytes: 3,
            read_bytes: 0,
            asked_bytes: 0,
            changed: false,
        };
        assert_eq!(text_of(&ran), b"7:a\xffb\n");
        let json = serde_json::to_string(&ran.document("grep")).expect("JSON");
        assert!(json.contains("\"records\":[{\"offset\":7,\"text\":\"a\u{fffd}b\"}]"), "{json}");
    }
}
