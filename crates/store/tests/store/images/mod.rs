//! Images of whole stores, healthy and damaged, as they are on users' disks: `tests/golden/images`.
//!
//! `healthy.hex` has all files of a store; `healthy.txt` has the store's report. Each file of `damaged` has
//! the damage, as a patch of the healthy image, the findings of `store check` and of opening, and every
//! difference in the report of the store then. `BRAID_GOLDEN=write` regenerates all of them: the store by its
//! steps, the patches by searching for their offsets, the rest by observing.

mod damage;
mod steps;
mod text;
mod told;

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use braid_layout::PartitionId;
use braid_store::disk::memory::Memory;
use braid_store::format::entry;
use braid_store::format::record::Kind;
use braid_store::inspect::{check, dump};
use braid_store::*;

use crate::common::*;
use damage::{CASES, Case};
use steps::options;
use text::*;
use told::{Told, differences, told};

const FORMAT: &str = "the format has changed: these bytes are on people's disks";
const SAYS: &str = "a store that is on people's disks is understood otherwise";

/// The healthy image, from its committed bytes.
static HEALTHY: LazyLock<Image> = LazyLock::new(|| {
    if is_written_anew() {
        check_golden("healthy.hex", &image_text(&steps::image()), FORMAT);
    }
    parse_image(&golden("healthy.hex"))
});

#[test]
fn the_same_steps_give_the_same_bytes() {
    let image = steps::image();
    assert!(parse_image(&image_text(&image)) == image, "the text stands for all of the image");
    LazyLock::force(&HEALTHY);
    check_golden("healthy.hex", &image_text(&image), FORMAT);
}

#[test]
fn the_healthy_one_is_whole_and_says_what_it_said() {
    let image = &*HEALTHY;
    let dir = in_directory(image);
    let mut text = String::from("check:\n");
    let report = check(dir.path()).expect("check");
    assert_eq!(report.findings, []);
    text += &report_text(&report);
    text += "dump:\n";
    dump(dir.path(), |line| {
        text += &format!("{} {} {} {}\n", line.file, line.offset, line.kind, line.text);
        true
    })
    .expect("dump");
    assert!(*image == image_of_dir(image, dir.path()), "looking changes nothing");
    let (store, recovery) = open(image).expect("open");
    assert_eq!((recovery.torn_bytes, recovery.damaged_count), (0, 0), "{recovery:?}");
    text += &format!("opening:\n{}told:\n{}", recovery_text(&recovery), told::text(&told(&store)));
    check_golden("healthy.txt", &text, SAYS);
    // The store can also be written to.
    for n in 0..3 {
        store.commit(Mutation::Write(write(7, n, 0, 5000, version(1, 100 + n)))).expect("write");
        assert_eq!(content(&store, 7, n, 0, 5000, Want::Newest).expect("read"), pattern(100 + n, 5000));
    }
    store.close().expect("close");
}

/// The healthy images of version 2, whose snapshots no still names, and of version 3, whose fences drop
/// nothing.
#[test]
fn a_store_of_a_version_before_is_opened_and_goes_on() {
    for name in ["version2", "version3"] {
        let image = parse_image(&golden(&format!("{name}.hex")));
        let (store, recovery) = open(&image).expect("open");
        assert_eq!((recovery.torn_bytes, recovery.damaged_count), (0, 0), "{name}: {recovery:?}");
        check_golden(&format!("{name}.txt"), &told::text(&told(&store)), SAYS);
        let written = Write { standing: Standing::Installed, ..write(7, 0, 0, 5000, version(1, 100)) };
        store.commit(Mutation::Write(written)).expect("write");
        store.commit(take(7, 57)).expect("take");
        assert_eq!(content(&store, 57, 0, 0, 5000, Want::Newest).expect("read"), pattern(100, 5000));
        store.close().expect("close");
    }
}

#[test]
fn the_healthy_one_has_everything_that_a_store_can_have() {
    let dir = in_directory(&HEALTHY);
    let mut met = BTreeSet::new();
    let mut checkpoints = BTreeSet::new();
    let mut flags = BTreeSet::new();
    dump(dir.path(), |line| {
        let words = line.text.split(' ').map(str::to_owned);
        flags.extend(words.filter(|word| ["hole", "installed", "owed", "folded"].contains(&word.as_str())));
        if line.file.starts_with("checkpoint") {
            checkpoints.insert(line.kind)
        } else {
            met.insert(line.kind)
        };
        true
    })
    .expect("dump");
    for (_, _, name) in Kind::ALL {
        assert!(met.contains(name), "no record of kind {name}");
    }
    for (_, name) in entry::KINDS.iter().filter(|(_, name)| *name != "lost range") {
        let shown = if *name == "dedup" { "operations" } else { name };
        assert!(checkpoints.contains(shown), "no entry of kind {name}: {checkpoints:?}");
    }
    assert_eq!(flags.len(), 4, "{flags:?}");
}

