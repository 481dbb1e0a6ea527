//! The records that the manager keeps, and their keys. `docs/format-manager.md` has the table; golden bytes
//! in `tests` pin it.
//!
//! A key is a table's letter and big-endian numbers or a name's bytes, so that keys sort as their numbers and
//! names do. A value is a version byte and the record's fields as the wire codec has them; the two tables
//! that grow with every file, `i` and `c`, have bytes of their own ([`stored`], [`chunk`]). A record that
//! changes gets a new version.

use braid_layout::version::Lease;
use braid_layout::{
    ClientId, ClusterId, Column, DriveId, FileId, Generation, LockSession, ObjectId, OperationNumber,
    ReservationId, TokenId, VolumeId,
};
use braid_wire::capability::Key;
use braid_wire::control::ShapeSpec;
use braid_wire::{Addresses, Wire, record};

use crate::records::kv::KvError;

/// The version byte before every value that is written.
pub const SCHEMA_VERSION: u8 = 3;

/// The oldest version that is read. A row of version 2 reads as one of version 3 that lacks the newer fields.
pub const SCHEMA_VERSION_OLDEST: u8 = 2;

pub mod chunk;
mod compact;
mod inode;
mod keys;
mod past;
mod quota;
mod reservation;
mod segment;
pub mod stored;
pub mod table;
mod token;

pub use inode::{InodeRecord, PartRecord, Times, directory_record, ns, usual_mode};
pub use keys::{DriveKeyRecord, ShutOutRecord, VolumeKeysRecord};
pub use past::{
    EntryRecord, Freezing, HistoryRecord, PastBytes, PastEntry, PastInode, ScheduleRecord, SnapshotRecord,
};
pub use quota::{Account, QuotaRecord};
pub use reservation::{DriveShare, ReservationRecord};
pub use segment::SegmentRecord;
pub use token::TokenRecord;

