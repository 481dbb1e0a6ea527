//! `braid stream play`: files that are read at their rate.

use std::fs::File as LocalFile;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use braid_client::{Client, File, Name, OpenOptions};
use braid_wire::control::EntryKind;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::copy::target::pipe_file;
use crate::files::names::{remote, show_remote};
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::interrupt::GRACE;
use crate::stream::booking::Wanted;
use crate::stream::pieces::Pieces;
use crate::stream::run::{Run, Stream, drained, finished};

/// A file, and the streams that play it.
#[derive(Debug)]
struct Title {
    name: Name,
    /// Index of the name on the command line that it is from.
    from: usize,
    streams: u32,
}

/// The files to be played.
pub(super) struct Programme {
    titles: Vec<Title>,
    /// The names on the command line, with the streams that play their files.
    pub(super) wanted: Vec<Wanted>,
    /// Bytes of the largest file.
    pub(super) largest: u64,
}

impl Programme {
    /// Finds the files, and deals the streams out to them.
    pub(super) async fn find(
        client: &Client,
        names: &[std::ffi::OsString],
        streams: Option<u32>,
    ) -> Result<Programme, Failure> {
        let mut programme = Programme { titles: Vec::new(), wanted: Vec::new(), largest: 0 };
        for (from, text) in names.iter().enumerate() {
            let name = remote(text)?;
            let is_file = !name.is_root() && {
                let row = client.stat(&name).await?;
                programme.largest = programme.largest.max(row.size());
                row.kind() == EntryKind::File
            };
            if is_file {
                programme.titles.push(Title { name: name.clone(), from, streams: 0 });
            } else {
                for entry in client.list(&name).all().await? {
                    if entry.kind() == EntryKind::File {
                        programme.largest = programme.largest.max(entry.size());
                        let name = name.join(&entry.name).doing(|| "play".into())?;
                        programme.titles.push(Title { name, from, streams: 0 });
                    }
                }
            }
            programme.wanted.push(Wanted { name, streams: 0 });
        }
        let files = u32::try_from(programme.titles.len()).unwrap_or(u32::MAX);
        if files == 0 {
            return Err(Failure::new(Exit::NotFound, "play", "there is no file in what was named"));
        }
        for stream in 0..streams.unwrap_or(files) {
            let title = &mut programme.titles[usize::try_from(stream % files).unwrap_or(0)];
            title.streams += 1;
            programme.wanted[title.from].streams += 1;
        }
        Ok(programme)
    }

    /// Number of streams.
    pub(super) fn streams(&self) -> u32 {
        self.titles.iter().map(|title| title.streams).sum()
    }
}

/// Settings of all players.
#[derive(Clone)]
pub(super) struct Manner {
    pub(super) random_start: bool,
    pub(super) pieces: Arc<Pieces>,
}

/// Plays all streams to their end.
pub(super) async fn all(
    client: &Client,
    run: &Arc<Run>,
    programme: Programme,
    manner: &Manner,
    mut sink: Option<Sink>,
) {
    let mut streams = JoinSet::new();
    for title in programme.titles {
        for _ in 0..title.streams {
            let client = client.clone();
            let run = Arc::clone(run);
            let name = title.name.clone();
            let manner = manner.clone();
            let player = Player { is_shared: title.streams > 1, sink: sink.take() };
            streams.spawn(async move {
                if let Err(failure) = one(&client, &run, &name, &manner, player).await {
                    run.fail(failure);
                }
            });
        }
    }
    while streams.join_next().await.is_some() {}
}

/// Own settings of a stream.
struct Player {
    is_shared: bool,
    sink: Option<Sink>,
}

async fn one(
    client: &Client,
    run: &Arc<Run>,
    name: &Name,
    manner: &Manner,
    player: Player,
) -> Result<(), Failure> {
    let options = OpenOptions::new().read(true);
    let file = tokio::select! {
        () = run.stopped() => return Ok(()),
        file = client.open(name, &options) => Arc::new(file?),
    };
    let played = play(run, name, manner, player, &file).await;
    let closed = match Arc::into_inner(file) {
        Some(file) => file.close().await.map_err(Failure::from),
        None => Ok(()),
    };
    played.and(closed)
}

