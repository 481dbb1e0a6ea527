//! Capabilities and keys, after NASD (Gibson et al., 1998, section 4.1; Gobioff).
//!
//! Keys form four levels per drive: master, drive, partition, working. Each lower key is the HMAC-SHA256 of a
//! label and its scope under the key above. So manager and drive derive the same keys from the master key,
//! and no other key is sent. A partition has two working keys in force, of epochs `e` and `e - 1`, so that
//! capabilities made with the old key still work while the key is rotated. Likewise a drive that has turned
//! its master key knows the one before for a while. Beside them stands the working key of epoch 0, which
//! only the manager uses.
//!
//! A capability's *public part* ([`Capability`]) says what its holder may do. Its *private part* is the HMAC
//! of the public part under the working key: only the manager and the drive can make it. A request carries
//! the public part and a MAC under the private part, see [`seal`](crate::seal). The drive recomputes all of
//! this and needs no state per capability, see [`authorise`](crate::authorise). It keeps what it has derived
//! for a while, see [`session`](crate::session).
//!
//! Every kind of HMAC has a label of its own, which ends in NUL and begins the input. The parts that follow
//! have fixed lengths, except the last. So two different inputs are never the same bytes, and a MAC of one
//! kind is never valid as one of another.

use std::fmt;
use std::hint::black_box;
use std::sync::Arc;

use braid_layout::{
    ClientId, ColumnMask, DriveId, FileId, Generation, ObjectId, PartitionId, ReservationId, version::Lease,
};
use hmac::{Hmac, KeyInit, Mac as _};
use sha2::Sha256;

use crate::codec::{DecodeError, Wire};

/// A 256-bit secret. Its `Debug` form does not show the secret.
#[derive(Clone)]
pub struct Key([u8; 32]);

/// A key prepared for many MACs. The work that HMAC does on the key alone, half of all work for a short
/// message, is done once. Cheap to clone. Its `Debug` form does not show the key.
#[derive(Clone)]
pub struct MacKey(Arc<Hmac<Sha256>>);

/// A request's or reply's MAC: the first 16 bytes of an HMAC-SHA256 (RFC 2104, section 5 allows the
/// truncation).
pub type Mac = [u8; 16];

/// A connection's challenge or nonce: 16 random bytes, new for every connection. The side that accepts
/// chooses the challenge, the side that asks the nonce.
pub type Challenge = [u8; 16];

/// A value that ties MACs and proofs to one connection and to the whole content of its
/// [`Hello`](crate::data::Hello); see [`Hello::binding`](crate::data::Hello::binding).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding(pub [u8; 16]);

/// Maximum time for which a capability is valid, in milliseconds. It is long compared with a restart of the
/// manager, so that clients can go on meanwhile. It is short enough for people: a revoked client that no
/// fence reaches is shut out after this time.
pub const CAPABILITY_MS: u64 = 120_000;

/// The wire version since which there are rights to run methods. Peers of older versions refuse capabilities
/// that have them.
pub const METHODS_SINCE: u16 = 4;

/// Epoch of the working keys with which the manager signs capabilities for its own use. It is always in
/// force: these keys turn with the drive's key only.
pub const KEY_EPOCH_MANAGER: u32 = 0;

/// The rights of a capability's holder; a set of bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rights(pub u32);

choice! {
    /// The protection of messages between client and drive; an option of the volume (NASD, section 4.1).
    pub enum Protection {
        /// Arguments and replies are protected: each has a MAC. The payload has checksums only.
        Integrity = 1,
        /// The payload has a MAC too. Not served.
        IntegrityData = 2,
        /// Arguments, replies and payload are secret as well: requests are in TLS 1.3, with AES-256-GCM.
        Privacy = 3,
    }
}

choice! {
    /// The kind of a lease: which writes it allows (PROTOCOL, section 1).
    pub enum LeaseKind {
        /// Stripe writes, and unit writes with stamps made by the holder: no other client writes these
        /// stripes.
        Exclusive = 0,
        /// Unit writes only, which the data drives put in order: other clients may write too.
        Shared = 1,
    }
}

choice! {
    /// The direction in which data goes.
    pub enum DataDirection {
        /// From drives to a client.
        Read = 1,
        /// From a client to drives.
        Write = 2,
    }
}

