//! A mounted volume, written by ordinary programs: through one mount, and through two.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use crate::mount::{Mounted, is_mounted};
use crate::support::{Cluster, noise, run, runs, until};

/// Opens a file for appending, and makes it if it does not exist.
fn to_append(path: &Path) -> File {
    OpenOptions::new().append(true).create(true).open(path).expect("opened")
}

/// Opens a file for reading and writing.
fn both(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("opened")
}

#[test]
fn what_is_written_is_read_here_and_by_the_library() {
    let cluster = Cluster::up(6);
    let Some(mounted) = Mounted::new(&cluster, "braid://main") else { return };
    let at = |name: &str| mounted.at.join(name);
    fs::create_dir(at("d")).expect("made");
    for (n, bytes) in [0, 1, 4096, 700_000, 20_000_001].into_iter().enumerate() {
        let bytes = noise(bytes, n as u64);
        fs::write(at(&format!("d/{n}")), &bytes).expect("written");
        assert!(fs::read(at(&format!("d/{n}"))).expect("read") == bytes, "file {n}");
        assert!(cluster.cat(&format!("braid://main/d/{n}")) == bytes, "file {n}, by the library");
    }
    // In place, over the end, past it, and shorter.
    let mut expected = noise(700_000, 3);
    let mut file = both(&at("d/3"));
    file.write_all_at(&[7; 100_000], 300_000).expect("written");
    file.write_all_at(&[8; 10_000], 695_000).expect("written");
    file.write_all_at(&[9; 10], 2_000_000).expect("written");
    expected[300_000..400_000].fill(7);
    expected.resize(705_000, 0);
    expected[695_000..].fill(8);
    expected.resize(2_000_010, 0);
    expected[2_000_000..].fill(9);
    let mut read = Vec::new();
    file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut read)).expect("read");
    assert!(read == expected && file.metadata().expect("there").len() == 2_000_010);
    file.set_len(650_000).expect("cut");
    file.set_len(660_000).expect("longer");
    expected.truncate(650_000);
    expected.resize(660_000, 0);
    assert!(fs::read(at("d/3")).expect("read") == expected);
    drop(file);
    assert!(cluster.cat("braid://main/d/3") == expected);
    fs::write(at("d/3"), b"anew").expect("written");
    assert_eq!(cluster.cat("braid://main/d/3"), b"anew");
    // With O_SYNC a write is stored when it is answered, without a further request.
    let mut direct = OpenOptions::new();
    direct.write(true).custom_flags(rustix::fs::OFlags::SYNC.bits().cast_signed());
    let direct = direct.open(at("d/3")).expect("opened");
    direct.write_all_at(b"and more", 4).expect("written");
    assert_eq!(cluster.cat("braid://main/d/3"), b"anewand more");
    drop(direct);
    // A time with a fraction of a second before 1970 is kept too.
    let file = both(&at("d/3"));
    let time = UNIX_EPOCH - Duration::from_millis(1250);
    file.set_modified(time).expect("set");
    let told = || file.metadata().expect("there");
    assert_eq!(told().modified().expect("a time"), time);
    // The change time that is reported before a sync does not outlive the sync.
    let changed = |of: fs::Metadata| (of.ctime(), of.ctime_nsec());
    let before = changed(told());
    file.write_all_at(b"A", 0).expect("written");
    assert!(told().modified().expect("a time") > time);
    file.sync_all().expect("synced");
    assert!(changed(told()) > before, "{:?} after {before:?}", changed(told()));
    drop(file);
    let ended = mounted.end();
    assert_eq!((ended.code, ended.err.as_str()), (0, ""), "it was in use: {}", ended.err);
}

