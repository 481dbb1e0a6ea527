//! A key command: it asks a key server to wrap a volume's data key, and to unwrap it.
//!
//! `COMMAND wrap` gets the data key in base64 on standard input, and prints it wrapped, in base64 in one
//! line, and after a blank, if it likes, a name of the key for people. `COMMAND unwrap` gets what was wrapped
//! in base64, and prints the data key in base64. `BRAID_VOLUME` in its environment names the volume. An exit
//! code other than 0 is a failure, of which the first line on standard error tells. It runs in a process
//! group of its own, which is killed when its time is over, or when nobody waits for it any more. As that is
//! not the group of a terminal, it cannot ask anything there.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use braid_wire::control::{KEY_ID_BYTES_MAX, WRAPPED_BYTES_MAX};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, copy, sink};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::sealed::base64;
use crate::sealed::keys::{KEY_BYTES, KeyError};

/// Longest time that a key command may take.
const WAIT: Duration = Duration::from_secs(30);
/// The most bytes that are kept of what it prints.
const OUTPUT_BYTES_MAX: usize = 16 << 10;
/// Longest text that is told of what it says.
const WORDS_MAX: usize = 200;
/// The most bytes of a key's name, which [`crate::sealed::keys`] puts `command:` before.
const NAME_BYTES_MAX: usize = KEY_ID_BYTES_MAX - "command:".len();

/// The output of a command, and how it ended.
struct Said {
    status: ExitStatus,
    out: Zeroizing<Vec<u8>>,
    error: Zeroizing<Vec<u8>>,
}

/// The process group of a command. It is killed when this is dropped, unless the command has ended.
struct Group(Option<Pid>);

/// Has a data key wrapped. Returns it, and the name of the key that it is wrapped by.
pub(crate) async fn wrap(
    command: &str,
    volume: &str,
    key: &[u8; KEY_BYTES],
) -> Result<(Vec<u8>, String), KeyError> {
    let said = run(command, "wrap", volume, key, WAIT).await?;
    let wrong = |why| failed(command, "wrap", why);
    let words = words_of(&said, 2).map_err(wrong)?;
    let wrapped = base64::decode(words[0]).ok_or_else(|| wrong(NOT_BASE64))?;
    if wrapped.len() > WRAPPED_BYTES_MAX {
        let most = WRAPPED_BYTES_MAX;
        let why = format!("it wrapped the key to {} bytes, and {most} are the most", wrapped.len());
        return Err(failed(command, "wrap", why));
    }
    if tells(&wrapped, key) {
        return Err(wrong("what it printed has the data key in it as it is: it does not wrap"));
    }
    let name = words.get(1).map(|word| name_of(word)).filter(|name| !name.is_empty());
    Ok((wrapped, name.unwrap_or_else(|| name_of(program(command)))))
}

/// Has a data key unwrapped.
pub(crate) async fn unwrap(
    command: &str,
    volume: &str,
    wrapped: &[u8],
) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let said = run(command, "unwrap", volume, wrapped, WAIT).await?;
    let words = words_of(&said, 1).map_err(|why| failed(command, "unwrap", why))?;
    let key = base64::decode(words[0]).map(Zeroizing::new);
    key.ok_or_else(|| failed(command, "unwrap", NOT_BASE64))
}

const NOT_BASE64: &str = "it did not print a key in base64";

/// The words of the only line of what a command printed: from one to `most`.
fn words_of(said: &[u8], most: usize) -> Result<Vec<&str>, &'static str> {
    let text = std::str::from_utf8(said).map_err(|_| NOT_BASE64)?;
    let mut lines = text.lines().filter(|line| !line.trim_ascii().is_empty());
    let line = lines.next().ok_or(NOT_BASE64)?;
    if lines.next().is_some() {
        return Err("it printed several lines: base64 is to be in one line, as of `base64 -w0`");
    }
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    if words.len() > most {
        return Err("it printed more words than base64 and, for wrap, a name of the key without blanks");
    }
    Ok(words)
}

/// Returns true if a data key can be read from what it is said to be wrapped to.
fn tells(wrapped: &[u8], key: &[u8; KEY_BYTES]) -> bool {
    let text = Zeroizing::new(base64::encode(key));
    let digits = text.trim_end_matches('=').as_bytes();
    let has = |bytes: &[u8]| wrapped.windows(bytes.len()).any(|some| some == bytes);
    has(key) || has(digits)
}

/// The name of a command's program. Settings before it may be secrets.
fn program(command: &str) -> &str {
    let program = command.split_ascii_whitespace().find(|word| !word.contains('='));
    program.unwrap_or_default().rsplit('/').next().unwrap_or_default()
}

/// A key's name as it may be stored and shown.
fn name_of(word: &str) -> String {
    let mut name: String = word.chars().filter(|letter| !letter.is_control()).collect();
    name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
    name
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
) -> Result<Zeroizing<Vec<u8>>, KeyError> {
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
    // Dropped before the child, whose number is nobody else's until then.
    let mut group = Group(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw));
    let input = Zeroizing::new(base64::encode(input));
    let Ok(ended) = timeout(wait, talk(&mut child, &input)).await else {
        return Err(KeyError::Silent {
            what: format!("the key command `{command} {verb}`"),
            seconds: wait.as_secs(),
        });
    };
    let said = ended.map_err(io)?;
    group.0 = None;
    if !said.status.success() {
        return Err(failed(command, verb, first_line(said.status, &said.error)));
    }
    Ok(said.out)
}