record! {
    /// The data rate that is promised at one drive. It is part of the capability, so that the drive can keep
    /// it without asking anybody.
    pub struct Promise {
        /// The reservation; 0: none, requests are best effort.
        reservation: ReservationId,
        /// The direction that the promise is for. Requests in the other one are best effort.
        direction: DataDirection,
        /// Bytes a second of this drive: the most that it is asked for while as many drives are lost as the
        /// reservation survives. Holders of capabilities of the same reservation share it.
        rate: u64,
        /// Bytes that may come at once, before the rate counts.
        burst: u64,
        /// Bytes of the operations that the rate was priced for. An operation that takes the device longer
        /// for each byte counts as more bytes.
        operation_bytes: u32,
        /// Manager time at which the promise ends, in milliseconds. Later requests are best effort.
        until_ms: u64,
    }
}

impl Copy for Promise {}

impl Promise {
    /// No promise: best effort.
    pub const NONE: Promise = Promise {
        reservation: ReservationId::NONE,
        direction: DataDirection::Read,
        rate: 0,
        burst: 0,
        operation_bytes: 0,
        until_ms: 0,
    };

    /// Work that brings drives up to date. Each drive knows by itself what it keeps for that.
    pub const REBUILD: Promise = Promise { reservation: ReservationId::REBUILD, ..Promise::NONE };
}

record! {
    /// The public part of a capability.
    pub struct Capability {
        /// The drive that the capability is for.
        drive: DriveId,
        /// The partition; 0 is the drive itself.
        partition: PartitionId,
        /// The object; 0 is the partition itself.
        object: ObjectId,
        /// The rights of the holder.
        rights: Rights,
        /// Manager time at which the capability expires, in milliseconds; it is valid before this time.
        expires_ms: u64,
        /// The data rate that is promised to the holder at this drive.
        promise: Promise,
        /// The client that the capability was given to; 0: a drive or the manager. A drive shares its disk
        /// among clients by this number.
        client: ClientId,
        /// Epoch of the working key with which the private part was made; from 1, or
        /// [`KEY_EPOCH_MANAGER`].
        key_epoch: u32,
        /// The file's generation; 0 where there is no file.
        g: Generation,
        /// Columns that every write of `g` must reach.
        set: ColumnMask,
        /// The columns of `set` that are joining.
        joining: ColumnMask,
        /// The lease under which the capability was given; stamps must carry it. 0: reads only.
        lease: Lease,
        /// The kind of that lease: the writes it allows.
        kind: LeaseKind,
        /// The first stripe that may be written.
        first_stripe: u64,
        /// One past the last stripe that may be written; 2^64 - 1: all from the first on. All stripes may
        /// be read.
        end_stripe: u64,
        /// One past the last stripe that may get bytes, by the quotas that the file is under; 2^64 - 1: any.
        /// The stripes from this one on may be cleared.
        reach: u64,
        /// The least protection that a request under this capability must have.
        protection: Protection,
        /// The drive that the capability was given to, which may send deltas under it and nothing else; 0:
        /// the capability was given to a client or the manager, and allows no deltas.
        holder: DriveId,
        /// The digest of the column map that a creation must bring,
        /// [`ColumnMap::digest`](crate::data::ColumnMap::digest); zeros: any map. The digest is bound so
        /// that a client cannot put drives or objects of its own choice into a column map.
        map: [u8; 16],
        /// The file that the object's column map must name; 0: any. A request to an object of the same
        /// number that belongs to another file is refused.
        file: FileId,
    }
}

record! {
    /// The authority of a request: the first part of every request to a drive.
    pub struct Authority {
        /// The public part of the capability.
        capability: Capability,
        /// Sequence number, which rises by at least one with every request of a connection; from 1.
        sequence: u64,
        /// Random number chosen by the asker, the same for all requests of a connection. With it an asker
        /// can tell replies to its own requests from recorded ones.
        nonce: [u8; 16],
        /// The MAC of the request; see [`seal`](crate::seal).
        mac: [u8; 16],
    }
}

impl Capability {
    /// Returns true if every stripe may be written.
    pub fn covers_all_stripes(&self) -> bool {
        (self.first_stripe, self.end_stripe) == (0, u64::MAX)
    }
}

impl Rights {
    /// Read bytes and versions.
    pub const READ: Rights = Rights(1);
    /// Write bytes and retire versions.
    pub const WRITE: Rights = Rights(1 << 1);
    /// Create the object.
    pub const CREATE: Rights = Rights(1 << 2);
    /// Remove the object.
    pub const REMOVE: Rights = Rights(1 << 3);
    /// Read attributes of objects, partitions or the drive.
    pub const GET_ATTRIBUTES: Rights = Rights(1 << 4);
    /// Set attributes of objects.
    pub const SET_ATTRIBUTES: Rights = Rights(1 << 5);
    /// List objects or partitions.
    pub const LIST: Rights = Rights(1 << 6);
    /// Perform the operations of the manager: partitions, fences, verdicts.
    pub const MANAGE: Rights = Rights(1 << 7);
    /// Append deltas. Given to drives only, for a whole partition.
    pub const DELTA: Rights = Rights(1 << 8);
    /// Run methods of the drive's own on what may be read.
    pub const RUN: Rights = Rights(1 << 9);
    /// Run code of users on what may be read.
    pub const RUN_CODE: Rights = Rights(1 << 10);
    /// All rights that are defined.
    pub const ALL: Rights = Rights((1 << 11) - 1);
    /// The empty set of rights.
    pub const NONE: Rights = Rights(0);

