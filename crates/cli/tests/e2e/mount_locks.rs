//! Advisory locks, as programs of two mounts see them.

use std::fs::{self, File};
use std::io::Error;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::mount::two;
use crate::support::{Cluster, finish, runs, signal, until};

fn open(at: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(at).expect("opened")
}

/// Applies a record lock (`F_SETLK`, `F_SETLKW`, `F_GETLK`) to `length` bytes from an offset; a length of 0
/// means to the end.
fn fcntl(file: &File, how: i32, kind: i32, from: i64, length: i64) -> Result<libc::flock, Errno> {
    let short = |number: i32| i16::try_from(number).expect("small");
    let mut lock = libc::flock {
        l_type: short(kind),
        l_whence: short(libc::SEEK_SET),
        l_start: from,
        l_len: length,
        l_pid: 0,
    };
    // SAFETY: the pointer is to a `flock`, which lives longer than the call.
    #[expect(unsafe_code, reason = "rustix has no locks of ranges")]
    let done = unsafe { libc::fcntl(file.as_raw_fd(), how, &raw mut lock) };
    if done == 0 { Ok(lock) } else { Err(Errno::from_io_error(&Error::last_os_error()).expect("a number")) }
}

fn set(file: &File, kind: i32, range: (i64, i64)) -> Result<(), Errno> {
    fcntl(file, libc::F_SETLK, kind, range.0, range.1).map(drop)
}

/// Starts a program that waits for the file's lock, and ends when it has it.
fn waiting(at: &Path) -> Child {
    Command::new("flock")
        .arg(at)
        .arg("true")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("flock runs")
}

#[test]
fn ranges_are_locked_for_the_programs_of_both_mounts() {
    let cluster = Cluster::up(5);
    let Some((a, b)) = two(&cluster) else { return };
    fs::write(a.at.join("f"), [0; 100]).expect("written");
    let one = open(&a.at.join("f"));
    let other = open(&b.at.join("f"));
    set(&one, libc::F_WRLCK, (10, 10)).expect("locked");
    assert_eq!(set(&other, libc::F_RDLCK, (0, 0)), Err(Errno::AGAIN));
    set(&other, libc::F_RDLCK, (20, 0)).expect("beside it");
    assert_eq!(set(&one, libc::F_WRLCK, (50, 1)), Err(Errno::AGAIN));
    let found = fcntl(&other, libc::F_GETLK, libc::F_WRLCK, 0, 0).expect("asked");
    assert_eq!((i32::from(found.l_type), found.l_start, found.l_len), (libc::F_WRLCK, 10, 10));
    let found = fcntl(&other, libc::F_GETLK, libc::F_WRLCK, 20, 0).expect("asked");
    assert_eq!(i32::from(found.l_type), libc::F_UNLCK, "its own are in nobody's way");
    // The waiter gets the lock when it is released, and sees what was written.
    one.write_all_at(b"under the lock", 10).expect("written");
    let waiter = thread::spawn(move || {
        let mut bytes = [0; 14];
        fcntl(&other, libc::F_SETLKW, libc::F_WRLCK, 0, 20).expect("granted");
        other.read_exact_at(&mut bytes, 10).expect("read");
        (other, bytes)
    });
    until("it waits, or should", || {
        fcntl(&one, libc::F_GETLK, libc::F_WRLCK, 60, 1)
            .is_ok_and(|lock| i32::from(lock.l_type) != libc::F_UNLCK)
    });
    set(&one, libc::F_UNLCK, (0, 0)).expect("released");
    let (other, bytes) = waiter.join().expect("done");
    assert_eq!(&bytes, b"under the lock");
    // Closing any descriptor ends all locks of its program.
    drop(open(&b.at.join("f")));
    set(&one, libc::F_WRLCK, (0, 0)).expect("free");
    assert_eq!(set(&other, libc::F_RDLCK, (0, 1)), Err(Errno::AGAIN));
}

#[test]
fn a_downgrade_shows_what_was_written_and_the_last_close_releases() {
    let cluster = Cluster::up(5);
    let Some((a, b)) = two(&cluster) else { return };
    fs::write(a.at.join("f"), "before").expect("written");
    let one = open(&a.at.join("f"));
    let other = open(&b.at.join("f"));
    let seen = || {
        let mut bytes = [0; 6];
        other.read_exact_at(&mut bytes, 0).map(|()| bytes).expect("read")
    };
    assert_eq!(&seen(), b"before");
    one.lock()
        .and_then(|()| one.write_all_at(b"after!", 0))
        .and_then(|()| one.lock_shared())
        .expect("locked");
    other.try_lock_shared().expect("shared");
    assert_eq!(&seen(), b"after!");
    other.unlock().and_then(|()| one.unlock()).expect("released");
    // A lock of the open file description, which holds whichever program closes it (`F_OFD_SETLK`).
    fcntl(&one, libc::F_OFD_SETLK, libc::F_WRLCK, 0, 0).expect("locked");
    assert_eq!(set(&other, libc::F_RDLCK, (0, 0)), Err(Errno::AGAIN));
    drop(one);
    until("it is released", || set(&other, libc::F_RDLCK, (0, 0)).is_ok());
}

#[test]
fn the_close_of_a_descriptor_that_only_reads_releases_its_locks() {
    let cluster = Cluster::up(5);
    let Some((a, b)) = two(&cluster) else { return };
    fs::write(a.at.join("f"), "bytes").expect("written");
    let reader = File::open(a.at.join("f")).expect("open");
    let other = open(&b.at.join("f"));
    set(&reader, libc::F_RDLCK, (0, 0)).expect("locked");
    assert_eq!(set(&other, libc::F_WRLCK, (0, 0)), Err(Errno::AGAIN));
    drop(reader);
    until("it is released", || set(&other, libc::F_WRLCK, (0, 0)).is_ok());
}

