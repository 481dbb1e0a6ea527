use braid_layout::VolumeId;
use braid_meta::catalogue::frame::{Digest, Head, Row, encode};
use braid_meta::records::memory::MemoryKv;
use braid_meta::records::schema::{InodeRecord, directory_record};
use braid_meta::rules::drives::examples::record;
use braid_meta::tree::entries::{self, Named};
use braid_wire::control::{EntryKind, ShapeSpec};

use super::*;

const CLUSTER: ClusterId = ClusterId(0xc1);
const STREAM: ObjectId = ObjectId(0x51);
const SECRET: [u8; 32] = [0x5e; 32];

#[derive(Clone)]
struct Fake {
    known: Known,
    cluster: ClusterId,
    frames: Vec<Vec<u8>>,
    components: Vec<FileId>,
}

impl Witness for Fake {
    fn cluster(&self) -> ClusterId {
        self.cluster
    }
    fn known(&self) -> &Known {
        &self.known
    }
    fn streams(&self) -> Result<Vec<ObjectId>, String> {
        Ok(if self.frames.is_empty() { Vec::new() } else { vec![STREAM] })
    }
    fn frames(&self, _: ObjectId) -> Result<u64, String> {
        Ok(u64::try_from(self.frames.len()).unwrap())
    }
    fn frame(&self, _: ObjectId, number: u64) -> Result<Option<Vec<u8>>, String> {
        // An empty one is a hole.
        let frame = self.frames.get(usize::try_from(number).unwrap()).cloned();
        Ok(frame.filter(|frame| !frame.is_empty()))
    }
    fn components(&self, each: &mut dyn FnMut(Component)) -> Result<(), String> {
        self.components.iter().for_each(|file| each(Component { file: *file }));
        Ok(())
    }
}

fn fake(drive: u128, frames: &[Vec<u8>]) -> Fake {
    let known = Known {
        drive: DriveId(drive),
        name: format!("d{drive}"),
        master: Key::new(SECRET),
        key_number: 2,
        instance: 7,
        directory: "/d".to_owned(),
        seen: Age { term: 3, changes: 50 },
    };
    Fake { known, cluster: CLUSTER, frames: frames.to_vec(), components: vec![FileId(10), FileId(99)] }
}

/// The rows of a state with a volume and files of these names, and four drives.
fn rows(names: &[&str]) -> Vec<Row> {
    let db = Db::new(Arc::new(MemoryKv::new()));
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    db.write(move |tx| {
        for drive in 1..=4 {
            tx.set(key::drive(DriveId(drive)), &record(drive, &format!("d{drive}")));
        }
        compose::cluster(tx, CLUSTER, Key::new(SECRET), Key::new(SECRET), 5)?;
        let shape = ShapeSpec { scheme: 5, k: 2, m: 1, unit_bytes: 4096 };
        let volume = volumes::create(tx, "main", shape, 0, 5)?;
        let mut volume = volumes::by_number(tx, volume)?;
        for (file, name) in (10..).map(FileId).zip(names) {
            let base = directory_record(volume.volume, volume.root, name.clone().into_bytes(), 5);
            let inode = InodeRecord { kind: EntryKind::File, ..base };
            braid_meta::records::inodes::recount(tx, &mut volume, (0, 0), (1, 0));
            braid_meta::records::inodes::create(tx, file, &inode)?;
            let at = Named { directory: volume.root, name: name.as_bytes() };
            let entry = braid_meta::records::schema::EntryRecord::of(EntryKind::File, file);
            entries::put(tx, at, &entry, 5)?;
        }
        Ok(())
    })
    .unwrap();
    let all = db.read(|tx| Ok(tx.scan(&[], &[u8::MAX; 64], usize::MAX)?)).unwrap();
    let form = |(row, value): (Vec<u8>, Vec<u8>)| carried(&row, Some(&value)).map(|form| (row, form));
    all.into_iter().filter_map(form).collect()
}

/// A stream: a picture, then frames of changes, 5 s apart.
fn stream(parts: &[Vec<Row>]) -> Vec<Vec<u8>> {
    let mut before = Digest::default();
    let mut frames = Vec::new();
    for (number, rows) in (0u64..).zip(parts) {
        let age = Age { term: 2, changes: 10 + number };
        let time_ms = 1000 + 5000 * number;
        let whole = number == 0;
        let head = Head { cluster: CLUSTER, stream: STREAM, number, age, time_ms, cut: true, whole, before };
        let (bytes, digest) = encode(&head, rows);
        before = digest;
        frames.push(bytes);
    }
    frames
}

