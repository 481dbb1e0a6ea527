//! A client of a cluster: the connection, and the runtime that carries its requests on.

use std::ffi::{c_char, c_int};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use braid_client::Config;
use braid_client::VolumeKeys;
use braid_client::cluster::{self, CLUSTER_FILE, ClusterFile};
use tokio::runtime::{Builder, Runtime};

use crate::calls::answer;
use crate::errors::{self, Failure};
use crate::memory::{self, Text};
use crate::process::OfProcess;
use crate::signals::Held;

/// Maximum number of threads that carry requests on. The caller's own thread does the work on its bytes.
const WORKERS_MAX: usize = 8;

/// Time for a client's threads to end.
const ENDING_MAX: Duration = Duration::from_secs(2);

/// A client of one cluster. Any number of threads may use it at once.
#[derive(Debug)]
pub struct Client {
    shared: OfProcess<Arc<Shared>>,
}

/// The connection that a client, its files and its requests share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// `None` while it is dropped.
    runtime: Option<Runtime>,
    client: Option<braid_client::Client>,
    pub(crate) finished: Arc<Finished>,
}

/// The number of requests that are done, by which those who wait see that there is something new.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    pub(crate) count: Mutex<u64>,
    pub(crate) more: Condvar,
}

impl Shared {
    fn connect(cluster: &ClusterFile, config: Config) -> Result<Shared, Failure> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // Threads begin with the signal mask of the one that starts them.
        let held = Held::all();
        let runtime = Builder::new_multi_thread()
            .worker_threads(cores.min(WORKERS_MAX))
            .thread_name("braid")
            .on_thread_start(Held::all_for_good)
            .enable_all()
            .build()
            .map_err(|error| Failure::system("start threads", &error))?;
        drop(held);
        let client = runtime.block_on(async {
            let looked = cluster.look_for_manager().await;
            looked.map_err(|error| Failure::no_manager(&cluster.manager, &error))?;
            Ok::<_, Failure>(braid_client::Client::connect(config).await?)
        })?;
        Ok(Shared { runtime: Some(runtime), client: Some(client), finished: Arc::default() })
    }

    pub(crate) fn client(&self) -> &braid_client::Client {
        self.client.as_ref().expect("it is there until it is dropped")
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is there until it is dropped")
    }

    /// Waits for an operation, in the calling thread.
    pub(crate) fn wait<T>(&self, operation: impl Future<Output = T>) -> T {
        self.runtime().block_on(operation)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        {
            let _context = runtime.enter();
            drop(self.client.take());
        }
        runtime.shutdown_timeout(ENDING_MAX);
    }
}

impl Client {
    /// The connection of the client that a pointer from C leads to.
    pub(crate) fn of(client: Option<&Client>) -> Result<&Arc<Shared>, Failure> {
        client.ok_or_else(|| Failure::null("the client"))?.shared.here()
    }

    fn made(shared: Shared) -> Box<Client> {
        Box::new(Client { shared: OfProcess::new(Arc::new(shared)) })
    }
}

/// The library's version, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn braid_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// The message of this thread's last call that failed: what was wrong, and where something can be done,
/// what. It stays until the thread's next call that fails; "" if none has failed yet.
#[unsafe(no_mangle)]
pub extern "C" fn braid_error() -> *const c_char {
    errors::last()
}

/// Connects to a cluster: a directory made by `braid up`, or a cluster.toml. With NULL it is the one that
/// BRAID_CLUSTER names, else the user's own. Fails in seconds if no manager is there. The client is ended by
/// braid_disconnect.
#[unsafe(no_mangle)]
pub extern "C" fn braid_connect(cluster: Text) -> Option<Box<Client>> {
    answer(None, || {
        let asked = cluster.path().map(Path::to_owned).or_else(cluster::from_environment);
        let place = cluster::choose(asked.as_deref())?;
        let Some(cluster) = ClusterFile::read(&place)? else {
            let message = format!(
                "{}: there is no cluster here, as there is no {CLUSTER_FILE}; start one with `braid up --detach`, or name \
                 one by BRAID_CLUSTER",
                place.display()
            );
            return Err(Failure::new(libc::ENOENT, message));
        };
        let mut config = cluster
            .config()
            .map_err(|error| Failure::new(libc::EACCES, format!("read {}: {error}", place.display())))?;
        config.volume_keys = cluster.volume_keys().map_err(|error| Failure::invalid(error.to_string()))?;
        Shared::connect(&cluster, config).map(|shared| Some(Client::made(shared)))
    })
}

