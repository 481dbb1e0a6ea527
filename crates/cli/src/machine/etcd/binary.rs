//! The program etcd: where it is, and whether it is new enough.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::output::exit::{Exit, Failure};

/// Oldest version whose members may join without a vote.
const OLDEST: Version = Version(3, 4);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32);

/// The program etcd: the one that was named, or the one in PATH.
pub(crate) fn find(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let program = named.map_or_else(|| PathBuf::from("etcd"), Path::to_owned);
    let what = || format!("run {} --version", program.display());
    let absent = |why: String| {
        Failure::new(Exit::NotFound, what(), why).remedy(
            "install it (apt install etcd-server; systemctl disable --now etcd, as braid runs its own), or name it with \
             --etcd PATH",
        )
    };
    let output = Command::new(&program).arg("--version").stdin(Stdio::null()).output();
    let output = output.map_err(|error| absent(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match version(&text) {
        Some(found) if found >= OLDEST => Ok(program),
        Some(found) => {
            Err(absent(format!("it is {}.{}, and 3.4 is the oldest that will do", found.0, found.1)))
        }
        None => Err(absent("it does not say its version".to_owned())),
    }
}

/// The program that makes a member's data of a snapshot: of etcd's own, the newer name first.
pub(crate) fn restorer() -> Result<&'static str, Failure> {
    let runs = |program: &&str| {
        let mut command = Command::new(program);
        command.arg("version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    ["etcdutl", "etcdctl"].into_iter().find(|program| runs(program)).ok_or_else(|| {
        Failure::new(Exit::NotFound, "restore a snapshot", "neither etcdutl nor etcdctl is in PATH")
            .remedy("install one: apt install etcd-client")
    })
}

/// The version in the output of `etcd --version`.
fn version(text: &str) -> Option<Version> {
    let rest = text.lines().find_map(|line| line.strip_prefix("etcd Version: "))?;
    let mut parts = rest.trim().split(['.', '-', '+']);
    Some(Version(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let of = |text: &str| version(&format!("etcd Version: {text}\nGit SHA: x\n"));
        assert_eq!(of("3.4.23"), Some(Version(3, 4)));
        assert!(of("3.10.0-rc.1") > of("3.4.23") && of("3.3.27") < Some(OLDEST));
        assert_eq!(version("nonsense"), None);
    }

    #[test]
    fn what_is_not_there_is_said_with_the_remedy() {
        let failure = find(Some(Path::new("/nonexistent/etcd"))).expect_err("none");
        assert!(
            failure.exit == Exit::NotFound && failure.to_string().contains("apt install etcd-server"),
            "{failure}"
        );
        let failure = find(Some(Path::new("/bin/true"))).expect_err("another program");
        assert!(failure.to_string().contains("does not say its version"), "{failure}");
    }
}
