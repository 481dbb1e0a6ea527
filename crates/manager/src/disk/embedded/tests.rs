use std::io;
use std::sync::{Mutex, MutexGuard};

use braid_meta::records::db::Db;
use braid_meta::records::memory::MemoryKv;
use braid_meta::records::tx::Tx;
use braid_wire::Reason;
use redb::StorageBackend;

use super::*;
use crate::disk::conformance::check_failing;

/// A file in memory, on a disk that is full on demand.
#[derive(Debug, Clone, Default)]
struct Fallible {
    bytes: Arc<Mutex<Vec<u8>>>,
    is_full: Arc<AtomicBool>,
}

impl Fallible {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().expect("no holder panics")
    }

    fn change(&self) -> io::Result<MutexGuard<'_, Vec<u8>>> {
        if self.is_full.load(Ordering::Acquire) {
            return Err(ErrorKind::StorageFull.into());
        }
        Ok(self.bytes())
    }

    fn open(&self) -> Result<Database, String> {
        Database::builder().create_with_backend(self.clone()).map_err(|error| error.to_string())
    }
}

fn range(offset: u64, length: usize) -> Range<usize> {
    let from = usize::try_from(offset).expect("it is in memory");
    from..from + length
}

impl StorageBackend for Fallible {
    fn len(&self) -> io::Result<u64> {
        Ok(u64::try_from(self.bytes().len()).expect("it is in memory"))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.bytes();
        let found = bytes.get(range(offset, out.len())).ok_or(ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change()?.resize(usize::try_from(len).expect("it is in memory"), 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.change().map(drop)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change()?[range(offset, data.len())].copy_from_slice(data);
        Ok(())
    }
}

fn put(kv: &EmbeddedKv, key: &[u8]) -> Result<(), KvError> {
    kv.commit(&Batch::from([(key.to_vec(), Some(vec![1; 10_000]))]))
}

fn has(kv: &EmbeddedKv, key: &[u8]) -> Result<bool, KvError> {
    Ok(kv.snapshot()?.get(key)?.is_some())
}

#[test]
fn a_disk_that_was_full_and_has_room_again_is_served_again() {
    let disk = Fallible::default();
    let reopened = disk.clone();
    let database = disk.open().expect("opened");
    let kv = EmbeddedKv::over(database, Path::new("state"), move || reopened.open()).expect("made");
    put(&kv, b"a").expect("stored");
    let before = kv.snapshot().expect("a snapshot");
    disk.is_full.store(true, Ordering::Release);
    let error = put(&kv, b"b").expect_err("the disk is full");
    let said = error.to_string();
    assert!(said.contains("not known"), "{said}");
    assert!(said.contains("the manager's state in state") && said.contains("no storage space"), "{said}");
    // While the disk is full every request fails, and a batch made before is never stored after a reopening.
    for _ in 0..3 {
        assert!(put(&kv, b"b").is_err());
    }
    let _ = has(&kv, b"a");
    disk.is_full.store(false, Ordering::Release);
    let until = Instant::now() + Duration::from_secs(60);
    while has(&kv, b"a").is_err() {
        assert!(Instant::now() < until, "it is never opened again");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(has(&kv, b"a").expect("read"), "what was acknowledged is there");
    for key in [b"c", b"d"] {
        put(&kv, key).expect("stored again");
        assert!(has(&kv, key).expect("read"));
    }
    drop(before);
    put(&kv, b"e").expect("an old snapshot's end changes nothing");
}

/// Many writers change the state while the disk is full now and then: changes that were acknowledged are
/// there, and of a change that was refused all is there or nothing.
#[test]
fn a_disk_that_is_full_in_the_middle_of_groups_leaves_all_of_each_or_nothing() {
    const WRITERS: u8 = 8;
    const EACH: u8 = 60;
    let disk = Fallible::default();
    let reopened = disk.clone();
    let database = disk.open().expect("opened");
    let kv = EmbeddedKv::over(database, Path::new("state"), move || reopened.open()).expect("made");
    let db = Db::new(Arc::new(kv));
    let until = Instant::now() + Duration::from_secs(120);
    let keys = |writer: u8, n: u8, again: u8| [b'a', b'b'].map(|half| vec![half, writer, n, again]);
    let write = |writer: u8| {
        let db = db.clone();
        let mut done = Vec::new();
        let mut refused = Vec::new();
        for n in 0..EACH {
            for again in 0.. {
                assert!(Instant::now() < until, "it is never written again");
                let put = |tx: &mut Tx| {
                    keys(writer, n, again % 50).into_iter().for_each(|key| tx.put(key, vec![1; 500]));
                    Ok(())
                };
                match db.write(put) {
                    Ok(()) => {
                        done.push(keys(writer, n, again % 50));
                        break;
                    }
                    Err(refusal) => {
                        assert_eq!(refusal.reason, Reason::ManagerFull, "{refusal}");
                        refused.push(keys(writer, n, again % 50));
                        std::thread::sleep(Duration::from_millis(20));
                    }
                }
            }
        }
        (done, refused)
    };
    let (done, refused) = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(15));
            disk.is_full.store(true, Ordering::Release);
            std::thread::sleep(Duration::from_millis(30));
            disk.is_full.store(false, Ordering::Release);
        }
        let ended = writers.into_iter().map(|writer| writer.join().expect("it ends"));
        let (done, refused): (Vec<_>, Vec<_>) = ended.unzip();
        (done.concat(), refused.concat())
    });
    assert_eq!(done.len(), usize::from(WRITERS) * usize::from(EACH));
    let there = |key: &[u8]| db.read(|tx| Ok(tx.get(key)?.is_some())).expect("read");
    assert!(done.iter().all(|[a, b]| there(a) && there(b)), "what was acknowledged is there");
    assert!(refused.iter().all(|[a, b]| there(a) == there(b)), "all or nothing");
}

