//! Memory of Python objects, read and written in place.
//!
//! The package is built once for all versions of Python from 3.9 on (the stable ABI). The buffer protocol
//! belongs to that ABI since 3.11 only, so PyO3 hides it from such a build. Its two functions and its
//! struct are older: every CPython since 3.3 exports them, with this layout, and 3.11 made the same layout
//! part of the stable ABI. So they are declared here. The alternatives are worse: a build for 3.11 would
//! exclude two versions of Python, and `memoryview` with `ctypes` costs several Python calls for every
//! read.

#![expect(unsafe_code, reason = "the buffer protocol is a C interface")]

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use braid_client::File;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::gate::Gate;

/// The flags that request contiguous bytes for reading.
const SIMPLE: c_int = 0;
/// The flags that request contiguous bytes for writing.
const WRITABLE: c_int = 1;

/// The struct `Py_buffer`, with the layout that CPython's documentation gives.
#[repr(C)]
struct View {
    start: *mut c_void,
    object: *mut ffi::PyObject,
    length: ffi::Py_ssize_t,
    item_bytes: ffi::Py_ssize_t,
    is_readonly: c_int,
    dimensions: c_int,
    format: *mut c_char,
    shape: *mut ffi::Py_ssize_t,
    strides: *mut ffi::Py_ssize_t,
    suboffsets: *mut ffi::Py_ssize_t,
    internal: *mut c_void,
}

unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut ffi::PyObject, view: *mut View, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut View);
}

/// As with `os.preadv`, other Python threads can use the same memory meanwhile. They then find old or new
/// bytes. Bytes that may change are copied before they are written to a file, so that nothing reads them
/// twice and finds different content.
///
/// As with `os.preadv`, other Python threads can use the same memory meanwhile. They then find old or new
/// bytes. Bytes to be written to a file are copied first, so that no decision depends on reading memory
/// twice that may change.
pub(crate) struct Buffer {
    /// The view is on the heap, because exporters may keep its address until it is released.
    view: Box<View>,
    /// True if nothing can change the memory, because it is that of a `bytes` object. A read-only buffer is
    /// not enough: it may be a view of an object that can change.
    constant: bool,
    gate: Arc<Gate>,
}

// SAFETY: the view's memory stays valid and in place until it is released, whichever thread uses it; it is
// released attached to Python only.
unsafe impl Send for Buffer {}
// SAFETY: shared references only read.
unsafe impl Sync for Buffer {}

/// A buffer that may be written to.
pub(crate) struct Writable(Buffer);

impl Buffer {
    /// The bytes of an object, for reading.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Buffer> {
        Buffer::with(object, SIMPLE)
    }

    fn with(object: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Buffer> {
        let null = ptr::null_mut();
        let mut view = Box::new(View {
            start: ptr::null_mut(),
            object: ptr::null_mut(),
            length: 0,
            item_bytes: 0,
            is_readonly: 0,
            dimensions: 0,
            format: ptr::null_mut(),
            shape: null,
            strides: null,
            suboffsets: null,
            internal: ptr::null_mut(),
        });
        // SAFETY: the object is alive and this thread attached; the view has CPython's layout.
        let refused = unsafe { PyObject_GetBuffer(object.as_ptr(), &raw mut *view, flags) } != 0;
        if refused {
            return Err(PyErr::fetch(object.py()));
        }
        Ok(Buffer { view, constant: is_constant(object), gate: Gate::of(object.py()) })
    }

    /// Writes the whole buffer at an offset. Other Python threads may change the bytes meanwhile, unless
    /// they are constant.
    pub(crate) async fn write_to(&self, file: &File, offset: u64) -> braid_client::Result<()> {
        if self.constant {
            file.write_at(self.bytes(), offset).await
        } else {
            file.write_at_copied(self.bytes(), offset).await
        }
    }

    /// Appends the whole buffer at the end of the file. Returns the offset at which it begins.
    pub(crate) async fn append_to(&self, file: &File) -> braid_client::Result<u64> {
        if self.constant { file.append(self.bytes()).await } else { file.append_copied(self.bytes()).await }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self.length() {
            // An empty buffer may have no address.
            0 => &[],
            // SAFETY: the exporter promises this many bytes at this address until the view is released.
            length => unsafe { std::slice::from_raw_parts(self.view.start.cast(), length) },
        }
    }

    pub(crate) fn length(&self) -> usize {
        usize::try_from(self.view.length).unwrap_or(0)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // `None`: Python is ending, and the object with it.
        let _ = self.gate.attach(|_| {
            // SAFETY: the view was filled by `PyObject_GetBuffer`, and this thread is attached.
            unsafe { PyBuffer_Release(&raw mut *self.view) }
        });
    }
}