#[test]
fn names_are_made_removed_and_moved_also_of_open_files() {
    let cluster = Cluster::up(5);
    let is_root = rustix::process::geteuid().is_root();
    let others: &[&str] = if is_root { &["--allow-other"] } else { &[] };
    let Some(mounted) = Mounted::with(&cluster, "braid://main", "mounted", others) else { return };
    let at = |name: &str| mounted.at.join(name);
    let kind = |done: std::io::Result<()>| done.expect_err("refused").kind();
    fs::create_dir_all(at("a/b")).expect("made");
    fs::write(at("a/f"), b"one").expect("written");
    assert_eq!(kind(fs::create_dir(at("a"))), ErrorKind::AlreadyExists);
    assert_eq!(kind(fs::remove_dir(at("a"))), ErrorKind::DirectoryNotEmpty);
    assert_eq!(kind(fs::remove_dir(at("a/f"))), ErrorKind::NotADirectory);
    assert!(fs::remove_file(at("a/b")).is_err() && at("a/b").is_dir());
    assert_eq!(kind(fs::rename(at("a"), at("a/b/c"))), ErrorKind::InvalidInput);
    let again = OpenOptions::new().write(true).create_new(true).open(at("a/f"));
    assert_eq!(again.expect_err("it is there").kind(), ErrorKind::AlreadyExists);
    // While the file is open it is renamed, and then another file takes its name.
    let mut open = both(&at("a/f"));
    fs::rename(at("a/f"), at("g")).expect("moved");
    open.write_all(b"ONE").expect("written");
    fs::write(at("h"), b"two").expect("written");
    fs::rename(at("h"), at("g")).expect("replaced");
    open.write_all(b" and more").expect("written");
    open.sync_all().expect("synced");
    let mut read = String::new();
    open.seek(SeekFrom::Start(0)).and_then(|_| open.read_to_string(&mut read)).expect("read");
    assert_eq!((read.as_str(), fs::read(at("g")).expect("read").as_slice()), ("ONE and more", &b"two"[..]));
    drop(open);
    // Without a name the file lives until it is closed, though a copy of its descriptor was closed.
    let made = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(at("u"));
    let mut open = made.expect("made");
    open.write_all(b"1").expect("written");
    drop(open.try_clone().expect("copied"));
    fs::remove_file(at("u")).expect("removed");
    open.write_all(b"2").expect("written");
    let mut read = String::new();
    open.seek(SeekFrom::Start(0)).and_then(|_| open.read_to_string(&mut read)).expect("read");
    assert_eq!((read.as_str(), at("u").exists()), ("12", false));
    drop(open);
    // A truncation by a user other than root clears the set-user-ID and set-group-ID bits.
    if is_root && Command::new("setpriv").arg("--version").output().is_ok() {
        fs::set_permissions(at("g"), fs::Permissions::from_mode(0o6777)).expect("set");
        let mut other = Command::new("setpriv");
        other.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", ": >g"]);
        other.current_dir(&mounted.at);
        run(other).ok();
        let cut = fs::metadata(at("g")).expect("there");
        assert_eq!((cut.permissions().mode() & 0o7777, cut.len()), (0o777, 0));
    }
    fs::remove_dir(at("a/b")).and_then(|()| fs::remove_dir(at("a"))).expect("removed");
    let names: Vec<_> =
        fs::read_dir(&mounted.at).expect("listed").map(|e| e.expect("one").file_name()).collect();
    assert_eq!(names, ["g"]);
}

