//! Messages with the manager.
//!
//! A session begins with the manager's `Hello`, then [`Authenticate`] and [`Welcome`]: each side proves that
//! it knows the token's secret. After that requests are answered in order. Every request's body begins with
//! [`RequestHead`], every reply's with [`ControlHead`]. Paths are bytes: names of 1 to 255 bytes other than
//! `/` and NUL, not `.` or `..`, joined by `/`, relative to the volume's root; the root itself is the empty
//! path. Names need not be UTF-8.
//!
//! A request that must not be carried out twice is an *operation* ([`Rules::is_operation`]). It
//! carries a number, and a repeat after a lost answer carries the same number. The manager stores its answer
//! in the transaction that makes the change. So an operation is carried out at most once, and its repeat gets
//! the first answer.
//!
//! After the proofs, single control messages are neither secret nor authenticated: TLS is to add both.
//! `docs/format-wire.md` says what that means.
//!
//! Units, unless a field says otherwise: times are manager time in milliseconds, sizes and offsets are bytes
//! of the file.

mod attributes;
mod batch;
mod drive;
mod file;
mod heal;
mod jobs;
mod keys;
mod layout;
mod lock;
mod manager;
mod names;
mod relayout;
mod reservation;
mod rules;
mod shape;
mod snapshot;
mod token;
mod watch;

use braid_layout::{ClientId, ClusterId, DriveId, OperationNumber, TokenId};

pub use attributes::{
    AttributeChanges, FileAttributes, HardLink, LINKS_MAX, MakeNode, NewAttributes, SetAttributes, SetXattr,
    TARGET_BYTES_MAX, XATTR_BYTES_MAX, XATTR_NAME_BYTES_MAX, Xattr, XattrHow, Xattrs, XattrsReply,
};
pub use batch::{BATCH_ITEMS_MAX, Batch, BatchAnswer, BatchItem, BatchReply};
pub use drive::{
    Admission, BACKUP_PART_BYTES_MAX, Backup, BackupPart, BackupReply, CalibrateDrive, CalibrateDriveReply,
    Certificate, CertifyDrive, DrainDrive, DrainDriveReply, DriveRow, DriveState, FileSystem, FreeUnnamed,
    Heartbeat, HeartbeatReply, JoinDrive, JoinDriveReply, Latency, ManagerRow, MemberRow, NamesState,
    PAUSE_MS_MAX, PauseDrive, ProcessMark, ReadBackup, RemoveDrive, ReplaceDrive, ReplaceDriveReply,
    SISTERS_MAX, ScrubDrive, ScrubDriveReply, SisterRow, Sisters, SistersReply, StateMark, Status,
    StatusReply,
};
pub use file::{
    Access, Allocate, AllocateAct, Backing, BeginHeal, ByteRange, ColumnRow, Commit, CreateUnnamed, Cut,
    EndHeal, EndReserved, Ended, Ending, Grant, HeldLease, Open, Opened, Refresh, Release, Renew, Renewed,
    ReportLost, ReserveEnd, Room, SegmentRow, Sized, StatRow, Turn,
};
pub use heal::{
    BalanceState, HealOrders, HealProgress, HealReport, HealRow, HealStatus, HealStatusReply, StaleFiles,
    StaleFilesReply,
};
pub use jobs::{JobRow, Jobs, JobsReply};
pub use keys::{
    CLIENTS_TOLD_MAX, ClientRow, DriveKeyRow, KeyRotate, KeyTurn, KeyTurning, Keys, KeysReply, RevokeClient,
    RevokeFile, VolumeKeysRow,
};
pub use layout::{Clustering, LAYOUT_XATTR, LayoutFrom, LayoutOf, LayoutReply, SetClustering, SetLayout};
pub use lock::{HeldLock, Lock, LockHow, LockKind, LockState, Locked};
pub use manager::{AddManager, EtcdPeer, ManagerAdded, RemoveManager};
pub use names::{
    DirectoryReply, Entry, EntryKind, KEY_ID_BYTES_MAX, LABEL_BYTES_MAX, Link, Lookup, MODE_MAX,
    MakeDirectory, Methods, MethodsRow, NAME_BYTES_MAX, NamePlace, PATH_BYTES_MAX, QuotaList, QuotaListReply,
    QuotaRemove, QuotaRow, QuotaSet, ReadDirectory, Rename, RenameHow, Seen, Unlink, UnlinkOnly,
    VolumeCreate, VolumeKey, VolumeList, VolumeListReply, VolumeMethods, VolumeProtect, VolumeRekey,
    VolumeRemove, VolumeRow, WRAPPED_BYTES_MAX,
};
pub use relayout::{Relayout, RelayoutReply, RelayoutRow, Relayouts, RelayoutsReply};
pub use reservation::{
    CounterOffer, DriveBooking, DrivePromise, ENDED_TOLD_MAX, ENDED_WAIT_MS, EndReservation,
    ExtendReservation, HandlePromise, Lateness, LatenessReport, MEASURED_BY_BYTES_MAX, NotAdmitted,
    PROMISES_TOLD_MAX, PromiseRow, Qualified, Qualify, QualifyAct, RESERVATIONS_MAX, RatePlan, RateReserved,
    ReservationReply, ReservationRow, Reservations, ReserveRate, WholeRate,
};
pub use rules::Rules;
pub use shape::ShapeSpec;
pub use snapshot::{
    ChangeKind, ChangeRow, KeepCounts, NameBelow, ScheduleRow, SnapshotDiff, SnapshotDiffReply, SnapshotKeep,
    SnapshotMade, SnapshotMake, SnapshotRemove, SnapshotRow, SnapshotSchedules, SnapshotSchedulesReply,
    Snapshots, SnapshotsReply,
};
pub use token::{
    GROUPS_MAX, TokenMade, TokenNew, TokenRevoke, TokenRow, TokenState, TokenUser, Tokens, TokensReply,
};
pub use watch::{News, Watch};

