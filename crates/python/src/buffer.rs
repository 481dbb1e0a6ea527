//! Memory of Python's objects, read and written in place.
//!
//! The package is built once for all Pythons from 3.9 on (the stable ABI). The buffer protocol belongs to
//! that ABI since 3.11 only, so PyO3 hides it from such a build. Its two functions and its struct are older:
//! every CPython since 3.3 exports them, with this layout, and 3.11 made the same layout part of the stable
//! ABI. So they are declared here. The other ways: to ask for 3.11 would leave two Pythons out; to go through
//! `memoryview` and `ctypes` costs several Python calls for every read.

#![expect(unsafe_code, reason = "the buffer protocol is a C interface")]

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use braid_client::File;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::gate::Gate;

/// Contiguous bytes, to be read.
const SIMPLE: c_int = 0;
/// Contiguous bytes, to be written.
const WRITABLE: c_int = 1;

/// `Py_buffer`, whose layout CPython's documentation gives.
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

/// The bytes of a Python object that supports the buffer protocol: `bytes`, `bytearray`, `memoryview`,
/// `array`, numpy's arrays. While it lives the object can neither be resized nor freed.
///
/// As with `os.preadv`, other Python threads can use the same memory meanwhile. They then find old or new
/// bytes; what is written of it is copied first, so that nothing goes by what is read in it twice.
pub(crate) struct Buffer {
    /// On the heap: exporters may keep its address until it is released.
    view: Box<View>,
    /// Nobody can change it: it is that of a `bytes` object. A buffer that is merely read-only does not say
    /// so, as it may be a view of one that is not.
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
    /// An object's bytes, to be read.
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

    /// Writes all of it. Other Python threads may change it meanwhile, unless it is constant.
    pub(crate) async fn write_to(&self, file: &File, offset: u64) -> braid_client::Result<()> {
        if self.constant {
            file.write_at(self.bytes(), offset).await
        } else {
            file.write_at_copied(self.bytes(), offset).await
        }
    }

    /// The same at the end; where it begins there.
    pub(crate) async fn append_to(&self, file: &File) -> braid_client::Result<u64> {
        if self.constant { file.append(self.bytes()).await } else { file.append_copied(self.bytes()).await }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self.length() {
            // An empty buffer may have no address.
            0 => &[],
            // SAFETY: the exporter promises so many bytes there until the view is released.
            length => unsafe { std::slice::from_raw_parts(self.view.start.cast(), length) },
        }
    }

    pub(crate) fn length(&self) -> usize {
        usize::try_from(self.view.length).unwrap_or(0)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // `None`: Python is ending, and with it the object.
        let _ = self.gate.attach(|_| {
            // SAFETY: it was filled by `PyObject_GetBuffer`, and this thread is attached.
            unsafe { PyBuffer_Release(&raw mut *self.view) }
        });
    }
}

impl Writable {
    /// An object's bytes, to be written. Refused for `bytes` and other constant memory.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Writable> {
        Buffer::with(object, WRITABLE).map(Writable)
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self.0.length() {
            0 => &mut [],
            // SAFETY: as for `bytes`; it was asked for as writable.
            length => unsafe { std::slice::from_raw_parts_mut(self.0.view.start.cast(), length) },
        }
    }
}

/// Whether it is `bytes`, or a view of that.
fn is_constant(object: &Bound<'_, PyAny>) -> bool {
    let viewed = object.cast::<PyMemoryView>().ok().and_then(|view| view.getattr("obj").ok());
    viewed.as_ref().unwrap_or(object).is_instance_of::<PyBytes>()
}

/// From this size on new memory is asked for in huge pages. Python gives such an object's memory back to the
/// system when the object is freed, so that each new one costs a fault for every page: with pages of 4 KiB
/// more time than the bytes take to come.
const HUGE_FROM_BYTES: usize = 4 << 20;
/// Bytes of a huge page.
const HUGE_BYTES: usize = 2 << 20;

/// Has the system back with huge pages what of this memory they can. It is advice: an error changes nothing.
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
/// Until then its bytes are what Python's allocator left there. They are not cleared first: for 8 MiB that
/// took longer than to receive them, as all of it was done by the one thread that is attached. Nobody sees
/// them: what was not read is cut off, and if reading fails the object is freed.
pub(crate) struct NewBytes {
    object: Py<PyBytes>,
    start: *mut u8,
    length: usize,
}

// SAFETY: nobody else has the object yet, so its memory is this value's alone.
unsafe impl Send for NewBytes {}
// SAFETY: there are no shared references to the memory.
unsafe impl Sync for NewBytes {}

impl NewBytes {
    /// So many bytes.
    pub(crate) fn allocate(py: Python<'_>, length: usize) -> PyResult<NewBytes> {
        let size = ffi::Py_ssize_t::try_from(length)?;
        // SAFETY: without a source it makes a new object with memory for so many bytes, or fails.
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
            // The empty object is one for all.
            0 => &mut [],
            // SAFETY: the object has so many bytes, made by a foreign function, with some value each; and
            // CPython allows writing to one that nobody else has.
            length => unsafe { std::slice::from_raw_parts_mut(self.start, length) },
        }
    }

    /// The object, cut to its first bytes.
    pub(crate) fn cut(self, py: Python<'_>, length: usize) -> Py<PyBytes> {
        if length < self.length {
            PyBytes::new(py, &self.object.bind(py).as_bytes()[..length]).unbind()
        } else {
            self.object
        }
    }
}
