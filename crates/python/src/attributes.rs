//! What is known of names besides their bytes: whose it is, and its value in Python.

use braid_client::{AttributeChanges, Name};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Permission bits, owner, group, and when it was read and changed in nanoseconds since 1970; what is absent
/// stays.
pub(crate) type Changes = (Option<u32>, Option<u32>, Option<u32>, Option<i64>, Option<i64>);

pub(crate) fn changes((mode, uid, gid, accessed_ns, modified_ns): Changes) -> AttributeChanges {
    AttributeChanges { mode, uid, gid, accessed_ns, modified_ns }
}

/// An extended attribute's value, as bytes.
pub(crate) struct Value(pub(crate) Vec<u8>);

impl<'py> IntoPyObject<'py> for Value {
    type Target = PyBytes;
    type Output = Bound<'py, PyBytes>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.0))
    }
}

/// The name of what a name leads to: by its number, so that it is one file whatever happens to the name.
pub(crate) async fn followed(
    client: &braid_client::Client,
    name: Name,
    follow: bool,
) -> braid_client::Result<Name> {
    if !follow {
        return Ok(name);
    }
    let file = client.stat(&name).await?.file;
    Ok(Name::number(name.volume(), file).expect("the volume is that of a name"))
}
