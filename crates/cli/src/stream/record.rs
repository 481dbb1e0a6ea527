//! `braid stream record`: sources that are stored at their rate.

use std::ffi::{OsStr, OsString};
use std::fs::File as LocalFile;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use braid_client::{Client, Kind, Name, OpenOptions, Parents};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::copy::target::pipe_file;
use crate::files::names::{Location, show_remote};
use crate::output::exit::{Doing, Failure};
use crate::stream::account::Plan;
use crate::stream::run::{Run, drained, finished};

/// Most bytes of one read of a source.
const READ_BYTES: usize = 256 << 10;
/// Most reads of a source that wait to be stored.
const READS_WAITING: usize = 4;

/// A source and the file that it goes to.
#[derive(Debug, Clone)]
pub(super) struct Take {
    source: Source,
    name: Name,
}

/// A place that bytes come from.
#[derive(Debug, Clone)]
enum Source {
    Input,
    Path(PathBuf),
    /// Bytes that the program makes up.
    Test,
}

/// The recordings of one command.
pub(super) struct Session {
    pub(super) takes: Vec<Take>,
    /// The file or the directory that the rate is reserved for.
    pub(super) target: Name,
    pub(super) is_directory: bool,
}

impl Session {
    /// Pairs sources with the files that they go to.
    pub(super) fn new(names: &[OsString], test_streams: Option<u32>) -> Result<Session, Failure> {
        let usage = |why: &str| Failure::usage("record", why);
        let Some((target, sources)) = names.split_last() else {
            return Err(usage("name a target: braid://VOLUME/PATH"));
        };
        let Location::Remote { name: target, directory: is_directory } = Location::parse(target)? else {
            return Err(usage("the last name must be the target: braid://VOLUME/PATH"));
        };
        let takes = match test_streams {
            Some(_) if !sources.is_empty() => {
                return Err(usage("test data has no sources: name the target only"));
            }
            Some(count) if is_directory => (1..=count)
                .map(|number| take(Source::Test, &target, Some(format!("stream-{number}").as_ref())))
                .collect::<Result<Vec<Take>, Failure>>()?,
            Some(1) => vec![take(Source::Test, &target, None)?],
            None if sources.is_empty() => {
                return Err(usage("name sources before the target, or --test-data"));
            }
            None => sources
                .iter()
                .map(|source| of_source(source, &target, is_directory))
                .collect::<Result<Vec<Take>, Failure>>()?,
            Some(_) => Vec::new(),
        };
        if takes.is_empty() || takes.len() > 1 && !is_directory {
            return Err(usage("more streams than one, or none, need a directory: end its name with a slash"));
        }
        Ok(Session { takes, target, is_directory })
    }

