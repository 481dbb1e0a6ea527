//! Scenes: a few mounts beside drives and a manager act step by step as a test says. They are for
//! situations that seeds meet too seldom.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use braid_client::Client;
use braid_client::OpenOptions;
use braid_fuse::kernel_side::driven::{Answer, Cache, Driven, ROOT};
use braid_layout::{Scheme, Shape};
use braid_wire::control::LockKind;

use crate::cluster::{Cluster, Contact};
use crate::disk::Ailment;
use crate::end::all_up;
use crate::fate;
use crate::random::Random;
use crate::run::DRIVES;
use crate::trace::Trace;
use crate::workload;
use crate::world::{HostId, Slot, World};

/// Longest time of a step of a scene.
const BOUND_MS: u64 = 200_000;
/// Id of the program that takes locks.
const OWNER: u64 = 5;
const BYTES: (u64, u64) = (0, 99);

/// A kernel that keeps nothing, and counts the requests to drop pages.
#[derive(Default)]
struct Forgetful(AtomicU64);

impl Cache for Forgetful {
    fn drop_name(&self, _: u64, _: &[u8]) {}

    fn drop_file(&self, _: u64, _: Option<u64>) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

struct Scene {
    mounts: Vec<(HostId, Driven)>,
    kernels: Vec<Arc<Forgetful>>,
    contact: Contact,
    admin: HostId,
    cluster: Cluster,
    world: World,
}

impl Scene {
    fn new(mounts: usize, quota_bytes: u64) -> Scene {
        fate::begin(7);
        let mut random = Random::new(7);
        let mut world = World::new(random.fork(), Trace::default());
        let mut cluster = Cluster::new(&mut world, DRIVES, &mut random);
        let admin = world.add_host("admin");
        cluster.start_manager(&mut world);
        let contact = loop {
            world.step();
            if let Some(contact) = cluster.contact() {
                break contact;
            }
        };
        (0..DRIVES).for_each(|index| cluster.start_drive(&mut world, index));
        world.start(admin, std::future::pending());
        let mut scene = Scene { mounts: Vec::new(), kernels: Vec::new(), contact, admin, cluster, world };
        let shape = Shape::new(Scheme::Raid5, 2, 1, 4096).expect("a good shape");
        scene.administer(async move |client| {
            all_up(&client).await;
            client.volume_create("main", Some(shape), quota_bytes).await.expect("a volume");
        });
        for index in 0..mounts {
            let host = scene.world.add_host(&format!("m{index}"));
            scene.world.start(host, std::future::pending());
            let contact = scene.contact.clone();
            let kernel = Arc::new(Forgetful::default());
            scene.kernels.push(Arc::clone(&kernel));
            let mounted = scene.world.spawn(host, async move {
                let client = Client::connect(workload::config(&contact)).await.expect("a client");
                Driven::new(client, "main", kernel).await.expect("a mount")
            });
            let mounted = scene.until(&mounted);
            scene.mounts.push((host, mounted));
        }
        scene
    }

    fn until<T>(&mut self, slot: &Slot<T>) -> T {
        let from_ms = self.world.now_ms();
        loop {
            if let Some(done) = slot.take() {
                return done;
            }
            assert!(self.world.now_ms() < from_ms + BOUND_MS, "it does not come");
            self.world.step();
        }
    }

    fn pass(&mut self, time_ms: u64) {
        let until_ms = self.world.now_ms() + time_ms;
        while self.world.now_ms() < until_ms {
            self.world.step();
        }
    }

    /// Runs an administrator's task, until it ends.
    fn administer<T, F>(&mut self, work: impl FnOnce(Client) -> F + Send + 'static) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let contact = self.contact.clone();
        let done = self.world.spawn(self.admin, async move {
            let client = Client::connect(workload::config(&contact)).await.expect("a client");
            work(client).await
        });
        self.until(&done)
    }

