//! Keys: a volume's data key, and where the key is by which it is wrapped: in a file ([`super::key_file`]),
//! or at a key server that a command asks ([`super::command`]).
//!
//! Keys and texts of keys are overwritten in memory when they are not needed any more. This does not hold for
//! what the system's pipes have, and for registers and stacks of functions that have returned.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use aws_lc_rs::hmac;
use braid_layout::FileId;
use braid_wire::control::VolumeKey;
use zeroize::Zeroizing;

use crate::cluster::environment;
use crate::sealed::command;
use crate::sealed::key_file::FileKey;

/// The environment's variable that names keys of volumes.
pub const KEYS_VARIABLE: &str = "BRAID_VOLUME_KEYS";

/// The beginning of a text that names a key command, not a file.
const COMMAND: &str = "command:";
/// The number of bytes of a key.
pub(crate) const KEY_BYTES: usize = 32;

/// The bytes of a key, which are overwritten when they are dropped.
pub(crate) type KeyBytes = Zeroizing<[u8; KEY_BYTES]>;

/// A volume's data key. Its `Debug` form does not show it.
pub(crate) struct DataKey(hmac::Key, KeyBytes);

/// The place of the key by which a volume's data key is wrapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A file with 32 random bytes, or 64 hex digits.
    File(PathBuf),
    /// A command that wraps and unwraps: docs/volumes.md has its protocol.
    Command(String),
}

/// The keys that a client may use, by volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeKeys(BTreeMap<String, KeySource>);

/// Reason for which an encrypted volume's key cannot be had.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Nothing says where the key is.
    #[error(
        "its key is {id}, and nothing says where that is: name its file or command by --volume-key NAME=FILE, in \
         {KEYS_VARIABLE}, or under [volume-keys] in cluster.toml"
    )]
    Missing {
        /// Name of the key.
        id: String,
    },
    /// The key file cannot be read.
    #[error("read the key {}: {source}", path.display())]
    File {
        /// The key file.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// The file holds no key.
    #[error(
        "{} holds no key: a key is 32 random bytes or 64 hex digits, as by `head -c 32 /dev/urandom > FILE`",
        path.display()
    )]
    NoKey {
        /// The key file.
        path: PathBuf,
    },
    /// It is another key.
    #[error("its key is {id}, and {} has key {given}", path.display())]
    Other {
        /// Name of the key that is needed.
        id: String,
        /// The key file.
        path: PathBuf,
        /// Name of the file's key.
        given: String,
    },
    /// The key does not open what the manager has.
    #[error("what the manager has of its data key was not wrapped by {id}, or is damaged")]
    Damaged {
        /// Name of the key.
        id: String,
    },
    /// A data key that was just wrapped does not come back.
    #[error("the data key was wrapped and did not come back, so nothing was changed: {why}")]
    NotAgain {
        /// The error at unwrapping it.
        why: String,
    },
    /// The key command failed.
    #[error("the key command `{command}` failed: {why}")]
    Command {
        /// The command with its verb.
        command: String,
        /// The first line that it said.
        why: String,
    },
    /// The key command did not end, or the key file could not be read in time.
    #[error("{what} gave no answer in {seconds} s")]
    Silent {
        /// The command with its verb, or the file.
        what: String,
        /// The time that it was given.
        seconds: u64,
    },
    /// A text does not say where a key is.
    #[error("{text:?} does not say where a volume's key is: give NAME=FILE or NAME=command:COMMAND")]
    Words {
        /// The text as given.
        text: String,
    },
    /// The system has no random numbers.
    #[error("random numbers: {why}")]
    Random {
        /// The system's error.
        why: String,
    },
}

impl DataKey {
    pub(crate) fn new(bytes: KeyBytes) -> DataKey {
        DataKey(hmac::Key::new(hmac::HMAC_SHA256, &*bytes), bytes)
    }

    pub(crate) fn draw() -> Result<DataKey, KeyError> {
        Ok(DataKey::new(Zeroizing::new(random()?)))
    }

    /// The key of one file.
    pub(crate) fn of_file(&self, file: FileId) -> hmac::Key {
        let text = [&b"braid file key 1"[..], &file.0.to_le_bytes()].concat();
        hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&self.0, &text).as_ref())
    }

    /// A value that tells this key from others, and does not tell the key.
    fn check(&self) -> [u8; 16] {
        let mac = hmac::sign(&self.0, b"braid data key check");
        mac.as_ref().first_chunk().copied().expect("an HMAC-SHA256 has 32 bytes")
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey")
    }
}

impl KeySource {
    /// A file's path, or `command:` and a command.
    pub fn parse(text: &str) -> Result<KeySource, KeyError> {
        let wrong = || KeyError::Words { text: text.to_owned() };
        match text.strip_prefix(COMMAND) {
            Some(command) if command.trim().is_empty() => Err(wrong()),
            Some(command) => Ok(KeySource::Command(command.to_owned())),
            None if text.is_empty() => Err(wrong()),
            None => Ok(KeySource::File(text.into())),
        }
    }

    /// Wraps a volume's data key, and unwraps it again: what does not come back would be lost.
    pub(crate) async fn wrap(&self, volume: &str, key: &DataKey) -> Result<VolumeKey, KeyError> {
        let check = key.check();
        let wrapped = match self {
            KeySource::File(path) => {
                let own = FileKey::read(path).await?;
                VolumeKey { id: own.id(), wrapped: own.wrap(volume, &key.1)?, check }
            }
            KeySource::Command(command) => {
                let (wrapped, id) = command::wrap(command, volume, &key.1).await?;
                VolumeKey { id: format!("{COMMAND}{id}"), wrapped, check }
            }
        };
        let again = Box::pin(self.unwrap(volume, &wrapped)).await;
        again.map(|_| wrapped).map_err(|error| KeyError::NotAgain { why: error.to_string() })
    }