#[test]
fn a_mapping_is_written_and_holes_read_as_zeros() {
    let cluster = Cluster::up(5);
    let Some(mounted) = Mounted::new(&cluster, "braid://main") else { return };
    let path = mounted.at.join("f");
    let mut expected = noise(3_000_000, 1);
    fs::write(&path, &expected).expect("written");
    let mut python = Command::new("python3");
    python.args([
        "-c",
        "import mmap,sys\nf=open(sys.argv[1],'r+b')\nm=mmap.mmap(f.fileno(),0)\n\
        m[5000:5010]=b'0123456789'\nm[2999990:]=b'9876543210'\nassert m[1000000:1000001]\nm.close()\n\
        # What gets such a name by any way is not mapped.\n\
        import errno,os\nat=os.path.dirname(sys.argv[1])+'/'\n\
        for one in 'rl': open(at+one,'wb').write(b'x'*4096)\n\
        os.rename(at+'r',at+'r-shm'); os.link(at+'l',at+'l-shm'); os.mknod(at+'n-shm')\n\
        os.truncate(at+'n-shm',4096)\n\
        def maps(name):\n try: return mmap.mmap(os.open(at+name,os.O_RDWR),4096)\n\
        \x20except OSError as error: assert error.errno==errno.ENODEV,error\n\
        assert not any(map(maps,['r-shm','l-shm','n-shm']))",
    ]);
    if Command::new("python3").arg("-V").output().is_ok() {
        run({
            python.arg(&path);
            python
        })
        .ok();
        expected[5000..5010].copy_from_slice(b"0123456789");
        expected[2_999_990..].copy_from_slice(b"9876543210");
        assert!(cluster.cat("braid://main/f") == expected, "as mapped");
    } else {
        println!("not mapped: there is no python3 here");
    }
    let file = both(&path);
    let hole = rustix::fs::FallocateFlags::PUNCH_HOLE;
    let keep = rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, hole | keep, 100_001, 1_500_000).expect("punched");
    expected[100_001..1_600_001].fill(0);
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 2_000_000, 2_000_000).expect("longer");
    expected.resize(4_000_000, 0);
    // Room is kept or refused, at once; the size stays.
    let none = rustix::fs::fallocate(&file, keep, 0, 100 << 40);
    assert_eq!(none, Err(rustix::io::Errno::NOSPC));
    rustix::fs::fallocate(&file, keep, 4_000_000, 8 << 20).expect("kept");
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::ZERO_RANGE, 10, 500).expect("zeroed");
    expected[10..510].fill(0);
    rustix::fs::fallocate(&file, hole | keep, 4_000_000, 1 << 40).expect("given back");
    assert!(fs::read(&path).expect("read") == expected);
    drop(file);
    assert!(cluster.cat("braid://main/f") == expected);
    // Programs that look for holes find them: also those that only read, and before anything was synced.
    let far = 1 << 30;
    let near = 64 << 20;
    let sparse =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(mounted.at.join("s"));
    let sparse = sparse.expect("made");
    sparse.write_all_at(b"begin", 0).expect("written");
    sparse.write_all_at(b"end", far).expect("written");
    sparse.set_len(2 * far).expect("longer");
    for file in [&sparse, &File::open(mounted.at.join("s")).expect("opened")] {
        let seek = |to| rustix::fs::seek(file, to);
        use rustix::fs::SeekFrom::{Data, Hole};
        assert_eq!((seek(Data(0)), seek(Data(3))), (Ok(0), Ok(3)));
        let hole = seek(Hole(0)).expect("one");
        assert!(hole > 0 && hole < near && seek(Hole(hole)) == Ok(hole), "{hole}");
        let data = seek(Data(hole)).expect("some");
        assert!(data <= far && data > far - near && seek(Hole(data)).expect("one") > far, "{data}");
        assert_eq!(seek(Data(far + near)), Err(rustix::io::Errno::NXIO));
        assert_eq!(seek(Hole(2 * far)), Err(rustix::io::Errno::NXIO));
    }
}