/// Connects to the managers at these addresses, HOST:PORT with commas between, with a token of the cluster.
/// Keys of encrypted volumes come from the environment (BRAID_VOLUME_KEYS).
#[unsafe(no_mangle)]
pub extern "C" fn braid_connect_token(managers: Text, token: Text) -> Option<Box<Client>> {
    answer(None, || {
        let needed = |text: Option<&str>, what| text.map(str::to_owned).ok_or_else(|| Failure::null(what));
        let cluster = ClusterFile {
            manager: needed(managers.text("the managers' addresses")?, "the managers' addresses")?,
            token: needed(token.text("the token")?, "the token")?,
            drives: Vec::new(),
            transport: None,
            volume_keys: std::collections::BTreeMap::new(),
        };
        let mut config = cluster.config().map_err(|error| Failure::invalid(error.to_string()))?;
        config.volume_keys =
            VolumeKeys::from_environment().map_err(|error| Failure::invalid(error.to_string()))?;
        Shared::connect(&cluster, config).map(|shared| Some(Client::made(shared)))
    })
}

/// Ends a client, which is not used again; NULL is allowed. Files, directories and requests that it made are
/// closed and waited for before: they keep the connection until then.
#[unsafe(no_mangle)]
pub extern "C" fn braid_disconnect(client: Option<Box<Client>>) -> c_int {
    answer(-1, || {
        let Some(client) = client else { return Ok(0) };
        let shared = client.shared.here()?;
        shared.wait(shared.client().finish());
        Ok(0)
    })
}

/// A volume. Fields that later versions add take the place of `reserved`.
#[repr(C)]
#[derive(Debug)]
pub struct Volume {
    /// Its name, with a NUL behind it.
    name: [c_char; 72],
    /// The layout of new files, such as "raid5 4+1", with a NUL behind it; "": the manager's default.
    layout: [c_char; 48],
    /// Bytes of a unit of new files.
    unit_bytes: u64,
    /// Maximum sum of its files' sizes, in bytes; 0: no quota.
    quota_bytes: u64,
    /// Sum of its files' sizes, in bytes.
    file_bytes: u64,
    /// Number of its files.
    files: u64,
    /// Zeros, for later versions.
    reserved: [u64; 4],
}

/// The first of C's places for volumes, or null.
#[repr(transparent)]
#[derive(Debug)]
pub struct Volumes(*mut Volume);

/// The volumes, by name: as many as there is room for are put to `rows`. Returns how many there are.
#[unsafe(no_mangle)]
pub extern "C" fn braid_volumes(client: Option<&Client>, rows: Volumes, room: usize) -> libc::ssize_t {
    answer(-1, || {
        let shared = Client::of(client)?;
        let all = shared.wait(shared.client().volumes())?;
        let count = libc::ssize_t::try_from(all.len()).unwrap_or(libc::ssize_t::MAX);
        let row = |row: braid_wire::control::VolumeRow| Volume {
            name: filled(&row.name),
            layout: filled(&row.shape.shape().map_or_else(|_| String::new(), |shape| shape.to_string())),
            unit_bytes: row.shape.unit_bytes.into(),
            quota_bytes: row.quota_bytes,
            file_bytes: row.file_bytes,
            files: row.files,
            reserved: [0; 4],
        };
        // SAFETY: C says that there is room for so many rows.
        unsafe { memory::fill(rows.0, room, all.into_iter().map(row)) }?;
        Ok(count)
    })
}

/// A text in a field of a row, cut to what the field holds before its last NUL.
fn filled<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (place, byte) in field.iter_mut().take(N - 1).zip(text.bytes()) {
        *place = c_char::from_ne_bytes([byte]);
    }
    field
}
