//! `braid mount`.
//!
//! With `--detach`, the command starts itself again as a process in the background, which reports on its
//! standard output when the volume is mounted. Until then that process writes its errors where this one
//! would.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use braid_client::Name;
use braid_fuse::{Mount, MountOptions, Unmounted};
use braid_wire::control::EntryKind;
use rustix::mount::MountFlags;

use crate::files::names::remote;
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::interrupt::{Interrupts, Of};
use crate::output::report::{Report, complain};
use crate::{args, connect};

/// Message of the process in the background once the volume is mounted.
const MOUNTED: &str = "mounted";

/// Runs the command until a signal, or until the volume is unmounted by other means.
pub(crate) async fn run(mount: args::Mount, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let name = remote(&mount.volume)?;
    let shown = mount.directory.display();
    if name.snapshot().is_some() {
        let why =
            "a snapshot is not mounted: mount the volume, and read the snapshot with braid cat, cp and ls";
        return Err(Failure::new(Exit::Usage, format!("mount {name}"), why));
    }
    if mount.remount {
        return remount(&mount, &name).doing(|| format!("change how {name} is mounted on {shown}"));
    }
    if mount.detach {
        let code = detach(&mount, cluster).doing(|| format!("mount {name} on {shown}"))?;
        if code == 0 {
            return report.say(format!("{name} is on {shown}; umount {shown} unmounts it"));
        }
        // The process in the background has printed the reason.
        std::process::exit(code);
    }
    if mount.detached {
        // A session of its own, so that the terminal's signals do not reach it.
        rustix::process::setsid().map_err(io::Error::from).doing(|| "leave the terminal".into())?;
    }
    let client = connect::cluster(cluster).await?;
    // Before the volume is mounted: from then on a signal unmounts it.
    let mut interrupts = Interrupts::new(Of::Command)?;
    if client.stat(&name).await?.kind() != EntryKind::Directory {
        let why = "a volume is mounted, or a directory: this is a file";
        return Err(Failure::new(Exit::Usage, format!("mount {name}"), why));
    }
    let &args::Mount { allow_other, read_only, no_exec, sync, .. } = &mount;
    let options = MountOptions { allow_other, read_only, no_exec, sync };
    let mounted = Mount::of(client, &name, &mount.directory, options);
    let mounted = mounted.await.doing(|| format!("mount {name} on {shown}"))?;
    tracing::info!(volume = %name, directory = %shown, "mounted");
    if mount.detached {
        leave().doing(|| "go to the background".into())?;
    } else {
        let how = if mount.read_only { " for reading only" } else { "" };
        report.say(format!("{name} is on {shown}{how}; Ctrl-C unmounts it"))?;
    }
    let is_unmounted = tokio::select! {
        () = mounted.unmounted() => true,
        _ = interrupts.next() => false,
    };
    let ended = if is_unmounted {
        mounted.settled().await
    } else {
        mounted.end().await.doing(|| format!("unmount {shown}"))?
    };
    tracing::info!(?ended, "unmounted");
    told(ended, &name, &mount.directory)
}

fn told(ended: Unmounted, name: &Name, directory: &Path) -> Result<(), Failure> {
    let shown = directory.display();
    match ended {
        Unmounted::Cleanly => Ok(()),
        Unmounted::InUse => {
            complain(&format!("{shown} was in use: programs that had files of it open get errors"));
            Ok(())
        }
        Unmounted::Lossy(times) => {
            let why = format!("written bytes could not be stored {times} times, and are lost");
            Err(Failure::new(Exit::Failed, format!("unmount {name} from {shown}"), why)
                .remedy("a log (--log FILE) names the files and the reasons"))
        }
    }
}