record! {
    /// The cluster's identity and secrets.
    pub struct ClusterRecord {
        cluster: ClusterId,
        /// Secret of the first admin's token.
        client_secret: Key,
        /// Secret of the first token with which drives join.
        join_secret: Key,
        /// Manager time of the cluster's creation.
        created_ms: u64,
    }
}
record! {
    /// The cluster's certificate authority.
    pub struct AuthorityRecord {
        /// Its key, of Ed25519.
        key: Key,
        /// Its certificate, in DER, as it was made first: its hash is what peers know.
        certificate: Vec<u8>,
    }
}
record! {
    pub struct VolumeRecord {
        volume: VolumeId,
        name: String,
        /// Shape of new files by default, with no field left open.
        shape: ShapeSpec,
        /// Maximum sum of the files' sizes in bytes; 0: no limit.
        quota_bytes: u64,
        files: u64,
        /// Sum of the files' sizes in bytes.
        file_bytes: u64,
        /// Manager time of the volume's creation.
        created_ms: u64,
        /// Root directory of the volume.
        root: FileId,
    }
}
record! {
    /// An extended attribute.
    pub struct XattrRecord {
        value: Vec<u8>,
    }
}
record! {
    /// A session of advisory locks whose client may claim them after a restart.
    pub struct LockSessionRecord {
        /// Client that the session belongs to.
        client: ClientId,
    }
}
record! {
    /// A file that is to be laid out anew.
    pub struct RelayoutRecord {
        /// Shape that the file is to get.
        shape: ShapeSpec,
    }
}
record! {
    pub struct DriveRecord {
        drive: DriveId,
        name: String,
        /// Master key that the cluster shares with the drive.
        master: Key,
        /// True once the drive has proved that it holds the master key: it cannot be joined again.
        confirmed: bool,
        /// Drive that replaced this one; 0: none.
        replaced_by: DriveId,
        /// Addresses that the drive listens on.
        addresses: Addresses,
        host: String,
        /// Failure domain above the host.
        rack: String,
        /// Directory of the drive on its host.
        directory: String,
        /// Bytes that the drive may store.
        capacity_bytes: u64,
        /// Manager time when the drive joined.
        joined_ms: u64,
        /// Number of the last process that was admitted as this drive; 0: none yet.
        instance: u64,
        /// Last process number that a heartbeat reported back: by then it is stored in the drive's directory.
        /// The drive serves nothing before that.
        stored: u64,
        /// Random number that this process drew at its start.
        start: u64,
        /// Position of the drive's log when this record was stored.
        log: u64,
        /// True if the drive returned with less than it had acknowledged, or its host says so. Its columns
        /// are being taken out of their files' sets.
        behind: bool,
    }
}
record! {
    /// Numbers of a drive's entries in the tables of columns and of stale columns.
    pub struct DriveCount {
        /// Components placed on the drive.
        components: u64,
        /// Components on the drive that are out or joining.
        stale: u64,
    }
}
record! {
    /// State of a column that is stale: out of its file's set, or joining.
    pub struct StaleRecord {
        /// True if the column is in the set again and is being caught up; false if it is out.
        joining: bool,
        /// True if the drive was fenced since the column went out, so that no older capability works there.
        told: bool,
    }
}
record! {
    /// A partition on a drive.
    pub struct PartitionRecord {
        /// Key epoch of the newer of its two working keys.
        key_epoch: u32,
    }
}
record! {
    /// A removed file that has components still to be freed.
    pub struct RemovalRecord {
        volume: VolumeId,
        left: u32,
    }
}
record! {
    /// A component to be freed.
    pub struct RemoveRecord {
        /// The file's volume.
        volume: VolumeId,
        /// The file's last generation.
        g: Generation,
    }
}
record! {
    /// A component that is to be freed, as its column is on another drive now. A drive that was away frees it
    /// before it gets a lease.
    pub struct LeftRecord {
        /// The file's volume.
        volume: VolumeId,
        object: ObjectId,
        /// The file's generation when the column moved, or a lower one.
        g: Generation,
    }
}
record! {
    /// A column that moves off a drive that serves it, and the place of its successor.
    pub struct MoveRecord {
        column: Column,
        /// Drive that the column's successor is on.
        drive: DriveId,
    }
}
record! {
    /// The result of an operation, to answer its repeat.
    pub struct OperationRecord {
        /// Manager time when it was carried out.
        done_ms: u64,
        /// CRC32C of the request's kind and fields.
        request: u32,
        /// The file that was opened; 0 for none.
        file: FileId,
        /// The lease that was granted on that file.
        lease: Lease,
        /// Components to rebuild after a drive was replaced, or the first byte that was reserved.
        number: u64,
    }
}

/// Place of a component: drive, file, segment, column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComponentPlace {
    pub drive: DriveId,
    pub file: FileId,
    /// Number of the segment within its file.
    pub segment: u32,
    pub column: Column,
}

pub mod key {
    use super::{
        Account, ClientId, ComponentPlace, DriveId, FileId, LockSession, ObjectId, OperationNumber,
        ReservationId, TokenId, VolumeId, table,
    };

    fn join(table: u8, parts: &[&[u8]]) -> Vec<u8> {
        let mut key = vec![table];
        parts.iter().for_each(|part| key.extend_from_slice(part));
        key
    }

