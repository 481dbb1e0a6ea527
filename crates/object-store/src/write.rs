//! Writes objects, whole or in parts. A new object has no name until it is complete.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use braid_client::AttributeChanges;
use braid_client::File;
use braid_client::Name;
use braid_client::Replace;
use braid_layout::FileId;
use braid_wire::Reason;
use braid_wire::control::XattrHow;
use bytes::Bytes;
use futures_util::future::try_join_all;

use crate::error::Error;
use crate::read::XATTR_PREFIX;
use crate::store::{BraidStore, TRIES_MAX};

/// Maximum length of an object that is named and closed in one request, in bytes. If the object's directory
/// is missing, the object is written twice, which costs less than one more request for all others.
pub(crate) const SMALL_BYTES_MAX: usize = 1 << 20;
/// Approximate length up to which small pieces of a payload are gathered, in bytes, so that the drives get
/// whole stripes.
const GATHERED_BYTES: u64 = 16 << 20;

impl BraidStore {
    /// Writes an object. Returns the object's e_tag, or `None` if it was replaced or deleted meanwhile.
    pub(crate) async fn put(
        &self,
        name: &Name,
        pieces: &[Bytes],
        replace: Replace,
        attributes: &[(String, String)],
    ) -> Result<Option<String>, Error> {
        let bytes: usize = pieces.iter().map(Bytes::len).sum();
        if bytes <= SMALL_BYTES_MAX {
            let file = self.written(name, pieces, attributes).await?;
            let number = file.number();
            match file.link_and_close(name, replace, AttributeChanges::NONE).await {
                Ok(()) => return self.tag(number).await,
                Err(refused) => self.before_next_try(refused, name, replace, &mut 0).await?,
            }
        }
        let file = self.written(name, pieces, attributes).await?;
        let number = file.number();
        let named = self.give_name(&file, name, replace).await;
        end(file).await;
        named?;
        self.tag(number).await
    }

    /// Gives a file its name, and makes missing directories.
    pub(crate) async fn give_name(&self, file: &File, name: &Name, replace: Replace) -> Result<(), Error> {
        let mut tries = 0;
        while let Err(refused) = file.link(name, replace).await {
            self.before_next_try(refused, name, replace, &mut tries).await?;
        }
        Ok(())
    }

    /// Prepares the next try after a refusal, if it may succeed; else returns the error.
    async fn before_next_try(
        &self,
        refused: braid_client::Error,
        name: &Name,
        replace: Replace,
        tries: &mut usize,
    ) -> Result<(), Error> {
        let unexpected = [Reason::Exists, Reason::NotFound, Reason::IsDirectory, Reason::NotDirectory];
        if matches!(replace, Replace::Only(_)) && refused.reason().is_some_and(|r| unexpected.contains(&r)) {
            return Err(Error::Changed { name: name.to_string(), why: refused.to_string() });
        }
        *tries += 1;
        if *tries > TRIES_MAX {
            return Err(Error::Contended {
                name: name.to_string(),
                tries: *tries,
                source: Box::new(refused),
            });
        }
        if self.makes_way(&refused, name).await? { Ok(()) } else { Err(refused.into()) }
    }

    /// Makes a file without a name that has these bytes. Drives that have no room for them are avoided.
    async fn written(
        &self,
        name: &Name,
        pieces: &[Bytes],
        attributes: &[(String, String)],
    ) -> Result<File, Error> {
        let mut full = BTreeSet::new();
        loop {
            let file = self.client.create_for(name, None, &full).await?;
            let written = async {
                write(&file, 0, pieces).await?;
                self.describe(file.number(), attributes).await
            };
            let Err(error) = written.await else { return Ok(file) };
            let is_news = file.full_drive().is_some_and(|drive| full.insert(drive));
            end(file).await;
            if !is_news {
                return Err(error);
            }
        }
    }

    /// Sets attributes of a file.
    pub(crate) async fn describe(&self, file: FileId, attributes: &[(String, String)]) -> Result<(), Error> {
        let file = self.numbered_now(file);
        let named = attributes.iter().map(|(name, value)| (format!("{XATTR_PREFIX}{name}"), value));
        let setting = named.map(|(name, value)| {
            let file = &file;
            async move { self.client.set_xattr(file, name.as_bytes(), value.as_bytes(), XattrHow::Any).await }
        });
        try_join_all(setting).await?;
        Ok(())
    }