    /// Makes the directory of the recordings. Returns the directories that were not there, innermost first.
    pub(super) async fn make_directory(&self, client: &Client) -> Result<Vec<Name>, Failure> {
        let mut made = Vec::new();
        let mut next = Some(self.target.clone()).filter(|_| self.is_directory);
        while let Some(name) = next.filter(|name| !name.is_root()) {
            match client.stat(&name).await {
                Ok(_) => break,
                Err(error) if error.kind() == Kind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
            next = name.parent();
            made.push(name);
        }
        if self.is_directory && !self.target.is_root() {
            client.mkdir(&self.target, Parents::Make).await?;
        }
        Ok(made)
    }
}

fn of_source(source: &OsStr, target: &Name, is_directory: bool) -> Result<Take, Failure> {
    match Location::parse(source)? {
        Location::Remote { .. } => {
            Err(Failure::usage("record", "sources are files or pipes of this machine, or -"))
        }
        Location::Pipe if is_directory => {
            Err(Failure::usage("record", "standard input has no name: name the file that it goes to"))
        }
        Location::Pipe => take(Source::Input, target, None),
        Location::Local(_) => {
            let path = PathBuf::from(source);
            let own = if is_directory { path.file_name().map(OsStr::to_owned) } else { None };
            take(Source::Path(path), target, own.as_deref())
        }
    }
}

fn take(source: Source, target: &Name, own: Option<&OsStr>) -> Result<Take, Failure> {
    let name = match own {
        Some(own) => target.join(own.as_bytes()).doing(|| "record".into())?,
        None => target.clone(),
    };
    Ok(Take { source, name })
}

/// Records all sources to their end.
pub(super) async fn all(client: &Client, run: &Arc<Run>, takes: Vec<Take>) {
    let mut streams = JoinSet::new();
    for take in takes {
        let client = client.clone();
        let run = Arc::clone(run);
        streams.spawn(async move {
            if let Err(failure) = one(&client, &run, &take).await {
                run.fail(failure);
            }
        });
    }
    while streams.join_next().await.is_some() {}
}

async fn one(client: &Client, run: &Arc<Run>, take: &Take) -> Result<(), Failure> {
    let options = OpenOptions::new().write(true).create_new(true);
    let file = Arc::new(client.open(&take.name, &options).await?);
    let plan = run.plan(&file);
    let mut torn_from = u64::MAX;
    let stored = match Feed::begin(&take.source, usize::try_from(plan.piece_bytes).unwrap_or(usize::MAX)) {
        Err(failure) => Err(failure),
        Ok(feed) => {
            let write = |piece: Arc<Vec<u8>>, offset| {
                let file = Arc::clone(&file);
                async move { file.write_at(&piece, offset).await }
            };
            store(run, plan, feed, write, &mut torn_from).await
        }
    };
    // The file is complete to its end, whatever failed: pieces after one that is not there are cut off.
    if torn_from < u64::MAX
        && let Err(error) = file.set_len(torn_from).await
    {
        tracing::warn!(%error, name = %take.name, "bytes after a failed write could not be cut off");
    }
    let closed = match Arc::into_inner(file) {
        Some(file) => file.close().await.doing(|| format!("close {}", show_remote(&take.name))),
        None => Ok(()),
    };
    stored.and(closed)
}

/// Stores the pieces of a source as they are due, until the source or the run ends. At the return no write is
/// under way, also if the source or a write has failed. The offset of the first piece that was not stored
/// is put into `torn_from`.
async fn store<W>(
    run: &Arc<Run>,
    plan: Plan,
    mut feed: Feed,
    write: impl Fn(Arc<Vec<u8>>, u64) -> W,
    torn_from: &mut u64,
) -> Result<(), Failure>
where
    W: Future<Output = braid_client::Result<()>> + Send + 'static,
{
    let mut writes = JoinSet::new();
    let torn = Arc::new(AtomicU64::new(u64::MAX));
    let write = |piece, offset| {
        let torn = Arc::clone(&torn);
        let writing = write(piece, offset);
        async move {
            let written = writing.await;
            if written.is_err() {
                torn.fetch_min(offset, Ordering::Relaxed);
            }
            written
        }
    };
    let fed = feed_writes(run, plan, &mut feed, write, &mut writes).await;
    let written = drained(&mut writes).await;
    *torn_from = torn.load(Ordering::Relaxed);
    fed.and(written)
}

async fn feed_writes<W>(
    run: &Arc<Run>,
    plan: Plan,
    feed: &mut Feed,
    write: impl Fn(Arc<Vec<u8>>, u64) -> W,
    writes: &mut JoinSet<braid_client::Result<()>>,
) -> Result<(), Failure>
where
    W: Future<Output = braid_client::Result<()>> + Send + 'static,
{
    let piece_bytes = usize::try_from(plan.piece_bytes).unwrap_or(usize::MAX);
    // The time begins with the first bytes: a camera may not have started yet.
    let Some(mut piece) = feed.next_or_last(run, piece_bytes).await? else { return Ok(()) };
    let stream = run.begin(plan, 0);
    let mut offset = 0;
    loop {
        let Ok(permit) = Arc::clone(&stream.ahead).acquire_owned().await else { break };
        // What was taken from the source before a signal is stored.
        if !run.next(&stream).await && !run.is_stopping() {
            break;
        }
        let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
        let due = stream.account().begin(length);
        let writing = write(piece, offset);
        let its = Arc::clone(&stream);
        writes.spawn(async move {
            writing.await?;
            its.account().done(its.now(), due);
            drop(permit);
            Ok(())
        });
        offset += length;
        while let Some(written) = writes.try_join_next() {
            finished(written)?;
        }
        let asked = stream.now();
        let Some(next) = feed.next_or_last(run, piece_bytes).await? else { break };
        stream.account().other_side(asked, stream.now());
        piece = next;
    }
    Ok(())
}

/// Pieces of a source.
struct Feed {
    from: Origin,
    what: String,
    /// Bytes that came and are no whole piece yet.
    have: Vec<u8>,
    /// The error of the source, which is told after all bytes that came before it.
    failed: Option<io::Error>,
}

/// Place that a feed's bytes come from.
enum Origin {
    Test(Arc<Vec<u8>>),
    Reads(mpsc::Receiver<io::Result<Vec<u8>>>),
    /// There are no more.
    Over,
}

impl Feed {
    fn begin(source: &Source, piece_bytes: usize) -> Result<Feed, Failure> {
        let (send, reads) = mpsc::channel(READS_WAITING);
        let runtime = Handle::current();
        let what = match source {
            Source::Test => return Ok(Feed::new(Origin::Test(made_up(piece_bytes)?), String::new())),
            Source::Input => {
                let input = pipe_file(&io::stdin())?;
                std::thread::spawn(move || read_all(Ok(input), &send, &runtime));
                "read standard input".to_owned()
            }
            Source::Path(path) => {
                let what = format!("read {}", path.display());
                let path = path.clone();
                // Opening a named pipe waits for its writer.
                std::thread::spawn(move || read_all(LocalFile::open(path), &send, &runtime));
                what
            }
        };
        // The thread is not joined: a pipe without a writer may hold it for ever.
        Ok(Feed::new(Origin::Reads(reads), what))
    }

