//! Key files: a file with 32 random bytes, or 64 hex digits, that wraps data keys of volumes.
//!
//! A data key that is wrapped by one is: a byte 1, a nonce of 12 bytes, 32 bytes sealed by AES-256-GCM, the
//! tag of 16 bytes. Associated with them is the volume's name, so that it is not taken for another volume's.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use rustix::fs::{Mode, OFlags};
use tokio::sync::oneshot;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::sealed::keys::{KEY_BYTES, KeyBytes, KeyError, random};

/// The first byte of a data key that is wrapped here.
const FORMAT: u8 = 1;
const NONCE_BYTES: usize = 12;
/// Bytes that are associated with a wrapped data key, before the volume's name.
const WRAPPED_FOR: &[u8] = b"braid data key 1 ";
/// The most bytes that are read of a key file.
const FILE_BYTES_MAX: usize = 4096;
/// Longest time that a read of a key file may take.
const WAIT: Duration = Duration::from_secs(10);

/// The key of a key file.
pub(crate) struct FileKey(KeyBytes);

impl FileKey {
    /// Reads a key file, in a bounded time. A file on a server that is away may hold up its reader for ever:
    /// that is a thread of its own, for which neither this process's end nor its other files wait.
    pub(crate) async fn read(path: &Path) -> Result<FileKey, KeyError> {
        let (give, given) = oneshot::channel();
        let own = path.to_owned();
        let reader = thread::Builder::new().name("key-file".to_owned()).spawn(move || {
            // Nobody waits any more for what comes too late.
            drop(give.send(FileKey::read_now(&own)));
        });
        reader.map_err(|error| unread(path, error))?;
        match timeout(WAIT, given).await {
            Ok(Ok(read)) => read,
            Ok(Err(_)) => Err(unread(path, io::Error::other("its reader ended"))),
            Err(_) => Err(KeyError::Silent {
                what: format!("the key file {}", path.display()),
                seconds: WAIT.as_secs(),
            }),
        }
    }

    fn read_now(path: &Path) -> Result<FileKey, KeyError> {
        let failed = |error| unread(path, error);
        // A fifo without a writer does not hold up its opening.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
        let file = File::from(file);
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(failed(io::Error::other("a key file is a regular file, and this is none")));
        }
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            let path = path.display();
            tracing::warn!(%path, mode = format!("{mode:o}"), "others may use the key file: chmod 600");
        }
        // With room for all that is read, it is never moved, which would leave a copy.
        let mut bytes = Zeroizing::new(Vec::with_capacity(FILE_BYTES_MAX + 1));
        let most = u64::try_from(FILE_BYTES_MAX).expect("small");
        file.take(most).read_to_end(&mut bytes).map_err(failed)?;
        FileKey::parse(&bytes).ok_or_else(|| KeyError::NoKey { path: path.to_owned() })
    }

    fn parse(bytes: &[u8]) -> Option<FileKey> {
        if let Ok(key) = <[u8; KEY_BYTES]>::try_from(bytes) {
            return Some(FileKey(Zeroizing::new(key)));
        }
        let text = std::str::from_utf8(bytes).ok()?.trim_end();
        if text.len() != 2 * KEY_BYTES || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        for (at, byte) in key.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(FileKey(key))
    }

    /// The key's name: it tells keys apart, and does not tell the key.
    pub(crate) fn id(&self) -> String {
        let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &*self.0), b"braid key id");
        let digits: String = mac.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("file:{digits}")
    }

    fn aead(&self) -> LessSafeKey {
        LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &*self.0).expect("a key has 32 bytes"))
    }

    pub(crate) fn wrap(&self, volume: &str, key: &[u8; KEY_BYTES]) -> Result<Vec<u8>, KeyError> {
        let nonce: [u8; NONCE_BYTES] = random()?;
        let mut sealed = *key;
        let tag = self
            .aead()
            .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), associated(volume), &mut sealed)
            .expect("it is short");
        Ok([&[FORMAT][..], &nonce, &sealed, tag.as_ref()].concat())
    }

    pub(crate) fn unwrap(&self, volume: &str, wrapped: &[u8]) -> Option<KeyBytes> {
        let (nonce, sealed) = wrapped.strip_prefix(&[FORMAT])?.split_first_chunk::<NONCE_BYTES>()?;
        let mut sealed = Zeroizing::new(sealed.to_vec());
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.aead().open_in_place(nonce, associated(volume), &mut sealed).ok()?;
        <[u8; KEY_BYTES]>::try_from(&*opened).ok().map(Zeroizing::new)
    }
}

fn associated(volume: &str) -> Aad<Vec<u8>> {
    Aad::from([WRAPPED_FOR, volume.as_bytes()].concat())
}

fn unread(path: &Path, error: io::Error) -> KeyError {
    KeyError::File { path: path.to_owned(), source: Arc::new(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sealed::keys::{DataKey, KeySource};

    async fn refused(path: &Path) -> KeyError {
        FileKey::read(path).await.err().expect("it is no key file")
    }

    #[tokio::test]
    async fn only_a_small_regular_file_is_read() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RUSR, 0)
            .expect("a fifo");
        for none in [fifo.as_path(), dir.path(), Path::new("/dev/zero"), Path::new("/no/such/file")] {
            let error = refused(none).await;
            let said = error.to_string();
            assert!(
                matches!(error, KeyError::File { .. }) && said.contains(&*none.to_string_lossy()),
                "{said}"
            );
        }
        let long = dir.path().join("long");
        std::fs::write(&long, [b"07".repeat(32), vec![b' '; 1 << 20]].concat()).expect("written");
        assert!(FileKey::read(&long).await.is_ok(), "blanks behind it are no part of it");
        std::fs::write(&long, vec![7; 1 << 20]).expect("written");
        assert!(matches!(refused(&long).await, KeyError::NoKey { .. }));
    }

    #[tokio::test]
    async fn a_wrapped_key_is_of_its_volume_only() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("key");
        std::fs::write(&path, [7; 32]).expect("written");
        let source = KeySource::File(path);
        let wrapped = source.wrap("one", &DataKey::draw().expect("drawn")).await.expect("wrapped");
        assert!(source.unwrap("one", &wrapped).await.is_ok());
        assert!(matches!(source.unwrap("two", &wrapped).await, Err(KeyError::Damaged { .. })));
    }
}
