//! Attributes of files, to be set from Python: permissions, owner and times, and the values of extended
//! attributes.

use braid_client::AttributeChanges;
use braid_client::Name;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// New attributes: permission bits, owner, group, and the times of the last read and the last change in
/// nanoseconds since 1970. Those that are absent stay as they are.
pub(crate) type Changes = (Option<u32>, Option<u32>, Option<u32>, Option<i64>, Option<i64>);

pub(crate) fn changes(asked: Changes) -> AttributeChanges {
    let (mode, uid, gid, accessed_ns, modified_ns) = asked;
    AttributeChanges { mode, uid, gid, accessed_ns, modified_ns }
}

/// The value of an extended attribute, which becomes a `bytes` object.
pub(crate) struct Value(pub(crate) Vec<u8>);

impl<'py> IntoPyObject<'py> for Value {
    type Target = PyBytes;
    type Output = Bound<'py, PyBytes>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.0))
    }
}

/// The name itself, or with `follow` the object that it leads to, named by its number, so that it stays the
/// same file whatever happens to the name.
pub(crate) async fn followed(
    client: &braid_client::Client,
    name: Name,
    follow: bool,
) -> braid_client::Result<Name> {
    if !follow {
        return Ok(name);
    }
    let row = client.stat(&name).await?;
    Ok(name.beneath(&row, Vec::new()))
}
