//! `braid stream record`: sources that are stored at their rate.

use std::ffi::{OsStr, OsString};
use std::fs::File as LocalFile;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use braid_client::{File, Name, OpenOptions};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::copy::target::pipe_file;
use crate::files::names::{Location, show_remote};
use crate::output::exit::{Doing, Failure};
use crate::stream::run::{Run, Stream};

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
pub(super) async fn all(run: &Arc<Run>, takes: Vec<Take>) {
    let mut streams = JoinSet::new();
    for take in takes {
        let run = Arc::clone(run);
        streams.spawn(async move {
            if let Err(failure) = one(&run, &take).await {
                run.fail(failure);
            }
        });
    }
    while streams.join_next().await.is_some() {}
}

async fn one(run: &Arc<Run>, take: &Take) -> Result<(), Failure> {
    let options = OpenOptions::new().write(true).create_new(true);
    let file = Arc::new(run.client.open(&take.name, &options).await?);
    let plan = run.plan(&file);
    let bytes = usize::try_from(plan.piece_bytes).unwrap_or(usize::MAX);
    let mut feed = Feed::begin(&take.source, bytes)?;
    // The time begins with the first bytes: a camera may not have started yet.
    let first = tokio::select! {
        () = run.stopped() => None,
        first = feed.next(bytes) => first?,
    };
    let stored = match first {
        None => Ok(()),
        Some(first) => {
            let stream = run.begin(plan);
            store(run, &stream, &file, &mut feed, first).await
        }
    };
    // The file is complete to where it was stored, whatever failed.
    let closed = match Arc::into_inner(file) {
        Some(file) => file.close().await,
        None => Ok(()),
    };
    stored?;
    closed.doing(|| format!("close {}", show_remote(&take.name)))
}

/// Stores pieces as they are due, until the source or the run ends.
async fn store(
    run: &Arc<Run>,
    stream: &Arc<Stream>,
    file: &Arc<File>,
    feed: &mut Feed,
    first: Arc<Vec<u8>>,
) -> Result<(), Failure> {
    let wanted = usize::try_from(stream.plan.piece_bytes).unwrap_or(usize::MAX);
    let mut writes: JoinSet<braid_client::Result<()>> = JoinSet::new();
    let mut offset = 0;
    let mut piece = first;
    let mut stopping = false;
    loop {
        let Ok(permit) = Arc::clone(&stream.ahead).acquire_owned().await else { break };
        if !stopping && !run.next(stream).await {
            // What was taken from the source before a signal is stored.
            stopping = run.is_stopping();
            if !stopping {
                break;
            }
        }
        let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
        let due = stream.account().begin(length);
        let file = Arc::clone(file);
        let its = Arc::clone(stream);
        writes.spawn(async move {
            file.write_at(&piece, offset).await?;
            its.account().done(its.now(), due);
            drop(permit);
            Ok(())
        });
        offset += length;
        while let Some(written) = writes.try_join_next() {
            written.map_err(io::Error::other).doing(|| "write".into())??;
        }
        let next = tokio::select! {
            biased;
            () = run.stopped() => {
                stopping = true;
                feed.rest()
            }
            next = feed.next(wanted) => next?,
        };
        stream.account().other_side(stream.now());
        match next {
            Some(next) => piece = next,
            None => break,
        }
    }
    while let Some(written) = writes.join_next().await {
        written.map_err(io::Error::other).doing(|| "write".into())??;
    }
    Ok(())
}

/// Pieces of a source.
enum Feed {
    Test(Arc<Vec<u8>>),
    Reads { reads: mpsc::Receiver<io::Result<Vec<u8>>>, what: String, have: Vec<u8> },
}

impl Feed {
    fn begin(source: &Source, piece_bytes: usize) -> Result<Feed, Failure> {
        let (send, reads) = mpsc::channel(READS_WAITING);
        let what = match source {
            Source::Test => return Ok(Feed::Test(made_up(piece_bytes)?)),
            Source::Input => {
                let input = pipe_file(&io::stdin())?;
                std::thread::spawn(move || read_all(Ok(input), &send));
                "read standard input".to_owned()
            }
            Source::Path(path) => {
                let what = format!("read {}", path.display());
                let path = path.clone();
                // Opening a named pipe waits for its writer.
                std::thread::spawn(move || read_all(LocalFile::open(path), &send));
                what
            }
        };
        // The thread is not joined: a pipe without a writer may hold it for ever.
        Ok(Feed::Reads { reads, what, have: Vec::new() })
    }

    /// The next piece: this many bytes, or fewer at the end; `None` after the end. Nothing is lost if the
    /// wait is given up.
    async fn next(&mut self, bytes: usize) -> Result<Option<Arc<Vec<u8>>>, Failure> {
        let (reads, what, have) = match self {
            Feed::Test(content) => return Ok(Some(Arc::clone(content))),
            Feed::Reads { reads, what, have } => (reads, what, have),
        };
        while have.len() < bytes {
            match reads.recv().await {
                Some(read) => have.extend(read.doing(|| what.clone())?),
                None => return Ok(self.rest()),
            }
        }
        let later = have.split_off(bytes);
        Ok(Some(Arc::new(std::mem::replace(have, later))))
    }

    /// The bytes that came and are no whole piece.
    fn rest(&mut self) -> Option<Arc<Vec<u8>>> {
        match self {
            Feed::Test(_) => None,
            Feed::Reads { have, .. } => {
                let rest = std::mem::take(have);
                (!rest.is_empty()).then(|| Arc::new(rest))
            }
        }
    }
}

/// Reads a source to its end.
fn read_all(source: io::Result<LocalFile>, send: &mpsc::Sender<io::Result<Vec<u8>>>) {
    let mut file = match source {
        Ok(file) => file,
        Err(error) => return drop(send.blocking_send(Err(error))),
    };
    loop {
        let mut bytes = vec![0; READ_BYTES];
        let read = match file.read(&mut bytes) {
            Ok(0) => return,
            Ok(read) => {
                bytes.truncate(read);
                Ok(bytes)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let is_over = read.is_err();
        if send.blocking_send(read).is_err() || is_over {
            return;
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

    #[tokio::test]
    async fn a_feed_gives_whole_pieces_and_the_rest() {
        let (send, reads) = mpsc::channel(9);
        let mut feed = Feed::Reads { reads, what: String::new(), have: Vec::new() };
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
}
