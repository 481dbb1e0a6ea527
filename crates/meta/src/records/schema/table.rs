//! The tables: the letter that the keys of each begin with.

/// Numbers and identities of the cluster; keys are words.
pub const META: u8 = b'm';
/// Volume number to [`VolumeRecord`](super::VolumeRecord).
pub const VOLUME: u8 = b'v';
/// Volume name to its number.
pub const VOLUME_NAME: u8 = b'V';
/// Directory and name to [`EntryRecord`](super::EntryRecord).
pub const ENTRY: u8 = b'd';
/// File number to [`InodeRecord`](super::InodeRecord).
pub const INODE: u8 = b'i';
/// File, directory and name: a name that the file has beside the one in its record.
pub const MORE_NAMES: u8 = b'N';
/// File and name to the value of an extended attribute.
pub const XATTR: u8 = b'x';
/// Files with a lease, an open procedure or no name.
pub const ATTENTION: u8 = b'h';
/// Drive identity to [`DriveRecord`](super::DriveRecord).
pub const DRIVE: u8 = b'D';
/// Drive to the drive's highest receipt that a writer has brought, a number.
pub const RECEIPT: u8 = b'a';
/// Drive to [`DriveCount`](super::DriveCount).
pub const DRIVE_COUNT: u8 = b'n';
/// Drive to its seat: the number that stands for it in rows of files and components.
pub const SEAT_OF: u8 = b'u';
/// Seat to the drive that it stands for.
pub const SEAT: u8 = b'U';
/// Seat and chunk of 256 file numbers to the components of these files that are placed on the drive
/// ([`chunk`](super::chunk)).
pub const COLUMN: u8 = b'c';
/// Drive, file, segment, column to [`StaleRecord`](super::StaleRecord).
pub const STALE: u8 = b's';
/// Drive and volume to [`PartitionRecord`](super::PartitionRecord): the partition is on the drive.
pub const PARTITION: u8 = b'p';
/// Drive and volume to a number: the quota that the drive was last told for the partition; absent: none.
pub const PARTITION_QUOTA: u8 = b'z';
/// Drive and volume: the partition is to be removed.
pub const PARTITION_REMOVAL: u8 = b'q';
/// Removed file to [`RemovalRecord`](super::RemovalRecord).
pub const REMOVAL: u8 = b'r';
/// Drive, file, object to [`RemoveRecord`](super::RemoveRecord): the component is to be removed.
pub const REMOVE: u8 = b'R';
/// Drive, file, segment, column to [`LeftRecord`](super::LeftRecord): the column has moved, and what the
/// drive holds of it is to be freed.
pub const LEFT: u8 = b'l';
/// File and segment to [`MoveRecord`](super::MoveRecord): a column of the segment has a successor on another
/// drive.
pub const MOVE: u8 = b'M';
/// Volume and account to [`QuotaRecord`](super::QuotaRecord): the quota of a volume, a directory or a user.
pub const QUOTA: u8 = b'Q';
/// File to [`RelayoutRecord`](super::RelayoutRecord): the file is to be laid out anew.
pub const RELAYOUT: u8 = b'L';
/// Drives that are drained: no column is placed there, and those that are move to others.
pub const DRAIN: u8 = b'e';
/// Ends of pauses of drives.
pub const PAUSE: u8 = b'g';
/// Costs of drives' parts, as the drives last told.
pub const PARTS: u8 = b'y';
/// Drive to [`DriveKeyRecord`](super::DriveKeyRecord): the state of its master key; absent: never turned.
pub const DRIVE_KEY: u8 = b'j';
/// Volume to [`VolumeKeysRecord`](super::VolumeKeysRecord): its working keys; absent: never turned.
pub const VOLUME_KEYS: u8 = b'w';
/// Volume to the [`VolumeKey`](braid_wire::control::VolumeKey) by which its files are sealed; absent: they
/// are not sealed.
pub const VOLUME_SEAL: u8 = b'J';
/// Client to [`ShutOutRecord`](super::ShutOutRecord): the client was shut out.
pub const SHUT_OUT: u8 = b'X';
/// Token number to [`TokenRecord`](super::TokenRecord).
pub const TOKEN: u8 = b'A';
/// Session of advisory locks to [`LockSessionRecord`](super::LockSessionRecord): the session may claim its
/// locks.
pub const LOCK_SESSION: u8 = b'k';
/// Reservation number to [`ReservationRecord`](super::ReservationRecord).
pub const RESERVATION: u8 = b'P';
/// Term to the mark that was drawn in it.
pub const TERM: u8 = b't';
/// Blocks of numbers that were drawn.
pub const BLOCK: u8 = b'b';
/// Client and operation to [`OperationRecord`](super::OperationRecord): the operation was carried out.
pub const OPERATION: u8 = b'o';
/// Volume to [`HistoryRecord`](super::HistoryRecord).
pub const HISTORY: u8 = b'H';
/// Volume and number to [`SnapshotRecord`](super::SnapshotRecord).
pub const SNAPSHOT: u8 = b'S';
/// Directory and name to the number of its snapshot of that name.
pub const SNAPSHOT_NAME: u8 = b'T';
/// Directory to [`ScheduleRecord`](super::ScheduleRecord): snapshots of it are made by this schedule.
pub const SCHEDULE: u8 = b'K';
/// File and number to [`PastInode`](super::PastInode): what the file was up to that snapshot.
pub const PAST_INODE: u8 = b'I';
/// File and number to [`PastBytes`](super::PastBytes): the bytes that it had up to that snapshot.
pub const PAST_BYTES: u8 = b'B';
/// Directory, name and number to [`PastEntry`](super::PastEntry): the name up to that snapshot.
pub const PAST_ENTRY: u8 = b'E';
/// Frozen file that is to be made to the file whose bytes it is to have, a number.
pub const FREEZING: u8 = b'F';
/// Volume, number and key of a past row: the past row is kept for that snapshot.
pub const KEPT_FOR: u8 = b'W';
