//! `braid-lab bench methods`: methods at the drives against `braid cat` and a tool that does the same, over a
//! client's link of 1 Gbit/s: how long each takes, and how many bytes come over the link.
//!
//! Both are whole commands, as a user types them. A case is data: a further method is a further entry.

use std::process::Stdio;
use std::time::Instant;

use braid_bench::median;
use braid_bench::receipts::{HEADER, PRICE_ASKED, WORD, receipts};
use braid_bench::stripes::Goal;
use braid_cli::DriveOptions;
use braid_cli::output::exit::{Doing, Exit, Failure};
use braid_cli::output::report::Report;
use braid_client::{Name, OpenOptions};
use tokio::process::Command;

use super::cluster::{Cluster, UNIT_BYTES};
use super::figures::{self, Bench, Run};
use super::hosts::{Hosts, Links};
use super::run::{Which, alternate};
use crate::args::BenchCluster;

const BENCH: Bench = Bench { name: "methods", title: "Methods at the drives", needed: (2 << 30, 256 << 20) };
const GROUP: &str = "links of hosts";
/// Rate of the client's link.
const LINK_BITS: u64 = 1_000_000_000;
/// Drives, and the volume's shape.
const DRIVES: u16 = 5;
const SHAPE: (&str, u8) = ("raid5", 5);
const BYTES: (u64, u64) = (512 << 20, 4 << 20);
/// Bytes that are made and written at a time.
const PART_BYTES: usize = 4 << 20;
const SEED: u64 = 1;
/// Pairs that count, and those before them that do not.
const PAIRS: (u32, u32) = (5, 1);
const LOST_AFTER: &str = "600";
/// Time at the drives over that of the other way.
const TIME: Goal = Goal::AtMost(0.3);
/// Bytes over the link for a byte of the answer.
const MOVED: Goal = Goal::AtMost(1.2);

/// A question that is asked both ways.
struct Case {
    name: &'static str,
    /// Arguments of `braid run` after the file's name.
    arguments: Vec<String>,
    /// The tool, as the shell is told it, which reads the file from its standard input.
    tool: String,
    answer: Kind,
}

/// The kind of the answer, of which both ways must give the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A part of the file's lines.
    Lines,
    /// A number, with which the answer begins.
    Number,
}

/// One command as it was run.
#[derive(Debug, Clone)]
struct Ran {
    seconds: f64,
    /// Bytes that came over the client's link.
    moved: u64,
    /// Bytes that the command printed.
    answer: u64,
    /// Lines of the answer, or the number that it is.
    found: u64,
}

fn cases() -> Vec<Case> {
    let case = |name, arguments: &[String], tool: String, answer| Case {
        name,
        arguments: arguments.to_vec(),
        tool,
        answer,
    };
    vec![
        case("grep", &[format!("pattern={WORD}")], format!("grep {WORD}"), Kind::Lines),
        case("count", &["records=lines".into()], "wc -l".into(), Kind::Number),
        case(
            "csv",
            &[format!("where=price>={PRICE_ASKED}"), "columns=number,item,store,price,kind,note".into()],
            format!("awk -F, 'NR == 1 || $4 >= {PRICE_ASKED}'"),
            Kind::Lines,
        ),
    ]
}

/// Runs the command.
pub(crate) async fn run(asked: BenchCluster, report: Report) -> Result<(), Failure> {
    figures::run(BENCH, asked, report, async |run| rows(run).await).await
}

async fn rows(run: &mut Run) -> Result<(), Failure> {
    if let Some(why) = Hosts::lacking() {
        return run.ended(GROUP, Err(Failure::new(Exit::Usage, "make hosts", why)));
    }
    let cases: Vec<Case> = cases().into_iter().filter(|case| wants(run, case)).collect();
    if cases.is_empty() {
        return Ok(());
    }
    run.tell("start");
    let hosts = Hosts::up(usize::from(DRIVES))?;
    let options = DriveOptions::default();
    let mut cluster =
        Cluster::patient_on(&hosts, run.path(), "methods", DRIVES, options, 1, LOST_AFTER).await?;
    cluster.make_volume(SHAPE, UNIT_BYTES).await?;
    let file = write(&mut cluster, run.size(BYTES.0, BYTES.1)).await?;
    hosts.limit(Links::Clients, LINK_BITS)?;
    let asking = Asking { hosts: &hosts, cluster: &cluster, file };
    let mut ended = Ok(());
    for case in &cases {
        run.tell(case.name);
        ended = asking.measure(run, case).await;
        if ended.is_err() {
            break;
        }
    }
    drop(asking);
    cluster.down().await?;
    run.ended("methods", ended)
}

/// Names of a case's rows: the time, and the bytes.
fn names(case: &Case) -> [String; 2] {
    let Case { name, tool, answer, .. } = case;
    let program = tool.split(' ').next().unwrap_or_default();
    let of = match answer {
        Kind::Lines => "over those of the answer",
        Kind::Number => "over those that cat moves",
    };
    [
        // Without the tool's arguments: a bar would end a table's cell.
        format!("{name}: time at the drives over `braid cat` into {program}"),
        format!("{name}: bytes that come over the client's link, {of}"),
    ]
}

fn wants(run: &Run, case: &Case) -> bool {
    names(case).iter().any(|name| run.wants(name))
}