/// Gives the child its input, and waits for what it says and for its end.
async fn talk(child: &mut Child, input: &str) -> std::io::Result<Said> {
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
    let all = async { tokio::join!(give, beginning_of(stdout), beginning_of(stderr)) };
    let (_, out, error) = all.await;
    let out = out?;
    let error = error?;
    Ok(Said { status: child.wait().await?, out, error })
}

/// Reads all that comes, so that nobody is held up, and keeps the beginning.
async fn beginning_of(pipe: Option<impl AsyncRead + Unpin>) -> std::io::Result<Zeroizing<Vec<u8>>> {
    // With room for all that is read, it is never moved, which would leave a copy.
    let mut bytes = Zeroizing::new(Vec::with_capacity(2 * OUTPUT_BYTES_MAX));
    if let Some(mut pipe) = pipe {
        let most = u64::try_from(OUTPUT_BYTES_MAX).expect("small");
        (&mut pipe).take(most).read_to_end(&mut bytes).await?;
        copy(&mut pipe, &mut sink()).await?;
    }
    Ok(bytes)
}

fn first_line(status: ExitStatus, stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line = text.lines().next().unwrap_or_default();
    let line: String = line.chars().filter(|letter| !letter.is_control()).take(WORDS_MAX).collect();
    if line.is_empty() { status.to_string() } else { format!("{line} ({status})") }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0
            && let Err(error) = kill_process_group(group, Signal::KILL)
        {
            tracing::debug!(%error, "a key command had ended already");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use braid_testing::wait_for;

    use super::*;
    use crate::sealed::keys::{DataKey, KeySource};

    /// A key server of little use: it exchanges digits of base64 for others.
    const EXCHANGE: &str = "case $2 in wrap) echo \"$(tr 'A-Za-z0-9+/' 'E-Za-z0-9+/A-D') $1-$BRAID_VOLUME\";; \
                            unwrap) tr 'E-Za-z0-9+/A-D' 'A-Za-z0-9+/';; esac\n";

    fn script(dir: &Path, text: &str) -> String {
        let script = dir.join("kms");
        std::fs::write(&script, text).expect("written");
        format!("sh {} k1", script.display())
    }

    #[tokio::test]
    async fn what_was_wrapped_is_unwrapped() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let command = script(dir.path(), EXCHANGE);
        let (wrapped, id) = wrap(&command, "v", &[5; 32]).await.expect("wrapped");
        assert_eq!(id, "k1-v");
        assert_ne!(wrapped, [5; 32]);
        assert_eq!(*unwrap(&command, "v", &wrapped).await.expect("unwrapped"), [5; 32]);
    }

    #[tokio::test]
    async fn a_key_that_does_not_come_back_is_not_taken() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let check = async |text: &str, expected: &str| {
            let source = KeySource::Command(script(dir.path(), text));
            let key = DataKey::draw().expect("drawn");
            let said = source.wrap("v", &key).await.expect_err(text).to_string();
            assert!(said.contains(expected), "{text}: {said}");
        };
        let away = EXCHANGE.replace("unwrap) tr", "unwrap) exit 4; tr");
        check(&away, "did not come back").await;
        check(&away, "exit status: 4").await;
        check(&EXCHANGE.replace("unwrap) tr", "unwrap) echo AAAA; true"), "did not come back").await;
        // As by base64 without -w0: the first line alone is base64 too.
        check("head -c 200 /dev/zero | base64", "base64 -w0").await;
        check("cat; echo", "does not wrap").await;
        check("base64 -w0", "does not wrap").await;
        check("echo AAAA $(cat) k1", "more words").await;
        check("head -c 2000 /dev/zero | base64 -w0", "2000 bytes").await;
    }

    #[test]
    fn names_of_keys_are_cut_between_letters_and_tell_no_settings() {
        assert_eq!(name_of("k\u{1b}[1m-ä"), "k[1m-ä");
        let long = name_of(&"ä€".repeat(100));
        assert!(long.len() <= 120 && long.len() > 116 && "ä€".repeat(100).starts_with(&long), "{long}");
        assert_eq!(name_of(&"k".repeat(500)).len(), 120);
        assert_eq!(program("SECRET=s3 /usr/bin/kms --key k"), "kms");
    }

    #[tokio::test]
    async fn a_command_that_fails_says_why() {
        let check = async |command: &str, expected: &str| {
            let said = wrap(command, "v", &[5; 32]).await.expect_err(command).to_string();
            assert!(said.contains(expected) && said.contains(command), "{said}");
        };
        check("echo 'the server is away' >&2; false", "the server is away (exit status: 1)").await;
        // It says more than anybody keeps, and is not ended by that.
        check("yes 'away' | head -c 1000000 >&2; exit 3;", "away (exit status: 3)").await;
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

    #[tokio::test]
    async fn what_a_command_has_started_ends_when_nobody_waits_any_more() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let told = dir.path().join("told");
        let text = format!("sleep 1000 & echo $! > {0}.new; mv {0}.new {0}; wait;", told.display());
        let asked = tokio::spawn(async move { wrap(&text, "v", &[5; 32]).await.map(drop) });
        let read = || std::fs::read_to_string(&told).ok().and_then(|text| text.trim().parse::<i32>().ok());
        wait_for(|| async { read().is_some() }).await;
        let stat = format!("/proc/{}/stat", read().expect("a number"));
        asked.abort();
        // One that nobody has waited for yet has ended as well.
        let has_ended = || std::fs::read_to_string(&stat).map_or(true, |text| text.contains(") Z "));
        wait_for(|| async { has_ended() }).await;
    }
}
