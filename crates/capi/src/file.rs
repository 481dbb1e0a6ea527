//! Open files: opening, closing, sizes. Their bytes are moved in `transfer` and `requests`.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use braid_client::{Error, RateAsk};
use braid_layout::Shape;
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use crate::calls::answer;
use crate::client::{Client, Shared};
use crate::errors::Failure;
use crate::memory::{Text, put};
use crate::names::{new_attributes, parse};
use crate::process::OfProcess;
use crate::stat::Stat;

/// An open file. Any number of threads may use it at once; it has no position.
#[derive(Debug)]
pub struct File {
    opened: OfProcess<Opened>,
}

/// A file and the client that it came from.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) shared: Arc<Shared>,
    /// The file. Who uses it holds the lock for reading; who closes it takes it out.
    file: Arc<RwLock<Option<braid_client::File>>>,
}

/// A file in use. Closing the file waits until it is released.
pub(crate) type Held = OwnedRwLockReadGuard<Option<braid_client::File>, braid_client::File>;

impl Opened {
    /// The file, which stays open as long as it is held.
    pub(crate) fn hold(&self) -> Result<Held, Failure> {
        // The lock is taken for writing only to close the file.
        let held = Arc::clone(&self.file).try_read_owned().map_err(|_| Failure::closed())?;
        OwnedRwLockReadGuard::try_map(held, Option::as_ref).map_err(|_| Failure::closed())
    }

    /// Waits for an operation on the file.
    pub(crate) fn wait<T>(
        &self,
        operation: impl AsyncFnOnce(&braid_client::File) -> Result<T, Error>,
    ) -> Result<T, Failure> {
        let file = self.hold()?;
        Ok(self.shared.wait(operation(&file))?)
    }
}

impl File {
    /// The file that a pointer from C leads to.
    pub(crate) fn of(file: Option<&File>) -> Result<&Opened, Failure> {
        file.ok_or_else(|| Failure::null("the file"))?.opened.here()
    }
}

/// Options for opening a file. Zeros are the defaults: fill it with zeros, and set what is asked for.
#[repr(C)]
#[derive(Debug)]
pub struct OpenOptions {
    /// The layout of a new file, such as "raid5 4+1 unit=64K"; NULL: that of the directory or volume.
    layout: Text,
    /// Permission bits of a new file; 0: 0644.
    mode: u32,
    /// Number of drives that may be lost while the reserved rate is kept.
    rate_survive: u32,
    /// The bytes that are written, if only a range of the file is: its first byte, a multiple of
    /// braid_stripe_bytes. While all writers of a file name ranges, none of which have a stripe in common,
    /// each writes as fast as if the file were its own.
    range_from: u64,
    /// One past the range's last byte; UINT64_MAX: without an end; 0: the whole file is written.
    range_to: u64,
    /// Data rate to reserve while the file is open, in bytes a second; 0: none. If it cannot be kept opening
    /// fails with EAGAIN, and the message has what can be had instead.
    rate: u64,
    /// Seconds for which the rate is reserved at most; 0: 3600.
    rate_seconds: u32,
    /// Milliseconds in which a period's bytes have arrived; 0: 100.
    rate_period_ms: u32,
    /// Zeros, for later versions.
    reserved: [u64; 8],
}

/// Permission bits of a new file whose creator names none.
const FILE_MODE: u32 = 0o644;
/// Flags of open(2) that change nothing here.
const WITHOUT_EFFECT: c_int = libc::O_CLOEXEC | libc::O_LARGEFILE | libc::O_NOCTTY | libc::O_SYNC;
/// Flags that are heeded.
const HEEDED: c_int = libc::O_ACCMODE | libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC;

