//! `braid mount`.

use std::path::Path;

use braid_fuse::{Mount, MountOptions, Unmounted};

use crate::args;
use crate::connect;
use crate::exit::{Doing, Exit, Failure};
use crate::interrupt::{Interrupts, Of};
use crate::names::remote;
use crate::report::{Report, complain};

/// Runs the command: until a signal, or until somebody unmounts it.
pub(crate) async fn run(mount: args::Mount, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let name = remote(&mount.volume)?;
    let shown = mount.directory.display();
    if !name.is_root() {
        let why = "a volume is mounted as a whole: give braid://VOLUME";
        return Err(Failure::new(Exit::Usage, format!("mount {name}"), why));
    }
    let client = connect::cluster(cluster).await?;
    // Before it is mounted: from then on a signal unmounts it.
    let mut interrupts = Interrupts::new(Of::Command)?;
    client.stat(&name).await?;
    let options = MountOptions { allow_other: mount.allow_other, read_only: mount.read_only };
    let mounted = Mount::new(client, name.volume(), &mount.directory, options);
    let mounted = mounted.await.doing(|| format!("mount {name} on {shown}"))?;
    let how = if mount.read_only { ", to be read" } else { "" };
    report.say(format!("{name} is on {shown}{how}; Ctrl-C unmounts it"))?;
    let is_unmounted = tokio::select! {
        () = mounted.unmounted() => true,
        _ = interrupts.next() => false,
    };
    let ended = if is_unmounted {
        mounted.settled().await
    } else {
        mounted.end().await.doing(|| format!("unmount {shown}"))?
    };
    match ended {
        Unmounted::Cleanly => Ok(()),
        Unmounted::InUse => {
            complain(&format!("{shown} was in use: programs that had files of it open get errors"));
            Ok(())
        }
        Unmounted::Lossy(times) => {
            let why = format!("{times} times what was written could not be stored, and is lost: see its log");
            Err(Failure::new(Exit::Failed, format!("unmount {shown}"), why))
        }
    }
}