    /// `m` and a word: `balance-off`, `changes`, `cluster`, `format`, `heal-rate`, `nameless`, `next`,
    /// `older`, `rebuilt`, `relayouts`, `removing`, `restored`, `restored_term`, `seats`, `term`, `time`,
    /// `unnamed`, `watched`.
    pub fn meta(word: &str) -> Vec<u8> {
        join(table::META, &[word.as_bytes()])
    }
    /// Key of a volume's record: `v`, the volume's number.
    pub fn volume(volume: VolumeId) -> Vec<u8> {
        join(table::VOLUME, &[&volume.0.to_be_bytes()])
    }
    /// Key of the number of the volume of this name: `V`, the name.
    pub fn volume_name(name: &str) -> Vec<u8> {
        join(table::VOLUME_NAME, &[name.as_bytes()])
    }
    /// Key of a name in a directory: `d`, the directory's number, the name.
    pub fn entry(directory: FileId, name: &[u8]) -> Vec<u8> {
        join(table::ENTRY, &[&directory.0.to_be_bytes(), name])
    }
    /// Key of a file's record: `i`, the file's number.
    pub fn inode(file: FileId) -> Vec<u8> {
        join(table::INODE, &[&file.0.to_be_bytes()])
    }
    /// Key of a further name of a file: `N`, file, directory, name.
    pub fn more_name(file: FileId, directory: FileId, name: &[u8]) -> Vec<u8> {
        join(table::MORE_NAMES, &[&file.0.to_be_bytes(), &directory.0.to_be_bytes(), name])
    }
    /// The keys of `N` that belong to a file.
    pub fn more_names_of(file: FileId) -> (Vec<u8>, Vec<u8>) {
        under(join(table::MORE_NAMES, &[&file.0.to_be_bytes()]))
    }
    /// The directory and name that a key of `N` names.
    pub fn more_name_in(key: &[u8]) -> (FileId, Vec<u8>) {
        (FileId(number(key, 9)), key.get(17..).unwrap_or_default().to_vec())
    }
    /// Key of an extended attribute: `x`, file, the attribute's name.
    pub fn xattr(file: FileId, name: &[u8]) -> Vec<u8> {
        join(table::XATTR, &[&file.0.to_be_bytes(), name])
    }
    /// The keys of `x` that belong to a file.
    pub fn xattrs_of(file: FileId) -> (Vec<u8>, Vec<u8>) {
        under(xattr(file, b""))
    }
    /// Key that marks a file as needing attention: `h`, file.
    pub fn attention(file: FileId) -> Vec<u8> {
        join(table::ATTENTION, &[&file.0.to_be_bytes()])
    }
    /// Key of a drive's record: `D`, the drive's identity.
    pub fn drive(drive: DriveId) -> Vec<u8> {
        join(table::DRIVE, &[&drive.0.to_be_bytes()])
    }
    /// Key of a drive's highest receipt: `a`, drive.
    pub fn receipt(drive: DriveId) -> Vec<u8> {
        join(table::RECEIPT, &[&drive.0.to_be_bytes()])
    }
    /// Key that marks a drive as drained: `e`, drive.
    pub fn drain(drive: DriveId) -> Vec<u8> {
        join(table::DRAIN, &[&drive.0.to_be_bytes()])
    }
    /// Key of the end of a drive's pause: `g`, drive.
    pub fn pause(drive: DriveId) -> Vec<u8> {
        join(table::PAUSE, &[&drive.0.to_be_bytes()])
    }
    /// Key of the cost of a drive's parts: `y`, drive.
    pub fn parts(drive: DriveId) -> Vec<u8> {
        join(table::PARTS, &[&drive.0.to_be_bytes()])
    }
    /// Key of the state of a drive's master key: `j`, drive.
    pub fn drive_key(drive: DriveId) -> Vec<u8> {
        join(table::DRIVE_KEY, &[&drive.0.to_be_bytes()])
    }
    /// Key of an encrypted volume's wrapped data key: `J`, volume.
    pub fn volume_seal(volume: VolumeId) -> Vec<u8> {
        join(table::VOLUME_SEAL, &[&volume.0.to_be_bytes()])
    }
    /// Key of the state of a volume's working keys: `w`, volume.
    pub fn volume_keys(volume: VolumeId) -> Vec<u8> {
        join(table::VOLUME_KEYS, &[&volume.0.to_be_bytes()])
    }
    /// Key of a client that was shut out: `X`, client.
    pub fn shut_out(client: ClientId) -> Vec<u8> {
        join(table::SHUT_OUT, &[&client.0.to_be_bytes()])
    }
    /// Key of a token: `A`, its number.
    pub fn token(token: TokenId) -> Vec<u8> {
        join(table::TOKEN, &[&token.0.to_be_bytes()])
    }
    /// Key of a drive's counts: `n`, drive.
    pub fn drive_count(drive: DriveId) -> Vec<u8> {
        join(table::DRIVE_COUNT, &[&drive.0.to_be_bytes()])
    }
    /// Key of a drive's seat: `u`, drive.
    pub fn seat_of(drive: DriveId) -> Vec<u8> {
        join(table::SEAT_OF, &[&drive.0.to_be_bytes()])
    }
    /// Key of the drive of a seat: `U`, seat.
    pub fn seat(seat: u32) -> Vec<u8> {
        join(table::SEAT, &[&seat.to_be_bytes()])
    }
    /// Key of a chunk of components on the drive of a seat: `c`, seat, chunk.
    pub fn columns(seat: u32, chunk: u64) -> Vec<u8> {
        join(table::COLUMN, &[&seat.to_be_bytes(), &chunk.to_be_bytes()])
    }
    /// The keys of `c` that belong to a seat.
    pub fn columns_of(seat: u32) -> (Vec<u8>, Vec<u8>) {
        under(join(table::COLUMN, &[&seat.to_be_bytes()]))
    }
    /// The seat that a key of `c` or `U` names.
    pub fn seat_in(key: &[u8]) -> u32 {
        u32::from_be_bytes(key.get(1..5).and_then(|seat| seat.first_chunk()).copied().unwrap_or_default())
    }
    /// Key of a component in the table `s` or `l`: drive, file, segment (4 bytes), column (1 byte).
    pub fn place(table: u8, place: ComponentPlace) -> Vec<u8> {
        let drive = place.drive.0.to_be_bytes();
        let file = place.file.0.to_be_bytes();
        join(table, &[&drive, &file, &place.segment.to_be_bytes(), &[place.column.0]])
    }
    /// Key of a partition in the table `p` or `q`: drive, volume.
    pub fn partition(table: u8, drive: DriveId, volume: VolumeId) -> Vec<u8> {
        join(table, &[&drive.0.to_be_bytes(), &volume.0.to_be_bytes()])
    }
    /// Key of the move of a segment's column: `M`, file, segment.
    pub fn moving(file: FileId, segment: u32) -> Vec<u8> {
        join(table::MOVE, &[&file.0.to_be_bytes(), &segment.to_be_bytes()])
    }
    /// Key of a reservation: `P`, its number.
    pub fn reservation(reservation: ReservationId) -> Vec<u8> {
        join(table::RESERVATION, &[&reservation.0.to_be_bytes()])
    }
    /// The keys of `M` that belong to a file.
    pub fn moves_of(file: FileId) -> (Vec<u8>, Vec<u8>) {
        under(join(table::MOVE, &[&file.0.to_be_bytes()]))
    }
    /// The file and segment that a key of `M` names.
    pub fn moving_of(key: &[u8]) -> (FileId, u32) {
        let segment = key.get(9..13).and_then(|bytes| bytes.first_chunk()).copied();
        (FileId(number(key, 1)), u32::from_be_bytes(segment.unwrap_or_default()))
    }
    /// Key of an account: `Q`, volume, and `v`, or `d` and the directory, or `u` and the user.
    pub fn quota(volume: VolumeId, account: Account) -> Vec<u8> {
        let volume = volume.0.to_be_bytes();
        match account {
            Account::Volume => join(table::QUOTA, &[&volume, b"v"]),
            Account::Tree(directory) => join(table::QUOTA, &[&volume, b"d", &directory.0.to_be_bytes()]),
            Account::User(uid) => join(table::QUOTA, &[&volume, b"u", &uid.to_be_bytes()]),
        }
    }
    /// The keys of `Q` that belong to a volume.
    pub fn quotas_of(volume: VolumeId) -> (Vec<u8>, Vec<u8>) {
        under(join(table::QUOTA, &[&volume.0.to_be_bytes()]))
    }
    /// The account that a key of `Q` names.
    pub fn account_in(key: &[u8]) -> Option<Account> {
        let (kind, id) = key.get(9..)?.split_first()?;
        match kind {
            b'v' => Some(Account::Volume),
            b'd' => Some(Account::Tree(FileId(u64::from_be_bytes(id.try_into().ok()?)))),
            b'u' => Some(Account::User(u32::from_be_bytes(id.try_into().ok()?))),
            _ => None,
        }
    }
    /// Key of a volume's snapshots in all: `H`, volume.
    pub fn history(volume: VolumeId) -> Vec<u8> {
        join(table::HISTORY, &[&volume.0.to_be_bytes()])
    }
    /// Key of a snapshot: `S`, volume, number.
    pub fn snapshot(volume: VolumeId, number: u32) -> Vec<u8> {
        join(table::SNAPSHOT, &[&volume.0.to_be_bytes(), &number.to_be_bytes()])
    }
    /// The keys of `S` that belong to a volume, above a snapshot's number.
    pub fn snapshots_above(volume: VolumeId, number: u32) -> (Vec<u8>, Vec<u8>) {
        let (_, to) = under(join(table::SNAPSHOT, &[&volume.0.to_be_bytes()]));
        ([snapshot(volume, number).as_slice(), &[0]].concat(), to)
    }
    /// Key of the number of a directory's snapshot of this name: `T`, directory, name.
    pub fn snapshot_name(root: FileId, name: &str) -> Vec<u8> {
        join(table::SNAPSHOT_NAME, &[&root.0.to_be_bytes(), name.as_bytes()])
    }
    /// Key of the schedule of a directory's snapshots: `K`, directory.
    pub fn schedule(root: FileId) -> Vec<u8> {
        join(table::SCHEDULE, &[&root.0.to_be_bytes()])
    }
    /// Key of what a file was up to a snapshot: `I`, file, number.
    pub fn past_inode(file: FileId, until: u32) -> Vec<u8> {
        join(table::PAST_INODE, &[&file.0.to_be_bytes(), &until.to_be_bytes()])
    }
    /// Key of the bytes that a file had up to a snapshot: `B`, file, number.
    pub fn past_bytes(file: FileId, until: u32) -> Vec<u8> {
        join(table::PAST_BYTES, &[&file.0.to_be_bytes(), &until.to_be_bytes()])
    }
    /// Range of the rows of `B` of a file.
    pub fn past_bytes_of(file: FileId) -> (Vec<u8>, Vec<u8>) {
        under(join(table::PAST_BYTES, &[&file.0.to_be_bytes()]))
    }
    /// Key of a name up to a snapshot: `E`, directory, name, 0, number. Names hold no zero.
    pub fn past_entry(directory: FileId, name: &[u8], until: u32) -> Vec<u8> {
        join(table::PAST_ENTRY, &[&directory.0.to_be_bytes(), name, &[0], &until.to_be_bytes()])
    }
    /// The name in a key of `d` or `E`.
    pub fn name_in(key: &[u8]) -> &[u8] {
        let rest = key.get(9..).unwrap_or_default();
        if key.first() == Some(&table::PAST_ENTRY) {
            rest.split(|byte| *byte == 0).next().unwrap_or_default()
        } else {
            rest
        }
    }
    /// The number at the end of a key of `S`, `I`, `B` or `E`.
    pub fn until_in(key: &[u8]) -> u32 {
        u32::from_be_bytes(key.last_chunk().copied().unwrap_or_default())
    }
    /// Key of a frozen file that is to be made: `F`, its number.
    pub fn freezing(data: FileId) -> Vec<u8> {
        join(table::FREEZING, &[&data.0.to_be_bytes()])
    }
    /// Key that says that a past row is kept for a snapshot: `W`, volume, number, the past row's key.
    pub fn kept_for(volume: VolumeId, until: u32, row: &[u8]) -> Vec<u8> {
        join(table::KEPT_FOR, &[&volume.0.to_be_bytes(), &until.to_be_bytes(), row])
    }
    /// The keys of `W` that belong to a snapshot.
    pub fn all_kept_for(volume: VolumeId, until: u32) -> (Vec<u8>, Vec<u8>) {
        under(kept_for(volume, until, &[]))
    }
    /// The past row that a key of `W` names.
    pub fn kept_in(key: &[u8]) -> &[u8] {
        key.get(13..).unwrap_or_default()
    }
    /// Key of a file that is to be laid out anew: `L`, file.
    pub fn relayout(file: FileId) -> Vec<u8> {
        join(table::RELAYOUT, &[&file.0.to_be_bytes()])
    }
    /// Key of a removed file: `r`, file.
    pub fn removal(file: FileId) -> Vec<u8> {
        join(table::REMOVAL, &[&file.0.to_be_bytes()])
    }
    /// Key of a component to be freed: `R`, drive, file, object.
    pub fn remove(drive: DriveId, file: FileId, object: ObjectId) -> Vec<u8> {
        join(table::REMOVE, &[&drive.0.to_be_bytes(), &file.0.to_be_bytes(), &object.0.to_be_bytes()])
    }
    /// Key of a session of advisory locks: `k`, session.
    pub fn lock_session(session: LockSession) -> Vec<u8> {
        join(table::LOCK_SESSION, &[&session.0.to_be_bytes()])
    }
    /// Key of the mark that was drawn in a term: `t`, term.
    pub fn term(term: u64) -> Vec<u8> {
        join(table::TERM, &[&term.to_be_bytes()])
    }
    /// Key that marks a block of numbers as drawn: `b`, block.
    pub fn block(block: u64) -> Vec<u8> {
        join(table::BLOCK, &[&block.to_be_bytes()])
    }
    /// Key of an operation's result: `o`, client, operation.
    pub fn operation(client: ClientId, number: OperationNumber) -> Vec<u8> {
        join(table::OPERATION, &[&client.0.to_be_bytes(), &number.0.to_be_bytes()])
    }
    /// The range of keys that begin with `prefix`: from the first returned key up to, and without, the
    /// second.
    pub fn under(prefix: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
        let mut end = prefix.clone();
        while end.last() == Some(&u8::MAX) {
            end.pop();
        }
        match end.last_mut() {
            Some(last) => *last += 1,
            None => end = vec![u8::MAX; 64],
        }
        (prefix, end)
    }
    /// The keys of a table.
    pub fn all(table: u8) -> (Vec<u8>, Vec<u8>) {
        under(vec![table])
    }
    /// The keys of a table that belong to a drive.
    pub fn of_drive(table: u8, drive: DriveId) -> (Vec<u8>, Vec<u8>) {
        under(join(table, &[&drive.0.to_be_bytes()]))
    }

