//! Many files and ranges in one call, read and written in parallel by the runtime's threads.
//!
//! A request that fails does not keep the others from being carried out: each has its own result.

use std::collections::HashMap;
use std::sync::Arc;

use braid_client::Client;
use braid_client::File;
use braid_client::Name;
use braid_client::OpenOptions;
use braid_client::Parents;
use braid_client::Replace;
use braid_wire::control::AttributeChanges;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tokio::task::JoinSet;

use crate::buffer::{Buffer, NewBytes, Writable};
use crate::calls::PythonNone;
use crate::errors::Failure;
use crate::gate::Gate;

/// Maximum number of requests carried out at a time. The client bounds what they have in flight; this many
/// small requests keep its shared sessions busy.
const TOGETHER: usize = 64;

/// A range of a file.
pub(crate) struct Part {
    pub(crate) name: Name,
    pub(crate) from: u64,
    /// One past the last byte; `None`: the file's end.
    pub(crate) to: Option<u64>,
}

/// Options for writing whole files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HowToWrite {
    /// True if a new file may replace one that exists.
    pub(crate) replace: bool,
    /// True if missing directories are made.
    pub(crate) parents: bool,
}

/// One of many results: the value, or the exception as a value.
pub(crate) struct Item<T>(pub(crate) Result<T, Failure>);

impl<'py, T: IntoPyObject<'py>> IntoPyObject<'py> for Item<T> {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.0 {
            Ok(value) => pyo3::IntoPyObjectExt::into_bound_py_any(value, py),
            Err(failure) => failure.into_pyobject(py),
        }
    }
}

type Opened = Result<Arc<File>, Failure>;

/// Reads ranges of files, each into a new `bytes` object.
pub(crate) async fn read(
    client: &Client,
    parts: Vec<Part>,
    gate: &Gate,
) -> Result<Vec<Item<Py<PyBytes>>>, Failure> {
    let files = open_all(client, parts.iter().map(|part| &part.name)).await;
    let wanted = parts.into_iter().map(|part| {
        let file = files[&part.name].clone()?;
        let to = part.to.map_or(file.size(), |to| to.min(file.size()));
        let length = usize::try_from(to.saturating_sub(part.from)).unwrap_or(usize::MAX);
        Ok((file, part.name, part.from, length))
    });
    let wanted: Vec<Result<_, Failure>> = wanted.collect();
    // The thread attaches once to allocate all objects.
    let allocated = gate.attach(|py| {
        let allocate = |length| NewBytes::allocate(py, length).map_err(|_| no_memory(length));
        let each = wanted.into_iter().map(|wanted| {
            let (file, name, from, length) = wanted?;
            Ok((file, name, from, allocate(length)?))
        });
        each.collect::<Vec<Result<_, Failure>>>()
    });
    let allocated = allocated.ok_or_else(|| Failure::new(libc::ECANCELED, "Python is ending"))?;
    let reads = allocated.into_iter().map(|one| async move {
        let (file, name, from, mut bytes) = one?;
        let read = file.read_at(bytes.bytes_mut(), from).await;
        read.map(|length| (bytes, length)).map_err(|error| Failure::about(&name, &error))
    });
    let read = all(reads).await;
    let made = gate.attach(|py| {
        let objects = read.into_iter().map(|one| Item(one.map(|(bytes, length)| bytes.cut(py, length))));
        objects.collect()
    });
    made.ok_or_else(|| Failure::new(libc::ECANCELED, "Python is ending"))
}

/// Reads files into buffers.
pub(crate) async fn read_into(
    client: &Client,
    targets: Vec<(Name, u64, Writable)>,
) -> Result<Vec<Item<usize>>, Failure> {
    let files = open_all(client, targets.iter().map(|(name, ..)| name)).await;
    let reads = targets.into_iter().map(|(name, from, mut buffer)| {
        let file = files[&name].clone();
        async move {
            let read = file?.read_at(buffer.bytes_mut(), from).await;
            read.map_err(|error| Failure::about(&name, &error))
        }
    });
    Ok(all(reads).await.into_iter().map(Item).collect())
}

/// Writes whole files, each of which appears at once.
pub(crate) async fn write(
    client: &Client,
    files: Vec<(Name, Buffer)>,
    how: HowToWrite,
) -> Result<Vec<Item<PythonNone>>, Failure> {
    let writes = files.into_iter().map(|(name, content)| {
        let client = client.clone();
        async move {
            let about = |error| Failure::about(&name, &error);
            let written = write_one(&client, &name, &content, how).await;
            match (written, name.parent()) {
                // Most likely the directory is missing, which was not known before the file was written.
                // Such a file is written twice; later files in the same directory are written once.
                (Err(error), Some(parent)) if how.parents && Failure::from(&error).is_not_found() => {
                    client.mkdir(&parent, Parents::Make).await.map_err(about)?;
                    write_one(&client, &name, &content, how).await.map_err(about)
                }
                (written, _) => written.map_err(about),
            }
            .map(|()| PythonNone)
        }
    });
    Ok(all(writes).await.into_iter().map(Item).collect())
}

/// Writes a file without a name, and then names it, so that no reader sees a part of it.
async fn write_one(
    client: &Client,
    name: &Name,
    content: &Buffer,
    how: HowToWrite,
) -> braid_client::Result<()> {
    let file = client.create_for(name, None, &std::collections::BTreeSet::new()).await?;
    content.write_to(&file, 0).await?;
    let replace = if how.replace { Replace::Yes } else { Replace::No };
    file.link_and_close(name, replace, AttributeChanges::NONE).await
}

/// Opens each of the files once.
async fn open_all<'a>(client: &Client, names: impl Iterator<Item = &'a Name>) -> HashMap<Name, Opened> {
    let names: Vec<Name> = names.collect::<std::collections::BTreeSet<_>>().into_iter().cloned().collect();
    let opens = names.iter().map(|name| {
        let client = client.clone();
        let name = name.clone();
        async move {
            let file = client.open(&name, &OpenOptions::new().read(true)).await;
            file.map(Arc::new).map_err(|error| Failure::about(&name, &error))
        }
    });
    let opened = all(opens).await;
    names.into_iter().zip(opened).collect()
}

/// Runs tasks, at most [`TOGETHER`] at a time; the results are in the order of the tasks. If the future is
/// dropped, the tasks end midway.
async fn all<T, F>(tasks: impl Iterator<Item = F>) -> Vec<Result<T, Failure>>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Failure>> + Send + 'static,
{
    let mut running = JoinSet::new();
    let mut results = Vec::new();
    let mut waiting = tasks.enumerate();
    loop {
        while running.len() < TOGETHER
            && let Some((index, task)) = waiting.next()
        {
            results.push(None);
            running.spawn(async move { (index, task.await) });
        }
        match running.join_next().await {
            Some(Ok((index, result))) => results[index] = Some(result),
            // The task has panicked: its result stays absent.
            Some(Err(_)) => {}
            None => break,
        }
    }
    let broken = || Err(Failure::new(libc::EIO, "a task of this program failed: see standard error"));
    results.into_iter().map(|result| result.unwrap_or_else(broken)).collect()
}

fn no_memory(length: usize) -> Failure {
    Failure::new(libc::ENOMEM, format!("no memory for {length} bytes"))
}