/// Makes the file of receipts.
async fn write(cluster: &mut Cluster, bytes: u64) -> Result<Name, Failure> {
    let name = cluster.create().await?;
    let file = cluster.client.open(&name, &OpenOptions::new().write(true)).await?;
    file.write_at(HEADER.as_bytes(), 0).await?;
    let mut at = HEADER.len() as u64;
    let mut number = 0;
    while at < bytes {
        let (part, next) = receipts(SEED, number, PART_BYTES);
        file.write_at(&part, at).await?;
        at += part.len() as u64;
        number = next;
    }
    file.close().await?;
    Ok(name)
}

struct Asking<'a> {
    hosts: &'a Hosts,
    cluster: &'a Cluster,
    file: Name,
}

impl Asking<'_> {
    async fn measure(&self, run: &mut Run, case: &Case) -> Result<(), Failure> {
        let (rounds, warm_ups) = run.size(PAIRS, (1, 0));
        let sample = async |which| match which {
            Which::First => self.at_drives(case).await,
            Which::Second => self.by_cat(case).await,
        };
        let pairs = alternate(&run.common, rounds, warm_ups, sample).await?;
        for (own, other) in &pairs {
            if own.found != other.found {
                let why = format!("{} at the drives, {} by {}", own.found, other.found, case.tool);
                return Err(Failure::new(Exit::Failed, format!("compare the answers of {}", case.name), why));
            }
        }
        let middle = |of: &dyn Fn(&(Ran, Ran)) -> f64| median(&pairs.iter().map(of).collect::<Vec<_>>());
        let [time, moved] = names(case);
        let took = [middle(&|pair| pair.0.seconds), middle(&|pair| pair.1.seconds)];
        let found = format!("{:.2} s; {:.2} s", took[0], took[1]);
        run.add(&time, found, middle(&|pair| pair.0.seconds / pair.1.seconds.max(1e-9)), TIME);
        let bytes = [
            middle(&|pair| share(pair.0.moved, 1)),
            middle(&|pair| share(pair.0.answer, 1)),
            middle(&|pair| share(pair.1.moved, 1)),
        ];
        let [own, answer, other] = bytes.map(show);
        let found = format!("{own} for an answer of {answer}; {other} by cat");
        match case.answer {
            Kind::Lines => {
                run.add(&moved, found, middle(&|pair| share(pair.0.moved, pair.0.answer)), MOVED);
            }
            Kind::Number => {
                run.add(&moved, found, middle(&|pair| share(pair.0.moved, pair.1.moved)), None);
            }
        }
        Ok(())
    }

    async fn at_drives(&self, case: &Case) -> Result<Ran, Failure> {
        let mut command = Command::new(self.program()?);
        command
            .args(["run", case.name, &self.file.to_string()])
            .args(&case.arguments)
            .args(["--at", "drive"]);
        self.ran(command, case).await
    }

    async fn by_cat(&self, case: &Case) -> Result<Ran, Failure> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("\"$0\" cat \"$1\" | {}", case.tool));
        command.arg(self.program()?).arg(self.file.to_string());
        self.ran(command, case).await
    }

    fn program(&self) -> Result<std::path::PathBuf, Failure> {
        std::env::current_exe().doing(|| "find this program".into())
    }

    /// Runs a command to its end, and counts what came over the link meanwhile.
    async fn ran(&self, mut command: Command, case: &Case) -> Result<Ran, Failure> {
        let doing = || format!("run {}", case.name);
        command.env("BRAID_CLUSTER", self.cluster.running.dir.root()).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let before = self.hosts.received()?;
        let began = Instant::now();
        let ended = command.output().await.doing(doing)?;
        let seconds = began.elapsed().as_secs_f64();
        let moved = self.hosts.received()?.saturating_sub(before);
        let said = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
        let found = case.answer.found(&ended.stdout);
        match found.filter(|_| ended.status.success()) {
            Some(found) => Ok(Ran { seconds, moved, answer: ended.stdout.len() as u64, found }),
            None => Err(Failure::new(Exit::Failed, doing(), said)),
        }
    }
}

impl Kind {
    fn found(self, answer: &[u8]) -> Option<u64> {
        match self {
            Kind::Lines => Some(answer.split(|&byte| byte == b'\n').count() as u64 - 1),
            Kind::Number => {
                let digits = answer.iter().skip_while(|byte| byte.is_ascii_whitespace());
                let digits: Vec<u8> =
                    digits.take_while(|byte| **byte != b' ' && **byte != b'\n').copied().collect();
                let text = String::from_utf8(digits).ok()?;
                text.replace(',', "").parse().ok()
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share for people")]
fn share(of: u64, all: u64) -> f64 {
    of as f64 / all.max(1) as f64
}

/// Bytes in MB, or less.
fn show(bytes: f64) -> String {
    if bytes < 1e5 { format!("{bytes:.0} B") } else { format!("{:.2} MB", bytes / 1e6) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_answers_are_compared_by_lines_or_by_their_number() {
        assert_eq!(Kind::Lines.found(b"7:a\n9:b\n"), Some(2));
        assert_eq!(Kind::Number.found(b"1234 records, 99 bytes\n"), Kind::Number.found(b" 1234\n"));
        assert_eq!(Kind::Number.found(b"no number\n"), None);
        let names: Vec<&str> = cases().iter().map(|case| case.name).collect();
        assert_eq!(names, ["grep", "count", "csv"]);
        assert!(
            cases().iter().flat_map(super::names).all(|name| !name.contains('|')),
            "they are cells of a table"
        );
        assert_eq!((show(99.0), show(5.37e6)), ("99 B".to_owned(), "5.37 MB".to_owned()));
    }
}