/// Plays a file. At the return no read is under way.
async fn play(
    run: &Arc<Run>,
    name: &Name,
    manner: &Manner,
    player: Player,
    file: &Arc<File>,
) -> Result<(), Failure> {
    let plan = run.plan(file);
    let count = file.size().div_ceil(plan.piece_bytes);
    if count == 0 {
        return Err(Failure::new(Exit::Conflict, format!("play {}", show_remote(name)), "it is empty"));
    }
    let mut first = 0;
    if manner.random_start {
        first = random()? % count;
        let apart_ns = plan.time_ns(plan.piece_bytes).max(1);
        let apart = Duration::from_nanos(random()? % apart_ns);
        tokio::select! {
            () = run.stopped() => return Ok(()),
            () = sleep(apart) => {}
        }
    }
    let sink = player.sink.map(|sink| sink.begin(plan.ahead()));
    let stream = run.begin(plan, if sink.is_some() { plan.ahead() } else { 0 });
    let reading = Reading { stream, first, count, shared: player.is_shared.then_some(&manner.pieces) };
    let mut reads = JoinSet::new();
    let asked = reading.ask_all(run, file, sink.as_ref(), &mut reads).await;
    let read = drained(&mut reads).await;
    let written = match sink {
        Some(sink) => sink.end(run).await,
        None => Ok(()),
    };
    asked.and(read).and(written)
}

/// The reads of a stream.
struct Reading<'a> {
    stream: Arc<Stream>,
    /// Index of the first piece.
    first: u64,
    /// Number of the file's pieces.
    count: u64,
    shared: Option<&'a Arc<Pieces>>,
}

impl Reading<'_> {
    /// Begins all reads when it is their time, until the file or the run ends, or a read has failed.
    async fn ask_all(
        &self,
        run: &Run,
        file: &Arc<File>,
        sink: Option<&Writing>,
        reads: &mut JoinSet<Result<(), Failure>>,
    ) -> Result<(), Failure> {
        let stream = &self.stream;
        let mut index = self.first;
        while index < self.count {
            let Ok(permit) = Arc::clone(&stream.ahead).acquire_owned().await else { break };
            let mut place = None;
            if let Some(sink) = sink {
                let asked = stream.now();
                place = tokio::select! {
                    () = run.stopped() => break,
                    place = sink.place() => place,
                };
                if place.is_none() {
                    break;
                }
                stream.account().other_side(asked, stream.now());
            }
            if !run.next(stream).await {
                break;
            }
            let piece = Piece::of(file, index, stream.plan.piece_bytes);
            let due = stream.account().begin(piece.bytes);
            let stream = Arc::clone(stream);
            let shared = self.shared.map(Arc::clone);
            reads.spawn(async move {
                let key = (piece.file.number().0, piece.index);
                let content = match shared {
                    Some(pieces) => pieces.get(key, piece.bytes, piece.read()).await?,
                    None => Arc::new(piece.read().await?),
                };
                stream.account().done(stream.now(), due);
                if let Some(place) = place {
                    // A sink that is gone has told why.
                    let _ = place.send(content);
                }
                drop(permit);
                Ok(())
            });
            while let Some(read) = reads.try_join_next() {
                finished(read)?;
            }
            index += 1;
            if index == self.count && run.duration.is_some() {
                index = 0;
            }
        }
        Ok(())
    }
}

/// A part of a file.
struct Piece {
    file: Arc<File>,
    index: u64,
    from: u64,
    bytes: u64,
}

impl Piece {
    fn of(file: &Arc<File>, index: u64, piece_bytes: u64) -> Piece {
        let from = index * piece_bytes;
        Piece {
            file: Arc::clone(file),
            index,
            from,
            bytes: piece_bytes.min(file.size().saturating_sub(from)),
        }
    }

    async fn read(&self) -> Result<Vec<u8>, Failure> {
        let mut content = vec![0; usize::try_from(self.bytes).unwrap_or(usize::MAX)];
        let read = self.file.read_at(&mut content, self.from).await?;
        content.truncate(read);
        Ok(content)
    }
}