    fn new(from: Origin, what: String) -> Feed {
        Feed { from, what, have: Vec::new(), failed: None }
    }

    /// The next piece. After the end of the run no more is read, and what was read is given out.
    async fn next_or_last(&mut self, run: &Run, bytes: usize) -> Result<Option<Arc<Vec<u8>>>, Failure> {
        tokio::select! {
            biased;
            () = run.stopped() => {}
            next = self.next(bytes) => return next,
        }
        self.stop();
        self.next(bytes).await
    }

    /// The next piece: this many bytes, or fewer at the end; `None` after the end. Nothing is lost if the
    /// wait is given up.
    async fn next(&mut self, bytes: usize) -> Result<Option<Arc<Vec<u8>>>, Failure> {
        while self.have.len() < bytes {
            match &mut self.from {
                Origin::Test(content) => return Ok(Some(Arc::clone(content))),
                Origin::Over => return self.rest(),
                Origin::Reads(reads) => match reads.recv().await {
                    Some(read) => self.came(read),
                    None => self.from = Origin::Over,
                },
            }
        }
        let later = self.have.split_off(bytes);
        Ok(Some(Arc::new(std::mem::replace(&mut self.have, later))))
    }

    /// Ends the reading. What has been read is still there for [`Feed::next`].
    fn stop(&mut self) {
        if let Origin::Reads(mut reads) = std::mem::replace(&mut self.from, Origin::Over) {
            reads.close();
            while let Ok(read) = reads.try_recv() {
                self.came(read);
            }
        }
    }

    fn came(&mut self, read: io::Result<Vec<u8>>) {
        match read {
            Ok(bytes) => self.have.extend(bytes),
            Err(error) => {
                self.failed = Some(error);
                self.from = Origin::Over;
            }
        }
    }