use crate::refusal::Refusal;
use crate::token::Standing;

record! {
    /// The head of every request to the manager.
    pub struct RequestHead {
        /// Random number of the asker, the same for its whole life; 0 if it sends no operations and watches
        /// nothing.
        client: ClientId,
        /// The operation's number: from 1, rising, the same in every repeat. 0 for a request that is not an
        /// operation.
        operation: OperationNumber,
        /// The asker will repeat none of its operations below this number: it has their answers, or has
        /// given them up.
        settled_below: OperationNumber,
        /// Manager time when the operation began, as the asker knew it; never later than the true time. 0
        /// for a request that is not an operation.
        begun_ms: u64,
    }
}

record! {
    /// The head of every reply of the manager.
    pub struct ControlHead {
        /// The manager's term, which rises with every start of a manager. A peer that has seen a higher
        /// term ignores the reply.
        term: u64,
        /// Manager time, in milliseconds. It never goes back, not even across a restart.
        now_ms: u64,
        /// Mark of the list of managers; see [`managers_mark`]. If it is not that of the list in the
        /// session's [`Welcome`], the list has changed since: the asker connects again to learn the new one.
        managers: u32,
    }
}

/// The mark of a list of managers: the CRC32C of its addresses, sorted, with a newline after each. So it
/// stays the same when only the leader changes. 0 for an empty list.
pub fn managers_mark(managers: &[String]) -> u32 {
    let mut sorted: Vec<&str> = managers.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    let lines: String = sorted.iter().flat_map(|address| [address, "\n"]).collect();
    crate::checksum::crc32c(lines.as_bytes())
}

record! {
    /// The asker's proof that it knows the token's secret; kind 0x0002.
    pub struct Authenticate {
        /// The kind of session that the asker wants.
        standing: Standing,
        /// The drive, for [`Standing::Drive`] and [`Standing::Join`]; for [`Standing::Manager`] a number of
        /// the host, the same in each repeat; zero for a client.
        drive: DriveId,
        /// Number of the drive's master key, for [`Standing::Drive`]; else 0. It says which key is proved.
        key: u32,
        /// The token that is proved; 0 for [`Standing::Drive`].
        token: TokenId,
        /// Random number of this connection, chosen by the asker.
        nonce: [u8; 16],
        /// The proof; see [`Token::asker_proof`](crate::token::Token::asker_proof).
        proof: [u8; 32],
    }
}

