//! What a name on the command line stands for: a local path, `braid://VOLUME/PATH`, or `-` for a pipe. Bytes, not text.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use braid_client::Name;

use crate::exit::Failure;
use crate::report::show_name;

/// A place that bytes come from or go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// Standard input or output.
    Pipe,
    /// A path on this machine.
    Local(PathBuf),
    /// A name in a volume. `directory`: it was written with a slash at its end.
    Remote { name: Name, directory: bool },
}

impl Place {
    /// Reads a command-line argument.
    pub(crate) fn parse(text: &OsStr) -> Result<Place, Failure> {
        let bytes = text.as_bytes();
        match bytes {
            b"" => Err(Failure::usage("\"\"", "an empty name; write a path, braid://VOLUME/PATH or -")),
            b"-" => Ok(Place::Pipe),
            _ if Name::is_remote(bytes) => {
                let name = remote(text)?;
                Ok(Place::Remote { directory: name.is_root() || bytes.ends_with(b"/"), name })
            }
            _ => Ok(Place::Local(PathBuf::from(text))),
        }
    }

    /// The name of what is copied from here, to use in a directory: the last component.
    pub(crate) fn file_name(&self) -> Option<OsString> {
        match self {
            Place::Pipe => None,
            Place::Local(path) => path.file_name().map(OsStr::to_owned),
            Place::Remote { name, .. } => name.file_name().map(|bytes| OsString::from_vec(bytes.to_vec())),
        }
    }

    /// For messages.
    pub(crate) fn show(&self) -> String {
        match self {
            Place::Pipe => "-".into(),
            Place::Local(path) => show_name(path.as_os_str().as_bytes()),
            Place::Remote { name, .. } => show_remote(name),
        }
    }
}

/// Reads an argument that must be remote.
pub(crate) fn remote(text: &OsStr) -> Result<Name, Failure> {
    Name::parse(text.as_bytes())
        .map_err(|error| Failure::usage(show_name(text.as_bytes()), error.to_string()))
}

/// A remote name for messages and JSON, whatever its bytes.
pub(crate) fn show_remote(name: &Name) -> String {
    format!("braid://{}/{}", name.volume(), show_name(name.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &[u8]) -> Result<Place, Failure> {
        Place::parse(OsStr::from_bytes(text))
    }

    #[test]
    fn places() {
        assert_eq!(parse(b"-"), Ok(Place::Pipe));
        assert_eq!(parse(b"a/b\xff"), Ok(Place::Local(PathBuf::from(OsStr::from_bytes(b"a/b\xff")))));
        let Ok(Place::Remote { name, directory }) = parse(b"braid://main/d\xff/") else {
            panic!("not remote")
        };
        assert_eq!((name.path(), directory), (b"d\xff".as_slice(), true));
        assert!(matches!(parse(b"braid://main"), Ok(Place::Remote { directory: true, .. })));
    }

    #[test]
    fn bad_names_are_usage_errors_that_say_why() {
        let long = [b"braid://main/".as_slice(), &[b'x'; 256]].concat();
        for text in [
            b"".as_slice(),
            b"braid://",
            b"braid://main/a//b",
            b"braid://main/../x",
            b"braid://ma in/x",
            &long,
        ] {
            let failure = parse(text).expect_err("bad");
            assert_eq!(failure.exit, crate::exit::Exit::Usage, "{failure}");
        }
    }
}
