//! The drive's identity: `drive.toml` in its directory. The file holds the master key, so only its owner may
//! read it.
//!
//! The file is written before the manager is asked to let the drive join, so that a crash in between is
//! harmless: the drive starts again under the same identity, tries the key it wrote, and joins again if the
//! manager never heard of it. Every write is atomic (a new file, synced, renamed over the old one).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use braid_layout::{ClusterId, DriveId};
use braid_store::disk::private;
use braid_transport::{Managers, process};
use braid_wire::Key;
use braid_wire::control::StateMark;
use braid_wire::token::Pin;
use serde::{Deserialize, Serialize};

use crate::error::DriveError;
use crate::keys::{Former, MasterKey};

/// The identity's file.
const IDENTITY_FILE: &str = "drive.toml";
/// Temporary name of the identity's file while it is written.
const IDENTITY_NEW: &str = "drive.toml.new";
/// Directory that is present in a new file system.
const LOST_AND_FOUND: &str = "lost+found";
/// File that is locked while a process uses the directory.
const LOCK_FILE: &str = "LOCK";
/// The store's own directory in the drive's.
const STORE_DIR: &str = "store";
/// The store's name while it is being removed.
const STORE_OLD_DIR: &str = "store.old";
/// The version of `drive.toml`.
const FORMAT: u32 = 1;
/// Name of this release in `drive.toml`.
const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// The drive's identity, and other state that it must remember outside its store.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) cluster: ClusterId,
    /// Pin of the cluster's certificate authority; `None`: an earlier release has written the file.
    pub(crate) ca: Option<Pin>,
    pub(crate) drive: DriveId,
    /// Name of the drive in the cluster.
    pub(crate) name: String,
    /// The managers' addresses, with commas between, as last learned; `None`: none was ever reached.
    pub(crate) manager: Option<String>,
    /// The key that all other keys of this drive are derived from.
    pub(crate) master: Option<MasterKey>,
    /// True if the manager surely knows the drive.
    pub(crate) joined: bool,
    /// The highest epoch that the manager announced; 0: none yet.
    pub(crate) epoch: u64,
    /// True if an epoch was announced while objects were here: see [`crate::readmission`].
    pub(crate) was_out: bool,
    /// The instance number that the manager gave to the last process it admitted as this drive; 0: none yet.
    pub(crate) instance: u64,
    /// Progress of the manager's state, as last stored.
    pub(crate) seen: StateMark,
}

/// `drive.toml` as text.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    format: u32,
    /// The release that wrote the file, for people. Absent in files of early releases.
    #[serde(default)]
    release: Option<String>,
    cluster: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ca: Option<String>,
    drive: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    manager: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    master_key: Option<String>,
    /// Number of the master key; absent in files of earlier releases: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_number: Option<u32>,
    /// The master key before the last turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    former_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    former_until_ms: Option<u64>,
    joined: bool,
    epoch: u64,
    was_out: bool,
    instance: u64,
    seen_term: u64,
    /// In hex, as TOML integers are signed.
    seen_mark: String,
    seen_changes: u64,
}

/// A drive's directory, held by this process until it is dropped.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// The directory's lock, held while the drive runs.
    _lock: Option<File>,
    /// Simulated disk that has the files, in place of the directory.
    #[cfg(feature = "simulated")]
    medium: Option<std::sync::Arc<dyn crate::medium::Medium>>,
}

impl Directory {
    /// Locks the directory, creating it if it is missing. A directory that holds other files than a drive's
    /// is refused and left unchanged.
    pub(crate) fn take(path: &Path) -> Result<Directory, DriveError> {
        private::make_dir_all(path).map_err(|source| file_error("make", path, source))?;
        refuse_foreign(path)?;
        let lock_path = path.join(LOCK_FILE);
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(private::FILE_MODE)
            .open(&lock_path)
            .map_err(|source| file_error("open", &lock_path, source))?;
        if !process::lock(&lock).map_err(|source| file_error("lock", &lock_path, source))? {
            return Err(DriveError::InUse(path.to_owned()));
        }
        Ok(Directory {
            path: path.to_owned(),
            _lock: Some(lock),
            #[cfg(feature = "simulated")]
            medium: None,
        })
    }

    /// A simulated directory.
    #[cfg(feature = "simulated")]
    pub(crate) fn on_medium(path: &Path, medium: std::sync::Arc<dyn crate::medium::Medium>) -> Directory {
        Directory { path: path.to_owned(), _lock: None, medium: Some(medium) }
    }

    /// The disk that has the files, if the directory is simulated.
    #[cfg(feature = "simulated")]
    pub(crate) fn medium(&self) -> Option<&dyn crate::medium::Medium> {
        self.medium.as_deref()
    }