impl Writable {
    /// The bytes of an object, for writing. Refused for `bytes` and other constant memory.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Writable> {
        Buffer::with(object, WRITABLE).map(Writable)
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self.0.length() {
            0 => &mut [],
            // SAFETY: as for `bytes`; besides, the view was requested as writable.
            length => unsafe { std::slice::from_raw_parts_mut(self.0.view.start.cast(), length) },
        }
    }
}

/// Returns true if the object is `bytes`, or a `memoryview` of `bytes`.
fn is_constant(object: &Bound<'_, PyAny>) -> bool {
    let viewed = object.cast::<PyMemoryView>().ok().and_then(|view| view.getattr("obj").ok());
    viewed.as_ref().unwrap_or(object).is_instance_of::<PyBytes>()
}

/// Length from which new memory is requested in huge pages, in bytes. Python returns the memory of such an
/// object to the system when the object is freed, so that each new object costs a page fault for every
/// page. With pages of 4 KiB these faults take more time than receiving the bytes.
const HUGE_FROM_BYTES: usize = 4 << 20;
/// Length of a huge page, in bytes.
const HUGE_BYTES: usize = 2 << 20;

/// Asks the system to use huge pages for the part of this memory that they fit. This is advice: an error
/// changes nothing.
fn ask_for_huge_pages(start: *mut u8, length: usize) {
    let before = start.addr().next_multiple_of(HUGE_BYTES) - start.addr();
    let inner = length.saturating_sub(before) / HUGE_BYTES * HUGE_BYTES;
    if inner > 0 {
        // SAFETY: the range lies within one object's memory, and the advice does not change its bytes.
        let _ = unsafe { libc::madvise(start.add(before).cast(), inner, libc::MADV_HUGEPAGE) };
    }
}

/// A new `bytes` object that is filled before Python sees it.
///
/// Until then its memory has whatever content Python's allocator left there. The memory is not cleared
/// first: for 8 MiB that took longer than to receive the bytes, as the one thread that is attached had to
/// do all of it. No program sees the old content: bytes that were not read are cut off, and if reading
/// fails the object is freed.
pub(crate) struct NewBytes {
    object: Py<PyBytes>,
    start: *mut u8,
    length: usize,
}

// SAFETY: no other code has the object yet, so its memory belongs to this value alone.
unsafe impl Send for NewBytes {}
// SAFETY: there are no shared references to the memory.
unsafe impl Sync for NewBytes {}

impl NewBytes {
    /// Allocates an object of this length, in bytes.
    pub(crate) fn allocate(py: Python<'_>, length: usize) -> PyResult<NewBytes> {
        let size = ffi::Py_ssize_t::try_from(length)?;
        // SAFETY: without a source the call makes a new object with memory for `size` bytes, or fails.
        let object = unsafe {
            let made = ffi::PyBytes_FromStringAndSize(ptr::null(), size);
            Bound::from_owned_ptr_or_err(py, made)?.cast_into_unchecked::<PyBytes>()
        };
        let start = object.as_bytes().as_ptr().cast_mut();
        if length >= HUGE_FROM_BYTES {
            ask_for_huge_pages(start, length);
        }
        Ok(NewBytes { object: object.unbind(), start, length })
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self.length {
            // There is only one empty object, which all code shares.
            0 => &mut [],
            // SAFETY: the object has `length` bytes, made by a foreign function, each with some value; and
            // CPython allows writing to an object that no other code has.
            length => unsafe { std::slice::from_raw_parts_mut(self.start, length) },
        }
    }

    /// The object, cut to its first `length` bytes.
    pub(crate) fn cut(self, py: Python<'_>, length: usize) -> Py<PyBytes> {
        if length < self.length {
            PyBytes::new(py, &self.object.bind(py).as_bytes()[..length]).unbind()
        } else {
            self.object
        }
    }
}
