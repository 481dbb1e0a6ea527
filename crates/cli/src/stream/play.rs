//! `braid stream play`: files that are read at their rate.

use std::fs::File as LocalFile;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use braid_client::{File, Name, OpenOptions};
use braid_wire::control::EntryKind;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::copy::target::pipe_file;
use crate::files::names::{remote, show_remote};
use crate::output::exit::{Doing, Exit, Failure};
use crate::stream::booking::Wanted;
use crate::stream::pieces::Pieces;
use crate::stream::run::Run;

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
        client: &braid_client::Client,
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
pub(super) async fn all(run: &Arc<Run>, programme: Programme, manner: &Manner, mut sink: Option<Sink>) {
    let mut streams = JoinSet::new();
    for title in programme.titles {
        for _ in 0..title.streams {
            let run = Arc::clone(run);
            let name = title.name.clone();
            let manner = manner.clone();
            let player = Player { is_shared: title.streams > 1, sink: sink.take() };
            streams.spawn(async move {
                if let Err(failure) = one(&run, &name, &manner, player).await {
                    run.fail(failure);
                }
            });
        }
    }
    while streams.join_next().await.is_some() {}
}

/// One stream's own part.
struct Player {
    is_shared: bool,
    sink: Option<Sink>,
}

async fn one(run: &Arc<Run>, name: &Name, manner: &Manner, player: Player) -> Result<(), Failure> {
    let file = Arc::new(run.client.open(name, &OpenOptions::new().read(true)).await?);
    let plan = run.plan(&file);
    let count = file.size().div_ceil(plan.piece_bytes);
    if count == 0 {
        return Err(Failure::new(Exit::Conflict, format!("play {}", show_remote(name)), "it is empty"));
    }
    let mut index = 0;
    if manner.random_start {
        index = random()? % count;
        let apart_ns = plan.time_ns(plan.piece_bytes).max(1);
        sleep(Duration::from_nanos(random()? % apart_ns)).await;
    }
    let stream = run.begin(plan);
    let shared = player.is_shared.then_some(&manner.pieces);
    let mut reads: JoinSet<Result<(), Failure>> = JoinSet::new();
    while index < count {
        let Ok(permit) = Arc::clone(&stream.ahead).acquire_owned().await else { break };
        let place = match &player.sink {
            None => None,
            Some(sink) => {
                let Some(place) = sink.place().await else { break };
                stream.account().other_side(stream.now());
                Some(place)
            }
        };
        if !run.next(&stream).await {
            break;
        }
        let piece = Piece::of(&file, index, plan.piece_bytes);
        let due = stream.account().begin(piece.bytes);
        let stream = Arc::clone(&stream);
        let shared = shared.map(Arc::clone);
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
            read.map_err(std::io::Error::other).doing(|| "read".into())??;
        }
        index += 1;
        if index == count && run.duration.is_some() {
            index = 0;
        }
    }
    while let Some(read) = reads.join_next().await {
        read.map_err(std::io::Error::other).doing(|| "read".into())??;
    }
    if let Some(sink) = player.sink {
        sink.end().await?;
    }
    Ok(close(file).await?)
}

/// Closes a file that no read uses any more.
async fn close(file: Arc<File>) -> braid_client::Result<()> {
    match Arc::into_inner(file) {
        Some(file) => file.close().await,
        None => Ok(()),
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
pub(super) struct Sink {
    queue: mpsc::Sender<oneshot::Receiver<Arc<Vec<u8>>>>,
    writing: tokio::task::JoinHandle<Result<(), Failure>>,
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
        let (queue, pieces) = mpsc::channel(1);
        let writing = tokio::task::spawn_blocking(move || write_all(file, pieces, &what));
        Ok(Sink { queue, writing })
    }

    /// A place for the next piece; waits until the ones before are written. `None`: writing has failed, and
    /// [`Sink::end`] tells why.
    async fn place(&self) -> Option<oneshot::Sender<Arc<Vec<u8>>>> {
        let (place, piece) = oneshot::channel();
        self.queue.send(piece).await.is_ok().then_some(place)
    }

    async fn end(self) -> Result<(), Failure> {
        drop(self.queue);
        self.writing.await.map_err(std::io::Error::other).doing(|| "write".into())?
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
