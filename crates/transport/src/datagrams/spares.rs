//! Buffers for what is written, which are used again once the peer has what was in them: to get memory from
//! the system for each costs about as much as a copy.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Buffers that are kept at most. More may be lent; a port that is idle has a MiB.
const KEPT_MAX: usize = 16;

/// The buffers of a port that are free.
#[derive(Debug, Default)]
pub(crate) struct Spares(Mutex<Vec<Vec<u8>>>);

/// A buffer that becomes free when it is dropped.
struct Lent {
    bytes: Vec<u8>,
    spares: Arc<Spares>,
}

impl Spares {
    /// An empty buffer, which has room for `bytes`.
    pub(crate) fn take(&self, bytes: usize) -> Vec<u8> {
        let mut buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        buffer.clear();
        buffer.reserve(bytes);
        buffer
    }

    /// The bytes of a buffer, which is free again when nobody has them any more.
    pub(crate) fn lend(self: &Arc<Spares>, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Lent { bytes, spares: Arc::clone(self) })
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut spares = self.spares.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spares.len() < KEPT_MAX {
            spares.push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_once_nobody_has_it() {
        let spares = Arc::new(Spares::default());
        let mut buffer = spares.take(1000);
        buffer.extend_from_slice(b"one");
        let memory = buffer.as_ptr();
        let bytes = spares.lend(buffer);
        let part = bytes.slice(1..);
        drop(bytes);
        let other = spares.take(1000);
        assert_ne!(other.as_ptr(), memory);
        assert_eq!(part, b"ne".as_slice());
        drop(part);
        let again = spares.take(1000);
        assert_eq!(again.as_ptr(), memory);
        let many: Vec<Bytes> = (0..2 * KEPT_MAX).map(|_| spares.lend(vec![0; 10])).collect();
        drop(many);
        assert_eq!(spares.0.lock().unwrap().len(), KEPT_MAX);
    }
}