    /// Restricts the directory to its owner, now that it is known to be a drive's. The store does the same
    /// for its own files.
    pub(crate) fn tighten(&self) {
        #[cfg(feature = "simulated")]
        if self.medium.is_some() {
            return;
        }
        private::tighten(&self.path, &[]);
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Path of the store.
    pub(crate) fn store(&self) -> PathBuf {
        self.path.join(STORE_DIR)
    }

    /// Removes the store of a drive that never joined. Even after a crash it is either complete or gone.
    pub(crate) fn discard_store(&self) -> Result<(), DriveError> {
        #[cfg(feature = "simulated")]
        if let Some(medium) = self.medium() {
            medium.discard();
            return Ok(());
        }
        let store = self.store();
        let old = self.path.join(STORE_OLD_DIR);
        let discard = || -> io::Result<()> {
            // A crash may have left this from an earlier removal.
            ignore_missing(fs::remove_dir_all(&old))?;
            ignore_missing(fs::rename(&store, &old))?;
            File::open(&self.path)?.sync_all()?;
            ignore_missing(fs::remove_dir_all(&old))
        };
        discard().map_err(|source| file_error("remove", &store, source))
    }

    /// The identity, if the directory has one.
    pub(crate) fn identity(&self) -> Result<Option<Identity>, DriveError> {
        let Some(text) = self.read(IDENTITY_FILE)? else { return Ok(None) };
        let path = self.path.join(IDENTITY_FILE);
        Identity::parse(&text).map(Some).map_err(|bad| bad.at(path))
    }

    /// Stores the identity; it is durable when this returns.
    pub(crate) fn save(&self, identity: &Identity) -> Result<(), DriveError> {
        self.write(IDENTITY_FILE, &identity.text())
    }

    /// The text of a small file, if the file exists.
    pub(crate) fn read(&self, name: &str) -> Result<Option<String>, DriveError> {
        let path = self.path.join(name);
        #[cfg(feature = "simulated")]
        if let Some(medium) = self.medium() {
            return medium.read(name).map_err(|source| file_error("read", &path, source));
        }
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(file_error("read", &path, source)),
        }
    }

    /// Replaces a small file as a whole, readable by its owner only; it is durable when this returns.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), DriveError> {
        let (path, fresh) = (self.path.join(name), self.path.join(format!("{name}.new")));
        #[cfg(feature = "simulated")]
        if let Some(medium) = self.medium() {
            return medium.write(name, text).map_err(|source| file_error("write", &path, source));
        }
        let write = || -> io::Result<()> {
            let mut file = OpenOptions::new()
                .create(true)
                .truncate(true)
                .write(true)
                .mode(private::FILE_MODE)
                .open(&fresh)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&fresh, &path)?;
            File::open(&self.path)?.sync_all()
        };
        write().map_err(|source| file_error("write", &path, source))
    }
}

/// Reason why a `drive.toml` gives no identity.
#[derive(Debug)]
enum Bad {
    /// No release writes such a file.
    Damaged(String),
    /// Another release has written the file; `by` names it.
    Release { by: String, what: String },
}

impl Bad {
    fn at(self, path: PathBuf) -> DriveError {
        match self {
            Bad::Damaged(what) => DriveError::Identity { path, what },
            Bad::Release { by, what } => DriveError::Release { path, by, what },
        }
    }
}

impl From<String> for Bad {
    fn from(what: String) -> Bad {
        Bad::Damaged(what)
    }
}

/// Classifies a file that this release cannot read. A file that is TOML, states its format and names a
/// cluster and a drive was written by some release: a field that this release does not know, or misses, is
/// due to that other release.
fn bad(text: &str, what: &str) -> Bad {
    let Ok(table) = text.parse::<toml::Table>() else { return Bad::Damaged(what.to_owned()) };
    let is_there = |name: &str| table.get(name).is_some_and(toml::Value::is_str);
    if !table.get("format").is_some_and(toml::Value::is_integer) || !is_there("cluster") || !is_there("drive")
    {
        return Bad::Damaged(what.to_owned());
    }
    let by = match table.get("release").and_then(toml::Value::as_str) {
        Some(RELEASE) => format!("another build of release {RELEASE}"),
        Some(release) => format!("release {release}"),
        None => "a build before the first release".to_owned(),
    };
    Bad::Release { by, what: what.to_owned() }
}

impl Identity {
    /// The managers that were reached last. An entry that an earlier release took as it was told stands for
    /// one address.
    pub(crate) fn managers(&self) -> Option<Managers> {
        self.manager.as_ref().map(|list| list.parse().unwrap_or_else(|_| Managers::from(list)))
    }

    /// Takes note that a session with one of these managers is authenticated. Returns true if that is news.
    pub(crate) fn handle_managers(&mut self, managers: &Managers) -> bool {
        let is_news = self.managers().is_none_or(|before| !before.is_same_list(managers));
        if is_news {
            self.manager = Some(managers.to_string());
        }
        is_news
    }