#[test]
fn each_damaged_one_says_what_is_lost_and_the_rest_is_whole() {
    let image = &*HEALTHY;
    let whole = told(&open(image).expect("open").0);
    for case in CASES {
        let name = format!("damaged/{}.txt", case.name);
        let planted = (case.plant)(image);
        check_golden(
            &name,
            &case_text(case, &planted, image, &whole),
            "the damage, or what it does, has changed",
        );
        // The same is checked again, from the committed bytes alone.
        let golden = golden(&name);
        let lines =
            golden.lines().skip_while(|line| *line != "patch:").skip(1).take_while(|line| *line != "check:");
        let patches = parse_patches(lines);
        assert!(patches == planted && !patches.is_empty(), "{name}: the text stands for the damage");
    }
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/images/damaged");
    let files = std::fs::read_dir(path).expect("list").count();
    assert_eq!(files, CASES.len(), "a damaged image without a case");
}

fn case_text(case: &Case, patches: &[Patch], image: &Image, whole: &Told) -> String {
    let image = patched(image, patches);
    let dir = in_directory(&image);
    let report = check(dir.path()).expect("check");
    assert!(image == image_of_dir(&image, dir.path()), "{}: looking changes nothing", case.name);
    let disk = in_memory(&image);
    let opening = match open_disk(&disk) {
        Err(error) => format!("refused: {error}\n"),
        Ok((store, recovery)) => {
            let first = told(&store);
            store.close().unwrap_or_else(|error| panic!("{}: {error}", case.name));
            drop(store);
            let (store, _) = open_disk(&disk).unwrap_or_else(|error| panic!("{}: {error}", case.name));
            let again = differences(&in_short(&first), &in_short(&told(&store)));
            assert!(again.is_empty(), "{}: opened again it says otherwise\n{again}", case.name);
            let opening = recovery_text(&recovery);
            format!("{opening}told otherwise:\n{}{}", differences(whole, &first), anew(&store, whole))
        }
    };
    let patch = patch_text(patches);
    let found = report_text(&report);
    format!("{}\npatch:\n{patch}check:\n{found}opening:\n{opening}", case.what)
}

/// The report without the reasons for damage: only a lost range may be left of a partition.
fn in_short(told: &Told) -> Told {
    let damaged = "refused: damaged";
    let short = |line: &String| if line.starts_with(damaged) { damaged.to_owned() } else { line.clone() };
    told.iter().map(|(key, line)| (key.clone(), short(line))).collect()
}

/// Makes the partitions anew whose values are lost, as they serve nothing until then. Returns the differences
/// in the report after that.
fn anew(store: &Store, whole: &Told) -> String {
    let lost = |partition: &PartitionId| matches!(store.partition(*partition), Err(Error::Damaged { .. }));
    let made: Vec<PartitionId> = [P, PartitionId(9)].into_iter().filter(lost).collect();
    for &partition in &made {
        let make = Mutation::PartitionCreate { partition, quota_bytes: None, key_epoch: 9 };
        store.commit(make).expect("made anew");
    }
    if made.is_empty() {
        return String::new();
    }
    format!("told otherwise, its partitions made anew:\n{}", differences(whole, &told(store)))
}

fn open(image: &Image) -> Result<(Store, Recovery), Error> {
    open_disk(&in_memory(image))
}

fn open_disk(disk: &Memory) -> Result<(Store, Recovery), Error> {
    Store::open_on(Arc::new(disk.clone()), Some(identity()), options())
}

fn image_of_dir(image: &Image, dir: &std::path::Path) -> Image {
    image.keys().map(|name| (name.clone(), std::fs::read(dir.join(name)).expect("a file"))).collect()
}

fn report_text(report: &inspect::Report) -> String {
    let mut text = format!(
        "{} segments, {} records, {} payload bytes, {} checkpoints, {} extents, {} damaged\n",
        report.segments,
        report.records,
        report.payload_bytes,
        report.checkpoints,
        report.extents,
        report.damaged
    );
    for finding in &report.findings {
        let harmless = if finding.harmless { " (harmless)" } else { "" };
        text += &format!("{} {}{harmless}: {}\n", finding.file, finding.offset, finding.what);
    }
    text
}

fn recovery_text(recovery: &Recovery) -> String {
    let mut text = format!(
        "checkpoint {}, {} segments, {} records, {} torn bytes, {} damaged\n",
        recovery.checkpoint, recovery.segments, recovery.records, recovery.torn_bytes, recovery.damaged_count
    );
    for damage in &recovery.damaged {
        text += &format!("segment {} {}: {}\n", damage.segment, damage.offset, damage.what);
    }
    text
}