    /// The bytes that came and are no whole piece.
    fn rest(&mut self) -> Result<Option<Arc<Vec<u8>>>, Failure> {
        let rest = std::mem::take(&mut self.have);
        if !rest.is_empty() {
            return Ok(Some(Arc::new(rest)));
        }
        self.failed.take().map_or(Ok(None), |error| Err(error).doing(|| self.what.clone()))
    }
}

/// Reads a source to its end. Each read has its place in the queue before it begins: so what is read is
/// queued, and what nobody wants any more is left in the source.
fn read_all(source: io::Result<LocalFile>, send: &mpsc::Sender<io::Result<Vec<u8>>>, runtime: &Handle) {
    let mut file = match source {
        Ok(file) => file,
        Err(error) => return drop(send.blocking_send(Err(error))),
    };
    while let Ok(place) = runtime.block_on(send.reserve()) {
        let mut bytes = vec![0; READ_BYTES];
        match file.read(&mut bytes) {
            Ok(0) => return,
            Ok(read) => {
                bytes.truncate(read);
                place.send(Ok(bytes));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return place.send(Err(error)),
        }
    }
}

/// Bytes without a pattern.
fn made_up(bytes: usize) -> Result<Arc<Vec<u8>>, Failure> {
    let mut content = vec![0; bytes];
    let filled = getrandom::fill(&mut content).map_err(|error| io::Error::other(error.to_string()));
    filled.doing(|| "make test data".into())?;
    Ok(Arc::new(content))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    fn session(names: &[&str], test: Option<u32>) -> Result<Vec<String>, Failure> {
        let names: Vec<OsString> = names.iter().map(OsString::from).collect();
        Session::new(&names, test)
            .map(|session| session.takes.iter().map(|take| show_remote(&take.name)).collect())
    }

    #[test]
    fn sources_go_to_files() {
        assert_eq!(session(&["-", "braid://v/a"], None).unwrap(), ["braid://v/a"]);
        assert_eq!(session(&["x/a", "b", "braid://v/d/"], None).unwrap(), ["braid://v/d/a", "braid://v/d/b"]);
        assert_eq!(
            session(&["braid://v/d/"], Some(2)).unwrap(),
            ["braid://v/d/stream-1", "braid://v/d/stream-2"]
        );
        assert_eq!(session(&["braid://v/d"], Some(1)).unwrap(), ["braid://v/d"]);
        for (names, test) in [
            (vec!["a", "b", "braid://v/d"], None),
            (vec!["braid://v/d"], Some(2)),
            (vec!["braid://v/d/"], None),
            (vec!["a", "braid://v/d/"], Some(1)),
            (vec!["-", "braid://v/d/"], None),
            (vec!["braid://v/a", "braid://v/d/"], None),
            (vec!["a", "b"], None),
            (vec!["braid://v/d/"], Some(0)),
        ] {
            assert_eq!(
                session(&names, test).unwrap_err().exit,
                crate::output::exit::Exit::Usage,
                "{names:?}"
            );
        }
    }

    /// A feed, and the end that a reading thread has of it.
    fn feed() -> (mpsc::Sender<io::Result<Vec<u8>>>, Feed) {
        let (send, reads) = mpsc::channel(9);
        (send, Feed::new(Origin::Reads(reads), "read it".into()))
    }

    #[tokio::test]
    async fn a_feed_gives_whole_pieces_and_the_rest() {
        let (send, mut feed) = feed();
        for bytes in [vec![1, 2, 3, 4, 5], vec![6]] {
            send.send(Ok(bytes)).await.unwrap();
        }
        for piece in [[1, 2], [3, 4], [5, 6]] {
            assert_eq!(**feed.next(2).await.unwrap().unwrap(), piece);
        }
        send.send(Ok(vec![7])).await.unwrap();
        drop(send);
        assert_eq!(**feed.next(2).await.unwrap().unwrap(), [7]);
        assert_eq!(feed.next(2).await.unwrap(), None);
    }

    /// A run of streams of 10 bytes a second in periods of 1 s, that are due at once: pieces of 10 bytes.
    fn ten_a_second() -> (Arc<Run>, Plan) {
        let second = Duration::from_secs(1);
        (Run::new(10, second, None), Plan::new(10, 1_000_000_000, 0, 10))
    }

    /// Pieces that were stored: their offsets and bytes.
    type Stored = Arc<Mutex<Vec<(u64, usize)>>>;

    /// Writes that take 5 s. The one at this offset fails after 1 s.
    fn slow_writes(stored: &Stored, failing: u64) -> impl Fn(Arc<Vec<u8>>, u64) -> BoxFuture + use<> {
        let stored = Arc::clone(stored);
        move |piece, offset| {
            let stored = Arc::clone(&stored);
            Box::pin(async move {
                if offset == failing {
                    sleep(Duration::from_secs(1)).await;
                    return Err(braid_client::Error::Answer { subject: "it".into(), why: "no".into() });
                }
                sleep(Duration::from_secs(5)).await;
                stored.lock().unwrap().push((offset, piece.len()));
                Ok(())
            })
        }
    }

    type BoxFuture = std::pin::Pin<Box<dyn Future<Output = braid_client::Result<()>> + Send>>;

    #[tokio::test(start_paused = true)]
    async fn a_source_that_fails_leaves_all_that_came_before_stored() {
        let (run, plan) = ten_a_second();
        let stored = Stored::default();
        let mut torn = 0;
        let (send, feed) = feed();
        send.send(Ok(vec![1; 25])).await.unwrap();
        send.send(Err(io::Error::other("broken"))).await.unwrap();
        let failure = store(&run, plan, feed, slow_writes(&stored, u64::MAX), &mut torn).await.unwrap_err();
        assert!(failure.to_string().contains("read it: broken"), "{failure}");
        assert_eq!(*stored.lock().unwrap(), [(0, 10), (10, 10), (20, 5)]);
        assert_eq!((torn, Arc::strong_count(&stored)), (u64::MAX, 1), "no write is under way");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_fails_ends_the_recording_after_the_others() {
        let (run, plan) = ten_a_second();
        let stored = Stored::default();
        let mut torn = 0;
        let (send, feed) = feed();
        send.send(Ok(vec![1; 90])).await.unwrap();
        let failure = store(&run, plan, feed, slow_writes(&stored, 10), &mut torn).await.unwrap_err();
        assert!(failure.to_string().contains("no"), "{failure}");
        let all = stored.lock().unwrap().clone();
        assert!(all.contains(&(0, 10)), "{all:?}");
        assert_eq!((torn, Arc::strong_count(&stored)), (10, 1), "no write is under way");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_read_before_a_signal_is_stored() {
        let (run, plan) = ten_a_second();
        let stored = Stored::default();
        let mut torn = 0;
        let (send, feed) = feed();
        for _ in 0..5 {
            send.send(Ok(vec![1; 9])).await.unwrap();
        }
        let recording = store(&run, plan, feed, slow_writes(&stored, u64::MAX), &mut torn);
        let stop = async {
            sleep(Duration::from_millis(500)).await;
            run.stop();
        };
        tokio::join!(recording, stop).0.unwrap();
        assert_eq!(stored.lock().unwrap().iter().map(|piece| piece.1).sum::<usize>(), 45);
        assert!(send.send(Ok(vec![1])).await.is_err(), "no more is read");
    }
}