/// A stream without rows, whose frames are of these terms, changes and times.
fn aged(ages: &[(u64, u64, u64)]) -> Vec<Vec<u8>> {
    let mut before = Digest::default();
    let mut frames = Vec::new();
    for (number, &(term, changes, time_ms)) in (0u64..).zip(ages) {
        let age = Age { term, changes };
        let whole = number == 0;
        let head = Head { cluster: CLUSTER, stream: STREAM, number, age, time_ms, cut: true, whole, before };
        let (bytes, digest) = encode(&head, &[]);
        before = digest;
        frames.push(bytes);
    }
    frames
}

fn witness_word(fake: &Fake) -> Word {
    word(fake, CLUSTER, fake.known.drive, STREAM)
}

fn run(fakes: &[Fake], dir: &Path, keep: bool) -> Result<Rebuilt, RebuildError> {
    let witnesses: Vec<&dyn Witness> = fakes.iter().map(|fake| fake as &dyn Witness).collect();
    rebuild(&witnesses, dir, &How { keep, ..How::default() }, &mut |_| ())
}

/// The change by which a name of these rows goes.
fn gone(rows: &[Row], name: &str) -> Vec<Row> {
    let is = |row: &[u8]| row.first() == Some(&table::ENTRY) && key::name_in(row) == name.as_bytes();
    let entry = rows.iter().find(|(row, _)| is(row)).unwrap();
    vec![(entry.0.clone(), None)]
}

