//! The parent: hands tasks to children, bounds their time, and kills those that take too long.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use braid_methods::{Engine, EngineError, Module, ModuleKind, Task};
use rustix::net::sockopt::{set_socket_send_buffer_size, set_socket_send_buffer_size_force};

use crate::talk::{Ask, Asked, Told, parts, short};

/// Longest time of a task, and of a start.
const TASK_TIME: Duration = Duration::from_secs(5);
/// Longest time in which a module is compiled.
const COMPILE_TIME: Duration = Duration::from_secs(6);
/// Longest wait for a child that is free.
const WAIT: Duration = Duration::from_secs(6);
/// Bytes that may be on their way to a child: a piece of a file, and what the system counts beside it.
const SENT_BYTES: usize = 1 << 20;
/// Modules that one child has compiled at most: they stay in its memory.
const MODULES_MAX: usize = 8;
/// Time after which a child is replaced, as its processor time is bounded.
const WORKED: Duration = Duration::from_secs(300);

/// The program that is started as a child, and calls [`work`](crate::work()).
#[derive(Debug, Clone)]
pub struct Worker {
    /// The program's file.
    pub program: PathBuf,
    /// The arguments of the program.
    pub arguments: Vec<OsString>,
    /// Its environment, which has nothing else.
    pub environment: Vec<(OsString, OsString)>,
}

/// An engine whose modules run in children.
pub struct Sandbox {
    worker: Worker,
    /// Longest time of a task.
    task_time: Duration,
    children_max: usize,
    pool: Mutex<Pool>,
    freed: Condvar,
}

#[derive(Default)]
struct Pool {
    idle: Vec<Running>,
    busy: usize,
}

/// A child that has said that it is locked down.
struct Running {
    child: Child,
    socket: UnixStream,
    modules: Vec<[u8; 32]>,
    worked: Duration,
}

/// A socket until a moment.
struct Until<'a> {
    socket: &'a UnixStream,
    end: Instant,
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").field("worker", &self.worker).finish_non_exhaustive()
    }
}

impl Sandbox {
    /// An engine with as many children at most as there are processors. None is started yet.
    pub fn new(worker: Worker) -> Sandbox {
        let children_max = std::thread::available_parallelism().map_or(1, usize::from);
        Sandbox { worker, task_time: TASK_TIME, children_max, pool: Mutex::default(), freed: Condvar::new() }
    }

    /// The same with another bound on the time of a task.
    #[must_use]
    pub fn task_time(self, task_time: Duration) -> Sandbox {
        Sandbox { task_time, ..self }
    }