#[test]
fn appends_through_two_mounts_neither_mix_nor_get_lost() {
    const EACH: usize = 400;
    let cluster = Cluster::up(5);
    let Some(one) = Mounted::with(&cluster, "braid://main", "one", &[]) else { return };
    let other = Mounted::with(&cluster, "braid://main", "other", &[]).expect("as before");
    let record = |writer: usize, n: usize| format!("{writer} {n:04} {}\n", "x".repeat(n % 97));
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let at = if writer % 2 == 0 { &one.at } else { &other.at };
            scope.spawn(move || {
                let mut file = to_append(&at.join("log"));
                for n in 0..EACH {
                    file.write_all(record(writer, n).as_bytes()).expect("written");
                    if n % 50 == 49 {
                        file.sync_all().expect("synced");
                    }
                }
            });
        }
    });
    for at in [&one.at, &other.at] {
        let text = fs::read_to_string(at.join("log")).expect("read");
        for writer in 0..4 {
            let begin = format!("{writer} ");
            let own: String = text.split_inclusive('\n').filter(|line| line.starts_with(&begin)).collect();
            let expected: String = (0..EACH).map(|n| record(writer, n)).collect();
            assert!(own == expected, "the records of {writer} in {}", at.display());
        }
        assert_eq!(text.lines().count(), 4 * EACH);
    }
}

#[test]
fn who_opens_a_file_sees_what_was_closed_in_the_other_mount() {
    let cluster = Cluster::up(5);
    let Some(one) = Mounted::with(&cluster, "braid://main", "one", &[]) else { return };
    let other = Mounted::with(&cluster, "braid://main", "other", &[]).expect("as before");
    let mounts = [&one.at, &other.at];
    for n in 0..100_u32 {
        let from = mounts[(n % 2) as usize];
        let to = mounts[((n + 1) % 2) as usize];
        // The new content is as long as before, shorter or longer.
        let bytes = noise(1000 + (n / 3 % 3) as usize * 5000, u64::from(n));
        fs::write(from.join("f"), &bytes).expect("written");
        let mut file = File::open(to.join("f")).expect("opened");
        let mut read = Vec::new();
        file.read_to_end(&mut read).expect("read");
        assert!(read == bytes, "round {n}: {} bytes, not {}", read.len(), bytes.len());
        assert_eq!(file.metadata().expect("there").len(), bytes.len() as u64);
    }
    // A reader that stays open sees the change soon.
    let mut open = File::open(one.at.join("f")).expect("opened");
    let mut writer = both(&other.at.join("f"));
    writer.write_all_at(b"changed", 10).and_then(|()| writer.flush()).expect("written");
    drop(writer);
    until("the change is seen", || {
        let mut read = [0; 7];
        open.seek(SeekFrom::Start(10)).and_then(|_| open.read_exact(&mut read)).expect("read");
        open.metadata().expect("there");
        read == *b"changed"
    });
    // Only one of two clients makes a name, if both ask for it to be new.
    let made = std::thread::scope(|scope| {
        let make = |at: &Path| OpenOptions::new().write(true).create_new(true).open(at.join("new")).is_ok();
        let threads = mounts.map(|at| scope.spawn(move || (0..1).filter(|_| make(at)).count()));
        threads.into_iter().map(|thread| thread.join().expect("done")).sum::<usize>()
    });
    assert_eq!(made, 1);
    by_handle(&one.at, &other.at);
}

/// Opens a file by a handle of one mount in another, whose kernel side does not know the file yet.
fn by_handle(one: &Path, other: &Path) {
    const SCRIPT: &str = "import ctypes,os,sys\n\
        c=ctypes.CDLL(None,use_errno=True)\n\
        h=ctypes.create_string_buffer((128).to_bytes(4,sys.byteorder)+bytes(132),136)\n\
        n=ctypes.c_int()\n\
        d=os.path.join(sys.argv[1],'d'); os.makedirs(d)\n\
        p=os.path.join(d,'h'); open(p,'w').write('by number')\n\
        r=c.name_to_handle_at(-100,p.encode(),h,ctypes.byref(n),0)\n\
        assert r==0,os.strerror(ctypes.get_errno())\n\
        m=os.open(sys.argv[2],os.O_RDONLY|os.O_DIRECTORY)\n\
        f=c.open_by_handle_at(m,h,os.O_RDONLY)\n\
        assert f>=0,os.strerror(ctypes.get_errno())\n\
        assert os.read(f,99)==b'by number'";
    let can = rustix::process::geteuid().is_root() && Command::new("python3").arg("-V").output().is_ok();
    if !can {
        return println!("not opened by a handle: it takes root and python3");
    }
    let mut python = Command::new("python3");
    python.args(["-c", SCRIPT]).args([one, other]);
    run(python).ok();
}

