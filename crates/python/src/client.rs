//! A client of a cluster, and its operations on names.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use braid_client::BadTransport;
use braid_client::Config;
use braid_client::KeyError;
use braid_client::KeySource;
use braid_client::Name;
use braid_client::OpenOptions;
use braid_client::Parents;
use braid_client::cluster::{self, CLUSTER_FILE, ClusterFile};
use braid_layout::ReservationId;
use braid_wire::control::{RenameHow, UnlinkOnly, XattrHow};
use pyo3::prelude::*;
use tokio::sync::OnceCell;

use crate::attributes::{self, Changes, Value, followed};
use crate::buffer::{Buffer, Writable};
use crate::calls::{How, PythonNone, run, wait};
use crate::errors::Failure;
use crate::file::File;
use crate::gate::Gate;
use crate::layouts::{self, InForce};
use crate::many::{self, Item, Part};
use crate::methods::{self, Answered, Progress};
use crate::process::OfProcess;
use crate::rates::{self, Asked, Reservation};
use crate::rows::{Cluster, EntryFacts, Volume, entry, facts};

/// A client of one cluster.
#[pyclass(frozen, module = "braidfs._native")]
pub(crate) struct Client {
    /// The directory or file in which the cluster was found.
    place: PathBuf,
    cluster: ClusterFile,
    config: Config,
    /// The session in use. Only attached threads lock the mutex, and only for a moment.
    session: Mutex<OfProcess<Arc<Session>>>,
}

/// The connection of a client to its cluster, in one process.
pub(crate) struct Session {
    cluster: ClusterFile,
    config: Config,
    connected: OnceCell<braid_client::Client>,
}

impl Session {
    fn new(cluster: &ClusterFile, config: &Config) -> OfProcess<Arc<Session>> {
        let cluster = cluster.clone();
        let config = config.clone();
        OfProcess::new(Arc::new(Session { cluster, config, connected: OnceCell::new() }))
    }

    /// The connected client. Connects at the first call.
    pub(crate) async fn client(&self) -> Result<&braid_client::Client, Failure> {
        let connect = || async {
            let looked = self.cluster.look_for_manager().await;
            looked.map_err(|error| Failure::no_manager(&self.cluster.manager, &error))?;
            Ok(braid_client::Client::connect(self.config.clone()).await?)
        };
        self.connected.get_or_try_init(connect).await
    }
}

impl Client {
    /// The session of this process. After a fork a new one is made.
    fn session(&self) -> Arc<Session> {
        let mut session = self.session.lock().expect("no holder panics");
        if session.here().is_none() {
            *session = Session::new(&self.cluster, &self.config);
        }
        Arc::clone(session.here().expect("made here"))
    }

    /// Runs `operation` with the connected client and a name.
    fn with_name<T, F>(
        &self,
        py: Python<'_>,
        how: How<'_>,
        name: &[u8],
        operation: impl FnOnce(braid_client::Client, Name) -> F + Send + 'static,
    ) -> PyResult<Py<PyAny>>
    where
        T: crate::calls::Answer,
        F: Future<Output = braid_client::Result<T>> + Send + 'static,
    {
        let session = self.session();
        let name = parse(name)?;
        run(py, how, async move {
            let client = session.client().await?.clone();
            operation(client, name.clone()).await.map_err(|error| Failure::about(&name, &error))
        })
    }
}

/// The bytes of a file that are to be written: the first, and one past the last. `None`: without an end.
#[derive(FromPyObject)]
struct ToWrite(u64, Option<u64>);

impl ToWrite {
    fn bytes(&self) -> std::ops::Range<u64> {
        self.0..self.1.unwrap_or(u64::MAX)
    }
}

/// Parses a full name, with its volume.
pub(crate) fn parse(text: &[u8]) -> Result<Name, Failure> {
    Name::parse(text).map_err(|error| Failure::no_name(text, &error))
}

fn parse_all(texts: &[Vec<u8>]) -> Result<Vec<Name>, Failure> {
    texts.iter().map(|text| parse(text)).collect()
}