    /// Begins a task of programs on a mount.
    fn begin<T, F>(&mut self, mount: usize, work: impl FnOnce(Driven) -> F + Send + 'static) -> Slot<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (host, mounted) = &self.mounts[mount];
        let mounted = mounted.clone();
        self.world.spawn(*host, async move { work(mounted).await })
    }

    /// Runs a task of programs on a mount, until it ends.
    fn on<T, F>(&mut self, mount: usize, work: impl FnOnce(Driven) -> F + Send + 'static) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let done = self.begin(mount, work);
        self.until(&done)
    }

    /// Opens the file `f`.
    fn open(&mut self, mount: usize, flags: i32) -> u64 {
        self.on(mount, move |mount| async move {
            let found = mount.lookup(ROOT, "f").await.expect("found");
            mount.open(found.number, flags).await.expect("opened").handle
        })
    }

    fn create(&mut self, mount: usize, flags: i32) -> u64 {
        self.on(
            mount,
            move |mount| async move { mount.create(ROOT, "f", flags).await.expect("made").1.handle },
        )
    }

    fn write(&mut self, mount: usize, handle: u64, bytes: &'static [u8], flags: i32) {
        self.on(mount, move |mount| async move {
            mount.write(handle, 0, bytes, flags).await.expect("taken");
        });
    }

    fn fsync(&mut self, mount: usize, handle: u64) -> Answer<()> {
        self.on(mount, move |mount| async move { mount.fsync(handle).await })
    }

    fn lock(&mut self, mount: usize, handle: u64, kind: Option<LockKind>) -> Answer<()> {
        self.on(mount, move |mount| async move { mount.lock(handle, OWNER, BYTES, kind).await })
    }

    fn read(&mut self, mount: usize, handle: u64) -> Slot<Answer<Vec<u8>>> {
        self.begin(mount, move |mount| async move { mount.read(handle, 0, 4096).await })
    }

    /// The contents of the file, and whether anyone has it open for writing.
    fn look(&mut self) -> (Vec<u8>, bool) {
        self.administer(async move |client| {
            let name = "braid://main/f".parse().expect("a good name");
            let file = client.open(&name, &OpenOptions::new().read(true)).await.expect("opened");
            let mut bytes = vec![0; 1 << 16];
            let count = file.read_at(&mut bytes, 0).await.expect("read");
            bytes.truncate(count);
            let alone = OpenOptions::new().write(true).alone(true);
            let is_written = match client.open(&name, &alone).await {
                Ok(file) => file.close().await.is_err(),
                Err(_) => true,
            };
            (bytes, is_written)
        })
    }

    /// A scene in which the second mount has changed a file that is open on the first, and the first mount
    /// has heard of the change. Returns the first mount's handle.
    fn of_a_changed_file() -> (Scene, u64) {
        let mut scene = Scene::new(2, 0);
        let made = scene.create(0, libc::O_RDWR);
        scene.write(0, made, b"old", libc::O_RDWR);
        scene.on(0, move |mount| async move {
            mount.flush(made, OWNER).await.expect("closed");
            mount.release(made).await;
        });
        // Drives refuse nothing through a handle that the second mount opens now.
        let writer = scene.open(1, libc::O_WRONLY);
        scene.write(1, writer, b"new", libc::O_WRONLY);
        assert_eq!(scene.fsync(1, writer), Ok(()));
        let reader = scene.open(0, libc::O_RDONLY);
        let read = scene.read(0, reader);
        assert_eq!(scene.until(&read), Ok(b"new".to_vec()));
        scene.write(1, writer, b"longer", libc::O_WRONLY);
        assert_eq!(scene.fsync(1, writer), Ok(()));
        (scene, reader)
    }

    fn pages_dropped(&self, mount: usize) -> u64 {
        self.kernels[mount].0.load(Ordering::Acquire)
    }

