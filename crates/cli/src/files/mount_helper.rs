//! This program called as `mount.braid`: mount(8) looks for a helper of that name, for `mount -t braid` and
//! lines of /etc/fstab. The helper's arguments become those of `braid mount --detach`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::ExitCode;

use crate::output::report::complain;

const NAME: &str = "mount.braid";
/// Exit code that tells mount(8) of wrong arguments.
const WRONG: u8 = 1;

/// Options that are for mount(8) itself, or ask for what Braid does anyway.
const IGNORED: &[&str] = &[
    "rw",
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "user",
    "users",
    "nouser",
    "owner",
    "group",
    "async",
    "exec",
    "nosuid",
    "nodev",
    "noatime",
    "relatime",
    "nodiratime",
    // Access times change only when they are set explicitly.
    "atime",
    "diratime",
    "strictatime",
    "nostrictatime",
    "norelatime",
    "lazytime",
    "nolazytime",
    // Changes of names are durable before they are answered.
    "dirsync",
    "nomand",
    "silent",
    "loud",
    // Options that the list of mounts shows, passed in a remount.
    "default_permissions",
];
/// Ignored options that have a value.
const IGNORED_WITH_VALUE: &[&str] = &["user", "user_id", "group_id", "comment"];

/// Reason why nothing is mounted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Only a trial was asked for.
    Trial,
    /// The arguments are wrong.
    Wrong(String),
}

impl Stop {
    /// Prints the reason, if it is an error, and returns the exit code.
    pub(crate) fn tell(self) -> ExitCode {
        match self {
            Stop::Trial => ExitCode::SUCCESS,
            Stop::Wrong(why) => {
                complain(&format!("mount: {why}; usage: {NAME} braid://VOLUME DIR [-sfnv] [-o OPTIONS]"));
                ExitCode::from(WRONG)
            }
        }
    }
}

/// Translates to arguments of `braid` that mean the same; `None` if the program was not called by the
/// helper's name.
pub(crate) fn arguments(typed: impl Iterator<Item = OsString>) -> Option<Result<Vec<OsString>, Stop>> {
    let mut typed = typed;
    let called = typed.next()?;
    (Path::new(&called).file_name() == Some(OsStr::new(NAME))).then(|| translate(typed))
}