    /// Numbers of the processes that wait for work.
    pub fn idle(&self) -> Vec<u32> {
        self.pool().idle.iter().map(|running| running.child.id()).collect()
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A child, if possible one that has the module.
    fn child(&self, module: &Module) -> Result<Running, EngineError> {
        let end = Instant::now() + WAIT;
        let mut pool = self.pool();
        while pool.busy >= self.children_max {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(EngineError::Unavailable("all processes for modules are busy".to_owned()));
            }
            pool = self.freed.wait_timeout(pool, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        pool.busy += 1;
        loop {
            let known = pool.idle.iter().position(|running| running.modules.contains(&module.hash()));
            let has_room = |running: &Running| running.modules.len() < MODULES_MAX;
            let Some(at) = known.or_else(|| pool.idle.iter().position(has_room)) else { break };
            let mut running = pool.idle.swap_remove(at);
            // It may have been killed as it waited, as when memory is scarce.
            if matches!(running.child.try_wait(), Ok(None)) {
                return Ok(running);
            }
        }
        let full = pool.busy + pool.idle.len() > self.children_max;
        let ended = if full { pool.idle.pop() } else { None };
        drop(pool);
        drop(ended);
        let started = Running::start(&self.worker, self.task_time);
        started.map_err(|why| {
            self.free(None);
            EngineError::Unavailable(format!("the process for modules does not start: {why}"))
        })
    }

    fn free(&self, running: Option<Running>) {
        let mut pool = self.pool();
        pool.busy -= 1;
        pool.idle.extend(running.filter(|running| running.worked < WORKED));
        self.freed.notify_one();
    }

    /// Has a child that has loaded the module do `then`.
    fn with<T>(
        &self,
        module: &Module,
        then: impl FnOnce(&mut Running, ModuleKind) -> io::Result<Result<T, String>>,
    ) -> Result<T, EngineError> {
        let mut running = self.child(module)?;
        let began = Instant::now();
        let loaded = match module.known_kind() {
            Some(kind) if running.modules.contains(&module.hash()) => Ok(Ok(kind)),
            _ => running.load(module),
        };
        let done = match loaded {
            Ok(Ok(kind)) => then(&mut running, kind),
            Ok(Err(why)) => Ok(Err(why)),
            Err(error) => Err(error),
        };
        running.worked += began.elapsed();
        match done {
            Ok(result) => {
                self.free(Some(running));
                result.map_err(EngineError::Failed)
            }
            Err(error) => {
                let why = running.end(&error);
                self.free(None);
                Err(EngineError::Failed(why))
            }
        }
    }
}

impl Engine for Sandbox {
    fn look(&self, module: &Module) -> Result<ModuleKind, EngineError> {
        self.with(module, |_, kind| Ok(Ok(kind)))
    }

    fn run(&self, module: &Module, task: &Task<'_>) -> Result<Vec<Vec<u8>>, EngineError> {
        self.with(module, |running, _| running.run(module, task, self.task_time))
    }
}

impl Running {
    fn start(worker: &Worker, time: Duration) -> Result<Running, String> {
        let start = || {
            let (socket, theirs) = UnixStream::pair()?;
            // A whole piece on its way costs fewer turns of both processes. If the system does not let it be
            // so large, it is as large as may be.
            if set_socket_send_buffer_size_force(&socket, SENT_BYTES).is_err() {
                set_socket_send_buffer_size(&socket, SENT_BYTES)?;
            }
            let mut command = Command::new(&worker.program);
            command.arg0("braid-module").args(&worker.arguments).env_clear().current_dir("/");
            command.envs(worker.environment.iter().map(|(name, value)| (name, value)));
            command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
            Ok::<_, io::Error>((command.spawn()?, socket))
        };
        let (child, socket) = start().map_err(|error| error.to_string())?;
        let mut running = Running { child, socket, modules: Vec::new(), worked: Duration::ZERO };
        match running.told(time) {
            Ok(Told::Ready) => Ok(running),
            Ok(Told::Failed(why)) => Err(why),
            Ok(_) => Err("it says something else".to_owned()),
            Err(error) => Err(running.end(&error)),
        }
    }

    fn until(&self, time: Duration) -> Until<'_> {
        Until { socket: &self.socket, end: Instant::now() + time }
    }

    fn told(&mut self, time: Duration) -> io::Result<Told> {
        Told::receive(&mut self.until(time))
    }

    fn load(&mut self, module: &Module) -> io::Result<Result<ModuleKind, String>> {
        let mut until = self.until(COMPILE_TIME);
        Ask::Load(module.hash(), short(module.bytes().len())).send(&mut until)?;
        until.write_all(module.bytes())?;
        match Told::receive(&mut until)? {
            Told::Loaded(kind) => {
                self.modules.push(module.hash());
                Ok(Ok(kind))
            }
            Told::Failed(why) => Ok(Err(why)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn run(
        &mut self,
        module: &Module,
        task: &Task<'_>,
        time: Duration,
    ) -> io::Result<Result<Vec<Vec<u8>>, String>> {
        let mut until = self.until(time);
        Ask::Run(Asked::of(module.hash(), task)).send(&mut until)?;
        task.partials.iter().try_for_each(|bytes| until.write_all(bytes))?;
        task.blocks.iter().try_for_each(|block| until.write_all(block.bytes))?;
        match Told::receive(&mut until)? {
            Told::Done(lengths) => Ok(Ok(parts(&mut until, &lengths)?)),
            Told::Failed(why) => Ok(Err(why)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Kills the child. Returns what it died of.
    fn end(mut self, error: &io::Error) -> String {
        use io::ErrorKind::{InvalidData, TimedOut, WouldBlock};
        // Who has ended says so at once; the others are killed.
        let told = match error.kind() {
            TimedOut | WouldBlock => Some("it took too long, and its process was killed".to_owned()),
            InvalidData => Some("its process says what nobody understands, and was killed".to_owned()),
            _ => None,
        };
        if told.is_some() {
            let _ = self.child.kill();
        }
        let waited = self.child.wait();
        told.unwrap_or_else(|| match waited.map(|status| (status.signal(), status)) {
            Ok((Some(libc::SIGSYS), _)) => {
                "its process was ended, as it asked the system for what it may not have".to_owned()
            }
            Ok((Some(signal), _)) => format!("its process was ended by signal {signal}"),
            Ok((None, status)) => format!("its process ended with {status}"),
            Err(error) => format!("its process is lost: {error}"),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Until<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Until<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        self.socket.read(into)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
