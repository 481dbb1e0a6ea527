//! What a name on the command line stands for: a local path, `braid://VOLUME/PATH`, or `-` for a pipe. Bytes, not text.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use braid_client::Name;
use serde::Serialize;

use crate::base64;
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
            _ if self.is_contents() => None,
            Place::Pipe => None,
            Place::Local(path) => path.file_name().map(OsStr::to_owned),
            Place::Remote { name, .. } => name.file_name().map(|bytes| OsString::from_vec(bytes.to_vec())),
        }
    }

    /// Whether it is a directory without a name of its own, a volume or `.`: copied into a directory it is what is in it.
    pub(crate) fn is_contents(&self) -> bool {
        match self {
            Place::Pipe => false,
            // By its bytes, as a path's components leave a dot at the end out.
            Place::Local(path) => {
                let mut parts = path.as_os_str().as_bytes().rsplit(|&byte| byte == b'/');
                matches!(parts.find(|part| !part.is_empty()), None | Some(b"." | b".."))
            }
            Place::Remote { name, .. } => name.is_root(),
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

impl Place {
    /// As bytes that mean the same when they are typed.
    fn bytes(&self) -> Vec<u8> {
        match self {
            Place::Pipe => b"-".to_vec(),
            Place::Local(path) => path.as_os_str().as_bytes().to_vec(),
            Place::Remote { name, .. } => typed(name),
        }
    }

    /// For `--json`.
    pub(crate) fn text(&self) -> Text {
        Text::new(&self.bytes())
    }
}

/// A remote name in `--json`, the same wherever there is one: whole, from `braid://` on, so that it can be typed again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct NameFacts {
    /// As it is, escaped by nothing but JSON itself.
    name: String,
    /// Present where the name is not UTF-8: its bytes in base64; `name` then has U+FFFD for what is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    name_bytes: Option<String>,
    /// For people.
    #[serde(skip)]
    pub(crate) shown: String,
}

impl NameFacts {
    pub(crate) fn new(name: &Name) -> NameFacts {
        let Text { text, bytes } = Text::of(name);
        NameFacts { name: text, name_bytes: bytes, shown: show_remote(name) }
    }
}

/// Bytes in `--json`: text, and in base64 where they are not UTF-8. A field `x` that holds the text has `x_bytes` beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) bytes: Option<String>,
}

impl Text {
    /// Of a remote name.
    pub(crate) fn of(name: &Name) -> Text {
        Text::new(&typed(name))
    }

    fn new(bytes: &[u8]) -> Text {
        match std::str::from_utf8(bytes) {
            Ok(text) => Text { text: text.to_owned(), bytes: None },
            Err(_) => {
                Text { text: String::from_utf8_lossy(bytes).into_owned(), bytes: Some(base64::encode(bytes)) }
            }
        }
    }
}

/// A remote name as it is typed; a volume's root without a slash.
fn typed(name: &Name) -> Vec<u8> {
    let mut bytes = format!("{}{}", braid_client::PREFIX, name.volume()).into_bytes();
    if !name.is_root() {
        bytes.push(b'/');
        bytes.extend_from_slice(name.path());
    }
    bytes
}

/// Reads an argument that must be remote.
pub(crate) fn remote(text: &OsStr) -> Result<Name, Failure> {
    Name::parse(text.as_bytes())
        .map_err(|error| Failure::usage(show_name(text.as_bytes()), error.to_string()))
}

/// A remote name for messages, whatever its bytes.
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
        // Read back it is the name itself: only JSON's own escapes are in the text.
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
            assert_eq!(failure.exit, crate::exit::Exit::Usage, "{failure}");
        }
    }
}
