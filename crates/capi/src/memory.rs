//! What C hands over by pointers: strings, memory and lists.
//!
//! A value of these types comes from C only, or from a list that C gave: there is no other way to make one.
//! The header says how long what it points to must stay, and these types trust that.

#![expect(unsafe_code, reason = "pointers that come from C are followed here")]

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::errors::Failure;

/// A string of C's, or null. It is valid for the call that it was given to.
#[repr(transparent)]
#[derive(Debug)]
pub struct Text(*const c_char);

impl Text {
    /// The string's bytes without the NUL; `None`: null.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        // SAFETY: C says that a pointer which is not null leads to a string that stays during the call.
        (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }

    /// The string as a path; `None`: null.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.bytes().map(|bytes| Path::new(OsStr::from_bytes(bytes)))
    }

    /// The string as text; `None`: null.
    pub(crate) fn text(&self, what: &str) -> Result<Option<&str>, Failure> {
        let text = self.bytes().map(std::str::from_utf8).transpose();
        text.map_err(|_| Failure::invalid(format!("{what} is not UTF-8")))
    }
}

/// The beginning of memory of C's that is read or written, or null.
#[repr(transparent)]
#[derive(Debug)]
pub struct Start(*mut c_void);

/// The beginning of memory of C's that is only read, or null.
#[repr(transparent)]
#[derive(Debug)]
pub struct ConstStart(*const c_void);

/// Memory of C's: it stays, and is nobody else's, until the call or the request that it was given to is done.
#[derive(Debug)]
pub(crate) struct Memory {
    start: *mut u8,
    length: usize,
}

// SAFETY: which thread uses the memory does not matter, as C leaves it alone meanwhile.
unsafe impl Send for Memory {}
// SAFETY: shared references only read.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(start: *mut c_void, length: usize) -> Result<Memory, Failure> {
        if start.is_null() && length > 0 {
            return Err(Failure::null("a buffer"));
        }
        if isize::try_from(length).is_err() {
            return Err(Failure::invalid(format!("a buffer of {length} bytes is longer than memory can be")));
        }
        Ok(Memory { start: start.cast(), length })
    }

    pub(crate) fn read_write(start: Start, length: usize) -> Result<Memory, Failure> {
        Memory::new(start.0, length)
    }

    /// Memory of which only [`Memory::bytes`] may be used.
    pub(crate) fn read_only(start: ConstStart, length: usize) -> Result<Memory, Failure> {
        Memory::new(start.0.cast_mut(), length)
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self.length {
            0 => &[],
            // SAFETY: C says that so many bytes are there, and that nobody changes them meanwhile.
            length => unsafe { std::slice::from_raw_parts(self.start, length) },
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self.length {
            0 => &mut [],
            // SAFETY: C says that so many bytes are there, which nobody else uses meanwhile. Bytes that came
            // over a foreign interface have some value each.
            length => unsafe { std::slice::from_raw_parts_mut(self.start, length) },
        }
    }
}

/// A piece of memory and its place in a file.
#[repr(C)]
#[derive(Debug)]
pub struct Extent {
    /// The memory, which is only read if the file is written.
    pub(crate) buffer: Start,
    /// Its length in bytes.
    pub(crate) length: usize,
    /// Its first byte's offset in the file.
    pub(crate) offset: u64,
}

/// The first of C's extents, or null.
#[repr(transparent)]
#[derive(Debug)]
pub struct Extents(*const Extent);

/// The first of C's iovecs, or null.
#[repr(transparent)]
#[derive(Debug)]
pub struct Vectors(*const libc::iovec);

/// The first of C's strings, behind the last of which is a null; or null. They are valid for the call that
/// they were given to.
#[repr(transparent)]
#[derive(Debug)]
pub struct Texts(*const Text);

impl Texts {
    /// All of the strings.
    pub(crate) fn all(&self) -> Result<Vec<&str>, Failure> {
        let mut all = Vec::new();
        while !self.0.is_null() {
            if all.len() == LIST_MAX {
                return Err(Failure::invalid(format!(
                    "a list of more than {LIST_MAX} texts, or one without NULL"
                )));
            }
            // SAFETY: C says that the list goes on up to a null, which was not met yet, and that it stays.
            let text: &Text = unsafe { &*self.0.add(all.len()) };
            match text.text("an argument")? {
                Some(text) => all.push(text),
                None => break,
            }
        }
        Ok(all)
    }
}

/// Maximum number of extents or iovecs in one list.
pub(crate) const LIST_MAX: usize = 65_536;

