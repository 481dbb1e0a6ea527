//! Operations on names.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use braid_client::{Name, NewAttributes, OpenOptions, Parents};
use braid_wire::control::UnlinkOnly;

use crate::calls::answer;
use crate::client::Client;
use crate::errors::Failure;
use crate::memory::{Text, put};
use crate::stat::Stat;

/// Permission bits of a new directory whose creator names none.
const DIRECTORY_MODE: u32 = 0o755;

/// A full name, with its volume.
pub(crate) fn parse(name: &Text) -> Result<Name, Failure> {
    let bytes = name.bytes().ok_or_else(|| Failure::null("the name"))?;
    Name::parse(bytes).map_err(|error| Failure::no_name(bytes, error))
}

/// The owner and these permissions, for a new file or directory of this process.
pub(crate) fn new_attributes(mode: u32) -> NewAttributes {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    NewAttributes { mode, uid, gid }
}

/// Facts about the object of this name. Symbolic links are followed.
#[unsafe(no_mangle)]
pub extern "C" fn braid_stat(
    client: Option<&Client>,
    name: Text,
    stat: Option<&mut MaybeUninit<Stat>>,
) -> c_int {
    answer(-1, || {
        let shared = Client::of(client)?;
        let row = shared.wait(shared.client().stat(&parse(&name)?))?;
        put(stat, "the place for facts", Stat::of(row.file.0, &row.attributes))?;
        Ok(0)
    })
}

/// Makes a directory with these permission bits; 0: 0755.
#[unsafe(no_mangle)]
pub extern "C" fn braid_mkdir(client: Option<&Client>, name: Text, mode: u32) -> c_int {
    answer(-1, || {
        let shared = Client::of(client)?;
        let new =
            new_attributes(if mode == 0 { DIRECTORY_MODE } else { mode & braid_wire::control::MODE_MAX });
        shared.wait(shared.client().mkdir_with(&parse(&name)?, Parents::MustExist, new))?;
        Ok(0)
    })
}

/// Removes an empty directory.
#[unsafe(no_mangle)]
pub extern "C" fn braid_rmdir(client: Option<&Client>, name: Text) -> c_int {
    remove(client, &name, UnlinkOnly::Directory)
}

/// Removes a name that is not a directory's. Who has the file open reads it on.
#[unsafe(no_mangle)]
pub extern "C" fn braid_unlink(client: Option<&Client>, name: Text) -> c_int {
    remove(client, &name, UnlinkOnly::NotDirectory)
}

fn remove(client: Option<&Client>, name: &Text, only: UnlinkOnly) -> c_int {
    answer(-1, || {
        let shared = Client::of(client)?;
        shared.wait(shared.client().unlink_only(&parse(name)?, only))?;
        Ok(0)
    })
}

/// Renames a file or directory within its volume, in one step. A file takes the place of a file, a directory
/// that of an empty directory.
#[unsafe(no_mangle)]
pub extern "C" fn braid_rename(client: Option<&Client>, from: Text, to: Text) -> c_int {
    answer(-1, || {
        let shared = Client::of(client)?;
        shared.wait(shared.client().rename(&parse(&from)?, &parse(&to)?))?;
        Ok(0)
    })
}

/// Sets the size of a file. What is cut off is gone; what is added reads as zeros.
#[unsafe(no_mangle)]
pub extern "C" fn braid_truncate(client: Option<&Client>, name: Text, size: u64) -> c_int {
    answer(-1, || {
        let shared = Client::of(client)?;
        let name = parse(&name)?;
        shared.wait(async {
            let file = shared.client().open(&name, &OpenOptions::new().write(true)).await?;
            let cut = file.set_len(size).await;
            let closed = file.close().await;
            cut.and(closed)
        })?;
        Ok(0)
    })
}