    /// The keys of `s` or `l` that belong to a drive and a file.
    pub fn of_file(table: u8, drive: DriveId, file: FileId) -> (Vec<u8>, Vec<u8>) {
        under(join(table, &[&drive.0.to_be_bytes(), &file.0.to_be_bytes()]))
    }
    /// The number at offset `at` of a key. A key too short for it gives 0, which names nothing.
    pub fn number(key: &[u8], at: usize) -> u64 {
        u64::from_be_bytes(
            key.get(at..at + 8).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or_default(),
        )
    }
    /// The drive at offset 1 of a key.
    pub fn drive_of(key: &[u8]) -> DriveId {
        DriveId(u128::from(number(key, 1)) << 64 | u128::from(number(key, 9)))
    }
    /// The drive, file, segment and column that a key of `s` or `l` names.
    pub fn place_of(key: &[u8]) -> ComponentPlace {
        let segment = key.get(25..29).and_then(|bytes| bytes.first_chunk()).copied();
        ComponentPlace {
            drive: drive_of(key),
            file: FileId(number(key, 17)),
            segment: u32::from_be_bytes(segment.unwrap_or_default()),
            column: super::Column(key.get(29).copied().unwrap_or_default()),
        }
    }
}

/// Encodes a record as a value: the version byte and its fields.
pub fn encode(record: &impl Wire) -> Vec<u8> {
    let mut bytes = vec![SCHEMA_VERSION];
    record.put(&mut bytes);
    bytes
}

/// Decodes the value of `key` as a record.
pub fn decode<R: Wire>(key: &[u8], bytes: &[u8]) -> Result<R, KvError> {
    R::from_bytes(fields(key, bytes)?).map_err(|error| damaged(key, error))
}

/// The bytes of a value after its version byte.
pub fn fields<'a>(key: &[u8], bytes: &'a [u8]) -> Result<&'a [u8], KvError> {
    match bytes.split_first() {
        Some((SCHEMA_VERSION_OLDEST..=SCHEMA_VERSION, fields)) => Ok(fields),
        Some((&found, _)) if found < SCHEMA_VERSION_OLDEST => {
            Err(KvError::Version { found, wanted: SCHEMA_VERSION_OLDEST })
        }
        Some((&found, _)) => Err(KvError::Newer { found: u64::from(found), known: SCHEMA_VERSION }),
        None => Err(damaged(key, "it is empty")),
    }
}

/// The error of a value that does not decode.
pub fn damaged(key: &[u8], what: impl ToString) -> KvError {
    KvError::Damaged { key: key.to_vec(), what: what.to_string() }
}