    fn parse(whole: &str) -> Result<Identity, Bad> {
        let text: Text = toml::from_str(whole).map_err(|error| bad(whole, error.message()))?;
        if text.format != FORMAT {
            return Err(bad(
                whole,
                &format!("it is of format {}, and this release knows {FORMAT}", text.format),
            ));
        }
        let id = |hex: &str| u128::from_str_radix(hex, 16).map_err(|_| format!("{hex} is not 32 hex digits"));
        let former = text.former_key.as_deref().map(key_from_hex).transpose()?;
        let former = former.map(|key| Former { key, until_ms: text.former_until_ms });
        let number = text.key_number.unwrap_or(1);
        let master = text.master_key.as_deref().map(key_from_hex).transpose()?;
        Ok(Identity {
            cluster: ClusterId(id(&text.cluster)?),
            ca: text.ca.as_deref().map(bytes_from_hex).transpose()?,
            drive: DriveId(id(&text.drive)?),
            name: text.name,
            manager: text.manager,
            master: master.map(|key| MasterKey { number, key, former }),
            joined: text.joined,
            epoch: text.epoch,
            was_out: text.was_out,
            instance: text.instance,
            seen: StateMark {
                term: text.seen_term,
                mark: u64::from_str_radix(&text.seen_mark, 16)
                    .map_err(|_| format!("{} is not 16 hex digits", text.seen_mark))?,
                changes: text.seen_changes,
            },
        })
    }

    fn text(&self) -> String {
        let master = self.master.as_ref();
        let former = master.and_then(|master| master.former.as_ref());
        let text = Text {
            format: FORMAT,
            release: Some(RELEASE.to_owned()),
            cluster: self.cluster.to_string(),
            ca: self.ca.as_ref().map(bytes_to_hex),
            drive: self.drive.to_string(),
            name: self.name.clone(),
            manager: self.manager.clone(),
            master_key: master.map(|master| key_to_hex(&master.key)),
            key_number: master.map(|master| master.number).filter(|&number| number > 1),
            former_key: former.map(|former| key_to_hex(&former.key)),
            former_until_ms: former.and_then(|former| former.until_ms),
            joined: self.joined,
            epoch: self.epoch,
            was_out: self.was_out,
            instance: self.instance,
            seen_term: self.seen.term,
            seen_mark: format!("{:016x}", self.seen.mark),
            seen_changes: self.seen.changes,
        };
        let body = toml::to_string(&text).expect("numbers and texts have a TOML form");
        format!("# This drive's identity and master key: keep it secret, and keep it with the store.\n{body}")
    }
}

/// Returns true if the directory has the identity of a drive, readable or not.
pub fn holds_drive(dir: &Path) -> bool {
    fs::symlink_metadata(dir.join(IDENTITY_FILE)).is_ok()
}

/// A directory without an identity must be empty, or hold only what an interrupted first start left.
fn refuse_foreign(path: &Path) -> Result<(), DriveError> {
    let failed = |source| file_error("read", path, source);
    let mut strange = None;
    for entry in fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        match name.to_str() {
            Some(IDENTITY_FILE) => return Ok(()),
            Some(LOCK_FILE | STORE_DIR | STORE_OLD_DIR | IDENTITY_NEW | LOST_AND_FOUND) => {}
            _ => strange = Some(name),
        }
    }
    match strange {
        Some(name) => Err(DriveError::NotADrive { dir: path.to_owned(), holds: name }),
        None => Ok(()),
    }
}

fn key_to_hex(key: &Key) -> String {
    bytes_to_hex(key.secret())
}

fn bytes_to_hex(bytes: &[u8; 32]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn key_from_hex(hex: &str) -> Result<Key, String> {
    bytes_from_hex(hex).map(Key::new)
}

fn bytes_from_hex(hex: &str) -> Result<[u8; 32], String> {
    let bad = || "a key or hash is not 64 hex digits".to_owned();
    let mut secret = [0; 32];
    if hex.len() != 2 * secret.len() || !hex.is_ascii() {
        return Err(bad());
    }
    for (byte, digits) in secret.iter_mut().zip(hex.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).map_err(|_| bad())?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| bad())?;
    }
    Ok(secret)
}

