//! Encryption at rest: files of encrypted volumes, whose bytes are sealed here before a drive gets them.
//!
//! What: a volume has a data key, drawn when it is made. The manager keeps it wrapped by a key that only
//! clients have ([`keys`]), and nobody but clients ever has it unwrapped ([`ring`]). Each file has a key that
//! follows from it, by which its blocks are sealed ([`block`]).
//!
//! How: 4064 bytes of a file become a sealed block, which fills a block of 4096 bytes at a drive
//! ([`geometry`]). An open file maps what is read and written to whole blocks (`crate::file::sealed`). All
//! below it, and the manager, work with sealed bytes and their sizes, and need no key.

pub(crate) mod base64;
pub(crate) mod block;
pub(crate) mod command;
pub(crate) mod geometry;
pub(crate) mod key_file;
pub(crate) mod keys;
pub(crate) mod locks;
pub(crate) mod ring;

use braid_wire::control::FileAttributes;

/// Attributes as users see them: with the size of a sealed file's own bytes.
pub(crate) fn shown(attributes: &mut FileAttributes) {
    if attributes.sealed {
        attributes.size = geometry::plain_size(attributes.size);
    }
}