    fn disks(&mut self, ailment: Option<Ailment>) {
        for drive in &self.cluster.drives {
            match ailment {
                Some(ailment) => drive.disk.fall_ill(ailment),
                None => drive.disk.recover(),
            }
        }
    }
}

/// A write under an exclusive lock fails. When the lock is released, none of its bytes are kept to be
/// written later, and the mount's lease is given up: the manager has drives refuse writes on their way
/// before others get the lock.
#[test]
fn what_fails_under_a_lock_does_not_come_later() {
    let mut scene = Scene::new(1, 0);
    // Time for the manager to hear of the mount.
    scene.pass(1000);
    let handle = scene.create(0, libc::O_RDWR);
    assert_eq!(scene.lock(0, handle, Some(LockKind::Exclusive)), Ok(()));
    scene.write(0, handle, b"first", libc::O_RDWR);
    assert_eq!(scene.fsync(0, handle), Ok(()));
    assert_eq!(scene.look(), (b"first".to_vec(), true));
    scene.disks(Some(Ailment::NoSpace));
    scene.write(0, handle, b"again", libc::O_RDWR);
    assert!(scene.lock(0, handle, None).is_err(), "it says that it failed");
    scene.disks(None);
    assert_eq!(scene.look(), (b"first".to_vec(), false));
    scene.pass(15_000);
    assert_eq!(scene.look(), (b"first".to_vec(), false));
    assert_eq!(scene.fsync(0, handle), Err(libc::EIO), "the descriptor is told that bytes are lost");
    // A shared lock protects no writes: bytes that wait do not belong to the lock, and are kept.
    assert_eq!(scene.lock(0, handle, Some(LockKind::Shared)), Ok(()));
    scene.disks(Some(Ailment::NoSpace));
    scene.write(0, handle, b"other", libc::O_RDWR);
    assert!(scene.lock(0, handle, None).is_err(), "it is not written yet");
    scene.disks(None);
    assert_eq!(scene.fsync(0, handle), Ok(()));
    assert_eq!(scene.look().0, b"other");
}

/// Others have changed a file that is open here, and the manager does not answer what it is now: all
/// readers meanwhile wait for the answer.
#[test]
fn all_who_read_wait_for_what_others_have_changed() {
    let (mut scene, reader) = Scene::of_a_changed_file();
    scene.world.pause(scene.cluster.manager);
    let reads = [scene.read(0, reader), scene.read(0, reader)];
    scene.pass(500);
    assert!(reads.iter().all(|read| read.take().is_none()), "they wait");
    scene.world.resume(scene.cluster.manager);
    for read in reads {
        assert_eq!(scene.until(&read), Ok(b"longer".to_vec()));
    }
}

/// While a descriptor is closed and its bytes are synced, more bytes get to the drives by another
/// descriptor of the same open file. They do not fit into the quota: they are tried again for a while, it is
/// told once that they are lost, and they stay lost.
#[test]
fn what_a_write_could_not_have_for_quota_is_told_and_stays_away() {
    const FLAGS: i32 = libc::O_RDWR | libc::O_DIRECT;
    let mut scene = Scene::new(1, 8192);
    let handle = scene.create(0, FLAGS);
    scene.write(0, handle, &[1; 4096], libc::O_RDWR);
    scene.world.pause(scene.cluster.manager);
    let closed = scene.begin(0, move |mount| async move { mount.flush(handle, OWNER).await });
    scene.pass(200);
    let written =
        scene.begin(0, move |mount| async move { mount.write(handle, 4096, &[2; 40_000], FLAGS).await });
    scene.pass(200);
    scene.world.resume(scene.cluster.manager);
    assert_eq!(scene.until(&written), Err(libc::EDQUOT));
    assert_eq!(scene.until(&closed), Err(libc::EDQUOT), "it waited for that write");
    assert_eq!(scene.fsync(0, handle), Err(libc::EDQUOT), "its bytes are tried again");
    scene.pass(70_000);
    assert_eq!(scene.fsync(0, handle), Err(libc::EDQUOT), "its bytes are lost");
    assert_eq!(scene.fsync(0, handle), Ok(()), "and told once");
    assert_eq!(scene.look().0.len(), 4096);
}

/// A mount does not hear the manager any more, and does not know what others have changed: the file is read
/// as it was when the mount last knew, and no reader waits for the manager.
#[test]
fn nobody_who_reads_waits_for_a_manager_that_is_not_heard() {
    let (mut scene, reader) = Scene::of_a_changed_file();
    let manager = scene.world.ip(scene.cluster.manager);
    let mount = scene.world.ip(scene.mounts[0].0);
    scene.world.net.block(manager, mount);
    scene.world.net.block(mount, manager);
    let reads = [scene.read(0, reader), scene.read(0, reader)];
    scene.pass(6000);
    assert!(reads.iter().all(|read| matches!(read.take(), Some(Ok(_)))), "they wait");
    let later = scene.read(0, reader);
    scene.pass(100);
    assert!(matches!(later.take(), Some(Ok(_))), "it waits");
}

/// Another mount has opened the file for writing, has written, and has closed it again, before this mount,
/// which writes it too, has heard of either: the kernel's pages are outdated.
#[test]
fn pages_go_when_others_have_come_and_left() {
    let mut scene = Scene::new(2, 0);
    let own = scene.create(0, libc::O_RDWR);
    scene.write(0, own, b"old", libc::O_RDWR);
    assert_eq!(scene.fsync(0, own), Ok(()));
    scene.world.pause(scene.mounts[0].0);
    let theirs = scene.open(1, libc::O_WRONLY);
    scene.write(1, theirs, b"new", libc::O_WRONLY);
    assert_eq!(scene.fsync(1, theirs), Ok(()));
    scene.on(1, move |mount| async move {
        mount.flush(theirs, OWNER).await.expect("closed");
        mount.release(theirs).await;
    });
    let before = scene.pages_dropped(0);
    scene.world.resume(scene.mounts[0].0);
    scene.pass(1000);
    let read = scene.read(0, own);
    assert_eq!(scene.until(&read), Ok(b"new".to_vec()));
    assert!(scene.pages_dropped(0) > before, "none was dropped");
}

/// A program writes after its lock is lost, before its mount has heard of the loss. None of its bytes get
/// to the drives, and the program is told: at once if the write is durable, or else when it syncs.
#[test]
fn who_has_lost_a_lock_writes_nothing_before_he_is_told() {
    for flags in [libc::O_RDWR, libc::O_RDWR | libc::O_DSYNC, libc::O_RDWR | libc::O_DIRECT] {
        let mut scene = Scene::new(2, 0);
        let own = scene.create(0, flags);
        assert_eq!(scene.lock(0, own, Some(LockKind::Exclusive)), Ok(()));
        scene.world.pause(scene.mounts[0].0);
        scene.pass(12_000);
        let theirs = scene.open(1, libc::O_RDWR);
        assert_eq!(scene.lock(1, theirs, Some(LockKind::Exclusive)), Ok(()));
        scene.write(1, theirs, b"theirs", libc::O_RDWR);
        assert_eq!(scene.fsync(1, theirs), Ok(()));
        let lost = scene.begin(0, move |mount| async move {
            mount.write(own, 0, b"lost", flags).await?;
            if flags == libc::O_RDWR { mount.fsync(own).await } else { Ok(()) }
        });
        scene.world.resume(scene.mounts[0].0);
        assert_eq!(scene.until(&lost), Err(libc::EIO), "{flags:#o}");
        assert_eq!(scene.look().0, b"theirs", "{flags:#o}");
    }
}

/// A program writes past the kernel's pages: they are dropped before the program is answered.
#[test]
fn pages_go_before_a_write_past_them_is_answered() {
    const FLAGS: i32 = libc::O_RDWR | libc::O_DIRECT;
    let mut scene = Scene::new(1, 0);
    let handle = scene.create(0, FLAGS);
    scene.write(0, handle, &[1; 4096], FLAGS);
    scene.pass(2000);
    let before = scene.pages_dropped(0);
    scene.write(0, handle, &[2; 4096], FLAGS);
    assert!(scene.pages_dropped(0) > before, "none was dropped");
}

/// A program writes again after a pause in which its mount has lost the lease of the file: nobody else has
/// written, so the mount opens the file anew, and the bytes are kept.
#[test]
fn who_idles_for_longer_than_a_lease_goes_on_writing() {
    let mut scene = Scene::new(2, 0);
    let own = scene.create(0, libc::O_RDWR);
    scene.write(0, own, b"before", libc::O_RDWR);
    assert_eq!(scene.fsync(0, own), Ok(()));
    scene.world.pause(scene.mounts[0].0);
    scene.pass(12_000);
    assert!(!scene.look().1, "its lease is not over");
    scene.world.resume(scene.mounts[0].0);
    scene.pass(2000);
    scene.write(0, own, b"behind", libc::O_RDWR);
    assert_eq!(scene.fsync(0, own), Ok(()));
    assert_eq!(scene.look().0, b"behind");
}

/// Bytes that wait for the write of others to end are cut off: who waits for them to be synced waits no more.
#[test]
fn who_waits_for_bytes_that_are_cut_off_waits_no_more() {
    let mut scene = Scene::new(1, 0);
    let handle = scene.create(0, libc::O_RDWR);
    let number = scene.on(0, |mount| async move { mount.lookup(ROOT, "f").await.expect("found").number });
    scene.write(0, handle, &[1; 4096], libc::O_RDWR);
    assert_eq!(scene.fsync(0, handle), Ok(()));
    let drives: Vec<HostId> = scene.cluster.drives.iter().map(|drive| drive.host).collect();
    drives.iter().for_each(|drive| scene.world.pause(*drive));
    scene.write(0, handle, &[2; 4096], libc::O_RDWR);
    let first = scene.begin(0, move |mount| async move { mount.fsync(handle).await });
    scene.pass(100);
    // No two writes of the same bytes are on their way at once.
    scene.write(0, handle, &[3; 4096], libc::O_RDWR);
    let second = scene.begin(0, move |mount| async move { mount.fsync(handle).await });
    let cut = scene.begin(0, move |mount| async move { mount.truncate(number, Some(handle), 0).await });
    scene.pass(100);
    drives.iter().for_each(|drive| scene.world.resume(*drive));
    scene.pass(5000);
    assert!(matches!(cut.take(), Some(Ok(_))), "the file is not cut");
    assert_eq!([first.take(), second.take()], [Some(Ok(())), Some(Ok(()))], "a sync waits");
}

/// A file that is renamed to a name of SQLite's shared memory is not mapped from then on, even while the
/// manager's answer is awaited: the file may have been renamed already.
#[test]
fn what_is_being_renamed_to_shared_memory_is_not_mapped() {
    let mut scene = Scene::new(1, 0);
    let manager = scene.world.ip(scene.cluster.manager);
    let mount = scene.world.ip(scene.mounts[0].0);
    scene.create(0, libc::O_RDWR);
    let number = scene.on(0, |mount| async move { mount.lookup(ROOT, "f").await.expect("found").number });
    scene.world.net.slow(manager, mount, 1000);
    // The answer may arrive before the new name was seen: then the test tries once more.
    let was_awaited = (0..30).any(|_| {
        let renamed = scene.begin(0, |mount| async move { mount.rename(ROOT, "f", "f-shm").await });
        let is_renamed = (0..1000).any(|_| {
            let name = "braid://main/f-shm".parse().expect("a good name");
            scene.administer(async move |client| client.stat(&name).await.is_ok())
        });
        assert!(is_renamed, "the manager was not asked");
        let opened = scene.on(0, move |mount| async move { mount.open(number, libc::O_RDWR).await });
        let is_awaited = renamed.take().is_none();
        if is_awaited {
            assert!(!opened.expect("opened").is_mapped);
        } else {
            scene.on(0, |mount| async move { mount.rename(ROOT, "f-shm", "f").await }).expect("renamed");
        }
        is_awaited
    });
    assert!(was_awaited);
}