#[pymethods]
impl Client {
    /// Finds the cluster: the one given, else the environment's, else the user's default.
    #[new]
    fn new(
        cluster: Option<PathBuf>,
        volume_keys: BTreeMap<String, String>,
        transport: Option<&str>,
    ) -> PyResult<Client> {
        let asked = cluster.or_else(cluster::from_environment);
        let place = cluster::choose(asked.as_deref()).map_err(Failure::from)?;
        let Some(cluster) = ClusterFile::read(&place).map_err(Failure::from)? else {
            let message = format!(
                "there is no cluster here, as there is no {CLUSTER_FILE}; start one with `braid up --detach`, or name one by \
                 Client(cluster=DIR) or BRAID_CLUSTER"
            );
            return Err(Failure::new(libc::ENOENT, message).at(place.into_os_string()).into());
        };
        let mut config = cluster.config().map_err(|error| {
            Failure::new(libc::EACCES, format!("read the cluster's file: {error}"))
                .at(place.clone().into_os_string())
        })?;
        let no_key = |error: KeyError| Failure::new(libc::EINVAL, error.to_string());
        config.volume_keys = cluster.volume_keys().map_err(no_key)?;
        for (volume, source) in &volume_keys {
            config.volume_keys.insert(volume, KeySource::parse(source).map_err(no_key)?);
        }
        if let Some(transport) = transport {
            let bad = |error: BadTransport| Failure::new(libc::EINVAL, error.to_string());
            config.transport = transport.parse().map_err(bad)?;
        }
        let session = Mutex::new(Session::new(&cluster, &config));
        Ok(Client { place, cluster, config, session })
    }

    /// The directory or file in which the cluster was found.
    #[getter]
    fn cluster(&self) -> PathBuf {
        self.place.clone()
    }

    /// Connects, if it is not yet connected.
    fn connect(&self, py: Python<'_>, how: How<'_>) -> PyResult<Py<PyAny>> {
        let session = self.session();
        run(py, how, async move { session.client().await.map(|_| PythonNone) })
    }