impl Extents {
    /// Each piece of memory with its offset.
    pub(crate) fn all(self, count: usize) -> Result<Vec<(Memory, u64)>, Failure> {
        // SAFETY: C says that `count` extents are there, which stay during the call.
        let extents = unsafe { list(self.0, count) }?;
        extents.iter().map(|one| Ok((Memory::new(one.buffer.0, one.length)?, one.offset))).collect()
    }
}

impl Vectors {
    /// Each piece of memory with its offset, the first of which is `offset`.
    pub(crate) fn all(self, count: usize, offset: u64) -> Result<Vec<(Memory, u64)>, Failure> {
        // SAFETY: C says that `count` iovecs are there, which stay during the call.
        let vectors = unsafe { list(self.0, count) }?;
        let mut next = offset;
        let each = vectors.iter().map(|one| {
            let memory = Memory::new(one.iov_base, one.iov_len)?;
            let here = next;
            next = next.saturating_add(u64::try_from(one.iov_len).unwrap_or(u64::MAX));
            Ok((memory, here))
        });
        each.collect()
    }
}

/// The items of one of C's lists.
///
/// # Safety
///
/// Unless it is null, `first` leads to `count` items, which stay for `'a`.
unsafe fn list<'a, T>(first: *const T, count: usize) -> Result<&'a [T], Failure> {
    if count > LIST_MAX {
        return Err(Failure::invalid(format!("a list of {count} parts is over the bound of {LIST_MAX}")));
    }
    match (count, first.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(Failure::null("the list")),
        // SAFETY: the caller promises it.
        (_, false) => Ok(unsafe { std::slice::from_raw_parts(first, count) }),
    }
}

/// Puts rows where C wants them, as far as there is room for them.
///
/// # Safety
///
/// Unless it is null, `first` leads to room for so many rows.
pub(crate) unsafe fn fill<T>(
    first: *mut T,
    room: usize,
    rows: impl IntoIterator<Item = T>,
) -> Result<(), Failure> {
    if first.is_null() && room > 0 {
        return Err(Failure::null("the place for rows"));
    }
    for (at, row) in rows.into_iter().take(room).enumerate() {
        // SAFETY: the caller promises it, and what is written over was no value.
        unsafe { first.add(at).write(row) };
    }
    Ok(())
}

/// The values that C's pointers lead to; `None`: null.
///
/// # Safety
///
/// Unless it is null, `first` leads to `count` pointers, which stay for `'a`. Each of them is null, or leads
/// to a value that does.
pub(crate) unsafe fn pointers<'a, T>(
    first: *const *const T,
    count: usize,
) -> Result<Vec<Option<&'a T>>, Failure> {
    // SAFETY: the caller promises it.
    let pointers = unsafe { list(first, count) }?;
    // SAFETY: as before.
    Ok(pointers.iter().map(|&one| unsafe { one.as_ref() }).collect())
}

/// Puts a value where C wants it.
pub(crate) fn put<T>(place: Option<&mut MaybeUninit<T>>, what: &str, value: T) -> Result<(), Failure> {
    place.ok_or_else(|| Failure::null(what))?.write(value);
    Ok(())
}

/// Memory of a test's own.
#[cfg(test)]
pub(crate) fn of(bytes: &mut [u8]) -> Memory {
    Memory { start: bytes.as_mut_ptr(), length: bytes.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused() {
        let null = || Extents(std::ptr::null());
        assert!(null().all(0).is_ok_and(|all| all.is_empty()));
        assert_eq!(null().all(1).expect_err("null").errno(), libc::EFAULT);
        assert_eq!(null().all(LIST_MAX + 1).expect_err("too many").errno(), libc::EINVAL);
        assert_eq!(Memory::new(std::ptr::null_mut(), 1).expect_err("null").errno(), libc::EFAULT);
        assert!(Memory::new(std::ptr::null_mut(), 0).is_ok_and(|empty| empty.bytes().is_empty()));
        let mut byte = 0_u8;
        let endless = Memory::new((&raw mut byte).cast(), usize::MAX);
        assert_eq!(endless.expect_err("too long").errno(), libc::EINVAL);
    }

    #[test]
    fn vectors_lie_one_after_the_other() {
        let mut bytes = [0_u8; 8];
        let base = (&raw mut bytes).cast();
        let vectors = [
            libc::iovec { iov_base: base, iov_len: 3 },
            libc::iovec { iov_base: base, iov_len: 0 },
            libc::iovec { iov_base: base, iov_len: 5 },
        ];
        let all = Vectors(vectors.as_ptr()).all(3, 100).expect("valid");
        let places: Vec<_> = all.iter().map(|(memory, offset)| (memory.length(), *offset)).collect();
        assert_eq!(places, [(3, 100), (0, 103), (5, 103)]);
    }
}