#[test]
fn counters_under_a_lock_lose_no_step() {
    const STEPS: u64 = 60;
    let cluster = Cluster::up(5);
    let Some((a, b)) = two(&cluster) else { return };
    fs::write(a.at.join("count"), 0_u64.to_le_bytes()).expect("written");
    thread::scope(|scope| {
        for at in [&a.at, &b.at, &a.at, &b.at] {
            let file = open(&at.join("count"));
            scope.spawn(move || {
                for _ in 0..STEPS {
                    file.lock().expect("locked");
                    let mut count = [0; 8];
                    file.read_exact_at(&mut count, 0).expect("read");
                    let next = u64::from_le_bytes(count) + 1;
                    file.write_all_at(&next.to_le_bytes(), 0).expect("written");
                    file.unlock().expect("released");
                }
            });
        }
    });
    let count = fs::read(b.at.join("count")).expect("read");
    assert_eq!(count, (4 * STEPS).to_le_bytes());
}

#[test]
fn a_waiter_is_let_go_by_a_signal_and_a_lock_by_the_death_of_its_mount() {
    let cluster = Cluster::up(5);
    let Some((mut a, b)) = two(&cluster) else { return };
    let held = open(&a.at.join("f"));
    held.lock().expect("locked");
    for (at, name) in [(&a.at, "TERM"), (&b.at, "TERM"), (&b.at, "KILL")] {
        let child = waiting(&at.join("f"));
        let pid = child.id();
        until("it waits", || {
            let stack = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
            stack.contains("fuse") || stack.contains("request_wait")
        });
        signal(pid, name);
        assert!(!finish(child).status.success());
    }
    let waiter = waiting(&b.at.join("f"));
    let pid = a.pid();
    signal(pid, "KILL");
    until("it is dead", || !runs(pid));
    let _ = a.child.take().expect("it ran").wait();
    assert!(finish(waiter).status.success(), "nobody holds it any more");
    drop(held);
    let _ = Command::new("umount").arg("-l").arg(&a.at).status();
}

#[test]
fn locks_outlive_the_manager_and_end_for_a_mount_that_was_away() {
    let cluster = Cluster::up(5);
    let Some((a, b)) = two(&cluster) else { return };
    fs::write(a.at.join("f"), "content").expect("written");
    let one = open(&a.at.join("f"));
    let other = open(&b.at.join("f"));
    let idle = open(&a.at.join("f"));
    one.lock().expect("locked");
    cluster.restart_manager();
    // No other lock is granted before locks from before the start can be claimed.
    assert_eq!(set(&other, libc::F_WRLCK, (0, 0)), Err(Errno::AGAIN));
    one.write_all_at(b"CONTENT", 0).expect("it is still its own");
    one.unlock().expect("released");
    set(&other, libc::F_WRLCK, (0, 0)).expect("free");
    set(&other, libc::F_UNLCK, (0, 0)).expect("released");
    // A pause in which no other program took the lock changes nothing.
    one.lock().expect("locked");
    let mount = Pid::from_raw(i32::try_from(a.pid()).expect("a number")).expect("a process");
    // No process is started while the mount is stopped: its copies of the descriptors would wait for the
    // mount.
    let pause = |until_granted: bool| {
        kill_process(mount, Signal::STOP).expect("stopped");
        let from = Instant::now();
        match until_granted {
            true => {
                fcntl(&other, libc::F_SETLKW, libc::F_WRLCK, 0, 0).expect("it is away");
                other.write_all_at(b"next!!!", 0).and_then(|()| other.sync_all()).expect("synced");
            }
            false => until("its lease is over", || from.elapsed() > Duration::from_secs(4)),
        }
        kill_process(mount, Signal::CONT).expect("continued");
    };
    pause(false);
    // The answer comes when the manager has heard of the mount again.
    fcntl(&one, libc::F_GETLK, libc::F_WRLCK, 0, 0).expect("asked");
    let mut bytes = [0; 7];
    one.read_exact_at(&mut bytes, 0).expect("read");
    assert_eq!(set(&other, libc::F_WRLCK, (0, 0)), Err(Errno::AGAIN));
    // Bytes that were written under the lock and are not with the drives yet must not come after the next
    // holder's.
    one.write_all_at(b"stale!!", 0).expect("taken");
    pause(true);
    until("it hears that its locks are lost", || one.sync_all().is_err());
    assert_eq!(one.write_all_at(b"x", 0).expect_err("lost").raw_os_error(), Some(Errno::IO.raw_os_error()));
    drop(one);
    let one = open(&a.at.join("f"));
    assert!(one.try_lock().is_err());
    assert_eq!(cluster.cat("braid://main/f"), b"next!!!");
    // An open file without locks is told that something was lost, and goes on with what other mounts have
    // written.
    until("it reads what is there", || idle.read_exact_at(&mut bytes, 0).is_ok() && &bytes == b"next!!!");
    let _ = idle.sync_all();
    idle.write_all_at(b"IDLE", 3).and_then(|()| idle.sync_all()).expect("synced");
    drop(other);
    one.lock().expect("free");
    one.read_exact_at(&mut bytes, 0).expect("a new handle serves");
    assert_eq!(&bytes, b"nexIDLE");
}
