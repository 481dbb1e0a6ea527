//! Listings of directories.

use std::ffi::{CString, c_char, c_int};
use std::mem::MaybeUninit;
use std::sync::Arc;

use braid_client::Lister;

use crate::calls::answer;
use crate::client::{Client, Shared};
use crate::errors::Failure;
use crate::memory::{Text, put};
use crate::names::parse;
use crate::process::OfProcess;
use crate::stat::Stat;

/// A directory that is listed, by one thread at a time.
#[derive(Debug)]
pub struct Directory {
    listing: OfProcess<Listing>,
}

#[derive(Debug)]
struct Listing {
    shared: Arc<Shared>,
    lister: Lister,
    /// The name of the last entry, which C has a pointer to.
    name: CString,
}

/// An entry of a directory.
#[repr(C)]
#[derive(Debug)]
pub struct Entry {
    /// Its name, which stays until the next call for this directory.
    name: *const c_char,
    /// Facts about it, and not about what a symbolic link leads to.
    stat: Stat,
}

/// Begins to list a directory; braid_closedir ends that.
#[unsafe(no_mangle)]
pub extern "C" fn braid_opendir(client: Option<&Client>, name: Text) -> Option<Box<Directory>> {
    answer(None, || {
        let shared = Client::of(client)?;
        let name = parse(&name)?;
        let row = shared.wait(shared.client().stat(&name))?;
        if row.attributes.kind != braid_wire::control::EntryKind::Directory {
            return Err(Failure::new(libc::ENOTDIR, format!("{name}: it is not a directory")));
        }
        let lister = shared.client().list(&name);
        let listing = Listing { shared: Arc::clone(shared), lister, name: CString::default() };
        Ok(Some(Box::new(Directory { listing: OfProcess::new(listing) })))
    })
}

/// The next entry, in the order of the names' bytes; there is none for "." and "..". Returns 1, 0 at the
/// end, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn braid_readdir(
    directory: Option<&mut Directory>,
    entry: Option<&mut MaybeUninit<Entry>>,
) -> c_int {
    answer(-1, || {
        let directory = directory.ok_or_else(|| Failure::null("the directory"))?;
        let Listing { shared, lister, name } = directory.listing.here_mut()?;
        let Some(row) = shared.wait(lister.next())? else { return Ok(0) };
        let stat = Stat::of(row.file.0, &row.attributes);
        *name = CString::new(row.name)
            .map_err(|_| Failure::new(libc::EIO, "a name of the directory has a NUL in it"))?;
        put(entry, "the place for an entry", Entry { name: name.as_ptr(), stat })?;
        Ok(1)
    })
}

/// Ends a listing; NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn braid_closedir(directory: Option<Box<Directory>>) -> c_int {
    answer(-1, || {
        let Some(directory) = directory else { return Ok(0) };
        directory.listing.here().map(|_| 0)
    })
}
