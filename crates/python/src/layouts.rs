//! Layouts as Python sees them: text in, a dictionary out.

use braid_layout::Shape;
use braid_wire::control::{LayoutFrom, LayoutReply};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The layout that counts at a name, as a dictionary.
#[derive(IntoPyObject)]
pub(crate) struct InForce {
    scheme: String,
    width: u8,
    unit: u32,
    source: &'static str,
    path: String,
}

impl From<LayoutReply> for InForce {
    fn from(reply: LayoutReply) -> InForce {
        let shape = reply.shape.shape();
        InForce {
            scheme: shape.as_ref().map_or_else(|error| error.to_string(), Shape::to_string),
            width: reply.shape.k.saturating_add(reply.shape.m),
            unit: reply.shape.unit_bytes,
            source: match reply.from {
                LayoutFrom::File => "file",
                LayoutFrom::Directory => "directory",
                LayoutFrom::Volume => "volume",
            },
            path: reply.path,
        }
    }
}

/// The shape that a text stands for. Anything else is a `ValueError`.
pub(crate) fn shape(text: Option<&str>) -> PyResult<Option<Shape>> {
    let shape = text.map(Shape::from_text).transpose();
    shape.map_err(|error| PyValueError::new_err(format!("layout {:?}: {error}", text.unwrap_or_default())))
}
