//! An open file.

use std::sync::Arc;

use braid_client::Client;
use braid_client::Name;
use braid_client::Parents;
use braid_client::ReadAhead;
use braid_client::Replace;
use braid_wire::control::AttributeChanges;
use pyo3::prelude::*;
use tokio::sync::{Mutex, OwnedRwLockReadGuard, RwLock};

use crate::buffer::{Buffer, NewBytes, Writable};
use crate::calls::{Answer, How, PythonNone, run};
use crate::client::parse;
use crate::errors::Failure;
use crate::process::OfProcess;
use crate::rates::Account;
use crate::rows::facts;

/// Maximum length of a read past the known end, in bytes: another client that writes the file may have made
/// it longer.
const PAST_END_BYTES: usize = 64 << 10;

/// An open file. Any number of its calls may run at once; `close` waits for those under way.
#[pyclass(frozen, module = "braidfs._native")]
pub(crate) struct File {
    open: OfProcess<Arc<Open>>,
}

/// The state of a file in the process that opened it.
struct Open {
    file: Arc<RwLock<Option<braid_client::File>>>,
    /// The bytes read ahead of the position.
    ahead: Mutex<ReadAhead>,
    /// The file's name; absent if the file was made without one.
    name: Option<Name>,
    client: Client,
}

impl File {
    pub(crate) fn new(client: Client, file: braid_client::File, name: Option<Name>) -> File {
        let file = Arc::new(RwLock::new(Some(file)));
        File { open: OfProcess::new(Arc::new(Open { file, ahead: Mutex::default(), name, client })) }
    }

    fn open(&self) -> Result<Arc<Open>, Failure> {
        self.open.here().map(Arc::clone).ok_or_else(Failure::forked)
    }

    /// Runs `operation` with the file, which stays open until the operation is done.
    fn with_file<T, F>(
        &self,
        py: Python<'_>,
        how: How<'_>,
        operation: impl FnOnce(Held) -> F + Send + 'static,
    ) -> PyResult<Py<PyAny>>
    where
        T: Answer,
        F: Future<Output = braid_client::Result<T>> + Send + 'static,
    {
        let open = self.open()?;
        run(py, how, async move {
            let held = Arc::clone(&open.file).read_owned().await;
            let file = OwnedRwLockReadGuard::try_map(held, Option::as_ref).map_err(|_| Failure::closed())?;
            operation(file).await.map_err(|error| open.failure(&error))
        })
    }
}

/// A file in use. Closing the file waits until it is released.
type Held = OwnedRwLockReadGuard<Option<braid_client::File>, braid_client::File>;

impl Open {
    fn failure(&self, error: &braid_client::Error) -> Failure {
        match &self.name {
            Some(name) => Failure::about(name, error),
            None => Failure::from(error),
        }
    }

    /// Takes the file out, for closing. Waits until it is no longer in use.
    async fn take(&self) -> Result<braid_client::File, Failure> {
        self.file.write().await.take().ok_or_else(Failure::closed)
    }

    /// Reads in order, from an offset: what comes next is read ahead.
    async fn read_next(&self, file: &Held, buffer: &mut [u8], offset: u64) -> braid_client::Result<usize> {
        // Another thread reads at the position too: then there is no order.
        let Ok(mut ahead) = self.ahead.try_lock() else { return file.read_at(buffer, offset).await };
        let fetch = |offset, length| {
            let file = Arc::clone(&self.file);
            async move {
                // Who closes the file waits for its readers, and this would wait for who closes it.
                let Ok(held) = file.try_read_owned() else { return Ok(Vec::new()) };
                let Some(file) = held.as_ref() else { return Ok(Vec::new()) };
                let mut bytes = vec![0; length];
                let read = file.read_at(&mut bytes, offset).await?;
                bytes.truncate(read);
                Ok(bytes)
            }
        };
        let read = match ahead.read(fetch, buffer, offset).await {
            Some(read) => read,
            None => file.read_at(buffer, offset).await?,
        };
        ahead.reached(offset.saturating_add(u64::try_from(read).unwrap_or(u64::MAX)));
        Ok(read)
    }

    fn size(&self) -> Result<u64, Failure> {
        // The file is locked for writing only while it is being closed.
        let file = self.file.try_read().map_err(|_| Failure::closed())?;
        file.as_ref().map(braid_client::File::size).ok_or_else(Failure::closed)
    }
}

/// Bytes that were read, and how many of them are valid.
struct Filled(NewBytes, usize);

impl<'py> IntoPyObject<'py> for Filled {
    type Target = pyo3::types::PyBytes;
    type Output = Bound<'py, pyo3::types::PyBytes>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        Ok(self.0.cut(py, self.1).into_bound(py))
    }
}

#[pymethods]
impl File {
    /// The size as this handle sees it, including its own writes.
    fn size(&self) -> PyResult<u64> {
        Ok(self.open()?.size()?)
    }

    /// Reads up to `size` bytes from an offset; fewer only at the end of the file.
    fn pread(&self, py: Python<'_>, size: usize, offset: u64, how: How<'_>) -> PyResult<Py<PyAny>> {
        let known = self.open()?.size()?.saturating_sub(offset);
        let length = size.min(usize::try_from(known).unwrap_or(usize::MAX).max(PAST_END_BYTES));
        let mut bytes = NewBytes::allocate(py, length)?;
        self.with_file(py, how, async move |file| {
            let read = file.read_at(bytes.bytes_mut(), offset).await;
            read.map(|length| Filled(bytes, length))
        })
    }

