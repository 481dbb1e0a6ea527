//! Copies objects: each is read here, and written to a new file. A second name for the same file would cost
//! nothing, but a program that writes one of the two names through a mount would change both.

use std::collections::BTreeSet;
use std::sync::Arc;

use braid_client::File;
use braid_client::Name;
use braid_client::Replace;
use futures_util::stream::{self, TryStreamExt};

use crate::error::Error;
use crate::object::Object;
use crate::read::{CHUNK_BYTES, REPLACED_MAX, is_gone, read};
use crate::store::BraidStore;
use crate::write::{SMALL_BYTES_MAX, end};

/// Maximum number of chunks that are read and written at the same time.
const TOGETHER: usize = 4;

impl BraidStore {
    /// Copies an object. The copy appears whole or not at all.
    pub(crate) async fn copy(&self, from: &Name, to: &Name, replace: Replace) -> Result<(), Error> {
        // An existing object is found here before any bytes are copied in vain; one that is made meanwhile
        // is found when the copy gets its name.
        if replace == Replace::No && self.stat(to).await.is_ok() {
            self.stat(from).await?;
            return Err(Error::Exists { name: to.to_string() });
        }
        let mut tries = 0;
        loop {
            tries += 1;
            let (file, object) = self.open(from).await?;
            match self.copy_opened(file, object, to, replace).await {
                Err(error) if is_gone(&error) && tries < REPLACED_MAX => {}
                copied => return copied,
            }
        }
    }

    async fn copy_opened(
        &self,
        source: Arc<File>,
        object: Object,
        to: &Name,
        replace: Replace,
    ) -> Result<(), Error> {
        let attributes = self.attributes(&object).await?;
        if usize::try_from(object.size()).is_ok_and(|size| size <= SMALL_BYTES_MAX) {
            let bytes = read(&source, 0..object.size()).await?;
            return self.put(to, &[bytes], replace, &attributes).await.map(drop);
        }
        let target = Arc::new(self.client.create_for(to, None, &BTreeSet::new()).await?);
        let copied = async {
            self.describe(target.number(), &attributes).await?;
            copy_bytes(&source, &target, object.size()).await?;
            self.give_name(&target, to, replace).await
        };
        let copied = copied.await;
        if let Some(target) = Arc::into_inner(target) {
            end(target).await;
        }
        copied
    }
}

/// Copies all bytes that may be other than zeros, and the size.
async fn copy_bytes(from: &Arc<File>, to: &Arc<File>, size: u64) -> Result<(), Error> {
    let stripe = to.stripe_bytes().max(1);
    let most = (CHUNK_BYTES / stripe).max(1) * stripe;
    // The state: where the next chunk begins, and where the range known to hold data ends.
    let parts = stream::try_unfold((Arc::clone(from), 0, 0), move |(from, mut at, mut end)| async move {
        if at >= end {
            match from.data_after(at).await? {
                Some(range) if range.start < size => (at, end) = (range.start, range.end.min(size)),
                _ => return Ok(None),
            }
        }
        let next = end.min((at / most + 1) * most);
        Ok::<_, Error>(Some((at..next, (from, next, end))))
    });
    let copying = parts.map_ok(|range| {
        let from = Arc::clone(from);
        let to = Arc::clone(to);
        async move {
            let bytes = read(&from, range.clone()).await?;
            Ok(to.write_at(&bytes, range.start).await?)
        }
    });
    copying.try_buffer_unordered(TOGETHER).try_for_each(|()| async { Ok(()) }).await?;
    if to.size() < size {
        to.set_len(size).await?;
    }
    Ok(())
}
