//! The cached state of a mount: sizes and bytes of files that other clients change.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use crate::mount::two;
use crate::support::Cluster;

fn open(at: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(at).expect("opened")
}

#[test]
fn what_one_mount_made_and_another_wrote_has_its_new_size_at_once() {
    let cluster = Cluster::up(5);
    let Some((a, b)) = two(&cluster) else { return };
    for (name, make) in [("made", true), ("linked", false)] {
        let one = a.at.join(name);
        let other = b.at.join(name);
        if make {
            drop(File::create_new(&one).expect("made"));
        } else {
            fs::hard_link(a.at.join("made"), &one).expect("linked");
        }
        open(&other).write_all_at(&[1; 2000], 0).expect("written");
        assert_eq!(fs::metadata(&one).expect("there").len(), 2000, "{name}");
        open(&other).set_len(0).expect("cut");
        assert_eq!(fs::metadata(&one).expect("there").len(), 0, "{name}");
    }
    // The new content is as long as before, and its writer stays open.
    let one = a.at.join("made");
    let other = b.at.join("made");
    fs::write(&other, [1; 2000]).expect("written");
    let writer = open(&one);
    for byte in [2, 3] {
        assert_eq!(fs::read(&other).expect("read"), [byte - 1; 2000]);
        writer.write_all_at(&[byte; 2000], 0).and_then(|()| writer.sync_data()).expect("synced");
        assert_eq!(fs::read(&other).expect("read"), [byte; 2000]);
    }
}

#[test]
fn a_reader_that_stays_open_sees_the_file_grow_and_shrink() {
    let cluster = Cluster::up(5);
    let Some((a, b)) = two(&cluster) else { return };
    let one = a.at.join("f");
    let other = b.at.join("f");
    fs::write(&one, [1; 10]).expect("written");
    let reader = File::open(&other).expect("opened");
    // Other mounts wait 50 ms for the kernel to drop its pages; on a busy machine it may need longer.
    let sees = |expected: &[u8]| {
        let mut last = (Vec::new(), 0);
        for _ in 0..200 {
            let mut bytes = [0; 10_000];
            let length = reader.read_at(&mut bytes, 0).expect("read");
            last = (bytes[..length].to_vec(), reader.metadata().expect("there").len());
            if last.0 == expected && last.1 == expected.len() as u64 {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{} bytes are read and {} told, of {}", last.0.len(), last.1, expected.len());
    };
    sees(&[1; 10]);
    let writer = open(&one);
    for (byte, length) in [(2, 20_usize), (3, 40), (4, 40), (5, 5000), (6, 9000)] {
        writer.write_all_at(&vec![byte; length], 0).and_then(|()| writer.sync_all()).expect("synced");
        sees(&vec![byte; length]);
    }
    writer.set_len(20).and_then(|()| writer.sync_all()).expect("cut");
    sees(&[6; 20]);
    drop(writer);
    let mut appender = File::options().append(true).open(&one).expect("opened");
    appender.write_all(&[6; 30]).expect("written");
    drop(appender);
    sees(&[6; 50]);
    // In no mount are appended bytes visible as zeros before they are there.
    std::thread::scope(|scope| {
        let appending = scope.spawn(|| {
            let mut appender = File::options().append(true).open(&one).expect("opened");
            for n in 0..400 {
                appender.write_all(&[6; 20]).expect("written");
                if n % 10 == 9 {
                    appender.sync_data().expect("synced");
                }
            }
        });
        let mut bytes = vec![0; 10_000];
        while !appending.is_finished() {
            let length = reader.read_at(&mut bytes, 0).expect("read");
            assert!(bytes[..length].iter().all(|byte| *byte == 6), "zeros among {length} bytes");
        }
    });
    sees(&[6; 50 + 400 * 20]);
}
