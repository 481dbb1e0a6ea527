//! The implementation of the trait of object_store 0.13.

pub use object_store_0_13 as object_store;

#[cfg_attr(
    feature = "v0_14",
    expect(clippy::duplicate_mod, reason = "the traits of both versions have the same text")
)]
#[path = "adapter.rs"]
mod adapter;

use std::ops::Range;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{Attributes, GetResult, GetResultPayload, ListResult, ObjectMeta, PutResult, Result};

fn put_result(e_tag: Option<String>) -> PutResult {
    PutResult { e_tag, version: None }
}

fn list_result(common_prefixes: Vec<Path>, objects: Vec<ObjectMeta>) -> ListResult {
    ListResult { common_prefixes, objects }
}

fn get_result(
    stream: BoxStream<'static, Result<Bytes>>,
    meta: ObjectMeta,
    range: Range<u64>,
    attributes: Attributes,
) -> GetResult {
    let payload = GetResultPayload::Stream(stream);
    GetResult { payload, meta, range, attributes }
}