    /// The union of both sets.
    #[must_use]
    pub const fn and(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }

    /// Returns true if the set includes every right of `needed`.
    pub fn include(self, needed: Rights) -> bool {
        self.0 & needed.0 == needed.0
    }
}

impl Wire for Rights {
    const BYTES_MIN: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    /// Decodes a set of rights. Bits that stand for no right are an error: they are reserved.
    fn take(input: &mut &[u8]) -> Result<Self, DecodeError> {
        match Rights(u32::take(input)?) {
            rights if Rights::ALL.include(rights) => Ok(rights),
            unknown => Err(DecodeError::Value { field: "Rights", value: u64::from(unknown.0) }),
        }
    }
}

impl Key {
    /// Creates a key from 32 secret bytes.
    pub fn new(secret: [u8; 32]) -> Key {
        Key(secret)
    }

    /// The secret itself. For storing and sending only.
    pub fn secret(&self) -> &[u8; 32] {
        &self.0
    }

    /// Computes the HMAC-SHA256 of the parts, one after another, under this key. Callers keep the lengths
    /// of the parts fixed, or put the only part of variable length last.
    pub fn hmac(&self, parts: &[&[u8]]) -> [u8; 32] {
        finish(self.begin(), parts)
    }

    /// Prepares the key for many MACs.
    pub fn ready(&self) -> MacKey {
        MacKey(Arc::new(self.begin()))
    }

    fn begin(&self) -> Hmac<Sha256> {
        Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes any key length")
    }

    /// Derives the key one level below: the HMAC of a label and the bytes of the scope.
    pub fn derive(&self, label: &'static str, scope: &[u8]) -> Key {
        Key(self.hmac(&[label.as_bytes(), &[0], scope]))
    }

    /// The master key that follows this one when the drive's key is turned: from its number, and a random
    /// number that the manager drew. So neither side sends a key.
    #[must_use]
    pub fn turned(&self, number: u32, random: &[u8; 32]) -> Key {
        Key(self.hmac(&[b"braid master turned\0", &number.to_le_bytes(), random]))
    }

    /// Derives a drive key from the drive's master key.
    pub fn drive_key(&self, drive: DriveId) -> Key {
        self.derive("braid drive key", &drive.to_bytes())
    }

    /// Derives a partition key from a drive key.
    pub fn partition_key(&self, partition: PartitionId) -> Key {
        self.derive("braid partition key", &partition.to_bytes())
    }

    /// Derives the working key of an epoch from a partition key.
    pub fn working_key(&self, epoch: u32) -> Key {
        self.derive("braid working key", &epoch.to_le_bytes())
    }

    /// Derives the private part of a capability from a working key. The label names the version of the
    /// public part's encoding.
    pub fn private_part(&self, capability: &Capability) -> Key {
        self.derive("braid capability 2", &capability.to_bytes())
    }
}

impl MacKey {
    /// Computes an HMAC, as [`Key::hmac`] does.
    pub fn hmac(&self, parts: &[&[u8]]) -> [u8; 32] {
        finish(Hmac::clone(&self.0), parts)
    }
}

fn finish(mut mac: Hmac<Sha256>, parts: &[&[u8]]) -> [u8; 32] {
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// Returns true if two MACs are equal, in time that does not depend on where they differ.
pub fn mac_equal(a: &[u8], b: &[u8]) -> bool {
    // The black box keeps the compiler from seeing that the loop could stop early.
    a.len() == b.len() && a.iter().zip(b).fold(0u8, |differs, (x, y)| black_box(differs | (x ^ y))) == 0
}

/// The first 16 bytes of an HMAC.
pub(crate) fn first_half(full: &[u8; 32]) -> Mac {
    *full.first_chunk::<16>().expect("32 bytes have a first half")
}

impl Wire for Key {
    const BYTES_MIN: usize = 32;
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn take(input: &mut &[u8]) -> Result<Self, DecodeError> {
        <[u8; 32]>::take(input).map(Key)
    }
}

/// Compares keys in time that does not depend on where they differ.
impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        mac_equal(&self.0, &other.0)
    }
}

impl Eq for Key {}

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MacKey(secret)")
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(secret)")
    }
}