    /// The e_tag of a file that was just named; `None` if the file has been replaced or deleted by now.
    pub(crate) async fn tag(&self, file: FileId) -> Result<Option<String>, Error> {
        match self.client.stat_itself(&self.numbered_now(file)).await {
            Ok(row) => Ok(crate::read::object(row).map(|object| object.e_tag())),
            Err(error) if error.reason() == Some(Reason::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Closes a file. A file with a name is durable already, and of a file without a name nothing is to stay.
/// So an error concerns only the lease, which then ends by itself.
pub(crate) async fn end(file: File) {
    let subject = file.subject().to_owned();
    if let Err(error) = file.close().await {
        tracing::debug!(file = subject, %error, "the file could not be closed: its lease ends by itself");
    }
}

/// Writes pieces one after another from an offset on. Small pieces are gathered, and cut at the ends of
/// stripes.
async fn write(file: &File, offset: u64, pieces: &[Bytes]) -> Result<(), Error> {
    if let [one] = pieces {
        return Ok(file.write_at(one, offset).await?);
    }
    let stripe = file.stripe_bytes().max(1);
    let most = (GATHERED_BYTES / stripe).max(1) * stripe;
    let mut at = offset;
    let mut gathered = Vec::new();
    for piece in pieces {
        let mut rest = &piece[..];
        while !rest.is_empty() {
            let room = usize::try_from(most - at % most).expect("memory") - gathered.len();
            if gathered.is_empty() && rest.len() >= room {
                file.write_at(&rest[..room], at).await?;
                (at, rest) = (after(at, room), &rest[room..]);
                continue;
            }
            let (more, later) = rest.split_at(room.min(rest.len()));
            gathered.extend_from_slice(more);
            rest = later;
            if more.len() == room {
                file.write_at(&gathered, at).await?;
                at = after(at, gathered.len());
                gathered.clear();
            }
        }
    }
    Ok(file.write_at(&gathered, at).await?)
}

fn after(at: u64, length: usize) -> u64 {
    at + u64::try_from(length).expect("memory is below 2^64 bytes")
}

/// An object that is written in parts. If it is dropped before it is completed, it leaves nothing: its file
/// has no name, and is freed when its lease ends.
#[derive(Debug)]
pub(crate) struct Upload {
    store: BraidStore,
    name: Name,
    /// The file without a name; absent once the upload was completed or aborted.
    file: Option<Arc<File>>,
    /// Offset at which the next part begins: parts follow each other in the order of calls, whatever their
    /// sizes.
    at: u64,
    begun: usize,
    written: Arc<AtomicUsize>,
}

impl Upload {
    /// Begins an upload, with an empty file that has no name.
    pub(crate) async fn begin(
        store: &BraidStore,
        name: Name,
        attributes: &[(String, String)],
    ) -> Result<Upload, Error> {
        let file = store.client.create_for(&name, None, &BTreeSet::new()).await?;
        store.describe(file.number(), attributes).await?;
        let store = store.clone();
        let file = Some(Arc::new(file));
        Ok(Upload { store, name, file, at: 0, begun: 0, written: Arc::default() })
    }

    /// Writes the next part. Several parts may be written at the same time, and finish in any order.
    pub(crate) fn part(
        &mut self,
        pieces: Vec<Bytes>,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        let file = self.file.clone().ok_or_else(|| self.ended());
        let offset = self.at;
        let written = Arc::clone(&self.written);
        self.at += pieces.iter().map(|piece| after(0, piece.len())).sum::<u64>();
        self.begun += 1;
        async move {
            let file = file?;
            write(&file, offset, &pieces).await?;
            // Dropped before it is counted, so that `complete` can take the file out of its `Arc`.
            drop(file);
            written.fetch_add(1, Ordering::AcqRel);
            Ok(())
        }
    }

    /// Names the object, if all parts are written. A failed call may be repeated.
    pub(crate) async fn complete(&mut self) -> Result<Option<String>, Error> {
        let Some(file) = &self.file else { return Err(self.ended()) };
        let begun = self.begun;
        let written = self.written.load(Ordering::Acquire);
        if written < begun {
            return Err(Error::Parts { name: self.name.to_string(), written, begun });
        }
        self.store.give_name(file, &self.name, Replace::Yes).await?;
        let number = file.number();
        self.let_go().await;
        self.store.tag(number).await
    }

    /// Abandons the upload. Parts that are being written go on without effect.
    pub(crate) async fn abort(&mut self) {
        self.let_go().await;
    }

    async fn let_go(&mut self) {
        if let Some(file) = self.file.take().and_then(Arc::into_inner) {
            end(file).await;
        }
    }

    fn ended(&self) -> Error {
        Error::Ended { name: self.name.to_string() }
    }
}