fn random() -> Result<u64, Failure> {
    getrandom::u64()
        .map_err(|error| std::io::Error::other(error.to_string()))
        .doing(|| "draw a random place".into())
}

/// Target of the only stream's bytes, in order.
#[derive(Debug)]
pub(super) struct Sink {
    file: LocalFile,
    what: String,
}

impl Sink {
    /// Opens a file, or standard output.
    pub(super) fn open(to: &std::ffi::OsStr) -> Result<Sink, Failure> {
        let what = format!("write to {}", to.display());
        let file = if to == "-" {
            pipe_file(&std::io::stdout())?
        } else {
            LocalFile::create(to).doing(|| what.clone())?
        };
        Ok(Sink { file, what })
    }

    /// Begins to write. This many pieces may be read before those ahead of them are written.
    fn begin(self, pieces: u64) -> Writing {
        let (queue, waiting) = mpsc::channel(usize::try_from(pieces).unwrap_or(1).max(1));
        let (end, ended) = oneshot::channel();
        // The thread is not joined: a reader that does not read may hold it for ever.
        std::thread::spawn(move || end.send(write_all(self.file, waiting, &self.what)));
        Writing { queue, ended }
    }
}

/// A target that is being written.
struct Writing {
    queue: mpsc::Sender<oneshot::Receiver<Arc<Vec<u8>>>>,
    ended: oneshot::Receiver<Result<(), Failure>>,
}

impl Writing {
    /// A place for the next piece; waits until there is one. `None`: writing has failed, and
    /// [`Writing::end`] tells why.
    async fn place(&self) -> Option<oneshot::Sender<Arc<Vec<u8>>>> {
        let (place, piece) = oneshot::channel();
        self.queue.send(piece).await.is_ok().then_some(place)
    }

    /// Waits until all is written; at the end of the run only a little, as the reader may not read.
    async fn end(self, run: &Run) -> Result<(), Failure> {
        drop(self.queue);
        let mut ended = self.ended;
        let ended = tokio::select! {
            ended = &mut ended => Some(ended),
            () = run.stopped() => timeout(GRACE, &mut ended).await.ok(),
        };
        match ended {
            Some(ended) => ended.map_err(std::io::Error::other).doing(|| "write".into())?,
            None => Ok(()),
        }
    }
}

fn write_all(
    mut file: LocalFile,
    mut pieces: mpsc::Receiver<oneshot::Receiver<Arc<Vec<u8>>>>,
    what: &str,
) -> Result<(), Failure> {
    while let Some(piece) = pieces.blocking_recv() {
        // No piece comes for a place after the end.
        let Ok(piece) = piece.blocking_recv() else { break };
        match file.write_all(&piece) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                return Err(Failure::closed_pipe());
            }
            written => written.doing(|| what.to_owned())?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_does_not_read_ends_with_the_run() {
        let (_reader, writer) = std::io::pipe().unwrap();
        let file = LocalFile::from(std::os::fd::OwnedFd::from(writer));
        let sink = Sink { file, what: "write".into() }.begin(2);
        for _ in 0..2 {
            let place = sink.place().await.unwrap();
            place.send(Arc::new(vec![0; 4 << 20])).unwrap();
        }
        let run = Run::new(1, Duration::from_secs(1), None);
        let stop = async {
            sleep(Duration::from_secs(3)).await;
            run.stop();
        };
        tokio::join!(sink.end(&run), stop).0.unwrap();
    }

    #[tokio::test]
    async fn what_is_queued_is_written_in_order() {
        let local = tempfile::NamedTempFile::new().unwrap();
        let sink = Sink::open(local.path().as_os_str()).unwrap().begin(3);
        let places = [sink.place().await.unwrap(), sink.place().await.unwrap(), sink.place().await.unwrap()];
        for (number, place) in (1..).zip(places).collect::<Vec<_>>().into_iter().rev() {
            place.send(Arc::new(vec![number; 2])).unwrap();
        }
        sink.end(&Run::new(1, Duration::from_secs(1), None)).await.unwrap();
        assert_eq!(std::fs::read(local.path()).unwrap(), [1, 1, 2, 2, 3, 3]);
    }
}
