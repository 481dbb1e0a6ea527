//! A process of a bench beside the cluster's: this program again. It takes orders and answers over pipes, a
//! line of JSON each, and ends when its standard input does.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use braid_cli::output::exit::{Doing, Exit, Failure};

/// Time limit for an answer: a job may have to be prepared first, or to run.
const ANSWER_BOUND: Duration = Duration::from_secs(300);

/// The helper process. Dropping it kills it.
pub(super) struct Helper {
    child: Child,
    /// Description of the process, for messages.
    what: &'static str,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Helper {
    /// Starts `braid-lab COMMAND`.
    pub(super) fn start(command: &str, what: &'static str) -> Result<Helper, Failure> {
        let doing = || format!("start {what}");
        Helper::of(Command::new(std::env::current_exe().doing(doing)?), command, what)
    }

    /// Starts `braid-lab COMMAND` on a host, by its network namespace's name.
    pub(super) fn start_on(host: &str, command: &str, what: &'static str) -> Result<Helper, Failure> {
        let doing = || format!("start {what}");
        // `ip netns exec` becomes the program: no process is in between.
        let mut process = Command::new("ip");
        process.args(["netns", "exec", host]).arg(std::env::current_exe().doing(doing)?);
        Helper::of(process, command, what)
    }

    fn of(mut process: Command, command: &str, what: &'static str) -> Result<Helper, Failure> {
        let doing = || format!("start {what}");
        // Not in this process group: Ctrl-C goes to this process, which kills it.
        process.arg(command).kill_on_drop(true).process_group(0);
        let mut child = process.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().doing(doing)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (orders, out) = pipes.ok_or_else(|| std::io::Error::other("it has no pipes")).doing(doing)?;
        Ok(Helper { child, what, orders, answers: BufReader::new(out).lines() })
    }

    /// Process id of the helper. Fails if the process has ended.
    pub(super) fn pid(&self) -> Result<u32, Failure> {
        let gone = || Failure::new(Exit::Failed, format!("look at {}", self.what), "it has ended");
        self.child.id().ok_or_else(gone)
    }

    pub(super) async fn tell<T: Serialize>(&mut self, order: &T) -> Result<(), Failure> {
        let doing = || format!("tell {} what to do", self.what);
        let line = serde_json::to_string(order).map_err(std::io::Error::from).doing(doing)?;
        self.orders.write_all(format!("{line}\n").as_bytes()).await.doing(doing)?;
        self.orders.flush().await.doing(doing)
    }

    pub(super) async fn answer<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let doing = || format!("wait for {} of the bench", self.what);
        let line = match timeout(ANSWER_BOUND, self.answers.next_line()).await {
            Err(_) => {
                let why = format!("no answer in {} s", ANSWER_BOUND.as_secs());
                return Err(Failure::new(Exit::Timeout, doing(), why));
            }
            Ok(line) => line.doing(doing)?,
        };
        let line =
            line.ok_or_else(|| Failure::new(Exit::Failed, doing(), "it has ended, and said why above"))?;
        serde_json::from_str(&line).map_err(std::io::Error::from).doing(doing)
    }
}

/// In the helper: reads the next line of standard input; `None` at its end.
pub(super) async fn order<T: DeserializeOwned>() -> Result<Option<T>, Failure> {
    let what = || "read what to do".to_owned();
    let read = || {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|_| line)
    };
    let line = tokio::task::spawn_blocking(read).await.map_err(std::io::Error::other).doing(what)?;
    let line = line.doing(what)?;
    if line.is_empty() {
        return Ok(None);
    }
    serde_json::from_str(&line).map(Some).map_err(std::io::Error::from).doing(what)
}

/// In the helper: writes an answer to standard output.
pub(super) fn say<T: Serialize>(what: &T) -> Result<(), Failure> {
    let doing = || "answer".to_owned();
    let line = serde_json::to_string(what).map_err(std::io::Error::from).doing(doing)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).doing(doing)
}
