//! A key command: it asks a key server to wrap a volume's data key, and to unwrap it.
//!
//! `COMMAND wrap` gets the data key in base64 on standard input, and prints it wrapped, in base64, and after
//! a blank, if it likes, a name of the key for people. `COMMAND unwrap` gets what was wrapped in base64, and
//! prints the data key in base64. `BRAID_VOLUME` in its environment names the volume. An exit code other than
//! 0 is a failure, of which the first line on standard error tells. It runs in a process group of its own,
//! which is killed when its time is over.

use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;

use braid_wire::control::{KEY_ID_BYTES_MAX, WRAPPED_BYTES_MAX};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::sealed::base64;
use crate::sealed::keys::KeyError;

/// Longest time that a key command may take.
pub(crate) const WAIT: Duration = Duration::from_secs(30);
/// The most bytes that are read of what it prints.
const OUTPUT_BYTES_MAX: u64 = 16 << 10;
/// Longest text that is told of what it says.
const WORDS_MAX: usize = 200;

/// Has a data key wrapped. Returns it, and the name of the key that it is wrapped by.
pub(crate) async fn wrap(command: &str, volume: &str, key: &[u8; 32]) -> Result<(Vec<u8>, String), KeyError> {
    let answer = run(command, "wrap", volume, key, WAIT).await?;
    let mut words = answer.split_ascii_whitespace();
    let wrapped = words.next().and_then(base64::decode);
    let wrapped = wrapped.filter(|bytes| !bytes.is_empty() && bytes.len() <= WRAPPED_BYTES_MAX);
    let Some(wrapped) = wrapped else { return Err(not_base64(command, "wrap")) };
    let program = command.split_ascii_whitespace().next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    let id: String = words.next().unwrap_or(program).chars().take(KEY_ID_BYTES_MAX / 8).collect();
    Ok((wrapped, id))
}

/// Has a data key unwrapped.
pub(crate) async fn unwrap(command: &str, volume: &str, wrapped: &[u8]) -> Result<Vec<u8>, KeyError> {
    let answer = run(command, "unwrap", volume, wrapped, WAIT).await?;
    base64::decode(answer.trim()).ok_or_else(|| not_base64(command, "unwrap"))
}

fn not_base64(command: &str, verb: &str) -> KeyError {
    failed(command, verb, "it did not print a key in base64")
}

fn failed(command: &str, verb: &str, why: impl Into<String>) -> KeyError {
    KeyError::Command { command: format!("{command} {verb}"), why: why.into() }
}

async fn run(
    command: &str,
    verb: &str,
    volume: &str,
    input: &[u8],
    wait: Duration,
) -> Result<String, KeyError> {
    let io = |error: std::io::Error| failed(command, verb, error.to_string());
    let mut child = Command::new("/bin/sh")
        .args(["-c", &format!("{command} \"$@\""), "braid", verb])
        .env("BRAID_VOLUME", volume)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(io)?;
    let group = child.id();
    let Ok(ended) = timeout(wait, talk(&mut child, base64::encode(input))).await else {
        let group = group.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(group) = group
            && let Err(error) = kill_process_group(group, Signal::KILL)
        {
            tracing::debug!(%error, "a key command had ended already");
        }
        return Err(KeyError::Silent { command: format!("{command} {verb}") });
    };
    let Output { status, stdout, stderr } = ended.map_err(io)?;
    if !status.success() {
        return Err(failed(command, verb, words(status, &stderr)));
    }
    String::from_utf8(stdout).map_err(|_| not_base64(command, verb))
}

/// Gives the child its input, and waits for what it says and for its end.
async fn talk(child: &mut Child, input: String) -> std::io::Result<Output> {
    let stdin = child.stdin.take();
    let stdout = child.stdout.take();
    let stderr = child.stderr.take();
    let give = async {
        if let Some(mut stdin) = stdin {
            // A command that does not read its input says by its exit code whether that is well.
            let given = async {
                stdin.write_all(input.as_bytes()).await?;
                stdin.write_all(b"\n").await?;
                stdin.shutdown().await
            };
            drop(given.await);
        }
    };
    let all = async { tokio::join!(give, all_of(stdout), all_of(stderr)) };
    let (_, stdout, stderr) = all.await;
    let stdout = stdout?;
    let stderr = stderr?;
    Ok(Output { status: child.wait().await?, stdout, stderr })
}

async fn all_of(pipe: Option<impl AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

fn words(status: ExitStatus, stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line: String = text.lines().next().unwrap_or_default().chars().take(WORDS_MAX).collect();
    if line.is_empty() { status.to_string() } else { format!("{line} ({status})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_wrapped_is_unwrapped() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        // A key server of little use: it wraps by letters in front.
        let script = dir.path().join("kms");
        let text = "case $2 in wrap) echo \"AAAA$(cat) $1-$BRAID_VOLUME\";; unwrap) cut -c5-;; esac\n";
        std::fs::write(&script, text).expect("written");
        let command = format!("sh {} k1", script.display());
        let (wrapped, id) = wrap(&command, "v", &[5; 32]).await.expect("wrapped");
        assert_eq!(id, "k1-v");
        assert_ne!(wrapped, [5; 32]);
        assert_eq!(unwrap(&command, "v", &wrapped).await.expect("unwrapped"), [5; 32]);
    }

    #[tokio::test]
    async fn a_command_that_fails_says_why() {
        let check = async |command: &str, expected: &str| {
            let said = wrap(command, "v", &[5; 32]).await.expect_err(command).to_string();
            assert!(said.contains(expected) && said.contains(command), "{said}");
        };
        check("echo 'the server is away' >&2; false", "the server is away (exit status: 1)").await;
        check("exit 7;", "exit status: 7").await;
        check("no-such-program-here", "not found").await;
        check("echo '*no*key*'", "did not print a key").await;
        check("true", "did not print a key").await;
    }

    #[tokio::test]
    async fn a_command_that_hangs_is_ended() {
        let hangs = run("sleep 1000;", "wrap", "v", b"", Duration::from_millis(50)).await;
        assert!(matches!(hangs, Err(KeyError::Silent { .. })), "{hangs:?}");
    }
}