    /// Unwraps a volume's data key.
    pub(crate) async fn unwrap(&self, volume: &str, key: &VolumeKey) -> Result<DataKey, KeyError> {
        let bytes = match self {
            KeySource::File(path) => {
                let own = FileKey::read(path).await?;
                if own.id() != key.id {
                    return Err(KeyError::Other { id: key.id.clone(), path: path.clone(), given: own.id() });
                }
                own.unwrap(volume, &key.wrapped)
            }
            KeySource::Command(command) => {
                let bytes = command::unwrap(command, volume, &key.wrapped).await?;
                <[u8; KEY_BYTES]>::try_from(bytes.as_slice()).ok().map(Zeroizing::new)
            }
        };
        let opened = bytes.map(DataKey::new).filter(|opened| opened.check() == key.check);
        opened.ok_or_else(|| KeyError::Damaged { id: key.id.clone() })
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySource::File(path) => path.display().fmt(f),
            KeySource::Command(command) => write!(f, "{COMMAND}{command}"),
        }
    }
}

impl VolumeKeys {
    /// Those that the environment names: `NAME=FILE,NAME=command:COMMAND`.
    pub fn from_environment() -> Result<VolumeKeys, KeyError> {
        let mut keys = VolumeKeys::default();
        if let Some(texts) = environment(KEYS_VARIABLE) {
            let texts = texts.to_string_lossy().into_owned();
            texts.split(',').filter(|text| !text.is_empty()).try_for_each(|text| keys.add(text))?;
        }
        Ok(keys)
    }

    /// Says where a volume's key is, in place of what was said before.
    pub fn insert(&mut self, volume: &str, source: KeySource) {
        self.0.insert(volume.to_owned(), source);
    }

    /// The same, by a text `NAME=FILE` or `NAME=command:COMMAND`.
    pub fn add(&mut self, text: &str) -> Result<(), KeyError> {
        let named = text.split_once('=').filter(|(volume, _)| !volume.is_empty());
        let (volume, source) = named.ok_or_else(|| KeyError::Words { text: text.to_owned() })?;
        let source = KeySource::parse(source).map_err(|_| KeyError::Words { text: text.to_owned() })?;
        self.insert(volume, source);
        Ok(())
    }

    /// Takes over what others say, in place of what is said here of the same volumes.
    pub fn extend(&mut self, others: VolumeKeys) {
        self.0.extend(others.0);
    }

    /// The volumes whose keys have a place here.
    pub(crate) fn volumes(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The place of a volume's key.
    pub fn of(&self, volume: &str) -> Option<&KeySource> {
        self.0.get(volume)
    }
}

/// Draws random bytes.
pub(crate) fn random<const BYTES: usize>() -> Result<[u8; BYTES], KeyError> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| KeyError::Random { why: error.to_string() })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_key_that_wrapped_it_unwraps_a_data_key() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = |name: &str, bytes: &[u8]| {
            std::fs::write(dir.path().join(name), bytes).expect("written");
            KeySource::File(dir.path().join(name))
        };
        let one = file("one", &[7; 32]);
        let other = file("other", &[8; 32]);
        let key = DataKey::draw().expect("drawn");
        let wrapped = one.wrap("v", &key).await.expect("wrapped");
        assert!(!wrapped.wrapped.windows(8).any(|some| key.1.windows(8).any(|of_key| some == of_key)));
        assert_eq!(one.unwrap("v", &wrapped).await.expect("unwrapped").1, key.1);
        // The same key in hex digits.
        let digits = file("digits", format!("{}\n", "07".repeat(32)).as_bytes());
        assert_eq!(digits.unwrap("v", &wrapped).await.expect("unwrapped").1, key.1);
        let said = other.unwrap("v", &wrapped).await.expect_err("another key").to_string();
        assert!(said.contains(&wrapped.id), "{said}");
        for at in 0..wrapped.wrapped.len() {
            let mut damaged = wrapped.clone();
            damaged.wrapped[at] ^= 1;
            assert!(matches!(one.unwrap("v", &damaged).await, Err(KeyError::Damaged { .. })), "{at}");
        }
        let of_other = VolumeKey { check: [0; 16], ..wrapped.clone() };
        assert!(matches!(one.unwrap("v", &of_other).await, Err(KeyError::Damaged { .. })));
        for none in [&b""[..], &[7; 31], "07".repeat(31).as_bytes(), "0g".repeat(32).as_bytes()] {
            let said = file("none", none).unwrap("v", &wrapped).await.expect_err("no key").to_string();
            assert!(said.contains("/dev/urandom"), "{said}");
        }
        let gone = KeySource::File(dir.path().join("gone"));
        assert!(matches!(gone.unwrap("v", &wrapped).await, Err(KeyError::File { .. })));
    }

    #[test]
    fn texts_say_where_keys_are() {
        let mut keys = VolumeKeys::default();
        keys.add("media=/etc/a=b.key").expect("a file");
        keys.add("archive=command:kms --key k1").expect("a command");
        assert_eq!(keys.of("media"), Some(&KeySource::File("/etc/a=b.key".into())));
        assert_eq!(keys.of("archive"), Some(&KeySource::Command("kms --key k1".to_owned())));
        assert_eq!(keys.of("other"), None);
        for wrong in ["", "media", "=file", "media=", "media=command:", "media=command: "] {
            let said = keys.add(wrong).expect_err(wrong).to_string();
            assert!(said.contains("NAME=FILE"), "{said}");
        }
    }
}