    /// Fills a buffer from an offset. Returns the number of bytes, which is less than the buffer's length
    /// only at the end.
    fn pread_into(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        offset: u64,
        how: How<'_>,
    ) -> PyResult<Py<PyAny>> {
        let mut buffer = Writable::of(buffer)?;
        self.with_file(py, how, async move |file| file.read_at(buffer.bytes_mut(), offset).await)
    }

    /// As [`File::pread`], for a reader in order: what comes next is read ahead.
    fn read_next(&self, py: Python<'_>, size: usize, offset: u64, how: How<'_>) -> PyResult<Py<PyAny>> {
        let open = self.open()?;
        let known = open.size()?.saturating_sub(offset);
        let length = size.min(usize::try_from(known).unwrap_or(usize::MAX).max(PAST_END_BYTES));
        let mut bytes = NewBytes::allocate(py, length)?;
        self.with_file(py, how, async move |file| {
            let read = open.read_next(&file, bytes.bytes_mut(), offset).await;
            read.map(|length| Filled(bytes, length))
        })
    }

    /// As [`File::pread_into`], for a reader in order: what comes next is read ahead.
    fn read_next_into(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        offset: u64,
        how: How<'_>,
    ) -> PyResult<Py<PyAny>> {
        let open = self.open()?;
        let mut buffer = Writable::of(buffer)?;
        self.with_file(py, how, async move |file| open.read_next(&file, buffer.bytes_mut(), offset).await)
    }

    /// Writes a whole buffer at an offset. Returns its length.
    fn pwrite(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        offset: u64,
        how: How<'_>,
    ) -> PyResult<Py<PyAny>> {
        let buffer = Buffer::of(buffer)?;
        self.with_file(py, how, async move |file| {
            buffer.write_to(&file, offset).await.map(|()| buffer.length())
        })
    }

    /// Writes a whole buffer at the end. Returns the offset at which it begins.
    fn append(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, how: How<'_>) -> PyResult<Py<PyAny>> {
        let buffer = Buffer::of(buffer)?;
        self.with_file(py, how, async move |file| buffer.append_to(&file).await)
    }

    /// Commits the size, so that other clients see it.
    fn flush(&self, py: Python<'_>, how: How<'_>) -> PyResult<Py<PyAny>> {
        self.with_file(py, how, async move |file| file.flush().await.map(|()| PythonNone))
    }

    fn truncate(&self, py: Python<'_>, size: u64, how: How<'_>) -> PyResult<Py<PyAny>> {
        self.with_file(py, how, async move |file| file.set_len(size).await.map(|()| PythonNone))
    }

    fn stat(&self, py: Python<'_>, how: How<'_>) -> PyResult<Py<PyAny>> {
        self.with_file(py, how, async move |file| file.stat().await.map(facts))
    }

    /// Closes the file and commits its size. A file without a name vanishes.
    fn close(&self, py: Python<'_>, how: How<'_>) -> PyResult<Py<PyAny>> {
        let open = self.open()?;
        run(py, how, async move {
            open.ahead.lock().await.forget();
            let file = open.take().await?;
            file.close().await.map(|()| PythonNone).map_err(|error| open.failure(&error))
        })
    }

    /// Gives a file without a name its name, and closes it. `parents` makes missing directories; then the
    /// file is kept open until it has a name, which costs one more request.
    fn link(
        &self,
        py: Python<'_>,
        name: &[u8],
        replace: bool,
        parents: bool,
        how: How<'_>,
    ) -> PyResult<Py<PyAny>> {
        let open = self.open()?;
        let name = parse(name)?;
        run(py, how, async move {
            let about = |error| Failure::about(&name, &error);
            let file = open.take().await?;
            let replace = if replace { Replace::Yes } else { Replace::No };
            if !parents {
                file.link_and_close(&name, replace, AttributeChanges::NONE).await.map_err(about)?;
                return Ok(PythonNone);
            }
            match (file.link(&name, replace).await.map_err(about), name.parent()) {
                (Err(failure), Some(parent)) if failure.is_not_found() => {
                    open.client.mkdir(&parent, Parents::Make).await.map_err(about)?;
                    file.link(&name, replace).await.map_err(about)?;
                }
                (linked, _) => linked?,
            }
            file.close().await.map(|()| PythonNone).map_err(about)
        })
    }

    /// Account of the promise: delivered, late and paused; `None` without one.
    fn lateness(&self) -> PyResult<Option<Account>> {
        let open = self.open()?;
        let held = open.file.try_read().map_err(|_| Failure::closed())?;
        let account = held.as_ref().ok_or_else(Failure::closed)?.lateness();
        Ok(account.map(Account::from))
    }

    /// Length of a stripe of the file, in bytes of data: writes of whole stripes cost least.
    fn stripe_bytes(&self) -> PyResult<u64> {
        let open = self.open()?;
        let held = open.file.try_read().map_err(|_| Failure::closed())?;
        let layout = held.as_ref().ok_or_else(Failure::closed)?.layout();
        Ok(layout.segments().first().map_or(1, |segment| segment.shape.stripe_bytes()))
    }
}
