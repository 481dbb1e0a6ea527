//! Memory of Python's objects, read and written without a copy.
//!
//! The package is built once for all Pythons from 3.9 on (the stable ABI). The buffer protocol belongs to
//! that ABI since 3.11 only, so PyO3 hides it from such a build. Its two functions and its struct are older:
//! every CPython since 3.3 exports them, with this layout, and 3.11 made the same layout part of the stable
//! ABI. So they are declared here. The other ways: to ask for 3.11 would leave two Pythons out; to go through
//! `memoryview` and `ctypes` costs several Python calls for every read.

#![expect(unsafe_code, reason = "the buffer protocol is a C interface")]

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

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
/// bytes; nothing here goes by what it reads in it.
pub(crate) struct Buffer {
    /// On the heap: exporters may keep its address until it is released.
    view: Box<View>,
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
        if refused { Err(PyErr::fetch(object.py())) } else { Ok(Buffer { view }) }
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
        let _ = Python::try_attach(|_| {
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

/// A new `bytes` object that is filled before Python sees it.
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
    /// So many zeros.
    pub(crate) fn zeros(py: Python<'_>, length: usize) -> PyResult<NewBytes> {
        let object = PyBytes::new_with(py, length, |_| Ok(()))?;
        let start = object.as_bytes().as_ptr().cast_mut();
        Ok(NewBytes { object: object.unbind(), start, length })
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self.length {
            // The empty object is one for all.
            0 => &mut [],
            // SAFETY: the object has so many bytes, and CPython allows writing to one that nobody else has.
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
