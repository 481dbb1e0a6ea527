//! The implementation of the trait, for the version that `super::object_store` is.

use std::ops::Range;

use async_trait::async_trait;
use braid_client::Replace;
use braid_wire::control::RenameHow;
use bytes::Bytes;
use chrono::DateTime;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};

use super::object_store::path::Path;
use super::object_store::{
    Attribute, Attributes, CopyMode, CopyOptions, Error, GetOptions, GetRange, GetResult, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, RenameOptions, RenameTargetMode, Result, UpdateVersion, UploadPart, coalesce_ranges,
};
use crate::error::Family;
use crate::list::Found;
use crate::object::{Object, seen};
use crate::read::{self, REPLACED_MAX, is_gone};
use crate::store::BraidStore;
use crate::write::Upload;

/// The store's name in errors.
const STORE: &str = "Braid";
/// Maximum distance of two ranges of one object that are read as one.
const GAP_BYTES: u64 = 64 << 10;
/// Maximum number of objects that are deleted together.
const DELETED_TOGETHER: usize = 256;

#[async_trait]
impl ObjectStore for BraidStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let PutOptions { mode, tags: _, attributes, extensions: _ } = opts;
        let attributes = storable(self, &attributes)?;
        let failed = |error| failure(location, error);
        let name = self.name_to_change(location.as_ref()).map_err(failed)?;
        let replace = match mode {
            PutMode::Overwrite => Replace::Yes,
            PutMode::Create => Replace::No,
            PutMode::Update(UpdateVersion { e_tag, version: _ }) => {
                let seen = e_tag.as_deref().and_then(seen);
                Replace::Only(seen.ok_or_else(|| failed(crate::Error::NoTag { e_tag }))?)
            }
        };
        let e_tag = self.put(&name, payload.as_ref(), replace, &attributes).await.map_err(failed)?;
        Ok(super::put_result(e_tag))
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let PutMultipartOptions { tags: _, attributes, extensions: _ } = opts;
        let attributes = storable(self, &attributes)?;
        let failed = |error| failure(location, error);
        let name = self.name_to_change(location.as_ref()).map_err(failed)?;
        let upload = Upload::begin(self, name, &attributes).await.map_err(failed)?;
        Ok(Box::new(BraidUpload { location: location.clone(), upload }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let failed = |error| failure(location, error);
        if options.version.is_some() {
            return Err(lacks(self, "get_opts with a version: there is only the newest"));
        }
        let name = self.name(location.as_ref()).map_err(failed)?;
        if options.head {
            let object = self.stat(&name).await.map_err(failed)?;
            let meta = meta(location.clone(), &object);
            options.check_preconditions(&meta)?;
            let range = wanted(options.range.as_ref(), meta.size)?;
            let attributes = attributes(self.attributes(&object).await.map_err(failed)?);
            return Ok(super::get_result(stream::empty().boxed(), meta, range, attributes));
        }
        let mut tries = 0;
        loop {
            let (file, object) = self.open(&name).await.map_err(failed)?;
            let meta = meta(location.clone(), &object);
            options.check_preconditions(&meta)?;
            let range = wanted(options.range.as_ref(), meta.size)?;
            // The first bytes are read at once: an object that was replaced since it was opened is opened
            // again.
            let begun = async {
                let attributes = self.attributes(&object).await?;
                Ok((attributes, read::read(&file, read::first(&range)).await?))
            };
            tries += 1;
            match begun.await {
                Ok((stored, first)) => {
                    let place = location.clone();
                    let chunks = read::chunks(file, range.clone(), first);
                    let chunks = chunks.map(move |chunk| chunk.map_err(|error| failure(&place, error)));
                    return Ok(super::get_result(chunks.boxed(), meta, range, attributes(stored)));
                }
                Err(error) if is_gone(&error) && tries < REPLACED_MAX => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let failed = |error| failure(location, error);
        let name = self.name(location.as_ref()).map_err(failed)?;
        let mut tries = 0;
        loop {
            // All ranges are read from one content of the object.
            let (file, object) = self.open(&name).await.map_err(failed)?;
            let within = ranges.iter().map(|range| wanted(Some(&range.clone().into()), object.size()));
            let within = within.collect::<Result<Vec<_>>>()?;
            tries += 1;
            match coalesce_ranges(&within, |range| read::read(&file, range), GAP_BYTES).await {
                Err(error) if is_gone(&error) && tries < REPLACED_MAX => {}
                read => return read.map_err(failed),
            }
        }
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let chunks = locations.ready_chunks(DELETED_TOGETHER);
        let deleted = chunks.then(move |chunk| {
            let store = store.clone();
            async move { stream::iter(delete_chunk(&store, chunk).await) }
        });
        deleted.flatten().boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        listed(self, prefix, None)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        listed(self, prefix, Some(offset.to_string()))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let prefix = prefix.cloned().unwrap_or_default();
        let level = self.level(prefix.as_ref()).await.map_err(|error| failure(&prefix, error))?;
        let directories = level.directories.iter().map(Path::parse);
        let common_prefixes = directories.collect::<std::result::Result<_, _>>()?;
        let objects = level.objects.iter().map(found).collect::<Result<_>>()?;
        Ok(super::list_result(common_prefixes, objects))
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let CopyOptions { mode, extensions: _ } = options;
        let (replace, failed) = match mode {
            CopyMode::Overwrite => (Replace::Yes, from),
            CopyMode::Create => (Replace::No, to),
        };
        let (old, new) = names(self, from, to)?;
        self.copy(&old, &new, replace).await.map_err(|error| of_two(from, failed, error))
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let RenameOptions { target_mode, extensions: _ } = options;
        let how = match target_mode {
            RenameTargetMode::Overwrite => RenameHow::Replace,
            RenameTargetMode::Create => RenameHow::NoReplace,
        };
        let (old, new) = names(self, from, to)?;
        self.rename(&old, &new, how).await.map_err(|error| of_two(from, to, error))
    }
}

fn names(store: &BraidStore, from: &Path, to: &Path) -> Result<(braid_client::Name, braid_client::Name)> {
    let name = |at: &Path| store.name_to_change(at.as_ref()).map_err(|error| failure(at, error));
    Ok((name(from)?, name(to)?))
}

fn listed(
    store: &BraidStore,
    prefix: Option<&Path>,
    after: Option<String>,
) -> BoxStream<'static, Result<ObjectMeta>> {
    let prefix = prefix.cloned().unwrap_or_default();
    let walk = store.walk(prefix.as_ref(), after);
    walk.map(move |one| one.map_err(|error| failure(&prefix, error)).and_then(|one| found(&one))).boxed()
}

/// Deletes the objects in a chunk of a stream. Each result, and each error of the stream, keeps its place.
async fn delete_chunk(store: &BraidStore, chunk: Vec<Result<Path>>) -> Vec<Result<Path>> {
    let mut results = Vec::with_capacity(chunk.len());
    let mut places = Vec::new();
    let mut names = Vec::new();
    for location in chunk {
        let named = location.and_then(|location| match store.name_to_change(location.as_ref()) {
            Ok(name) => Ok((location, name)),
            Err(error) => Err(failure(&location, error)),
        });
        results.push(named.map(|(location, name)| {
            places.push(results.len());
            names.push(name);
            location
        }));
    }
    for (place, removed) in places.into_iter().zip(store.remove(&names).await) {
        if let (Err(error), Ok(location)) = (removed, &results[place]) {
            results[place] = Err(failure(location, error));
        }
    }
    results
}

/// Converts attributes to the form in which they are stored.
fn storable(store: &BraidStore, attributes: &Attributes) -> Result<Vec<(String, String)>> {
    let one = |(attribute, value): (&Attribute, &_)| {
        let name = match attribute {
            Attribute::CacheControl => "cache_control",
            Attribute::ContentDisposition => "content_disposition",
            Attribute::ContentEncoding => "content_encoding",
            Attribute::ContentLanguage => "content_language",
            Attribute::ContentType => "content_type",
            Attribute::Metadata(key) => return Ok((format!("{METADATA}{key}"), text(value))),
            other => return Err(lacks(store, &format!("put with the attribute {other:?}"))),
        };
        Ok((name.to_owned(), text(value)))
    };
    attributes.iter().map(one).collect()
}

fn lacks(store: &BraidStore, operation: &str) -> Error {
    Error::NotImplemented { operation: operation.to_owned(), implementer: store.to_string() }
}

/// Prefix of the user's own metadata among stored attributes.
const METADATA: &str = "metadata.";

fn text(value: &super::object_store::AttributeValue) -> String {
    value.as_ref().to_owned()
}

/// Converts stored attributes back. Attributes that a later release may have stored are left out.
fn attributes(stored: Vec<(String, String)>) -> Attributes {
    let known = stored.into_iter().filter_map(|(name, value)| {
        let attribute = match name.as_str() {
            "cache_control" => Attribute::CacheControl,
            "content_disposition" => Attribute::ContentDisposition,
            "content_encoding" => Attribute::ContentEncoding,
            "content_language" => Attribute::ContentLanguage,
            "content_type" => Attribute::ContentType,
            other => Attribute::Metadata(other.strip_prefix(METADATA)?.to_owned().into()),
        };
        Some((attribute, value))
    });
    known.collect()
}

/// An upload in parts.
#[derive(Debug)]
struct BraidUpload {
    location: Path,
    upload: Upload,
}

#[async_trait]
impl MultipartUpload for BraidUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let location = self.location.clone();
        let part = self.upload.part(data.into_iter().collect());
        Box::pin(async move { part.await.map_err(|error| failure(&location, error)) })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let e_tag = self.upload.complete().await.map_err(|error| failure(&self.location, error))?;
        Ok(super::put_result(e_tag))
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await;
        Ok(())
    }
}