/// The client's options for C's flags and options.
fn options(flags: c_int, asked: Option<&OpenOptions>) -> Result<braid_client::OpenOptions, Failure> {
    let unknown = flags & !(HEEDED | WITHOUT_EFFECT);
    if unknown != 0 {
        return Err(Failure::invalid(format!(
            "flags {unknown:#o} are not known: O_RDONLY, O_WRONLY, O_RDWR, O_CREAT, O_EXCL and O_TRUNC are; to write at \
             the end there is braid_append"
        )));
    }
    let access = flags & libc::O_ACCMODE;
    let writes = access == libc::O_WRONLY || access == libc::O_RDWR;
    let is_on = |flag| flags & flag != 0;
    let mut options = braid_client::OpenOptions::new()
        .read(access == libc::O_RDONLY || access == libc::O_RDWR)
        .write(writes)
        .create(is_on(libc::O_CREAT))
        .create_new(is_on(libc::O_CREAT) && is_on(libc::O_EXCL))
        .truncate(is_on(libc::O_TRUNC));
    let Some(asked) = asked else { return Ok(options.new_attributes(new_attributes(FILE_MODE))) };
    if asked.reserved != [0; 8] {
        return Err(Failure::invalid(
            "the reserved fields of the options are not zero: fill the struct with zeros first",
        ));
    }
    let mode = if asked.mode == 0 { FILE_MODE } else { asked.mode & braid_wire::control::MODE_MAX };
    options = options.new_attributes(new_attributes(mode));
    if let Some(text) = asked.layout.text("the layout")? {
        let shape = Shape::from_text(text);
        options =
            options.shape(shape.map_err(|error| Failure::invalid(format!("layout {text:?}: {error}")))?);
    }
    if asked.range_to != 0 {
        options = options.range(asked.range_from..asked.range_to);
    } else if asked.range_from != 0 {
        return Err(Failure::invalid("range_from is set and range_to is not: UINT64_MAX is for no end"));
    }
    if asked.rate != 0 {
        options = options.reserve(rate(asked, writes)?);
    }
    Ok(options)
}

fn rate(asked: &OpenOptions, writes: bool) -> Result<RateAsk, Failure> {
    let duration =
        Duration::from_secs(if asked.rate_seconds == 0 { 3600 } else { asked.rate_seconds.into() });
    let ask = if writes { RateAsk::write(asked.rate, duration) } else { RateAsk::read(asked.rate, duration) };
    let survive = u8::try_from(asked.rate_survive)
        .map_err(|_| Failure::invalid(format!("rate_survive is {}: 255 is the most", asked.rate_survive)))?;
    let period_ms = if asked.rate_period_ms == 0 { ask.period_ms } else { asked.rate_period_ms };
    Ok(RateAsk { survive, period_ms, ..ask })
}

/// Opens a file, "braid://VOLUME/PATH". The flags are O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL and
/// O_TRUNC, of fcntl.h; the options may be NULL. The file is closed by braid_close.
#[unsafe(no_mangle)]
pub extern "C" fn braid_open(
    client: Option<&Client>,
    name: Text,
    flags: c_int,
    options: Option<&OpenOptions>,
) -> Option<Box<File>> {
    answer(None, || {
        let shared = Client::of(client)?;
        let name = parse(&name)?;
        let options = self::options(flags, options)?;
        let file = shared.wait(shared.client().open(&name, &options))?;
        let file = Arc::new(RwLock::new(Some(file)));
        let opened = Opened { shared: Arc::clone(shared), file };
        Ok(Some(Box::new(File { opened: OfProcess::new(opened) })))
    })
}

/// Closes a file, whatever it returns; NULL is allowed. Waits for requests that are under way, and commits
/// the size.
#[unsafe(no_mangle)]
pub extern "C" fn braid_close(file: Option<Box<File>>) -> c_int {
    answer(-1, || {
        let Some(file) = file else { return Ok(0) };
        let Opened { shared, file } = file.opened.here()?;
        shared.wait(async {
            let file = file.write().await.take().ok_or_else(Failure::closed)?;
            Ok::<_, Failure>(file.close().await?)
        })?;
        Ok(0)
    })
}