fn translate(mut typed: impl Iterator<Item = OsString>) -> Result<Vec<OsString>, Stop> {
    let mut names = Vec::new();
    let mut options = Vec::new();
    let mut is_trial = false;
    let mut is_sloppy = false;
    while let Some(word) = typed.next() {
        let Some(flags) = word.as_bytes().strip_prefix(b"-").filter(|flags| !flags.is_empty()) else {
            names.push(word);
            continue;
        };
        for (at, flag) in flags.iter().enumerate() {
            match flag {
                b's' => is_sloppy = true,
                b'f' => is_trial = true,
                b'n' | b'v' => {}
                b'o' | b't' => {
                    let rest = &flags[at + 1..];
                    let value = match rest.is_empty() {
                        true => typed.next().ok_or_else(|| Stop::Wrong("an option has no value".into()))?,
                        false => OsStr::from_bytes(rest).to_owned(),
                    };
                    if *flag == b'o' {
                        options.extend(value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::to_vec));
                    }
                    break;
                }
                _ => return Err(Stop::Wrong(format!("there is no option -{}", char::from(*flag)))),
            }
        }
    }
    let mut more = Vec::new();
    let mut detach = "--detach";
    for option in options.iter().filter(|option| !option.is_empty()) {
        let (key, value) = match option.iter().position(|byte| *byte == b'=') {
            Some(at) => (&option[..at], Some(option[at + 1..].to_vec())),
            None => (&option[..], None),
        };
        match (std::str::from_utf8(key).unwrap_or_default(), value) {
            ("ro", None) => more.push("--read-only".into()),
            ("allow_other", None) => more.push("--allow-other".into()),
            ("noexec", None) => more.push("--no-exec".into()),
            ("sync", None) => more.push("--sync".into()),
            ("remount", None) => detach = "--remount",
            (key @ ("cluster" | "log"), Some(value)) => {
                more.extend([format!("--{key}").into(), OsString::from_vec(value)]);
            }
            ("volume_key", Some(value)) => {
                more.extend(["--volume-key".into(), OsString::from_vec(value)]);
            }
            (key, None) if IGNORED.contains(&key) => {}
            (key, Some(_)) if IGNORED_WITH_VALUE.contains(&key) => {}
            (key, _) if key.starts_with("x-") || key.starts_with("X-") || is_sloppy => {}
            _ => {
                let shown = String::from_utf8_lossy(option);
                return Err(Stop::Wrong(format!("there is no option {shown:?}")));
            }
        }
    }
    let [volume, directory] = names.as_slice() else {
        return Err(Stop::Wrong(format!("{} names were given", names.len())));
    };
    if is_trial {
        return Err(Stop::Trial);
    }
    // With `--json` nothing is printed: mount(8) prints nothing, and its callers may read its output.
    let mut arguments: Vec<OsString> = ["braid", "--json", "mount", detach].map(OsString::from).into();
    arguments.extend(more);
    arguments.extend(["--".into(), volume.clone(), directory.clone()]);
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(typed: &str, expected: Result<&str, &str>) {
        let words = ["/sbin/mount.braid"].into_iter().chain(typed.split(' ')).map(OsString::from);
        match (arguments(words).expect("it is the helper's name"), expected) {
            (Ok(arguments), Ok(expected)) => {
                let arguments: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
                assert_eq!(arguments.join(" "), expected);
            }
            (Err(Stop::Wrong(why)), Err(expected)) => assert!(why.contains(expected), "{why}"),
            (Err(Stop::Trial), Err("trial")) => {}
            (got, expected) => panic!("{got:?}, not {expected:?}"),
        }
    }

    #[test]
    fn what_mount_gives_becomes_arguments_of_the_command() {
        check("braid://main /mnt", Ok("braid --json mount --detach -- braid://main /mnt"));
        check(
            "braid://main /mnt -o rw,noauto,x-systemd.automount",
            Ok("braid --json mount --detach -- braid://main /mnt"),
        );
        check(
            "braid://main /mnt -n -o ro,allow_other,cluster=/srv/braid -v -olog=/var/log/b",
            Ok(
                "braid --json mount --detach --read-only --allow-other --cluster /srv/braid --log /var/log/b -- braid://main /mnt",
            ),
        );
        check(
            "braid://main /mnt -o volume_key=main=/etc/k",
            Ok("braid --json mount --detach --volume-key main=/etc/k -- braid://main /mnt"),
        );
        check(
            "-sn braid://main /mnt -o strange,sync",
            Ok("braid --json mount --detach --sync -- braid://main /mnt"),
        );
        check(
            "braid://main /mnt -o rw,noexec,nosuid,nodev,strictatime,lazytime,dirsync,user=me,X-mount.mkdir",
            Ok("braid --json mount --detach --no-exec -- braid://main /mnt"),
        );
        check(
            "braid://main /mnt -o ro,nosuid,nodev,relatime,user_id=0,group_id=0,default_permissions,remount",
            Ok("braid --json mount --remount --read-only -- braid://main /mnt"),
        );
        check("braid://main /mnt -t braid", Ok("braid --json mount --detach -- braid://main /mnt"));
        check("braid://main /mnt -o strange", Err("\"strange\""));
        check("braid://main /mnt -o cluster", Err("\"cluster\""));
        check("braid://main /mnt -o ro=1", Err("\"ro=1\""));
        check("braid://main -o ro", Err("1 names"));
        check("braid://main /mnt -o", Err("no value"));
        check("braid://main /mnt -x", Err("-x"));
        check("-fv braid://main /mnt", Err("trial"));
    }

    #[test]
    fn by_another_name_it_is_another_program() {
        assert_eq!(arguments(["/usr/bin/braid", "status"].map(OsString::from).into_iter()), None);
    }
}
