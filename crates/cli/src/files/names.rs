//! Names on the command line: a local path, `braid://VOLUME/PATH`, or `-` for a pipe. Names are bytes, not
//! text.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use braid_client::Name;
use serde::Serialize;

use crate::files::beneath::LocalPath;
use crate::output::exit::Failure;
use crate::output::report::show_name;

/// A place that bytes come from or go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Location {
    /// Standard input or output.
    Pipe,
    /// A path on this machine.
    Local(LocalPath),
    /// A name in a volume. `directory` is true if the name was written with a trailing slash, or is a
    /// volume's root.
    Remote { name: Name, directory: bool },
}

impl Location {
    /// Reads a command-line argument.
    pub(crate) fn parse(text: &OsStr) -> Result<Location, Failure> {
        let bytes = text.as_bytes();
        match bytes {
            b"" => Err(Failure::usage("\"\"", "an empty name; write a path, braid://VOLUME/PATH or -")),
            b"-" => Ok(Location::Pipe),
            _ if Name::is_remote(bytes) => {
                let name = remote(text)?;
                Ok(Location::Remote { directory: name.is_root() || bytes.ends_with(b"/"), name })
            }
            _ => Ok(Location::Local(LocalPath::typed(text))),
        }
    }

    /// The last component: the name that a copy gets inside a directory.
    pub(crate) fn file_name(&self) -> Option<OsString> {
        match self {
            _ if self.is_contents() => None,
            Location::Pipe => None,
            Location::Local(path) => path.file_name().map(OsStr::to_owned),
            Location::Remote { name, .. } => name.file_name().map(|bytes| OsString::from_vec(bytes.to_vec())),
        }
    }

    /// Returns true for a directory without a name of its own: a volume's root, `.` or `..`. Copying it into
    /// a directory copies what is in it.
    pub(crate) fn is_contents(&self) -> bool {
        match self {
            Location::Pipe => false,
            // Checked on the bytes, since `Path::components` drops a trailing dot.
            Location::Local(path) => {
                let Some(path) = path.as_typed() else { return false };
                let mut parts = path.as_os_str().as_bytes().rsplit(|&byte| byte == b'/');
                matches!(parts.find(|part| !part.is_empty()), None | Some(b"." | b".."))
            }
            Location::Remote { name, .. } => name.is_root(),
        }
    }

    pub(crate) fn show(&self) -> String {
        match self {
            Location::Pipe => "-".into(),
            Location::Local(path) => show_name(path.whole().as_os_str().as_bytes()),
            Location::Remote { name, .. } => show_remote(name),
        }
    }
}

impl Location {
    /// The location as bytes that mean the same if typed.
    fn bytes(&self) -> Vec<u8> {
        match self {
            Location::Pipe => b"-".to_vec(),
            Location::Local(path) => path.whole().into_os_string().into_vec(),
            Location::Remote { name, .. } => typed(name),
        }
    }

    /// The location for `--json`.
    pub(crate) fn text(&self) -> Text {
        Text::new(&self.bytes())
    }
}

/// A remote name in `--json`, the same in every command: the whole name from `braid://` on, so that it can be
/// typed again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct NameFacts {
    /// The name, unescaped except for JSON's own escapes.
    name: String,
    /// The name's bytes in base64, if it is not UTF-8. `name` then has U+FFFD for the invalid ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    name_bytes: Option<String>,
    /// The name as shown to users.
    #[serde(skip)]
    pub(crate) shown: String,
}

impl NameFacts {
    pub(crate) fn new(name: &Name) -> NameFacts {
        let Text { text, bytes } = Text::of(name);
        NameFacts { name: text, name_bytes: bytes, shown: show_remote(name) }
    }
}

/// Bytes in `--json`: as text and, if they are not UTF-8, in base64 as well. A text field `x` has `x_bytes`
/// beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) bytes: Option<String>,
}

impl Text {
    /// The text of a remote name.
    pub(crate) fn of(name: &Name) -> Text {
        Text::new(&typed(name))
    }

    pub(crate) fn new(bytes: &[u8]) -> Text {
        match std::str::from_utf8(bytes) {
            Ok(text) => Text { text: text.to_owned(), bytes: None },
            Err(_) => Text {
                text: String::from_utf8_lossy(bytes).into_owned(),
                bytes: Some(braid_wire::base64::encode(bytes)),
            },
        }
    }
}

/// A remote name as it is typed; a volume's root has no trailing slash.
fn typed(name: &Name) -> Vec<u8> {
    let mut bytes = format!("{}{}", braid_client::PREFIX, name.label()).into_bytes();
    if !name.is_root() {
        bytes.push(b'/');
        bytes.extend_from_slice(name.path());
    }
    bytes
}

/// Parses an argument that must be remote.
pub(crate) fn remote(text: &OsStr) -> Result<Name, Failure> {
    Name::parse(text.as_bytes())
        .map_err(|error| Failure::usage(show_name(text.as_bytes()), error.to_string()))
}

/// A remote name for messages, with odd bytes escaped.
pub(crate) fn show_remote(name: &Name) -> String {
    format!("braid://{}/{}", name.label(), show_name(name.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &[u8]) -> Result<Location, Failure> {
        Location::parse(OsStr::from_bytes(text))
    }

    #[test]
    fn places() {
        assert_eq!(parse(b"-"), Ok(Location::Pipe));
        assert_eq!(parse(b"a/b\xff"), Ok(Location::Local(LocalPath::typed(OsStr::from_bytes(b"a/b\xff")))));
        let Ok(Location::Remote { name, directory }) = parse(b"braid://main/d\xff/") else {
            panic!("not remote")
        };
        assert_eq!((name.path(), directory), (b"d\xff".as_slice(), true));
        assert!(matches!(parse(b"braid://main"), Ok(Location::Remote { directory: true, .. })));
    }

    #[test]
    fn what_has_no_name_of_its_own_is_its_contents() {
        for contents in ["/", ".", "..", "a/.", "a/./", "a/..", "braid://main", "braid://main/"] {
            let place = parse(contents.as_bytes()).expect("a place");
            assert!(place.is_contents() && place.file_name().is_none(), "{contents}");
        }
        for named in ["a", "a/", "./a", "a/.b", "braid://main/a/"] {
            let place = parse(named.as_bytes()).expect("a place");
            assert!(!place.is_contents() && place.file_name().is_some(), "{named}");
        }
    }

    #[test]
    fn any_bytes_come_through_json() {
        let name = |path: &[u8]| NameFacts::new(&Name::new("main", path).expect("a name"));
        let json = |path: &[u8]| serde_json::to_value(name(path)).expect("JSON");
        assert_eq!(json(b"a\\b\n\"c").as_object().map(serde_json::Map::len), Some(1));
        // Parsed back, it is the name itself: the text has only JSON's own escapes.
        assert_eq!(json(b"a\\b\n\"c")["name"], "braid://main/a\\b\n\"c");
        assert_eq!(json(b"")["name"], "braid://main");
        let odd = json(b"d\xff");
        assert_eq!(
            (odd["name"].as_str(), odd["name_bytes"].as_str()),
            (Some("braid://main/d\u{fffd}"), Some("YnJhaWQ6Ly9tYWluL2T/"))
        );
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
            assert_eq!(failure.exit, crate::output::exit::Exit::Usage, "{failure}");
        }
    }
}