#[test]
fn a_state_of_the_drives_words_has_their_names_and_keys_and_holds_together() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("manager");
    let frames = stream(&[rows(&["a", "b"])]);
    let fakes = [fake(1, &frames), fake(2, &frames), fake(3, &[])];
    let trial = run(&fakes, &dir, false).unwrap();
    assert!(!dir.exists(), "a trial leaves nothing");
    assert_eq!((trial.names.files, trial.found, trial.nameless), (2, 1, 1));
    assert_eq!(trial.apart.unheard, ["d4"]);
    assert!(trial.violations.is_empty(), "{:?}", trial.violations);
    run(&fakes, &dir, true).unwrap();
    assert!(matches!(run(&fakes, &dir, true), Err(RebuildError::NotEmpty { .. })));
    let db = Db::new(Arc::new(EmbeddedKv::open(&dir.join(STATE_FILE)).unwrap()));
    db.read(|tx| {
        let drive: DriveRecord = tx.record(&key::drive(DriveId(3)))?.unwrap();
        assert_eq!((drive.master.secret(), drive.confirmed, drive.instance), (&SECRET, true, 7));
        let unheard: DriveRecord = tx.record(&key::drive(DriveId(4)))?.unwrap();
        assert_ne!(unheard.master.secret(), &SECRET);
        assert!(braid_meta::tree::keys::of_drive(tx, DriveId(4))?.may_rejoin);
        assert_eq!(braid_meta::tree::keys::of_drive(tx, DriveId(1))?.turn.number, 2);
        assert_eq!((tx.number("term")?, tx.number("changes")?, tx.number("restored")?), (3, 50, 1));
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_drive_that_lies_about_names_and_one_that_is_old_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let state = rows(&["a", "b"]);
    let honest = stream(&[state.clone(), Vec::new(), gone(&state, "a"), Vec::new()]);
    let lie = stream(&[state.clone(), Vec::new(), gone(&state, "b"), Vec::new()]);
    let old = stream(&[state]);
    let fakes = [fake(1, &lie), fake(2, &honest), fake(3, &honest), fake(4, &old)];
    let rebuilt = run(&fakes, &dir.path().join("m"), false).unwrap();
    let verdict = rebuilt.verdict.unwrap();
    let said: Vec<String> =
        verdict.faults.iter().map(|(drive, fault)| format!("{drive} {}", describe(fault))).collect();
    assert_eq!(verdict.faults[0], (DriveId(1), Fault::Altered { frame: 2 }), "{said:?}");
    assert_eq!(verdict.faults[1], (DriveId(4), Fault::Stale { behind_ms: 15_000 }), "{said:?}");
    // What the honest ones say is not whole either: a name went and its record did not.
    assert_eq!(rebuilt.names.files, 1);
    assert!(!rebuilt.violations.is_empty());
}

#[test]
fn a_frame_that_is_older_than_the_one_before_ends_a_drives_word() {
    let ages = [(2, 10, 1000), (2, 11, 2000)];
    let good = witness_word(&fake(1, &aged(&ages)));
    assert_eq!((good.frames.len(), good.broken), (2, None));
    for older in [(1, 12, 3000), (2, 10, 3000), (2, 12, 1999)] {
        let bad = witness_word(&fake(1, &aged(&[ages[0], ages[1], older])));
        assert_eq!(bad.frames.len(), 2, "{older:?}");
        assert!(bad.broken.is_some_and(|why| why.contains("older")), "{older:?}");
    }
}

#[test]
fn a_hole_ends_a_drives_word_as_damage_does_and_an_end_does_not() {
    let mut frames = aged(&[(2, 10, 1000), (2, 11, 2000), (2, 12, 3000)]);
    frames[1].clear();
    let bad = witness_word(&fake(1, &frames));
    assert_eq!(bad.frames.len(), 1);
    assert!(bad.broken.is_some_and(|why| why.contains("missing")));
    frames.truncate(1);
    assert_eq!(witness_word(&fake(1, &frames)).broken, None);
}

#[test]
fn bytes_that_were_changed_end_a_drives_word_and_those_of_another_cluster_are_none() {
    let dir = tempfile::tempdir().unwrap();
    let state = rows(&["a"]);
    let change = gone(&state, "a");
    let honest = stream(&[state, change]);
    let mut flipped = honest.clone();
    flipped[1][120] ^= 1;
    let rebuilt = run(&[fake(1, &flipped), fake(2, &honest)], &dir.path().join("m"), false).unwrap();
    let verdict = rebuilt.verdict.unwrap();
    assert_eq!((verdict.frames, verdict.agreed), (2, 1));
    assert!(matches!(verdict.faults[..], [(DriveId(1), Fault::Damaged { frame: 1, .. })]), "{verdict:?}");
    let mut other = fake(3, &honest);
    other.cluster = ClusterId(9);
    let refused = run(&[fake(1, &honest), other], &dir.path().join("m"), false);
    assert!(matches!(refused, Err(RebuildError::TwoClusters { .. })));
    let refused = run(&[fake(1, &honest), fake(1, &honest)], &dir.path().join("m"), false);
    assert!(matches!(refused, Err(RebuildError::Twice(_))));
    let refused = run(&[fake(1, &[]), fake(2, &[])], &dir.path().join("m"), false);
    assert!(matches!(refused, Err(RebuildError::NoNames { heard: 2 })));
}

#[test]
fn numbers_that_no_manager_gave_make_no_state_and_name_the_drive() {
    let dir = tempfile::tempdir().unwrap();
    let good = fake(1, &stream(&[rows(&["a"])]));
    let refused = |bad: Fake| {
        let refused = run(&[good.clone(), bad], &dir.path().join("m"), false);
        matches!(refused, Err(RebuildError::NoState(why)) if why.contains("d2 says"))
    };
    let large = 1 << 62;
    for seen in [Age { term: large, changes: 1 }, Age { term: 1, changes: u64::MAX }] {
        let mut bad = fake(2, &[]);
        bad.known.seen = seen;
        assert!(refused(bad));
    }
    let mut bad = fake(2, &[]);
    bad.known.instance = large;
    assert!(refused(bad));
    let row = DriveRecord { instance: large, ..record(3, "d3") };
    let row = (key::drive(DriveId(3)), Some(braid_meta::records::schema::encode(&row)));
    let alone = run(&[fake(2, &stream(&[vec![row]]))], &dir.path().join("m"), false);
    assert!(matches!(&alone, Err(RebuildError::NoState(why)) if why.contains("d2 says")), "{alone:?}");
    for age in [(large, 1, 1), (1, large, 1), (1, 1, large)] {
        let alone = run(&[fake(2, &aged(&[age]))], &dir.path().join("m"), false);
        assert!(matches!(alone, Err(RebuildError::NoState(_))), "{age:?}");
    }
    assert!(!refused(fake(2, &[])));
}

#[test]
fn rows_that_are_none_of_a_manager_make_no_state() {
    let dir = tempfile::tempdir().unwrap();
    let bad = vec![(key::volume(VolumeId(1)), Some(b"not a record".to_vec()))];
    let refused = run(&[fake(1, &stream(&[bad]))], &dir.path().join("m"), true);
    assert!(matches!(refused, Err(RebuildError::NoState(_))));
    assert!(!dir.path().join("m").exists());
}
