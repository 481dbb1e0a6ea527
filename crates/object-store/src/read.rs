//! Reads the facts, bytes and attributes of objects.

use std::ops::Range;
use std::sync::Arc;

use braid_client::File;
use braid_client::Name;
use braid_client::OpenOptions;
use braid_layout::FileId;
use braid_wire::Reason;
use braid_wire::control::{EntryKind, StatRow};
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};

use crate::error::{Error, of_object};
use crate::object::Object;
use crate::store::BraidStore;

/// Length of the chunks that a stream reads, in bytes: as many as the client puts into one plan set.
pub(crate) const CHUNK_BYTES: u64 = 8 << 20;
/// Maximum number of chunks that a stream reads at the same time, ahead of its consumer.
const AHEAD: usize = 2;

/// Maximum number of tries of a read that finds the object replaced before the first byte.
pub(crate) const REPLACED_MAX: usize = 32;

/// Prefix of the extended attributes in which attributes of objects are kept. Mounts show them too.
pub(crate) const XATTR_PREFIX: &str = "user.object_store.";

impl BraidStore {
    /// Opens an object to read it.
    pub(crate) async fn open(&self, name: &Name) -> Result<(Arc<File>, Object), Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.client.open(name, &OpenOptions::new().read(true)).await {
                Ok(file) => {
                    let snapshot = file.known().snapshot;
                    let object = Object { number: file.number(), attributes: file.attributes(), snapshot };
                    return Ok((Arc::new(file), object));
                }
                // The object may have been replaced while it was opened: then the name stands for another
                // file by now.
                Err(error) if error.reason() == Some(Reason::NotFound) && tries < REPLACED_MAX => {
                    self.stat(name).await?;
                }
                Err(error) => return Err(of_object(error)),
            }
        }
    }

    /// Looks up the number and attributes of an object.
    pub(crate) async fn stat(&self, name: &Name) -> Result<Object, Error> {
        let row = self.client.stat(name).await.map_err(of_object)?;
        object(row).ok_or_else(|| Error::NoFile { name: name.to_string() })
    }

    /// Reads the stored attributes of an object. Their names are returned without the prefix.
    pub(crate) async fn attributes(&self, object: &Object) -> Result<Vec<(String, String)>, Error> {
        if !object.attributes.has_xattrs {
            return Ok(Vec::new());
        }
        let xattrs = self.client.xattrs(&self.numbered(object)).await?;
        let ours = xattrs.into_iter().filter_map(|xattr| {
            let name = String::from_utf8(xattr.name).ok()?;
            let name = name.strip_prefix(XATTR_PREFIX)?.to_owned();
            Some((name, String::from_utf8(xattr.value).ok()?))
        });
        Ok(ours.collect())
    }

    /// The name of the file with this number, whatever other name the file has.
    pub(crate) fn numbered(&self, object: &Object) -> Name {
        let Object { number, snapshot, .. } = *object;
        Name::number_in(self.root.volume(), number, snapshot).expect("the volume's name is that of a name")
    }

    /// The name of a live file with this number.
    pub(crate) fn numbered_now(&self, file: FileId) -> Name {
        Name::number(self.root.volume(), file).expect("the volume's name is that of a name")
    }
}

/// The object that a row describes, if it is a file.
pub(crate) fn object(row: StatRow) -> Option<Object> {
    (row.kind() == EntryKind::File).then_some(Object {
        number: row.file,
        attributes: row.attributes,
        snapshot: row.snapshot,
    })
}

/// Returns true if the object was replaced or deleted while it was open: a file without a name is freed.
pub(crate) fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Client(error) if error.reason() == Some(Reason::NotFound))
}

/// The first part of a range, which is read before the stream is returned.
pub(crate) fn first(range: &Range<u64>) -> Range<u64> {
    range.start..range.end.min(range.start.saturating_add(CHUNK_BYTES))
}

/// Reads a range that lies within the file.
pub(crate) async fn read(file: &File, range: Range<u64>) -> Result<Bytes, Error> {
    let wanted = usize::try_from(range.end - range.start).expect("a range of memory");
    let mut bytes = vec![0; wanted];
    let read = file.read_at(&mut bytes, range.start).await?;
    if read < wanted {
        return Err(Error::Shrunk { name: file.subject().to_owned(), read, wanted });
    }
    Ok(bytes.into())
}

/// Streams the bytes of a range in chunks, of which the [`first`] is read already. Holds at most three of
/// them.
pub(crate) fn chunks(
    file: Arc<File>,
    range: Range<u64>,
    first: Bytes,
) -> BoxStream<'static, Result<Bytes, Error>> {
    let read = range.start + u64::try_from(first.len()).expect("memory is below 2^64 bytes");
    let starts = stream::iter((read..range.end).step_by(usize::try_from(CHUNK_BYTES).expect("small")));
    let rest = starts.map(move |start| {
        let file = Arc::clone(&file);
        let end = range.end.min(start + CHUNK_BYTES);
        async move { self::read(&file, start..end).await }
    });
    let head = stream::iter((!first.is_empty()).then_some(Ok(first)));
    head.chain(rest.buffered(AHEAD)).boxed()
}