/// Starts the process in the background, and waits until it has mounted the volume or ended. Returns its exit
/// code.
fn detach(mount: &args::Mount, cluster: Option<&Path>) -> io::Result<i32> {
    let mut command = Command::new(std::env::current_exe()?);
    if let Some(cluster) = cluster {
        command.arg("--cluster").arg(std::path::absolute(cluster)?);
    }
    for key in connect::told_keys() {
        command.arg("--volume-key").arg(key);
    }
    if let Some(transport) = connect::told_transport() {
        command.arg("--transport").arg(transport.to_string());
    }
    // What a file says is in these arguments already.
    command.args(["mount", "--detached", "--no-config"]);
    for (is_set, flag) in [
        (mount.read_only, "--read-only"),
        (mount.allow_other, "--allow-other"),
        (mount.no_exec, "--no-exec"),
        (mount.sync, "--sync"),
        (mount.log_format == args::LogFormat::Json, "--log-format=json"),
    ] {
        command.args(is_set.then_some(flag));
    }
    if let Some(log) = &mount.log {
        command.arg("--log").arg(std::path::absolute(log)?);
    }
    command.args([OsString::from("--"), mount.volume.clone()]).arg(std::path::absolute(&mount.directory)?);
    let mut child = command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    if line.trim_end() == MOUNTED {
        return Ok(0);
    }
    let status = child.wait()?;
    Ok(status.code().filter(|code| *code != 0).unwrap_or(i32::from(Exit::Failed as u8)))
}

/// Changes the mount flags that the kernel itself enforces. The process that serves the mount need not know.
fn remount(mount: &args::Mount, name: &Name) -> io::Result<()> {
    let at = std::fs::canonicalize(&mount.directory)?;
    if !is_mounted(&std::fs::read("/proc/self/mounts")?, name, &at) {
        return Err(io::Error::new(io::ErrorKind::NotFound, "it is not mounted there"));
    }
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    flags.set(MountFlags::RDONLY, mount.read_only);
    flags.set(MountFlags::NOEXEC, mount.no_exec);
    Ok(rustix::mount::mount_remount(&at, flags, c"")?)
}

/// Returns true if the volume is the last mount at this place in the list of mounts. In that list, blanks and
/// the like are written as a backslash and three octal digits.
fn is_mounted(mounts: &[u8], name: &Name, at: &Path) -> bool {
    let escaped = |bytes: &[u8]| -> Vec<u8> {
        let escape = |byte: &u8| match byte {
            b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
            other => vec![*other],
        };
        bytes.iter().flat_map(escape).collect()
    };
    let at = escaped(at.as_os_str().as_bytes());
    let of_line = |line: &&[u8]| line.split(|byte| *byte == b' ').nth(1) == Some(&at[..]);
    let Some(last) = mounts.split(|byte| *byte == b'\n').rfind(of_line) else { return false };
    let mut words = last.split(|byte| *byte == b' ');
    let source = words.next().unwrap_or_default();
    let volume = name.to_string();
    // fusermount3 gives the file system type a name of its own; a mount by the kernel directly does not.
    let is_kind = matches!(words.nth(1), Some(b"fuse" | b"fuse.braid"));
    is_kind && source == escaped(volume.trim_end_matches('/').as_bytes())
}

/// Tells the waiting process that the volume is mounted, and lets go of its output.
fn leave() -> io::Result<()> {
    let nowhere: File = OpenOptions::new().write(true).open("/dev/null")?;
    writeln!(io::stdout(), "{MOUNTED}")?;
    io::stdout().flush()?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_at_a_place_is_the_last_of_the_list() {
        let mounts = b"proc /proc proc rw 0 0\n\
            braid://main /mnt/a\\040b fuse.braid rw,nosuid,nodev 0 0\n\
            braid://main /mnt fuse rw 0 0\n\
            braid://other /mnt fuse.braid rw 0 0\n\
            braid://main /srv ext4 rw 0 0\n";
        let is_at = |volume: &str, at: &str| {
            is_mounted(mounts, &Name::root(volume).expect("a volume's name"), Path::new(at))
        };
        assert!(is_at("main", "/mnt/a b") && is_at("other", "/mnt"));
        assert!(!is_at("main", "/mnt") && !is_at("main", "/srv") && !is_at("main", "/mn"));
    }
}
