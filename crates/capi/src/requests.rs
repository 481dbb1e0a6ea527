//! Requests that run while the program does something else, and waits for them.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use braid_client::Error;

use crate::calls::answer;
use crate::client::Shared;
use crate::errors::Failure;
use crate::file::{File, Held, Opened};
use crate::list::{self, Part};
use crate::memory::{self, Extents};
use crate::process::OfProcess;
use crate::transfer::returned;

/// A request under way, or done and not yet waited for.
#[derive(Debug)]
pub struct Request {
    running: OfProcess<Running>,
}

#[derive(Debug)]
struct Running {
    shared: Arc<Shared>,
    outcome: Arc<Outcome>,
}

/// The result; `None`: not yet.
#[derive(Debug, Default)]
struct Outcome(Mutex<Option<Result<usize, Failure>>>);

impl Outcome {
    fn slot(&self) -> MutexGuard<'_, Option<Result<usize, Failure>>> {
        self.0.lock().expect("no holder panics")
    }
}

/// Says that a request is done, also if it panics.
struct Finishing {
    /// The client's count, without the client: its last holder ends the runtime, which none of the runtime's
    /// own threads may do.
    finished: Arc<crate::client::Finished>,
    outcome: Arc<Outcome>,
}

impl Drop for Finishing {
    fn drop(&mut self) {
        let ended = || Err(Failure::new(libc::EIO, "the request was ended before it was done"));
        self.outcome.slot().get_or_insert_with(ended);
        let mut count = self.finished.count.lock().expect("no holder panics");
        *count = count.wrapping_add(1);
        self.finished.more.notify_all();
    }
}

/// Begins an operation on a file, which stays open until it is done.
fn submit<F>(opened: &Opened, operation: impl FnOnce(Arc<Held>) -> F) -> Result<Box<Request>, Failure>
where
    F: Future<Output = Result<usize, Error>> + Send + 'static,
{
    let file = Arc::new(opened.hold()?);
    let shared = Arc::clone(&opened.shared);
    let outcome = Arc::new(Outcome::default());
    let finishing = Finishing { finished: Arc::clone(&shared.finished), outcome: Arc::clone(&outcome) };
    let operation = operation(Arc::clone(&file));
    shared.runtime().spawn(async move {
        let result = operation.await;
        *finishing.outcome.slot() = Some(result.map_err(Failure::from));
        // Who closes the file finds the request done.
        drop(finishing);
        drop(file);
    });
    Ok(Box::new(Request { running: OfProcess::new(Running { shared, outcome }) }))
}

fn submit_list(file: Option<&File>, parts: Vec<Part>, writes: bool) -> Result<Option<Box<Request>>, Failure> {
    list::total(&parts)?;
    submit(File::of(file)?, |file| async move { list::transfer(&file, parts, writes).await }).map(Some)
}

impl Running {
    fn is_done(&self) -> bool {
        self.outcome.slot().is_some()
    }

    /// Waits until one of the requests is done, or the time is over. All are of one client.
    fn any(requests: &[&Running], end: Option<Instant>) -> Option<usize> {
        let finished = &requests.first()?.shared.finished;
        let mut count = finished.count.lock().expect("no holder panics");
        loop {
            if let Some(at) = requests.iter().position(|running| running.is_done()) {
                return Some(at);
            }
            count = match end {
                None => finished.more.wait(count).expect("no holder panics"),
                Some(end) => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    let waited = finished.more.wait_timeout(count, left).expect("no holder panics");
                    waited.0
                }
            };
        }
    }
}

/// Begins what braid_read_list does, and returns at once. The list is copied; the memory stays, and is left
/// alone, until braid_wait has returned. NULL on failure.
#[unsafe(no_mangle)]
pub extern "C" fn braid_submit_read(
    file: Option<&File>,
    list: Extents,
    count: usize,
) -> Option<Box<Request>> {
    answer(None, || submit_list(file, list.all(count)?, false))
}

/// Begins what braid_write_list does, and returns at once. The list is copied; the memory stays, and is not
/// changed, until braid_wait has returned. NULL on failure.
#[unsafe(no_mangle)]
pub extern "C" fn braid_submit_write(
    file: Option<&File>,
    list: Extents,
    count: usize,
) -> Option<Box<Request>> {
    answer(None, || submit_list(file, list.all(count)?, true))
}

/// Begins what braid_sync does, and returns at once. It commits what was written before: wait for the writes
/// first. NULL on failure.
#[unsafe(no_mangle)]
pub extern "C" fn braid_submit_sync(file: Option<&File>) -> Option<Box<Request>> {
    answer(None, || submit(File::of(file)?, |file| async move { file.flush().await.map(|()| 0) }).map(Some))
}

/// Returns 1 if a request is done, 0 if it is not, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn braid_done(request: Option<&Request>) -> c_int {
    answer(-1, || {
        let request = request.ok_or_else(|| Failure::null("the request"))?;
        Ok(c_int::from(request.running.here()?.is_done()))
    })
}

/// Waits for a request and ends it, whatever it returns: what the call would have returned, with its errno.
/// Each request is waited for once, by one thread.
#[unsafe(no_mangle)]
pub extern "C" fn braid_wait(request: Option<Box<Request>>) -> libc::ssize_t {
    answer(-1, || {
        let request = request.ok_or_else(|| Failure::null("the request"))?;
        let running = request.running.here()?;
        Running::any(&[running], None);
        let result = running.outcome.slot().take();
        result.unwrap_or_else(|| Err(Failure::invalid("the request was waited for before"))).map(returned)
    })
}

/// The first of C's pointers to requests, or null.
#[repr(transparent)]
#[derive(Debug)]
pub struct Requests(*const *const Request);

/// Waits until one of these requests is done, and returns its index; which then is for braid_wait. All are of
/// one client. Places that are NULL are passed over. A negative time is for ever; after it the call fails
/// with ETIMEDOUT.
#[unsafe(no_mangle)]
pub extern "C" fn braid_wait_any(requests: Requests, count: usize, timeout_ms: c_int) -> libc::ssize_t {
    answer(-1, || {
        // SAFETY: C says that `count` pointers are there, and that each is null or leads to a request that
        // was not ended. They stay during the call.
        let all: Vec<Option<&Request>> = unsafe { memory::pointers(requests.0, count) }?;
        let mut places = Vec::new();
        let mut running = Vec::new();
        for (place, request) in all.iter().enumerate() {
            let Some(request) = request else { continue };
            places.push(place);
            running.push(request.running.here()?);
        }
        let Some(first) = running.first() else {
            return Err(Failure::invalid("there is no request to wait for"));
        };
        if running.iter().any(|one| !Arc::ptr_eq(&one.shared, &first.shared)) {
            return Err(Failure::invalid("the requests are of several clients: wait for those of one"));
        }
        let bound = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        let end = bound.and_then(|bound| Instant::now().checked_add(bound));
        let done = Running::any(&running, end).ok_or_else(|| {
            Failure::new(libc::ETIMEDOUT, format!("no request was done in {timeout_ms} ms"))
        })?;
        Ok(returned(places[done]))
    })
}
