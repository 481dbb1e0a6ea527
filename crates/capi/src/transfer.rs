//! Reading and writing that the caller waits for.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use crate::calls::answer;
use crate::errors::Failure;
use crate::file::File;
use crate::list::{self, Part};
use crate::memory::{ConstStart, Extents, Memory, Start, Vectors};

/// Moves the bytes of a list, and waits for that.
fn transfer(file: Option<&File>, parts: Vec<Part>, writes: bool) -> Result<libc::ssize_t, Failure> {
    list::total(&parts)?;
    let moved = File::of(file)?.wait(async |file| list::transfer(file, parts, writes).await)?;
    Ok(returned(moved))
}

/// A number of bytes, which [`list::total`] has found to fit.
pub(crate) fn returned(bytes: usize) -> libc::ssize_t {
    libc::ssize_t::try_from(bytes).unwrap_or(libc::ssize_t::MAX)
}

/// The number of parts in a list of iovecs.
fn count(count: c_int) -> Result<usize, Failure> {
    usize::try_from(count).map_err(|_| Failure::invalid(format!("a list of {count} parts")))
}

/// Reads up to `length` bytes from an offset. Returns their number, which is less only at the end of the
/// file, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn braid_pread(
    file: Option<&File>,
    buffer: Start,
    length: usize,
    offset: u64,
) -> libc::ssize_t {
    answer(-1, || transfer(file, vec![(Memory::read_write(buffer, length)?, offset)], false))
}

/// Writes `length` bytes at an offset, all of them, and returns their number, or -1. When it returns they are
/// durable on every drive of the file's set. The bytes must not change meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn braid_pwrite(
    file: Option<&File>,
    buffer: ConstStart,
    length: usize,
    offset: u64,
) -> libc::ssize_t {
    answer(-1, || transfer(file, vec![(Memory::read_only(buffer, length)?, offset)], true))
}

/// Like braid_pread, into several pieces of memory, one after the other. The list is that of preadv(2).
#[unsafe(no_mangle)]
pub extern "C" fn braid_preadv(
    file: Option<&File>,
    list: Vectors,
    count: c_int,
    offset: u64,
) -> libc::ssize_t {
    answer(-1, || transfer(file, list.all(self::count(count)?, offset)?, false))
}

/// Like braid_pwrite, from several pieces of memory, one after the other. The list is that of pwritev(2).
#[unsafe(no_mangle)]
pub extern "C" fn braid_pwritev(
    file: Option<&File>,
    list: Vectors,
    count: c_int,
    offset: u64,
) -> libc::ssize_t {
    answer(-1, || transfer(file, list.all(self::count(count)?, offset)?, true))
}

/// Reads many places of the file at once, each into its memory, of which no two overlap. Returns the sum of
/// the bytes, which is less than asked for if some lie past the end of the file, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn braid_read_list(file: Option<&File>, list: Extents, count: usize) -> libc::ssize_t {
    answer(-1, || transfer(file, list.all(count)?, false))
}

/// Writes many places of the file at once, each from its memory, all of them. Returns the sum of the bytes,
/// or -1; then some may have been written. Of places that overlap any may be the last.
#[unsafe(no_mangle)]
pub extern "C" fn braid_write_list(file: Option<&File>, list: Extents, count: usize) -> libc::ssize_t {
    answer(-1, || transfer(file, list.all(count)?, true))
}

/// Writes `length` bytes at the end of the file, wherever it is by then: those of several programs follow one
/// another. Where they begin is put to `at`, unless that is NULL. Returns `length`, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn braid_append(
    file: Option<&File>,
    buffer: ConstStart,
    length: usize,
    at: Option<&mut MaybeUninit<u64>>,
) -> libc::ssize_t {
    answer(-1, || {
        let memory = Memory::read_only(buffer, length)?;
        let begin = File::of(file)?.wait(async |file| file.append(memory.bytes()).await)?;
        if let Some(at) = at {
            at.write(begin);
        }
        Ok(returned(length))
    })
}