    /// Waits, for some seconds at most, until drives have been told which writes to closed files are
    /// settled.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let here = self.session.lock().expect("no holder panics").here().map(Arc::clone);
        // A session of another process, or one that never connected, has nothing to tell.
        match here.as_ref().and_then(|session| session.connected.get()) {
            Some(client) => wait(py, async {
                client.finish().await;
                Ok(())
            }),
            None => Ok(()),
        }
    }

    fn volumes(&self, py: Python<'_>, how: How<'_>) -> PyResult<Py<PyAny>> {
        let session = self.session();
        run(py, how, async move {
            let rows = session.client().await?.volumes().await?;
            Ok(rows.into_iter().map(Volume::from).collect::<Vec<_>>())
        })
    }

    fn status(&self, py: Python<'_>, how: How<'_>) -> PyResult<Py<PyAny>> {
        let session = self.session();
        run(py, how, async move {
            let client = session.client().await?;
            let status = client.status().await?;
            Ok(Cluster::new(&client.config().managers.leading(), status))
        })
    }

    fn stat(&self, py: Python<'_>, name: &[u8], how: How<'_>) -> PyResult<Py<PyAny>> {
        self.with_name(py, how, name, async |client, name| Ok(facts(client.stat(&name).await?)))
    }

    /// Facts about many names. Returns a list with the facts, or the exception, for each name.
    fn stat_many(&self, py: Python<'_>, names: Vec<Vec<u8>>, how: How<'_>) -> PyResult<Py<PyAny>> {
        let session = self.session();
        let names = parse_all(&names)?;
        run(py, how, async move {
            let rows = session.client().await?.stat_all(&names).await;
            let rows = names
                .iter()
                .zip(rows)
                .map(|(name, row)| Item(row.map(facts).map_err(|error| Failure::about(name, &error))));
            Ok(rows.collect::<Vec<_>>())
        })
    }

    fn list(&self, py: Python<'_>, name: &[u8], how: How<'_>) -> PyResult<Py<PyAny>> {
        self.with_name(py, how, name, async |client, name| {
            let entries = client.list(&name).all().await?;
            Ok(entries.into_iter().map(entry).collect::<Vec<EntryFacts>>())
        })
    }

    /// Runs a method on a file.
    fn run(
        &self,
        py: Python<'_>,
        name: &[u8],
        method: &str,
        arguments: Vec<(String, String)>,
        at: &str,
        progress: Option<Bound<'_, Progress>>,
        how: How<'_>,
    ) -> PyResult<Py<PyAny>> {
        let ask = methods::ask(method, arguments, at, progress.as_ref().map(Bound::get));
        self.with_name(py, how, name, async move |client, name| Ok(Answered(client.run(&name, &ask).await?)))
    }

    fn mkdir(&self, py: Python<'_>, name: &[u8], parents: bool, how: How<'_>) -> PyResult<Py<PyAny>> {
        self.with_name(py, how, name, async move |client, name| {
            let parents = if parents { Parents::Make } else { Parents::MustExist };
            client.mkdir(&name, parents).await.map(|()| PythonNone)
        })
    }

    /// Facts about the object that has this name itself, which may be a symbolic link.
    fn stat_itself(&self, py: Python<'_>, name: &[u8], how: How<'_>) -> PyResult<Py<PyAny>> {
        self.with_name(py, how, name, async |client, name| Ok(facts(client.stat_itself(&name).await?)))
    }

    fn symlink(&self, py: Python<'_>, target: Vec<u8>, name: &[u8], how: How<'_>) -> PyResult<Py<PyAny>> {
        self.with_name(py, how, name, async move |client, name| {
            client.symlink(&target, &name).await.map(|_| PythonNone)
        })
    }

    /// Removes an empty directory if `directory` is true, else anything but a directory.
    fn unlink(&self, py: Python<'_>, name: &[u8], directory: bool, how: How<'_>) -> PyResult<Py<PyAny>> {
        let only = if directory { UnlinkOnly::Directory } else { UnlinkOnly::NotDirectory };
        self.with_name(py, how, name, async move |client, name| {
            client.unlink_only(&name, only).await.map(|()| PythonNone)
        })
    }

    /// Removes files and empty directories. Returns a list with `None`, or the exception, for each name.
    fn unlink_many(&self, py: Python<'_>, names: Vec<Vec<u8>>, how: How<'_>) -> PyResult<Py<PyAny>> {
        let session = self.session();
        let names = parse_all(&names)?;
        run(py, how, async move {
            let removed = session.client().await?.unlink_all(&names).await;
            let removed = names.iter().zip(removed).map(|(name, removed)| {
                Item(removed.map(|()| PythonNone).map_err(|error| Failure::about(name, &error)))
            });
            Ok(removed.collect::<Vec<_>>())
        })
    }

    /// Renames. `replace` allows it to replace an object that has the new name.
    fn rename(
        &self,
        py: Python<'_>,
        from: &[u8],
        to: &[u8],
        replace: bool,
        how: How<'_>,
    ) -> PyResult<Py<PyAny>> {
        let to = parse(to)?;
        let what = if replace { RenameHow::Replace } else { RenameHow::NoReplace };
        self.with_name(py, how, from, async move |client, from| {
            client.rename_how(&from, &to, what).await.map(|()| PythonNone)
        })
    }

    /// Sets attributes: of the object that a symbolic link leads to, or of the link itself.
    fn set_attributes(
        &self,
        py: Python<'_>,
        name: &[u8],
        changes: Changes,
        follow: bool,
        how: How<'_>,
    ) -> PyResult<Py<PyAny>> {
        let changes = attributes::changes(changes);
        self.with_name(py, how, name, async move |client, name| {
            let name = followed(&client, name, follow).await?;
            client.set_attributes(&name, changes).await.map(|_| PythonNone)
        })
    }

    /// Gives a file a second name (a hard link).
    fn link(&self, py: Python<'_>, from: &[u8], to: &[u8], how: How<'_>) -> PyResult<Py<PyAny>> {
        let to = parse(to)?;
        self.with_name(py, how, from, async move |client, from| {
            client.hard_link(&from, &to).await.map(|_| PythonNone)
        })
    }

    /// All extended attributes, as pairs of name and value.
    fn xattrs(&self, py: Python<'_>, name: &[u8], follow: bool, how: How<'_>) -> PyResult<Py<PyAny>> {
        self.with_name(py, how, name, async move |client, name| {
            let xattrs = client.xattrs(&followed(&client, name, follow).await?).await?;
            let pairs = xattrs.into_iter().map(|one| (OsString::from_vec(one.name), Value(one.value)));
            Ok(pairs.collect::<Vec<_>>())
        })
    }

    /// Sets an extended attribute; `expect` is "any", "create" or "replace".
    fn set_xattr(
        &self,
        py: Python<'_>,
        name: &[u8],
        attribute: Vec<u8>,
        value: Vec<u8>,
        expect: &str,
        follow: bool,
        how: How<'_>,
    ) -> PyResult<Py<PyAny>> {
        let expected = match expect {
            "create" => XattrHow::Create,
            "replace" => XattrHow::Replace,
            _ => XattrHow::Any,
        };
        self.with_name(py, how, name, async move |client, name| {
            let name = followed(&client, name, follow).await?;
            client.set_xattr(&name, &attribute, &value, expected).await.map(|()| PythonNone)
        })
    }

    fn remove_xattr(
        &self,
        py: Python<'_>,
        name: &[u8],
        attribute: Vec<u8>,
        follow: bool,
        how: How<'_>,
    ) -> PyResult<Py<PyAny>> {
        self.with_name(py, how, name, async move |client, name| {
            let name = followed(&client, name, follow).await?;
            client.remove_xattr(&name, &attribute).await.map(|()| PythonNone)
        })
    }

    /// The bytes of data that a name's volume can hold in all, and the bytes that still fit.
    fn room(&self, py: Python<'_>, name: &[u8], how: How<'_>) -> PyResult<Py<PyAny>> {
        let session = self.session();
        let name = parse(name)?;
        run(py, how, async move {
            let room = session.client().await?.room(name.volume()).await?;
            let absent = || Failure::new(libc::ENOENT, "there is no such volume").of(&name);
            room.map(|room| (room.bytes, room.free_bytes)).ok_or_else(absent)
        })
    }

    /// Reserves a data rate. With `trial` nothing is booked.
    fn reserve(
        &self,
        py: Python<'_>,
        name: &[u8],
        asked: Asked,
        writes: bool,
        trial: bool,
        how: How<'_>,
    ) -> PyResult<Py<PyAny>> {
        let ask = rates::ask(asked, writes);
        self.with_name(py, how, name, async move |client, name| {
            let reply = client.reserve_rate(&name, &ask, trial).await?;
            let text = name.to_string();
            match (reply.admitted, reply.refused) {
                (Some(row), _) => Ok(Reservation::from(row)),
                (None, Some(refused)) => {
                    Err(braid_client::Error::NotAdmitted { name: text, refused: Box::new(refused) })
                }
                (None, None) => {
                    let why = "a rate was neither admitted nor refused".to_owned();
                    Err(braid_client::Error::Answer { subject: text, why })
                }
            }
        })
    }

    /// All reservations that are in force.
    fn reservations(&self, py: Python<'_>, how: How<'_>) -> PyResult<Py<PyAny>> {
        let session = self.session();
        run(py, how, async move {
            let reply = session.client().await?.reservations().await?;
            Ok(reply.reservations.into_iter().map(Reservation::from).collect::<Vec<_>>())
        })
    }

    /// Ends a reservation.
    fn end_reservation(&self, py: Python<'_>, number: u64, how: How<'_>) -> PyResult<Py<PyAny>> {
        let session = self.session();
        run(py, how, async move {
            let client = session.client().await?;
            Ok(client.end_reservation(ReservationId(number)).await.map(|()| PythonNone)?)
        })
    }

    /// The layout of a file, or of new files in a directory, and where it comes from.
    fn layout(&self, py: Python<'_>, name: &[u8], how: How<'_>) -> PyResult<Py<PyAny>> {
        self.with_name(py, how, name, async |client, name| Ok(InForce::from(client.layout(&name).await?)))
    }

    /// Sets the layout of a directory or of a file that was never written; `None` takes a directory's away.
    fn set_layout(
        &self,
        py: Python<'_>,
        name: &[u8],
        layout: Option<&str>,
        how: How<'_>,
    ) -> PyResult<Py<PyAny>> {
        let shape = layouts::shape(layout)?;
        self.with_name(py, how, name, async move |client, name| {
            client.set_layout(&name, shape).await.map(|()| PythonNone)
        })
    }

    /// Opens a file. `letter` is r, w, a or x; `plus` adds the other kind of access. `layout` is for a file
    /// that is made.
    #[pyo3(signature = (name, letter, plus, reserve, layout, how, range=None))]
    fn open(
        &self,
        py: Python<'_>,
        name: &[u8],
        letter: char,
        plus: bool,
        reserve: Option<Asked>,
        layout: Option<&str>,
        how: How<'_>,
        range: Option<ToWrite>,
    ) -> PyResult<Py<PyAny>> {
        let writes = letter != 'r' || plus;
        let mut options = OpenOptions::new()
            .read(letter == 'r' || plus)
            .write(writes)
            .create(matches!(letter, 'w' | 'a'))
            .create_new(letter == 'x')
            .truncate(letter == 'w')
            .append(letter == 'a');
        if let Some(range) = range {
            options = options.range(range.bytes());
        }
        if let Some(asked) = reserve {
            options = options.reserve(rates::ask(asked, writes));
        }
        if let Some(shape) = layouts::shape(layout)? {
            options = options.shape(shape);
        }
        self.with_name(py, how, name, async move |client, name| {
            let file = client.open(&name, &options).await?;
            Ok(File::new(client, file, Some(name)))
        })
    }

    /// Makes a new file without a name, for writing, which a link is to give this name. If it is closed
    /// without a link, it vanishes. Without a layout it has the one that counts at the name.
    fn create_for(
        &self,
        py: Python<'_>,
        name: &[u8],
        layout: Option<&str>,
        how: How<'_>,
    ) -> PyResult<Py<PyAny>> {
        let shape = layouts::shape(layout)?;
        self.with_name(py, how, name, async move |client, name| {
            let file = client.create_for(&name, shape, &BTreeSet::new()).await?;
            Ok(File::new(client, file, None))
        })
    }

    /// Reads ranges of files: (name, first byte, one past the last or `None` for the file's end). Returns a
    /// list with the bytes, or the exception, for each. If the file is shorter, the bytes are fewer.
    fn read_many(
        &self,
        py: Python<'_>,
        ranges: Vec<(Vec<u8>, u64, Option<u64>)>,
        how: How<'_>,
    ) -> PyResult<Py<PyAny>> {
        let session = self.session();
        let parts = ranges.into_iter().map(|(name, from, to)| Ok(Part { name: parse(&name)?, from, to }));
        let parts = parts.collect::<Result<Vec<_>, Failure>>()?;
        let gate = Gate::of(py);
        run(py, how, async move { many::read(session.client().await?, parts, &gate).await })
    }

    /// Reads files into buffers: (name, first byte, buffer). Returns a list with the number of bytes, or
    /// the exception, for each. The number is less than the buffer's length only at the file's end.
    fn read_into_many(
        &self,
        py: Python<'_>,
        targets: Vec<(Vec<u8>, u64, Bound<'_, PyAny>)>,
        how: How<'_>,
    ) -> PyResult<Py<PyAny>> {
        let session = self.session();
        let targets = targets
            .iter()
            .map(|(name, from, buffer)| Ok((parse(name)?, *from, Writable::of(buffer)?)))
            .collect::<PyResult<Vec<_>>>()?;
        run(py, how, async move { many::read_into(session.client().await?, targets).await })
    }

    /// Writes whole files: (name, content). Each file appears at once, or stays as it was. Returns a list
    /// with `None`, or the exception, for each. `replace` allows a file to replace one that exists;
    /// `parents` makes missing directories.
    fn write_many(
        &self,
        py: Python<'_>,
        files: Vec<(Vec<u8>, Bound<'_, PyAny>)>,
        replace: bool,
        parents: bool,
        how: How<'_>,
    ) -> PyResult<Py<PyAny>> {
        let session = self.session();
        let files = files
            .iter()
            .map(|(name, content)| Ok((parse(name)?, Buffer::of(content)?)))
            .collect::<PyResult<Vec<_>>>()?;
        let how_to = many::HowToWrite { replace, parents };
        run(py, how, async move { many::write(session.client().await?, files, how_to).await })
    }
}