fn ignore_missing(done: io::Result<()>) -> io::Result<()> {
    done.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

fn file_error(doing: &'static str, path: &Path, source: io::Error) -> DriveError {
    DriveError::File { doing, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn identity() -> Identity {
        Identity {
            cluster: ClusterId(0xc1),
            ca: Some([0xca; 32]),
            drive: DriveId(0xd1),
            name: "d \"1\"".to_owned(),
            manager: Some("127.0.0.1:7000".to_owned()),
            master: Some(MasterKey {
                number: 3,
                key: Key::new([0xab; 32]),
                former: Some(Former { key: Key::new([0xcd; 32]), until_ms: Some(8) }),
            }),
            joined: true,
            epoch: 7,
            was_out: false,
            instance: 3,
            seen: StateMark { term: 2, mark: u64::MAX, changes: 9 },
        }
    }

    #[test]
    fn comes_back_as_it_was_and_is_secret() {
        let dir = tempfile::tempdir().unwrap();
        let held = Directory::take(dir.path()).unwrap();
        assert!(held.identity().unwrap().is_none());
        held.save(&identity()).unwrap();
        let back = held.identity().unwrap().unwrap();
        assert_eq!(format!("{back:?}"), format!("{:?}", identity()));
        assert_eq!(back.master, identity().master);
        let mode = fs::metadata(dir.path().join(IDENTITY_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_directory_is_its_owners_also_one_that_was_open_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d");
        let mode = |name: &str| fs::metadata(path.join(name)).unwrap().permissions().mode() & 0o777;
        drop(Directory::take(&path).unwrap());
        assert_eq!((mode(""), mode(LOCK_FILE)), (0o700, 0o600));
        Directory::take(&path).unwrap().save(&identity()).unwrap();
        for (name, wide) in [(LOCK_FILE, 0o644), (IDENTITY_FILE, 0o640), ("", 0o755)] {
            fs::set_permissions(path.join(name), fs::Permissions::from_mode(wide)).unwrap();
        }
        Directory::take(&path).unwrap().tighten();
        assert_eq!((mode(""), mode(LOCK_FILE), mode(IDENTITY_FILE)), (0o700, 0o600, 0o600));
    }

    #[test]
    fn a_directory_of_other_things_is_refused_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("letter"), "x").unwrap();
        fs::create_dir(dir.path().join(LOST_AND_FOUND)).unwrap();
        let refused = Directory::take(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("letter"), "{refused}");
        assert!(!dir.path().join(LOCK_FILE).exists());
        fs::remove_file(dir.path().join("letter")).unwrap();
        drop(Directory::take(dir.path()).unwrap());
        // Beside an identity, other files are allowed.
        Directory::take(dir.path()).unwrap().save(&identity()).unwrap();
        fs::write(dir.path().join("letter"), "x").unwrap();
        assert!(Directory::take(dir.path()).is_ok());
    }

    #[test]
    fn a_directory_is_one_process_s() {
        let dir = tempfile::tempdir().unwrap();
        let held = Directory::take(dir.path()).unwrap();
        assert!(matches!(Directory::take(dir.path()), Err(DriveError::InUse(_))));
        drop(held);
        assert!(Directory::take(dir.path()).is_ok());
    }

    #[test]
    fn another_release_is_named_and_nothing_is_advised_that_destroys() {
        let dir = tempfile::tempdir().unwrap();
        let held = Directory::take(dir.path()).unwrap();
        let good = identity().text();
        let own = format!("release = \"{RELEASE}\"\n");
        assert!(good.contains(&own), "{good}");
        let other = good.replace(&own, "release = \"9.8.7\"\n");
        let older = good.replace(&own, "");
        let without = |text: &str| text.replace("seen_changes = 9\n", "");
        for (text, by, what) in [
            (format!("{other}new_field = 1\n"), "release 9.8.7", "unknown field `new_field`"),
            (without(&other), "release 9.8.7", "missing field `seen_changes`"),
            (other.replace("format = 1", "format = 2"), "release 9.8.7", "format 2"),
            (without(&older), "a build before the first release", "missing field `seen_changes`"),
        ] {
            fs::write(dir.path().join(IDENTITY_FILE), &text).unwrap();
            let error = held.identity().unwrap_err();
            assert!(matches!(error, DriveError::Release { .. }), "{error}");
            let said = error.to_string();
            assert!(said.contains(by) && said.contains(what) && said.contains(RELEASE), "{said}");
            assert!(!said.contains("empty") && !said.contains("remove"), "{said}");
        }
        // A file that this release understands is good, whether it names another release or none.
        for good in [older, other] {
            fs::write(dir.path().join(IDENTITY_FILE), good).unwrap();
            assert_eq!(held.identity().unwrap().unwrap().drive, identity().drive);
        }
    }

    #[test]
    fn damage_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let held = Directory::take(dir.path()).unwrap();
        let good = identity().text();
        for bad in ["", "format = 2", "\0\0\0", &good.replace("ab", "xy"), &good.replace("00c1", "00zz")] {
            fs::write(dir.path().join(IDENTITY_FILE), bad).unwrap();
            let error = held.identity().unwrap_err();
            assert!(matches!(error, DriveError::Identity { .. }), "{bad}: {error}");
            let said = error.to_string();
            assert!(said.contains("so keep it") && !said.contains("empty"), "{said}");
        }
    }
}