fn meta(location: Path, object: &Object) -> ObjectMeta {
    ObjectMeta {
        location,
        last_modified: DateTime::from_timestamp_nanos(object.modified_ns()),
        size: object.size(),
        e_tag: Some(object.e_tag()),
        version: None,
    }
}

fn found(found: &Found) -> Result<ObjectMeta> {
    Ok(meta(Path::parse(&found.location)?, &found.object))
}

/// The byte range that a request asks for of an object of this size.
fn wanted(range: Option<&GetRange>, size: u64) -> Result<Range<u64>> {
    let Some(range) = range else { return Ok(0..size) };
    range.as_range(size).map_err(|error| Error::Generic { store: STORE, source: error.into() })
}

fn failure(location: &Path, error: crate::Error) -> Error {
    let path = location.to_string();
    let family = error.family();
    let source = Box::new(error);
    match family {
        Family::NotFound => Error::NotFound { path, source },
        Family::Exists => Error::AlreadyExists { path, source },
        Family::Precondition => Error::Precondition { path, source },
        Family::Permission => Error::PermissionDenied { path, source },
        Family::Token => Error::Unauthenticated { path, source },
        Family::Other => Error::Generic { store: STORE, source },
    }
}

/// The error of a request about two objects: an object that exists already is the second one.
fn of_two(from: &Path, to: &Path, error: crate::Error) -> Error {
    let location = if error.family() == Family::Exists { to } else { from };
    failure(location, error)
}