record! {
    /// The manager's proof that it knows the token's secret.
    pub struct Welcome {
        /// The manager's cluster.
        cluster: ClusterId,
        /// The proof; see [`Token::manager_proof`](crate::token::Token::manager_proof).
        proof: [u8; 32],
        /// Addresses of the cluster's managers, `host:port`, that of the leader first. Empty: the manager is
        /// the only one, and the asker goes on with the address that it has.
        managers: Vec<String>,
    }
}

record! {
    /// An answer without content: the request was carried out.
    pub struct Done {}
}

message_set! {
    /// Requests to the manager.
    #[expect(clippy::large_enum_variant, reason = "no list of requests is kept: those in a batch are bytes")]
    pub enum ControlRequest {
        /// Prove knowledge of the token's secret: Welcome.
        Authenticate(Authenticate) = 0x0002,
        /// Make a volume: Done.
        VolumeCreate(VolumeCreate) = 0x0200,
        /// Remove a volume: Done.
        VolumeRemove(VolumeRemove) = 0x0201,
        /// List volumes: Volumes.
        VolumeList(VolumeList) = 0x0202,
        /// Set a quota: Done.
        QuotaSet(QuotaSet) = 0x0204,
        /// End a quota: Done.
        QuotaRemove(QuotaRemove) = 0x0205,
        /// List quotas: Quotas.
        QuotaList(QuotaList) = 0x0206,
        /// Make a snapshot: SnapshotMade.
        SnapshotMake(SnapshotMake) = 0x0207,
        /// Remove a snapshot: Done.
        SnapshotRemove(SnapshotRemove) = 0x0208,
        /// List snapshots: Snapshots.
        Snapshots(Snapshots) = 0x0209,
        /// Look up a path: Stat.
        Lookup(Lookup) = 0x0210,
        /// List a directory: Directory.
        ReadDirectory(ReadDirectory) = 0x0211,
        /// Make a directory: Stat.
        MakeDirectory(MakeDirectory) = 0x0212,
        /// Rename an object: Done.
        Rename(Rename) = 0x0213,
        /// Remove a name: Done.
        Unlink(Unlink) = 0x0214,
        /// Change attributes: Stat.
        SetAttributes(SetAttributes) = 0x0215,
        /// Make an object without bytes on drives: Stat.
        MakeNode(MakeNode) = 0x0216,
        /// Give an object another name: Stat.
        HardLink(HardLink) = 0x0217,
        /// Set or remove an extended attribute: Done.
        SetXattr(SetXattr) = 0x0218,
        /// Get all extended attributes: Xattrs.
        Xattrs(Xattrs) = 0x0219,
        /// Set or take away the layout of new files: Done.
        SetLayout(SetLayout) = 0x021a,
        /// Get the layout of a file, or of new files in a directory: Layout.
        LayoutOf(LayoutOf) = 0x021b,
        /// Make a file without a name: Opened.
        CreateUnnamed(CreateUnnamed) = 0x0220,
        /// Name an open unnamed file: Done.
        Link(Link) = 0x0221,
        /// Open a file: Opened.
        Open(Open) = 0x0222,
        /// Get new capabilities: Opened.
        Refresh(Refresh) = 0x0223,
        /// Renew leases: Renewed.
        Renew(Renew) = 0x0224,
        /// Set a file's size: Done.
        Commit(Commit) = 0x0225,
        /// End a lease: Done.
        Release(Release) = 0x0226,
        /// Report lost columns: Opened.
        ReportLost(ReportLost) = 0x0227,
        /// Reserve bytes at the end: EndReserved.
        ReserveEnd(ReserveEnd) = 0x0228,
        /// Keep room for bytes to come, or give it back: Done.
        Allocate(Allocate) = 0x0229,
        /// Get the cluster's state: Status.
        Status(Status) = 0x0230,
        /// Back up the manager's state: Backup.
        Backup(Backup) = 0x0231,
        /// Free the objects that a restore left without a name: Done.
        FreeUnnamed(FreeUnnamed) = 0x0232,
        /// List the manager's background jobs: Jobs.
        Jobs(Jobs) = 0x0233,
        /// Add a drive: Joined.
        JoinDrive(JoinDrive) = 0x0240,
        /// Send a drive's heartbeat: Heartbeat.
        Heartbeat(Heartbeat) = 0x0241,
        /// Replace a drive by another: Replaced.
        ReplaceDrive(ReplaceDrive) = 0x0242,
        /// Start a drive's scrub, or ask how far it is: Scrub.
        ScrubDrive(ScrubDrive) = 0x0243,
        /// Get the drives to send deltas to: Sisters.
        Sisters(Sisters) = 0x0244,
        /// Move all columns off a drive: Drained.
        DrainDrive(DrainDrive) = 0x0245,
        /// Take an empty drive out of the cluster: Done.
        RemoveDrive(RemoveDrive) = 0x0246,
        /// Measure what a drive's parts cost, or ask for the state of that: Calibration.
        CalibrateDrive(CalibrateDrive) = 0x0247,
        /// Turn keys: Done.
        KeyRotate(KeyRotate) = 0x0248,
        /// List the states of keys, and the clients: Keys.
        Keys(Keys) = 0x0249,
        /// End the capabilities for a file: Done.
        RevokeFile(RevokeFile) = 0x024a,
        /// End a client's session: Done.
        RevokeClient(RevokeClient) = 0x024b,
        /// Set which small files are placed near each other: Done.
        SetClustering(SetClustering) = 0x024c,
        /// List files to rebuild: StaleFiles.
        StaleFiles(StaleFiles) = 0x0250,
        /// Bring a file's columns on the asking drive up to date: Opened.
        BeginHeal(BeginHeal) = 0x0251,
        /// Report that these columns are up to date: Done.
        EndHeal(EndHeal) = 0x0252,
        /// Report how far the asking drive is: HealOrders.
        HealReport(HealReport) = 0x0253,
        /// Ask how far all drives are, and set their rate: HealStatus.
        HealStatus(HealStatus) = 0x0254,
        /// Compare a directory in a snapshot with a later one: SnapshotDiff.
        SnapshotDiff(SnapshotDiff) = 0x0255,
        /// Set or end a schedule of snapshots: Done.
        SnapshotKeep(SnapshotKeep) = 0x0256,
        /// List schedules of snapshots: SnapshotSchedules.
        SnapshotSchedules(SnapshotSchedules) = 0x0257,
        /// Lay a file out anew: Relayout.
        Relayout(Relayout) = 0x0260,
        /// List the files that are to be laid out anew: Relayouts.
        Relayouts(Relayouts) = 0x0261,
        /// Reserve a data rate: RateReserved.
        ReserveRate(ReserveRate) = 0x0262,
        /// List reservations and the bookings of drives: Reservations.
        Reservations(Reservations) = 0x0263,
        /// Set a reservation's end: RateReserved.
        ExtendReservation(ExtendReservation) = 0x0264,
        /// End a reservation: Done.
        EndReservation(EndReservation) = 0x0265,
        /// Report the lateness of a reserved handle: Done.
        LatenessReport(LatenessReport) = 0x0266,
        /// Keep, tell or forget what all drives do together: Qualified.
        Qualify(Qualify) = 0x0267,
        /// Wait for news of watched objects: News.
        Watch(Watch) = 0x0268,
        /// Lock bytes of a file: Locked.
        Lock(Lock) = 0x0269,
        /// Many requests in one: Batch.
        Batch(Batch) = 0x0270,
        /// Make a token: TokenMade.
        TokenNew(TokenNew) = 0x0271,
        /// List tokens: Tokens.
        Tokens(Tokens) = 0x0272,
        /// End a token, and what is open with it: Done.
        TokenRevoke(TokenRevoke) = 0x0273,
        /// Pause a drive, or end the pause: Done.
        PauseDrive(PauseDrive) = 0x027c,
        /// Add the asking host to the managers: ManagerAdded.
        AddManager(AddManager) = 0x0280,
        /// Take a lost manager out of the cluster: Done.
        RemoveManager(RemoveManager) = 0x0281,
        /// Read a part of the last backup: BackupPart.
        ReadBackup(ReadBackup) = 0x0290,
        /// Set how a volume's data is protected on its way: Done.
        VolumeProtect(VolumeProtect) = 0x0298,
        /// Ask for a certificate of the cluster's CA, as a drive: Certificate.
        CertifyDrive(CertifyDrive) = 0x0299,
        /// Wrap an encrypted volume's data key anew: Done.
        VolumeRekey(VolumeRekey) = 0x029a,
        /// Set the methods that drives run on a volume's files: Done.
        VolumeMethods(VolumeMethods) = 0x02a0,
    }
}

