//! Keys: a volume's data key, and the keys by which it is wrapped: of a file, or of a command that asks a
//! key server.
//!
//! A key file holds 32 random bytes, or 64 hex digits. A data key that is wrapped by one is: a byte 1, a
//! nonce of 12 bytes, 32 bytes sealed by AES-256-GCM, the tag of 16 bytes. What a key command makes of it is
//! the command's own affair ([`super::command`]).

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use braid_layout::FileId;
use braid_wire::control::VolumeKey;

use crate::cluster::environment;
use crate::sealed::command;

/// The environment's variable that names keys of volumes.
pub const KEYS_VARIABLE: &str = "BRAID_VOLUME_KEYS";

/// The beginning of a text that names a key command, not a file.
const COMMAND: &str = "command:";
/// The first byte of a data key that a key file's key has wrapped.
const FORMAT: u8 = 1;
const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 12;
const WRAPPED_FOR: &[u8] = b"braid data key 1";

/// A volume's data key. Its `Debug` form does not show it.
pub(crate) struct DataKey(hmac::Key, [u8; KEY_BYTES]);

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
#[derive(Debug, thiserror::Error)]
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
        source: io::Error,
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
    /// The key command failed.
    #[error("the key command `{command}` failed: {why}")]
    Command {
        /// The command with its verb.
        command: String,
        /// The first line that it said.
        why: String,
    },
    /// The key command did not end.
    #[error("the key command `{command}` gave no answer in {} s, and was ended", command::WAIT.as_secs())]
    Silent {
        /// The command with its verb.
        command: String,
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
    pub(crate) fn new(bytes: [u8; KEY_BYTES]) -> DataKey {
        DataKey(hmac::Key::new(hmac::HMAC_SHA256, &bytes), bytes)
    }

    pub(crate) fn draw() -> Result<DataKey, KeyError> {
        Ok(DataKey::new(random()?))
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

    /// Wraps a volume's data key.
    pub(crate) async fn wrap(&self, volume: &str, key: &DataKey) -> Result<VolumeKey, KeyError> {
        let check = key.check();
        match self {
            KeySource::File(path) => {
                let own = FileKey::read(path)?;
                Ok(VolumeKey { id: own.id(), wrapped: own.wrap(&key.1)?, check })
            }
            KeySource::Command(command) => {
                let (wrapped, id) = command::wrap(command, volume, &key.1).await?;
                Ok(VolumeKey { id: format!("{COMMAND}{id}"), wrapped, check })
            }
        }
    }

    /// Unwraps a volume's data key.
    pub(crate) async fn unwrap(&self, volume: &str, key: &VolumeKey) -> Result<DataKey, KeyError> {
        let bytes = match self {
            KeySource::File(path) => {
                let own = FileKey::read(path)?;
                if own.id() != key.id {
                    return Err(KeyError::Other { id: key.id.clone(), path: path.clone(), given: own.id() });
                }
                own.unwrap(&key.wrapped)
            }
            KeySource::Command(command) => {
                let bytes = command::unwrap(command, volume, &key.wrapped).await?;
                <[u8; KEY_BYTES]>::try_from(bytes).ok()
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

    /// The place of a volume's key.
    pub fn of(&self, volume: &str) -> Option<&KeySource> {
        self.0.get(volume)
    }
}

/// The key of a key file.
struct FileKey([u8; KEY_BYTES]);

impl FileKey {
    fn read(path: &PathBuf) -> Result<FileKey, KeyError> {
        let bytes = std::fs::read(path).map_err(|source| KeyError::File { path: path.clone(), source })?;
        FileKey::parse(&bytes).ok_or_else(|| KeyError::NoKey { path: path.clone() })
    }

    fn parse(bytes: &[u8]) -> Option<FileKey> {
        if let Ok(key) = <[u8; KEY_BYTES]>::try_from(bytes) {
            return Some(FileKey(key));
        }
        let text = std::str::from_utf8(bytes).ok()?.trim_end();
        if text.len() != 2 * KEY_BYTES || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let mut key = [0; KEY_BYTES];
        for (at, byte) in key.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(FileKey(key))
    }

    /// The key's name: it tells keys apart, and does not tell the key.
    fn id(&self) -> String {
        let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &self.0), b"braid key id");
        let digits: String = mac.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("file:{digits}")
    }

    fn aead(&self) -> LessSafeKey {
        LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &self.0).expect("a key has 32 bytes"))
    }

    fn wrap(&self, key: &[u8; KEY_BYTES]) -> Result<Vec<u8>, KeyError> {
        let nonce: [u8; NONCE_BYTES] = random()?;
        let mut sealed = key.to_vec();
        self.aead()
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(WRAPPED_FOR),
                &mut sealed,
            )
            .expect("it is short");
        Ok([&[FORMAT][..], &nonce, &sealed].concat())
    }

    fn unwrap(&self, wrapped: &[u8]) -> Option<[u8; KEY_BYTES]> {
        let (nonce, sealed) = wrapped.strip_prefix(&[FORMAT])?.split_first_chunk::<NONCE_BYTES>()?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.aead().open_in_place(nonce, Aad::from(WRAPPED_FOR), &mut sealed).ok()?;
        <[u8; KEY_BYTES]>::try_from(&*opened).ok()
    }
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES], KeyError> {
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