/// Commits the size, so that others see it. The bytes are durable already when a write returns.
#[unsafe(no_mangle)]
pub extern "C" fn braid_sync(file: Option<&File>) -> c_int {
    answer(-1, || {
        let opened = File::of(file)?;
        opened.wait(async |file| file.flush().await).map(|()| 0)
    })
}

/// Facts about an open file; the size has this program's own writes.
#[unsafe(no_mangle)]
pub extern "C" fn braid_fstat(file: Option<&File>, stat: Option<&mut MaybeUninit<Stat>>) -> c_int {
    answer(-1, || {
        let opened = File::of(file)?;
        let row = opened.wait(async |file| file.stat().await)?;
        put(stat, "the place for facts", Stat::of(row.file.0, &row.attributes))?;
        Ok(0)
    })
}

/// Sets the size of an open file. What is cut off is gone; what is added reads as zeros.
#[unsafe(no_mangle)]
pub extern "C" fn braid_ftruncate(file: Option<&File>, size: u64) -> c_int {
    answer(-1, || {
        let opened = File::of(file)?;
        opened.wait(async |file| file.set_len(size).await).map(|()| 0)
    })
}

/// Bytes of a stripe of the file: writes of whole multiples of them, from such a multiple on, cost least, and
/// ranges begin at one. Returns 0 on failure.
#[unsafe(no_mangle)]
pub extern "C" fn braid_stripe_bytes(file: Option<&File>) -> u64 {
    answer(0, || {
        let opened = File::of(file)?;
        opened.hold().map(|file| file.stripe_bytes())
    })
}

/// The account of a reserved rate.
#[repr(C)]
#[derive(Debug)]
pub struct Lateness {
    /// Bytes that were delivered.
    bytes: u64,
    /// Periods in which something was asked for.
    periods: u64,
    /// Periods that were late, but for pauses.
    late_periods: u64,
    /// Most lateness, in nanoseconds.
    worst_ns: u64,
    /// Periods that were late by a drive's death, within the stated pause.
    paused_periods: u64,
    /// Most lateness in these, in nanoseconds.
    worst_pause_ns: u64,
    /// Zeros, for later versions.
    reserved: [u64; 4],
}

/// Tells how the reserved rate was kept so far. Returns 1, 0 if the file has none, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn braid_lateness(file: Option<&File>, lateness: Option<&mut MaybeUninit<Lateness>>) -> c_int {
    answer(-1, || {
        let opened = File::of(file)?;
        let Some(of) = opened.hold()?.lateness() else { return Ok(0) };
        let told = Lateness {
            bytes: of.bytes,
            periods: of.periods,
            late_periods: of.periods_late,
            worst_ns: of.worst_ns,
            paused_periods: of.periods_paused,
            worst_pause_ns: of.paused_worst_ns,
            reserved: [0; 4],
        };
        put(lateness, "the place for the account", told)?;
        Ok(1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> OpenOptions {
        #[expect(unsafe_code, reason = "C fills it with zeros")]
        // SAFETY: all its fields are numbers and pointers, of which zero is a value.
        unsafe {
            std::mem::zeroed()
        }
    }

    fn check(flags: c_int, asked: &OpenOptions, expected: &str) {
        let refused = options(flags, Some(asked)).expect_err(expected);
        assert_eq!(refused.errno(), libc::EINVAL);
        assert!(format!("{refused:?}").contains(expected), "{refused:?}");
    }

    #[test]
    fn options_that_cannot_be_are_named() {
        assert!(options(libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC, Some(&asked())).is_ok());
        assert!(options(libc::O_RDONLY, None).is_ok());
        check(libc::O_WRONLY | libc::O_APPEND, &asked(), "braid_append");
        check(libc::O_WRONLY, &OpenOptions { reserved: [0, 0, 1, 0, 0, 0, 0, 0], ..asked() }, "reserved");
        check(libc::O_WRONLY, &OpenOptions { range_from: 1, ..asked() }, "range_to");
        check(libc::O_WRONLY, &OpenOptions { rate: 1, rate_survive: 256, ..asked() }, "255");
    }
}