#[test]
fn in_the_background_it_is_mounted_when_the_command_returns() {
    let cluster = Cluster::up(5);
    if Mounted::new(&cluster, "braid://main").is_none() {
        return;
    }
    let at = cluster.file("at");
    let log = cluster.file("log");
    fs::create_dir(&at).expect("made");
    let unmount = || {
        let umount = Command::new("umount").arg(&at).status().expect("run");
        assert!(umount.success());
        until("it has ended", || fs::read_to_string(&log).is_ok_and(|log| log.contains("Cleanly")));
    };
    let mut command = cluster.command(["mount", "--detach", "--log"]);
    command.arg(&log).arg("braid://main").arg(&at);
    run(command).ok();
    assert!(is_mounted(&at));
    fs::write(at.join("f"), b"by any program").expect("written");
    unmount();
    assert_eq!(cluster.cat("braid://main/f"), b"by any program");
    // Called as mount(8) would call it.
    let helper = cluster.file("mount.braid");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_braid"), &helper).expect("linked");
    fs::remove_file(&log).expect("removed");
    let options = format!("rw,noauto,cluster={},log={}", cluster.dir().display(), log.display());
    let mut command = Command::new(&helper);
    command.args(["braid://main"]).arg(&at).args(["-n", "-o", &options]).env_remove("BRAID_CLUSTER");
    assert_eq!(run(command).ok().text(), "", "mount(8) prints nothing, so its helper does not");
    assert_eq!(fs::read(at.join("f")).expect("read"), b"by any program");
    assert_eq!(fs::metadata(&log).expect("there").permissions().mode() & 0o077, 0, "others do not read it");
    // Flags that the kernel enforces can be changed by root while the volume is mounted.
    for (how, can_write) in [("remount,ro,noexec,relatime", false), ("remount,rw", true)] {
        let mut command = Command::new(&helper);
        command.arg("braid://main").arg(&at).args(["-o", how]);
        if rustix::process::geteuid().is_root() {
            run(command).ok();
            assert_eq!(fs::write(at.join("g"), how).is_ok(), can_write, "{how}");
        }
    }
    unmount();
    let mut command = Command::new(&helper);
    command.args(["braid://main"]).arg(&at).args(["-o", "strange"]);
    run(command).failed(1, "strange");
    // An error is reported before the command returns.
    let mut command = cluster.command(["mount", "--detach", "braid://nothing"]);
    command.arg(&at);
    run(command).failed(3, "nothing");
    let mut command = cluster.command(["mount", "--detach", "braid://main", "/no/such/directory"]);
    command.arg("--read-only");
    let said = run(command);
    assert!(said.code != 0 && said.err.contains("/no/such/directory"), "{}", said.err);
}

#[test]
fn what_waits_is_written_when_it_is_unmounted() {
    let cluster = Cluster::up(5);
    let Some(mounted) = Mounted::new(&cluster, "braid://main") else { return };
    let held = noise(5_000_000, 1);
    let closed = noise(300_000, 2);
    fs::write(mounted.at.join("closed"), &closed).expect("written");
    let mut file = File::create(mounted.at.join("held")).expect("made");
    file.write_all(&held).expect("written");
    let pid = mounted.pid();
    let ended = mounted.end();
    // It was in use, and nothing is lost.
    assert_eq!((ended.code, runs(pid)), (0, false), "{}", ended.err);
    assert!(ended.err.contains("was in use"), "{}", ended.err);
    assert!(cluster.cat("braid://main/held") == held && cluster.cat("braid://main/closed") == closed);
    assert!(file.write_all(b"more").and_then(|()| file.sync_all()).is_err());
}