impl RequestHead {
    /// The head of a request that is not an operation.
    pub const NONE: RequestHead = RequestHead {
        client: ClientId::NONE,
        operation: OperationNumber::NONE,
        settled_below: OperationNumber::NONE,
        begun_ms: 0,
    };
}

message_set! {
    /// The manager's replies. Kinds have [`REPLY_BIT`](crate::frame::REPLY_BIT) set.
    pub enum ControlReply {
        /// The manager's proof.
        Welcome(Welcome) = 0x8002,
        /// The request was carried out.
        Done(Done) = 0x8200,
        /// A list of volumes.
        Volumes(VolumeListReply) = 0x8202,
        /// A list of quotas.
        Quotas(QuotaListReply) = 0x8206,
        /// The snapshot that was made.
        SnapshotMade(SnapshotMade) = 0x8207,
        /// A list of snapshots.
        Snapshots(SnapshotsReply) = 0x8209,
        /// The object that a name stands for.
        Stat(StatRow) = 0x8210,
        /// Entries of a directory.
        Directory(DirectoryReply) = 0x8211,
        /// All extended attributes of an object.
        Xattrs(XattrsReply) = 0x8219,
        /// The layout of a file, or of new files in a directory.
        Layout(LayoutReply) = 0x821b,
        /// An open file, with its capabilities.
        Opened(Opened) = 0x8222,
        /// The result of renewing leases.
        Renewed(Renewed) = 0x8224,
        /// The bytes that were reserved.
        EndReserved(EndReserved) = 0x8228,
        /// The state of the cluster.
        Status(StatusReply) = 0x8230,
        /// The backup is complete.
        Backup(BackupReply) = 0x8231,
        /// The manager's background jobs.
        Jobs(JobsReply) = 0x8233,
        /// The drive has joined the cluster.
        Joined(JoinDriveReply) = 0x8240,
        /// The manager's decision on a heartbeat.
        Heartbeat(HeartbeatReply) = 0x8241,
        /// The number of components to rebuild.
        Replaced(ReplaceDriveReply) = 0x8242,
        /// The state of a drive's scrub.
        Scrub(ScrubDriveReply) = 0x8243,
        /// The drives to which a drive sends deltas.
        Sisters(SistersReply) = 0x8244,
        /// The amount to move off a drive.
        Drained(DrainDriveReply) = 0x8245,
        /// The state of a drive's calibration.
        Calibration(CalibrateDriveReply) = 0x8247,
        /// The states of keys, and the clients.
        Keys(KeysReply) = 0x8249,
        /// Files that have stale columns.
        StaleFiles(StaleFilesReply) = 0x8250,
        /// The work of the asking drive from now on.
        HealOrders(HealOrders) = 0x8253,
        /// The progress of all drives.
        HealStatus(HealStatusReply) = 0x8254,
        /// Some differences between two times.
        SnapshotDiff(SnapshotDiffReply) = 0x8255,
        /// Schedules of snapshots.
        SnapshotSchedules(SnapshotSchedulesReply) = 0x8257,
        /// The outcome of a request to lay a file out anew.
        Relayout(RelayoutReply) = 0x8260,
        /// Files that are to be laid out anew.
        Relayouts(RelayoutsReply) = 0x8261,
        /// The outcome of a request for a data rate.
        RateReserved(RateReserved) = 0x8262,
        /// Reservations, and the bookings of drives.
        Reservations(ReservationReply) = 0x8263,
        /// The rates of the whole.
        Qualified(Qualified) = 0x8267,
        /// Changes of watched objects.
        News(News) = 0x8268,
        /// The outcome of a lock request.
        Locked(Locked) = 0x8269,
        /// The replies to a batch.
        Batch(BatchReply) = 0x8270,
        /// The token is on record.
        TokenMade(TokenMade) = 0x8271,
        /// The tokens on record.
        Tokens(TokensReply) = 0x8272,
        /// The host is one of the managers.
        ManagerAdded(ManagerAdded) = 0x8280,
        /// A part of the backup.
        BackupPart(BackupPart) = 0x8290,
        /// A drive's certificate.
        Certificate(Certificate) = 0x8299,
        /// A refusal of any request.
        Refused(Refusal) = 0x82ff,
    }
}