#[test]
fn rows_are_in_order_across_the_trees() {
    let dir = tempfile::tempdir().expect("a directory");
    let kv = EmbeddedKv::open(&dir.path().join("state")).expect("made");
    let model = MemoryKv::new();
    let keys = (0..=u8::MAX).step_by(3).chain(*b"bcdehij").flat_map(|first| [vec![first], vec![first, 7]]);
    let batch: Batch = keys.chain([Vec::new()]).map(|key| (key.clone(), Some(key))).collect();
    let removed: Batch = [(b"c".to_vec(), None), (b"i\x07".to_vec(), None)].into_iter().collect();
    for batch in [&batch, &removed] {
        kv.commit(batch).expect("stored");
        model.commit(batch).expect("stored");
    }
    let found = kv.snapshot().expect("one");
    let expected = model.snapshot().expect("one");
    let ends: [&[u8]; 9] = [b"", b"b", b"c", b"c\x07", b"d", b"e", b"i", b"i\x08", &[u8::MAX; 9]];
    for from in ends {
        for to in ends.into_iter().filter(|to| *to >= from) {
            for limit in [0, 1, 5, usize::MAX] {
                let both = [&found, &expected].map(|of| of.scan(from, to, limit).expect("read"));
                assert_eq!(both[0], both[1], "{from:02x?}..{to:02x?}, {limit}");
            }
        }
    }
    assert_eq!((found.get(b"c").expect("read"), found.get(b"d").expect("read")), (None, Some(b"d".to_vec())));
}

#[test]
fn a_state_of_version_1_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("state");
    let old: Tree = TableDefinition::new(STATE);
    let make = || -> Result<(), redb::Error> {
        let database = Database::create(&path)?;
        let write = database.begin_write()?;
        write.open_table(old)?.insert(&b"mterm"[..], &[1u8, 7, 0, 0, 0, 0, 0, 0, 0][..])?;
        Ok(write.commit()?)
    };
    make().expect("made");
    for _ in 0..2 {
        let Err(error) = EmbeddedKv::open(&path) else { panic!("it is opened") };
        assert!(matches!(error, KvError::Version { found: 1, wanted: 2 }), "{error}");
        assert!(error.to_string().contains("found the cluster anew"), "{error}");
    }
    let database = Database::open(&path).expect("it is whole");
    let read = database.begin_read().expect("read");
    let names: Vec<String> = read.list_tables().expect("read").map(|tree| tree.name().to_owned()).collect();
    assert_eq!(names, [STATE]);
}

#[test]
fn the_very_file_is_opened_again_and_not_another_at_its_path() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("state");
    let kv = EmbeddedKv::open(&path).expect("made");
    put(&kv, b"a").expect("stored");
    let fail = || kv.state().sound().expect("it is open").failed.store(true, Ordering::Release);
    // Another file at its path, as by a restore under a running manager, is not taken for it.
    std::fs::rename(&path, dir.path().join("moved")).expect("moved");
    drop(EmbeddedKv::open(&path).expect("another"));
    fail();
    assert!(put(&kv, b"b").is_err(), "a batch of before");
    assert!(has(&kv, b"a").expect("opened again"));
    put(&kv, b"b").expect("stored");
}

#[test]
fn a_store_whose_disk_is_full_now_and_then_conforms() {
    let disk = Fallible::default();
    let reopened = disk.clone();
    let kv = EmbeddedKv::over(disk.open().expect("opened"), Path::new("state"), move || reopened.open());
    check_failing(&kv.expect("made"), |fails| disk.is_full.store(fails, Ordering::Release));
}
