//! `braid mount`.
//!
//! Detached, it starts itself again as a process in the background, which says on its standard output when
//! the volume is mounted. Until then that process writes its errors where this one would.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use braid_client::Name;
use braid_fuse::{Mount, MountOptions, Unmounted};

use crate::args;
use crate::connect;
use crate::exit::{Doing, Exit, Failure};
use crate::interrupt::{Interrupts, Of};
use crate::names::remote;
use crate::report::{Report, complain};

/// What the process in the background says when it is mounted.
const MOUNTED: &str = "mounted";

/// Runs the command: until a signal, or until somebody unmounts it.
pub(crate) async fn run(mount: args::Mount, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let name = remote(&mount.volume)?;
    let shown = mount.directory.display();
    if !name.is_root() {
        let why = "a volume is mounted as a whole: give braid://VOLUME";
        return Err(Failure::new(Exit::Usage, format!("mount {name}"), why));
    }
    if mount.detach {
        let code = detach(&mount, cluster).doing(|| format!("mount {name} on {shown}"))?;
        if code == 0 {
            return report.say(format!("{name} is on {shown}; umount {shown} unmounts it"));
        }
        // It has said why.
        std::process::exit(code);
    }
    if mount.detached {
        // A session of its own: the terminal's signals are not for it.
        rustix::process::setsid().map_err(io::Error::from).doing(|| "leave the terminal".into())?;
    }
    let client = connect::cluster(cluster).await?;
    // Before it is mounted: from then on a signal unmounts it.
    let mut interrupts = Interrupts::new(Of::Command)?;
    client.stat(&name).await?;
    let options = MountOptions { allow_other: mount.allow_other, read_only: mount.read_only };
    let mounted = Mount::new(client, name.volume(), &mount.directory, options);
    let mounted = mounted.await.doing(|| format!("mount {name} on {shown}"))?;
    tracing::info!(volume = %name, directory = %shown, "mounted");
    if mount.detached {
        leave().doing(|| "go to the background".into())?;
    } else {
        let how = if mount.read_only { ", to be read" } else { "" };
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
            let why = format!("{times} times what was written could not be stored, and it is lost");
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
    command.args(["mount", "--detached"]);
    for (is_set, flag) in [(mount.read_only, "--read-only"), (mount.allow_other, "--allow-other")] {
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

/// Tells who waits that it is mounted, and lets go of its output.
fn leave() -> io::Result<()> {
    let nowhere: File = OpenOptions::new().write(true).open("/dev/null")?;
    writeln!(io::stdout(), "{MOUNTED}")?;
    io::stdout().flush()?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    Ok(())
}
